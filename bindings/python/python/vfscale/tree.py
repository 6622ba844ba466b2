"""Trees in memory, and volumes."""

import errno
import gc
import warnings

from . import _vfscale
from .task import Task


class _Tree:
    __slots__ = ()

    def task(self, *, uid=0, gid=0, groups=(), capabilities=None, root=None):
        """Makes a task, by default with all rights at the root of the tree.

        A task of another user than 0 has no privileges, unless `capabilities` has the bits of
        `capabilities(7)`. `root` confines it to a directory.
        """
        return Task(
            self, uid=uid, gid=gid, groups=list(groups), capabilities=capabilities, root=root
        )


class Memory(_vfscale.Memory, _Tree):
    """A tree of files in memory. It ends with its last task and open file."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return None


class Volume(_vfscale.Volume, _Tree):
    """A volume in an image file or on a device; it survives crashes.

    Use it in a `with` statement, or call `close`: a volume that is dropped makes its changes durable
    too, but reports no error.
    """

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Makes all changes durable, ends the tasks of the volume, closes it and releases its image.

        Raises `OSError` with `EBUSY` if files are open; the volume then stays open. Closing it again
        does nothing.
        """
        try:
            super().close()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        else:
            return
        # Perhaps nobody uses the files any more.
        gc.collect()
        super().close()

    def __del__(self):
        if not self.closed:
            warnings.warn(f"unclosed volume {self.path!r}", ResourceWarning, source=self)
            self._release()

    def __repr__(self):
        state = " [closed]" if self.closed else ""
        return f"<vfscale.Volume {self.path!r}{state}>"


def memory(size=None, **options):
    """Makes a tree in memory.

    `size` bounds the memory of its files in bytes; by default half of the machine's memory. `mode`,
    `uid` and `gid` are those of its root directory. Further options: `inodes`, and others of
    `vfscale mount --memory -o`.

    >>> tree = memory(size=1 << 20)
    >>> tree.task().write_bytes("/f", bytes(2 << 20))
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: '/f'
    """
    return Memory(size, **options)


def open_volume(path, create=None, **options):
    """Opens the volume in an image file or on a device; recovers it after a crash.

    With `create` makes an image of so many bytes, if there is none; `mode`, `uid` and `gid` are then
    those of its root directory. `cache_size` is the approximate size of its caches in bytes.
    `sync_interval`, `discard`, `errors` and others are those of `vfscale mount -o`.

    A path `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]` names an image of Ceph RBD; it needs the library librbd.
    `ceph_conf` is the configuration file (by default CEPH_CONF, or /etc/ceph/ceph.conf), `ceph_id` the
    user without `client.` (by default admin). With `take_over` the image is taken from a holder that
    is alive: the cluster refuses that one from then on. `patience` is the time in seconds after which
    a request of the opening fails with `ETIMEDOUT`; by default it waits for the cluster.

    >>> with open_volume(image, create=16 << 20) as volume:
    ...     volume.task().write_bytes("/state", b"1")
    >>> with open_volume(image) as volume:
    ...     volume.task().read_bytes("/state")
    b'1'
    """
    return Volume(path, create=create, **options)
