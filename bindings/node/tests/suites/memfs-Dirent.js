'use strict';

// In place of a module of memfs whose default is a class.

const { Dirent } = require('@vfscale/fs').createFs();

module.exports = { __esModule: true, default: Dirent, Dirent };
