'use strict';

// Arguments of `fs`, checked as Node checks them.

const { constants } = require('node:fs');
const { fileURLToPath } = require('node:url');
const { rangeError, typeError, valueError } = require('./errors');

const FLAGS = new Map(
    Object.entries({
        r: 'RDONLY',
        rs: 'RDONLY SYNC',
        'r+': 'RDWR',
        'rs+': 'RDWR SYNC',
        w: 'TRUNC CREAT WRONLY',
        wx: 'TRUNC CREAT WRONLY EXCL',
        'w+': 'TRUNC CREAT RDWR',
        'wx+': 'TRUNC CREAT RDWR EXCL',
        a: 'APPEND CREAT WRONLY',
        ax: 'APPEND CREAT WRONLY EXCL',
        as: 'APPEND CREAT WRONLY SYNC',
        'a+': 'APPEND CREAT RDWR',
        'ax+': 'APPEND CREAT RDWR EXCL',
        'as+': 'APPEND CREAT RDWR SYNC',
    }).map(([name, words]) => [
        name,
        words.split(' ').reduce((flags, word) => flags | constants[`O_${word}`], 0),
    ]),
);
for (const [name, as] of [
    ['sr', 'rs'],
    ['sr+', 'rs+'],
    ['xw', 'wx'],
    ['xw+', 'wx+'],
    ['xa', 'ax'],
    ['sa', 'as'],
    ['xa+', 'ax+'],
    ['sa+', 'as+'],
]) {
    FLAGS.set(name, FLAGS.get(as));
}

/** Returns a path that the library takes: a string, or the bytes of one. */
function pathOf(path, name = 'path') {
    if (typeof path === 'string') {
        if (path.includes('\0')) throw nulls(name, path);
        return path;
    }
    if (path instanceof Uint8Array) {
        if (path.includes(0)) throw nulls(name, path);
        return path;
    }
    if (path !== null && typeof path === 'object' && path.href && path.protocol) {
        return pathOf(fileURLToPath(path), name);
    }
    throw typeError(name, 'of type string or an instance of Buffer or URL', path);
}

function nulls(name, path) {
    return valueError(name, path, 'must be a string, Uint8Array, or URL without null bytes');
}

function integer(value, name, least, most, range) {
    if (typeof value !== 'number') throw typeError(name, 'of type number', value);
    if (!Number.isInteger(value)) throw rangeError(name, 'an integer', value);
    if (value < least || value > most) {
        throw rangeError(name, range ?? `>= ${least} && <= ${most}`, value);
    }
    return value;
}

function fdOf(fd) {
    if (Object.is(fd, -0)) return 0;
    return integer(fd, 'fd', 0, 2147483647);
}

function flagsOf(flags, name = 'flags') {
    if (typeof flags === 'number') return integer(flags, name, -2147483648, 2147483647);
    if (flags == null) return constants.O_RDONLY;
    const found = FLAGS.get(flags);
    if (found === undefined) throw valueError(name, flags);
    return found;
}

function modeOf(mode, name = 'mode', otherwise) {
    let value = mode ?? otherwise;
    if (typeof value === 'string') {
        if (!/^[0-7]+$/.test(value)) {
            throw valueError(name, value, 'must be a 32-bit unsigned integer or an octal string');
        }
        value = parseInt(value, 8);
    }
    return integer(value, name, 0, 4294967295);
}

function accessMode(mode) {
    if (mode == null) return constants.F_OK;
    return integer(mode, 'mode', 0, 7);
}

function copyMode(mode) {
    if (mode == null) return 0;
    return integer(mode, 'mode', 0, 7);
}

function callbackOf(callback) {
    if (typeof callback !== 'function') throw typeError('cb', 'of type function', callback);
    return callback;
}

/** Returns options, of which a string is the encoding. */
function optionsOf(options, defaults = {}) {
    if (options == null || typeof options === 'function') return defaults;
    if (typeof options === 'string') {
        options = { ...defaults, encoding: options };
    } else if (typeof options !== 'object') {
        throw typeError('options', 'of type string or an instance of Object', options);
    }
    if (options.encoding !== 'buffer') encodingOf(options.encoding);
    signalOf(options.signal);
    return options;
}

function encodingOf(encoding) {
    if (encoding && !Buffer.isEncoding(encoding)) {
        throw valueError('encoding', encoding, 'is invalid encoding');
    }
}

function signalOf(signal) {
    if (
        signal !== undefined &&
        (signal === null || typeof signal !== 'object' || !('aborted' in signal))
    ) {
        throw typeError('options.signal', 'an instance of AbortSignal', signal);
    }
}

function objectOf(value, name = 'options') {
    if (value === null || typeof value !== 'object' || Array.isArray(value)) {
        throw typeError(name, 'of type object', value);
    }
    return value;
}

function booleanOf(value, name) {
    if (typeof value !== 'boolean') throw typeError(name, 'of type boolean', value);
    return value;
}

function viewOf(buffer, name = 'buffer') {
    if (!ArrayBuffer.isView(buffer)) {
        throw typeError(name, 'an instance of Buffer, TypedArray, or DataView', buffer);
    }
    return buffer;
}

function viewsOf(buffers) {
    if (!Array.isArray(buffers))
        throw typeError('buffers', 'an ArrayBufferView[]', buffers);
    for (const buffer of buffers) {
        if (!ArrayBuffer.isView(buffer)) {
            throw typeError('buffers', 'an ArrayBufferView[]', buffers);
        }
    }
    return buffers;
}

/** Returns what a file gets: a string in another encoding than UTF-8 becomes its bytes. */
function dataOf(data, encoding, name = 'data') {
    if (typeof data === 'string') {
        return !encoding || encoding === 'utf8' || encoding === 'utf-8' || encoding === 'buffer'
            ? data
            : Buffer.from(data, encoding);
    }
    if (ArrayBuffer.isView(data)) return data;
    throw typeError(name, 'of type string or an instance of Buffer, TypedArray, or DataView', data);
}

/** Returns a position, -1 for that of the descriptor. */
function positionOf(position) {
    if (position == null) return -1;
    if (typeof position === 'bigint') {
        if (position < -1n || position > 2n ** 63n - 1n) {
            throw rangeError('position', `>= -1 && <= ${2n ** 63n - 1n}`, position);
        }
        return Number(position);
    }
    if (typeof position !== 'number') {
        throw typeError('position', 'of type bigint or integer', position);
    }
    return integer(position, 'position', -1, Number.MAX_SAFE_INTEGER);
}

function timeOf(time, name = 'time') {
    if (typeof time === 'string' && +time == time) return +time; // eslint-disable-line eqeqeq
    if (Number.isFinite(time)) return time < 0 ? Date.now() / 1000 : time;
    if (time instanceof Date || Object.prototype.toString.call(time) === '[object Date]') {
        return time.getTime() / 1000;
    }
    throw typeError(name, 'an instance of Date or Time in seconds', time);
}

const idOf = (value, name) => integer(value, name, -1, 4294967295);

module.exports = {
    accessMode,
    booleanOf,
    callbackOf,
    copyMode,
    dataOf,
    encodingOf,
    fdOf,
    flagsOf,
    idOf,
    integer,
    modeOf,
    objectOf,
    optionsOf,
    pathOf,
    positionOf,
    signalOf,
    timeOf,
    viewOf,
    viewsOf,
};
