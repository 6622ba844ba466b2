//! Results that are objects of Python's module `os`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use vfscale::Timestamp;
use vfscale::posix::{MountFlags, Stat, StatFs};

static STAT_RESULT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static STATVFS_RESULT: PyOnceLock<Py<PyType>> = PyOnceLock::new();

fn seconds(time: Timestamp) -> f64 {
    time.secs() as f64 + 1e-9 * f64::from(time.nanos())
}

/// Returns attributes as an `os.stat_result`.
pub(crate) fn stat<'py>(py: Python<'py>, stat: &Stat) -> PyResult<Bound<'py, PyAny>> {
    // The ten that are members of the tuple, then those that are only attributes.
    let fields = PyTuple::new(
        py,
        [
            stat.mode.into_pyobject(py)?.into_any(),
            stat.ino.into_pyobject(py)?.into_any(),
            stat.dev.into_pyobject(py)?.into_any(),
            stat.nlink.into_pyobject(py)?.into_any(),
            stat.uid.into_pyobject(py)?.into_any(),
            stat.gid.into_pyobject(py)?.into_any(),
            stat.size.into_pyobject(py)?.into_any(),
            stat.atime.secs().into_pyobject(py)?.into_any(),
            stat.mtime.secs().into_pyobject(py)?.into_any(),
            stat.ctime.secs().into_pyobject(py)?.into_any(),
            seconds(stat.atime).into_pyobject(py)?.into_any(),
            seconds(stat.mtime).into_pyobject(py)?.into_any(),
            seconds(stat.ctime).into_pyobject(py)?.into_any(),
            stat.atime.0.into_pyobject(py)?.into_any(),
            stat.mtime.0.into_pyobject(py)?.into_any(),
            stat.ctime.0.into_pyobject(py)?.into_any(),
            stat.blksize.into_pyobject(py)?.into_any(),
            stat.blocks.into_pyobject(py)?.into_any(),
            stat.rdev.into_pyobject(py)?.into_any(),
        ],
    )?;
    STAT_RESULT.import(py, "os", "stat_result")?.call1((fields,))
}

/// Returns the flags of a mount with the values of `statvfs(3)`.
fn mount_flags(flags: MountFlags) -> u64 {
    [
        (MountFlags::RDONLY, 1),
        (MountFlags::NOSUID, 2),
        (MountFlags::NODEV, 4),
        (MountFlags::NOEXEC, 8),
        (MountFlags::NOATIME, 1024),
        (MountFlags::NODIRATIME, 2048),
        (MountFlags::RELATIME, 4096),
        (MountFlags::NOSYMFOLLOW, 8192),
    ]
    .iter()
    .filter(|(flag, _)| flags.contains(*flag))
    .fold(0, |all, (_, bit)| all | bit)
}

/// Returns the state of a file system as an `os.statvfs_result`.
pub(crate) fn statvfs<'py>(py: Python<'py>, stat: &StatFs) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyTuple::new(
        py,
        [
            u64::from(stat.block_size),
            u64::from(stat.block_size),
            stat.blocks,
            stat.blocks_free,
            stat.blocks_available,
            stat.files,
            stat.files_free,
            stat.files_free,
            mount_flags(stat.flags),
            u64::from(stat.name_max),
            stat.fsid,
        ],
    )?;
    STATVFS_RESULT.import(py, "os", "statvfs_result")?.call1((fields,))
}
