'use strict';

// The addon, built by scripts/build-node.

module.exports = require('../vfscale.node');
