'use strict';

// In place of a module of memfs whose default is a class.

const { Dir } = require('@vfscale/fs').createFs();

module.exports = { __esModule: true, default: Dir, Dir };
