'use strict';

// Prints the table of figures in README: node bench/figures.js [ROUNDS]. In each round all take
// turns, beginning with another one; the table has medians, with the smallest and the largest.
// Needs the packages @vfscale/fs and memfs, and a tmpfs at /dev/shm.

const nodeFs = require('node:fs');
const os = require('node:os');
const { memory } = require('@vfscale/fs');
const { Volume } = require('memfs');

const ROUNDS = Number(process.argv[2] ?? 15);
const FOR_MS = 100;

const dir = nodeFs.mkdtempSync('/dev/shm/vfscale-');
process.on('exit', () => nodeFs.rmSync(dir, { recursive: true }));
const SYSTEMS = { vfscale: memory().task().fs, memfs: new Volume(), tmpfs: nodeFs };

const text = 'x'.repeat(100);
const block = Buffer.alloc(4096, 1);
const CALLS = {
    'readFileSync, 100 bytes, text': (fs) => fs.readFileSync(`${dir}/small`, 'utf8'),
    'readFileSync, 100 bytes': (fs) => fs.readFileSync(`${dir}/small`),
    'readFileSync, 4 KiB': (fs) => fs.readFileSync(`${dir}/block`),
    'readFileSync, 1 MiB': (fs) => fs.readFileSync(`${dir}/large`),
    'writeFileSync, 100 bytes, text': (fs) => fs.writeFileSync(`${dir}/written`, text),
    'writeFileSync, 4 KiB': (fs) => fs.writeFileSync(`${dir}/written`, block),
    'readdirSync, 20 names': (fs) => fs.readdirSync(`${dir}/few`),
    'readdirSync, 1,000 names': (fs) => fs.readdirSync(`${dir}/many`),
    statSync: (fs) => fs.statSync(`${dir}/small`),
    existsSync: (fs) => fs.existsSync(`${dir}/small`),
};
const LATER = {
    'promises.readFile, 100 bytes': (fs) => fs.promises.readFile(`${dir}/small`),
};

function fill(fs) {
    fs.mkdirSync(dir, { recursive: true });
    fs.writeFileSync(`${dir}/small`, text);
    fs.writeFileSync(`${dir}/block`, block);
    fs.writeFileSync(`${dir}/large`, Buffer.alloc(1 << 20, 2));
    for (const [name, count] of [
        ['few', 20],
        ['many', 1000],
    ]) {
        fs.mkdirSync(`${dir}/${name}`);
        for (let n = 0; n < count; n++) fs.writeFileSync(`${dir}/${name}/file-${n}`, '');
    }
}

/** Returns the nanoseconds of CPU time since `before`: other programs on the machine disturb less. */
function cpu(before) {
    const { user, system } = process.cpuUsage(before);
    return (user + system) * 1000;
}

/** Returns the nanoseconds of a call. */
function timed(call, fs) {
    let calls = 0;
    const until = Date.now() + FOR_MS;
    const before = process.cpuUsage();
    do {
        for (let n = 0; n < 20; n++) call(fs);
        calls += 20;
    } while (Date.now() < until);
    return cpu(before) / calls;
}

/** Returns the nanoseconds of a call, of all threads, with eight calls under way. */
async function timedLater(call, fs) {
    let calls = 0;
    const until = Date.now() + FOR_MS;
    const before = process.cpuUsage();
    const one = async () => {
        while (Date.now() < until) {
            await call(fs);
            calls++;
        }
    };
    await Promise.all(Array.from({ length: 8 }, one));
    return cpu(before) / Math.max(calls, 1);
}

const middle = (all) => [...all].sort((a, b) => a - b)[all.length >> 1];
const shown = (ns) => (ns < 9950 ? (ns / 1000).toFixed(2) : (ns / 1000).toFixed(1));

async function measure() {
    for (const fs of Object.values(SYSTEMS)) fill(fs);
    const found = {};
    for (let round = 0; round < ROUNDS + 1; round++) {
        const names = Object.keys(SYSTEMS);
        const order = names.map((_, n) => names[(n + round) % names.length]);
        for (const [name, call] of Object.entries({ ...CALLS, ...LATER })) {
            for (const system of order) {
                const ns = await (name in LATER ? timedLater : timed)(call, SYSTEMS[system]);
                // The first round warms the compiler up.
                if (round > 0) ((found[name] ??= {})[system] ??= []).push(ns);
            }
        }
    }
    return found;
}

measure().then((found) => {
    const cpu = os.cpus()[0].model;
    console.log(
        `Node ${process.version}, ${os.cpus().length} CPUs of ${cpu}, ${ROUNDS} rounds, us of CPU time\n`,
    );
    console.log('| call | vfscale | memfs | `fs` on tmpfs | memfs / vfscale |');
    console.log('| --- | ---: | ---: | ---: | ---: |');
    for (const [name, by] of Object.entries(found)) {
        const cells = Object.keys(SYSTEMS).map((system) => by[system]).map(
            (all) =>
                `${shown(middle(all))} (${shown(Math.min(...all))} to ${shown(Math.max(...all))})`,
        );
        const ratio = middle(by.memfs.map((ns, n) => ns / by.vfscale[n]));
        console.log(`| ${name} | ${cells.join(' | ')} | ${ratio.toFixed(1)} |`);
    }
});
