//! Going on with other contents of the volume: after a rollback, an adoption or a merge.
//!
//! # How
//!
//! Requests are served inside of a gate. A [switch](Follower) shuts it, waits for those that are
//! served, and has the volume replaced. Then the [tree](Tree) is another one, and no handle in the
//! old one is left: of a node whose inode goes on its number and generation are, by which it is
//! opened again when it is first needed. A node whose inode is another one now is *stale*: each
//! request for it fails with `ESTALE` until the kernel forgets it. Its inode gets another node when
//! it is looked up, so files opened before and after are told apart.
//!
//! The kernel has to forget what it has cached:
//!
//! * Names, positive and negative: all at once (`FUSE_NOTIFY_INC_EPOCH`, Linux 6.16), which waits
//!   for nothing, while the gate is shut. Each is looked up again when it is next used. So from
//!   then on every path leads to the new contents.
//! * Attributes, pages and lists of names of nodes that are stale or have changed: one by one,
//!   after the gate has opened, since the kernel waits for requests that have such pages locked.
//!   Until then a file that was open before still has the pages of before.
//!
//! # Locks
//!
//! The gate comes before all locks of the tree and of the tables. Requests of other programs
//! ([`control`](super::control)) and the watch of the mount table come without it, and find the
//! tree of before or after.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use rustix::io::Errno as SysErrno;
use vfscale::Errno;
use vfscale::volume::{CantFollow, Followed, Follower};

use super::Server;
use super::nodes::{Handle, Level, Place};
use super::tree::Tree;
use crate::base::device::Device;
use crate::wire::reply::Reply;
use crate::wire::{ROOT, notify};

/// Handles in a former tree, and the tree.
type Former = (Vec<Place>, Arc<Tree>);

impl Server {
    /// Returns the tree that is served.
    pub(super) fn tree(&self) -> Arc<Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the handle of a node, which is opened again if it is from before a switch.
    pub(super) fn node(&self, id: u64) -> Result<Handle, Errno> {
        let (ino, generation) = match self.nodes.get(id)? {
            Place::Open(handle) => return Ok(handle),
            Place::Known(ino, generation) => (ino, generation),
            Place::Stale => return Err(Errno::STALE),
        };
        let file = self.tree().find(ino, generation)?;
        let handle = Handle { file, level: Level::Path };
        self.nodes.open_again(id, &handle);
        Ok(handle)
    }

    /// Takes over another tree. Returns the nodes of which the kernel has to forget what it has,
    /// and what is left of the former tree.
    fn go_on(&self, followed: &Followed) -> vfscale::Result<(Vec<u64>, Former)> {
        let era = self.tree().era + 1;
        let (tree, named) = Tree::new(&followed.vfs, era)?;
        let stat = named.stat()?;
        let differing = &followed.differing;
        let (told, former) = self.nodes.switch(named, &stat, differing);
        let mut now = self.tree.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *now, tree);
        self.era.store(era, Ordering::Release);
        drop(now);
        Ok((told, (former, before)))
    }
}

impl Follower for Server {
    fn follow(&self, switch: &mut dyn FnMut() -> Option<Followed>) -> Result<(), CantFollow> {
        let cant = |errno, why| Err(CantFollow { errno, why });
        let device = self.unsent.device();
        let Some(device) = device.filter(|_| self.config.is_exclusive()) else {
            let why = "it is mounted with files that change by themselves (`--proc`): unmount it";
            return cant(Errno::OPNOTSUPP, why);
        };
        if !self.config.has_xattrs {
            let why = "it is mounted with `-o noxattr`, and there may be attributes: unmount it";
            return cant(Errno::OPNOTSUPP, why);
        }
        let shut = Instant::now();
        let alone = self.gate.write();
        // Names that are looked up from now on are those of the tree after the switch, since the
        // requests wait. A kernel that can't do this says so before anything is changed.
        if let Err(error) = begin_epoch(device) {
            return match error.raw_os_error().map(SysErrno::from_raw_os_error) {
                Some(SysErrno::INVAL) => {
                    let why = "it is mounted, and this kernel is older than Linux 6.16: unmount it";
                    cant(Errno::OPNOTSUPP, why)
                }
                _ => cant(Errno::BUSY, "it is being unmounted; try again"),
            };
        }
        let Some(followed) = switch() else { return Ok(()) };
        let told = self.go_on(&followed);
        drop(alone);
        let held_up = shut.elapsed();
        match told {
            Ok((told, former)) => {
                told.iter().for_each(|node| forget(device, *node));
                let (nodes, told) = (told.len(), shut.elapsed());
                tracing::info!(?held_up, ?told, nodes, "the mount goes on with other contents");
                drop(former);
            }
            Err(error) => tracing::error!("the mount can't go on: unmount it: {error}"),
        }
        Ok(())
    }
}

/// Has the kernel look up each name again.
fn begin_epoch(device: &Device) -> io::Result<()> {
    device.send(Reply::new().finish(0, -notify::INC_EPOCH))
}

/// Has the kernel forget attributes, pages and names of a node.
fn forget(device: &Device, node: u64) {
    if let Err(error) = device.send(Reply::new().inval_inode(node, 0))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(node, "the kernel was not told that a file is another one: {error}");
    }
    debug_assert!(node >= ROOT, "the kernel knows no other");
}
