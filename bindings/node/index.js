'use strict';

const { version } = require('./lib/native');
const { Task, Tree, attach, createFs, memory, openVolume, openVolumeSync } = require('./lib/trees');
const { Pool, openPool } = require('./lib/pool');

module.exports = {
    Pool,
    Task,
    Tree,
    attach,
    createFs,
    memory,
    openPool,
    openVolume,
    openVolumeSync,
    version,
};
