//! Lookups, lists of entries, and the directory calls of the VFS.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use rustix::io::Errno;
use vfscale_vfs::driver::{DirEntry, DirOps, Found, NewInode, ParentName, Rename};
use vfscale_vfs::inode::{Inode, InodeRef};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::types::FileType;

use super::disk_fs::DiskFs;
use super::inodes::node_of;
use crate::base::fault::Fault;
use crate::format::dir::POSITION_MAX;
use crate::format::inode::ROOT_INO;
use crate::inode::core::{FileKind, InodeCore};
use crate::inode::delayed_names::NamedInode;
use crate::inode::incore::Node;

/// The number of entries that are read while the directory is locked once.
const BATCH: usize = 256;

/// An entry of a directory that is no longer locked.
struct ListedEntry {
    position: u64,
    ino: u64,
    kind: FileKind,
    name: Box<[u8]>,
}

/// Some entries of a directory.
struct Listing {
    entries: Vec<ListedEntry>,
    /// The position behind which there are others; `None` at the end.
    behind: Option<u64>,
}

impl DiskFs {
    /// Reads up to [`BATCH`] entries behind a position, or none if all of these were removed since
    /// the directory was written.
    fn entries(&self, node: &Node, behind: u64) -> Result<Listing, Fault> {
        let mut entries = Vec::with_capacity(BATCH);
        let reading = node.read();
        let (directory, reader) = (self.directory(node), self.volume.reader());
        let mut add = |entry: crate::dir::DirEntry<'_>| {
            let (position, ino, kind) = (entry.position, entry.ino, entry.kind);
            entries.push(ListedEntry { position, ino, kind, name: entry.name.into() });
            if entries.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        match node.delayed_names() {
            Some(names) => {
                names.with_stored(|core| directory.read(&reader, core, behind, &mut add))?;
            }
            None => directory.read(&reader, &node.core(), behind, &mut add)?,
        }
        let last = entries.last().filter(|_| entries.len() == BATCH).map(|last| last.position);
        if let Some(names) = node.delayed_names() {
            let changes = names.between(behind, last.unwrap_or(POSITION_MAX));
            if !changes.is_empty() {
                entries = changed(entries, changes);
            }
        }
        drop(reading);
        Ok(Listing { entries, behind: last })
    }

    /// Looks a name up: among the delayed ones first, then in the directory on disk.
    fn entry_of(&self, node: &Node, name: &[u8]) -> Result<Option<u64>, Fault> {
        let _reading = node.read();
        let (directory, reader) = (self.directory(node), self.volume.reader());
        let Some(names) = node.delayed_names() else {
            return Ok(directory.lookup(&reader, &node.core(), name)?.map(|found| found.ino));
        };
        let base = self.hash.position(name);
        if let Some(now) = names.changed(base, name) {
            return Ok(now.map(|(_, ino, _)| ino));
        }
        // Not the core itself: other threads that change names would count references to it.
        let found = names.with_stored(|core| directory.lookup(&reader, core, name))?;
        Ok(found.map(|found| found.ino))
    }

    fn find(&self, dir: &Inode, name: &[u8]) -> Result<Option<InodeRef>, Fault> {
        let found = self.entry_of(node_of(dir)?, name)?;
        match found {
            None => Ok(None),
            // The VFS holds the lock of the name, so the inode that it leads to is not freed.
            Some(ino) => match self.iget(dir.sb(), ino)? {
                Some(inode) => Ok(Some(inode)),
                None => Err(Errno::UCLEAN.into()),
            },
        }
    }

    /// Finds the parent of a directory, and its name there.
    fn find_parent(&self, dir: &Inode) -> Result<Option<ParentName>, Fault> {
        let core = node_of(dir)?.core();
        if core.nlink == 0 || dir.ino() == ROOT_INO {
            return Ok(None);
        }
        // No name is locked: the directory may have moved since, and its former parent may be
        // removed.
        let found = self.table.get_untrusted(&self.volume, core.parent)?;
        let is_there = |core: &InodeCore| core.is_directory() && core.nlink > 0;
        let Some(node) = found else { return Ok(None) };
        let held = self.hold_if(dir.sb(), node, is_there)?;
        let Some(parent) = held.filter(|parent| parent.is_dir()) else { return Ok(None) };
        let (node, mut behind) = (node_of(&parent)?, 0);
        loop {
            let listing = self.entries(node, behind)?;
            if let Some(entry) = listing.entries.iter().find(|entry| entry.ino == dir.ino()) {
                let name = entry.name.clone();
                return Ok(Some(ParentName { parent, name }));
            }
            match listing.behind {
                Some(last) => behind = last,
                None => return Ok(None),
            }
        }
    }
}

/// Returns entries with changes at some positions, both in order.
fn changed(entries: Vec<ListedEntry>, changes: Vec<(u64, Option<NamedInode>)>) -> Vec<ListedEntry> {
    let (mut merged, mut entries) = (Vec::new(), entries.into_iter().peekable());
    for (position, now) in changes {
        merged.extend(std::iter::from_fn(|| entries.next_if(|entry| entry.position < position)));
        let _former = entries.next_if(|entry| entry.position == position);
        merged.extend(now.map(|NamedInode { ino, kind, name }| ListedEntry {
            position,
            ino,
            kind,
            name,
        }));
    }
    merged.extend(entries);
    merged
}

fn type_of(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::Fifo,
        FileKind::Character => FileType::CharacterDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::Block => FileType::BlockDevice,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Link => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}

impl DirOps for DiskFs {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno> {
        let inode = self.find(dir, name).map_err(|fault| self.failed(fault))?;
        Ok(Found { inode, check: false })
    }

    fn read_dir(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let (node, mut behind) = (node_of(dir)?, pos);
        loop {
            let listing = self.entries(node, behind).map_err(|fault| self.failed(fault))?;
            for entry in &listing.entries {
                let (ino, next) = (entry.ino, entry.position);
                let (name, file_type) = (OsStr::from_bytes(&entry.name), type_of(entry.kind));
                if emit(DirEntry { ino, next, file_type, name }).is_break() {
                    return Ok(());
                }
            }
            match listing.behind {
                Some(last) => behind = last,
                None => return Ok(()),
            }
        }
    }

    fn inode(&self, sb: &SuperBlock, ino: u64, generation: u32) -> Result<Option<InodeRef>, Errno> {
        let found =
            self.table.get_untrusted(&self.volume, ino).map_err(|fault| self.failed(fault))?;
        let Some(node) = found else { return Ok(None) };
        let is_it = |core: &InodeCore| core.generation == generation && core.nlink > 0;
        if !is_it(&node.core()) {
            return Ok(None);
        }
        // Until the VFS inode is created, the inode may be freed, so it is checked once more then.
        self.hold_if(sb, node, is_it).map_err(|fault| self.failed(fault))
    }

    fn parent(&self, dir: &Inode) -> Result<Option<ParentName>, Errno> {
        self.find_parent(dir).map_err(|fault| self.failed(fault))
    }

    fn is_writable(&self) -> bool {
        self.volume.journal().is_some()
    }

    fn create_finds_names(&self) -> bool {
        true
    }

    fn create(&self, dir: &Inode, name: &[u8], new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        self.changed(|| self.make(dir, Some(name), new))
    }

    fn create_unnamed(&self, dir: &Inode, new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        self.changed(|| self.make(dir, None, new))
    }

    fn link(&self, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<(), Errno> {
        self.changed(|| self.add_name(inode, dir, name))
    }

    fn unlink(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Errno> {
        self.changed(|| self.take_name(dir, name, inode))
    }

    fn rmdir(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Errno> {
        self.changed(|| self.take_name(dir, name, inode))
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<(), Errno> {
        self.changed(|| self.move_name(rename))
    }
}
