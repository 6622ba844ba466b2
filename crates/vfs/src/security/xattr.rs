//! Extended attributes: names, who may use them, and the set of one inode (`xattr(7)`).
//!
//! A name belongs to a namespace by its prefix. `user.*` is for everybody who may read or write the
//! file, `trusted.*` for the administrator, `security.*` for security modules, and of `system.*`
//! there are the two access control lists. Those two live beside an [`XattrSet`], as
//! [`Acl`](crate::security::acl::Acl)s, and only their names meet here.
//!
//! The order of the checks is Linux's, which decides the error a caller sees: the name's length
//! ([`XattrName::new`]), the path, the caller's rights ([`xattr_permission`]), whether there is
//! such a namespace ([`XattrName::supported`]), and then the set.
//!
//! # Invariants
//!
//! An [`XattrSet`] holds its attributes sorted by name, each name once, and only names of the
//! namespaces `user`, `trusted` and `security`. [`XattrSet::bytes`] is exactly the sum of what
//! [`XattrSet::set_cost`] announced and [`XattrSet::remove`] returned, so a caller that charges and
//! uncharges these never drifts.
//!
//! A set has no lock of its own: changing it takes `&mut`, and it is `Send + Sync`.

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
const CAPABILITY: &[u8] = b"security.capability";

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_ISVTX: u32 = 0o001_000;

/// Where a name belongs, by its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Namespace {
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
    /// Any other name that starts with `system.`: there is none.
    System,
    /// No namespace that Linux knows.
    Unknown,
}

/// The name of an attribute, of a valid length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XattrName<'a> {
    bytes: &'a [u8],
}

impl<'a> XattrName<'a> {
    /// The capabilities that a program gives to whoever executes it.
    pub(crate) const CAPABILITY: XattrName<'static> = XattrName { bytes: CAPABILITY };

    /// Takes a name of 1 to 255 bytes.
    ///
    /// # Errors
    /// `ERANGE` for another length, `EINVAL` for a zero byte, which can't be said to Linux at all.
    pub fn new(bytes: &'a [u8]) -> Result<XattrName<'a>, Errno> {
        match bytes.len() {
            1..=XATTR_NAME_BYTES_MAX if !bytes.contains(&0) => Ok(XattrName { bytes }),
            1..=XATTR_NAME_BYTES_MAX => Err(Errno::INVAL),
            _ => Err(Errno::RANGE),
        }
    }

    /// The name as it was given.
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Where the name belongs. It may still be incomplete; see [`supported`](Self::supported).
    pub fn namespace(self) -> Namespace {
        match self.split().0 {
            b"user." => Namespace::User,
            b"trusted." => Namespace::Trusted,
            b"security." => Namespace::Security,
            b"system." if self.bytes == POSIX_ACL_ACCESS => Namespace::AclAccess,
            b"system." if self.bytes == POSIX_ACL_DEFAULT => Namespace::AclDefault,
            b"system." => Namespace::System,
            _ => Namespace::Unknown,
        }
    }

    /// Whether there can be an attribute of this name.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for an unknown namespace, `EINVAL` for a prefix without a name behind it.
    pub fn supported(self) -> Result<Namespace, Errno> {
        match self.namespace() {
            Namespace::System | Namespace::Unknown => Err(Errno::OPNOTSUPP),
            _ if self.split().1.is_empty() => Err(Errno::INVAL),
            namespace => Ok(namespace),
        }
    }

    /// The prefix, up to the first dot and with it, and the rest.
    fn split(self) -> (&'a [u8], &'a [u8]) {
        let dot = self.bytes.iter().position(|&byte| byte == b'.');
        self.bytes.split_at(dot.map_or(0, |at| at + 1))
    }
}

/// What is to be done with an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrOp<'a> {
    /// Read its value.
    Get,
    /// Set it to this value.
    Set(&'a [u8]),
    /// Remove it.
    Remove,
}

/// Who does it, to what.
#[derive(Clone, Copy, Debug)]
pub struct XattrSubject {
    /// The mode of the file, of which permissions don't matter.
    pub mode: u32,
    /// The caller owns the file or holds `CAP_FOWNER`.
    pub owner: bool,
    /// The caller's privileges.
    pub caps: Capabilities,
}

impl XattrSubject {
    fn is(&self, kind: u32) -> bool {
        self.mode & S_IFMT == kind
    }
}

/// Whether the rules of the attribute's namespace let `subject` do `op`, and if so, which access to
/// the file the caller must check besides (nothing, `READ`, or `WRITE`).
///
/// The rules, as in Linux: `user.*` only on regular files and directories, and in a sticky
/// directory only by its owner; `trusted.*` only with `CAP_SYS_ADMIN`, and otherwise it is as if
/// there were none; `security.*` may be read by all and changed with `CAP_SYS_ADMIN`, file
/// capabilities with `CAP_SETFCAP`; access control lists may be read by all and changed by the
/// owner.
///
/// In one case this is stricter than Linux, where anybody may replace a file's capabilities by an
/// empty value: here that takes `CAP_SETFCAP` like any other value.
///
/// Setting an access control list by the name of the default one is refused on anything but a
/// directory, and removing it there does nothing: the caller finds none.
///
/// # Errors
/// `EPERM`; `ENODATA` for reading what is hidden; `EINVAL` for malformed file capabilities;
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
        Namespace::AclAccess | Namespace::AclDefault => acl_permission(name, op, subject),
        Namespace::Security => security_permission(name, op, subject),
        Namespace::System => Ok(Access::empty()),
        Namespace::Trusted if subject.caps.contains(Capabilities::SYS_ADMIN) => Ok(Access::empty()),
        Namespace::Trusted => Err(hidden),
        Namespace::User if !subject.is(S_IFREG) && !subject.is(S_IFDIR) => Err(hidden),
        Namespace::User
            if writes && subject.is(S_IFDIR) && subject.mode & S_ISVTX != 0 && !subject.owner =>
        {
            Err(Errno::PERM)
        }
        Namespace::User | Namespace::Unknown if writes => Ok(Access::WRITE),
        Namespace::User | Namespace::Unknown => Ok(Access::READ),
    }
}

fn acl_permission(
    name: XattrName<'_>,
    op: XattrOp<'_>,
    subject: &XattrSubject,
) -> Result<Access, Errno> {
    /// A value of the version alone is a list without entries, which removes.
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

/// Checks a value of `security.capability`: empty, or of version 2 or 3 and of the length that goes
/// with it.
fn check_file_capabilities(value: &[u8]) -> Result<(), Errno> {
    const EFFECTIVE: u32 = 1;
    let Some((magic, rest)) = value.split_first_chunk::<4>() else {
        return if value.is_empty() { Ok(()) } else { Err(Errno::INVAL) };
    };
    match (u32::from_le_bytes(*magic) & !EFFECTIVE, rest) {
        (0x0200_0000, [..]) if rest.len() == 16 => Ok(()),
        // The last four bytes are the user that is root to these capabilities; -1 is nobody.
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

/// What an attribute takes besides its bytes: its place in the set, its count, and what an
/// allocator adds to the three pieces.
const OVERHEAD_BYTES: usize = size_of::<Xattr>() + 72;

fn cost(name_len: usize, value_len: usize) -> u64 {
    (OVERHEAD_BYTES + name_len + value_len) as u64
}

/// The extended attributes of one inode, without its access control lists. Copies share what is not
/// changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XattrSet {
    sorted: Vec<Arc<Xattr>>,
    bytes: u64,
}

/// Which access control lists a file has, for [`XattrSet::list`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AclNames {
    /// It has an access list.
    pub access: bool,
    /// It has a default list.
    pub default: bool,
}

impl XattrSet {
    /// A set without attributes. Allocates nothing.
    pub const fn new() -> XattrSet {
        XattrSet { sorted: Vec::new(), bytes: 0 }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The memory to charge for what is in the set, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The value of an attribute. [`copy_out`] puts it where `getxattr` wants it.
    ///
    /// # Errors
    /// Those of [`XattrName::supported`]; `EOPNOTSUPP` for access control lists, which are not kept
    /// here; `ENODATA` when there is no such attribute.
    pub fn get(&self, name: XattrName<'_>) -> Result<&[u8], Errno> {
        let at = self.find(name)?.map_err(|_| Errno::NODATA)?;
        Ok(&self.sorted[at].value)
    }

    /// What [`set`](Self::set) with the same arguments would add to [`bytes`](Self::bytes);
    /// negative when it would free memory.
    ///
    /// A caller that keeps to a budget charges a positive result before the change, and gives a
    /// negative one back after it, all under the lock that guards the set.
    ///
    /// # Errors
    /// Exactly those of `set`.
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
        // Both are below 128 KiB.
        Ok(cost(name.bytes.len(), value.len()) as i64 - old as i64)
    }

    /// Makes an attribute or replaces its value.
    ///
    /// # Errors
    /// In this order: `EINVAL` for unknown flags, `E2BIG` for a value of more than 64 KiB; those of
    /// [`XattrName::supported`]; `EOPNOTSUPP` for access control lists; `EEXIST` with `CREATE` when
    /// there is one, `ENODATA` with `REPLACE` when there is none.
    pub fn set(
        &mut self,
        name: XattrName<'_>,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        match self.place(name, value, flags)? {
            Ok(at) => {
                let old = &self.sorted[at];
                self.bytes = self.bytes - old.cost() + cost(name.bytes.len(), value.len());
                let new = Xattr { name: name.bytes.into(), value: value.into() };
                self.sorted[at] = Arc::new(new);
            }
            Err(at) => {
                let new = Xattr { name: name.bytes.into(), value: value.into() };
                self.bytes += new.cost();
                self.sorted.insert(at, Arc::new(new));
            }
        }
        Ok(())
    }

    /// Removes an attribute and returns the bytes that are free now.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn remove(&mut self, name: XattrName<'_>) -> Result<u64, Errno> {
        let at = self.find(name)?.map_err(|_| Errno::NODATA)?;
        let freed = self.sorted.remove(at).cost();
        self.bytes -= freed;
        if self.sorted.len() * 4 < self.sorted.capacity() {
            self.sorted.shrink_to(self.sorted.len() * 2);
        }
        Ok(freed)
    }

    /// The names, sorted, without those of access control lists.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.sorted.iter().map(|xattr| &*xattr.name)
    }

    /// The names as `listxattr` gives them, each ended by a zero byte, access control lists first.
    /// `trusted.*` shows only to those who hold `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// `E2BIG` when they take more than 64 KiB.
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

    /// Where `set` would put a value: `Ok` over an old one, `Err` as a new one.
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
            place => Ok(place),
        }
    }

    /// Where an attribute is (`Ok`), or would be (`Err`).
    fn find(&self, name: XattrName<'_>) -> Result<Result<usize, usize>, Errno> {
        match name.supported()? {
            Namespace::User | Namespace::Trusted | Namespace::Security => {
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

/// Copies a value or a list out as `getxattr` and `listxattr` do: an empty `buf` asks for the
/// length alone. Returns the length.
///
/// # Errors
/// `ERANGE` when `buf` is too small.
pub fn copy_out(value: &[u8], buf: &mut [u8]) -> Result<usize, Errno> {
    if !buf.is_empty() {
        buf.get_mut(..value.len()).ok_or(Errno::RANGE)?.copy_from_slice(value);
    }
    Ok(value.len())
}
