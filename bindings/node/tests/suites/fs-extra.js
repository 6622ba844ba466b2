'use strict';

// Loaded before fs-extra's own tests (node --require): the fs of the tests, of fs-extra and of the
// packages below it is a tree, in which the checkout is too. The working directory is the tree's.

const Module = require('node:module');
const os = require('node:os');
const path = require('node:path');
const { memory } = require('@vfscale/fs');

const checkout = process.cwd();
const uid = process.getuid();
const gid = process.getgid();
const task = memory({ uid, gid }).task({ uid, gid });
const { fs } = task;
fs.mkdirSync(os.tmpdir(), { recursive: true, mode: 0o777 });
fs.mkdirSync('/dev', { recursive: true });
fs.mkdirSync(path.dirname(checkout), { recursive: true });

// Of packages that make system calls themselves, only those that the tests pass through.
const LED = /\/(graceful-fs|jsonfile|klaw|klaw-sync|read-dir-files|rimraf|glob|proxyquire)\//;
const load = Module._load;
Module._load = function (request, parent, isMain) {
    const from = parent?.filename ?? '';
    if (from.startsWith(`${checkout}/lib/`) || LED.test(from)) {
        if (/^(node:)?fs$/.test(request)) return fs;
        if (/^(node:)?fs\/promises$/.test(request)) return fs.promises;
    }
    return load.call(this, request, parent, isMain);
};

exports.mochaHooks = {
    async beforeAll() {
        await task.importTree(checkout, checkout);
        task.chdir(checkout);
        process.chdir = (dir) => task.chdir(dir);
        process.cwd = () => task.cwd();
        process.umask = (mask) => task.umask(mask);
    },
};
