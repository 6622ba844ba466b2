'use strict';

// Branches of an image.

const fs = require('node:fs/promises');
const os = require('node:os');
const path = require('node:path');
const native = require('./native');
const { integer, objectOf, pathOf } = require('./arguments');
const { READ_ONLY, Tree, callLater, optionText } = require('./trees');

const DIFFERENCES = { 1: 'added', 2: 'removed', 3: 'replaced', 4: 'moved', 5: 'changed' };
const PARTS = [
    [1, 'content'],
    [2, 'attributes'],
    [4, 'xattrs'],
];
const CONFLICTS = {
    1: 'content',
    2: 'attributes',
    3: 'xattrs',
    4: 'removed',
    5: 'renamed',
    6: 'name',
    7: 'loop',
};
const EVENTS = {
    1: 'now',
    2: 'fork',
    3: 'checkpoint',
    4: 'merge',
    5: 'merged',
    6: 'adoption',
};
const STRATEGIES = { both: 0, ours: 1, theirs: 2, fail: 4 };
const DRY_RUN = 8;
const [MERGE_OF, BRANCH] = [7, 8];

/** Divides a flat list into objects. */
function rows(list, names, from = 0) {
    const found = [];
    for (let at = from; at < list.length; at += names.length) {
        found.push(Object.fromEntries(names.map((name, of) => [name, list[at + of]])));
    }
    return found;
}

function logged(list) {
    const found = [];
    for (const { kind, node, parent, time, text } of rows(list, [
        'kind',
        'node',
        'parent',
        'time',
        'text',
    ])) {
        if (kind === MERGE_OF) found.at(-1).merges.push({ node, branch: text });
        else if (kind === BRANCH) found.at(-1).branches.push(text);
        else {
            found.push({
                node,
                kind: EVENTS[kind] ?? 'other',
                time: time < 0 ? null : new Date(time),
                text,
                parent: parent < 0 ? null : parent,
                merges: [],
                branches: [],
            });
        }
    }
    return found;
}

function told({ kind, changes, path: at, other }) {
    return {
        path: at,
        kind: DIFFERENCES[kind] ?? 'other',
        movedFrom: other || null,
        parts: kind === 5 ? PARTS.filter(([flag]) => changes & flag).map(([, name]) => name) : [],
    };
}

function mergeFlags({ strategy = 'both', dryRun = false }) {
    const flags = STRATEGIES[strategy];
    if (flags === undefined) throw new TypeError("strategy is 'both', 'ours', 'theirs' or 'fail'");
    return flags | (dryRun ? DRY_RUN : 0);
}

function merged(list) {
    const [added, removed, moved, changed, texts, done] = list;
    const conflicts = rows(list, ['kind', 'path', 'beside'], 6).map((it) => ({
        path: it.path,
        kind: CONFLICTS[it.kind] ?? 'other',
        beside: it.beside || null,
    }));
    return { added, removed, moved, changed, texts, done: done === 1, conflicts };
}

function forkFlags({ readOnly = false, temporary = false, asSynced = false }) {
    return (readOnly ? 1 : 0) | (temporary ? 2 : 0) | (asSynced ? 4 : 0);
}

/** Runs a call with a file of the host that has the data, or takes them. */
async function withFile(call) {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'vfscale-'));
    try {
        return await call(path.join(folder, 'file'));
    } finally {
        await fs.rm(folder, { recursive: true, force: true });
    }
}

/** The branches of an image. One process has an image open at a time. */
class Pool {
    #box;
    #path;

    constructor(box, at) {
        this.#box = box;
        this.#path = at;
    }

    get path() {
        return this.#path;
    }

    #call(op, ...args) {
        const name = op.name.replace(/^pool|Pool$/, '').toLowerCase();
        return callLater(name, this.#path, op, this.#box, ...args);
    }

    /** Makes a branch that shares all blocks of its parent, which may be open. */
    async fork(parent, name, options = {}) {
        await this.#call(
            native.poolFork,
            pathOf(parent, 'parent'),
            pathOf(name, 'name'),
            forkFlags(options),
        );
    }

    /** Opens the volume in a branch. */
    async open(name = 'main', options = {}) {
        const text = optionText(objectOf(options), ['readOnly']);
        return new Tree(
            await this.#call(
                native.openBranch,
                pathOf(name, 'name'),
                text,
                options.readOnly ? READ_ONLY : 0,
            ),
            this.#path,
        );
    }

    /**
     * Opens a branch, calls `work` with its `fs` and its tree, and closes it; returns what
     * `work` does.
     */
    async run(name, work, options = {}) {
        const { uid, gid, groups, capabilities, root, ...others } = options;
        const tree = await this.open(name, others);
        let result;
        let failed;
        try {
            result = await work(tree.task({ uid, gid, groups, capabilities, root }).fs, tree);
        } catch (error) {
            failed = [error];
        }
        try {
            await tree.close();
        } catch (error) {
            failed ??= [error];
        }
        if (failed !== undefined) throw failed[0];
        return result;
    }

    /** Lists what has to be done to `a` to get `b`. */
    async diff(a, b) {
        const list = await this.#call(native.poolDiff, pathOf(a, 'a'), pathOf(b, 'b'));
        return rows(list, ['kind', 'changes', 'path', 'other']).map(told);
    }

    /** Makes in `into` what `branch` has changed since both had the same contents. */
    async merge(branch, into = 'main', options = {}) {
        return merged(
            await this.#call(
                native.poolMerge,
                pathOf(branch, 'branch'),
                pathOf(into, 'into'),
                mergeFlags(objectOf(options)),
                0,
            ),
        );
    }

    /** Gives `branch` what `onto` has, and in it what `branch` has changed. */
    async rebase(branch, onto = 'main', options = {}) {
        return merged(
            await this.#call(
                native.poolMerge,
                pathOf(branch, 'branch'),
                pathOf(onto, 'onto'),
                mergeFlags(objectOf(options)),
                1,
            ),
        );
    }

    /** Returns a patch that makes `b` of `a`. */
    patch(a, b) {
        return withFile(async (file) => {
            await this.#call(native.poolPatch, pathOf(a, 'a'), pathOf(b, 'b'), file, 0);
            return fs.readFile(file);
        });
    }

    /**
     * Writes a layer that makes `b` of `a` to a file of the host; returns the number of its
     * files.
     */
    layer(a, b, out) {
        return this.#call(native.poolPatch, pathOf(a, 'a'), pathOf(b, 'b'), pathOf(out, 'out'), 1);
    }

    /** Applies a layer or a patch: its bytes, or the path of a file of the host. */
    apply(branch, source, options = {}) {
        const apply = async (file) => {
            const list = await this.#call(
                native.poolApply,
                pathOf(branch, 'branch'),
                file,
                options.dryRun ? 1 : 0,
            );
            const [isLayer, written, removed, untold, done] = list;
            return { isLayer: isLayer === 1, written, removed, untold, done: done === 1 };
        };
        if (!ArrayBuffer.isView(source)) return apply(pathOf(source, 'source'));
        return withFile(async (file) => {
            await fs.writeFile(file, source);
            return apply(file);
        });
    }

    /** Gives the parent, which has not changed since, the contents of the child. */
    async adopt(parent, child) {
        await this.#call(native.poolAdopt, pathOf(parent, 'parent'), pathOf(child, 'child'));
    }

    /** Makes a read-only branch of this moment, and returns its name. */
    checkpoint(branch = 'main', text = '') {
        return this.#call(native.poolCheckpoint, pathOf(branch, 'branch'), pathOf(text, 'text'));
    }

    /** Gives a branch the contents of its last fork back, or those of a checkpoint. */
    async rollback(name, to = '') {
        return (
            (await this.#call(native.poolRollback, pathOf(name, 'name'), pathOf(to, 'to'))) || null
        );
    }

    /** Lists the history of a branch, the last state first. */
    async log(branch = 'main') {
        return logged(await this.#call(native.poolLog, pathOf(branch, 'branch')));
    }

    async branches() {
        const list = await this.#call(native.poolBranches);
        const names = ['name', 'size', 'own', 'readOnly', 'depth', 'limit'];
        return rows(list, names).map((it) => ({
            ...it,
            readOnly: it.readOnly === 1,
            limit: it.limit || null,
        }));
    }

    async usage() {
        const [size, free] = await this.#call(native.poolUsage);
        return { size, free };
    }

    async rename(name, to) {
        await this.#call(native.poolRename, pathOf(name, 'name'), pathOf(to, 'to'));
    }

    /** Limits the bytes that a branch may have for itself (EDQUOT, which Node has no name for); `null` ends that. */
    async setLimit(name, limit) {
        const bytes = limit === null ? 0 : integer(limit, 'limit', 1, Number.MAX_SAFE_INTEGER);
        await this.#call(native.poolSetLimit, pathOf(name, 'name'), bytes);
    }

    async delete(name) {
        await this.#call(native.poolDelete, pathOf(name, 'name'));
    }

    /** Releases the image; with EBUSY it stays open, since a branch is. */
    async close() {
        await this.#call(native.closePool).catch((error) => {
            if (error.code !== 'EBADF') throw error;
        });
    }
}

if (Symbol.asyncDispose !== undefined) {
    Object.defineProperty(Pool.prototype, Symbol.asyncDispose, {
        value() {
            return this.close();
        },
        configurable: true,
        writable: true,
    });
}

function poolFlags({ readOnly = false, convert = false }) {
    return (readOnly ? 1 : 0) | (convert ? 2 : 0);
}

/** Opens the branches of an image; with `convert`, a volume becomes one. */
async function openPool(at, options = {}) {
    const flags = poolFlags(objectOf(options));
    return new Pool(await callLater('open', at, native.openPool, pathOf(at), flags), at);
}

module.exports = { Pool, openPool };
