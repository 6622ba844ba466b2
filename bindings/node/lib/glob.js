'use strict';

// `glob`, of Node 22 and later.

const path = require('node:path');
const { pathOf } = require('./arguments');
const { entries } = require('./calls');
const { typeError } = require('./errors');

/** Returns the patterns that a pattern with braces stands for. */
function expanded(pattern) {
    const open = pattern.indexOf('{');
    if (open < 0) return [pattern];
    const parts = [];
    let depth = 0;
    let from = open + 1;
    for (let at = open; at < pattern.length; at++) {
        const sign = pattern[at];
        if (sign === '{') depth++;
        if (sign === '}') depth--;
        if ((sign === ',' && depth === 1) || (sign === '}' && depth === 0)) {
            parts.push(pattern.slice(from, at));
            from = at + 1;
        }
        if (depth === 0) {
            if (parts.length < 2) return [pattern];
            return parts.flatMap((part) =>
                expanded(pattern.slice(0, open) + part + pattern.slice(at + 1)),
            );
        }
    }
    return [pattern];
}

/** Makes the test of a name; dots at the beginning are matched by dots only. */
function matcher(part) {
    if (part === '**') return part;
    let text = /^[*?[]/.test(part) ? '(?!\\.)' : '';
    for (let at = 0; at < part.length; at++) {
        const sign = part[at];
        const end = sign === '[' ? part.indexOf(']', at + 2) : -1;
        if (sign === '*') text += '[^/]*';
        else if (sign === '?') text += '[^/]';
        else if (end > 0) {
            text += `[${part
                .slice(at + 1, end)
                .replace(/^!/, '^')
                .replace(/[\\[]/g, '\\$&')}]`;
            at = end;
        } else text += sign.replace(/[\\^$.|+(){}[\]]/g, '\\$&');
    }
    const test = new RegExp(`^${text}$`, 's');
    return (name) => test.test(name);
}

function excluded(exclude) {
    if (exclude === undefined) return () => false;
    if (typeof exclude === 'function')
        return (at, entry, typed) => exclude(typed ? entry : entry.name);
    if (!Array.isArray(exclude))
        throw typeError('options.exclude', 'of type function or an instance of Array', exclude);
    const patterns = exclude
        .flatMap(expanded)
        .map((it) => path.posix.normalize(it).split('/').map(matcher));
    return (at) => patterns.some((parts) => isWhole(at.split('/'), parts));
}

function isWhole(names, parts) {
    if (parts.length === 0) return names.length === 0;
    const [first, ...rest] = parts;
    if (first !== '**') return names.length > 0 && first(names[0]) && isWhole(names.slice(1), rest);
    return isWhole(names, rest) || (names.length > 0 && isWhole(names.slice(1), parts));
}

function* listed(dir) {
    try {
        return yield entries(dir, { withFileTypes: true });
    } catch (error) {
        if (['ENOENT', 'ENOTDIR', 'EACCES', 'ELOOP'].includes(error.code)) return [];
        throw error;
    }
}

/** Finds the paths below `dir` that match, and adds them to `found`. */
function* walk(dir, above, parts, skip, found, typed) {
    const [first, ...rest] = parts;
    if (first === '**' && rest.length > 0) yield* walk(dir, above, rest, skip, found, typed);
    for (const entry of yield* listed(dir)) {
        const at = above + entry.name;
        const isMatch = first === '**' ? !entry.name.startsWith('.') : first(entry.name);
        if (!isMatch || skip(at, entry, typed)) continue;
        if (rest.length === 0) found.set(at, entry);
        if (!entry.isDirectory() && !entry.isSymbolicLink()) continue;
        const below = `${dir === '/' ? '' : dir}/${entry.name}`;
        if (first === '**' && entry.isDirectory())
            yield* walk(below, `${at}/`, parts, skip, found, typed);
        else if (first !== '**' && rest.length > 0)
            yield* walk(below, `${at}/`, rest, skip, found, typed);
    }
}

/** Finds the paths that match a pattern, or one of several. */
function glob(pattern, options = {}) {
    const patterns = Array.isArray(pattern) ? pattern : [pattern];
    for (const it of patterns) {
        if (typeof it !== 'string') throw typeError('patterns', 'of type string', it);
    }
    const cwd = path.resolve(
        options.cwd === undefined ? process.cwd() : `${pathOf(options.cwd, 'options.cwd')}`,
    );
    const skip = excluded(options.exclude);
    const typed = Boolean(options.withFileTypes);
    return (function* () {
        const found = new Map();
        for (const it of patterns.flatMap(expanded)) {
            const isAbsolute = it.startsWith('/');
            const parts = path.posix
                .normalize(it)
                .split('/')
                .filter((part) => part !== '' && part !== '.');
            let from = isAbsolute ? '/' : cwd;
            while (parts[0] === '..') from = path.join(from, parts.shift());
            yield* walk(from, isAbsolute ? '/' : '', parts.map(matcher), skip, found, typed);
        }
        return typed ? [...found.values()] : [...found.keys()];
    })();
}

module.exports = { glob };
