'use strict';

// Attributes and entries. They are of Node's classes too, so that `instanceof` holds.

const nodeFs = require('node:fs');
const path = require('node:path');
const native = require('./native');

const { constants } = nodeFs;
const numbers = new Float64Array(native.numbers);
const exact = new BigUint64Array(native.exact);
const signed = new BigInt64Array(native.exact);

const TYPES = {
    isBlockDevice: 'BLK',
    isCharacterDevice: 'CHR',
    isDirectory: 'DIR',
    isFIFO: 'IFO',
    isFile: 'REG',
    isSocket: 'SOCK',
    isSymbolicLink: 'LNK',
};
const NAMES = ['dev', 'mode', 'nlink', 'uid', 'gid', 'rdev', 'blksize', 'ino', 'size', 'blocks'];
const TIMES = ['atime', 'mtime', 'ctime', 'birthtime'];

/**
 * The attributes of a file, as the last call has left them in the memory that is shared with
 * it.
 */
function Stats(
    dev,
    mode,
    nlink,
    uid,
    gid,
    rdev,
    blksize,
    ino,
    size,
    blocks,
    atimeMs,
    mtimeMs,
    ctimeMs,
    birthtimeMs,
) {
    this.dev = dev;
    this.mode = mode;
    this.nlink = nlink;
    this.uid = uid;
    this.gid = gid;
    this.rdev = rdev;
    this.blksize = blksize;
    this.ino = ino;
    this.size = size;
    this.blocks = blocks;
    this.atimeMs = atimeMs;
    this.mtimeMs = mtimeMs;
    this.ctimeMs = ctimeMs;
    this.birthtimeMs = birthtimeMs;
}

/** The attributes as exact numbers, with times in nanoseconds. */
function BigIntStats() {
    NAMES.forEach((name, at) => {
        this[name] = exact[at];
    });
    const ns = TIMES.map((_, at) => signed[10 + 2 * at] * 1000000000n + signed[11 + 2 * at]);
    TIMES.forEach((name, at) => {
        this[`${name}Ms`] = ns[at] / 1000000n;
    });
    TIMES.forEach((name, at) => {
        this[`${name}Ns`] = ns[at];
    });
}

Object.setPrototypeOf(Stats.prototype, nodeFs.Stats.prototype);
Object.setPrototypeOf(Stats, nodeFs.Stats);
for (const [Class, as] of [
    [Stats, (n) => n],
    [BigIntStats, BigInt],
]) {
    for (const [name, type] of Object.entries(TYPES)) {
        const mask = as(constants.S_IFMT);
        const wanted = as(constants[`S_IF${type}`]);
        Class.prototype[name] = function () {
            return (this.mode & mask) === wanted;
        };
    }
    // Dates are made when they are first asked for.
    for (const time of TIMES) {
        const set = (on, value) => {
            Object.defineProperty(on, time, {
                value,
                enumerable: true,
                configurable: true,
                writable: true,
            });
            return value;
        };
        Object.defineProperty(Class.prototype, time, {
            configurable: true,
            enumerable: true,
            get() {
                return set(this, new Date(Math.round(Number(this[`${time}Ms`]))));
            },
            set(value) {
                set(this, value);
            },
        });
    }
}

/** Makes the attributes of the last call. */
function lastStats(bigint) {
    if (bigint) return new BigIntStats();
    const n = numbers;
    return new Stats(
        n[0],
        n[1],
        n[2],
        n[3],
        n[4],
        n[5],
        n[6],
        n[7],
        n[8],
        n[9],
        n[10] * 1e3 + n[11] / 1e6,
        n[12] * 1e3 + n[13] / 1e6,
        n[14] * 1e3 + n[15] / 1e6,
        n[16] * 1e3 + n[17] / 1e6,
    );
}

const STATFS = ['type', 'bsize', 'blocks', 'bfree', 'bavail', 'files', 'ffree'];

class StatFs {
    constructor(bigint) {
        STATFS.forEach((name, at) => {
            this[name] = bigint ? exact[at] : numbers[at];
        });
    }
}

const DIRENT_TYPES = {
    isBlockDevice: 6,
    isCharacterDevice: 2,
    isDirectory: 4,
    isFIFO: 1,
    isFile: 8,
    isSocket: 12,
    isSymbolicLink: 10,
};
const kind = Symbol('type');

/** An entry of a directory. */
function Dirent(name, type, parentPath) {
    this.name = name;
    this.parentPath = parentPath;
    this.path = parentPath;
    Object.defineProperty(this, kind, { value: type });
}
Object.setPrototypeOf(Dirent.prototype, nodeFs.Dirent.prototype);
for (const [name, type] of Object.entries(DIRENT_TYPES)) {
    Dirent.prototype[name] = function () {
        return this[kind] === type;
    };
}

const direntPath = (entry) => path.join(entry.parentPath, entry.name);

module.exports = { BigIntStats, Dirent, StatFs, Stats, direntPath, lastStats };
