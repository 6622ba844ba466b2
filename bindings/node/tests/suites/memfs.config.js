'use strict';

// The configuration of jest for memfs's own tests: VFSCALE_MEMFS is a checkout.

const path = require('node:path');

module.exports = {
    rootDir: path.join(process.env.VFSCALE_MEMFS, 'packages/fs-node/src/__tests__'),
    testRegex: '\\.(test|spec)\\.ts$',
    transform: {
        '^.+\\.ts$': [
            require.resolve('@swc/jest'),
            { jsc: { parser: { syntax: 'typescript' }, target: 'es2022' } },
        ],
    },
    modulePaths: [process.env.NODE_PATH],
    resolver: path.join(__dirname, 'memfs-resolver.js'),
};
