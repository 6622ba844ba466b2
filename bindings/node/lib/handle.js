'use strict';

// The FileHandle of `fs/promises`.

const { EventEmitter } = require('node:events');
const { createInterface } = require('node:readline');
const { ReadableStream } = require('node:stream/web');
const { calls } = require('./calls');
const { abortError, coded } = require('./errors');
const { optionsOf } = require('./arguments');
const { promised } = require('./request');

const isIterable = (data) =>
    data !== null &&
    typeof data === 'object' &&
    !ArrayBuffer.isView(data) &&
    (Symbol.asyncIterator in data || Symbol.iterator in data);

/** Ends a call if its signal has been aborted. */
function checkSignal(options) {
    if (options?.signal?.aborted) throw abortError(options.signal);
}

class FileHandle extends EventEmitter {
    #task;
    #fs;
    #fd;
    #closing;
    #isLocked = false;

    constructor(task, fs, fd) {
        super();
        this.#task = task;
        this.#fs = fs;
        this.#fd = fd;
    }

    get fd() {
        return this.#fd;
    }

    getAsyncId() {
        return -1;
    }

    async #call(name, ...args) {
        if (this.#fd < 0) {
            const error = new Error('file closed');
            error.code = 'EBADF';
            error.syscall = name;
            throw error;
        }
        return promised(this.#task, calls[name](this.#fd, ...args));
    }

    chmod(mode) {
        return this.#call('fchmod', mode);
    }

    chown(uid, gid) {
        return this.#call('fchown', uid, gid);
    }

    datasync() {
        return this.#call('fdatasync');
    }

    stat(options) {
        return this.#call('fstat', options);
    }

    sync() {
        return this.#call('fsync');
    }

    truncate(length) {
        return this.#call('ftruncate', length);
    }

    utimes(atime, mtime) {
        return this.#call('futimes', atime, mtime);
    }

    close() {
        if (this.#fd < 0) return Promise.resolve();
        if (this.#closing === undefined) {
            this.#closing = this.#call('close').finally(() => {
                this.#fd = -1;
                this.#closing = undefined;
                this.emit('close');
            });
        }
        return this.#closing;
    }

    async read(...args) {
        const [buffer, offset, length, position] = args;
        if (this.#fd < 0) return this.#call('read');
        const request = calls.read(this.#fd, buffer, offset, length, position);
        const bytesRead = await promised(this.#task, request);
        return { bytesRead, buffer: request.extra };
    }

    async readv(buffers, position) {
        return { bytesRead: await this.#call('readv', buffers, position), buffers };
    }

    async write(buffer, offset, length, position) {
        if (ArrayBuffer.isView(buffer) && buffer.byteLength === 0)
            return { bytesWritten: 0, buffer };
        return {
            bytesWritten: await this.#call('write', buffer, offset, length, position),
            buffer,
        };
    }

    async writev(buffers, position) {
        if (Array.isArray(buffers) && buffers.length === 0) return { bytesWritten: 0, buffers };
        return { bytesWritten: await this.#call('writev', buffers, position), buffers };
    }

    async readFile(options) {
        checkSignal(options);
        const data = await this.#call('readFile', options);
        checkSignal(options);
        return data;
    }

    async writeFile(data, options) {
        checkSignal(options);
        if (!isIterable(data)) return this.#call('writeFile', data, options);
        const { encoding = 'utf8' } = optionsOf(options);
        for await (const part of data) {
            checkSignal(options);
            await this.#call('writeFile', part, { encoding });
        }
        return undefined;
    }

    appendFile(data, options) {
        return this.writeFile(data, options);
    }

    createReadStream(options) {
        return new this.#fs.ReadStream(undefined, {
            highWaterMark: 64 * 1024,
            ...options,
            fd: this,
        });
    }

    createWriteStream(options) {
        return new this.#fs.WriteStream(undefined, { ...options, fd: this });
    }

    readLines(options) {
        return createInterface({
            input: this.createReadStream({ autoClose: true, ...options }),
            crlfDelay: Infinity,
        });
    }

    readableWebStream() {
        const invalid = (what) => coded(Error, 'ERR_INVALID_STATE', `Invalid state: ${what}`);
        if (this.#fd < 0) throw invalid('The FileHandle is closed');
        if (this.#isLocked) throw invalid('The FileHandle is locked');
        this.#isLocked = true;
        const read = (view) => this.read(view, 0, view.byteLength);
        return new ReadableStream({
            type: 'bytes',
            autoAllocateChunkSize: 16384,
            async pull(controller) {
                const { byobRequest } = controller;
                const { bytesRead } = await read(byobRequest.view);
                if (bytesRead === 0) controller.close();
                byobRequest.respond(bytesRead);
            },
        });
    }
}

if (Symbol.asyncDispose !== undefined) {
    Object.defineProperty(FileHandle.prototype, Symbol.asyncDispose, {
        value() {
            return this.close();
        },
        configurable: true,
        writable: true,
    });
}

module.exports = { FileHandle, checkSignal, isIterable };
