'use strict';

// The names of memfs: a program that uses memfs takes this module in its place.

const path = require('node:path');
const { memory } = require('./lib/trees');

/** Flattens what has directories in directories: names become paths. */
function flattened(json, above = '', found = {}) {
    for (const [name, value] of Object.entries(json)) {
        const at = path.posix.join(above, name);
        if (typeof value === 'string' || value instanceof Uint8Array) found[at] = value;
        else if (value && Object.keys(value).length > 0) flattened(value, at, found);
        else found[at] = null;
    }
    return found;
}

/** A tree in memory of the user of this process, with the calls of `fs`. */
class Volume {
    #task;

    /** `uid` and `gid` own the root directory, and make the calls. */
    constructor({ uid = process.getuid(), gid = process.getgid(), ...options } = {}) {
        this.#task = memory({ mode: 0o777, uid, gid, ...options }).task({ uid, gid });
        this.#task.umask(process.umask());
        Object.assign(this, this.#task.fs);
    }

    static fromJSON(json, cwd, options) {
        const volume = new Volume(options);
        volume.fromJSON(json, cwd);
        return volume;
    }

    static fromNestedJSON(json, cwd, options) {
        return Volume.fromJSON(flattened(json), cwd, options);
    }

    /** Makes files, and with `null` directories, whose paths start at `cwd`. */
    fromJSON(json, cwd = process.cwd()) {
        for (const [name, data] of Object.entries(json)) {
            const at = path.resolve(cwd, name);
            const isFile = typeof data === 'string' || data instanceof Uint8Array;
            this.mkdirSync(isFile ? path.dirname(at) : at, { recursive: true });
            if (isFile) this.writeFileSync(at, data);
        }
        try {
            this.#task.chdir(process.cwd());
        } catch {
            // Relative paths start at the root directory.
        }
    }

    fromNestedJSON(json, cwd) {
        this.fromJSON(flattened(json), cwd);
    }

    mountSync(at, json) {
        this.fromJSON(json, at);
    }

    /** Returns the files by their paths, and empty directories as `null`. */
    toJSON(paths = '/', json = {}, isRelative = false, asBuffer = false) {
        for (const from of Array.isArray(paths) ? paths : [paths]) {
            const at = path.resolve('/', `${from instanceof URL ? from.pathname : from}`);
            const found = this.lstatSync(at, { throwIfNoEntry: false });
            if (found === undefined) continue;
            const base = !isRelative ? '' : found.isDirectory() ? at : path.dirname(at);
            this.#addTo(json, at, found, base, asBuffer);
        }
        return json;
    }

    #addTo(json, at, found, base, asBuffer) {
        const name = base ? path.relative(base, at) : at;
        if (found.isFile()) {
            json[name] = this.readFileSync(at, asBuffer ? undefined : 'utf8');
        } else if (found.isDirectory()) {
            const entries = this.readdirSync(at, { withFileTypes: true });
            for (const entry of entries)
                this.#addTo(json, path.join(at, entry.name), entry, base, asBuffer);
            if (entries.length === 0 && name && at !== '/') json[name] = null;
        }
    }

    /** Removes everything. */
    reset() {
        for (const name of this.readdirSync('/')) {
            this.rmSync(`/${name}`, { recursive: true, force: true });
        }
    }
}

function createFsFromVolume(volume) {
    return Object.assign({}, volume);
}

function memfs(json = {}, cwd = '/') {
    const vol = Volume.fromNestedJSON(json, cwd);
    return { fs: createFsFromVolume(vol), vol };
}

const vol = new Volume();
const fs = createFsFromVolume(vol);

module.exports = { ...fs, fs, vol, Volume, createFsFromVolume, memfs };
