"""Branches of an image."""

import gc
import warnings
from typing import List, NamedTuple, Optional, Tuple

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
    #: The bytes that it may have for itself; `None` for any number.
    limit: Optional[int]


class LogEntry(NamedTuple):
    """A state in the history of a branch, as `Pool.log` lists it."""

    #: The number of the state.
    node: int
    #: "now", "fork", "checkpoint", "merge", "merged" (into another branch), or "adoption".
    kind: str
    #: When that was, in nanoseconds since 1970; `None` for "now".
    time_ns: Optional[int]
    #: The text of a checkpoint; the branch that was adopted.
    text: str
    #: The number of the state before it in the branch.
    parent: Optional[int]
    #: The states that were merged into it, each with its branch.
    merges: List[Tuple[int, str]]
    #: The branches that have the state or were forked from it.
    branches: List[str]


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


class Conflict(NamedTuple):
    """A change that two branches have made in different ways."""

    #: The path in the result; of a file that that does not have, one that it had.
    path: str
    #: "content", "attributes", "xattrs", "removed", "renamed", "name", or "loop".
    kind: str
    #: The path of what the merged branch has, if it stands beside.
    beside: Optional[str]


class Merged(NamedTuple):
    """The outcome of a merge."""

    #: Files and directories that the branch has got, and those that stand beside.
    added: int
    #: Names that were removed, of files that got no other one.
    removed: int
    #: Names that its files have got.
    moved: int
    #: Files and directories whose contents or attributes were changed.
    changed: int
    #: Files among them that both have changed, and that were merged by lines.
    texts: int
    #: Whether the branch was changed.
    done: bool
    #: The branch that has what a rebase has replaced.
    kept: Optional[str]
    conflicts: List[Conflict]


class Applied(NamedTuple):
    """What was applied to a branch."""

    #: Whether it was a layer; else it was a patch.
    is_layer: bool
    #: Files and directories that were made, changed or renamed.
    written: int
    #: Names that were removed.
    removed: int
    #: Lines of a patch that begin with "#": what it could not tell.
    untold: int
    #: Whether the branch was changed.
    done: bool


class View(NamedTuple):
    """A view that was written."""

    inodes: int
    #: Of the file.
    bytes: int
    #: The first path that an overlay above it would not show as it is, or `None`.
    marked: Optional[str]


class Ingested(NamedTuple):
    """The result of taking over an overlay."""

    #: The files and directories that the upper layer had.
    files: int
    #: The names that were removed.
    removed: int
    #: The bytes of contents that were written.
    bytes: int
    #: The branch that has the changes, if the branch could not take them.
    kept: Optional[str]


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

    def log(self, branch="main"):
        """Lists the states in the history of a branch, the last one first.

        >>> pool.checkpoint("main", "before")
        'main@1'
        >>> [(entry.kind, entry.text) for entry in pool.log()]
        [('now', ''), ('checkpoint', 'before')]
        """
        return [LogEntry(*entry) for entry in self._log(branch)]

    def diff(self, a, b):
        """Compares two branches, which may be open: what has to be done to `a` to get `b`, by path.

        >>> pool.fork("main", "trial")
        >>> with pool.open("trial") as volume:
        ...     volume.task().write_bytes("/new", b"1")
        >>> pool.diff("main", "trial")
        [Difference(path='/new', kind='added', moved_from=None, parts=())]
        """
        return [Difference(*told[:3], tuple(told[3])) for told in self._diff(a, b)]

    def merge(self, branch, into="main", *, strategy="both", dry_run=False):
        """Makes in the branch `into` what `branch` has changed since both had the same contents.

        Of a conflict, the file of `branch` stands beside; with the strategy "ours" it does not, with
        "theirs" it takes the place, and with "fail" nothing is changed at all. `into` must not be
        open, unless this is a dry run. Durable at the return, whole or not at all.

        Raises `OSError` with `ENOENT`, `EBUSY` if `into` is open, or `EINVAL` if it can only be read
        or both have no state in common.

        >>> pool.fork("main", "trial")
        >>> with pool.open("trial") as volume:
        ...     volume.task().write_bytes("/new", b"1")
        >>> pool.merge("trial")
        Merged(added=1, removed=0, moved=0, changed=0, texts=0, done=True, kept=None, conflicts=[])
        """
        return self._join(branch, into, strategy, dry_run, False)

    def rebase(self, branch, onto="main", *, strategy="both", dry_run=False):
        """Gives `branch` what `onto` has, and in it what `branch` has changed since both were one.

        That is merged as `merge` does, where `onto` takes the part of `into` and stays as it is.
        `branch` must not be open, unless this is a dry run. What it had becomes another branch, which
        the result names. Durable at the return, whole or not at all. Raises `OSError` as `merge`.

        >>> pool.fork("main", "trial")
        >>> for name in "main", "trial":
        ...     with pool.open(name) as volume:
        ...         volume.task().write_bytes("/" + name, b"1")
        >>> pool.rebase("trial").kept
        'trial@1'
        """
        return self._join(branch, onto, strategy, dry_run, True)

    def _join(self, *arguments):
        counts, conflicts = self._merge(*arguments)
        return Merged(*counts, [Conflict(*conflict) for conflict in conflicts])

    def patch(self, a, b, *, base=False):
        """Returns the bytes of a patch that makes `b` of `a`, for `git apply`, `patch -p1`, `apply`.

        With `base`, of what both had in common. What it can't tell is in lines that begin with `#`.

        >>> pool.fork("main", "trial")
        >>> with pool.open("trial") as volume:
        ...     volume.task().write_bytes("/new", b"line\\n")
        >>> pool.patch("main", "trial").splitlines()[-1]
        b'+line'
        """
        return self._patch(a, b, base)

    def layer(self, a, b, out, *, base=False):
        """Writes a layer that makes `b` of `a` to the file `out`: a tar archive as OCI images have it.

        With `base`, of what both had in common. Returns the number of files in it. Raises `OSError`
        with `EOVERFLOW` for a file that a layer can't have.
        """
        return self._layer(a, b, out, base)

    def apply(self, branch, source, *, dry_run=False, strip=1):
        """Applies a layer or a patch to a branch, by one commit: bytes, or the path of a file.

        `strip` directories are taken off the names in a patch. The branch must not be open, unless
        this is a dry run. Raises `OSError` that names what does not apply; nothing is changed then.

        >>> pool.apply("main", b"--- /dev/null\\n+++ b/new\\n@@ -0,0 +1 @@\\n+line\\n")
        Applied(is_layer=False, written=1, removed=0, untold=0, done=True)
        """
        is_bytes = isinstance(source, (bytes, bytearray, memoryview))
        data, path = (bytes(source), None) if is_bytes else (None, source)
        return Applied(*self._apply(branch, data, path, dry_run, strip))

    def view(self, branch, out):
        """Writes a view of a read-only branch to the file `out`, by which Linux reads it in place.

        It is metadata of EROFS, whose device is the image, and right as long as the branch exists.
        `marked` of the result names the first character device 0:0, or file with attributes
        `trusted.overlay.*` or `user.overlay.*`: no overlay above the view would show it as it is.
        Raises `OSError` with `EINVAL` for a branch that can be written, and with `EOVERFLOW` if it has
        something that a view can't have.
        """
        return View(*_vfscale._view(self, branch, out))

    def ingest(self, branch, base, *, view, upper, work, userxattr=False):
        """Takes over what programs have changed in an overlay above a view, by one commit.

        `view` is the file of the view of `base`, a read-only fork of the branch; `upper` and `work` are
        the directories of the overlay, which has the options `index=on,xino=on`, or with `userxattr`
        that option and `xino=on`. If the branch has changed since the fork, another branch, which the
        result names, has the changes. Raises `OSError` for a file that can't be taken over; nothing is
        changed then.
        """
        return Ingested(*_vfscale._ingest(self, branch, base, (view, upper, work), userxattr))

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
