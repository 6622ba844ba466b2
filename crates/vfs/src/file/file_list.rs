//! Lists of open files.
//!
//! Every open file is on a list of its superblock. There is a list and a lock for each CPU, so
//! opens and closes on different CPUs share no cache line (Piggin 2009, "files lock"). A file is on
//! the list of the CPU that opened it, whichever CPU closes it. A remount to read-only walks all of
//! them, and so does [`Calls::open_files`](crate::Calls::open_files).
//!
//! An embedder that tracks its open files itself, as a terminal in the kernel does, uses a
//! [`FileList`]: a private list with its own lock. A file that moves to it leaves the superblock's
//! lists. If it is open for writing, its mount counts it instead until it is closed.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use vfscale_sync::shared::SharedList;

use crate::base::lock_classes::FilesLock;
use crate::base::types::OFlags;
use crate::file::open_file::File;
use crate::objects::file_description::OpenFile;

/// A description of an open file.
///
/// ```
/// # use vfscale_vfs::OpenFileInfo;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let files: Vec<OpenFileInfo> = task.posix().open_files("/")?;
/// println!("{files:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenFileInfo {
    /// The identifier of the open file description, as of [`File::id`], while it is open.
    pub id: u64,
    /// The device number of its file system.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// Access mode and status flags.
    pub flags: OFlags,
}

impl OpenFileInfo {
    fn of(file: &OpenFile) -> OpenFileInfo {
        OpenFileInfo {
            id: std::ptr::from_ref(file) as usize as u64,
            dev: file.inode().sb().dev(),
            ino: file.inode().ino(),
            flags: file.flags(),
        }
    }
}

/// Describes the files on a list. Reserves the memory outside of the list's locks.
pub(crate) fn describe(list: &SharedList<OpenFile, FilesLock>) -> Vec<OpenFileInfo> {
    let mut files = Vec::new();
    loop {
        files.reserve(list.len() + 16);
        let mut fits = true;
        list.each(|file| {
            fits = files.len() < files.capacity();
            if !fits {
                return ControlFlow::Break(());
            }
            files.push(OpenFileInfo::of(file));
            ControlFlow::Continue(())
        });
        if fits {
            return files;
        }
        files.clear();
    }
}

/// A private list of open files for their owner. Cheap to clone; `Send` and `Sync`.
///
/// ```
/// # mod vfscale { pub mod posix { pub use vfscale_vfs::*; } }
/// use vfscale::posix::FileList;
///
/// let terminal = FileList::new();
/// assert!(terminal.files().is_empty());
/// ```
#[derive(Clone)]
pub struct FileList(Arc<SharedList<OpenFile, FilesLock>>);

impl FileList {
    /// Creates an empty list.
    pub fn new() -> FileList {
        FileList(Arc::new(SharedList::new(1)))
    }

    /// Moves an open file to this list, until it is closed. The file holds the list. Returns false,
    /// without effect, if the file is already on a private list.
    pub fn adopt(&self, file: &File) -> bool {
        let mount = file.path().mount();
        let counted = file.0.is_for_writing();
        if counted {
            // Counted before the file leaves the superblock's list, so a remount finds it by the
            // list or by the count.
            mount.count_unlisted();
        }
        let moved = file.0.move_to(&self.0);
        if moved {
            file.0.note_private();
        }
        if counted && moved {
            file.0.note_counted();
        } else if counted {
            mount.drop_unlisted();
        }
        moved
    }

    /// Returns the files on it. A file that is opened or closed during the call may or may not be
    /// included.
    pub fn files(&self) -> Vec<OpenFileInfo> {
        describe(&self.0)
    }
}

impl Default for FileList {
    fn default() -> FileList {
        FileList::new()
    }
}

impl fmt::Debug for FileList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileList").field("files", &self.0.len()).finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
