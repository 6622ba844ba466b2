"""File systems of fsspec: `vfscale` in memory, and `vfscale+volume` in a volume.

>>> import fsspec
>>> fs = fsspec.filesystem("vfscale", tree="example")
>>> fs.pipe("/data/a.txt", b"hello")
>>> fs.find("/")
['/data/a.txt']
>>> with fsspec.open("vfscale://data/a.txt", tree="example") as file:
...     file.read()
b'hello'
"""

import asyncio
import atexit
import datetime
import errno
import io
import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem
from fsspec.utils import isfilelike, stringify_path, tokenize

from .file import File
from .task import Task, parsed_mode
from .tree import memory, open_volume

# The trees and volumes of this process, by name and by path.
_TREES: dict = {}
_VOLUMES: dict = {}
_LOCK = threading.Lock()

_BUFFER = io.DEFAULT_BUFFER_SIZE
_COPY_STEP = 1 << 20


@atexit.register
def _close_volumes():
    """Closes the volumes that are open when the interpreter ends."""
    with _LOCK:
        volumes = list(_VOLUMES.values())
        _VOLUMES.clear()
    for volume in volumes:
        try:
            volume.close()
        except OSError:
            # A file is open. The volume is durable nevertheless, and recovered when it is opened.
            volume.sync()


class _Threads:
    """Threads that make calls of coroutines. A call goes on when its coroutine is cancelled."""

    def __init__(self):
        self._executor, self._count, self._changed = None, 0, threading.Condition()

    def submit(self, call, *args, **kwargs):
        """Makes a call in a thread; returns its future."""
        with self._changed:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(thread_name_prefix="vfscale")
            future = self._executor.submit(call, *args, **kwargs)
            self._count += 1
        future.add_done_callback(self._end)
        return future

    def _end(self, _):
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait(self, seconds):
        """Waits until no call is made, for so long at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._count == 0, seconds)


_THREADS = _Threads()


class _File:
    """A file with the attributes that libraries read of any file of fsspec: `fs`, `path`, `mode`,
    `blocksize`, `size`."""

    # Makes the attribute writable, which that of the buffer is not.
    mode = "rb"

    def opened(self, fs, path, mode, blocksize):
        """Tells the file what it is; returns the file."""
        self.fs, self.path, self.mode, self.blocksize = fs, path, mode, blocksize
        return self

    @property
    def size(self):
        """The size in bytes of what was written so far, without what is in the buffer."""
        return self.raw.stat().st_size


class _Reader(_File, io.BufferedReader):
    """A file to read."""


class _Writer(_File, io.BufferedWriter):
    """A file to write."""


class _Random(_File, io.BufferedRandom):
    """A file to read and write."""


class _Pending:
    """A file of a transaction: it has another name until the transaction commits."""

    def promise(self, name, exclusive):
        """Tells the file its other name; returns the file."""
        self._name, self._exclusive = name, exclusive
        return self

    def commit(self):
        """Gives the file its name."""
        self.close()
        if self._exclusive:
            # Replaces nothing (RENAME_NOREPLACE).
            self.fs.task.renameat2(self._name, self.path, 1)
        else:
            self.fs.task.replace(self._name, self.path)

    def discard(self):
        """Removes the file."""
        self.close()
        try:
            self.fs.task.unlink(self._name)
        except FileNotFoundError:
            pass


class _PendingWriter(_Pending, _Writer):
    """A file of a transaction to write."""


class _PendingRandom(_Pending, _Random):
    """A file of a transaction to read and write."""


_KINDS = {os.O_RDONLY: _Reader, os.O_WRONLY: _Writer, os.O_RDWR: _Random}
_PENDING_KINDS = {os.O_WRONLY: _PendingWriter, os.O_RDWR: _PendingRandom}


class VfscaleFileSystem(AsyncFileSystem):
    """A tree of files in memory, in this process.

    Parameters
    ----------
    tree: str
        The name of the tree. Instances with one name share it; it is made when it is first used.
    size: int
        The most memory of its files, in bytes, if the tree is made; half of the machine's by default.
    task: vfscale.Task
        A task to use in place of a named tree. It decides about permissions.
    auto_mkdir: bool
        Whether writing makes the directories above a file that are missing.

    The methods return when the work is done, without an event loop. With `asynchronous=True` the
    coroutines (`_cat_file`, `_find`, ...) are for the caller's event loop.
    """

    protocol = "vfscale"
    root_marker = "/"
    cachable = True

    def __init__(self, tree="default", size=None, task=None, auto_mkdir=True, **kwargs):
        # The synchronous methods are this class's own; none goes through an event loop.
        self.mirror_sync_methods = False
        asynchronous, loop = kwargs.pop("asynchronous", False), kwargs.pop("loop", None)
        super().__init__(asynchronous=True, **kwargs)
        self.asynchronous, self._loop = asynchronous, loop
        self.auto_mkdir = auto_mkdir
        self.task = task if task is not None else self._new_task(tree, size)

    @staticmethod
    def _new_task(tree, size):
        with _LOCK:
            if tree not in _TREES:
                _TREES[tree] = memory(size)
            return _TREES[tree].task()

    @property
    def loop(self):
        if self._loop is None and not self.asynchronous:
            self._loop = get_loop()
        return super().loop

    @property
    def fsid(self):
        """The name of the file system in this process."""
        return f"{self.protocol}-{tokenize(self.storage_args, self.storage_options)}"

    # Paths.

    @classmethod
    def _strip_protocol(cls, path):
        if type(path) is not str:
            if isinstance(path, list):
                return [cls._strip_protocol(part) for part in path]
            path = stringify_path(path)
        elif path[:1] == "/" and path[-1:] != "/" and path[1:2] != "/":
            return path
        for separator in ("://", "::"):
            prefix = cls.protocol + separator
            if path.startswith(prefix):
                path = path[len(prefix) :]
                break
        return "/" + path.strip("/")

    @classmethod
    def _parent(cls, path):
        return cls._strip_protocol(path).rsplit("/", 1)[0] or "/"

    def _make_parent(self, path):
        """Makes the directories above a path that are missing."""
        if self.auto_mkdir:
            self.task.makedirs(self._parent(path), exist_ok=True)

    def _making(self, path, call, *args):
        """Makes a call that makes `path`, and again if a directory above it was missing."""
        try:
            return call(*args)
        except FileNotFoundError:
            if not self.auto_mkdir:
                raise
        # Perhaps another thread has made it meanwhile: then the second call succeeds as well.
        self._make_parent(path)
        return call(*args)

    # What there is.

    def info(self, path, **kwargs):
        return self.task._info(self._strip_protocol(path))

    def ls(self, path, detail=True, **kwargs):
        return self.task._ls(self._strip_protocol(path), detail)

    def find(self, path, maxdepth=None, withdirs=False, detail=False, **kwargs):
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        return self.task._find(self._strip_protocol(path), maxdepth, withdirs, detail)

    def exists(self, path, **kwargs):
        return self.task.exists(self._strip_protocol(path))

    def lexists(self, path, **kwargs):
        return self.task.lexists(self._strip_protocol(path))

    def isfile(self, path):
        return self.task.isfile(self._strip_protocol(path))

    def isdir(self, path):
        return self.task.isdir(self._strip_protocol(path))

    def islink(self, path):
        return self.task.islink(self._strip_protocol(path))

    def size(self, path):
        return self.task.getsize(self._strip_protocol(path))

    def created(self, path):
        return _utc(self.info(path)["created"])

    def modified(self, path):
        return _utc(self.info(path)["mtime"])

    def ukey(self, path):
        found = self.task.stat(self._strip_protocol(path))
        return tokenize(found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)

    # Names.

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        if create_parents:
            self.task.makedirs(path)
        else:
            self.task.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        self.task.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        self.task.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.task.unlink(self._strip_protocol(path))

    def rm(self, path, recursive=False, maxdepth=None):
        if maxdepth is not None:
            for path in reversed(self.expand_path(path, recursive, maxdepth)):
                self._rm_one(path, False)
            return
        for path in path if isinstance(path, list) else [path]:
            path = self._strip_protocol(path)
            for path in self.expand_path(path) if _has_magic(path) else [path]:
                self._rm_one(path, recursive)

    def _rm_one(self, path, recursive):
        if recursive:
            self.task.rmtree(path)
        elif self.task.isdir(path) and not self.task.islink(path):
            self.task.rmdir(path)
        else:
            self.task.unlink(path)

    def mv(self, path1, path2, recursive=True, maxdepth=None, **kwargs):
        """Moves a file or directory, whole and in one step; into `path2`, if that is a directory."""
        into = isinstance(path2, str) and path2.endswith("/")
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if into or (self.task.isdir(path2) and not self.task.islink(path2)):
            path2 = path2.rstrip("/") + "/" + path1.rsplit("/", 1)[-1]
        if self.task.lexists(path1):
            self._making(path2, self.task.rename, path1, path2)
        else:
            self.task.rename(path1, path2)

    def link(self, src, dst, **kwargs):
        self.task.link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src, dst, **kwargs):
        """Makes `dst` a symbolic link to `src`, which may be relative to it."""
        src = stringify_path(src)
        if "://" in src:
            src = self._strip_protocol(src)
        self.task.symlink(src, self._strip_protocol(dst))

    def chmod(self, path, mode):
        self.task.chmod(self._strip_protocol(path), mode)

    def touch(self, path, truncate=True, **kwargs):
        path = self._strip_protocol(path)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if truncate else 0)
        fd = self._making(path, self.task.open_fd, path, flags, 0o666)
        try:
            self.task.utime(fd)
        finally:
            self.task.close(fd)

    # Contents.

    def _open(self, path, mode="rb", block_size=None, autocommit=True, **kwargs):
        path = self._strip_protocol(path)
        flags, _ = parsed_mode(mode)
        if not autocommit and mode != "rb":
            return self._open_pending(path, mode, flags, block_size)
        if flags & os.O_CREAT:
            raw = self._making(path, File, self.task, path, flags)
        else:
            raw = File(self.task, path, flags)
        return self._opened(raw, _KINDS, path, mode, flags, block_size)

    def _opened(self, raw, kinds, path, mode, flags, block_size):
        """Returns a raw file with a buffer and the attributes of fsspec."""
        size = block_size if isinstance(block_size, int) and block_size > 1 else _BUFFER
        file = kinds[flags & os.O_ACCMODE](raw, size).opened(self, path, mode, size)
        if flags & os.O_APPEND and file.seekable():
            file.seek(0, os.SEEK_END)
        return file

    def _open_pending(self, path, mode, flags, block_size):
        self._make_parent(path)
        if flags & os.O_EXCL and self.task.lexists(path):
            raise FileExistsError(17, "File exists", path)
        name = f"{self._parent(path).rstrip('/')}/.{uuid.uuid4().hex}.pending"
        if not flags & (os.O_TRUNC | os.O_EXCL) and self.task.exists(path):
            self.task.copyfile(path, name)
        elif not flags & os.O_CREAT:
            raise FileNotFoundError(2, "No such file or directory", path)
        raw = File(self.task, name, flags & ~(os.O_EXCL | os.O_TRUNC) | os.O_CREAT)
        file = self._opened(raw, _PENDING_KINDS, path, mode, flags, block_size)
        file.promise(name, bool(flags & os.O_EXCL))
        if not flags & os.O_CREAT:
            # A mode with an `r` is for reading, to fsspec, and not of the transaction.
            self.transaction.files.append(file)
        return file

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        if start is None and end is None:
            return self.task.read_bytes(path)
        with self.task.open(path, "rb", 0) as file:
            size = file.stat().st_size
            start, stop, _ = slice(start, end).indices(size)
            return file.pread(max(stop - start, 0), start)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        path = self._strip_protocol(path)
        if mode == "create" or self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
            return
        self._making(path, self.task.write_bytes, path, value)

    def cp_file(self, path1, path2, **kwargs):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.task.isdir(path1):
            self.task.makedirs(path2, exist_ok=True)
        elif self._intrans:
            with self._open(path1) as source, self.open(path2, "wb") as target:
                _copy(source, target, DEFAULT_CALLBACK)
        elif self.task.exists(path1):
            self._making(path2, self.task.copyfile, path1, path2)
        else:
            self.task.copyfile(path1, path2)

    def get_file(self, rpath, lpath, callback=DEFAULT_CALLBACK, outfile=None, **kwargs):
        rpath = self._strip_protocol(rpath)
        if isfilelike(lpath):
            outfile = lpath
        elif self.task.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with self.task.open(rpath, "rb", 0) as source:
            callback.set_size(source.stat().st_size)
            if outfile is not None:
                _copy(source, outfile, callback)
                return
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            with open(lpath, "wb", 0) as target:
                _copy(source, target, callback)

    def put_file(self, lpath, rpath, callback=DEFAULT_CALLBACK, mode="overwrite", **kwargs):
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            self.task.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb", 0) as source:
            callback.set_size(os.fstat(source.fileno()).st_size)
            with self.open(rpath, "xb" if mode == "create" else "wb") as target:
                _copy(source, target, callback)

    # The generic methods of a synchronous file system.

    cat = AbstractFileSystem.cat
    cat_ranges = AbstractFileSystem.cat_ranges
    copy = AbstractFileSystem.copy
    du = AbstractFileSystem.du
    expand_path = AbstractFileSystem.expand_path
    get = AbstractFileSystem.get
    glob = AbstractFileSystem.glob
    pipe = AbstractFileSystem.pipe
    put = AbstractFileSystem.put
    walk = AbstractFileSystem.walk

    # Coroutines. A call in memory is over sooner than another thread begins; the others go there.

    _blocks = False

    async def _run(self, large, call, *args, **kwargs):
        if not large and not self._blocks:
            return call(*args, **kwargs)
        return await asyncio.wrap_future(_THREADS.submit(call, *args, **kwargs))

    async def _info(self, path, **kwargs):
        return await self._run(False, self.info, path)

    async def _ls(self, path, detail=True, **kwargs):
        return await self._run(False, self.ls, path, detail)

    async def _find(self, path, maxdepth=None, withdirs=False, detail=False, **kwargs):
        return await self._run(True, self.find, path, maxdepth, withdirs, detail)

    async def _glob(self, path, maxdepth=None, **kwargs):
        return await self._run(True, self.glob, path, maxdepth, **kwargs)

    async def _exists(self, path, **kwargs):
        return await self._run(False, self.exists, path)

    async def _isfile(self, path):
        return await self._run(False, self.isfile, path)

    async def _isdir(self, path):
        return await self._run(False, self.isdir, path)

    async def _mkdir(self, path, create_parents=True, **kwargs):
        return await self._run(False, self.mkdir, path, create_parents)

    async def _makedirs(self, path, exist_ok=False):
        return await self._run(False, self.makedirs, path, exist_ok)

    async def _rmdir(self, path):
        return await self._run(False, self.rmdir, path)

    async def _rm_file(self, path, **kwargs):
        return await self._run(False, self.rm_file, path)

    async def _rm(self, path, recursive=False, batch_size=None, maxdepth=None, **kwargs):
        return await self._run(True, self.rm, path, recursive, maxdepth)

    async def _mv_file(self, path1, path2):
        return await self._run(False, self.mv, path1, path2)

    async def _mv(self, path1, path2, **kwargs):
        return await self._run(False, self.mv, path1, path2)

    async def _touch(self, path, truncate=True, **kwargs):
        return await self._run(False, self.touch, path, truncate)

    async def _cat_file(self, path, start=None, end=None, **kwargs):
        return await self._run(True, self.cat_file, path, start, end)

    async def _pipe_file(self, path, value, mode="overwrite", **kwargs):
        return await self._run(len(value) > 4096, self.pipe_file, path, value, mode)

    async def _cp_file(self, path1, path2, **kwargs):
        return await self._run(True, self.cp_file, path1, path2)

    async def _get_file(self, rpath, lpath, callback=DEFAULT_CALLBACK, **kwargs):
        return await self._run(True, self.get_file, rpath, lpath, callback)

    async def _put_file(self, lpath, rpath, mode="overwrite", callback=DEFAULT_CALLBACK, **kwargs):
        return await self._run(True, self.put_file, lpath, rpath, callback, mode)

    async def open_async(self, path, mode="rb", **kwargs):
        raise NotImplementedError("files are opened with `open`, also in an event loop")


class VfscaleVolumeFileSystem(VfscaleFileSystem):
    """The files of a volume, which survives crashes.

    Parameters
    ----------
    image: str
        The path of the image file or device, or `rbd:POOL[/NAMESPACE]/IMAGE`; `fo` is another name
        for it, so that `vfscale+volume://data.csv::/path/of/disk.vfs` works.
    create: int
        The size in bytes of the image that is made, if there is none.
    read_only: bool
        Whether the volume is opened without writing.
    auto_mkdir: bool
        Whether writing makes the directories above a file that are missing.
    ceph_conf, ceph_id, take_over:
        For an image of Ceph RBD, as in `vfscale.open_volume`.

    Instances with one image share the volume, which is open until `close`, or the end of the
    interpreter. A volume has one opener: another process can't use it meanwhile.
    """

    protocol = "vfscale+volume"
    _blocks = True

    def __init__(
        self,
        image=None,
        create=None,
        read_only=False,
        fo=None,
        ceph_conf=None,
        ceph_id=None,
        take_over=False,
        **kwargs,
    ):
        image = image if image is not None else fo
        if image is None:
            raise ValueError("a volume needs the path of its `image`")
        if kwargs.pop("target_protocol", None) not in (None, "file", "local"):
            raise ValueError("the image of a volume is a file of the host")
        kwargs.pop("target_options", None)
        image = os.fspath(image)
        self.image = image if image.startswith("rbd:") else os.path.realpath(image)
        self._options = {
            "create": create,
            "read_only": read_only,
            "ceph_conf": ceph_conf,
            "ceph_id": ceph_id,
            "take_over": take_over,
        }
        super().__init__(task=self._open_volume(), **kwargs)

    def _open_volume(self) -> Task:
        with _LOCK:
            volume = _VOLUMES.get(self.image)
            if volume is None or volume.closed:
                volume = _VOLUMES[self.image] = open_volume(self.image, **self._options)
            return volume.task()

    def sync(self):
        """Makes all changes so far durable."""
        _VOLUMES[self.image].sync()

    def close(self):
        """Makes all changes durable and closes the volume, for all instances with its image.

        Waits for calls of coroutines that were cancelled, for ten seconds at most, and for open files,
        for one second: threads of a library that has read them may close them a moment later. Raises
        `OSError` with `EBUSY` if a file is still open then.
        """
        _THREADS.wait(10)
        end = time.monotonic() + 1
        while not self._close_unless_busy(is_last=time.monotonic() >= end):
            time.sleep(0.01)
        type(self).clear_instance_cache()

    def _close_unless_busy(self, is_last):
        """Tells whether the volume is closed now; raises that it is busy only the last time."""
        with _LOCK:
            volume = _VOLUMES.get(self.image)
            if volume is None:
                return True
            try:
                volume.close()
            except OSError as error:
                if is_last or error.errno != errno.EBUSY:
                    raise
                return False
            del _VOLUMES[self.image]
            return True


def _utc(seconds):
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)


def _has_magic(path):
    return any(letter in path for letter in "*?[")


def _copy(source, target, callback):
    while True:
        data = source.read(_COPY_STEP)
        if not data:
            return
        rest = memoryview(data)
        while rest:
            # A raw file may write a part.
            rest = rest[target.write(rest) :]
        callback.relative_update(len(data))
