//! What a file system is made of, as far as calls can tell.

use std::collections::{BTreeMap, VecDeque};

use vfscale::{Errno, FileType, OFlags};

use super::Done;
use crate::case::Outcome;
use crate::execute::{PROCESSES, SLOTS};

/// Bytes of a page: data are counted in pages.
pub const PAGE: u64 = 4096;

/// The device number of what is on no file system: pipes.
const NO_DEVICE: u32 = u32::MAX;

/// Numbers of inodes, names and open files: places in the lists of a state, from which nothing is removed.
pub(super) type InodeId = usize;
pub(super) type DentryId = usize;
pub(super) type FileId = usize;

/// The root directory's name.
pub(super) const ROOT: DentryId = 0;

/// One state of the file system and of the two processes.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) inodes: Vec<Inode>,
    pub(super) dentries: Vec<Dentry>,
    files: Vec<OpenFile>,
    pub(super) slots: [[Option<FileId>; SLOTS]; PROCESSES],
    pub(super) cwd: [DentryId; PROCESSES],
    /// What is covered, and the root that covers it.
    pub(super) mounts: Vec<(DentryId, DentryId)>,
    /// Whether changes of times are noted: from when the two calls of a case begin.
    pub(super) notes_times: bool,
}

/// A file of any type.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) device: u32,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    /// Whether the times of the last change were set since they are noted.
    pub(super) mtime_changed: bool,
    pub(super) ctime_changed: bool,
    /// Names of extended attributes, and their values: so many of such a byte.
    pub(super) xattrs: BTreeMap<String, (usize, u8)>,
    pub(super) body: Body,
}

/// What is in a file.
#[derive(Clone, Debug)]
pub(super) enum Body {
    Directory(BTreeMap<String, DentryId>),
    /// The byte that fills each page; `None` is a hole.
    File(Vec<Option<u8>>),
    Symlink(String),
    /// What was written and not read.
    Pipe(VecDeque<u8>),
}

/// A name, also after it was removed, for open files and working directories remember it.
#[derive(Clone, Debug)]
pub(super) struct Dentry {
    /// Itself, for a root and for a pipe.
    pub(super) parent: DentryId,
    pub(super) name: String,
    pub(super) inode: InodeId,
    pub(super) removed: bool,
}

/// An open file description.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    pub(super) dentry: DentryId,
    pub(super) inode: InodeId,
    pub(super) flags: OFlags,
    /// In bytes.
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
    /// An empty file system; both processes are in its root.
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

    /// The root directory of a new file system.
    pub(super) fn new_root(&mut self, device: u32) -> DentryId {
        let inode = self.new_inode(device, Body::Directory(BTreeMap::new()), 0o755);
        self.inodes[inode].nlink = 2;
        let id = self.dentries.len();
        self.dentries.push(Dentry { parent: id, name: String::new(), inode, removed: false });
        id
    }

    /// A new inode without a name.
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

    /// From here on it is noted which times change.
    pub fn note_times(&mut self) {
        self.notes_times = true;
        for inode in &mut self.inodes {
            (inode.mtime_changed, inode.ctime_changed) = (false, false);
        }
    }

    /// The data of an inode have changed.
    pub(super) fn changed(&mut self, inode: InodeId) {
        self.inodes[inode].mtime_changed = self.notes_times;
        self.inode_changed(inode);
    }

    /// An inode has changed, and not its data.
    pub(super) fn inode_changed(&mut self, inode: InodeId) {
        self.inodes[inode].ctime_changed = self.notes_times;
    }

    /// A new inode of a pipe, and the name that leads to it.
    pub(super) fn new_pipe(&mut self) -> (DentryId, InodeId) {
        let inode = self.new_inode(NO_DEVICE, Body::Pipe(VecDeque::new()), 0o600);
        self.inodes[inode].nlink = 1;
        let id = self.dentries.len();
        self.dentries.push(Dentry { parent: id, name: "pipe:[]".into(), inode, removed: false });
        (id, inode)
    }

    /// How many inodes there ever were. Those of the calls to come have numbers from this one on.
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

    /// Makes an open file the one of a slot; what was there is closed.
    pub(super) fn give(&mut self, process: usize, slot: u8, file: FileId) -> Done {
        self.slots[process % PROCESSES][usize::from(slot) % SLOTS] = Some(file);
        Ok(Outcome::Done)
    }

    pub(super) fn take(&mut self, process: usize, slot: u8) {
        self.slots[process % PROCESSES][usize::from(slot) % SLOTS] = None;
    }

    /// Opens a file at a slot.
    pub(super) fn install(
        &mut self,
        process: usize,
        slot: u8,
        dentry: DentryId,
        flags: OFlags,
    ) -> Done {
        let inode = self.dentries[dentry].inode;
        self.files.push(OpenFile { dentry, inode, flags, position: 0 });
        self.give(process, slot, self.files.len() - 1)
    }

    /// Whether anybody has an end of a pipe open: that to write to, or that to read from.
    pub(super) fn has_end(&self, inode: InodeId, writer: bool) -> bool {
        self.slots.iter().flatten().flatten().any(|&file| {
            let file = &self.files[file];
            file.inode == inode && file.writes() == writer
        })
    }
}
