'use strict';

// Packages that take an fs.

const assert = require('node:assert/strict');
const nodeFs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const git = require('isomorphic-git');
const { glob } = require('glob');
const { ufs } = require('unionfs');
const { Volume } = require('memfs');
const { createFs } = require('@vfscale/fs');

test('unionfs', async () => {
    const fs = createFs();
    fs.mkdirSync(__dirname, { recursive: true });
    fs.writeFileSync(path.join(__dirname, 'virtual.js'), '1');
    const union = ufs
        .use(nodeFs)
        .use(Volume.fromJSON({ '/of/memfs': '2' }))
        .use(fs);
    assert.equal(union.readFileSync(path.join(__dirname, 'virtual.js'), 'utf8'), '1');
    assert.equal(union.readFileSync('/of/memfs', 'utf8'), '2');
    const names = union.readdirSync(__dirname);
    assert.ok(names.includes('virtual.js') && names.includes(path.basename(__filename)));
    assert.equal(await union.promises.readFile(path.join(__dirname, 'virtual.js'), 'utf8'), '1');
});

test('glob', async () => {
    const fs = createFs();
    fs.mkdirSync('/src/deep', { recursive: true });
    for (const name of ['a.js', 'b.ts', 'deep/c.js']) fs.writeFileSync(`/src/${name}`, '');
    assert.deepEqual((await glob('**/*.js', { cwd: '/src', fs })).sort(), ['a.js', 'deep/c.js']);
});

test('isomorphic-git', async () => {
    const fs = createFs();
    const dir = '/repository';
    const author = { name: 'A', email: 'a@example.com' };
    await git.init({ fs, dir });
    await fs.promises.writeFile(`${dir}/file`, 'one\n');
    await git.add({ fs, dir, filepath: 'file' });
    const first = await git.commit({ fs, dir, author, message: 'First' });
    await git.branch({ fs, dir, ref: 'trial', checkout: true });
    await fs.promises.writeFile(`${dir}/file`, 'two\n');
    await git.add({ fs, dir, filepath: 'file' });
    await git.commit({ fs, dir, author, message: 'Second' });
    await git.checkout({ fs, dir, ref: 'master' });
    assert.equal(fs.readFileSync(`${dir}/file`, 'utf8'), 'one\n');
    assert.deepEqual(
        (await git.log({ fs, dir })).map((it) => it.oid),
        [first],
    );
    assert.deepEqual(await git.statusMatrix({ fs, dir }), [['file', 1, 1, 1]]);
});
