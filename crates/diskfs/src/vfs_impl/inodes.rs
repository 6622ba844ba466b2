//! VFS inodes, created from nodes.

use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use vfscale_vfs::inode::{Inode, InodeInit, InodeRef, InodeTimes};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::types::Timestamp;

use super::disk_fs::DiskFs;
use super::flags::flags_of;
use crate::base::fault::Fault;
use crate::btree::Tree;
use crate::data::{FileBlocks, Files};
use crate::file_io::RegularFile;
use crate::inode::attr::{self, Attribute};
use crate::inode::blob::{self, LinkTree};
use crate::inode::core::{AttrFork, DataFork, InodeCore};
use crate::inode::incore::{Node, NodeNow};
use crate::inode::times::Times;
use crate::page_cache::FilePages;

/// The driver's part of a VFS inode.
pub(super) struct Held {
    pub(super) node: Arc<Node>,
    /// The target of a symbolic link.
    pub(super) target: Option<Box<[u8]>>,
    /// The pages of a regular file, after its first use. An inode with a VFS inode is not freed, so
    /// they stay those of the node; here a call finds them without the lock of the node.
    pages: OnceLock<Arc<FilePages>>,
}

impl Held {
    fn new(node: Arc<Node>, target: Option<Box<[u8]>>) -> Self {
        Self { node, target, pages: OnceLock::new() }
    }

    /// Returns the regular file, for a call.
    pub(super) fn file<'a>(
        &'a self,
        files: &'a Files,
    ) -> RegularFile<FileBlocks<'a>, &'a FilePages> {
        let pages = self.pages.get().unwrap_or_else(|| {
            let pages = files.pages_of(&self.node);
            self.pages.get_or_init(|| pages)
        });
        files.file_with(&self.node, pages)
    }
}

/// Returns the driver's part of an inode.
pub(super) fn held(inode: &Inode) -> Option<&Held> {
    inode.private()
}

/// Returns the driver's part of an inode of this file system.
pub(super) fn held_of(inode: &Inode) -> Result<&Held, Errno> {
    held(inode).ok_or(Errno::INVAL)
}

/// Returns the node of an inode of this file system.
pub(super) fn node_of(inode: &Inode) -> Result<&Arc<Node>, Errno> {
    held_of(inode).map(|held| &held.node)
}

/// The parts of an inode that a VFS inode has decoded or copied: attributes and the target of a
/// link.
#[derive(Default)]
struct Apart {
    /// The core of the inode when it was read. While this reference exists, no other core has its
    /// address in memory.
    core: Option<Arc<InodeCore>>,
    xattrs: Vec<Attribute>,
    target: Option<Box<[u8]>>,
}

/// The reason why no VFS inode was created.
enum Refused {
    /// The inode is not the requested one.
    IsOther,
    /// The inode has parts apart that were not read, or has changed since.
    HasChanged,
}

impl DiskFs {
    /// Returns the inode `ino`, or `None` if it does not exist. Blocks for I/O.
    pub(super) fn iget(&self, sb: &SuperBlock, ino: u64) -> Result<Option<InodeRef>, Fault> {
        match self.table.get(&self.volume, ino)? {
            Some(node) => self.hold(sb, node).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the VFS inode of a node, which the caller prevents from being freed. Blocks for I/O.
    pub(super) fn hold(&self, sb: &SuperBlock, node: Arc<Node>) -> Result<InodeRef, Fault> {
        self.hold_if(sb, node, |_| true)?.ok_or_else(|| Errno::UCLEAN.into())
    }

    /// Returns the VFS inode of a node that may be freed at any time and become another inode;
    /// `None` unless `is_it` holds when the VFS inode is created. Returns an inode in use without a
    /// check. Blocks for I/O.
    pub(super) fn hold_if(
        &self,
        sb: &SuperBlock,
        node: Arc<Node>,
        is_it: impl Fn(&InodeCore) -> bool,
    ) -> Result<Option<InodeRef>, Fault> {
        // Most inodes have no such parts.
        let mut apart = Some(Apart::default());
        loop {
            let inode = sb.try_iget(node.ino(), || {
                // While there is no VFS inode, only two threads change the node: the one that frees
                // it, when it has no name, and the one that then reuses its number. If `is_it`
                // holds, neither does so from now on.
                let now = node.now();
                if !is_it(&now.stored) {
                    return Err(Refused::IsOther);
                }
                let Apart { core, xattrs, target } = apart.take().unwrap_or_default();
                let is_read = core.is_some_and(|core| Arc::ptr_eq(&core, &now.stored));
                if !is_read && has_apart(&now.stored) {
                    return Err(Refused::HasChanged);
                }
                Ok(init(&now, xattrs, Held::new(Arc::clone(&node), target)))
            });
            match inode {
                Ok(inode) => return Ok(Some(inode)),
                Err(Refused::IsOther) => return Ok(None),
                Err(Refused::HasChanged) => apart = Some(self.read_apart(&node)?),
            }
        }
    }

    /// Reads the attributes of an inode, and its target.
    fn read_apart(&self, node: &Arc<Node>) -> Result<Apart, Fault> {
        let mut core = node.stored();
        // A core never changes, so parts that are in the inode need no lock.
        let is_tree = matches!(core.attr, AttrFork::Tree { .. })
            || core.is_link() && matches!(core.data, DataFork::Tree { .. });
        let reading = is_tree.then(|| node.read());
        if is_tree {
            core = node.stored();
        }
        let reader = self.volume.reader();
        let xattrs = attr::load(&reader, node.ino(), &core.attr)?;
        let target = match &core.data {
            DataFork::Inline(bytes) if core.is_link() => Some(bytes.as_ref().into()),
            DataFork::Tree { root } if core.is_link() => {
                let tree = Tree::<LinkTree>::at(*root, node.ino());
                // The size of a link was checked when its record was decoded.
                let bytes = u32::try_from(core.size).unwrap_or(u32::MAX);
                Some(blob::load(&reader, tree, bytes)?.into())
            }
            _ => None,
        };
        drop(reading);
        Ok(Apart { core: Some(core), xattrs, target })
    }

    /// Stores the times that the VFS shows in the node, if they differ.
    pub(super) fn keep_times(&self, inode: &Inode, node: &Arc<Node>) {
        let shown =
            || Times { atime: inode.atime().0, mtime: inode.mtime().0, ctime: inode.ctime().0 };
        // Threads that change names of one directory all come here, mostly with one time.
        if node.has_times(shown) {
            return;
        }
        if node.follow_times(inode.generation(), shown) {
            self.files.set_times_dirty(node);
        }
    }
}

/// Returns whether an inode has attributes, or a target.
fn has_apart(core: &InodeCore) -> bool {
    core.is_link() || !matches!(core.attr, AttrFork::None)
}

/// Returns the initial state of a VFS inode.
fn init(now: &NodeNow, xattrs: Vec<Attribute>, held: Held) -> InodeInit {
    let (core, times) = (&*now.stored, now.times);
    InodeInit {
        mode: core.mode,
        uid: core.uid,
        gid: core.gid,
        rdev: core.rdev,
        nlink: core.nlink,
        generation: core.generation,
        size: Files::size_now(now),
        blocks: Files::blocks_now(now),
        times: Some(InodeTimes {
            atime: Timestamp(times.atime),
            mtime: Timestamp(times.mtime),
            ctime: Timestamp(times.ctime),
            btime: Timestamp(core.btime),
        }),
        flags: flags_of(core),
        xattrs,
        private: Some(Box::new(held)),
        ..InodeInit::default()
    }
}
