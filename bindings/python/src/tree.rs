//! Trees in memory, and volumes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use vfscale::block::Ceph;
use vfscale::{Credentials, Errno, Vfs};

use crate::cell::{Cell, TaskCell};
use crate::changes::Changes;
use crate::error::{OrRaise, closed, fenced, os_error, volume_error};
use crate::gil;
use crate::path::FsPath;

/// The tasks and open files of a tree.
#[derive(Default)]
pub(crate) struct Users {
    /// Whether calls may wait for a device.
    pub(crate) blocks: bool,
    /// Whether anything has changed, in a tree in memory.
    pub(crate) changes: Changes,
    /// The open files that are Python objects.
    files: AtomicUsize,
    tasks: Mutex<Vec<Weak<Cell<Arc<vfscale::Task>>>>>,
}

impl Users {
    fn new(blocks: bool) -> Arc<Users> {
        Arc::new(Users { blocks, ..Users::default() })
    }

    /// Makes the cell of a task, which [`Volume`] empties when it is closed.
    pub(crate) fn adopt(&self, task: vfscale::Task) -> TaskCell {
        let cell = Arc::new(Cell::new(Arc::new(task)));
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| task.strong_count() > 0);
        }
        tasks.push(Arc::downgrade(&cell));
        cell
    }

    /// Ends all tasks.
    fn end_tasks(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks.iter().filter_map(Weak::upgrade) {
            drop(task.take());
        }
    }
}

/// A use of a tree by an open file.
pub(crate) struct FileUse(Arc<Users>);

impl FileUse {
    pub(crate) fn new(users: &Arc<Users>) -> FileUse {
        users.files.fetch_add(1, Ordering::Relaxed);
        FileUse(users.clone())
    }
}

impl Drop for FileUse {
    fn drop(&mut self) {
        self.0.files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A tree of files in memory. `vfscale.memory` makes one.
#[pyclass(frozen, subclass, module = "vfscale._vfscale")]
pub(crate) struct Memory {
    vfs: Vfs,
    users: Arc<Users>,
}

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (size=None, *, inodes=None, mode=0o755, uid=0, gid=0))]
    fn new(
        size: Option<u64>,
        inodes: Option<u64>,
        mode: u32,
        uid: u32,
        gid: u32,
    ) -> PyResult<Memory> {
        let mut options = vfscale::memory().mode(mode).owner(uid, gid);
        if let Some(size) = size {
            options = options.size(size);
        }
        if let Some(inodes) = inodes {
            options = options.inodes(inodes);
        }
        Ok(Memory { vfs: options.build().or_raise()?, users: Users::new(false) })
    }
}

/// Returns a time in seconds.
fn seconds(time: f64) -> PyResult<Duration> {
    let invalid = |_| PyValueError::new_err(format!("{time} is no time in seconds"));
    Duration::try_from_secs_f64(time).map_err(invalid)
}

/// A volume in an image file or on a device. `vfscale.open_volume` opens one.
#[pyclass(frozen, subclass, module = "vfscale._vfscale")]
pub(crate) struct Volume {
    volume: Cell<Arc<vfscale::Volume>>,
    users: Arc<Users>,
    path: FsPath,
    is_new: bool,
}

#[pymethods]
impl Volume {
    #[new]
    #[pyo3(signature = (
        path, *, create=None, read_only=false, cache_size=None, mode=0o755, uid=0, gid=0,
        ceph_conf=None, ceph_id=None, take_over=false, patience=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        path: FsPath,
        create: Option<u64>,
        read_only: bool,
        cache_size: Option<u64>,
        mode: u32,
        uid: u32,
        gid: u32,
        ceph_conf: Option<FsPath>,
        ceph_id: Option<String>,
        take_over: bool,
        patience: Option<f64>,
    ) -> PyResult<Volume> {
        let ceph = Ceph { conf: ceph_conf.map(|conf| conf.path().to_owned()), id: ceph_id };
        let mut options = vfscale::volume(path.path()).read_only(read_only).ceph(ceph);
        options = options.take_over(take_over).patience(patience.map(seconds).transpose()?);
        if let Some(bytes) = create {
            options = options.create(bytes).mode(mode).owner(uid, gid);
        }
        if let Some(bytes) = cache_size {
            options = options.cache_size(bytes);
        }
        let volume = py.detach(|| options.open()).map_err(|error| volume_error(&error, &path))?;
        let is_new = volume.is_new();
        Ok(Volume { volume: Cell::new(Arc::new(volume)), users: Users::new(true), path, is_new })
    }

    /// Whether the image was made when the volume was opened.
    #[getter]
    fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether the volume was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.volume.is_empty()
    }

    /// The path of the image, as it was passed.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.path.named(py, self.path.path().as_os_str())
    }

    /// Makes all changes so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let volume = self.volume.get().ok_or_else(|| closed("volume"))?;
        let synced = py.detach(|| volume.sync());
        synced.map_err(|error| volume_error(&error, &self.path))
    }

    /// Asks the device whether this process still has it; if another machine has taken it over, the
    /// volume writes nothing any more. Does nothing for an image in a file.
    ///
    /// Raises `OSError` with `ESHUTDOWN` if another machine has taken the volume over.
    fn prove(&self, py: Python<'_>) -> PyResult<()> {
        let volume = self.volume.get().ok_or_else(|| closed("volume"))?;
        let fence = volume.fence();
        drop(volume);
        py.detach(|| fence.check()).map_err(|error| fenced(&error, &self.path))
    }

    /// Makes all changes durable, ends the tasks of the volume, closes it and releases its image.
    ///
    /// Raises `OSError` with `EBUSY` if files are open; the volume then stays open. Closing it
    /// again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(volume) = self.volume.take() else { return Ok(()) };
        let busy = || os_error(Errno::BUSY, [Some((&self.path).into()), None]);
        if self.users.files.load(Ordering::Relaxed) > 0 {
            self.volume.put(volume);
            return Err(busy());
        }
        // Another thread may be in a sync.
        let volume = Arc::try_unwrap(volume).map_err(|volume| {
            self.volume.put(volume);
            busy()
        })?;
        self.users.end_tasks();
        let closed = py.detach(|| volume.close());
        closed.map_err(|error| {
            let raised = volume_error(error.error(), &self.path);
            if let Some(volume) = error.into_volume() {
                self.volume.put(Arc::new(volume));
            }
            raised
        })
    }

    /// Releases the volume without reporting errors; its tasks and files go on.
    fn _release(&self, py: Python<'_>) {
        let volume = self.volume.take();
        py.detach(|| drop(volume));
    }
}

/// Makes a task of a tree in memory or a volume.
pub(crate) fn new_task(
    tree: &Bound<'_, PyAny>,
    credentials: Credentials,
    root: Option<&FsPath>,
) -> PyResult<(TaskCell, Arc<Users>)> {
    let (vfs, users) = if let Ok(memory) = tree.cast::<Memory>() {
        (memory.get().vfs.clone(), &memory.get().users)
    } else if let Ok(volume) = tree.cast::<Volume>() {
        let vfs = volume.get().volume.with(|volume| volume.vfs().clone());
        (vfs.ok_or_else(|| closed("volume"))?, &volume.get().users)
    } else {
        return Err(PyTypeError::new_err("a task is of a tree in memory or a volume"));
    };
    let task = match root {
        None => vfs.task_as(credentials),
        Some(root) => {
            let enter = || vfs.task_in(root.path(), credentials);
            gil::run(tree.py(), users.blocks, enter).or_raise_on(root)?
        }
    };
    Ok((users.adopt(task), users.clone()))
}
