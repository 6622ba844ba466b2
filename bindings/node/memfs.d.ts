import type { Fs, MemoryOptions } from './index';

export type Content = string | Uint8Array | null;
export interface DirectoryJSON {
    [path: string]: Content;
}
export interface NestedDirectoryJSON {
    [name: string]: Content | NestedDirectoryJSON;
}

interface VolumeMembers {
    fromJSON(json: DirectoryJSON, cwd?: string): void;
    fromNestedJSON(json: NestedDirectoryJSON, cwd?: string): void;
    mountSync(at: string, json: DirectoryJSON): void;
    toJSON(
        paths?: string | URL | Array<string | URL>,
        json?: DirectoryJSON,
        isRelative?: boolean,
        asBuffer?: boolean,
    ): DirectoryJSON;
    reset(): void;
}

export type Volume = Fs & VolumeMembers;
export const Volume: {
    new (options?: MemoryOptions): Volume;
    fromJSON(json: DirectoryJSON, cwd?: string, options?: MemoryOptions): Volume;
    fromNestedJSON(json: NestedDirectoryJSON, cwd?: string, options?: MemoryOptions): Volume;
};

export const vol: Volume;
export const fs: Fs;
export function createFsFromVolume(volume: Volume): Fs;
export function memfs(json?: NestedDirectoryJSON, cwd?: string): { fs: Fs; vol: Volume };
