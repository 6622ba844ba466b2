"""Files in memory or in one image file, with Linux's rules and without system calls.

>>> import vfscale
>>> task = vfscale.memory(size=64 << 20).task()
>>> task.makedirs("/srv/www")
>>> with task.open("/srv/www/index.html", "w") as file:
...     _ = file.write("<h1>hello</h1>")
>>> task.listdir("/srv/www")
['index.html']

`memory` makes a tree in memory, and `open_volume` opens a volume in an image file, which survives
crashes; `open_pool` opens its branches. A `Task` is what a process is to a file system; its methods have the names and arguments of
`os` and `os.path`. A `Path` is like one of `pathlib`, in the tree of a task. Errors are `OSError`,
with the numbers of Linux and the paths. `vfscale.fsspec` has the file systems of fsspec.
"""

from ._vfscale import DirEntry, __version__
from .file import File
from .path import Path
from .pool import (
    Applied,
    Branch,
    Conflict,
    Difference,
    Ingested,
    LogEntry,
    Merged,
    Pool,
    PoolUsage,
    View,
    open_pool,
)
from .task import Task
from .tree import Memory, Volume, memory, open_volume

__all__ = [
    "Applied",
    "Branch",
    "Conflict",
    "Difference",
    "DirEntry",
    "File",
    "Ingested",
    "LogEntry",
    "Memory",
    "Merged",
    "Path",
    "Pool",
    "PoolUsage",
    "Task",
    "View",
    "Volume",
    "__version__",
    "memory",
    "open_pool",
    "open_volume",
]
