'use strict';

// Errors as Node makes them.

const os = require('node:os');
const util = require('node:util');

const known = util.getSystemErrorMap();
// Numbers that libuv does not know.
const others = new Map(
    [
        ['EUCLEAN', 117, 'structure needs cleaning'],
        ['ESHUTDOWN', 108, 'cannot send after shutdown'],
        ['ENOTRECOVERABLE', 131, 'state not recoverable'],
        ['ENOLCK', 37, 'no locks available'],
        ['ESTALE', 116, 'stale file handle'],
    ].map(([code, number, text]) => [-number, [code, text]]),
);

/** Returns the code and the text of a negative error number. */
function described(errno) {
    return (
        known.get(errno) ?? others.get(errno) ?? [`Unknown system error ${errno}`, 'unknown error']
    );
}

function text(path) {
    return typeof path === 'string' ? path : path instanceof URL ? path.pathname : `${path}`;
}

/** Makes the error of a system call; `path` and `dest` are those of the caller. */
function systemError(errno, syscall, path, dest) {
    const [code, what] = described(errno);
    let message = `${code}: ${what}, ${syscall}`;
    if (path !== undefined) message += ` '${text(path)}'`;
    if (dest !== undefined) message += ` -> '${text(dest)}'`;
    const error = new Error(message);
    error.errno = errno;
    error.code = code;
    error.syscall = syscall;
    if (path !== undefined) error.path = text(path);
    if (dest !== undefined) error.dest = text(dest);
    return error;
}

/** Makes the error of a call on a tree or pool, with the cause and the remedy. */
function treeError(failure, syscall, path) {
    const [code] = described(failure.errno);
    const error = new Error(`${code}: ${failure.message}`);
    error.errno = failure.errno;
    error.code = code;
    error.syscall = syscall;
    if (path !== undefined) error.path = text(path);
    return error;
}

/** Makes an error with a code in its text, as Node's own are. */
function coded(Base, code, message) {
    const error = new Base(message);
    error.name = `${error.name} [${code}]`;
    error.stack; // Made now, with the code in its first line.
    delete error.name;
    Object.defineProperty(error, 'toString', {
        value() {
            return `${this.name} [${code}]: ${this.message}`;
        },
        configurable: true,
        writable: true,
    });
    error.code = code;
    return error;
}

function received(value) {
    if (value == null) return `${value}`;
    if (typeof value === 'function') return value.name ? `function ${value.name}` : 'function ';
    if (typeof value === 'object') {
        if (value.constructor?.name) return `an instance of ${value.constructor.name}`;
        return util.inspect(value, { depth: -1 });
    }
    let shown = util.inspect(value, { colors: false });
    if (shown.length > 28) shown = `${shown.slice(0, 25)}...`;
    return `type ${typeof value} (${shown})`;
}

/** Makes the error of an argument of a wrong type: `expected` is what follows `must be`. */
function typeError(name, expected, value) {
    const what = name.includes('.') ? 'property' : 'argument';
    return coded(
        TypeError,
        'ERR_INVALID_ARG_TYPE',
        `The "${name}" ${what} must be ${expected}. Received ${received(value)}`,
    );
}

function separated(value) {
    return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, '_');
}

/** Makes the error of a number out of range: `expected` is what follows `It must be`. */
function rangeError(name, expected, value) {
    let shown = util.inspect(value);
    if (Number.isInteger(value) && Math.abs(value) > 2 ** 32) shown = separated(value);
    if (typeof value === 'bigint') {
        shown =
            (value > 2n ** 32n || value < -(2n ** 32n) ? separated(value) : String(value)) + 'n';
    }
    return coded(
        RangeError,
        'ERR_OUT_OF_RANGE',
        `The value of "${name}" is out of range. It must be ${expected}. Received ${shown}`,
    );
}

/** Makes the error of a value that an argument can't have. */
function valueError(name, value, reason = 'is invalid') {
    let shown = util.inspect(value);
    if (shown.length > 128) shown = `${shown.slice(0, 128)}...`;
    const what = name.includes('.') ? 'property' : 'argument';
    return coded(
        TypeError,
        'ERR_INVALID_ARG_VALUE',
        `The ${what} '${name}' ${reason}. Received ${shown}`,
    );
}

/** Makes an error of `fs` itself, such as ERR_FS_EISDIR. */
function fsError(code, what, context) {
    let message = `${what}: ${context.syscall} returned ${context.code} (${context.message})`;
    if (context.path !== undefined) message += ` ${context.path}`;
    if (context.dest !== undefined) message += ` => ${context.dest}`;
    const error = coded(Error, code, message);
    // As the errors of Node's own, which are of the class SystemError.
    Object.defineProperty(error, 'name', {
        value: 'SystemError',
        configurable: true,
        writable: true,
        enumerable: false,
    });
    error.info = context;
    error.errno = context.errno;
    error.syscall = context.syscall;
    if (context.path !== undefined) error.path = context.path;
    if (context.dest !== undefined) error.dest = context.dest;
    return error;
}

function abortError(signal) {
    const error = new Error('The operation was aborted', { cause: signal?.reason });
    error.name = 'AbortError';
    error.code = 'ABORT_ERR';
    return error;
}

const errno = Object.fromEntries(
    Object.entries(os.constants.errno).map(([code, number]) => [code, -number]),
);

module.exports = {
    abortError,
    coded,
    described,
    errno,
    fsError,
    rangeError,
    systemError,
    treeError,
    typeError,
    valueError,
};
