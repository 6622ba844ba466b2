/** The calls of `fs` on a tree. Paths, descriptors and watchers are those of the tree. */
export type Fs = typeof import('fs') & {
    /** Makes a fifo. */
    mkfifoSync(path: import('fs').PathLike, mode?: number): void;
};

export interface Credentials {
    /** 0 by default, who has every privilege. */
    uid?: number;
    gid?: number;
    groups?: Iterable<number>;
    /** The bits of capabilities(7); those of another user than 0 are none. */
    capabilities?: number;
}

export interface TaskOptions extends Credentials {
    /** A directory that the task can't leave. */
    root?: string | Buffer | URL;
}

export interface TransferOptions {
    keepOwners?: boolean;
    xattrs?: boolean;
    devices?: boolean;
    /** Symbolic links that lead out of the copied tree are copied, left out, or an error. */
    links?: 'keep' | 'skip' | 'refuse';
}

export interface Transferred {
    files: number;
    bytes: number;
    skipped: number;
}

/** A process, to a file system: directories, umask, credentials, descriptors. */
export class Task {
    private constructor();
    /** The object that replaces `fs`, always the same one. */
    readonly fs: Fs;
    /** Makes a task with the same directories, credentials and descriptors. */
    fork(): Task;
    /** Closes the descriptors of the task; its later calls fail with EBADF. */
    end(): void;
    umask(mask?: number): number;
    cwd(): string;
    chdir(path: string | Buffer | URL): void;
    setCredentials(credentials: Credentials): void;
    /** Copies a file or directory of the host to a new name in the tree. */
    importTree(from: string | URL, to: string, options?: TransferOptions): Promise<Transferred>;
    /** Copies a file or directory of the tree to a new name on the host. */
    exportTree(from: string, to: string | URL, options?: TransferOptions): Promise<Transferred>;
}

/** A tree of files, in memory or on a volume. */
export class Tree {
    private constructor();
    /** The number by which `attach` finds the tree, also in a worker. */
    readonly id: number;
    /** The path of the image, as it was passed. */
    readonly path: string | Buffer | URL | undefined;
    task(options?: TaskOptions): Task;
    /** Makes all changes so far durable. */
    sync(): Promise<void>;
    syncSync(): void;
    /**
     * Makes all changes durable, and ends the tasks of the tree, in all workers. Rejects with EBUSY
     * while files are open; the tree stays as it is then. Closing it again does nothing.
     */
    close(): Promise<void>;
    closeSync(): void;
}

type Option = string | number | boolean | undefined;

/** Options with the names of `vfscale mount -o`, in camelCase. */
export interface MemoryOptions {
    /** The most bytes of all files; half of the machine's memory by default. */
    size?: number | string;
    inodes?: number;
    /** Permissions and owner of the root directory. */
    mode?: number;
    uid?: number;
    gid?: number;
    [name: string]: Option;
}

export interface BranchOptions {
    readOnly?: boolean;
    /** Seconds after which changes are durable without a sync. */
    syncInterval?: number;
    [name: string]: Option;
}

export interface VolumeOptions extends BranchOptions {
    /** Makes an image of so many bytes if there is none. */
    create?: number;
}

/** Makes a tree in memory. It lives until it is closed, or nobody holds it or a task of it. */
export function memory(options?: MemoryOptions): Tree;
/** Opens the volume in an image file or on a device. */
export function openVolume(path: string | Buffer | URL, options?: VolumeOptions): Promise<Tree>;
export function openVolumeSync(path: string | Buffer | URL, options?: VolumeOptions): Tree;
/** Finds a tree of this process by its number. Throws an error with EBADF after it was closed. */
export function attach(id: number): Tree;
/** Returns `task.fs`; without a task, that of a new tree in memory. */
export function createFs(task?: Task): Fs;
/** The version of the library. */
export const version: string;

export interface Branch {
    name: string;
    /** Of its volume, in bytes. */
    size: number;
    /** Bytes that only this branch has, as of its last checkpoint. */
    own: number;
    readOnly: boolean;
    depth: number;
    /** Bytes that it may have for itself. */
    limit: number | null;
}

export interface Difference {
    path: string;
    kind: 'added' | 'removed' | 'replaced' | 'moved' | 'changed' | 'other';
    movedFrom: string | null;
    parts: Array<'content' | 'attributes' | 'xattrs'>;
}

export interface Conflict {
    path: string;
    kind: 'content' | 'attributes' | 'xattrs' | 'removed' | 'renamed' | 'name' | 'loop' | 'other';
    /** The path of what the other branch has, if it stands beside. */
    beside: string | null;
}

export interface Merged {
    added: number;
    removed: number;
    moved: number;
    changed: number;
    /** Files that both have changed, and that were merged by lines. */
    texts: number;
    done: boolean;
    conflicts: Conflict[];
}

export interface Applied {
    isLayer: boolean;
    written: number;
    removed: number;
    untold: number;
    done: boolean;
}

export interface LogEntry {
    node: number;
    kind: 'now' | 'fork' | 'checkpoint' | 'merge' | 'merged' | 'adoption' | 'other';
    time: Date | null;
    text: string;
    parent: number | null;
    merges: Array<{ node: number; branch: string }>;
    branches: string[];
}

export interface MergeOptions {
    /** Decides conflicts; with `both`, the default, the other file stands beside. */
    strategy?: 'both' | 'ours' | 'theirs' | 'fail';
    dryRun?: boolean;
}

/** The branches of an image. One process has an image open at a time. */
export class Pool {
    private constructor();
    readonly path: string | Buffer | URL;
    fork(
        parent: string,
        name: string,
        options?: { readOnly?: boolean; temporary?: boolean; asSynced?: boolean },
    ): Promise<void>;
    /** Opens the volume in a branch. A branch that can be written has one user. */
    open(name?: string, options?: BranchOptions): Promise<Tree>;
    /** Opens a branch, calls `work` with its `fs` and its tree, and closes it. */
    run<T>(
        name: string,
        work: (fs: Fs, tree: Tree) => T | Promise<T>,
        options?: BranchOptions & TaskOptions,
    ): Promise<T>;
    /** Lists what has to be done to `a` to get `b`, by path. */
    diff(a: string, b: string): Promise<Difference[]>;
    /** Makes in `into` what `branch` has changed since both had the same contents. */
    merge(branch: string, into?: string, options?: MergeOptions): Promise<Merged>;
    /** Gives `branch` what `onto` has, and in it what `branch` has changed. */
    rebase(branch: string, onto?: string, options?: MergeOptions): Promise<Merged>;
    /** Returns a patch that makes `b` of `a`. */
    patch(a: string, b: string): Promise<Buffer>;
    /** Writes a layer (tar) that makes `b` of `a` to a file; returns the number of files in it. */
    layer(a: string, b: string, out: string): Promise<number>;
    /** Applies a patch or a layer: its bytes, or the path of a file. */
    apply(
        branch: string,
        source: string | NodeJS.ArrayBufferView,
        options?: { dryRun?: boolean },
    ): Promise<Applied>;
    /** Gives the parent, which has not changed since, the contents of the child. */
    adopt(parent: string, child: string): Promise<void>;
    /** Makes a read-only branch of this moment, and returns its name. */
    checkpoint(branch?: string, text?: string): Promise<string>;
    /** Gives a branch an earlier state back; returns the branch that has what it had, if any. */
    rollback(name: string, to?: string): Promise<string | null>;
    /** Lists the history of a branch, the last state first. */
    log(branch?: string): Promise<LogEntry[]>;
    branches(): Promise<Branch[]>;
    usage(): Promise<{ size: number; free: number }>;
    rename(name: string, to: string): Promise<void>;
    /** Limits the bytes that a branch may have for itself (EDQUOT, which Node has no name for); `null` ends that. */
    setLimit(name: string, limit: number | null): Promise<void>;
    delete(name: string): Promise<void>;
    /** Releases the image. Rejects with EBUSY while a branch is open. */
    close(): Promise<void>;
}

/** Opens the branches of an image; with `convert`, a volume becomes one. */
export function openPool(
    path: string | Buffer | URL,
    options?: { readOnly?: boolean; convert?: boolean },
): Promise<Pool>;
