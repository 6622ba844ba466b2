'use strict';

// A call of the library, and the three ways to make it: now, with a callback, as a promise. A plan
// is a request, or a generator of requests, each of which gives it the result.

const { systemError, treeError } = require('./errors');

const AFTER_OPEN = 4096;

class Request {
    /** `op` is a function of the addon, `args` are what follows the task. */
    constructor(op, args, syscall, path, dest) {
        this.op = op;
        this.args = args;
        this.syscall = syscall;
        this.path = path;
        this.dest = dest;
        /** Makes the result of what the library returns. */
        this.map = undefined;
        /** The name of the call that fails if the file was opened. */
        this.after = undefined;
        /** A second result of a callback. */
        this.extra = undefined;
    }

    /** Sets how the result is made, and returns the request. */
    gives(map) {
        this.map = map;
        return this;
    }

    /** Returns the error of a result, or undefined. */
    failure(result) {
        if (typeof result === 'number') {
            if (result >= 0) return undefined;
            if (result <= -AFTER_OPEN) {
                return systemError(result + AFTER_OPEN, this.after ?? this.syscall);
            }
            return systemError(result, this.syscall, this.path, this.dest);
        }
        return result instanceof Error ? treeError(result, this.syscall, this.path) : undefined;
    }

    result(result, task) {
        if (this.map !== undefined) return this.map(result, task);
        return typeof result === 'number' ? undefined : result;
    }
}

function requestNow(task, request) {
    const { args } = request;
    const result = request.op(task, ...args);
    const error = request.failure(result);
    if (error !== undefined) throw error;
    return request.result(result, task);
}

function requestLater(task, request, done) {
    request.op(task, ...request.args, (result) => {
        let error = request.failure(result);
        let value;
        if (error === undefined) {
            try {
                value = request.result(result, task);
            } catch (thrown) {
                error = thrown;
            }
        }
        done(error, value);
    });
}

/** Makes the calls of a plan, and returns its result or throws its error. */
function now(task, plan) {
    if (plan instanceof Request) return requestNow(task, plan);
    let step = plan.next();
    while (!step.done) {
        let value;
        try {
            value = requestNow(task, step.value);
        } catch (error) {
            step = plan.throw(error);
            continue;
        }
        step = plan.next(value);
    }
    return step.value;
}

/** Makes the calls of a plan on other threads, and calls `done` with an error or the result. */
function later(task, plan, done) {
    if (plan instanceof Request) {
        requestLater(task, plan, done);
        return;
    }
    const go = (error, value, first) => {
        let step;
        try {
            if (first) step = plan.next();
            else step = error === undefined ? plan.next(value) : plan.throw(error);
        } catch (thrown) {
            if (first) process.nextTick(done, thrown);
            else done(thrown);
            return;
        }
        if (!step.done) {
            // Anything else that it waits for, such as a filter of the caller, is a promise.
            if (step.value instanceof Request) requestLater(task, step.value, go);
            else Promise.resolve(step.value).then((result) => go(undefined, result), go);
        } else if (first) {
            process.nextTick(done, undefined, step.value);
        } else {
            done(undefined, step.value);
        }
    };
    go(undefined, undefined, true);
}

/** Makes the calls of a plan on other threads; returns a promise. */
function promised(task, plan) {
    return new Promise((resolve, reject) => {
        later(task, plan, (error, value) => {
            if (error === undefined) resolve(value);
            else reject(error);
        });
    });
}

module.exports = { Request, later, now, promised, requestNow };
