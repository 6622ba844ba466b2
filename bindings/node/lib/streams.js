'use strict';

// Streams are Node's own, over the calls of a tree.

const nodeFs = require('node:fs');
const { FileHandle } = require('./handle');

function withCalls(fs, options) {
    if (options == null || typeof options === 'string') {
        options = options == null ? {} : { encoding: options };
    }
    if (typeof options !== 'object') return options;
    const { open, read, write, writev, close, fsync } = { ...pick(fs), ...pick(options.fs) };
    const calls = { open, read, write, writev, close, fsync };
    if (options.fs !== undefined && options.fs.writev === undefined && options.fs.write) {
        calls.writev = undefined;
    }
    if (options.fd instanceof FileHandle) {
        const handle = options.fd;
        calls.close = (_, done) => handle.close().then(() => done(), done);
        return { ...options, fd: handle.fd, fs: calls };
    }
    return { ...options, fs: calls };
}

function pick(from) {
    const found = {};
    for (const name of ['open', 'read', 'write', 'writev', 'close', 'fsync']) {
        if (from?.[name] !== undefined) found[name] = from[name];
    }
    return found;
}

/** Makes the classes of the streams of a tree. */
function streams(fs) {
    function ReadStream(path, options) {
        if (!(this instanceof ReadStream)) return new ReadStream(path, options);
        nodeFs.ReadStream.call(this, path, withCalls(fs, options));
    }
    function WriteStream(path, options) {
        if (!(this instanceof WriteStream)) return new WriteStream(path, options);
        nodeFs.WriteStream.call(this, path, withCalls(fs, options));
    }
    for (const [Class, Base] of [
        [ReadStream, nodeFs.ReadStream],
        [WriteStream, nodeFs.WriteStream],
    ]) {
        Object.setPrototypeOf(Class.prototype, Base.prototype);
        Object.setPrototypeOf(Class, Base);
    }
    return { ReadStream, WriteStream };
}

module.exports = { streams };
