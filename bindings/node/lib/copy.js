'use strict';

// `cp`: copies of files and trees.

const path = require('node:path');
const native = require('./native');
const { booleanOf, copyMode, objectOf, pathOf } = require('./arguments');
const { errno, fsError, typeError } = require('./errors');
const { Request } = require('./request');
const { lastStats } = require('./stats');

function copyOptions(options) {
    const given = {
        dereference: false,
        errorOnExist: false,
        force: true,
        preserveTimestamps: false,
        recursive: false,
        verbatimSymlinks: false,
        filter: undefined,
        mode: 0,
    };
    if (options === undefined) return given;
    Object.assign(given, objectOf(options));
    for (const name of [
        'dereference',
        'errorOnExist',
        'force',
        'preserveTimestamps',
        'recursive',
        'verbatimSymlinks',
    ]) {
        booleanOf(given[name], `options.${name}`);
    }
    given.mode = copyMode(given.mode);
    if (given.filter !== undefined && typeof given.filter !== 'function') {
        throw typeError('options.filter', 'of type function', given.filter);
    }
    return given;
}

const stat = (at, follow) =>
    new Request(native.stat, [at, follow ? 1 : 0], follow ? 'stat' : 'lstat', at).gives(() =>
        lastStats(false),
    );

function* found(at, follow) {
    try {
        return yield stat(at, follow);
    } catch (error) {
        if (error.code === 'ENOENT') return undefined;
        throw error;
    }
}

function refused(code, number, what, message, at) {
    return fsError(code, what, {
        code: number,
        message,
        path: at,
        syscall: 'cp',
        errno: -errno[number],
    });
}

const same = (a, b) => a.ino === b.ino && a.dev === b.dev;

function check(from, to, source, target, options) {
    const invalid = (message) =>
        refused('ERR_FS_CP_EINVAL', 'EINVAL', 'Invalid src or dest', message, to);
    if (target !== undefined) {
        if (same(source, target)) throw invalid('src and dest cannot be the same');
        if (source.isDirectory() && !target.isDirectory()) {
            throw refused(
                'ERR_FS_CP_DIR_TO_NON_DIR',
                'EISDIR',
                'Cannot overwrite non-directory with directory',
                `cannot overwrite non-directory ${to} with directory ${from}`,
                to,
            );
        }
        if (!source.isDirectory() && target.isDirectory()) {
            throw refused(
                'ERR_FS_CP_NON_DIR_TO_DIR',
                'ENOTDIR',
                'Cannot overwrite directory with non-directory',
                `cannot overwrite directory ${to} with non-directory ${from}`,
                to,
            );
        }
    }
    if (source.isDirectory() && !options.recursive) {
        throw refused(
            'ERR_FS_EISDIR',
            'EISDIR',
            'Path is a directory',
            `${from} is a directory (not copied)`,
            from,
        );
    }
    if (source.isDirectory() && isBelow(from, to)) {
        throw invalid(`cannot copy ${from} to a subdirectory of self ${to}`);
    }
}

const isBelow = (from, to) =>
    `${path.resolve(to)}/`.startsWith(`${path.resolve(from)}/`.replace('//', '/'));

/** Looks for the source among the directories above the target, under whatever names. */
function* checkAbove(from, to, source) {
    for (let at = path.dirname(path.resolve(to)); ; at = path.dirname(at)) {
        const above = yield* found(at, true);
        if (above !== undefined && same(source, above)) {
            throw refused(
                'ERR_FS_CP_EINVAL',
                'EINVAL',
                'Invalid src or dest',
                `cannot copy ${from} to a subdirectory of self ${to}`,
                to,
            );
        }
        if (at === path.dirname(at)) return;
    }
}

function* copyFile(from, to, source, target, options) {
    if (target !== undefined) {
        if (!options.force) {
            if (!options.errorOnExist) return;
            throw refused(
                'ERR_FS_CP_EEXIST',
                'EEXIST',
                'Target already exists',
                `${to} already exists`,
                to,
            );
        }
        yield new Request(native.unlink, [to], 'unlink', to);
    }
    yield new Request(native.copyFile, [from, to, options.mode], 'copyfile', from, to);
    if (options.preserveTimestamps) {
        yield new Request(
            native.utimes,
            [to, 1, source.atimeMs / 1e3, source.mtimeMs / 1e3],
            'utime',
            to,
        );
    }
    yield new Request(native.chmod, [to, 1, source.mode & 0o7777], 'chmod', to);
}

function* copyLink(from, to, target, options) {
    const readlink = (at) => new Request(native.readlink, [at, 0], 'readlink', at);
    let leads = yield readlink(from);
    if (!options.verbatimSymlinks && !path.isAbsolute(leads)) {
        leads = path.resolve(path.dirname(from), leads);
    }
    if (target !== undefined) {
        if (!target.isSymbolicLink()) {
            throw refused(
                'ERR_FS_CP_EEXIST',
                'EEXIST',
                'Target already exists',
                `${to} already exists`,
                to,
            );
        }
        const before = path.resolve(path.dirname(to), yield readlink(to));
        const linked = yield* found(from, true);
        if (linked?.isDirectory() && isBelow(leads, before)) {
            throw refused(
                'ERR_FS_CP_EINVAL',
                'EINVAL',
                'Invalid src or dest',
                `cannot copy ${leads} to a subdirectory of self ${before}`,
                to,
            );
        }
        if (linked?.isDirectory() && isBelow(before, leads)) {
            throw refused(
                'ERR_FS_CP_SYMLINK_TO_SUBDIRECTORY',
                'EINVAL',
                'Cannot overwrite symlink in subdirectory of self',
                `cannot overwrite ${before} with ${leads}`,
                to,
            );
        }
        yield new Request(native.unlink, [to], 'unlink', to);
    }
    yield new Request(native.symlink, [leads, to], 'symlink', leads, to);
}

function* copyDirectory(from, to, source, target, options) {
    const list = new Request(native.readdir, [from, 0, 0], 'scandir', from);
    if (target === undefined) yield new Request(native.mkdir, [to, 0o777], 'mkdir', to);
    const all = yield list;
    for (const name of all === '' ? [] : all.split('\0')) {
        yield* copy(path.join(from, name), path.join(to, name), options, false);
    }
    if (target === undefined) {
        yield new Request(native.chmod, [to, 1, source.mode & 0o7777], 'chmod', to);
    }
}

function* copy(from, to, options, isFirst) {
    if (options.filter !== undefined) {
        const kept = options.filter(from, to);
        if (!(typeof kept?.then === 'function' ? yield kept : kept)) return;
    }
    const source = yield stat(from, options.dereference);
    const target = yield* found(to, options.dereference);
    check(from, to, source, target, options);
    if (isFirst) {
        if (source.isDirectory()) yield* checkAbove(from, to, source);
        const parent = path.dirname(path.resolve(to));
        if ((yield* found(parent, true)) === undefined) {
            yield new Request(native.makeDirectories, [parent, 0o777], 'mkdir', parent);
        }
    }
    if (source.isDirectory()) {
        yield* copyDirectory(from, to, source, target, options);
    } else if (source.isSymbolicLink()) {
        yield* copyLink(from, to, target, options);
    } else if (source.isFile()) {
        yield* copyFile(from, to, source, target, options);
    } else if (source.isFIFO()) {
        throw refused(
            'ERR_FS_CP_FIFO_PIPE',
            'EINVAL',
            'Cannot copy a FIFO pipe',
            `cannot copy a FIFO pipe: ${to}`,
            to,
        );
    } else if (source.isSocket()) {
        throw refused(
            'ERR_FS_CP_SOCKET',
            'EINVAL',
            'Cannot copy a socket file',
            `cannot copy a socket file: ${to}`,
            to,
        );
    } else {
        throw refused(
            'ERR_FS_CP_UNKNOWN',
            'EINVAL',
            'Cannot copy an unknown file type',
            `cannot copy an unknown file type: ${to}`,
            to,
        );
    }
}

/** Copies a file or, recursively, a directory. */
function cp(from, to, options) {
    const given = copyOptions(options);
    from = pathOf(from, 'src');
    to = pathOf(to, 'dest');
    return copy(`${from}`, `${to}`, given, true);
}

module.exports = { cp };
