//! The state of a file system as far as calls can observe it.

use std::collections::{BTreeMap, VecDeque};

use vfscale::posix::OFlags;
use vfscale::{Errno, FileType};

use crate::case::{Outcome, PROCESSES, SLOTS};

/// Result of a call of the model.
pub(super) type CallResult = Result<Outcome, Errno>;

/// Bytes of a page, the unit of data.
pub const PAGE: u64 = 4096;

/// Device number of inodes that belong to no file system: pipes.
const NO_DEVICE: u32 = u32::MAX;

/// Indexes into the lists of a state, from which nothing is removed.
pub(super) type InodeId = usize;
pub(super) type DentryId = usize;
pub(super) type FileId = usize;

/// The root directory.
pub(super) const ROOT: DentryId = 0;

/// A state of the file system and of the two processes.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) inodes: Vec<Inode>,
    pub(super) dentries: Vec<Dentry>,
    files: Vec<OpenFile>,
    pub(super) slots: [[Option<FileId>; SLOTS]; PROCESSES],
    pub(super) cwd: [DentryId; PROCESSES],
    /// Covered directory and covering root of each mount.
    pub(super) mounts: Vec<(DentryId, DentryId)>,
    /// Whether changes of times are recorded, which begins with the two calls of a case.
    pub(super) notes_times: bool,
}

/// Counterpart of `struct inode` in Linux: a file of any type.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) device: u32,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    /// Whether the modification time was set since recording began.
    pub(super) mtime_changed: bool,
    pub(super) ctime_changed: bool,
    /// Extended attributes: values by name, as (length, repeated byte).
    pub(super) xattrs: BTreeMap<String, (usize, u8)>,
    pub(super) body: Body,
}

/// Content of a file.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Directory(BTreeMap<String, DentryId>),
    /// The byte that fills each page; `None` for a hole.
    File(Vec<Option<u8>>),
    Symlink(String),
    /// Bytes written and not yet read; each represents a page.
    Pipe(VecDeque<u8>),
}

/// Counterpart of `struct dentry` in Linux: a name. It outlives its removal, because open files and
/// working directories refer to it.
#[derive(Clone, Debug)]
pub(super) struct Dentry {
    /// Parent directory; the dentry itself for a root or a pipe.
    pub(super) parent: DentryId,
    pub(super) name: String,
    pub(super) inode: InodeId,
    pub(super) removed: bool,
}

/// Counterpart of `struct file` in Linux: an open file description.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    pub(super) dentry: DentryId,
    pub(super) inode: InodeId,
    pub(super) flags: OFlags,
    /// File position in bytes.
    pub(super) position: u64,
}

impl OpenFile {
    pub(super) fn reads(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::WRONLY
    }

    pub(super) fn writes(&self) -> bool {
        self.flags & OFlags::ACCMODE != OFlags::RDONLY
    }
}

impl Body {
    pub(super) fn file_type(&self) -> FileType {
        match self {
            Body::Directory(_) => FileType::Directory,
            Body::File(_) => FileType::RegularFile,
            Body::Symlink(_) => FileType::Symlink,
            Body::Pipe(_) => FileType::Fifo,
        }
    }
}

impl Default for State {
    fn default() -> State {
        State::new()
    }
}

impl State {
    /// Creates an empty file system whose root is the working directory of both processes.
    #[must_use]
    pub fn new() -> State {
        let mut state = State {
            inodes: Vec::new(),
            dentries: Vec::new(),
            files: Vec::new(),
            slots: Default::default(),
            cwd: [ROOT; PROCESSES],
            mounts: Vec::new(),
            notes_times: false,
        };
        state.new_root(0);
        state
    }

    /// Creates the root directory of a new file system.
    pub(super) fn new_root(&mut self, device: u32) -> DentryId {
        let inode = self.new_inode(device, Body::Directory(BTreeMap::new()), 0o755);
        self.inodes[inode].nlink = 2;
        let id = self.dentries.len();
        self.dentries.push(Dentry { parent: id, name: String::new(), inode, removed: false });
        id
    }

    /// Creates an inode without a name.
    pub(super) fn new_inode(&mut self, device: u32, body: Body, mode: u32) -> InodeId {
        self.inodes.push(Inode {
            device,
            mode,
            nlink: 0,
            mtime_changed: self.notes_times,
            ctime_changed: self.notes_times,
            xattrs: BTreeMap::new(),
            body,
        });
        self.inodes.len() - 1
    }

    /// Begins to record which times change.
    pub fn note_times(&mut self) {
        self.notes_times = true;
        for inode in &mut self.inodes {
            (inode.mtime_changed, inode.ctime_changed) = (false, false);
        }
    }

    /// Marks the data of an inode as changed.
    pub(super) fn changed(&mut self, inode: InodeId) {
        self.inodes[inode].mtime_changed = self.notes_times;
        self.inode_changed(inode);
    }

    /// Marks an inode, but not its data, as changed.
    pub(super) fn inode_changed(&mut self, inode: InodeId) {
        self.inodes[inode].ctime_changed = self.notes_times;
    }

    /// Creates the inode of a pipe and its dentry.
    pub(super) fn new_pipe(&mut self) -> (DentryId, InodeId) {
        let inode = self.new_inode(NO_DEVICE, Body::Pipe(VecDeque::new()), 0o600);
        self.inodes[inode].nlink = 1;
        let id = self.dentries.len();
        self.dentries.push(Dentry { parent: id, name: "pipe:[]".into(), inode, removed: false });
        (id, inode)
    }

    /// Returns the number of inodes ever created. Inodes created later have numbers from this one
    /// on.
    #[must_use]
    pub fn inodes_ever(&self) -> usize {
        self.inodes.len()
    }

    pub(super) fn inode_of(&self, dentry: DentryId) -> &Inode {
        &self.inodes[self.dentries[dentry].inode]
    }

    pub(super) fn body(&self, dentry: DentryId) -> &Body {
        &self.inode_of(dentry).body
    }

    pub(super) fn is_dir(&self, dentry: DentryId) -> bool {
        matches!(self.body(dentry), Body::Directory(_))
    }

    pub(super) fn entries(&self, dir: DentryId) -> Option<&BTreeMap<String, DentryId>> {
        match self.body(dir) {
            Body::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn entries_mut(&mut self, dir: DentryId) -> Option<&mut BTreeMap<String, DentryId>> {
        match &mut self.inodes[self.dentries[dir].inode].body {
            Body::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn pages_mut(&mut self, inode: InodeId) -> Result<&mut Vec<Option<u8>>, Errno> {
        match &mut self.inodes[inode].body {
            Body::File(pages) => Ok(pages),
            Body::Directory(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn slot(&self, process: usize, slot: u8) -> Option<FileId> {
        self.slots[process % PROCESSES][usize::from(slot) % SLOTS]
    }

    pub(super) fn file(&self, file: FileId) -> &OpenFile {
        &self.files[file]
    }

    pub(super) fn file_mut(&mut self, file: FileId) -> &mut OpenFile {
        &mut self.files[file]
    }

    /// Puts an open file into a slot, which closes the slot's previous file.
    pub(super) fn give(&mut self, process: usize, slot: u8, file: FileId) -> CallResult {
        self.slots[process % PROCESSES][usize::from(slot) % SLOTS] = Some(file);
        Ok(Outcome::Done)
    }

    pub(super) fn take(&mut self, process: usize, slot: u8) {
        self.slots[process % PROCESSES][usize::from(slot) % SLOTS] = None;
    }

    /// Opens a file in a slot.
    pub(super) fn install(
        &mut self,
        process: usize,
        slot: u8,
        dentry: DentryId,
        flags: OFlags,
    ) -> CallResult {
        let inode = self.dentries[dentry].inode;
        self.files.push(OpenFile { dentry, inode, flags, position: 0 });
        self.give(process, slot, self.files.len() - 1)
    }

    /// Returns whether any slot holds the write end (`writer`) or read end of a pipe.
    pub(super) fn has_end(&self, inode: InodeId, writer: bool) -> bool {
        self.slots.iter().flatten().flatten().any(|&file| {
            let file = &self.files[file];
            file.inode == inode && file.writes() == writer
        })
    }
}
