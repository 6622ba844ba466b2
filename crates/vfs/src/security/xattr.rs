//! Extended attributes: names, permissions, and the set of one inode (`xattr(7)`).
//!
//! The prefix of a name selects its namespace. `user.*` is for users that may read or write the
//! file, `trusted.*` for the administrator, `security.*` for security modules; `system.*` contains
//! only the two access control lists. An inode stores these two apart from its [`XattrSet`], as
//! [`Acl`](crate::security::acl::Acl)s; this module defines only their names.
//!
//! The checks run in the order of Linux, which determines the error that a caller gets: the name's
//! length ([`XattrName::new`]), the path, the caller's rights ([`xattr_permission`]), whether the
//! namespace exists ([`XattrName::supported`]), and then the set.
//!
//! # Invariants
//!
//! An [`XattrSet`] holds its attributes sorted by name, each name once, and only names of the
//! namespaces `user`, `trusted` and `security`. [`XattrSet::bytes`] is exactly the sum of the
//! changes that [`XattrSet::set_cost`] announced and [`XattrSet::remove`] returned, so the total of
//! a caller that charges and uncharges these never drifts.
//!
//! A set contains no lock: changing it takes `&mut`, and it is `Send + Sync`.

use std::sync::Arc;

use rustix::io::Errno;

use crate::base::types::{Access, Capabilities, XattrFlags};

#[cfg(test)]
mod tests;

/// The longest name, in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// The longest value, in bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// The longest list of names, in bytes, with the zero byte that ends each.
pub const XATTR_LIST_BYTES_MAX: usize = 65_536;

/// The name of a file's access list.
pub const POSIX_ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The name of a directory's default list.
pub const POSIX_ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
/// The longest list of the names of a set, with the zero bytes: beside it those of the access
/// control lists have room in a list of the file.
const OWN_LIST_BYTES_MAX: usize =
    XATTR_LIST_BYTES_MAX - (POSIX_ACL_ACCESS.len() + 1) - (POSIX_ACL_DEFAULT.len() + 1);
const CAPABILITY: &[u8] = b"security.capability";

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_ISVTX: u32 = 0o001_000;

/// The namespace of a name, by its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XattrNamespace {
    /// `user.`
    User,
    /// `trusted.`
    Trusted,
    /// `security.`
    Security,
    /// `system.posix_acl_access`
    AclAccess,
    /// `system.posix_acl_default`
    AclDefault,
    /// Any other name that starts with `system.`; no attribute has such a name.
    System,
    /// An unknown namespace.
    Unknown,
}

/// The name of an attribute, of a valid length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XattrName<'a> {
    bytes: &'a [u8],
}

impl<'a> XattrName<'a> {
    /// The name of the capabilities that a program grants when it is executed.
    pub(crate) const CAPABILITY: XattrName<'static> = XattrName { bytes: CAPABILITY };

    /// Accepts a name of 1 to 255 bytes.
    ///
    /// # Errors
    /// `ERANGE` for another length, `EINVAL` for a zero byte, which cannot be passed to Linux at
    /// all.
    pub fn new(bytes: &'a [u8]) -> Result<XattrName<'a>, Errno> {
        match bytes.len() {
            1..=XATTR_NAME_BYTES_MAX if !bytes.contains(&0) => Ok(XattrName { bytes }),
            1..=XATTR_NAME_BYTES_MAX => Err(Errno::INVAL),
            _ => Err(Errno::RANGE),
        }
    }

    /// Returns the name as it was passed.
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the namespace. The name may still be incomplete; see [`supported`](Self::supported).
    pub fn namespace(self) -> XattrNamespace {
        match self.split().0 {
            b"user." => XattrNamespace::User,
            b"trusted." => XattrNamespace::Trusted,
            b"security." => XattrNamespace::Security,
            b"system." if self.bytes == POSIX_ACL_ACCESS => XattrNamespace::AclAccess,
            b"system." if self.bytes == POSIX_ACL_DEFAULT => XattrNamespace::AclDefault,
            b"system." => XattrNamespace::System,
            _ => XattrNamespace::Unknown,
        }
    }

    /// Returns the namespace if an attribute of this name can exist.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for an unknown namespace, `EINVAL` for a prefix without a name after it.
    pub fn supported(self) -> Result<XattrNamespace, Errno> {
        match self.namespace() {
            XattrNamespace::System | XattrNamespace::Unknown => Err(Errno::OPNOTSUPP),
            _ if self.split().1.is_empty() => Err(Errno::INVAL),
            namespace => Ok(namespace),
        }
    }

    /// Returns the prefix, up to and with the first dot, and the rest.
    fn split(self) -> (&'a [u8], &'a [u8]) {
        let dot = self.bytes.iter().position(|&byte| byte == b'.');
        self.bytes.split_at(dot.map_or(0, |at| at + 1))
    }
}

/// An operation on an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrOp<'a> {
    /// Read its value.
    Get,
    /// Set it to this value.
    Set(&'a [u8]),
    /// Remove it.
    Remove,
}

/// The file of an operation on an attribute, and its caller.
#[derive(Clone, Copy, Debug)]
pub struct XattrSubject {
    /// The mode of the file; its permission bits do not matter.
    pub mode: u32,
    /// Whether the caller owns the file or holds `CAP_FOWNER`.
    pub owner: bool,
    /// The caller's privileges.
    pub caps: Capabilities,
}

impl XattrSubject {
    fn is(&self, kind: u32) -> bool {
        self.mode & S_IFMT == kind
    }
}

/// Checks the rules of the attribute's namespace for `op`, and returns the access to the file that
/// the caller must also check (nothing, `READ`, or `WRITE`).
///
/// The rules, as in Linux: `user.*` only on regular files and directories, and in a sticky
/// directory only by its owner; `trusted.*` only with `CAP_SYS_ADMIN`, and hidden from others;
/// `security.*` readable by all and changed with `CAP_SYS_ADMIN`, file capabilities with
/// `CAP_SETFCAP`; access control lists readable by all and changed by the owner.
///
/// One case is stricter than in Linux, where any user may replace a file's capabilities by an empty
/// value: here that requires `CAP_SETFCAP` like any other value.
///
/// Setting a default access control list is refused on all files except directories, and removing
/// it from another file has no effect, because the caller finds none.
///
/// # Errors
/// `EPERM`; `ENODATA` for reading a hidden attribute; `EINVAL` for malformed file capabilities;
/// `EOPNOTSUPP` for an access control list of a symbolic link; `EACCES` for a default list of a
/// file.
pub fn xattr_permission(
    name: XattrName<'_>,
    op: XattrOp<'_>,
    subject: &XattrSubject,
) -> Result<Access, Errno> {
    let writes = op != XattrOp::Get;
    let hidden = if writes { Errno::PERM } else { Errno::NODATA };
    match name.namespace() {
        XattrNamespace::AclAccess | XattrNamespace::AclDefault => acl_permission(name, op, subject),
        XattrNamespace::Security => security_permission(name, op, subject),
        XattrNamespace::System => Ok(Access::empty()),
        XattrNamespace::Trusted if subject.caps.contains(Capabilities::SYS_ADMIN) => {
            Ok(Access::empty())
        }
        XattrNamespace::Trusted => Err(hidden),
        XattrNamespace::User if !subject.is(S_IFREG) && !subject.is(S_IFDIR) => Err(hidden),
        XattrNamespace::User
            if writes && subject.is(S_IFDIR) && subject.mode & S_ISVTX != 0 && !subject.owner =>
        {
            Err(Errno::PERM)
        }
        XattrNamespace::User | XattrNamespace::Unknown if writes => Ok(Access::WRITE),
        XattrNamespace::User | XattrNamespace::Unknown => Ok(Access::READ),
    }
}

fn acl_permission(
    name: XattrName<'_>,
    op: XattrOp<'_>,
    subject: &XattrSubject,
) -> Result<Access, Errno> {
    /// The length of a value with only a version: a list without entries, which removes the list.
    const EMPTY_BYTES_MAX: usize = 4;
    if subject.is(S_IFLNK) {
        return Err(Errno::OPNOTSUPP);
    }
    let misplaced = name.bytes == POSIX_ACL_DEFAULT && !subject.is(S_IFDIR);
    match op {
        XattrOp::Get => Ok(Access::empty()),
        XattrOp::Set(value) if misplaced && value.len() > EMPTY_BYTES_MAX => Err(Errno::ACCESS),
        XattrOp::Set(_) | XattrOp::Remove if misplaced || subject.owner => Ok(Access::empty()),
        XattrOp::Set(_) | XattrOp::Remove => Err(Errno::PERM),
    }
}

fn security_permission(
    name: XattrName<'_>,
    op: XattrOp<'_>,
    subject: &XattrSubject,
) -> Result<Access, Errno> {
    let needed = if name.bytes == CAPABILITY {
        if let XattrOp::Set(value) = op {
            check_file_capabilities(value)?;
        }
        Capabilities::SETFCAP
    } else {
        Capabilities::SYS_ADMIN
    };
    if op == XattrOp::Get || subject.caps.contains(needed) {
        Ok(Access::empty())
    } else {
        Err(Errno::PERM)
    }
}

/// Checks a value of `security.capability`: empty, or of version 2 or 3 with the length of that
/// version.
fn check_file_capabilities(value: &[u8]) -> Result<(), Errno> {
    const EFFECTIVE: u32 = 1;
    let Some((magic, rest)) = value.split_first_chunk::<4>() else {
        return if value.is_empty() { Ok(()) } else { Err(Errno::INVAL) };
    };
    match (u32::from_le_bytes(*magic) & !EFFECTIVE, rest) {
        (0x0200_0000, [..]) if rest.len() == 16 => Ok(()),
        // The last four bytes are the user that is root for these capabilities; -1 is no user.
        (0x0300_0000, [.., a, b, c, d]) if rest.len() == 20 && [*a, *b, *c, *d] != [0xff; 4] => {
            Ok(())
        }
        _ => Err(Errno::INVAL),
    }
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Xattr {
    name: Box<[u8]>,
    value: Box<[u8]>,
}

/// The overhead of an attribute: its slot in the set, its reference count, and the allocator's
/// overhead of three allocations.
const OVERHEAD_BYTES: usize = size_of::<Xattr>() + 72;

fn cost(name_len: usize, value_len: usize) -> u64 {
    (OVERHEAD_BYTES + name_len + value_len) as u64
}

/// The extended attributes of one inode, without its access control lists. Copies share unchanged
/// attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XattrSet {
    sorted: Vec<Arc<Xattr>>,
    bytes: u64,
    /// The length of the list of all names.
    list_bytes: usize,
}

/// The access control lists of a file, for [`XattrSet::list`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AclNames {
    /// Whether it has an access list.
    pub access: bool,
    /// Whether it has a default list.
    pub default: bool,
}

impl XattrSet {
    /// Creates a set without attributes. Allocates nothing.
    pub const fn new() -> XattrSet {
        XattrSet { sorted: Vec::new(), bytes: 0, list_bytes: 0 }
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Returns the number of attributes.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the memory to charge for the set, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the value of an attribute. [`copy_out`] copies it as `getxattr` does.
    ///
    /// # Errors
    /// The errors of [`XattrName::supported`]; `EOPNOTSUPP` for access control lists, which are
    /// stored elsewhere; `ENODATA` if there is no such attribute.
    pub fn get(&self, name: XattrName<'_>) -> Result<&[u8], Errno> {
        let at = self.find(name)?.map_err(|_| Errno::NODATA)?;
        Ok(&self.sorted[at].value)
    }

    /// Returns the bytes that [`set`](Self::set) with the same arguments would add to
    /// [`bytes`](Self::bytes); negative if it would free memory.
    ///
    /// A caller with a budget charges a positive result before the change, and uncharges a negative
    /// one after it, all under the lock that guards the set.
    ///
    /// # Errors
    /// The errors of `set`.
    pub fn set_cost(
        &self,
        name: XattrName<'_>,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<i64, Errno> {
        let old = match self.place(name, value, flags)? {
            Ok(at) => self.sorted[at].cost(),
            Err(_) => 0,
        };
        // Both costs are below 128 KiB.
        Ok(cost(name.bytes.len(), value.len()) as i64 - old as i64)
    }

    /// Creates an attribute or replaces its value.
    ///
    /// # Errors
    /// In this order: `EINVAL` for unknown flags, `E2BIG` for a value of more than 64 KiB; the
    /// errors of [`XattrName::supported`]; `EOPNOTSUPP` for access control lists; `EEXIST` with
    /// `CREATE` if the attribute exists, `ENODATA` with `REPLACE` if it does not; `ENOSPC` if the
    /// names of all attributes would take more than [`list`](Self::list) returns.
    pub fn set(
        &mut self,
        name: XattrName<'_>,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        let at = self.place(name, value, flags)?;
        self.put(at, name, value);
        Ok(())
    }

    /// Adds an attribute that a driver has stored, also one whose name has no room in a list.
    ///
    /// # Errors
    /// `E2BIG` for a value of more than 64 KiB; the errors of [`XattrName::supported`];
    /// `EOPNOTSUPP` for access control lists.
    pub(crate) fn restore(&mut self, name: XattrName<'_>, value: &[u8]) -> Result<(), Errno> {
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::TOOBIG);
        }
        let at = self.find(name)?;
        self.put(at, name, value);
        Ok(())
    }

    fn put(&mut self, at: Result<usize, usize>, name: XattrName<'_>, value: &[u8]) {
        let new = Xattr { name: name.bytes.into(), value: value.into() };
        self.bytes += new.cost();
        match at {
            Ok(at) => {
                self.bytes -= self.sorted[at].cost();
                self.sorted[at] = Arc::new(new);
            }
            Err(at) => {
                self.list_bytes += name.bytes.len() + 1;
                self.sorted.insert(at, Arc::new(new));
            }
        }
    }

    /// Removes an attribute and returns the bytes to uncharge.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    pub fn remove(&mut self, name: XattrName<'_>) -> Result<u64, Errno> {
        let at = self.find(name)?.map_err(|_| Errno::NODATA)?;
        let freed = self.sorted.remove(at).cost();
        self.bytes -= freed;
        self.list_bytes -= name.bytes.len() + 1;
        if self.sorted.len() * 4 < self.sorted.capacity() {
            self.sorted.shrink_to(self.sorted.len() * 2);
        }
        Ok(freed)
    }

    /// Returns the names, sorted, without those of access control lists.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.sorted.iter().map(|xattr| &*xattr.name)
    }

    /// Returns the names in the form of `listxattr`, each with a zero byte at its end, access
    /// control lists first. `trusted.*` is included only for holders of `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// `E2BIG` if the names take more than 64 KiB, which only those that a driver has stored can.
    pub fn list(&self, acls: AclNames, caps: Capabilities) -> Result<Vec<u8>, Errno> {
        let admin = caps.contains(Capabilities::SYS_ADMIN);
        let access = acls.access.then_some(POSIX_ACL_ACCESS);
        let default = acls.default.then_some(POSIX_ACL_DEFAULT);
        let own = self.names().filter(|name| admin || !name.starts_with(b"trusted."));
        let mut list = Vec::new();
        for name in access.into_iter().chain(default).chain(own) {
            if list.len() + name.len() >= XATTR_LIST_BYTES_MAX {
                return Err(Errno::TOOBIG);
            }
            list.extend_from_slice(name);
            list.push(0);
        }
        Ok(list)
    }

    /// Returns the index at which `set` would store a value: `Ok` replaces, `Err` inserts.
    fn place(
        &self,
        name: XattrName<'_>,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<Result<usize, usize>, Errno> {
        let known = XattrFlags::CREATE.bits() | XattrFlags::REPLACE.bits();
        if flags.bits() & !known != 0 {
            return Err(Errno::INVAL);
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(Errno::TOOBIG);
        }
        match self.find(name)? {
            Ok(_) if flags.contains(XattrFlags::CREATE) => Err(Errno::EXIST),
            Err(_) if flags.contains(XattrFlags::REPLACE) => Err(Errno::NODATA),
            Err(_) if self.list_bytes + name.bytes.len() + 1 > OWN_LIST_BYTES_MAX => {
                Err(Errno::NOSPC)
            }
            place => Ok(place),
        }
    }

    /// Finds the index of an attribute (`Ok`), or its insertion point (`Err`).
    fn find(&self, name: XattrName<'_>) -> Result<Result<usize, usize>, Errno> {
        match name.supported()? {
            XattrNamespace::User | XattrNamespace::Trusted | XattrNamespace::Security => {
                Ok(self.sorted.binary_search_by(|xattr| (*xattr.name).cmp(name.bytes)))
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

impl Xattr {
    fn cost(&self) -> u64 {
        cost(self.name.len(), self.value.len())
    }
}

/// Copies a value or a list to `buf` as `getxattr` and `listxattr` do, and returns its length. An
/// empty `buf` requests only the length.
///
/// # Errors
/// `ERANGE` if `buf` is too small.
pub fn copy_out(value: &[u8], buf: &mut [u8]) -> Result<usize, Errno> {
    if !buf.is_empty() {
        buf.get_mut(..value.len()).ok_or(Errno::RANGE)?.copy_from_slice(value);
    }
    Ok(value.len())
}
