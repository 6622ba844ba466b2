'use strict';

// Leads the tests of memfs, and nothing else, to the volume of a tree.

const path = require('node:path');

const VOLUME = /^(\.\.\/)*volume$|^\.\.(\/\.\.)*\/?$/;
const CLASS = /^(?:\.\.\/)+(Dir|Dirent|Stats)$/;

module.exports = (request, options) => {
    if (options.basedir.startsWith(options.rootDir)) {
        if (VOLUME.test(request)) return path.join(__dirname, 'memfs-volume.js');
        const [, name] = CLASS.exec(request) ?? [];
        if (name !== undefined) return path.join(__dirname, `memfs-${name}.js`);
    }
    return options.defaultResolver(request, options);
};
