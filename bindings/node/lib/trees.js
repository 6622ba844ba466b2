'use strict';

// Trees, volumes, tasks.

const native = require('./native');
const { pathOf, integer, objectOf } = require('./arguments');
const { systemError, treeError } = require('./errors');
const { makeFs } = require('./fs');

/** Makes a call of the addon on a tree, now or, with a promise, on another thread. */
function callNow(syscall, path, op, ...args) {
    const result = op(...args);
    if (result instanceof Error) throw treeError(result, syscall, path);
    return result;
}

function callLater(syscall, path, op, ...args) {
    return new Promise((resolve, reject) => {
        op(...args, (result) => {
            if (result instanceof Error) reject(treeError(result, syscall, path));
            else resolve(result);
        });
    });
}

/** Writes options as `vfscale mount -o` takes them: `{ syncInterval: 1 }` is `sync_interval=1`. */
function optionText(options, others = []) {
    return Object.entries(options)
        .filter(([name, value]) => value !== undefined && !others.includes(name))
        .map(([name, value]) => {
            const text =
                name === 'mode' && typeof value === 'number' ? value.toString(8) : `${value}`;
            if (/[,\0]/.test(text)) throw new TypeError(`the option ${name} can't have a comma`);
            return `${name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}=${text}`;
        })
        .join(',');
}

const READ_ONLY = 1;
const TRANSFER = { keepOwners: 1, xattrs: 4, devices: 16 };
const LINKS = { keep: 0, skip: 32, refuse: 64 };

function credentials({ uid = 0, gid = 0, groups = [], capabilities = uid === 0 ? -1 : 0 }) {
    return [
        integer(uid, 'uid', 0, 4294967295),
        integer(gid, 'gid', 0, 4294967295),
        integer(capabilities, 'capabilities', -1, Number.MAX_SAFE_INTEGER),
        Uint32Array.from(groups),
    ];
}

/** A process, to a file system: directories, umask, credentials, descriptors. */
class Task {
    #box;
    #fs;

    constructor(box) {
        this.#box = box;
    }

    /** The object that replaces `fs`. */
    get fs() {
        this.#fs ??= makeFs(this.#box);
        return this.#fs;
    }

    fork() {
        return new Task(callNow('fork', undefined, native.forkTask, this.#box));
    }

    /** Closes the descriptors of the task. Ending it again does nothing. */
    end() {
        native.endTask(this.#box);
    }

    umask(mask) {
        const before = native.umask(this.#box, mask ?? 0);
        if (mask === undefined && before >= 0) native.umask(this.#box, before);
        return checked(before, 'umask');
    }

    cwd() {
        return checked(native.cwd(this.#box), 'getcwd');
    }

    chdir(path) {
        checked(native.chdir(this.#box, pathOf(path)), 'chdir', path);
    }

    setCredentials(options) {
        callNow(
            'setCredentials',
            undefined,
            native.setCredentials,
            this.#box,
            ...credentials(options),
        );
    }

    /** Copies a file or directory of the host to a new name in the tree. */
    importTree(from, to, options) {
        return this.#transfer('import', from, to, options, 0);
    }

    /** Copies a file or directory of the tree to a new name on the host. */
    exportTree(from, to, options) {
        return this.#transfer('export', from, to, options, 1);
    }

    async #transfer(syscall, from, to, options = {}, toHost) {
        let flags = LINKS[options.links ?? 'keep'];
        if (flags === undefined) throw new TypeError("links is 'keep', 'skip' or 'refuse'");
        for (const [name, flag] of Object.entries(TRANSFER)) if (options[name]) flags |= flag;
        const [files, bytes, skipped] = await callLater(
            syscall,
            from,
            native.transfer,
            this.#box,
            pathOf(from),
            pathOf(to),
            flags,
            toHost,
        );
        return { files, bytes, skipped };
    }
}

function checked(result, syscall, path) {
    if (typeof result === 'number' && result < 0) throw systemError(result, syscall, path);
    return result;
}

/** A tree of files. It lives until it is closed, or nobody holds it or a task of it any more. */
class Tree {
    #box;
    #path;

    constructor(box, path) {
        this.#box = box;
        this.#path = path;
    }

    /** The number by which `attach` finds the tree in a worker. */
    get id() {
        return callNow('id', this.#path, native.treeId, this.#box);
    }

    /** The path of the image, as it was passed; undefined of a tree in memory. */
    get path() {
        return this.#path;
    }

    /** Makes a task, by default with all rights at the root of the tree. */
    task(options = {}) {
        const { root = '' } = objectOf(options);
        return new Task(
            callNow(
                'task',
                root || undefined,
                native.newTask,
                this.#box,
                pathOf(root, 'root'),
                ...credentials(options),
            ),
        );
    }

    /** Makes all changes so far durable. */
    sync() {
        return callLater('sync', this.#path, native.syncTree, this.#box).then(() => {});
    }

    syncSync() {
        callNow('sync', this.#path, native.syncTree, this.#box);
    }

    /** Makes all changes durable, ends the tasks of the tree, in all workers, and the tree. */
    async close() {
        await callLater('close', this.#path, native.closeTree, this.#box).catch(ignoreClosed);
    }

    closeSync() {
        try {
            callNow('close', this.#path, native.closeTree, this.#box);
        } catch (error) {
            ignoreClosed(error);
        }
    }
}

function ignoreClosed(error) {
    if (error.code !== 'EBADF') throw error;
}

for (const [symbol, name] of [
    [Symbol.dispose, 'closeSync'],
    [Symbol.asyncDispose, 'close'],
]) {
    if (symbol === undefined) continue;
    Object.defineProperty(Tree.prototype, symbol, {
        value() {
            return this[name]();
        },
        configurable: true,
        writable: true,
    });
}

/** Makes a tree in memory. */
function memory(options = {}) {
    return new Tree(callNow('memory', undefined, native.memory, optionText(objectOf(options))));
}

function volumeArguments(path, options) {
    const { create = 0, readOnly = false } = objectOf(options);
    integer(create, 'options.create', 0, Number.MAX_SAFE_INTEGER);
    return [
        pathOf(path),
        optionText(options, ['create', 'readOnly']),
        create,
        readOnly ? READ_ONLY : 0,
    ];
}

/** Opens the volume in an image file or on a device; with `create`, makes one of so many bytes. */
async function openVolume(path, options = {}) {
    const args = volumeArguments(path, options);
    return new Tree(await callLater('open', path, native.openVolume, ...args), path);
}

function openVolumeSync(path, options = {}) {
    const args = volumeArguments(path, options);
    return new Tree(callNow('open', path, native.openVolume, ...args), path);
}

/** Finds a tree of this process by its number: of another worker, for example. */
function attach(id) {
    integer(id, 'id', 1, Number.MAX_SAFE_INTEGER);
    return new Tree(callNow('attach', undefined, native.attach, id));
}

/** Makes the object that replaces `fs`, of a task, or of a new tree in memory. */
function createFs(task = memory().task()) {
    return task.fs;
}

module.exports = {
    READ_ONLY,
    Task,
    Tree,
    attach,
    callLater,
    callNow,
    createFs,
    memory,
    openVolume,
    openVolumeSync,
    optionText,
};
