//! Changes of attributes.

use rustix::io::Errno;
use vfscale_vfs::driver::AttrChange;
use vfscale_vfs::inode::Inode;

use super::disk_fs::DiskFs;
use super::flags::in_record;
use super::inodes::node_of;
use crate::base::fault::Fault;
use crate::inode::attr::{self, Refusal};
use crate::inode::core::{InodeCore, TYPE_MASK};

/// Converts the refusal of a list of attributes to a fault.
pub(super) fn refused(refusal: Refusal) -> Fault {
    Fault::Refused(match refusal {
        Refusal::Length => Errno::RANGE,
        Refusal::Full => Errno::NOSPC,
    })
}

impl DiskFs {
    pub(super) fn change_attributes(
        &self,
        inode: &Inode,
        change: &AttrChange<'_>,
    ) -> Result<(), Fault> {
        let node = node_of(inode).map_err(Fault::Refused)?;
        self.note_immutable(change.flags.unwrap_or_default())?;
        let need = if change.xattrs.is_empty() { self.needs.record } else { self.needs.xattrs };
        let mut tx = self.volume.begin(need)?;
        let locked = node.lock();
        tx.edit(node, |tx, core| {
            // The times of the inode include later reads and writes, so they are newer than the
            // core's.
            (core.atime, core.mtime, core.ctime) =
                (inode.atime().0, inode.mtime().0, inode.ctime().0);
            change_core(core, change);
            if change.xattrs.is_empty() {
                return Ok(());
            }
            let mut list = attr::load(tx, node.ino(), &core.attr)?;
            for one in change.xattrs {
                attr::set(&mut list, one.name, one.value);
            }
            let blob = attr::encode(&list).map_err(refused)?;
            Ok(attr::store(tx, node.ino(), node.block(), core, &blob)?)
        })?;
        tx.commit_in_place()?;
        drop(locked);
        if !change.xattrs.is_empty() {
            self.show_blocks(inode, node);
        }
        Ok(())
    }
}

/// Applies a change, except its extended attributes.
fn change_core(core: &mut InodeCore, change: &AttrChange<'_>) {
    if let Some(mode) = change.mode {
        core.mode = core.mode & TYPE_MASK | mode & !TYPE_MASK & 0xFFFF;
    }
    if let Some(flags) = change.flags {
        core.flags = in_record(core.flags, flags);
    }
    core.uid = change.uid.unwrap_or(core.uid);
    core.gid = change.gid.unwrap_or(core.gid);
    core.atime = change.atime.map_or(core.atime, |time| time.0);
    core.mtime = change.mtime.map_or(core.mtime, |time| time.0);
    core.ctime = change.ctime.map_or(core.ctime, |time| time.0);
}
