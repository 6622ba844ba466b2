'use strict';

// Makes calls on a tree and on the host: as functions that return, with callbacks, as promises.
// The results, the errors with all of their members, and what the calls leave behind are compared.

const assert = require('node:assert/strict');
const nodeFs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');
const { memory } = require('@vfscale/fs');

const uid = process.getuid();
const gid = process.getgid();
process.umask(0o022);

function make(fs, dir) {
    fs.mkdirSync(dir, { recursive: true });
    fs.writeFileSync(`${dir}/file`, 'hello');
    fs.writeFileSync(`${dir}/text`, 'grüße 🌍\n');
    fs.writeFileSync(`${dir}/bytes`, Buffer.from([0xff, 0xfe, 0, 1, 0x80]));
    fs.writeFileSync(`${dir}/large`, 'x'.repeat(200000));
    fs.mkdirSync(`${dir}/dir/sub/deep`, { recursive: true });
    fs.writeFileSync(`${dir}/dir/a`, 'a');
    fs.writeFileSync(`${dir}/dir/sub/b`, 'b');
    fs.mkdirSync(`${dir}/empty`);
    fs.symlinkSync('file', `${dir}/link`);
    fs.symlinkSync('dir', `${dir}/dirlink`);
    fs.symlinkSync('nowhere', `${dir}/broken`);
    fs.symlinkSync('loop', `${dir}/loop`);
    fs.utimesSync(`${dir}/file`, 1000.5, 2000.25);
}

/** Returns what a tree has: types, permissions, contents. */
function shape(fs, dir, found = {}, above = '') {
    for (const name of fs.readdirSync(dir)) {
        const at = `${dir}/${name}`;
        const st = fs.lstatSync(at);
        const key = `${above}${name}`.replace(/^(tmp-)\w{6}$/, '$1XXXXXX');
        found[key] = [(st.mode & 0o177777).toString(8), st.nlink, st.uid, st.gid];
        if (st.isSymbolicLink()) found[key].push(fs.readlinkSync(at).replace(dir, '$'));
        else if (st.isFile()) found[key].push(fs.readFileSync(at, 'latin1').slice(0, 100), st.size);
        else if (st.isDirectory()) shape(fs, at, found, `${above}${name}/`);
    }
    return found;
}

function plain(value, dir) {
    if (typeof value === 'string') {
        return value.replaceAll(dir, '$').replace(/tmp-\w{6}$/, 'tmp-XXXXXX');
    }
    if (Buffer.isBuffer(value)) return { buffer: plain(value.toString('latin1'), dir) };
    if (value === null || typeof value !== 'object') return value;
    if (Array.isArray(value)) return value.map((it) => plain(it, dir));
    if (typeof value.isFile === 'function') {
        const types = [
            'isFile',
            'isDirectory',
            'isSymbolicLink',
            'isFIFO',
            'isSocket',
            'isBlockDevice',
            'isCharacterDevice',
        ].map((name) => value[name]());
        if (!('mode' in value))
            return {
                types,
                name: plain(value.name, dir),
                parentPath: plain(value.parentPath, dir),
            };
        const { mode, nlink, uid: user, gid: group, size } = value;
        return {
            types,
            mode,
            nlink,
            user,
            group,
            size: value.isDirectory() ? 0 : size,
            keys: Object.keys(value).filter((it) => !/^(a|m|c|birth)time$/.test(it)),
        };
    }
    return { keys: Object.keys(value) };
}

/** The members of an error. Texts about arguments differ from one version of Node to another. */
function failure(error, dir) {
    const { name, code, errno, syscall, path: at, dest, message } = error;
    const isArgument = /^ERR_(INVALID|OUT)/.test(code);
    return {
        failed: {
            name,
            code,
            errno,
            syscall,
            path: plain(at, dir)?.replace(/tmp-\w{6}/, 'tmp-XXXXXX'),
            dest: plain(dest, dir),
            message: isArgument ? '' : plain(message, dir).replace(/tmp-\w{6}/, 'tmp-XXXXXX'),
        },
    };
}

const FORMS = {
    sync: (fs, name, args) => fs[`${name}Sync`](...args),
    callback: (fs, name, args) =>
        new Promise((resolve, reject) => {
            fs[name](...args, (error, ...values) => {
                if (error instanceof Error) reject(error);
                else resolve(name === 'exists' ? error : values[0]);
            });
        }),
    promises: (fs, name, args) => fs.promises[name](...args),
};

const D = (name) => ({ in: name });
const given = (arg, dir) => {
    if (arg?.in !== undefined) return `${dir}/${arg.in}`;
    if (arg?.bytes !== undefined) return Buffer.from(`${dir}/${arg.bytes}`);
    return arg;
};

async function outcome(fs, dir, form, [name, ...args]) {
    make(fs, dir);
    let value;
    try {
        value = {
            value: plain(
                await FORMS[form](
                    fs,
                    name,
                    args.map((arg) => given(arg, dir)),
                ),
                dir,
            ),
        };
    } catch (error) {
        value = failure(error, dir);
    }
    return { ...value, left: shape(fs, dir) };
}

const CASES = [
    ['readFile', D('file')],
    ['readFile', D('file'), 'utf8'],
    ['readFile', D('text'), 'utf8'],
    ['readFile', D('text'), { encoding: 'base64' }],
    ['readFile', D('bytes'), 'utf8'],
    ['readFile', D('bytes')],
    ['readFile', D('large'), 'latin1'],
    ['readFile', D('large')],
    ['readFile', D('missing')],
    ['readFile', D('dir')],
    ['readFile', D('dir'), 'utf8'],
    ['readFile', D('loop')],
    ['readFile', D('file/x')],
    ['readFile', D('link'), 'utf8'],
    ['readFile', { bytes: 'file' }, 'utf8'],
    ['readFile', D('new'), { flag: 'a+' }],
    ['readFile', D('file'), { flag: 'wrong' }],
    ['readFile', D('file'), 'no-encoding'],
    ['readFile', undefined],
    ['readFile', {}],
    ['readFile', D('a\0b')],
    ['readFile', D('x'.repeat(300))],
    ['readFile', `/${'x/'.repeat(3000)}`],
    ['writeFile', D('new'), 'text'],
    ['writeFile', D('file'), 'x'],
    ['writeFile', D('link'), 'x'],
    ['writeFile', D('new'), 'grüße'],
    ['writeFile', D('new'), 'ff00', 'hex'],
    ['writeFile', D('new'), Buffer.from([1, 2, 3])],
    ['writeFile', D('new'), new Uint16Array([1, 2])],
    ['writeFile', D('new'), 'x', { mode: 0o600 }],
    ['writeFile', D('new'), 'x', { flag: 'wx' }],
    ['writeFile', D('file'), 'x', { flag: 'wx' }],
    ['writeFile', D('file'), 'x', { flag: 'a' }],
    ['writeFile', D('file'), 'x', { flag: 'r+' }],
    ['writeFile', D('missing/x'), 'x'],
    ['writeFile', D('dir'), 'x'],
    ['writeFile', D('new'), 'y'.repeat(100000)],
    ['writeFile', D('new'), 7],
    ['writeFile', D('new'), null],
    ['writeFile', D('file/x'), 'x'],
    ['writeFile', D('new'), 'x', { mode: '0640' }],
    ['writeFile', D('new'), 'x', { mode: 'rw' }],
    ['writeFile', D('new'), 'x', { flush: true }],
    ['appendFile', D('file'), ' world'],
    ['appendFile', D('new'), 'x'],
    ['appendFile', D('dir'), 'x'],
    ['appendFile', D('new'), 'x', { mode: 0o600 }],
    ['stat', D('file')],
    ['stat', D('link')],
    ['stat', D('dir')],
    ['stat', D('broken')],
    ['stat', D('missing')],
    ['stat', D('file'), { bigint: true }],
    ['stat', D('loop')],
    ['stat', 5],
    ['stat', ''],
    ['stat', D('file/')],
    ['lstat', D('link')],
    ['lstat', D('broken')],
    ['lstat', D('missing')],
    ['lstat', D('link'), { bigint: true }],
    ['exists', D('file')],
    ['exists', D('missing')],
    ['exists', D('broken')],
    ['exists', undefined],
    ['access', D('file')],
    ['access', D('file'), 4],
    ['access', D('missing')],
    ['access', D('file'), 1],
    ['access', D('file'), 8],
    ['access', D('file'), 'r'],
    ['access', D('file'), -1],
    ['readdir', D('dir')],
    ['readdir', D('')],
    ['readdir', D('empty')],
    ['readdir', D('missing')],
    ['readdir', D('file')],
    ['readdir', D('dir'), { withFileTypes: true }],
    ['readdir', D('dirlink')],
    ['readdir', D('dir'), 'buffer'],
    ['readdir', D('dir'), { encoding: 'hex' }],
    ['readdir', D('dir'), { recursive: true }],
    ['readdir', D('dir'), { recursive: 1 }],
    ['readdir', D('dir'), { recursive: true, withFileTypes: true }],
    ['mkdir', D('new')],
    ['mkdir', D('new'), 0o700],
    ['mkdir', D('new'), { mode: 0o750 }],
    ['mkdir', D('dir')],
    ['mkdir', D('file')],
    ['mkdir', D('missing/x')],
    ['mkdir', D('file/x')],
    ['mkdir', D('new/a/b'), { recursive: true }],
    ['mkdir', D('dir'), { recursive: true }],
    ['mkdir', D('file'), { recursive: true }],
    ['mkdir', D('file/a/b'), { recursive: true }],
    ['mkdir', D('dir/new/b/'), { recursive: true }],
    ['mkdir', D('new'), { recursive: 1 }],
    ['mkdir', D('new'), { mode: 'x' }],
    ['mkdir', 7],
    ['mkdtemp', D('tmp-')],
    ['mkdtemp', D('missing/tmp-')],
    ['mkdtemp', D('tmp-'), 'buffer'],
    ['rmdir', D('empty')],
    ['rmdir', D('dir')],
    ['rmdir', D('file')],
    ['rmdir', D('missing')],
    ['rmdir', D('link')],
    ['rm', D('file')],
    ['rm', D('link')],
    ['rm', D('missing')],
    ['rm', D('missing'), { force: true }],
    ['rm', D('dir')],
    ['rm', D('dir'), { recursive: true }],
    ['rm', D('dirlink'), { recursive: true }],
    ['rm', D('dir'), { recursive: 1 }],
    ['rm', D('dir'), 'all'],
    ['unlink', D('file')],
    ['unlink', D('link')],
    ['unlink', D('missing')],
    ['unlink', D('dir')],
    ['rename', D('file'), D('new')],
    ['rename', D('file'), D('text')],
    ['rename', D('missing'), D('new')],
    ['rename', D('file'), D('dir')],
    ['rename', D('dir'), D('empty')],
    ['rename', D('empty'), D('dir')],
    ['rename', D('dir'), D('dir/sub/x')],
    ['rename', D('file'), 7],
    ['link', D('file'), D('new')],
    ['link', D('file'), D('text')],
    ['link', D('missing'), D('new')],
    ['link', D('dir'), D('new')],
    ['link', D('link'), D('new')],
    ['symlink', 'file', D('new')],
    ['symlink', 'file', D('text')],
    ['symlink', 'file', D('missing/x')],
    ['symlink', 'file', D('new'), 'wrong'],
    ['symlink', 'dir', D('new'), 'dir'],
    ['readlink', D('link')],
    ['readlink', D('file')],
    ['readlink', D('missing')],
    ['readlink', D('link'), 'buffer'],
    ['readlink', D('broken')],
    ['realpath', D('dirlink/sub/../a')],
    ['realpath', D('link')],
    ['realpath', D('missing/x')],
    ['realpath', D('link'), 'buffer'],
    ['truncate', D('file'), 2],
    ['truncate', D('file')],
    ['truncate', D('file'), 10],
    ['truncate', D('missing')],
    ['truncate', D('dir')],
    ['truncate', D('file'), 1.5],
    ['truncate', D('file'), 'x'],
    ['truncate', D('file'), -3],
    ['chmod', D('file'), 0o600],
    ['chmod', D('file'), '0604'],
    ['chmod', D('link'), 0o600],
    ['chmod', D('missing'), 0o600],
    ['chmod', D('file'), -1],
    ['chmod', D('file'), {}],
    ['chown', D('file'), uid, gid],
    ['chown', D('missing'), uid, gid],
    ['chown', D('file'), 'x', 0],
    ['lchown', D('link'), uid, gid],
    ['lchown', D('missing'), uid, gid],
    ['chown', D('file'), 1.5, 0],
    ['utimes', D('file'), 1, 2],
    ['utimes', D('missing'), 1, 2],
    ['utimes', D('file'), 'x', 2],
    ['utimes', D('file'), new Date(5000), '7.5'],
    ['lutimes', D('link'), 1, 2],
    ['lutimes', D('missing'), 1, 2],
    ['copyFile', D('file'), D('new')],
    ['copyFile', D('file'), D('text')],
    ['copyFile', D('large'), D('new')],
    ['copyFile', D('file'), D('text'), nodeFs.constants.COPYFILE_EXCL],
    ['copyFile', D('missing'), D('new')],
    ['copyFile', D('dir'), D('new')],
    ['copyFile', D('file'), D('dir')],
    ['copyFile', D('file'), D('new'), 9],
    ['copyFile', D('file'), D('file')],
    ['copyFile', D('file'), D('missing/x')],
    ['copyFile', D('link'), D('new')],
    ['cp', D('file'), D('new')],
    ['cp', D('dir'), D('new'), { recursive: true }],
    ['cp', D('dir'), D('new')],
    ['cp', D('missing'), D('new')],
    ['cp', D('dir'), D('dir/sub/x'), { recursive: true }],
    ['cp', D('file'), D('text'), { force: false }],
    ['cp', D('link'), D('new')],
    ['cp', D('file'), D('file')],
    ['cp', D('file'), D('text'), { force: false, errorOnExist: true }],
    ['cp', D('file'), D('text')],
    ['cp', D('dir'), D('file'), { recursive: true }],
    ['cp', D('file'), D('dir')],
    ['cp', D('link'), D('new'), { verbatimSymlinks: true }],
    ['cp', D('link'), D('new'), { dereference: true }],
    ['cp', D('dir'), D('empty'), { recursive: true }],
    ['cp', D('file'), D('new/a/b')],
    ['cp', D('dir'), D('new'), { recursive: true, filter: (from) => !from.endsWith('sub') }],
    ['cp', D('file'), D('new'), { recursive: 1 }],
];

// Differences that are meant, by the call and its form.
const KNOWN = new Map([
    ['sync cp {"in":"dir"}, {"in":"new"}', 'the number is EINVAL, with a callback EISDIR'],
    ['promises readdir {"in":"dir"}, {"recursive":1}', 'the promise of Node takes any value'],
]);

const scratch = nodeFs.mkdtempSync(path.join(os.tmpdir(), 'vfscale-'));
test.after(() => nodeFs.rmSync(scratch, { recursive: true, force: true }));
let round = 0;

for (const form of Object.keys(FORMS)) {
    for (const call of CASES) {
        const [name, ...args] = call;
        if (form === 'promises' && name === 'exists') continue;
        const shown = args.map((arg) => JSON.stringify(arg)?.slice(0, 60)).join(', ');
        const title = `${form} ${name} ${shown}`;
        test(title, { skip: KNOWN.get(title) }, async () => {
            const { fs } = memory({ uid, gid }).task({ uid, gid });
            // Of one length, since some messages are cut.
            const dir = path.join(scratch, `${1e6 + round++}`);
            const expected = await outcome(nodeFs, dir, form, call);
            assert.deepEqual(await outcome(fs, dir, form, call), expected);
        });
    }
}

// Calls on descriptors.
const ON_FD = {
    'read to a buffer': (fs, fd) => {
        const b = Buffer.alloc(8);
        return [fs.readSync(fd, b), b];
    },
    'read with options': (fs, fd) => {
        const b = Buffer.alloc(8);
        return [fs.readSync(fd, b, { offset: 2, length: 3, position: 1 }), b];
    },
    'read at a position': (fs, fd) => {
        const b = Buffer.alloc(4);
        return [fs.readSync(fd, b, 0, 4, 3n), b];
    },
    'read too much': (fs, fd) => fs.readSync(fd, Buffer.alloc(4), 2, 4, 0),
    'read at a negative offset': (fs, fd) => fs.readSync(fd, Buffer.alloc(4), -1, 4, 0),
    'read to nothing': (fs, fd) => fs.readSync(fd, Buffer.alloc(0), 0, 1, 0),
    'read to no buffer': (fs, fd) => fs.readSync(fd, 'buffer', 0, 1, 0),
    'read at no position': (fs, fd) => fs.readSync(fd, Buffer.alloc(4), 0, 1, 'x'),
    'read to a view': (fs, fd) => {
        const b = new Uint16Array(2);
        return [fs.readSync(fd, b), b.length, Buffer.from(b.buffer)];
    },
    'write text': (fs, fd) => [
        fs.writeSync(fd, 'grü'),
        fs.writeSync(fd, 'x', 10),
        fs.writeSync(fd, 'ff', null, 'hex'),
    ],
    'write a part': (fs, fd) => fs.writeSync(fd, Buffer.from('abcdef'), 2, 3, 1),
    'write with options': (fs, fd) =>
        fs.writeSync(fd, Buffer.from('abcdef'), { offset: 1, position: 3 }),
    'write too much': (fs, fd) => fs.writeSync(fd, Buffer.from('abc'), 1, 3),
    'write at a wrong offset': (fs, fd) => fs.writeSync(fd, Buffer.from('abc'), 9),
    'write a number': (fs, fd) => fs.writeSync(fd, 7),
    readv: (fs, fd) => {
        const b = [Buffer.alloc(2), Buffer.alloc(5)];
        return [fs.readvSync(fd, b), ...b];
    },
    'readv at a position': (fs, fd) => {
        const b = [Buffer.alloc(2), Buffer.alloc(5)];
        return [fs.readvSync(fd, b, 1), ...b];
    },
    writev: (fs, fd) => fs.writevSync(fd, [Buffer.from('ab'), new Uint8Array([99])]),
    'writev of no views': (fs, fd) => fs.writevSync(fd, ['ab']),
    'readFile and writeFile': (fs, fd) => [
        fs.readFileSync(fd, 'utf8'),
        fs.writeFileSync(fd, 'more'),
        fs.readFileSync(fd),
    ],
    attributes: (fs, fd) => [
        fs.fchmodSync(fd, 0o640),
        fs.futimesSync(fd, 1, 2),
        fs.fstatSync(fd),
        fs.fchownSync(fd, uid, gid),
    ],
    truncate: (fs, fd) => [
        fs.ftruncateSync(fd, 2),
        fs.ftruncateSync(fd, 6),
        fs.fsyncSync(fd),
        fs.fdatasyncSync(fd),
    ],
    'a closed one': (fs, fd) => {
        fs.closeSync(fd);
        fs.fstatSync(fd);
    },
    'a wrong one': (fs) => fs.closeSync(7.5),
    'a negative one': (fs) => fs.fstatSync(-1),
    'a large one': (fs) => fs.fstatSync(2 ** 40),
    'no number': (fs) => fs.readSync('1', Buffer.alloc(1)),
    'one that is not open': (fs) => fs.readSync(2 ** 30, Buffer.alloc(1)),
};
for (const [name, call] of Object.entries(ON_FD)) {
    test(`descriptor: ${name}`, () => {
        const { fs } = memory({ uid, gid }).task({ uid, gid });
        const dir = path.join(scratch, `${1e6 + round++}`);
        const [expected, found] = [nodeFs, fs].map((on) => {
            make(on, dir);
            const fd = on.openSync(`${dir}/file`, 'r+');
            let value;
            try {
                value = plain(call(on, fd), dir);
            } catch (error) {
                value = failure(error, dir);
            }
            const left = shape(on, dir);
            try {
                on.closeSync(fd);
            } catch {
                // Closed before.
            }
            return { value, left };
        });
        assert.deepEqual(found, expected);
    });
}

for (const flags of [
    'r',
    'rs',
    'sr',
    'r+',
    'rs+',
    'w',
    'wx',
    'xw',
    'w+',
    'wx+',
    'a',
    'ax',
    'a+',
    'ax+',
    'as',
    'sa+',
    'as+',
    'x',
    '',
    null,
    undefined,
    0,
    2,
    577,
    1.5,
]) {
    for (const name of ['file', 'missing']) {
        test(`open ${name} with ${flags}`, () => {
            const { fs } = memory({ uid, gid }).task({ uid, gid });
            const dir = path.join(scratch, `${1e6 + round++}`);
            const [expected, found] = [nodeFs, fs].map((on) => {
                make(on, dir);
                try {
                    const fd = on.openSync(`${dir}/${name}`, flags);
                    let wrote;
                    try {
                        wrote = on.writeSync(fd, 'xy');
                    } catch (error) {
                        wrote = failure(error, dir);
                    }
                    on.closeSync(fd);
                    return { wrote, left: shape(on, dir) };
                } catch (error) {
                    return failure(error, dir);
                }
            });
            assert.deepEqual(found, expected);
        });
    }
}
