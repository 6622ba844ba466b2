//! Trees in memory, and volumes.

use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt};
use vfscale::options::{OptionError, Options, Size};
use vfscale::{Credentials, Errno, Vfs};

use crate::cell::{Cell, TaskCell};
use crate::changes::Changes;
use crate::error::{OrRaise, closed, fenced, os_error, volume_error};
use crate::gil;
use crate::path::FsPath;
use crate::pool::Pool;

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
    #[pyo3(signature = (size=None, **options))]
    fn new(size: Option<u64>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Memory> {
        let mut options = given(options)?;
        options.size = size.map(Size::Bytes);
        let builder = options.memory(vfscale::memory()).map_err(|e| refused(&e))?;
        Ok(Memory { vfs: builder.build().or_raise()?, users: Users::new(false) })
    }
}

/// Makes the error of an option: as Python's own for a keyword that a function does not have.
fn refused(error: &OptionError) -> PyErr {
    match error {
        OptionError::Invalid { .. } => PyValueError::new_err(error.to_string()),
        _ => PyTypeError::new_err(error.to_string()),
    }
}

/// Returns the options of keywords: `bool` for what is on or off, an integer for a mode, otherwise
/// a number, text or path. `None` is the default of each.
fn given(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::default();
    for (name, value) in keywords.into_iter().flatten() {
        if value.is_none() {
            continue;
        }
        let name: String = name.extract()?;
        let text: OsString = if let Ok(on) = value.cast::<PyBool>() {
            if on.is_true() { "true" } else { "false" }.into()
        } else if value.is_instance_of::<PyInt>() && name == "mode" {
            format!("{:o}", value.extract::<u32>()?).into()
        } else if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
            value.str()?.extract()?
        } else {
            value.extract::<FsPath>()?.path().into()
        };
        options.set(&name, Some(&text)).map_err(|e| refused(&e))?;
    }
    Ok(options)
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
    #[pyo3(signature = (path, *, _branch=None, **options))]
    fn new(
        py: Python<'_>,
        path: FsPath,
        _branch: Option<(PyRef<'_, Pool>, String)>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Volume> {
        let builder = match &_branch {
            Some((pool, name)) => pool.get()?.branch(name),
            None => vfscale::volume(path.path()),
        };
        let options = given(options)?.volume(builder);
        let options = options.map_err(|e| refused(&e))?;
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
