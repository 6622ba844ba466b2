//! Data that the kernel holds back: pages of shared mappings that it has not written yet.
//!
//! Linux asks for data and holes without writing these first, and tells the server of no mapping
//! (and in exclusive use of no open). But a page that is a hole here has data there only if the
//! kernel has read it as zeros. So the server notes of which nodes it has sent a page of zeros. Of
//! these it has the kernel write its pages, and drop them, before it answers. The kernel sends the
//! pages in requests, for which there has to be a worker: so none waits, but a thread does.
//!
//! The server does so too where a time is set: stores before that arrive before the answer, and
//! leave the time alone. A store afterwards needs its page anew, arrives later, and changes the
//! time.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use vfscale::posix::Whence;
use vfscale::{Errno, File};

use super::files::Target;
use crate::base::device::Device;
use crate::session::{DeferredReply, Late};
use crate::wire::reply::Reply;

/// The unit in which files have data or holes. The kernel's pages have at least this size.
const PAGE: usize = 4096;

/// Returns whether a page of the bytes has only zeros.
pub(super) fn has_zero_page(bytes: &[u8]) -> bool {
    bytes.chunks(PAGE).any(|page| page[0] == 0 && page.iter().all(|byte| *byte == 0))
}

/// A task of the thread.
enum Task {
    Answer(Seek),
    Settle(Settle),
    DropAttributes(u64),
}

/// A question for the data or holes of a node.
pub(super) struct Seek {
    pub(super) node: u64,
    pub(super) file: Target,
    pub(super) whence: Whence,
    pub(super) later: DeferredReply,
}

impl Seek {
    fn answer(self, device: &Device) {
        let (Whence::Data(offset) | Whence::Hole(offset)) = self.whence else { return };
        take_pages(device, self.node, offset);
        let found = self.file.seek(self.whence).map_err(Errno::from);
        self.later.answer(found.map(Late::Number));
    }
}

/// A time of a node that was set, and is to outlive what was stored in mappings before.
pub(super) struct Settle {
    pub(super) node: u64,
    pub(super) file: File,
    /// The inode number to show, and how long attributes are valid.
    pub(super) shown: (u64, Duration),
    pub(super) later: DeferredReply,
}

impl Settle {
    fn answer(self) {
        let (ino, valid) = self.shown;
        let stat = self.file.stat().map_err(Errno::from);
        self.later.answer(stat.map(|stat| Late::Attr(stat, ino, valid)));
    }
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unused,
    Running(Sender<Task>, JoinHandle<()>),
    Ended,
}

/// Has the kernel send the data that it holds back.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    device: OnceLock<Arc<Device>>,
    state: Mutex<State>,
    /// The nodes whose times are being settled.
    settling: Arc<Mutex<Vec<u64>>>,
}

impl Unsent {
    /// Sets the connection to the kernel. Until then there are no requests.
    pub(crate) fn connect(&self, device: &Arc<Device>) {
        let _ = self.device.set(Arc::clone(device));
    }

    /// Returns the connection to the kernel.
    pub(super) fn device(&self) -> Option<&Arc<Device>> {
        self.device.get()
    }

    /// Has the thread do something. Returns it if no thread can be started.
    fn pass(&self, task: Task) -> Result<(), Task> {
        let mut state = lock(&self.state);
        if let (State::Unused, Some(device)) = (&*state, self.device.get()) {
            let (sender, tasks) = channel::<Task>();
            let (device, settling) = (Arc::clone(device), Arc::clone(&self.settling));
            let run = move || tasks.iter().for_each(|task| task.run(&device, &settling));
            match thread::Builder::new().name("fuse-unsent".into()).spawn(run) {
                Ok(thread) => *state = State::Running(sender, thread),
                Err(error) => tracing::warn!("the kernel can't be asked for its pages: {error}"),
            }
        }
        match &*state {
            State::Running(sender, _) => sender.send(task).map_err(|unsent| unsent.0),
            _ => Err(task),
        }
    }

    /// Answers when the kernel has sent its pages of the node. Without a thread, which can't be
    /// started then, all of the file is taken for data.
    pub(super) fn ask(&self, seek: Seek) {
        if let Err(Task::Answer(seek)) = self.pass(Task::Answer(seek)) {
            let found = as_data(&seek.file, seek.whence);
            seek.later.answer(found.map(Late::Number));
        }
    }

    /// Answers when the kernel has sent its pages of the node, which change no time until then. Not
    /// while the kernel truncates the file: it sends none before it has the answer.
    pub(super) fn settle(&self, settle: Settle) {
        let node = settle.node;
        lock(&self.settling).push(node);
        if let Err(Task::Settle(settle)) = self.pass(Task::Settle(settle)) {
            settled(&self.settling, node);
            settle.answer();
        }
    }

    /// Returns whether pages of a node that arrive now change no time.
    pub(super) fn is_settling(&self, node: u64) -> bool {
        lock(&self.settling).contains(&node)
    }

    /// Makes the kernel ask for the attributes of a node again. The caller serves a request for an
    /// open file of it, so the kernel does not wait for anything.
    pub(super) fn drop_attributes(&self, node: u64) {
        if let Some(device) = self.device.get() {
            drop_attributes(device, node);
        }
    }

    /// Makes the kernel ask for the attributes of a node again, some time after this returns.
    pub(super) fn drop_attributes_later(&self, node: u64) {
        let _ = self.pass(Task::DropAttributes(node));
    }

    /// Ends the thread, when the connection has ended.
    pub(super) fn end(&self) {
        let state = std::mem::replace(&mut *lock(&self.state), State::Ended);
        if let State::Running(sender, thread) = state {
            drop(sender);
            let _ = thread.join();
        }
    }
}

impl Task {
    fn run(self, device: &Device, settling: &Mutex<Vec<u64>>) {
        match self {
            Task::Answer(seek) => seek.answer(device),
            Task::Settle(settle) => {
                take_pages(device, settle.node, 0);
                settled(settling, settle.node);
                settle.answer();
            }
            Task::DropAttributes(node) => drop_attributes(device, node),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends one settling of a node.
fn settled(settling: &Mutex<Vec<u64>>, node: u64) {
    let mut settling = lock(settling);
    if let Some(at) = settling.iter().position(|other| *other == node) {
        settling.swap_remove(at);
    }
}

/// Has the kernel send and drop its pages of a node from an offset on. Blocks until they arrived.
fn take_pages(device: &Device, node: u64, offset: u64) {
    if let Err(error) = device.send(Reply::new().inval_inode(node, offset as i64)) {
        tracing::debug!(node, "the kernel was not told to write its pages: {error}");
    }
}

fn drop_attributes(device: &Device, node: u64) {
    // A kernel that does not know the node has no attributes.
    let _ = device.send(Reply::new().inval_inode(node, -1));
}

/// Returns the answer that takes all of a file for data.
fn as_data(file: &File, whence: Whence) -> Result<u64, Errno> {
    let size = file.stat()?.size;
    match whence {
        Whence::Data(offset) if offset < size => Ok(offset),
        Whence::Hole(offset) if offset < size => Ok(size),
        _ => Err(Errno::NXIO),
    }
}

#[cfg(test)]
mod tests;
