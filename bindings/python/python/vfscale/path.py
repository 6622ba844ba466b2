"""Paths in the tree of a task, like those of `pathlib`."""

import errno
import fnmatch
import functools
import os
import posixpath
import stat
from pathlib import PurePosixPath


def plain(path):
    """Returns the `str` or `bytes` of a path."""
    if hasattr(type(path), "__vfspath__"):
        return path.__vfspath__()
    return os.fspath(path)


def _text(part):
    if isinstance(part, str):
        return part
    part = plain(part)
    if not isinstance(part, str):
        raise TypeError(f"a path is of str, not {type(part).__name__}")
    return part


@functools.total_ordering
class Path:
    """A path in the tree of a task, with the methods of `pathlib.Path`; `Task.Path` makes one.

    It has no `__fspath__`, so a function that would open a file of the host refuses it.

    >>> path = task.Path("/srv") / "data.tar.gz"
    >>> path.name, path.suffix, path.stem, str(path.parent)
    ('data.tar.gz', '.gz', 'data.tar', '/srv')
    >>> path.exists()
    False
    """

    __slots__ = ("_task", "_pure")

    def __init__(self, task, *parts):
        self._task = task
        self._pure = PurePosixPath(*map(_text, parts))

    def _with(self, pure):
        path = object.__new__(type(self))
        path._task, path._pure = self._task, pure
        return path

    # The path itself.

    def __vfspath__(self):
        return str(self._pure)

    def __str__(self):
        return str(self._pure)

    def __repr__(self):
        return f"{type(self).__name__}({str(self._pure)!r})"

    def __hash__(self):
        return hash((id(self._task), self._pure))

    def __eq__(self, other):
        if not isinstance(other, Path):
            return NotImplemented
        return self._task is other._task and self._pure == other._pure

    def __lt__(self, other):
        if not isinstance(other, Path):
            return NotImplemented
        return self._pure < other._pure

    def __truediv__(self, part):
        try:
            return self._with(self._pure / _text(part))
        except TypeError:
            return NotImplemented

    def __rtruediv__(self, part):
        try:
            return self._with(_text(part) / self._pure)
        except TypeError:
            return NotImplemented

    @property
    def task(self):
        """The task."""
        return self._task

    @property
    def parts(self):
        """The components."""
        return self._pure.parts

    @property
    def root(self):
        """The root: `/`, or nothing for a relative path."""
        return self._pure.root

    anchor = root

    @property
    def name(self):
        """The last component."""
        return self._pure.name

    @property
    def stem(self):
        """The last component without its suffix."""
        return self._pure.stem

    @property
    def suffix(self):
        """The suffix of the last component, with its dot."""
        return self._pure.suffix

    @property
    def suffixes(self):
        """All suffixes of the last component."""
        return self._pure.suffixes

    @property
    def parent(self):
        """The path without its last component."""
        return self._with(self._pure.parent)

    @property
    def parents(self):
        """The paths above, nearest first."""
        return [self._with(pure) for pure in self._pure.parents]

    def as_posix(self):
        """Returns the path as a `str`."""
        return str(self._pure)

    def is_absolute(self):
        """Returns whether the path begins at the root."""
        return self._pure.is_absolute()

    def joinpath(self, *parts):
        """Returns the path with more components."""
        return self._with(self._pure.joinpath(*map(_text, parts)))

    def match(self, pattern):
        """Returns whether the path matches a pattern."""
        return self._pure.match(pattern)

    def relative_to(self, other):
        """Returns the path relative to one above it."""
        return self._with(self._pure.relative_to(_text(other)))

    def is_relative_to(self, other):
        """Returns whether the path is `other` or below it."""
        return self._pure.is_relative_to(_text(other))

    def with_name(self, name):
        """Returns the path with another last component."""
        return self._with(self._pure.with_name(name))

    def with_stem(self, stem):
        """Returns the path with another last component and the same suffix."""
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self, suffix):
        """Returns the path with another suffix."""
        return self._with(self._pure.with_suffix(suffix))

    # The file.

    def stat(self, *, follow_symlinks=True):
        """Returns the attributes of the file."""
        return self._task.stat(str(self), follow_symlinks=follow_symlinks)

    def lstat(self):
        """Returns the attributes of the file; those of a symbolic link itself."""
        return self._task.lstat(str(self))

    def exists(self, *, follow_symlinks=True):
        """Returns whether there is such a file."""
        return (self._task.exists if follow_symlinks else self._task.lexists)(str(self))

    def is_dir(self):
        """Returns whether the path leads to a directory."""
        return self._task.isdir(str(self))

    def is_file(self):
        """Returns whether the path leads to a regular file."""
        return self._task.isfile(str(self))

    def is_symlink(self):
        """Returns whether the path is a symbolic link."""
        return self._task.islink(str(self))

    def is_mount(self):
        """Returns whether the path is the root of a mount."""
        return self._task.ismount(str(self))

    def _has_type(self, is_type):
        try:
            return is_type(self.stat().st_mode)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return False
            raise

    def is_fifo(self):
        """Returns whether the path leads to a fifo."""
        return self._has_type(stat.S_ISFIFO)

    def is_socket(self):
        """Returns whether the path leads to a socket."""
        return self._has_type(stat.S_ISSOCK)

    def samefile(self, other):
        """Returns whether another path is of the same file."""
        return self._task.samefile(str(self), _text(other))

    def open(self, mode="r", buffering=-1, encoding=None, errors=None, newline=None):
        """Opens the file, as the function `open`."""
        return self._task.open(str(self), mode, buffering, encoding, errors, newline)

    def read_bytes(self):
        """Returns the contents of the file."""
        return self._task.read_bytes(str(self))

    def read_text(self, encoding=None, errors=None):
        """Returns the text of the file."""
        with self.open("r", -1, encoding, errors) as file:
            return file.read()

    def write_bytes(self, data):
        """Makes or replaces the file; returns the number of bytes."""
        self._task.write_bytes(str(self), data)
        return len(memoryview(data).cast("B"))

    def write_text(self, data, encoding=None, errors=None, newline=None):
        """Makes or replaces the file with a text; returns the number of characters."""
        if not isinstance(data, str):
            raise TypeError(f"data must be str, not {type(data).__name__}")
        with self.open("w", -1, encoding, errors, newline) as file:
            return file.write(data)

    def touch(self, mode=0o666, exist_ok=True):
        """Makes the file, or sets its times to now."""
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
            self._task.close(self._task.open_fd(str(self), flags, mode))
        except FileExistsError:
            if not exist_ok:
                raise
            self._task.utime(str(self))

    def mkdir(self, mode=0o777, parents=False, exist_ok=False):
        """Makes the directory; with `parents`, also those above it."""
        try:
            if parents:
                self._task.makedirs(str(self), mode, exist_ok)
            else:
                self._task.mkdir(str(self), mode)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self):
        """Removes the empty directory."""
        self._task.rmdir(str(self))

    def unlink(self, missing_ok=False):
        """Removes the name."""
        try:
            self._task.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target):
        """Gives the file another name; returns its path."""
        self._task.rename(str(self), _text(target))
        return self._with(PurePosixPath(_text(target)))

    def replace(self, target):
        """Gives the file another name, as `rename`."""
        return self.rename(target)

    def symlink_to(self, target, target_is_directory=False):
        """Makes the path a symbolic link to `target`."""
        self._task.symlink(_text(target), str(self), target_is_directory)

    def hardlink_to(self, target):
        """Makes the path another name of the file `target`."""
        self._task.link(_text(target), str(self))

    def readlink(self):
        """Returns where the symbolic link leads."""
        return self._with(PurePosixPath(self._task.readlink(str(self))))

    def chmod(self, mode, *, follow_symlinks=True):
        """Changes the permission bits."""
        self._task.chmod(str(self), mode, follow_symlinks=follow_symlinks)

    def absolute(self):
        """Returns the path from the root; follows no symbolic links."""
        return self._with(PurePosixPath(self._task.getcwd()) / self._pure)

    def resolve(self, strict=False):
        """Returns the path with every symbolic link followed."""
        return self._with(PurePosixPath(self._task.realpath(str(self), strict=strict)))

    def iterdir(self):
        """Yields the paths in the directory."""
        for name in self._task.listdir(str(self)):
            yield self._with(self._pure / name)

    def glob(self, pattern):
        """Yields the paths below that match a pattern, in which `**` is any number of directories.

        >>> task.makedirs("/g/x/y")
        >>> task.write_bytes("/g/x/y/a.txt", b"")
        >>> [str(path) for path in task.Path("/g").glob("**/*.txt")]
        ['/g/x/y/a.txt']
        """
        pure = PurePosixPath(pattern)
        if not pure.parts:
            raise ValueError(f"Unacceptable pattern: {pattern!r}")
        if pure.is_absolute():
            raise NotImplementedError("Non-relative patterns are unsupported")
        seen = set()
        for found in self._glob(str(self), pure.parts):
            if found not in seen:
                seen.add(found)
                yield self._with(PurePosixPath(found))

    def rglob(self, pattern):
        """Yields the paths that match a pattern at any depth."""
        return self.glob(posixpath.join("**", _text(pattern)))

    def _glob(self, base, parts):
        if not parts:
            yield base
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            for top, _, _ in self._task.walk(base):
                yield from self._glob(top, rest)
            return
        if not any(letter in part for letter in "*?["):
            path = posixpath.join(base, part)
            if self._task.lexists(path):
                yield from self._glob(path, rest)
            return
        try:
            names = self._task.listdir(base)
        except OSError:
            return
        for name in sorted(names):
            if fnmatch.fnmatchcase(name, part):
                yield from self._glob(posixpath.join(base, name), rest)

    def walk(self, top_down=True, on_error=None, follow_symlinks=False):
        """Walks the tree, as `Task.walk`, with paths of directories."""
        walk = self._task.walk(str(self), top_down, on_error, follow_symlinks)
        for top, dirs, files in walk:
            yield self._with(PurePosixPath(top)), dirs, files
