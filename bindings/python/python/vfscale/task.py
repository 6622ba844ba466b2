"""Tasks: the names of `os` and `os.path`, in a tree."""

import errno
import os
import posixpath

from . import _vfscale
from .file import File, parse_mode, wrap
from .path import Path, plain

_PARSED: dict = {}


def parsed_mode(mode):
    """Returns what `parse_mode` does; remembers it."""
    try:
        return _PARSED[mode]
    except (KeyError, TypeError):
        parsed = parse_mode(mode)
        _PARSED[mode] = parsed
        return parsed


class TaskPath:
    """The names of `os.path`, in the tree of a task: `task.path`.

    >>> task.path.join("/a", "b"), task.path.isdir("/")
    ('/a/b', True)
    """

    __slots__ = ("_task",)

    sep = "/"
    altsep = None
    curdir = "."
    pardir = ".."
    extsep = "."
    pathsep = ":"
    devnull = "/dev/null"
    supports_unicode_filenames = False

    basename = staticmethod(posixpath.basename)
    commonpath = staticmethod(posixpath.commonpath)
    commonprefix = staticmethod(posixpath.commonprefix)
    dirname = staticmethod(posixpath.dirname)
    isabs = staticmethod(posixpath.isabs)
    join = staticmethod(posixpath.join)
    normcase = staticmethod(posixpath.normcase)
    normpath = staticmethod(posixpath.normpath)
    split = staticmethod(posixpath.split)
    splitdrive = staticmethod(posixpath.splitdrive)
    splitext = staticmethod(posixpath.splitext)

    def __init__(self, task):
        self._task = task

    def __getattr__(self, name):
        if name in _TREE_NAMES:
            return getattr(self._task, name)
        raise AttributeError(f"a task's path has no {name!r}")

    def abspath(self, path):
        """Returns an absolute path, without `.` and `..`."""
        return self._task.abspath(path)

    def relpath(self, path, start=None):
        """Returns a path relative to `start`, by default to the working directory."""
        path = plain(path)
        if start is None:
            start = b"." if isinstance(path, bytes) else "."
        return posixpath.relpath(self.abspath(path), self.abspath(start))


_TREE_NAMES = frozenset(
    "exists lexists isfile isdir islink ismount getsize getatime getmtime getctime samefile "
    "realpath".split()
)


class Task(_vfscale.Task):
    """A process, as a file system sees it: root and working directory, umask, credentials and
    descriptors. Its methods have the names and arguments of `os`; `task.path` has those of
    `os.path`.

    A tree or volume makes one with `task()`. Any number of threads may use it. As a context manager
    it ends at the end: its descriptors are closed.

    >>> with vfscale.memory(size=1 << 20).task() as task:
    ...     task.mkdir("/d")
    ...     task.stat("/d").st_nlink
    2
    """

    F_OK, R_OK, W_OK, X_OK = 0, 4, 2, 1
    curdir, pardir, sep, extsep, linesep = ".", "..", "/", ".", "\n"

    @property
    def path(self):
        """The names of `os.path`, in this tree."""
        return TaskPath(self)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.end()

    def __repr__(self):
        # Tells tasks apart: fsspec recognizes equal arguments by their text.
        state = " [ended]" if self.ended else f" uid={self.geteuid()}"
        return f"<vfscale.Task at {id(self):#x}{state}>"

    def Path(self, *parts):  # noqa: N802
        """Returns a `vfscale.Path` in the tree of this task.

        >>> path = task.Path("/notes") / "today"
        >>> path.parent.mkdir()
        >>> path.write_text("tea")
        3
        >>> path.read_text()
        'tea'
        """
        return Path(self, *parts)

    def open(
        self,
        file,
        mode="r",
        buffering=-1,
        encoding=None,
        errors=None,
        newline=None,
        *,
        flags=None,
        dir_fd=None,
    ):
        """Opens a file, as the function `open`; or, with the flags of `os.open` as its second
        argument, as `os.open`, and returns a descriptor.

        >>> with task.open("/text", "w") as file:
        ...     file.write("two\\nlines\\n")
        10
        >>> with task.open("/text") as file:
        ...     [line for line in file]
        ['two\\n', 'lines\\n']
        >>> import os
        >>> fd = task.open("/text", os.O_RDONLY)
        >>> task.read(fd, 3)
        b'two'
        >>> task.close(fd)
        """
        if flags is not None:
            perm = mode if isinstance(mode, int) else 0o777
            return self.open_fd(file, flags, perm, dir_fd=dir_fd)
        if isinstance(mode, int):
            perm = 0o777 if buffering == -1 else buffering
            return self.open_fd(file, mode, perm, dir_fd=dir_fd)
        bits, binary = parsed_mode(mode)
        raw = File(self, file, bits, 0o666, dir_fd)
        try:
            if bits & os.O_APPEND and raw.seekable():
                raw.seek(0, os.SEEK_END)
            return wrap(raw, mode, bits, binary, buffering, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise

    def fdopen(self, fd, mode="r", buffering=-1, encoding=None, errors=None, newline=None):
        """Returns a file on the open file of a descriptor. Closing it leaves the descriptor open."""
        if not isinstance(fd, int):
            raise TypeError("invalid fd type, must be int")
        return self.open(fd, mode, buffering, encoding, errors, newline)

    def fork(self):
        """Makes a task with the same root, working directory, umask, credentials and descriptors,
        as `fork(2)` does."""
        return Task(self)

    def read_text(self, path, encoding="utf-8", errors="strict"):
        """Returns the text of a file."""
        return self.read_bytes(path).decode(encoding, errors)

    def write_text(self, path, data, encoding="utf-8", errors="strict"):
        """Makes or replaces a file with a text."""
        self.write_bytes(path, data.encode(encoding, errors))

    def abspath(self, path):
        """Returns an absolute path, without `.` and `..`."""
        path = plain(path)
        if not posixpath.isabs(path):
            cwd = self.getcwdb() if isinstance(path, bytes) else self.getcwd()
            path = posixpath.join(cwd, path)
        return posixpath.normpath(path)

    def renames(self, old, new):
        """Renames, makes the directories above `new`, and removes those above `old` that became
        empty."""
        head, tail = posixpath.split(plain(new))
        if head and tail and not self.exists(head):
            self.makedirs(head)
        self.rename(old, new)
        head, tail = posixpath.split(plain(old))
        if head and tail:
            try:
                self.removedirs(head)
            except OSError:
                pass

    def walk(self, top, topdown=True, onerror=None, followlinks=False):
        """Walks a tree as `os.walk`: yields each directory's path, the names of directories in it,
        and those of other files.

        A tree may be deeper than a path: with more than 4095 bytes the walk raises `OSError` with
        `ENAMETOOLONG` unless `onerror` takes it, while `os.walk` ends there silently.

        >>> task.makedirs("/w/a/b")
        >>> task.write_bytes("/w/a/f", b"")
        >>> list(task.walk("/w"))
        [('/w', ['a'], []), ('/w/a', ['b'], ['f']), ('/w/a/b', [], [])]
        """
        # An entry is a directory to walk, or one whose contents were walked and that is now yielded.
        stack = [plain(top)]
        while stack:
            entry = stack.pop()
            if isinstance(entry, tuple):
                yield entry
                continue
            try:
                dirs, files, links = self._names(entry)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                elif error.errno == errno.ENAMETOOLONG:
                    raise
                continue
            if topdown:
                yield entry, dirs, files
                # The caller may have changed the list.
                if followlinks:
                    below = dirs
                else:
                    below = [d for d in dirs if not self.islink(posixpath.join(entry, d))]
            else:
                stack.append((entry, dirs, files))
                skipped = frozenset() if followlinks else frozenset(links)
                below = [d for d in dirs if d not in skipped]
            stack.extend(posixpath.join(entry, d) for d in reversed(below))

    def fwalk(self, top=".", topdown=True, onerror=None, *, follow_symlinks=False, dir_fd=None):
        """Walks a tree as `os.fwalk`: yields what `walk` does, and a descriptor of the directory,
        which is closed afterwards. No path is too long.

        >>> task.makedirs("/v/a")
        >>> task.write_bytes("/v/a/f", b"123")
        >>> for top, dirs, files, fd in task.fwalk("/v"):
        ...     top, dirs, [(name, task.stat(name, dir_fd=fd).st_size) for name in files]
        ('/v', ['a'], [])
        ('/v/a', [], [('f', 3)])
        """
        top = plain(top)
        flags = os.O_RDONLY | os.O_DIRECTORY | (0 if follow_symlinks else os.O_NOFOLLOW)
        # Directories to walk: path, name, and the descriptor of the directory that has the name;
        # entries to yield, and the descriptors to close after all below them.
        stack, is_top = [(top, top, dir_fd)], True
        try:
            while stack:
                step = stack.pop()
                if isinstance(step, int):
                    self.close(step)
                    continue
                if len(step) == 4:
                    yield step
                    continue
                path, name, above = step
                try:
                    fd = self.open_fd(name, flags, dir_fd=above)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR):
                        # A symbolic link, or no directory; a top that is not there is an error.
                        if is_top:
                            self.stat(name, dir_fd=above)
                    elif is_top:
                        raise
                    elif onerror is not None:
                        onerror(error)
                    continue
                is_top = False
                stack.append(fd)
                dirs, files, _ = self._names(fd)
                if isinstance(top, bytes):
                    dirs, files = [*map(os.fsencode, dirs)], [*map(os.fsencode, files)]
                entry = path, dirs, files, fd
                if topdown:
                    yield entry
                else:
                    stack.append(entry)
                # The caller may have changed the list.
                stack.extend((posixpath.join(path, d), d, fd) for d in reversed(dirs))
        finally:
            for step in stack:
                if isinstance(step, int):
                    self.close(step)
