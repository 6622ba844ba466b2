'use strict';

// Open directories. The entries are those at the opening.

const { Dir: NodeDir } = require('node:fs');
const { callbackOf, encodingOf, integer, optionsOf, pathOf } = require('./arguments');
const { coded } = require('./errors');
const { entries } = require('./calls');

const busy = () =>
    coded(
        Error,
        'ERR_DIR_CONCURRENT_OPERATION',
        'Cannot do synchronous work on directory handle with concurrent asynchronous operations',
    );
const closed = () => coded(Error, 'ERR_DIR_CLOSED', 'Directory handle was closed');

class Dir {
    #path;
    #entries;
    #at = 0;
    #isOpen = true;
    #pending = 0;

    constructor(path, entries) {
        this.#path = path;
        this.#entries = entries;
    }

    get path() {
        return this.#path;
    }

    readSync() {
        if (!this.#isOpen) throw closed();
        if (this.#pending > 0) throw busy();
        return this.#next();
    }

    #next() {
        if (!this.#isOpen) throw closed();
        return this.#entries[this.#at++] ?? null;
    }

    read(callback) {
        return this.#both(() => this.#next(), callback);
    }

    closeSync() {
        if (!this.#isOpen) throw closed();
        if (this.#pending > 0) throw busy();
        this.#end();
    }

    #end() {
        if (!this.#isOpen) throw closed();
        this.#isOpen = false;
        this.#entries = [];
    }

    close(callback) {
        return this.#both(() => this.#end(), callback);
    }

    /** Makes a call in a later turn of the loop. */
    #both(call, callback) {
        const made = () => {
            this.#pending--;
            return call();
        };
        if (callback === undefined) {
            this.#pending++;
            return new Promise((resolve) => setImmediate(resolve)).then(made);
        }
        callbackOf(callback);
        if (!this.#isOpen) throw closed();
        this.#pending++;
        setImmediate(() => {
            let result;
            try {
                result = made();
            } catch (error) {
                callback(error);
                return;
            }
            callback(null, result);
        });
        return undefined;
    }

    async *entries() {
        try {
            for (let entry = await this.read(); entry !== null; entry = await this.read())
                yield entry;
        } finally {
            if (this.#isOpen) this.#end();
        }
    }

    [Symbol.asyncIterator]() {
        return this.entries();
    }
}

Object.setPrototypeOf(Dir.prototype, NodeDir.prototype);
for (const name of ['dispose', 'asyncDispose']) {
    if (Symbol[name] === undefined) continue;
    Object.defineProperty(Dir.prototype, Symbol[name], {
        value() {
            return name === 'dispose' ? this.closeSync() : this.close();
        },
        configurable: true,
        writable: true,
    });
}

/** Opens a directory. */
function opendir(path, options) {
    options = optionsOf(options, { encoding: 'utf8' });
    encodingOf(options.encoding);
    if (options.bufferSize !== undefined) {
        integer(options.bufferSize, 'options.bufferSize', 1, 4294967295);
    }
    const request = entries(path, { ...options, withFileTypes: true });
    request.syscall = 'opendir';
    const map = request.map;
    const text = `${pathOf(path)}`;
    return request.gives((all) => new Dir(text, map(all)));
}

module.exports = { Dir, opendir };
