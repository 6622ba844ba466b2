"""The calls of this process on files, led to a tree: `patched`.

`os`, the function `open`, and so `os.path`, `pathlib`, `shutil`, `glob`, `tempfile` and `io`, which
are made of them, are those of a task while a test runs.
"""

import builtins
import contextlib
import errno
import io
import os
import sys
import tempfile
import threading
import types
import warnings

from .file import File, wrap
from .task import parsed_mode
from .tree import memory

#: Descriptors of the task are told to callers as numbers from here on, which no process has.
BASE = 1 << 30
#: Devices are the host's: a tree has no drivers.
DEVICES = frozenset("/dev/" + name for name in "null zero full random urandom tty".split())
#: Modules that keep the functions they have: those of the tests' own machinery.
KEPT = frozenset(
    "_io _pytest builtins importlib io linecache os pluggy posix py pytest tokenize vfscale".split()
)

#: The task of the calls, while they are led to one.
_task = None
#: Functions of the host and of the task, by `id` of the host's; each also by its place.
_calls: dict = {}
_places: list = []
#: Names of modules, and defaults of arguments, that are such a function: where, name, and both.
_found: list = []
_scanned: dict = {}
_lock = threading.Lock()


def _is_device(path):
    return isinstance(path, str) and path in DEVICES


class _Raw(File):
    """A raw file on a descriptor of a task, as `io.FileIO` is on one of the process."""

    name = None

    def __new__(cls, task, fd, bits, name, closefd=True):
        return super().__new__(cls, task, fd, bits)

    def __init__(self, task, fd, bits, name, closefd=True):
        self._task, self._fd, self.closefd, self.name = task, fd, closefd, name

    def __del__(self):
        self._dealloc_warn(self)
        self.close()

    def _dealloc_warn(self, source):
        # A buffer closes its raw file before that is gone, and calls this then.
        if self.closefd and not self.closed:
            warnings.warn(f"unclosed file {source!r}", ResourceWarning, stacklevel=2, source=source)

    def close(self):
        if not self.closed:
            super().close()
            if self.closefd:
                self._task.close(self._fd)

    def fileno(self):
        self._checkClosed()
        return self._fd + BASE


class _Entry:
    """An entry of a directory, which functions of `os` take as a path."""

    __slots__ = ("_entry",)

    def __init__(self, entry):
        self._entry = entry

    def __getattr__(self, name):
        return getattr(self._entry, name)

    def __fspath__(self):
        return self._entry.path

    def __repr__(self):
        return repr(self._entry)


class _Entries:
    """The result of `os.scandir`."""

    def __init__(self, entries):
        self._entries = entries

    def __iter__(self):
        return self

    def __next__(self):
        return _Entry(next(self._entries))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        self._entries.close()


def _open(
    file,
    mode="r",
    buffering=-1,
    encoding=None,
    errors=None,
    newline=None,
    closefd=True,
    opener=None,
):
    __tracebackhide__ = True
    task = _task
    is_host = file < BASE if isinstance(file, int) else _is_device(file)
    if task is None or is_host:
        return _host["open"](
            file, mode, buffering, encoding, errors, newline, closefd, opener
        )
    bits, binary = parsed_mode(mode)
    if isinstance(file, int):
        fd = file - BASE
    elif not closefd:
        raise ValueError("Cannot use closefd=False with file name")
    elif opener is not None:
        fd = opener(file, bits | os.O_CLOEXEC)
        if fd < 0:
            raise ValueError(f"opener returned {fd}")
        if fd < BASE:
            return _host["open"](fd, mode, buffering, encoding, errors, newline)
        fd -= BASE
    else:
        fd = task.open_fd(file, bits | os.O_CLOEXEC, 0o666)
    if not bits & os.O_ACCMODE and task.isdir(fd):
        if closefd:
            task.close(fd)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
    raw = _Raw(task, fd, bits, file, closefd)
    try:
        if bits & os.O_APPEND and raw.seekable():
            raw.seek(0, os.SEEK_END)
        return wrap(raw, mode, bits, binary, buffering, encoding, errors, newline)
    except BaseException:
        raw.close()
        raise


_host = {"open": builtins.open}

#: Functions of `os` without a path or descriptor.
_PLAIN = (
    "getcwd getcwdb getegid geteuid getgid getgroups getuid sync umask"
).split()
#: Functions whose first argument is a path or a descriptor.
_FIRST = (
    "access chdir chmod chown chroot close fchdir fchmod fchown fdatasync fstat fstatvfs fsync "
    "ftruncate getxattr lchown listdir listxattr lockf lseek lstat mkdir mkfifo mknod "
    "posix_fallocate pread preadv pwrite pwritev read readlink readv remove removexattr rmdir "
    "scandir setxattr stat statvfs truncate unlink utime write writev"
).split()
#: Functions with two paths.
_PAIRS = "link rename replace symlink".split()
#: Functions that return descriptors, or take two.
_DESCRIPTORS = "copy_file_range dup dup2 isatty open sendfile".split()
#: Arguments that are descriptors of directories.
_DIRS = frozenset(("dir_fd", "src_dir_fd", "dst_dir_fd"))


def _of_dirs(kwargs):
    """Returns arguments with the task's numbers of directories; `None` if one is the host's."""
    for name in kwargs.keys() & _DIRS:
        fd = kwargs[name]
        if fd is not None:
            if fd < BASE:
                return None
            kwargs = {**kwargs, name: fd - BASE}
    return kwargs


def _plain(name, host):
    def call(*args):
        return host(*args) if _task is None else getattr(_task, name)(*args)

    return call


def _first(name, host):
    def call(*args, **kwargs):
        __tracebackhide__ = True
        task = _task
        translated = _of_dirs(kwargs) if kwargs else kwargs
        if task is None or translated is None:
            return host(*args, **kwargs)
        if args:
            first = args[0]
            if isinstance(first, int):
                if first < BASE:
                    return host(*args, **kwargs)
                args = (first - BASE, *args[1:])
            elif _is_device(first):
                return host(*args, **kwargs)
        else:
            for key in ("path", "fd"):
                given = translated.get(key)
                if isinstance(given, int):
                    if given < BASE:
                        return host(*args, **kwargs)
                    translated = {**translated, key: given - BASE}
        if name == "chmod" and not translated.get("follow_symlinks", True):
            if host not in os.supports_follow_symlinks:
                raise NotImplementedError("chmod: follow_symlinks unavailable on this platform")
        result = getattr(task, name)(*args, **translated)
        return _Entries(result) if name == "scandir" else result

    return call


def _pair(name, host):
    def call(*args, **kwargs):
        __tracebackhide__ = True
        task = _task
        translated = _of_dirs(kwargs) if kwargs else kwargs
        if task is None or translated is None:
            return host(*args, **kwargs)
        return getattr(task, name)(*args, **translated)

    return call


def _os_open(path, flags, mode=0o777, *, dir_fd=None):
    if _task is None or _is_device(path) or (dir_fd is not None and dir_fd < BASE):
        return _host["os.open"](path, flags, mode, dir_fd=dir_fd)
    at = None if dir_fd is None else dir_fd - BASE
    return _task.open_fd(path, flags, mode, dir_fd=at) + BASE


def _dup(fd):
    return _host["os.dup"](fd) if _task is None or fd < BASE else _task.dup(fd - BASE) + BASE


def _dup2(fd, fd2, inheritable=True):
    if _task is None or fd < BASE:
        return _host["os.dup2"](fd, fd2, inheritable)
    if fd2 < BASE:
        raise OSError(errno.EBADF, "a file of the tree can't be a descriptor of the process")
    return _task.dup2(fd - BASE, fd2 - BASE, inheritable) + BASE


def _copy_file_range(src, dst, *args, **kwargs):
    if _task is None or min(src, dst) < BASE:
        return _host["os.copy_file_range"](src, dst, *args, **kwargs)
    return _task.copy_file_range(src - BASE, dst - BASE, *args, **kwargs)


def _sendfile(out_fd, in_fd, offset, count):
    if _task is None or max(out_fd, in_fd) < BASE:
        return _host["os.sendfile"](out_fd, in_fd, offset, count)
    data = os.read(in_fd, count) if offset is None else os.pread(in_fd, count, offset)
    return os.write(out_fd, data)


def _isatty(fd):
    return _host["os.isatty"](fd) if _task is None or fd < BASE else False


def _prepare():
    """Makes the functions, once."""
    own = {"open": _os_open, "dup": _dup, "dup2": _dup2, "isatty": _isatty}
    own |= {"copy_file_range": _copy_file_range, "sendfile": _sendfile}
    makers = [(_PLAIN, _plain), (_FIRST, _first), (_PAIRS, _pair)]
    made = {name: make(name, getattr(os, name)) for names, make in makers for name in names}
    for name, call in {**made, **{name: own[name] for name in _DESCRIPTORS}}.items():
        host = getattr(os, name)
        _host[f"os.{name}"] = host
        call.__name__ = call.__qualname__ = name
        call.__doc__ = host.__doc__
        _places.append((os, name, host, call))
        _calls[id(host)] = call
        for supported in (
            os.supports_dir_fd,
            os.supports_effective_ids,
            os.supports_fd,
            os.supports_follow_symlinks,
        ):
            if host in supported:
                supported.add(call)
    for module in (builtins, io):
        _places.append((module, "open", _host["open"], _open))
    _calls[id(_host["open"])] = _open


def _scan():
    """Finds the names by which modules have imported such functions."""
    for name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", None)
        if names is None or _scanned.get(name) is module or name.partition(".")[0] in KEPT:
            continue
        _scanned[name] = module
        for key, value in list(names.items()):
            call = _calls.get(id(value))
            if call is not None:
                _found.append((module, key, value, call))
            elif getattr(value, "__module__", None) == name:
                functions = vars(value).values() if isinstance(value, type) else (value,)
                for function in functions:
                    _scan_defaults(function)


def _scan_defaults(function):
    defaults = isinstance(function, types.FunctionType) and function.__defaults__
    if defaults and any(id(value) in _calls for value in defaults):
        calls = tuple(_calls.get(id(value), value) for value in defaults)
        _found.append((function, "__defaults__", defaults, calls))


def _switch(task):
    """Leads calls to a task, or back to the host."""
    global _task
    if not _places:
        _prepare()
    if task is not None:
        _scan()
    _task = task
    for module, name, host, call in (*_places, *_found):
        wanted, other = (host, call) if task is None else (call, host)
        # What a test has put there itself stays.
        if getattr(module, name, None) is other:
            setattr(module, name, wanted)


def new_task(size=1 << 30):
    """Makes a tree in memory with a directory for temporary files, and a task of the user of this
    process, who owns its root."""
    tree = memory(size=size)
    uid, gid = os.geteuid(), os.getegid()
    with tree.task() as root:
        temporary = tempfile.gettempdir()
        root.makedirs(temporary, exist_ok=True)
        root.chmod(temporary, 0o1777)
        root.chown("/", uid, gid)
    return tree.task(uid=uid, gid=gid, groups=os.getgroups())


@contextlib.contextmanager
def patched(task):
    """Leads all calls of this process on files to a task until the end of the `with` statement:
    of `os`, `open`, and what is made of them. They are not led there one after another by several
    tasks: within another `patched`, raises `RuntimeError`.

    >>> from pathlib import Path
    >>> with vfscale.patch.patched(task):
    ...     Path("/greeting").write_text("hello")
    5
    >>> task.read_text("/greeting")
    'hello'
    """
    if not _lock.acquire(blocking=False):
        raise RuntimeError("the calls of this process are led to a tree already")
    try:
        _switch(task)
        try:
            yield task
        finally:
            _switch(None)
    finally:
        _lock.release()


@contextlib.contextmanager
def paused():
    """Leads calls to the host until the end of the `with` statement, inside a `patched`."""
    task = _task
    if task is None:
        yield
        return
    _switch(None)
    try:
        yield
    finally:
        _switch(task)
