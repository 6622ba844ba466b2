'use strict';

// `watch` by the events of a tree, `watchFile` by looking.

const { EventEmitter } = require('node:events');
const path = require('node:path');
const native = require('./native');
const { callbackOf, encodingOf, optionsOf, pathOf } = require('./arguments');
const { abortError, systemError } = require('./errors');
const { now } = require('./request');
const { calls } = require('./calls');
const { Stats } = require('./stats');

// VFSCALE_EVENT_*.
const [CREATED, REMOVED, MODIFIED, ATTRIBUTES, , RENAMED, EXCHANGED, MOVED_IN, MOVED_OUT] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9,
];

class FSWatcher extends EventEmitter {
    #watcher;
    #encoding;

    start(task, file, options) {
        const isDirectory = now(task, calls.stat(file)).isDirectory();
        const own = path.basename(`${file}`);
        this.#encoding = options.encoding;
        // Only direct entries, unless it is recursive.
        const isTold = (name) => options.recursive || !name.includes('/');
        const tell = (event, name) => {
            if (this.#watcher !== undefined && isTold(name))
                this.#tell(event, isDirectory ? name : own);
        };
        const found = native.watch(
            task,
            `${pathOf(file)}`,
            options.recursive ? 1 : 0,
            (change, name, other) => {
                if (change === MODIFIED || change === ATTRIBUTES) {
                    tell('change', name);
                } else if (change === RENAMED || change === EXCHANGED) {
                    tell('rename', other);
                    tell('rename', name);
                } else if ([CREATED, REMOVED, MOVED_IN, MOVED_OUT].includes(change)) {
                    tell('rename', name);
                }
            },
        );
        if (typeof found === 'number') throw systemError(found, 'watch', `${file}`);
        this.#watcher = found;
        if (options.persistent === false) this.unref();
    }

    #tell(event, name) {
        const encoding = this.#encoding;
        this.emit(
            'change',
            event,
            encoding && !/^utf-?8$/i.test(encoding)
                ? encoding === 'buffer'
                    ? Buffer.from(name)
                    : Buffer.from(name).toString(encoding)
                : name,
        );
    }

    ref() {
        if (this.#watcher !== undefined) native.watchKeep(this.#watcher, true);
        return this;
    }

    unref() {
        if (this.#watcher !== undefined) native.watchKeep(this.#watcher, false);
        return this;
    }

    close() {
        if (this.#watcher === undefined) return;
        native.watchStop(this.#watcher);
        this.#watcher = undefined;
        process.nextTick(() => this.emit('close'));
    }
}

/** Watches a file or directory. */
function watch(task, file, options, listener) {
    if (typeof options === 'function') listener = options;
    options = optionsOf(options);
    encodingOf(options.encoding === 'buffer' ? undefined : options.encoding);
    pathOf(file, 'filename');
    if (listener !== undefined) callbackOf(listener);
    const watcher = new FSWatcher();
    if (options.signal?.aborted) {
        process.nextTick(() => watcher.close());
        return watcher;
    }
    watcher.start(task, file, options);
    options.signal?.addEventListener('abort', () => watcher.close(), { once: true });
    if (listener !== undefined) watcher.on('change', listener);
    return watcher;
}

/** Watches a file or directory until the loop ends. */
async function* watchEvents(task, file, options = {}) {
    if (options.signal?.aborted) throw abortError(options.signal);
    const events = [];
    let wake = () => {};
    const watcher = watch(task, file, options, (eventType, filename) => {
        events.push({ eventType, filename });
        wake();
    });
    watcher.on('close', () => wake());
    try {
        for (;;) {
            while (events.length > 0) yield events.shift();
            if (options.signal?.aborted) throw abortError(options.signal);
            await new Promise((resolve) => {
                wake = resolve;
            });
        }
    } finally {
        watcher.close();
    }
}

class StatWatcher extends EventEmitter {
    #timer;

    start(task, file, { interval = 5007, persistent = true, bigint = false }) {
        const look = () => {
            try {
                return now(task, calls.stat(file, { bigint }));
            } catch {
                return new Stats(...new Array(14).fill(0));
            }
        };
        let before = look();
        if (before.ino === 0) process.nextTick(() => this.emit('change', before, before));
        this.#timer = setInterval(() => {
            const after = look();
            if (
                after.mtimeMs !== before.mtimeMs ||
                after.ctimeMs !== before.ctimeMs ||
                after.size !== before.size ||
                after.ino !== before.ino
            ) {
                const last = before;
                before = after;
                this.emit('change', after, last);
            }
        }, interval);
        if (!persistent) this.#timer.unref();
    }

    ref() {
        this.#timer.ref();
        return this;
    }

    unref() {
        this.#timer.unref();
        return this;
    }

    stop() {
        clearInterval(this.#timer);
        this.emit('stop');
    }
}

/** Makes `watchFile` and `unwatchFile` of a tree. */
function fileWatchers(task) {
    const watchers = new Map();
    return {
        watchFile(file, options, listener) {
            if (typeof options === 'function') [options, listener] = [{}, options];
            callbackOf(listener);
            const key = path.resolve(`${pathOf(file, 'filename')}`);
            let watcher = watchers.get(key);
            if (watcher === undefined) {
                watcher = new StatWatcher();
                watchers.set(key, watcher);
                watcher.start(task, file, options ?? {});
            }
            watcher.on('change', listener);
            return watcher;
        },
        unwatchFile(file, listener) {
            const key = path.resolve(`${pathOf(file, 'filename')}`);
            const watcher = watchers.get(key);
            if (watcher === undefined) return;
            if (typeof listener === 'function') watcher.removeListener('change', listener);
            else watcher.removeAllListeners('change');
            if (watcher.listenerCount('change') === 0) {
                watcher.stop();
                watchers.delete(key);
            }
        },
    };
}

module.exports = { FSWatcher, StatWatcher, fileWatchers, watch, watchEvents };
