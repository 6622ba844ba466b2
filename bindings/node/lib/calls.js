'use strict';

// The calls of `fs`, each as a plan of requests. Arguments are checked when the plan is made.

const { constants } = require('node:fs');
const native = require('./native');
const {
    accessMode,
    booleanOf,
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
    timeOf,
    viewOf,
    viewsOf,
} = require('./arguments');
const { coded, fsError, rangeError, valueError, errno } = require('./errors');
const { Request, now } = require('./request');
const { Dirent, StatFs, direntPath, lastStats } = require('./stats');

const scratch = Buffer.from(native.scratch);
const count = (result) => result;
const bigintOf = (options) => Boolean(options?.bigint);

const on = (op, syscall, path, ...args) => new Request(op, [pathOf(path), ...args], syscall, path);
const onFd = (op, syscall, fd, ...args) => new Request(op, [fdOf(fd), ...args], syscall);
const onTwo = (op, syscall, path, dest, names, ...args) =>
    new Request(op, [pathOf(path, names[0]), pathOf(dest, names[1]), ...args], syscall, path, dest);

/** Decodes a path in the encoding of the options; `buffer` is that of a buffer. */
const isBuffer = (options) => options.encoding && !/^utf-?8$/i.test(options.encoding);
function named(options) {
    const { encoding } = options;
    if (!isBuffer(options) || encoding === 'buffer') return undefined;
    return (bytes) => bytes.toString(encoding);
}

// Attributes.

function stat(path, options) {
    const bigint = bigintOf(options);
    return on(native.stat, 'stat', path, 1).gives(() => lastStats(bigint));
}

function lstat(path, options) {
    const bigint = bigintOf(options);
    return on(native.stat, 'lstat', path, 0).gives(() => lastStats(bigint));
}

function fstat(fd, options) {
    const bigint = bigintOf(options);
    return onFd(native.fstat, 'fstat', fd).gives(() => lastStats(bigint));
}

function statfs(path, options) {
    const bigint = bigintOf(options);
    return on(native.statfs, 'statfs', path).gives(() => new StatFs(bigint));
}

const access = (path, mode) => on(native.access, 'access', path, accessMode(mode));
const chmod = (path, mode) => on(native.chmod, 'chmod', path, 1, modeOf(mode));
const lchmod = (path, mode) => on(native.chmod, 'lchmod', path, 0, modeOf(mode));
const fchmod = (fd, mode) => onFd(native.fchmod, 'fchmod', fd, modeOf(mode));
const chown = (path, uid, gid) =>
    on(native.chown, 'chown', path, 1, idOf(uid, 'uid'), idOf(gid, 'gid'));
const lchown = (path, uid, gid) =>
    on(native.chown, 'lchown', path, 0, idOf(uid, 'uid'), idOf(gid, 'gid'));
const fchown = (fd, uid, gid) =>
    onFd(native.fchown, 'fchown', fd, idOf(uid, 'uid'), idOf(gid, 'gid'));
const utimes = (path, atime, mtime) =>
    on(native.utimes, 'utime', path, 1, timeOf(atime), timeOf(mtime));
const lutimes = (path, atime, mtime) =>
    on(native.utimes, 'lutime', path, 0, timeOf(atime), timeOf(mtime));
const futimes = (fd, atime, mtime) =>
    onFd(native.futimes, 'futime', fd, timeOf(atime, 'atime'), timeOf(mtime, 'mtime'));

// Names.

function mkdir(path, options) {
    let mode = 0o777;
    let recursive = false;
    if (typeof options === 'number' || typeof options === 'string') {
        mode = modeOf(options);
    } else if (options && typeof options !== 'function') {
        if (options.recursive !== undefined) {
            recursive = booleanOf(options.recursive, 'options.recursive');
        }
        if (options.mode != null) mode = modeOf(options.mode);
    }
    return on(recursive ? native.makeDirectories : native.mkdir, 'mkdir', path, mode);
}

function mkdtemp(prefix, options) {
    options = optionsOf(options);
    pathOf(prefix, 'prefix');
    const request = on(native.makeTemporary, 'mkdtemp', prefix, isBuffer(options) ? 1 : 0);
    request.path = `${prefix}XXXXXX`;
    return request.gives(named(options));
}

const unlink = (path) => on(native.unlink, 'unlink', path);
const rename = (from, to) => onTwo(native.rename, 'rename', from, to, ['oldPath', 'newPath']);
const link = (from, to) => onTwo(native.link, 'link', from, to, ['existingPath', 'newPath']);

function symlink(target, path, type) {
    if (type != null && !['dir', 'file', 'junction'].includes(type)) {
        throw coded(
            Error,
            'ERR_FS_INVALID_SYMLINK_TYPE',
            `Symlink type must be one of "dir", "file", or "junction". Received "${type}"`,
        );
    }
    return onTwo(native.symlink, 'symlink', target, path, ['target', 'path']);
}

function readlink(path, options) {
    options = optionsOf(options);
    return on(native.readlink, 'readlink', path, isBuffer(options) ? 1 : 0).gives(named(options));
}

/** As Node's: the error names the first part of the path that is not there. */
function realpath(path, options) {
    options = optionsOf(options);
    const whole = realpathNative(path, options);
    return (function* () {
        try {
            return yield whole;
        } catch (error) {
            const names = `${path}`.split('/');
            for (let at = 1; at <= names.length; at++) {
                const part = names.slice(0, at).join('/');
                if (part !== '') yield new Request(native.stat, [part, 0], 'lstat', part);
                if (part !== '') yield new Request(native.stat, [part, 1], 'stat', part);
            }
            throw error;
        }
    })();
}

function realpathNative(path, options) {
    options = optionsOf(options);
    return on(native.realpath, 'realpath', path, isBuffer(options) ? 1 : 0).gives(named(options));
}

function removeOptions(options) {
    const given = { recursive: false, force: false, maxRetries: 0, retryDelay: 100 };
    if (options === undefined) return given;
    Object.assign(given, objectOf(options));
    booleanOf(given.force, 'options.force');
    booleanOf(given.recursive, 'options.recursive');
    integer(given.retryDelay, 'options.retryDelay', 0, 2147483647);
    integer(given.maxRetries, 'options.maxRetries', 0, 4294967295);
    return given;
}

function rm(path, options) {
    const given = removeOptions(options);
    const look = lstat(path);
    return (function* () {
        let found;
        try {
            found = yield look;
        } catch (error) {
            if (given.force && error.code === 'ENOENT') return;
            throw error;
        }
        if (!found.isDirectory()) {
            yield new Request(native.unlink, look.args.slice(0, 1), 'rm', path);
        } else if (given.recursive) {
            yield new Request(native.removeAll, look.args.slice(0, 1), 'rm', path);
        } else {
            throw fsError('ERR_FS_EISDIR', 'Path is a directory', {
                code: 'EISDIR',
                message: 'is a directory',
                path: `${path}`,
                syscall: 'rm',
                errno: -errno.EISDIR,
            });
        }
    })();
}

function rmdir(path, options) {
    const given = removeOptions(options);
    if (!given.recursive) return on(native.rmdir, 'rmdir', path);
    const look = lstat(path);
    const plain = on(native.rmdir, 'rmdir', path);
    return (function* () {
        const found = yield look;
        yield found.isDirectory()
            ? new Request(native.removeAll, plain.args, 'rmdir', path)
            : plain;
    })();
}

// Directories.

function names(path, withTypes, options) {
    const asBytes = isBuffer(options) ? 1 : 0;
    return on(native.readdir, 'scandir', path, withTypes ? 1 : 0, asBytes);
}

function divided(bytes, encoding) {
    const parts = [];
    for (let from = 0; from < bytes.length;) {
        const at = bytes.indexOf(0, from);
        const end = at < 0 ? bytes.length : at;
        const part = bytes.subarray(from, end);
        parts.push(encoding === 'buffer' ? part : part.toString(encoding));
        from = end + 1;
    }
    return parts;
}

const list = (all) => (all === '' ? [] : all.split('\0'));

/** Lists a directory. */
function entries(path, options) {
    if (isBuffer(options)) {
        const { encoding } = options;
        if (!options.withFileTypes) {
            return names(path, false, options).gives((all) => divided(all, encoding));
        }
        const decoded = (name) => (encoding === 'buffer' ? name : name.toString(encoding));
        return names(path, true, options).gives((all) =>
            divided(all, 'buffer').map(
                (name) => new Dirent(decoded(name.subarray(1)), name[0] - 97, path),
            ),
        );
    }
    const parent =
        path instanceof Uint8Array ? path.toString() : path instanceof URL ? pathOf(path) : path;
    return options.withFileTypes
        ? names(path, true, options).gives((all) =>
              list(all).map((name) => new Dirent(name.slice(1), name.charCodeAt(0) - 97, parent)),
          )
        : names(path, false, options).gives(list);
}

function readdir(path, options) {
    options = optionsOf(options);
    if (options.recursive != null) booleanOf(options.recursive, 'options.recursive');
    if (!options.recursive) return entries(path, options);
    const typed = (of) => entries(of, { ...options, withFileTypes: true });
    const first = typed(path);
    const base = `${pathOf(path)}`;
    return (function* () {
        const found = [];
        const queue = [[first, '']];
        for (const [request, above] of queue) {
            for (const entry of yield request) {
                const relative = above + entry.name;
                found.push(options.withFileTypes ? entry : relative);
                if (entry.isDirectory()) {
                    queue.push([
                        typed(options.withFileTypes ? direntPath(entry) : `${base}/${relative}`),
                        `${relative}/`,
                    ]);
                }
            }
        }
        return found;
    })();
}

// Descriptors.

function open(path, flags, mode) {
    return on(native.open, 'open', path, flagsOf(flags), modeOf(mode, 'mode', 0o666)).gives(count);
}

const close = (fd) => onFd(native.close, 'close', fd);
const fsync = (fd) => onFd(native.fsync, 'fsync', fd);
const fdatasync = (fd) => onFd(native.fdatasync, 'fdatasync', fd);

function lengthOf(length) {
    if (length == null) return 0;
    return Math.max(0, integer(length, 'len', -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER));
}

const ftruncate = (fd, length) => onFd(native.ftruncate, 'ftruncate', fd, lengthOf(length));

function truncate(path, length) {
    if (typeof path === 'number') return ftruncate(path, length);
    return on(native.truncate, 'open', path, lengthOf(length));
}

/** Reads into a view, which the callback gets too. */
function read(fd, buffer, offsetOrOptions, length, position) {
    fdOf(fd);
    let offset = offsetOrOptions;
    if (buffer == null || (typeof buffer === 'object' && !ArrayBuffer.isView(buffer))) {
        ({ buffer = Buffer.alloc(16384), offset = 0, length, position = null } = buffer ?? {});
    } else if (offset !== null && typeof offset === 'object') {
        ({ offset = 0, length, position = null } = offset);
    }
    viewOf(buffer);
    offset = offset == null ? 0 : integer(offset, 'offset', 0, Number.MAX_SAFE_INTEGER, '>= 0');
    length = length === undefined ? buffer.byteLength - offset : length | 0;
    const at = positionOf(position);
    if (length < 0) throw rangeError('length', '>= 0', length);
    if (buffer.byteLength === 0 && length > 0) {
        throw valueError('buffer', buffer, 'is empty and cannot be written');
    }
    if (offset + length > buffer.byteLength) {
        throw rangeError('length', `<= ${buffer.byteLength - offset}`, length);
    }
    const request = onFd(native.read, 'read', fd, buffer, offset, length, at).gives(count);
    request.extra = buffer;
    return request;
}

function write(fd, buffer, offsetOrOptions, length, position) {
    fdOf(fd);
    let request;
    if (typeof buffer === 'string') {
        // fd, text, position, encoding
        encodingOf(length);
        const at = typeof offsetOrOptions === 'number' ? offsetOrOptions : -1;
        request = onFd(native.write, 'write', fd, dataOf(buffer, length), 0, -1, at);
    } else {
        let offset = offsetOrOptions;
        if (!ArrayBuffer.isView(buffer)) dataOf(buffer, undefined, 'buffer');
        if (offset !== null && typeof offset === 'object') ({ offset, length, position } = offset);
        offset =
            offset == null || typeof offset === 'function'
                ? 0
                : integer(offset, 'offset', 0, Number.MAX_SAFE_INTEGER, '>= 0');
        if (typeof length !== 'number') length = buffer.byteLength - offset;
        const at =
            typeof position === 'number' || typeof position === 'bigint' ? Number(position) : -1;
        if (offset > buffer.byteLength)
            throw rangeError('offset', `<= ${buffer.byteLength}`, offset);
        if (length > buffer.byteLength - offset) {
            throw rangeError('length', `<= ${buffer.byteLength - offset}`, length);
        }
        integer(length, 'length', 0, 2147483647);
        request = onFd(native.write, 'write', fd, buffer, offset, length, at);
    }
    request.extra = buffer;
    return request.gives(count);
}

const bytesOf = (view) => Buffer.from(view.buffer, view.byteOffset, view.byteLength);

/** One read, whose bytes are then divided among the views. */
function readv(fd, buffers, position) {
    const views = viewsOf(buffers).map(bytesOf);
    const all = Buffer.allocUnsafe(views.reduce((sum, view) => sum + view.length, 0));
    const at = typeof position === 'number' ? position : -1;
    const request = onFd(native.read, 'read', fd, all, 0, all.length, at).gives((done) => {
        let from = 0;
        for (const view of views)
            from += all.copy(view, 0, from, Math.max(from, Math.min(done, from + view.length)));
        return done;
    });
    request.extra = buffers;
    return request;
}

/** One write of all views. */
function writev(fd, buffers, position) {
    const all = Buffer.concat(viewsOf(buffers).map(bytesOf));
    const at = typeof position === 'number' ? position : -1;
    const request = onFd(native.write, 'write', fd, all, 0, all.length, at).gives(count);
    request.extra = buffers;
    return request;
}

// Whole files.

// Small files are in slabs, as those of Buffer.allocUnsafe, which are too small for 4 KiB.
const SLAB = 65536;
let slab = Buffer.allocUnsafeSlow(SLAB);
let used = 0;

/** Makes the buffer of a file that the addon has read into the memory that it shares. */
function fileBuffer(result) {
    if (typeof result !== 'number') return result;
    let buffer;
    if (result > SLAB / 8) {
        buffer = Buffer.allocUnsafeSlow(result);
    } else {
        if (used + result > SLAB) {
            slab = Buffer.allocUnsafeSlow(SLAB);
            used = 0;
        }
        buffer = slab.subarray(used, used + result);
        used = (used + result + 7) & ~7;
    }
    scratch.copy(buffer, 0, 0, result);
    return buffer;
}

/** Reads a file that has more bytes than the memory that the addon shares. */
function largeBuffer(task, path, flags) {
    const fd = now(task, open(path, flags));
    try {
        const size = now(task, fstat(fd)).size;
        let buffer = Buffer.allocUnsafeSlow(size);
        for (let done = 0; ; ) {
            if (done === buffer.length) {
                // One more byte than there are tells that the file has not grown.
                const more = Buffer.allocUnsafe(SLAB);
                const count = now(task, read(fd, more));
                if (count === 0) return buffer;
                buffer = Buffer.concat([buffer, more.subarray(0, count)]);
                done += count;
            } else {
                const count = now(task, read(fd, buffer, done, buffer.length - done));
                if (count === 0) return buffer.subarray(0, done);
                done += count;
            }
        }
    } finally {
        native.close(task, fd);
    }
}

/** Returns the buffer of a file that the addon has read at once. */
function wholeBuffer(task, result, path, flags) {
    return typeof result === 'number' && result > scratch.length
        ? largeBuffer(task, path, flags)
        : fileBuffer(result);
}

function readFile(path, options) {
    options = optionsOf(options, { flag: 'r' });
    const { encoding } = options;
    const isText = encoding && encoding !== 'buffer' && !isBuffer(options) ? 1 : 0;
    const flags = flagsOf(options.flag);
    const request =
        typeof path === 'number'
            ? onFd(native.readDescriptor, 'read', path, isText)
            : on(native.readFile, 'open', path, flags, isText);
    request.after = 'read';
    if (isText) return request;
    const whole = (result, task) => wholeBuffer(task, result, path, flags);
    if (!encoding || encoding === 'buffer') return request.gives(whole);
    return request.gives((result, task) => whole(result, task).toString(encoding));
}

function writeFile(path, data, options) {
    options = optionsOf(options, { encoding: 'utf8', mode: 0o666, flag: 'w' });
    const flush = options.flush == null ? false : booleanOf(options.flush, 'options.flush');
    data = dataOf(data, options.encoding);
    const flags = flagsOf(options.flag ?? 'w');
    const request =
        typeof path === 'number'
            ? onFd(native.writeDescriptor, 'write', path, data, flush ? 1 : 0)
            : on(
                  native.writeFile,
                  'open',
                  path,
                  data,
                  flags,
                  modeOf(options.mode, 'mode', 0o666),
                  flush ? 1 : 0,
              );
    request.after = 'write';
    return request;
}

function appendFile(path, data, options) {
    options = optionsOf(options, { encoding: 'utf8', mode: 0o666, flag: 'a' });
    return writeFile(path, data, { ...options, flag: options.flag || 'a' });
}

function copyFile(from, to, mode) {
    return onTwo(native.copyFile, 'copyfile', from, to, ['src', 'dest'], copyMode(mode));
}

const calls = {
    access,
    appendFile,
    chmod,
    chown,
    close,
    copyFile,
    fchmod,
    fchown,
    fdatasync,
    fstat,
    fsync,
    ftruncate,
    futimes,
    lchmod,
    lchown,
    link,
    lstat,
    lutimes,
    mkdir,
    mkdtemp,
    open,
    read,
    readFile,
    readdir,
    readlink,
    readv,
    realpath,
    rename,
    rm,
    rmdir,
    stat,
    statfs,
    symlink,
    truncate,
    unlink,
    utimes,
    write,
    writeFile,
    writev,
};

module.exports = { calls, constants, entries, realpathNative, wholeBuffer };
