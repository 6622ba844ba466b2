//! The rules of `renameat2(2)`.

use rustix::io::Errno;

use crate::base::error::Outcome;
use crate::base::types::{Access, RenameFlags};
use crate::objects::dcache::climb::Climb;
use crate::objects::dcache::dentry::Dentry;
use crate::objects::permission::permission;
use crate::syscalls::rename::{RenameCall, is_same_file};
use crate::syscalls::unlink::may_delete;

impl<'g> RenameCall<'g> {
    /// Checks the rules of `renameat2(2)`, in the order of Linux.
    #[inline]
    pub(super) fn check(
        &self,
        source: &Dentry,
        target: Option<&Dentry>,
        busy: bool,
        ancestors: &mut Climb<'g>,
    ) -> Outcome<()> {
        let is_dir = source.inode().is_dir();
        if self.flags.contains(RenameFlags::NOREPLACE) && target.is_some() {
            return Err(Errno::EXIST);
        }
        if self.exchanges() {
            let target = target.ok_or(Errno::NOENT)?;
            if !target.inode().is_dir() && self.new.slash {
                return Err(Errno::NOTDIR);
            }
        }
        if !is_dir && (self.old.slash || (!self.exchanges() && self.new.slash)) {
            return Err(Errno::NOTDIR);
        }
        self.check_loops(source, target, ancestors)?;
        if is_same_file(source, target) {
            return Ok(());
        }
        self.check_rights(source, target)?;
        if busy {
            return Err(Errno::BUSY);
        }
        Ok(())
    }

    /// Refuses to move a directory into itself, or to replace an ancestor of the source. Records
    /// the ancestors that it read.
    #[inline]
    pub(super) fn check_loops(
        &self,
        source: &Dentry,
        target: Option<&Dentry>,
        ancestors: &mut Climb<'g>,
    ) -> Outcome<()> {
        if self.same_dir() {
            // The common directory holds both, so none of the two is above it.
            return Ok(());
        }
        let mut above = |dentry: &Dentry, dir: &'g Dentry| {
            let is_it = |at: &Dentry| std::ptr::eq(at, dentry);
            dentry.inode().is_dir() && is_it(ancestors.climb(dir, is_it, self.guard))
        };
        if above(source, self.new.dir) {
            return Err(Errno::INVAL);
        }
        if target.is_some_and(|t| above(t, self.old.dir)) {
            return Err(if self.exchanges() { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        Ok(())
    }

    fn check_rights(&self, source: &Dentry, target: Option<&Dentry>) -> Outcome<()> {
        let (old_dir, new_dir) = (self.old.dir.inode(), self.new.dir.inode());
        let is_dir = source.inode().is_dir();
        may_delete(old_dir, source, is_dir, self.cred, self.guard)?;
        match target {
            None => {
                if new_dir.is_dead() {
                    return Err(Errno::NOENT);
                }
                permission(new_dir, self.cred, Access::WRITE | Access::EXEC, self.guard)?;
            }
            Some(target) => {
                let want_dir = if self.exchanges() { target.inode().is_dir() } else { is_dir };
                may_delete(new_dir, target, want_dir, self.cred, self.guard)?;
            }
        }
        if self.same_dir() {
            return Ok(());
        }
        // A directory's `..` changes when it moves.
        let may_move = |dentry: &Dentry| {
            if !dentry.inode().is_dir() {
                return Ok(());
            }
            permission(dentry.inode(), self.cred, Access::WRITE, self.guard)
        };
        may_move(source)?;
        target.filter(|_| self.exchanges()).map_or(Ok(()), may_move)
    }
}
