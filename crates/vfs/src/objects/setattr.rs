//! A planned change of an inode's attributes.
//!
//! The rules of `chmod`, `chown`, `utimensat`, `chattr` and the calls on extended attributes
//! produce a [`Plan`]. With a driver without `DirOps` the plan is applied immediately. A backed
//! driver stores it first
//! ([`FileOps::set_attr`](crate::objects::driver::FileOps::set_attr)), which may block: the plan is
//! made in an RCU section and carried out outside of it, and both happen under the inode's lock.

use rustix::io::Errno;
use vfscale_sync::lock::assert_held;
use vfscale_sync::rcu::{self, Guard};

use crate::base::lock_classes::InodeData;
use crate::base::types::{InodeFlags, Timestamp, XattrFlags};
use crate::objects::driver::{AttrChange, XattrChange};
use crate::objects::inode::Inode;
use crate::objects::inode_xattrs::{drop_capabilities, has_capabilities};
use crate::security::acl::Acl;
use crate::security::xattr::{POSIX_ACL_ACCESS, POSIX_ACL_DEFAULT, XattrName};

/// New value of an extended attribute that is no access control list; `None` removes the attribute.
pub(crate) type XattrEdit<'a> = (XattrName<'a>, Option<&'a [u8]>);

/// A change of attributes that has been checked.
#[derive(Default)]
pub(crate) struct Plan<'a> {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) atime: Option<Timestamp>,
    pub(crate) mtime: Option<Timestamp>,
    pub(crate) flags: Option<InodeFlags>,
    /// The time of the change; `None` is the time at which it is carried out.
    pub(crate) ctime: Option<Timestamp>,
    /// Whether file capabilities are removed.
    pub(crate) no_capabilities: bool,
    /// Changes of extended attributes, which are rare. Boxed because a plan is copied.
    pub(crate) more: Option<Box<More<'a>>>,
}

/// Changes of extended attributes in a [`Plan`].
#[derive(Default)]
pub(crate) struct More<'a> {
    /// The new access list, or `None` inside to remove it; `default` is the default list.
    pub(crate) access: Option<Option<Acl>>,
    pub(crate) default: Option<Option<Acl>>,
    /// Any other attribute. Only [`Plan::store`] applies it.
    pub(crate) xattr: Option<XattrEdit<'a>>,
}

impl<'a> Plan<'a> {
    /// Creates a plan that changes extended attributes.
    pub(crate) fn of(more: More<'a>) -> Plan<'a> {
        Plan { more: Some(Box::new(more)), ..Plan::default() }
    }

    /// Carries the plan out for a driver without `DirOps`.
    pub(crate) fn apply(&mut self, inode: &Inode, guard: &Guard) {
        assert_held::<InodeData>();
        if self.no_capabilities {
            drop_capabilities(inode, guard);
        }
        self.set(inode, guard);
        match self.ctime {
            Some(ctime) => inode.set_ctime(ctime),
            None => inode.touch_ctime(),
        }
    }

    /// Stores the plan with a backed driver, then carries it out. Blocks; the caller is in
    /// no RCU section.
    ///
    /// # Errors
    /// Returns any error of [`FileOps::set_attr`](crate::objects::driver::FileOps::set_attr).
    pub(crate) fn store(&mut self, inode: &Inode) -> Result<(), Errno> {
        assert_held::<InodeData>();
        if self.no_capabilities && has_capabilities(inode, &rcu::pin()) {
            self.more.get_or_insert_default().xattr = Some((XattrName::CAPABILITY, None));
        }
        let none = More::default();
        let more = self.more.as_deref().unwrap_or(&none);
        let ctime = self.ctime.unwrap_or_else(|| inode.change_time());
        let value =
            |list: &Option<Option<Acl>>| list.as_ref().map(|list| list.as_ref().map(Acl::to_xattr));
        let (access, default) = (value(&more.access), value(&more.default));
        let mut xattrs = Vec::new();
        for (name, value) in [(POSIX_ACL_ACCESS, &access), (POSIX_ACL_DEFAULT, &default)] {
            if let Some(value) = value {
                xattrs.push(XattrChange { name, value: value.as_deref() });
            }
        }
        if let Some((name, value)) = more.xattr {
            xattrs.push(XattrChange { name: name.as_bytes(), value });
        }
        let change = AttrChange {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            atime: self.atime,
            mtime: self.mtime,
            ctime: Some(ctime),
            flags: self.flags,
            xattrs: &xattrs,
        };
        inode.sb().fs().set_attr(inode, &change)?;
        let guard = rcu::pin();
        if let Some((name, value)) = more.xattr {
            edit(inode, name, value, &guard);
        }
        self.set(inode, &guard);
        if self.ctime.is_some() {
            inode.set_ctime(ctime);
        } else {
            inode.inode_changed_at(ctime);
        }
        Ok(())
    }

    /// Sets the attributes of the inode in memory.
    fn set(&mut self, inode: &Inode, guard: &Guard) {
        if let Some(more) = self.more.take() {
            set_lists(inode, *more, guard);
        }
        if let Some(mode) = self.mode {
            inode.set_mode(mode);
        }
        if self.uid.is_some() || self.gid.is_some() {
            inode.set_owner(self.uid.unwrap_or(inode.uid()), self.gid.unwrap_or(inode.gid()));
        }
        inode.set_times(self.atime, self.mtime);
        if let Some(flags) = self.flags {
            inode.set_flags(flags);
        }
    }
}

/// Replaces the access control lists of the inode in memory.
#[cold]
fn set_lists(inode: &Inode, more: More<'_>, guard: &Guard) {
    if let Some(list) = more.access
        && (list.is_some() || inode.has_extra())
    {
        inode.extra_or_init(guard).acl_access.replace(list, guard);
    }
    if let Some(list) = more.default
        && (list.is_some() || inode.has_extra())
    {
        if list.is_some() {
            inode.note_acl_default();
        }
        inode.extra_or_init(guard).acl_default.replace(list, guard);
    }
}

/// Changes the cached value of an attribute, after the driver has stored the change.
fn edit(inode: &Inode, name: XattrName<'_>, value: Option<&[u8]>, guard: &Guard) {
    inode.note_xattr(name);
    // The driver has checked that it can be set, and an attribute to remove may be absent already.
    let _ = inode.extra_or_init(guard).change_xattrs(guard, |set| match value {
        Some(value) => set.set(name, value, XattrFlags::empty()),
        None => set.remove(name).map(drop),
    });
}
