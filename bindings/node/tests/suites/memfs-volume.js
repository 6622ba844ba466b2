'use strict';

// In place of memfs's own volume in its tests: a user without privileges, as memfs itself has none.

const { memory } = require('@vfscale/fs');
const memfs = require('@vfscale/fs/memfs');

class Volume extends memfs.Volume {
    constructor() {
        super({ uid: 1000, gid: 1000 });
    }

    static fromJSON(json, cwd) {
        const volume = new Volume();
        volume.fromJSON(json, cwd);
        return volume;
    }

    static fromNestedJSON(json, cwd) {
        const volume = new Volume();
        volume.fromNestedJSON(json, cwd);
        return volume;
    }
}

const { FSWatcher, StatWatcher } = memory().task().fs;
module.exports = { ...memfs, FSWatcher, StatWatcher, Volume };
