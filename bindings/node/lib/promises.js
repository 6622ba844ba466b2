'use strict';

// `fs/promises` of a tree. Every call is made on a thread of the pool.

const { constants } = require('node:fs');
const { calls, realpathNative } = require('./calls');
const { cp } = require('./copy');
const { opendir } = require('./dir');
const { FileHandle, checkSignal, isIterable } = require('./handle');
const { glob } = require('./glob');
const { optionsOf } = require('./arguments');
const { promised } = require('./request');
const { watchEvents } = require('./watch');

const NAMES = [
    'access',
    'chmod',
    'chown',
    'copyFile',
    'lchmod',
    'lchown',
    'link',
    'lstat',
    'lutimes',
    'mkdir',
    'mkdtemp',
    'readdir',
    'readlink',
    'rename',
    'rm',
    'rmdir',
    'stat',
    'statfs',
    'symlink',
    'truncate',
    'unlink',
    'utimes',
];

const isHandle = (path) => path instanceof FileHandle;

/** Makes the promises of a tree. */
function promises(task, fs) {
    const made = { constants, FileHandle };
    for (const name of NAMES) {
        made[name] = {
            async [name](...args) {
                return promised(task, calls[name](...args));
            },
        }[name];
    }
    made.cp = async (...args) => promised(task, cp(...args));
    made.realpath = async (...args) => promised(task, realpathNative(...args));
    made.opendir = async (...args) => promised(task, opendir(...args));
    made.open = async (path, flags, mode) =>
        new FileHandle(task, fs, await promised(task, calls.open(path, flags ?? 'r', mode)));
    made.glob = async function* (...args) {
        yield* await promised(task, glob(...args));
    };
    made.watch = (path, options) => watchEvents(task, path, options);

    made.readFile = async (path, options) => {
        if (isHandle(path)) return path.readFile(options);
        checkSignal(options);
        const data = await promised(task, calls.readFile(noDescriptor(path), options));
        checkSignal(options);
        return data;
    };
    made.writeFile = async (path, data, options) => {
        if (isHandle(path)) return path.writeFile(data, options);
        checkSignal(options);
        if (!isIterable(data)) {
            await promised(task, calls.writeFile(noDescriptor(path), data, options));
            return checkSignal(options);
        }
        const { flag = 'w', mode } = optionsOf(options);
        const handle = await made.open(path, flag, mode);
        try {
            return await handle.writeFile(data, options);
        } finally {
            await handle.close();
        }
    };
    made.appendFile = async (path, data, options) => {
        if (isHandle(path)) return path.appendFile(data, options);
        options = optionsOf(options, { encoding: 'utf8', mode: 0o666 });
        return made.writeFile(path, data, { ...options, flag: options.flag || 'a' });
    };
    return made;
}

/** Promises take no descriptors: a number is a wrong argument. */
const noDescriptor = (path) => (typeof path === 'number' ? undefined : path);

module.exports = { promises };
