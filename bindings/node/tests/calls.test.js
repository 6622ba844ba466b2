'use strict';

// Streams, handles, directories, watchers, and what must never happen.

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const nodeFs = require('node:fs');
const path = require('node:path');
const { pipeline } = require('node:stream/promises');
const test = require('node:test');
const { promisify } = require('node:util');
const { createFs, memory } = require('@vfscale/fs');
const { memfs, vol, Volume } = require('@vfscale/fs/memfs');
const native = require(path.join(path.dirname(require.resolve('@vfscale/fs')), 'lib/native'));

test('fs has the names of fs', () => {
    const fs = createFs();
    const missing = Object.keys(nodeFs).filter(
        (name) => !(name in fs) && nodeFs[name] !== undefined,
    );
    assert.deepEqual(missing, []);
    const absent = Object.keys(nodeFs.promises).filter((name) => !(name in fs.promises));
    assert.deepEqual(absent, []);
});

test('streams', async () => {
    const fs = createFs();
    const data = Buffer.alloc(300000, 'streams ');
    fs.writeFileSync('/in', data);
    await pipeline(fs.createReadStream('/in'), fs.createWriteStream('/out'));
    assert.ok(fs.readFileSync('/out').equals(data));
    await pipeline(
        fs.createReadStream('/in', { start: 8, end: 15, encoding: 'utf8' }),
        async (parts) => {
            for await (const part of parts) assert.equal(part, 'streams ');
        },
    );
    await assert.rejects(pipeline(fs.createReadStream('/none'), fs.createWriteStream('/x')), {
        code: 'ENOENT',
        syscall: 'open',
        path: '/none',
    });
    const stream = new fs.WriteStream('/appended', { flags: 'a' });
    assert.ok(stream instanceof nodeFs.WriteStream && stream instanceof fs.WriteStream);
    stream.write('a');
    stream.end('b');
    await new Promise((resolve) => {
        stream.on('close', resolve);
    });
    assert.equal(fs.readFileSync('/appended', 'utf8'), 'ab');
});

test('file handles', async () => {
    const fs = createFs();
    const handle = await fs.promises.open('/f', 'w+', 0o600);
    assert.deepEqual(await handle.write('hello\nworld\n'), {
        bytesWritten: 12,
        buffer: 'hello\nworld\n',
    });
    const { bytesRead, buffer } = await handle.read({ position: 6, length: 5 });
    assert.equal(buffer.toString('utf8', 0, bytesRead), 'world');
    assert.equal((await handle.stat()).mode & 0o777, 0o600);
    await handle.chmod(0o644);
    await handle.truncate(6);
    await handle.sync();
    await handle.datasync();
    await handle.utimes(1, 2);
    assert.equal((await handle.stat()).mtimeMs, 2000);
    const lines = [];
    for await (const line of handle.readLines({ start: 0 })) lines.push(line);
    assert.deepEqual(lines, ['hello']);
    await handle.close();
    await assert.rejects(handle.stat(), { code: 'EBADF', syscall: 'fstat' });

    const writer = await fs.promises.open('/g', 'w');
    await fs.promises.writeFile(
        writer,
        (async function* () {
            yield 'a';
            yield Buffer.from('b');
        })(),
    );
    const stream = writer.createWriteStream();
    await promisify(stream.end).call(stream, 'c');
    assert.equal(await fs.promises.readFile('/g', 'utf8'), 'abc');
    assert.equal(
        await new Response((await fs.promises.open('/g')).readableWebStream()).text(),
        'abc',
    );
});

test('directories', async () => {
    const fs = createFs();
    fs.mkdirSync('/d/sub', { recursive: true });
    fs.writeFileSync('/d/f', '');
    const dir = await fs.promises.opendir('/d');
    const found = [];
    for await (const entry of dir) found.push([entry.name, entry.isDirectory(), entry.parentPath]);
    assert.deepEqual(found, [
        ['f', false, '/d'],
        ['sub', true, '/d'],
    ]);
    assert.throws(() => dir.readSync(), { code: 'ERR_DIR_CLOSED' });
    const sync = fs.opendirSync('/d');
    assert.equal(sync.path, '/d');
    assert.equal(sync.readSync().name, 'f');
    assert.equal((await sync.read()).name, 'sub');
    assert.equal(sync.readSync(), null);
    await sync.close();
    assert.throws(() => fs.opendirSync('/none'), { code: 'ENOENT', syscall: 'opendir' });
});

test('watchers', async () => {
    const fs = createFs();
    fs.mkdirSync('/d/sub', { recursive: true });
    const seen = [];
    const watcher = fs.watch('/d', (event, name) => seen.push(`${event} ${name}`));
    const all = fs.watch('/d', { recursive: true }, (event, name) =>
        seen.push(`all ${event} ${name}`),
    );
    fs.writeFileSync('/d/f', 'x');
    fs.renameSync('/d/f', '/d/g');
    fs.writeFileSync('/d/sub/h', '');
    for (let n = 0; n < 200 && !seen.includes('all rename sub/h'); n++) {
        await new Promise((resolve) => {
            setTimeout(resolve, 10);
        });
    }
    for (const event of ['rename f', 'change f', 'rename g', 'all rename sub/h']) {
        assert.ok(seen.includes(event), `${event} of ${seen}`);
    }
    assert.ok(!seen.includes('rename sub/h'));
    watcher.close();
    all.close();
    assert.throws(() => fs.watch('/none'), { code: 'ENOENT' });

    const ended = new AbortController();
    const events = fs.promises.watch('/d', { signal: ended.signal });
    const next = events.next();
    fs.writeFileSync('/d/new', '');
    assert.deepEqual((await next).value, { eventType: 'rename', filename: 'new' });
    ended.abort();
    await assert.rejects(
        async () => {
            for await (const _ of events);
        },
        { name: 'AbortError' },
    );

    const changed = new Promise((resolve) => {
        fs.watchFile('/d/g', { interval: 10 }, (now, before) => resolve([now.size, before.size]));
    });
    fs.writeFileSync('/d/g', 'more');
    assert.deepEqual(await changed, [4, 1]);
    fs.unwatchFile('/d/g');
});

test('a watcher alone does not keep a program that says so', () => {
    execFileSync(
        process.execPath,
        [
            '-e',
            `
    const fs = require(${JSON.stringify(require.resolve('@vfscale/fs'))}).createFs();
    fs.watch('/', { persistent: false }, () => {});
    fs.writeFileSync('/f', '');`,
        ],
        { timeout: 20000 },
    );
});

test('promisify', async () => {
    const fs = createFs();
    assert.equal(await promisify(fs.exists)('/none'), false);
    const fd = await promisify(fs.open)('/f', 'w+');
    assert.deepEqual(await promisify(fs.write)(fd, 'abc'), { bytesWritten: 3, buffer: 'abc' });
    const { bytesRead } = await promisify(fs.read)(fd, Buffer.alloc(9), 0, 9, 0);
    assert.equal(bytesRead, 3);
    await promisify(fs.close)(fd);
});

test('signals', async () => {
    const fs = createFs();
    fs.writeFileSync('/f', 'x');
    const stopped = AbortSignal.abort();
    await assert.rejects(fs.promises.readFile('/f', { signal: stopped }), {
        name: 'AbortError',
        code: 'ABORT_ERR',
    });
    await assert.rejects(promisify(fs.writeFile)('/f', 'y', { signal: stopped }), {
        name: 'AbortError',
    });
    const later = new AbortController();
    const read = fs.promises.readFile('/f', { signal: later.signal });
    later.abort();
    await assert.rejects(read, { name: 'AbortError' });
    assert.throws(() => fs.readFileSync('/f', { signal: 5 }), TypeError);
});

test("callbacks come later, and their errors are the program's", async () => {
    const fs = createFs();
    let isReturned = false;
    await new Promise((resolve) => {
        fs.stat('/', (error) => {
            assert.equal(error, null);
            assert.ok(isReturned);
            resolve();
        });
        isReturned = true;
    });
    assert.throws(() => fs.stat('/'), { code: 'ERR_INVALID_ARG_TYPE', message: /"cb" argument/ });
    const out = execFileSync(process.execPath, [
        '-e',
        `
    const fs = require(${JSON.stringify(require.resolve('@vfscale/fs'))}).createFs();
    process.on('uncaughtException', (error) => console.log(error.message));
    fs.stat('/', () => { throw new Error('mine'); });`,
    ]);
    assert.equal(`${out}`, 'mine\n');
});

test('a wait does not stop the loop', async () => {
    const fs = createFs();
    fs.mkfifoSync('/fifo');
    const opened = fs.promises.open('/fifo', 'r');
    await new Promise((resolve) => {
        setTimeout(resolve, 20);
    });
    const writer = await fs.promises.open('/fifo', 'w');
    const reader = await opened;
    const read = reader.read(Buffer.alloc(5), 0, 5, null);
    await new Promise((resolve) => {
        setTimeout(resolve, 20);
    });
    await writer.write('ping!');
    assert.equal((await read).buffer.toString(), 'ping!');
    await writer.close();
    await reader.close();
});

test('views that change during a call', async () => {
    const fs = createFs();
    fs.writeFileSync('/f', 'abcdef');
    const fd = fs.openSync('/f', 'r+');
    const view = new Uint8Array(6);
    const read = new Promise((resolve) => {
        fs.read(fd, view, 0, 6, 0, (error, count) => resolve([error, count]));
    });
    structuredClone(view.buffer, { transfer: [view.buffer] });
    assert.deepEqual(await read, [null, 6]);
    const data = Buffer.from('ABCDEF');
    const wrote = promisify(fs.write)(fd, data, 0, 6, 0);
    data.fill(0);
    await wrote;
    assert.equal(fs.readFileSync('/f', 'utf8'), 'ABCDEF');
});

test('wrong arguments to the addon are errors', () => {
    const box = memory().task();
    for (const [name, op] of Object.entries(native)) {
        if (typeof op !== 'function' || name === 'watchKeep') continue;
        for (const args of [
            [],
            [1],
            [null, '/'],
            [box, '/'],
            ['/', '/', '/', '/', '/'],
            [{}, {}, {}, {}],
        ]) {
            try {
                op(...args);
            } catch (error) {
                assert.ok(error instanceof TypeError);
            }
        }
    }
});

test('what nobody holds is freed', () => {
    const out = execFileSync(process.execPath, [
        '--expose-gc',
        '-e',
        `
    const { memory } = require(${JSON.stringify(require.resolve('@vfscale/fs'))});
    const wait = () => new Promise((resolve) => setTimeout(resolve, 1));
    (async () => {
      let most = 0;
      for (let n = 0; n < 60; n++) {
        memory().task().fs.writeFileSync('/f', Buffer.alloc(8 << 20, 1));
        global.gc();
        await wait();
        most = Math.max(most, process.memoryUsage().rss);
      }
      console.log(most < (300 << 20));
    })();`,
    ]);
    assert.equal(`${out}`, 'true\n');
});

test('the names of memfs', () => {
    vol.fromJSON({ './README.md': '1', './src/index.js': '2', './node_modules': null }, '/app');
    assert.equal(vol.readFileSync('/app/README.md', 'utf8'), '1');
    assert.deepEqual(vol.toJSON(), {
        '/app/README.md': '1',
        '/app/src/index.js': '2',
        '/app/node_modules': null,
    });
    assert.deepEqual(vol.toJSON('/app/src', {}, true), { 'index.js': '2' });
    vol.reset();
    assert.deepEqual(vol.toJSON(), {});
    const { fs } = memfs({ a: { b: 'c', d: {} } });
    assert.equal(fs.readFileSync('/a/b', 'utf8'), 'c');
    assert.ok(fs.statSync('/a/d').isDirectory());
    const volume = new Volume({ uid: 1000, gid: 1000 });
    volume.writeFileSync('/f', 'x', { mode: 0 });
    assert.throws(() => volume.readFileSync('/f'), { code: 'EACCES' });
});
