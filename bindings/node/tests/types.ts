// Compiled only: the types of the package, where they meet Node's.

import * as nodeFs from 'node:fs';
import { attach, createFs, memory, openPool, type Fs, type Tree } from '@vfscale/fs';
import { Volume, memfs } from '@vfscale/fs/memfs';

const fs: Fs = createFs(memory({ size: 1 << 20, noexec: true }).task({ uid: 1000 }));
const replaced: typeof nodeFs = fs;
const text: string = replaced.readFileSync('/f', 'utf8');
const stats: nodeFs.Stats = fs.statSync('/f');
const big: bigint = fs.statSync('/f', { bigint: true }).size;
const tree: Tree = attach(1);

async function branches(): Promise<string[]> {
    const pool = await openPool('image', { convert: true });
    const size: number = await pool.run('main', async (of) => (await of.promises.stat('/')).size);
    const { conflicts } = await pool.merge('trial', 'main', { strategy: 'fail' });
    // @ts-expect-error no such strategy
    await pool.merge('trial', 'main', { strategy: 'none' });
    return conflicts.map((conflict) => conflict.beside ?? String(size));
}

const { vol } = memfs({ a: null });
const volume: Volume = Volume.fromJSON({ '/a': 'b' });
vol.fromJSON({ x: Buffer.from('y') });
export { big, branches, stats, text, tree, volume };
