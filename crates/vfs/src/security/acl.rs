//! POSIX access control lists as in Linux (`acl(5)`).
//!
//! An [`Acl`] grants rights to a file in more detail than nine mode bits. Apart from the owner, the
//! owning group and all others, it names users and groups, and a mask that bounds the rights of all
//! but the owner and the others. A directory may also have a *default* list, which new files in it
//! inherit.
//!
//! # Invariants
//!
//! An `Acl` is immutable and always well formed: one entry for the owner, then the named users, one
//! for the owning group, then the named groups, a mask (required if a user or group is named) and
//! one for all others. So no operation on it can fail because the list is malformed, and readers
//! may share it under RCU. It holds no references.
//!
//! A file has an access list only while its mode bits cannot express it ([`Acl::equiv_mode`]). The
//! group bits of the mode are then the mask: `chmod` changes the mask ([`Acl::chmod`]), and a check
//! reads the list only if the group bits are not all clear ([`permission`]).
//!
//! The semantics follow the Linux manual and the behaviour of its kernel, with which the random
//! calls of `crates/difftest` compare them.

use rustix::io::Errno;

#[cfg(test)]
mod tests;

/// The version of the extended attribute form, its first four bytes.
const XATTR_VERSION: u32 = 2;
const XATTR_HEADER_BYTES: usize = 4;
const XATTR_ENTRY_BYTES: usize = 8;
/// The longest value of an extended attribute, in bytes.
const XATTR_BYTES_MAX: usize = 65_536;

const TAG_USER_OBJ: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJ: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// The id of entries without a named user or group; invalid as a user or group.
const ID_UNDEFINED: u32 = u32::MAX;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;
const PERMISSIONS: u32 = 0o777;
const RWX: u8 = 7;

/// The subject of an entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AclTag {
    /// The owner of the file.
    UserObj,
    /// A user by number.
    User(u32),
    /// The group of the file.
    GroupObj,
    /// A group by number.
    Group(u32),
    /// The upper bound of the rights of named users and of all groups.
    Mask,
    /// All others.
    Other,
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// The subject.
    pub tag: AclTag,
    /// The rights: read 4, write 2, execute or search 1.
    pub perm: u8,
}

/// A well-formed access control list. `Send + Sync`; see the module page for its invariants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Box<[AclEntry]>,
}

/// A list as the caller passed it, decoded but not validated.
///
/// Linux reports a value that cannot be decoded before it checks the caller's rights, and an
/// invalid list after. [`UncheckedAcl::validate`] is the second step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncheckedAcl {
    entries: Vec<(AclTag, u16)>,
}

/// The part of a list that mode bits can express; see [`Acl::equiv_mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EquivMode {
    /// The mode with its permission bits (0777) replaced.
    pub mode: u32,
    /// Whether the list grants rights that the mode cannot express, so the file needs it.
    pub needs_acl: bool,
}

/// The mode and the lists of a new file; see [`inherit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Type and permission bits.
    pub mode: u32,
    /// Its access list, if the mode cannot express it.
    pub access: Option<Acl>,
    /// Its default list; only directories inherit one.
    pub default: Option<Acl>,
}

impl UncheckedAcl {
    /// Reads the value of `system.posix_acl_access` or `system.posix_acl_default`.
    ///
    /// An empty value, or a list without entries, means no list: `Ok(None)`.
    ///
    /// # Errors
    /// `E2BIG` for a value of more than 64 KiB, `EINVAL` for one of the wrong length or with an
    /// unknown kind of entry, `EOPNOTSUPP` for another version.
    pub fn from_xattr(value: &[u8]) -> Result<Option<UncheckedAcl>, Errno> {
        if value.is_empty() {
            return Ok(None);
        }
        if value.len() > XATTR_BYTES_MAX {
            return Err(Errno::TOOBIG);
        }
        let (version, body) =
            value.split_first_chunk::<XATTR_HEADER_BYTES>().ok_or(Errno::INVAL)?;
        if u32::from_le_bytes(*version) != XATTR_VERSION {
            return Err(Errno::OPNOTSUPP);
        }
        let (chunks, rest) = body.as_chunks::<XATTR_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(Errno::INVAL);
        }
        if chunks.is_empty() {
            return Ok(None);
        }
        let entries = chunks.iter().map(decode_entry).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(UncheckedAcl { entries }))
    }

    /// Checks that the list is well formed, as the module page describes.
    ///
    /// # Errors
    /// `EINVAL` when it is not, when an entry grants unknown permissions, or names user or group
    /// -1.
    pub fn validate(self) -> Result<Acl, Errno> {
        Acl::new(self.entries)
    }
}

fn decode_entry(raw: &[u8; XATTR_ENTRY_BYTES]) -> Result<(AclTag, u16), Errno> {
    let [tag_0, tag_1, perm_0, perm_1, id @ ..] = *raw;
    let id = u32::from_le_bytes(id);
    let tag = match u16::from_le_bytes([tag_0, tag_1]) {
        TAG_USER_OBJ => AclTag::UserObj,
        TAG_USER => AclTag::User(id),
        TAG_GROUP_OBJ => AclTag::GroupObj,
        TAG_GROUP => AclTag::Group(id),
        TAG_MASK => AclTag::Mask,
        TAG_OTHER => AclTag::Other,
        _ => return Err(Errno::INVAL),
    };
    Ok((tag, u16::from_le_bytes([perm_0, perm_1])))
}

fn encode_entry(entry: &AclEntry) -> [u8; XATTR_ENTRY_BYTES] {
    let (tag, id) = match entry.tag {
        AclTag::UserObj => (TAG_USER_OBJ, ID_UNDEFINED),
        AclTag::User(id) => (TAG_USER, id),
        AclTag::GroupObj => (TAG_GROUP_OBJ, ID_UNDEFINED),
        AclTag::Group(id) => (TAG_GROUP, id),
        AclTag::Mask => (TAG_MASK, ID_UNDEFINED),
        AclTag::Other => (TAG_OTHER, ID_UNDEFINED),
    };
    let [tag_0, tag_1] = tag.to_le_bytes();
    let [id_0, id_1, id_2, id_3] = id.to_le_bytes();
    [tag_0, tag_1, entry.perm, 0, id_0, id_1, id_2, id_3]
}

/// The state of the check of a list; each state allows certain entries only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Owner,
    UserOrGroupObj,
    GroupMaskOrOther,
    Other,
    End,
}

impl Acl {
    /// Makes a list of `entries` (subject, rights).
    ///
    /// # Errors
    /// `EINVAL` when the entries are not a well-formed list, as the module page describes.
    pub fn new(entries: impl IntoIterator<Item = (AclTag, u16)>) -> Result<Acl, Errno> {
        let mut expect = Expect::Owner;
        let mut names_somebody = false;
        let mut checked = Vec::new();
        for (tag, perm) in entries {
            expect = match (tag, expect) {
                (AclTag::UserObj, Expect::Owner) => Expect::UserOrGroupObj,
                (AclTag::GroupObj, Expect::UserOrGroupObj) => Expect::GroupMaskOrOther,
                (AclTag::User(id), Expect::UserOrGroupObj)
                | (AclTag::Group(id), Expect::GroupMaskOrOther)
                    if id != ID_UNDEFINED =>
                {
                    names_somebody = true;
                    expect
                }
                (AclTag::Mask, Expect::GroupMaskOrOther) => Expect::Other,
                (AclTag::Other, Expect::Other) => Expect::End,
                (AclTag::Other, Expect::GroupMaskOrOther) if !names_somebody => Expect::End,
                _ => return Err(Errno::INVAL),
            };
            let perm = u8::try_from(perm).ok().filter(|perm| perm & !RWX == 0);
            checked.push(AclEntry { tag, perm: perm.ok_or(Errno::INVAL)? });
        }
        if expect == Expect::End { Ok(Acl { entries: checked.into() }) } else { Err(Errno::INVAL) }
    }

    /// Returns the list that the permission bits of `mode` express.
    pub fn from_mode(mode: u32) -> Acl {
        let bits = |shift: u32| (mode >> shift & 7) as u8;
        let entries = [
            AclEntry { tag: AclTag::UserObj, perm: bits(6) },
            AclEntry { tag: AclTag::GroupObj, perm: bits(3) },
            AclEntry { tag: AclTag::Other, perm: bits(0) },
        ];
        Acl { entries: entries.into() }
    }

    /// Decodes and validates the extended attribute form: [`UncheckedAcl::from_xattr`], then
    /// [`UncheckedAcl::validate`]. Returns `Ok(None)` if the value means no list.
    ///
    /// # Errors
    /// The errors of both.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>, Errno> {
        UncheckedAcl::from_xattr(value)?.map(UncheckedAcl::validate).transpose()
    }

    /// Returns the value of `system.posix_acl_access` or `system.posix_acl_default`.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(self.xattr_len());
        value.extend_from_slice(&XATTR_VERSION.to_le_bytes());
        for entry in &self.entries {
            value.extend_from_slice(&encode_entry(entry));
        }
        value
    }

    /// Returns the length of [`to_xattr`](Self::to_xattr) in bytes.
    pub fn xattr_len(&self) -> usize {
        XATTR_HEADER_BYTES + self.entries.len() * XATTR_ENTRY_BYTES
    }

    /// Returns the entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Returns the memory of the list, in bytes.
    pub fn bytes(&self) -> u64 {
        (size_of::<Acl>() + size_of_val(&*self.entries)) as u64
    }

    /// Returns the mask, or all rights if there is no mask.
    fn mask(&self) -> u8 {
        let mask = self.entries.iter().find(|entry| entry.tag == AclTag::Mask);
        mask.map_or(RWX, |entry| entry.perm)
    }

    /// Checks that `uid`, of group `gid` and of the groups for which `in_group` holds, has all
    /// rights in `want` (read 4, write 2, execute 1) to a file of `owner_uid` and `owner_gid`.
    ///
    /// The first entry that matches decides: the owner's, the named user's, then any entry of one
    /// of the user's groups that grants all of `want`. The entry for others applies only to users
    /// in none of the groups. The caller checks privileges.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn permission(
        &self,
        uid: u32,
        gid: u32,
        owner_uid: u32,
        owner_gid: u32,
        in_group: impl Fn(u32) -> bool,
        want: u8,
    ) -> Result<(), Errno> {
        let want = want & RWX;
        let granted = |perm: u8| if perm & want == want { Ok(()) } else { Err(Errno::ACCESS) };
        let mut in_some_group = false;
        for entry in &self.entries {
            let group = match entry.tag {
                AclTag::UserObj if uid == owner_uid => return granted(entry.perm),
                AclTag::User(id) if id == uid => return granted(entry.perm & self.mask()),
                AclTag::Other if !in_some_group => return granted(entry.perm),
                AclTag::GroupObj => owner_gid,
                AclTag::Group(id) => id,
                _ => continue,
            };
            if group == gid || in_group(group) {
                in_some_group = true;
                if entry.perm & want == want {
                    return granted(entry.perm & self.mask());
                }
            }
        }
        Err(Errno::ACCESS)
    }

    /// Returns the mode of a file with this access list: `mode` with new permission bits. The group
    /// bits are the mask, if there is one.
    ///
    /// If `needs_acl` is false, the mode expresses the whole list, and the file does not need it.
    /// `setxattr` also clears the set-group-ID bit for callers that are neither in the file's group
    /// nor hold `CAP_FSETID`; this method leaves that to its caller.
    pub fn equiv_mode(&self, mode: u32) -> EquivMode {
        let mut bits = 0;
        let mut needs_acl = false;
        for entry in &self.entries {
            let perm = u32::from(entry.perm);
            match entry.tag {
                AclTag::UserObj => bits |= perm << 6,
                AclTag::GroupObj => bits |= perm << 3,
                AclTag::Other => bits |= perm,
                AclTag::Mask => {
                    bits = bits & !0o070 | perm << 3;
                    needs_acl = true;
                }
                AclTag::User(_) | AclTag::Group(_) => needs_acl = true,
            }
        }
        EquivMode { mode: mode & !PERMISSIONS | bits, needs_acl }
    }

    /// Returns the list after a `chmod` to `mode`: the mode sets the entries of the owner and of
    /// others, and the mask, or without a mask the entry of the owning group.
    pub fn chmod(&self, mode: u32) -> Acl {
        self.map_classes(|class, _| (mode >> class.shift() & 7) as u8)
    }

    /// Returns the access list and the mode of a file made with `mode` under this default list: the
    /// list without the rights that `mode` does not grant, and `mode` without the rights that the
    /// list does not grant.
    ///
    /// The file needs the list only if [`equiv_mode`](Self::equiv_mode) reports it. [`inherit`]
    /// includes this step.
    pub fn create_masq(&self, mode: u32) -> (Acl, u32) {
        let acl = self.map_classes(|class, perm| perm & (mode >> class.shift() & 7) as u8);
        let mode = acl.equiv_mode(mode).mode;
        (acl, mode)
    }

    /// Replaces the rights of the three entries that correspond to the three classes of mode bits:
    /// the owner's, the mask (or without one the owning group's), and others'.
    fn map_classes(&self, f: impl Fn(Class, u8) -> u8) -> Acl {
        let masked = self.entries.iter().any(|entry| entry.tag == AclTag::Mask);
        let mut acl = self.clone();
        for entry in &mut acl.entries {
            let class = match entry.tag {
                AclTag::UserObj => Class::User,
                AclTag::Mask => Class::Group,
                AclTag::GroupObj if !masked => Class::Group,
                AclTag::Other => Class::Other,
                AclTag::User(_) | AclTag::GroupObj | AclTag::Group(_) => continue,
            };
            entry.perm = f(class, entry.perm);
        }
        acl
    }
}

/// The three classes of mode bits.
#[derive(Clone, Copy)]
enum Class {
    User,
    Group,
    Other,
}

impl Class {
    fn shift(self) -> u32 {
        match self {
            Class::User => 6,
            Class::Group => 3,
            Class::Other => 0,
        }
    }
}

/// The file of a permission check.
#[derive(Clone, Copy, Debug)]
pub struct Ownership {
    /// Type and permission bits of the file.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// Checks that `uid`, of group `gid` and of the groups for which `in_group` holds, has all rights
/// in `want` (read 4, write 2, execute 1) to a file with mode bits and perhaps an access list.
///
/// For the owner only the mode counts. The list is not read if the group bits are all clear,
/// because its mask then grants nothing; as in Linux, the entry for others then applies to a named
/// user. The caller checks privileges.
///
/// # Errors
/// `EACCES`.
pub fn permission(
    file: Ownership,
    acl: Option<&Acl>,
    uid: u32,
    gid: u32,
    in_group: impl Fn(u32) -> bool,
    want: u8,
) -> Result<(), Errno> {
    let wanted = u32::from(want & RWX);
    let shift = if uid == file.uid {
        Class::User.shift()
    } else if let Some(acl) = acl.filter(|_| file.mode & 0o070 != 0) {
        return acl.permission(uid, gid, file.uid, file.gid, in_group, want);
    } else if (file.mode ^ file.mode >> 3) & wanted != 0 && (gid == file.gid || in_group(file.gid))
    {
        Class::Group.shift()
    } else {
        Class::Other.shift()
    };
    if wanted & !(file.mode >> shift) == 0 { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Returns mode and lists of a file that a task with `umask` makes with `mode` (type and permission
/// bits) in a directory whose default list is `default`. With a default list the umask does not
/// count. Symbolic links retain their mode and get no list.
pub fn inherit(default: Option<&Acl>, mode: u32, umask: u32) -> Inherited {
    let plain = |mode| Inherited { mode, access: None, default: None };
    if mode & S_IFMT == S_IFLNK {
        return plain(mode);
    }
    let Some(default) = default else {
        return plain(mode & !(umask & PERMISSIONS));
    };
    let (acl, mode) = default.create_masq(mode);
    let access = acl.equiv_mode(mode).needs_acl.then_some(acl);
    let is_dir = mode & S_IFMT == S_IFDIR;
    Inherited { mode, access, default: is_dir.then(|| default.clone()) }
}
