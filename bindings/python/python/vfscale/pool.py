"""Branches of an image."""

import gc
import warnings
from typing import NamedTuple, Optional, Tuple

from . import _vfscale
from .tree import Volume


class Branch(NamedTuple):
    """A branch, as `Pool.branches` lists it."""

    name: str
    #: The size of its volume, in bytes.
    size: int
    #: The bytes that only this branch has, as of its last checkpoint: deleting it frees them.
    own: int
    read_only: bool
    #: The length of its history: one more with each fork of contents that have changed.
    depth: int


class PoolUsage(NamedTuple):
    """The space that the branches of a pool share, in bytes."""

    size: int
    free: int


class Difference(NamedTuple):
    """A difference of two branches."""

    #: The path in the second branch; of what is removed, the one in the first.
    path: str
    #: "added", "removed", "replaced", "moved", "changed", or "other".
    kind: str
    #: The path in the first branch, of what was moved.
    moved_from: Optional[str]
    #: What has changed: "content", "attributes", "xattrs".
    parts: Tuple[str, ...]


class Pool(_vfscale.Pool):
    """The branches of an image. One process has an image open at a time.

    Use it in a `with` statement, or call `close` when its branches are closed.
    """

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def branches(self):
        """Lists the branches, by name.

        >>> [branch.name for branch in pool.branches()]
        ['main']
        """
        return [Branch(*found) for found in self._branches()]

    def usage(self):
        """Returns the space that the branches share."""
        return PoolUsage(*self._usage())

    def open(self, name="main", **options):
        """Opens the volume in a branch, with options of `open_volume`.

        Raises `OSError` with `ENOENT` if there is no such branch, and with `EBUSY` if it is open: a
        branch that can be written has one user.
        """
        return Volume(self.path, _branch=(self, name), **options)

    def diff(self, a, b):
        """Compares two branches, which may be open: what has to be done to `a` to get `b`, by path.

        >>> pool.fork("main", "trial")
        >>> with pool.open("trial") as volume:
        ...     volume.task().write_bytes("/new", b"1")
        >>> pool.diff("main", "trial")
        [Difference(path='/new', kind='added', moved_from=None, parts=())]
        """
        return [Difference(*told[:3], tuple(told[3])) for told in self._diff(a, b)]

    def close(self):
        """Closes the pool, so that the next opening has nothing to recover, and releases its image.

        Raises `OSError` with `EBUSY` if a branch is open; the pool then stays open. Closing it again
        does nothing.
        """
        # Perhaps nobody uses an open branch any more.
        gc.collect()
        super().close()

    def __del__(self):
        if not self.closed:
            warnings.warn(f"unclosed pool {self.path!r}", ResourceWarning, source=self)
            self._release()

    def __repr__(self):
        state = " [closed]" if self.closed else ""
        return f"<vfscale.Pool {self.path!r}{state}>"


def open_pool(path, *, convert=False, read_only=False):
    """Opens the branches of an image file or device.

    With `convert`, an image with a volume becomes a pool, and the volume its branch `main`, which
    can't be undone; without it, such an image raises `OSError` with `EINVAL`. With `read_only` nothing
    is written.

    >>> with open_volume(image, create=64 << 20) as volume:
    ...     volume.task().write_bytes("/config", b"old")
    >>> with open_pool(image, convert=True) as pool:
    ...     pool.fork("main", "trial")
    ...     with pool.open("trial") as volume:
    ...         volume.task().write_bytes("/config", b"new")
    ...     pool.adopt("main", "trial")
    >>> with open_volume(image) as volume:
    ...     volume.task().read_bytes("/config")
    b'new'
    """
    return Pool(path, convert=convert, read_only=read_only)
