//! Open file descriptions. Counterpart of `struct file` in Linux.
//!
//! An [`OpenFile`] is the path it was opened at, a mode, status flags and a position. It is on a
//! list of its superblock, which a remount walks. [`File`](crate::file::open_file::File) is a
//! handle on one, with the calls.

use bitflags::bitflags;
use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicU8, AtomicU32, Ordering};
use vfscale_sync::errseq::{ErrorCursor, ErrorSeq};
use vfscale_sync::rcu;
use vfscale_sync::shared::{Listable, Listed, Shared};

use crate::base::lock_classes::FilesLock;
use crate::base::types::OFlags;
use crate::ipc::pipe::Ends;
use crate::objects::f_pos::Position;
use crate::objects::fsnotify::{self, queue::FileChange};
use crate::objects::inode::Inode;
use crate::objects::inode_ext::InodeExt;
use crate::objects::vfsmount::{FilePath, Mount, Path};

bitflags! {
    /// The mode of an open file (`f_mode`): the operations that it allows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct FileMode: u8 {
        const READ = 1;
        const WRITE = 2;
        /// Only a path (`O_PATH`).
        const PATH = 4;
        /// The opener's writes may preserve set-id bits.
        const FSETID = 8;
        /// The opener is in the file's group, so its writes may preserve a set-group-id bit that
        /// marks mandatory locks.
        const GROUP = 16;
        /// Readable as a stream; without [`READ`](Self::READ), which is for files with positions.
        const STREAM_READ = 32;
        /// Writable as a stream; without [`WRITE`](Self::WRITE), which prevents mounts from
        /// becoming read-only.
        const STREAM_WRITE = 64;
        /// The opener has a root of its own, so no message may have a path from above it.
        const ROOTED = 128;
        const STREAM = 32 | 64;
        const CAN_READ = 1 | 32;
        const CAN_WRITE = 2 | 64;
    }
}

impl FileMode {
    /// Converts the mode for a file without positions.
    pub(crate) fn as_stream(self) -> FileMode {
        let mut mode = self.difference(FileMode::READ | FileMode::WRITE);
        mode.set(FileMode::STREAM_READ, self.contains(FileMode::READ));
        mode.set(FileMode::STREAM_WRITE, self.contains(FileMode::WRITE));
        mode
    }

    /// Returns the error of a call with a position that the file does not allow.
    #[inline]
    pub(crate) fn no_position(self) -> Errno {
        if self.intersects(FileMode::STREAM) { Errno::SPIPE } else { Errno::BADF }
    }
}

impl Ends {
    /// Returns the ends of an open file.
    pub(crate) fn of(mode: FileMode) -> Ends {
        Ends {
            read: mode.intersects(FileMode::CAN_READ),
            write: mode.intersects(FileMode::CAN_WRITE),
        }
    }
}

/// An open file on the lists of its superblock.
pub(crate) type SharedFile = Shared<OpenFile, Listed<FilesLock>>;

/// The file holds, or held, advisory locks that end with it.
const HAS_LOCKS: u8 = 1;
/// The file's mount counts it, because it is on a private list.
const COUNTED: u8 = 2;
/// The file is an end of a stream, which is notified when it is closed.
const STREAMS: u8 = 4;
/// The file is on a private list.
const PRIVATE: u8 = 8;
/// The file was changed through it while it was watched, which its close reports.
const CHANGED: u8 = 16;

/// An open file description. Counterpart of `struct file` in Linux.
///
/// The fields that calls read are on one cache line; the position, which reads and writes without
/// an offset change, is on another, and the number of handles on a third. So calls that do not use
/// the position share no written line with each other, and calls that change the position share
/// none with a `close` of another handle.
#[repr(C, align(64))]
pub(crate) struct OpenFile {
    place: FilePath,
    mode: FileMode,
    state: AtomicU8,
    flags: AtomicU32,
    told: Told,
    pub(crate) pos: Position,
}

/// The errors of write-back that an open file has reported; see [`errseq`](vfscale_sync::errseq).
#[derive(Default)]
pub(crate) struct Told {
    /// The errors of its file (`f_wb_err`).
    pub(crate) file: ErrorCursor,
    /// The errors of all files of its file system (`f_sb_err`).
    pub(crate) all: ErrorCursor,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    assert!(std::mem::offset_of!(OpenFile, pos) == 64, "what calls read fits one line");
    assert!(size_of::<OpenFile>() == 128);
};

impl Listable for OpenFile {
    #[inline]
    fn has_duties(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    #[cold]
    fn ended(&self) {
        self.end_state(self.state.load(Ordering::Acquire));
    }
}

impl Told {
    /// Returns the cursors of a file that is being opened.
    #[inline]
    pub(crate) fn now(inode: &Inode) -> Told {
        // A driver without directories writes nothing back.
        if inode.is_backed() { Told::sample(inode) } else { Told::default() }
    }

    #[cold]
    fn sample(inode: &Inode) -> Told {
        let fs = inode.sb().fs();
        let cursor = |errors: Option<&ErrorSeq>| errors.map(ErrorCursor::new).unwrap_or_default();
        Told { file: cursor(fs.write_errors(inode)), all: cursor(fs.all_write_errors()) }
    }
}

impl OpenFile {
    /// Opens a place. With [`FileMode::WRITE`], the caller has announced a change to the mount
    /// ([`WriteAccess`](crate::objects::vfsmount::WriteAccess)), which ends after the file is on
    /// its list.
    pub(crate) fn new(path: Path, mode: FileMode, flags: OFlags) -> OpenFile {
        let place = FilePath::new(path);
        let told = Told::now(place.inode());
        OpenFile {
            place,
            told,
            mode,
            flags: AtomicU32::new(flags.bits()),
            state: AtomicU8::new(0),
            pos: Position::new(),
        }
    }

    #[inline]
    pub(crate) fn inode(&self) -> &Inode {
        self.place.inode()
    }

    #[inline]
    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }

    /// Returns the number of [`File::id`](crate::file::open_file::File::id).
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        std::ptr::from_ref(self) as usize as u64
    }

    #[inline]
    pub(crate) fn mode(&self) -> FileMode {
        self.mode
    }

    #[inline]
    pub(crate) fn told(&self) -> &Told {
        &self.told
    }

    /// Notes that the extension of its inode must be notified when it is closed.
    pub(crate) fn note_stream(&self) {
        self.state.fetch_or(STREAMS, Ordering::Release);
    }

    #[inline]
    pub(crate) fn flags(&self) -> OFlags {
        OFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets all flags.
    pub(crate) fn set_flags(&self, flags: OFlags) {
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_for_writing(&self) -> bool {
        self.mode.contains(FileMode::WRITE)
    }

    /// Returns whether it was opened for writing through `mount`.
    pub(crate) fn writes_to(&self, mount: &Mount) -> bool {
        self.is_for_writing() && std::ptr::eq(self.path().mount(), mount)
    }

    pub(crate) fn note_locks(&self) {
        self.state.fetch_or(HAS_LOCKS, Ordering::Release);
    }

    /// Reports that the data of the file was changed through it.
    #[inline]
    pub(crate) fn changed(&self) {
        if self.inode().sb().watches().is_watched() {
            self.report_change();
        }
    }

    #[cold]
    fn report_change(&self) {
        self.state.fetch_or(CHANGED, Ordering::Release);
        fsnotify::changed(self.path().dentry(), &FileChange::Modified);
    }

    /// Notes that its mount counts the file, which the close must undo.
    pub(crate) fn note_counted(&self) {
        self.state.fetch_or(COUNTED, Ordering::Release);
    }

    /// Notes that the file left the list of its superblock, which now counts it.
    pub(crate) fn note_private(&self) {
        self.path().mount().sb().count_private(1);
        self.state.fetch_or(PRIVATE, Ordering::Release);
    }

    #[cold]
    fn end_state(&self, state: u8) {
        if state & PRIVATE != 0 {
            let sb = self.path().mount().sb();
            sb.count_private(-1);
            sb.quotas().files.give(1);
        }
        if state & CHANGED != 0 {
            fsnotify::changed(self.path().dentry(), &FileChange::Closed);
        }
        if state & HAS_LOCKS != 0 {
            self.release_locks();
        }
        if state & COUNTED != 0 {
            self.path().mount().drop_unlisted();
        }
        if state & STREAMS != 0 {
            self.release_stream();
        }
    }

    /// Releases the ends of a stream that the file has opened.
    pub(crate) fn release_stream(&self) {
        match self.inode().stream() {
            Some(InodeExt::Pipe(pipe)) => pipe.close(Ends::of(self.mode())),
            Some(InodeExt::Socket(socket)) => socket.close(),
            Some(InodeExt::Text(text)) => text.forget(self.id()),
            Some(InodeExt::Memory(_) | InodeExt::Directories(_)) | None => {}
        }
    }

    /// Releases the advisory locks that end with the file.
    fn release_locks(&self) {
        let guard = rcu::pin();
        if let Some(extra) = self.inode().extra(&guard) {
            extra.locks.release_file(self.id());
        }
    }
}
