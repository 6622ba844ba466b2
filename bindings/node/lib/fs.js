'use strict';

// The object that replaces `fs`.

const nodeFs = require('node:fs');
const { promisify } = require('node:util');
const native = require('./native');
const { callbackOf, modeOf, flagsOf, pathOf, timeOf } = require('./arguments');
const { calls, realpathNative, wholeBuffer } = require('./calls');
const { cp } = require('./copy');
const { Dir, opendir } = require('./dir');
const { glob } = require('./glob');
const { systemError, valueError } = require('./errors');
const { checkSignal } = require('./handle');
const { promises } = require('./promises');
const { later, now, promised } = require('./request');
const { BigIntStats, Dirent, Stats, lastStats } = require('./stats');
const { streams } = require('./streams');
const { FSWatcher, StatWatcher, fileWatchers, watch } = require('./watch');

const plans = { ...calls, cp, glob, opendir };
const PROMISED = {
    read: ['bytesRead', 'buffer'],
    write: ['bytesWritten', 'buffer'],
    readv: ['bytesRead', 'buffers'],
    writev: ['bytesWritten', 'buffers'],
};

/** Adds the forms of a call: `name` with a callback, and `nameSync`. */
function addForms(fs, task, name, plan) {
    fs[`${name}Sync`] = {
        [`${name}Sync`](...args) {
            return now(task, plan(...args));
        },
    }[`${name}Sync`];
    fs[name] = {
        [name](...args) {
            const callback = callbackOf(args.pop());
            const call = plan(...args);
            later(task, call, (error, value) => {
                if (error !== undefined) callback(error);
                else if (call.extra !== undefined) callback(null, value, call.extra);
                else if (value === undefined) callback(null);
                else callback(null, value);
            });
        },
    }[name];
    if (PROMISED[name] !== undefined) {
        const [result, extra] = PROMISED[name];
        fs[name][promisify.custom] = async (...args) => {
            const call = plan(...args);
            return { [result]: await promised(task, call), [extra]: call.extra };
        };
    }
}

/** Replaces the callback forms that take a signal. */
function addSignals(fs) {
    for (const name of ['readFile', 'writeFile', 'appendFile']) {
        const plain = fs[name];
        fs[name] = {
            [name](...args) {
                const callback = callbackOf(args.at(-1));
                const options =
                    args.length > (name === 'readFile' ? 2 : 3) ? args.at(-2) : undefined;
                if (options?.signal === undefined) {
                    plain(...args);
                    return;
                }
                const stopped = () => {
                    try {
                        return checkSignal(options);
                    } catch (error) {
                        return error;
                    }
                };
                const error = stopped();
                if (error !== undefined) {
                    process.nextTick(callback, error);
                    return;
                }
                plain(...args.slice(0, -1), (failed, value) => {
                    const late = stopped() ?? failed;
                    if (late) callback(late);
                    else callback(null, value);
                });
            },
        }[name];
    }
}

/** Adds what reads and writes whole files in one crossing to the library. */
function addFast(fs, task) {
    const fail = (result, syscall, path) => {
        if (result <= -4096)
            return systemError(result + 4096, syscall === 'open' ? 'read' : syscall);
        return systemError(result, syscall, path);
    };
    const utf8 = (encoding) => encoding === 'utf8' || encoding === 'utf-8';
    const { readFileSync, writeFileSync, readdirSync } = fs;
    fs.readFileSync = function (path, options) {
        if (typeof path !== 'string' || path.includes('\0')) return readFileSync(path, options);
        const encoding =
            typeof options === 'object' &&
            options !== null &&
            options.flag === undefined &&
            options.signal === undefined
                ? options.encoding
                : options;
        if (utf8(encoding)) {
            const text = native.readFile(task, path, 0, 1);
            if (typeof text === 'string') return text;
            throw fail(text, 'open', path);
        }
        if (encoding != null) return readFileSync(path, options);
        const found = native.readFile(task, path, 0, 0);
        if (typeof found === 'number' && found < 0) throw fail(found, 'open', path);
        return wholeBuffer(task, found, path, 'r');
    };
    const made = flagsOf('w');
    fs.writeFileSync = function (path, data, options) {
        if (
            typeof path !== 'string' ||
            path.includes('\0') ||
            (options != null && !utf8(options)) ||
            (typeof data !== 'string' && !ArrayBuffer.isView(data))
        ) {
            return writeFileSync(path, data, options);
        }
        const result = native.writeFile(task, path, data, made, 0o666, 0);
        if (result < 0) {
            throw result <= -4096
                ? systemError(result + 4096, 'write')
                : systemError(result, 'open', path);
        }
        return undefined;
    };
    fs.readdirSync = function (path, options) {
        if (options !== undefined || typeof path !== 'string' || path.includes('\0')) {
            return readdirSync(path, options);
        }
        const all = native.readdir(task, path, 0, 0);
        if (typeof all === 'number') throw systemError(all, 'scandir', path);
        return all === '' ? [] : all.split('\0');
    };
    fs.existsSync = function (path) {
        try {
            return native.access(task, pathOf(path), 0) === 0;
        } catch {
            return false;
        }
    };
}

/** Adds `statSync` and `lstatSync`, which may tell that there is no file without an error. */
function addStats(fs, task) {
    for (const [name, syscall, follow] of [
        ['statSync', 'stat', 1],
        ['lstatSync', 'lstat', 0],
    ]) {
        fs[name] = {
            [name](path, options) {
                const result = native.stat(task, pathOf(path), follow);
                if (result === 0) return lastStats(options !== undefined && options.bigint);
                if (options?.throwIfNoEntry === false && (result === -2 || result === -20))
                    return undefined;
                throw systemError(result, syscall, path);
            },
        }[name];
    }
}

function addOthers(fs, task) {
    fs.exists = function exists(path, callback) {
        callbackOf(callback);
        let call;
        try {
            call = calls.access(path);
        } catch {
            process.nextTick(callback, false);
            return;
        }
        later(task, call, (error) => callback(error === undefined));
    };
    fs.exists[promisify.custom] = (path) =>
        new Promise((resolve) => {
            fs.exists(path, resolve);
        });
    addForms(fs.realpath, task, 'native', realpathNative);
    fs.realpathSync.native = fs.realpath.nativeSync;
    delete fs.realpath.nativeSync;
    fs.watch = (file, options, listener) => watch(task, file, options, listener);
    Object.assign(fs, fileWatchers(task));
    fs.openAsBlob = async (path, options) => {
        const data = await fs.promises.readFile(path).catch((error) => {
            if (error.errno === undefined) throw error;
            throw valueError('path', path, 'Unable to open file as blob');
        });
        return new Blob([data], options);
    };
    fs.createReadStream = (path, options) => new fs.ReadStream(path, options);
    fs.createWriteStream = (path, options) => new fs.WriteStream(path, options);
    fs._toUnixTimestamp = timeOf;
    fs.mkfifoSync = (path, mode) => {
        const result = native.mkfifo(task, pathOf(path), modeOf(mode, 'mode', 0o666));
        if (result < 0) throw systemError(result, 'mkfifo', path);
    };
}

/** Makes the object that replaces `fs` with the calls of a task. */
function makeFs(task) {
    const fs = {};
    for (const [name, plan] of Object.entries(plans)) addForms(fs, task, name, plan);
    addSignals(fs);
    addFast(fs, task);
    addStats(fs, task);
    addOthers(fs, task);
    const { ReadStream, WriteStream } = streams(fs);
    Object.assign(fs, {
        BigIntStats,
        Dir,
        Dirent,
        FSWatcher,
        ReadStream,
        StatWatcher,
        Stats,
        WriteStream,
        FileReadStream: ReadStream,
        FileWriteStream: WriteStream,
    });
    fs.promises = promises(task, fs);
    fs.constants = nodeFs.constants;
    for (const name of ['F_OK', 'R_OK', 'W_OK', 'X_OK']) fs[name] = nodeFs.constants[name];
    return fs;
}

module.exports = { makeFs };
