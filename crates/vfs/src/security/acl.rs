//! POSIX access control lists, as Linux has them (`acl(5)`).
//!
//! An [`Acl`] says who may do what with a file in more detail than nine mode bits: besides the
//! owner, the owning group and everybody else it names further users and groups, and a mask that
//! bounds all of these but the owner and everybody else. A directory may also carry a *default*
//! list, which is what files made in it start with.
//!
//! # Invariants
//!
//! An `Acl` is immutable and always well formed: one entry for the owner, then the named users, one
//! for the owning group, then the named groups, a mask (required when anybody is named) and one for
//! everybody else. So no operation on it can fail for a broken list, and readers may share one
//! under RCU. It holds no reference to anything.
//!
//! A file keeps an access list only while that says more than its mode bits ([`Acl::equiv_mode`]),
//! and then the group bits of the mode are the mask: `chmod` changes the mask ([`Acl::chmod`]), and
//! a check needs to look at the list only when the group bits are not all clear ([`permission`]).
//!
//! The semantics are those of the Linux manual and of its kernel's behaviour, which
//! `tests/linux_acl.rs` compares call by call.

use rustix::io::Errno;

#[cfg(test)]
mod tests;

/// The version of the extended attribute form, its first four bytes.
const XATTR_VERSION: u32 = 2;
const XATTR_HEADER_BYTES: usize = 4;
const XATTR_ENTRY_BYTES: usize = 8;
/// The longest value of an extended attribute.
const XATTR_BYTES_MAX: usize = 65_536;

const TAG_USER_OBJ: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJ: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

/// The id of entries that name nobody; as a user or group it is invalid.
const ID_UNDEFINED: u32 = u32::MAX;

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;
const PERMISSIONS: u32 = 0o777;
const RWX: u8 = 7;

/// Whom an entry of a list speaks of.
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
    /// The most that named users and all groups may do.
    Mask,
    /// Everybody else.
    Other,
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// Whom it speaks of.
    pub tag: AclTag,
    /// What they may do: read 4, write 2, execute or search 1.
    pub perm: u8,
}

/// A well-formed access control list. `Send + Sync`; see the module page for its invariants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Box<[AclEntry]>,
}

/// A list as it came from a user: of the right form, but not checked for sense yet.
///
/// Linux reports a value that can't be read before it looks at the caller's rights, and one that
/// makes no sense after. [`UncheckedAcl::validate`] is the second step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncheckedAcl {
    entries: Vec<(AclTag, u16)>,
}

/// What mode bits express of a list; see [`Acl::equiv_mode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EquivMode {
    /// The mode with its permission bits (0777) replaced.
    pub mode: u32,
    /// The list says more than that, so it has to be kept.
    pub needs_acl: bool,
}

/// What a new file starts with; see [`inherit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// Type and permission bits.
    pub mode: u32,
    /// Its access list, if the mode does not say it all.
    pub access: Option<Acl>,
    /// Its default list; only directories get one.
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

/// How far the check of a list has come; each entry is allowed in certain states only.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Owner,
    UserOrGroupObj,
    GroupMaskOrOther,
    Other,
    End,
}

impl Acl {
    /// Makes a list of `entries` (whom, what they may do).
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

    /// The list that says what the permission bits of `mode` say.
    pub fn from_mode(mode: u32) -> Acl {
        let bits = |shift: u32| (mode >> shift & 7) as u8;
        let entries = [
            AclEntry { tag: AclTag::UserObj, perm: bits(6) },
            AclEntry { tag: AclTag::GroupObj, perm: bits(3) },
            AclEntry { tag: AclTag::Other, perm: bits(0) },
        ];
        Acl { entries: entries.into() }
    }

    /// Reads and checks the extended attribute form: [`UncheckedAcl::from_xattr`] and
    /// [`UncheckedAcl::validate`] in one. `Ok(None)` means no list.
    ///
    /// # Errors
    /// Those of the two.
    pub fn from_xattr(value: &[u8]) -> Result<Option<Acl>, Errno> {
        UncheckedAcl::from_xattr(value)?.map(UncheckedAcl::validate).transpose()
    }

    /// The value of `system.posix_acl_access` or `system.posix_acl_default`.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(self.xattr_len());
        value.extend_from_slice(&XATTR_VERSION.to_le_bytes());
        for entry in &self.entries {
            value.extend_from_slice(&encode_entry(entry));
        }
        value
    }

    /// The length of [`to_xattr`](Self::to_xattr) in bytes.
    pub fn xattr_len(&self) -> usize {
        XATTR_HEADER_BYTES + self.entries.len() * XATTR_ENTRY_BYTES
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// The memory it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        (size_of::<Acl>() + size_of_val(&*self.entries)) as u64
    }

    /// What the mask leaves; everything when there is no mask.
    fn mask(&self) -> u8 {
        let mask = self.entries.iter().find(|entry| entry.tag == AclTag::Mask);
        mask.map_or(RWX, |entry| entry.perm)
    }

    /// Whether `uid`, of group `gid` and of the groups for which `in_group` holds, may do all of
    /// `want` (read 4, write 2, execute 1) with a file of `owner_uid` and `owner_gid`.
    ///
    /// The first entry that fits decides: the owner's, the user's own, then any entry of one of the
    /// user's groups that grants everything wanted; everybody else's counts only for those who are
    /// in none of the groups. Privileges are the caller's business.
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

    /// The mode that a file has whose access list this is: `mode` with new permission bits. The
    /// group bits are the mask, if there is one.
    ///
    /// When `needs_acl` is false the mode says it all, and the list need not be kept. `setxattr`
    /// also clears the set-group-ID bit for callers who are neither in the file's group nor hold
    /// `CAP_FSETID`; that is left to the caller, who knows.
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

    /// The list after a `chmod` to `mode`: the owner's and everybody else's entries follow the
    /// mode, and so does the mask; only without a mask the owning group's.
    #[must_use]
    pub fn chmod(&self, mode: u32) -> Acl {
        self.map_classes(|class, _| (mode >> class.shift() & 7) as u8)
    }

    /// What a file made with `mode` gets from this default list: the list with everything taken
    /// away that `mode` does not grant, and `mode` with everything taken away that the list does
    /// not grant.
    ///
    /// The file needs to keep the list only when [`equiv_mode`](Self::equiv_mode) says so.
    /// [`inherit`] does it all.
    pub fn create_masq(&self, mode: u32) -> (Acl, u32) {
        let acl = self.map_classes(|class, perm| perm & (mode >> class.shift() & 7) as u8);
        let mode = acl.equiv_mode(mode).mode;
        (acl, mode)
    }

    /// Replaces the permissions of the three entries that stand behind the three classes of mode
    /// bits: the owner's, the mask or without one the owning group's, and everybody else's.
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

/// Whom a permission check is about.
#[derive(Clone, Copy, Debug)]
pub struct Ownership {
    /// Type and permission bits of the file.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// The check of a file with mode bits and perhaps an access list: whether `uid`, of group `gid` and
/// of the groups for which `in_group` holds, may do all of `want` (read 4, write 2, execute 1).
///
/// The owner is judged by the mode alone. The list is not consulted when the group bits are all
/// clear, for then its mask lets nothing through; as in Linux, a named user then counts as
/// everybody else. Privileges are the caller's business.
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

/// What a file made with `mode` (type and permission bits) starts with, in a directory whose
/// default list is `default`, by a task with `umask`. With a default list the mask of the task does
/// not count. Symbolic links keep their mode and get no list.
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
