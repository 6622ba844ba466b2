//! The extended attributes of an inode as the VFS stores them: their charge, and the removal of
//! file capabilities.

use vfscale_sync::rcu::Guard;

use crate::objects::inode::{Inode, InodeExtra};
use crate::security::acl::Acl;
use crate::security::xattr::{XattrName, XattrSet};

#[cfg(test)]
mod tests;

/// Charge for the extra part of an inode itself, in bytes.
pub(crate) const EXTRA_BYTES: u64 = size_of::<InodeExtra>() as u64 + 16;

/// Returns the bytes that an inode's extra part has been charged.
pub(crate) fn extra_bytes(extra: &InodeExtra, guard: &Guard) -> u64 {
    let acl = |acl: Option<&Acl>| acl.map_or(0, Acl::bytes);
    let lists = acl(extra.acl_access.read(guard)) + acl(extra.acl_default.read(guard));
    let base = if extra.is_charged() { EXTRA_BYTES } else { 0 };
    base + extra.xattrs(guard).map_or(0, XattrSet::bytes) + lists
}

/// Removes file capabilities, which are void after a change of the file's data or owner. The caller
/// holds the inode's lock.
#[inline]
pub(crate) fn drop_capabilities(inode: &Inode, guard: &Guard) {
    if !inode.may_be_capable() {
        return;
    }
    let Some(extra) = inode.extra(guard) else { return };
    if extra.xattrs(guard).is_none_or(|set| set.get(XattrName::CAPABILITY).is_err()) {
        return;
    }
    let removed = extra.change_xattrs(guard, |set| set.remove(XattrName::CAPABILITY));
    if let Ok(Some(freed)) = removed {
        inode.sb().accounting().uncharge(freed);
        inode.touch_ctime();
    }
}

/// Returns whether there are file capabilities to remove.
pub(crate) fn has_capabilities(inode: &Inode, guard: &Guard) -> bool {
    let extra = inode.may_be_capable().then(|| inode.extra(guard)).flatten();
    let set = extra.and_then(|extra| extra.xattrs(guard));
    set.is_some_and(|set| set.get(XattrName::CAPABILITY).is_ok())
}
