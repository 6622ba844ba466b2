"""Open files."""

import io
import os

from ._vfscale import File

io.RawIOBase.register(File)

_ACCESS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "a": os.O_WRONLY, "x": os.O_WRONLY}
_MAKES = {
    "r": 0,
    "w": os.O_CREAT | os.O_TRUNC,
    "a": os.O_CREAT | os.O_APPEND,
    "x": os.O_CREAT | os.O_EXCL,
}


def parse_mode(mode):
    """Returns the flags of a mode of `open`, and whether it is binary."""
    if not isinstance(mode, str):
        raise TypeError(f"open() argument 'mode' must be str, not {type(mode).__name__}")
    letters = set(mode)
    if letters - set("axrwb+t") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    kinds = letters & set("axrw")
    if "b" in letters and "t" in letters:
        raise ValueError("can't have text and binary mode at once")
    if len(kinds) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    kind = kinds.pop()
    access = os.O_RDWR if "+" in letters else _ACCESS[kind]
    return access | _MAKES[kind], "b" in letters


def wrap(raw, mode, flags, binary, buffering, encoding, errors, newline):
    """Returns a raw file with the buffer and the encoding that `open` promises."""
    if binary:
        if encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        if errors is not None:
            raise ValueError("binary mode doesn't take an errors argument")
        if newline is not None:
            raise ValueError("binary mode doesn't take a newline argument")
        if buffering == 0:
            return raw
    elif buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    size = io.DEFAULT_BUFFER_SIZE if buffering in (-1, 1) else buffering
    if size < 0:
        raise ValueError("invalid buffering size")
    access = flags & os.O_ACCMODE
    if access == os.O_RDONLY:
        buffer = io.BufferedReader(raw, size)
    elif access == os.O_WRONLY:
        buffer = io.BufferedWriter(raw, size)
    else:
        buffer = io.BufferedRandom(raw, size)
    if binary:
        return buffer
    text = io.TextIOWrapper(buffer, encoding, errors, newline, buffering == 1)
    text.mode = mode
    return text
