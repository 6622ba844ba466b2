'use strict';

// Trees, workers, volumes, branches.

const assert = require('node:assert/strict');
const nodeFs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');
const { Worker } = require('node:worker_threads');
const { attach, createFs, memory, openPool, openVolume, openVolumeSync } = require('@vfscale/fs');

const scratch = nodeFs.mkdtempSync(path.join(os.tmpdir(), 'vfscale-'));
test.after(() => nodeFs.rmSync(scratch, { recursive: true, force: true }));
const later = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let images = 0;
const image = () => path.join(scratch, `${images++}.vfs`);

/** Runs code in a worker; `data` is its workerData. Resolves to what it posts. */
function inWorker(code, data, onFirst = () => {}) {
    return new Promise((resolve, reject) => {
        const worker = new Worker(
            `
      const { parentPort, workerData } = require('node:worker_threads');
      const { attach } = require(workerData.module);
      ${code}`,
            { eval: true, workerData: { module: require.resolve('@vfscale/fs'), ...data } },
        );
        let found;
        worker.once('message', onFirst);
        worker.on('message', (message) => {
            found = message;
        });
        worker.on('error', reject);
        worker.on('exit', () => resolve(found));
    });
}

test('trees are apart', () => {
    const [a, b] = [createFs(), createFs()];
    a.writeFileSync('/f', 'a');
    assert.equal(b.existsSync('/f'), false);
});

test('a tree has its bound', () => {
    const fs = memory({ size: 1 << 20 }).task().fs;
    assert.throws(() => fs.writeFileSync('/f', Buffer.alloc(2 << 20)), {
        code: 'ENOSPC',
        errno: -28,
        syscall: 'write',
        message: 'ENOSPC: no space left on device, write',
    });
    assert.throws(() => memory({ nothing: 1 }), /nothing/);
    assert.throws(() => memory({ size: 'a,b' }), TypeError);
});

test('a task has a root, directories, a umask, credentials', () => {
    const tree = memory();
    const task = tree.task();
    task.fs.mkdirSync('/home/user', { recursive: true });
    task.fs.writeFileSync('/secret', '', { mode: 0o600 });
    const guest = tree.task({ root: '/home', uid: 1000, gid: 1000 });
    assert.equal(guest.fs.existsSync('/secret'), false);
    assert.deepEqual(guest.fs.readdirSync('/'), ['user']);
    assert.throws(() => guest.fs.writeFileSync('/x', ''), { code: 'EACCES' });
    const user = tree.task({ uid: 1000, gid: 1000 });
    assert.throws(() => user.fs.readFileSync('/secret'), { code: 'EACCES', path: '/secret' });
    user.setCredentials({ uid: 0 });
    user.fs.readFileSync('/secret');
    user.chdir('/home');
    assert.equal(user.cwd(), '/home');
    assert.deepEqual(user.fs.readdirSync('.'), ['user']);
    assert.throws(() => user.chdir('/none'), { code: 'ENOENT', syscall: 'chdir' });
    user.umask(0o077);
    user.fs.writeFileSync('f', '');
    assert.equal(user.fs.statSync('f').mode & 0o777, 0o600);
    assert.equal(user.umask(), 0o077);
});

test('a forked task has the descriptors; an ended one has none', () => {
    const task = memory().task();
    task.fs.writeFileSync('/f', 'text');
    const fd = task.fs.openSync('/f');
    const child = task.fork();
    task.end();
    task.end();
    assert.equal(child.fs.readFileSync(fd, 'utf8'), 'text');
    assert.throws(() => task.fs.statSync('/f'), { code: 'EBADF' });
    assert.throws(() => task.fs.readFileSync('/f'), { code: 'EBADF' });
});

test('trees of the host come and go', async () => {
    const task = memory().task();
    const host = path.join(scratch, 'host');
    nodeFs.mkdirSync(path.join(host, 'sub'), { recursive: true });
    nodeFs.writeFileSync(path.join(host, 'sub/f'), 'from the host');
    nodeFs.symlinkSync('/etc/passwd', path.join(host, 'out'));
    assert.deepEqual(await task.importTree(host, '/in', { links: 'skip' }), {
        files: 3,
        bytes: 13,
        skipped: 1,
    });
    assert.equal(task.fs.readFileSync('/in/sub/f', 'utf8'), 'from the host');
    task.fs.writeFileSync('/in/new', 'x');
    await task.exportTree('/in', path.join(scratch, 'out'));
    assert.equal(nodeFs.readFileSync(path.join(scratch, 'out/new'), 'utf8'), 'x');
    await assert.rejects(task.importTree(host, '/in'), { code: 'EEXIST' });
    assert.throws(() => task.fs.readFileSync('/in/out'), { code: 'ENOENT' });
});

test('workers share a tree by its number', async () => {
    const tree = memory();
    const { fs } = tree.task();
    fs.writeFileSync('/from', 'main');
    const told = await inWorker(
        `
    const { fs } = attach(workerData.id).task();
    fs.writeFileSync('/to', fs.readFileSync('/from', 'utf8') + ' and worker');
    parentPort.postMessage(fs.readdirSync('/'));`,
        { id: tree.id },
    );
    assert.deepEqual(told, ['from', 'to']);
    assert.equal(fs.readFileSync('/to', 'utf8'), 'main and worker');
});

test('workers append at once', async () => {
    const tree = memory();
    const { fs } = tree.task();
    await Promise.all(
        [1, 2, 3].map((n) =>
            inWorker(
                `
    const { fs } = attach(workerData.id).task();
    for (let i = 0; i < 500; i++) fs.appendFileSync('/log', workerData.n + '\\n');`,
                { id: tree.id, n },
            ),
        ),
    );
    const lines = fs.readFileSync('/log', 'utf8').trim().split('\n');
    assert.equal(lines.length, 1500);
    assert.equal(lines.filter((line) => line === '2').length, 500);
});

test('a tree that is closed is no tree for anyone', async () => {
    const tree = memory();
    const { id } = tree;
    const again = attach(id);
    const { fs } = again.task();
    let isReady;
    const ready = new Promise((resolve) => (isReady = resolve));
    const wanted = inWorker(
        `
    const { fs } = attach(workerData.id).task();
    parentPort.postMessage('ready');
    const until = Date.now() + 60000;
    let code;
    while (code === undefined && Date.now() < until) {
      try { fs.statSync('/'); fs.readdirSync('/'); } catch (error) { code = error.code; }
    }
    parentPort.postMessage(code);`,
        { id },
        isReady,
    );
    await ready;
    for (;;) {
        try {
            tree.closeSync();
            break;
        } catch (error) {
            // A call of the worker was under way.
            assert.equal(error.code, 'EBUSY');
        }
    }
    assert.equal(await wanted, 'EBADF');
    assert.throws(() => fs.statSync('/'), { code: 'EBADF' });
    assert.throws(() => attach(id), { code: 'EBADF' });
    assert.throws(() => again.task(), { code: 'EBADF' });
    assert.throws(() => tree.id, { code: 'EBADF' });
    assert.throws(() => attach(2 ** 40), { code: 'EBADF' });
    assert.throws(() => attach('1'), TypeError);
    assert.throws(() => attach(-1), RangeError);
    tree.closeSync();
    await tree.close();
});

test('a tree with open files is not closed', () => {
    const tree = memory();
    const { fs } = tree.task();
    const fd = fs.openSync('/f', 'w');
    assert.throws(() => tree.closeSync(), { code: 'EBUSY' });
    fs.closeSync(fd);
    tree.closeSync();
});

test('a worker that ends in the middle of calls is no danger', async () => {
    const tree = memory();
    const workers = [1, 2, 3].map(
        () =>
            new Worker(
                `
    const { workerData } = require('node:worker_threads');
    const { fs } = require(workerData.module).attach(workerData.id).task();
    fs.mkdirSync('/d', { recursive: true });
    fs.watch('/d', () => {});
    const again = () => fs.promises.writeFile('/d/f' + Math.random(), 'x'.repeat(9999)).then(again);
    for (let n = 0; n < 20; n++) again();`,
                { eval: true, workerData: { module: require.resolve('@vfscale/fs'), id: tree.id } },
            ),
    );
    const { fs } = tree.task();
    while (!fs.existsSync('/d') || fs.readdirSync('/d').length < 50) await later(10);
    await Promise.all(workers.map((worker) => worker.terminate()));
    assert.ok(fs.readdirSync('/d').length >= 50);
});

test('a volume keeps its files', async () => {
    const at = image();
    await assert.rejects(openVolume(at), { code: 'ENOENT', path: at });
    const volume = await openVolume(at, { create: 64 << 20 });
    await assert.rejects(openVolume(at), { code: 'EBUSY' });
    const { fs } = volume.task();
    await fs.promises.writeFile('/f', 'kept', { flush: true });
    await volume.sync();
    await volume.close();
    const again = openVolumeSync(at, { readOnly: true });
    assert.equal(again.task().fs.readFileSync('/f', 'utf8'), 'kept');
    assert.throws(() => again.task().fs.writeFileSync('/f', ''), { code: 'EROFS' });
    again.closeSync();
});

test('branches', async () => {
    const at = image();
    const volume = await openVolume(at, { create: 64 << 20 });
    volume.task().fs.writeFileSync('/config', 'old\n');
    await volume.close();
    await assert.rejects(openPool(at), { code: 'EINVAL' });
    const pool = await openPool(at, { convert: true });

    await pool.fork('main', 'trial');
    await assert.rejects(pool.fork('main', 'trial'), { code: 'EEXIST' });
    const size = await pool.run('trial', async (fs) => {
        await fs.promises.writeFile('/new', 'in a branch');
        fs.writeFileSync('/config', 'changed\n');
        return fs.statSync('/new').size;
    });
    assert.equal(size, 11);
    await assert.rejects(
        pool.run('trial', () => {
            throw new Error('mine');
        }),
        /^Error: mine$/,
    );
    assert.deepEqual(await pool.diff('main', 'trial'), [
        { path: '/config', kind: 'changed', movedFrom: null, parts: ['content', 'attributes'] },
        { path: '/new', kind: 'added', movedFrom: null, parts: [] },
    ]);
    assert.match((await pool.patch('main', 'trial')).toString(), /\+changed/);

    assert.equal(await pool.checkpoint('main', 'before'), 'main@1');
    const dry = await pool.merge('trial', 'main', { dryRun: true });
    assert.deepEqual([dry.added, dry.changed, dry.done], [1, 1, false]);
    const merged = await pool.merge('trial');
    assert.deepEqual(
        [merged.added, merged.changed, merged.done, merged.conflicts],
        [1, 1, true, []],
    );
    assert.equal(await pool.run('main', (fs) => fs.readFileSync('/config', 'utf8')), 'changed\n');
    const log = await pool.log();
    assert.deepEqual(
        log.slice(0, 1).map((entry) => entry.kind),
        ['now'],
    );
    assert.ok(
        log.some(
            (entry) =>
                entry.kind === 'checkpoint' && entry.text === 'before' && entry.time <= new Date(),
        ),
    );

    const kept = await pool.rollback('main', 'main@1');
    assert.equal(await pool.run('main', (fs) => fs.readFileSync('/config', 'utf8')), 'old\n');
    assert.ok((await pool.branches()).some((branch) => branch.name === kept));
    await pool.rename(kept, 'kept');
    await pool.setLimit('kept', 16 << 20);
    const limits = (await pool.branches()).map((branch) => [branch.name, branch.limit]);
    assert.deepEqual(Object.fromEntries(limits).kept, 16 << 20);
    assert.equal(Object.fromEntries(limits).main, null);
    await pool.run('kept', (fs) => {
        const write = () => fs.writeFileSync('/large', Buffer.alloc(20 << 20));
        assert.throws(write, { errno: -os.constants.errno.EDQUOT });
    });
    await assert.rejects(pool.setLimit('kept', 4096), { code: 'EINVAL' });
    await assert.rejects(pool.setLimit('kept', 1.5), { code: 'ERR_OUT_OF_RANGE' });
    await pool.setLimit('kept', null);
    await pool.delete('kept');
    assert.ok((await pool.usage()).free > 0);
    await pool.close();
    await pool.close();
});

test('conflicts stand beside', async () => {
    const at = image();
    await (await openVolume(at, { create: 64 << 20 })).close();
    const pool = await openPool(at, { convert: true });
    for (const name of ['a', 'b']) {
        await pool.fork('main', name);
        await pool.run(name, (fs) => fs.writeFileSync('/f', Buffer.from([0, name.charCodeAt(0)])));
    }
    await pool.merge('a');
    const failed = await pool.merge('b', 'main', { strategy: 'fail' });
    assert.deepEqual([failed.done, failed.conflicts.length], [false, 1]);
    const {
        conflicts: [conflict],
    } = await pool.merge('b');
    assert.equal(conflict.kind, 'name');
    assert.deepEqual(
        await pool.run('main', (fs) => [...fs.readFileSync(conflict.beside)]),
        [0, 98],
    );
    const open = await pool.open('main');
    await assert.rejects(pool.close(), { code: 'EBUSY' });
    await assert.rejects(pool.merge('b', 'main'), { code: 'EBUSY' });
    await assert.rejects(pool.merge('b', 'main', { strategy: 'x' }), TypeError);
    await open.close();
    await pool.close();
});

test('a patch is applied', async () => {
    const at = image();
    await (await openVolume(at, { create: 64 << 20 })).close();
    const pool = await openPool(at, { convert: true });
    const patch = '--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+line\n';
    assert.deepEqual(await pool.apply('main', Buffer.from(patch)), {
        isLayer: false,
        written: 1,
        removed: 0,
        untold: 0,
        done: true,
    });
    assert.equal(await pool.run('main', (fs) => fs.readFileSync('/new', 'utf8')), 'line\n');
    await pool.close();
});
