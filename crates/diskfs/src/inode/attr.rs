//! Extended attributes, access control lists among them.
//!
//! # Purpose
//!
//! The VFS holds all attributes of an inode in use in memory; here they are read together with the
//! inode, and stored when one of them changes. All attributes of an inode together are one blob,
//! sorted by name; see [`format::attr`](crate::format::attr) for its bytes. The blob lies in the
//! inode if it fits, otherwise in a tree of chunks ([`blob`]).
//!
//! # Bounds
//!
//! A value has at most 64 KiB, as everywhere on Linux; all attributes of an inode together at most
//! [`ATTR_BLOB_BYTES_MAX`] bytes.
//!
//! # Locks, references
//!
//! None: the owner of the inode holds its lock.

use zerocopy::{FromBytes, IntoBytes};

use crate::btree::counted::Counted;
use crate::btree::{Error, Nodes, Tree};
use crate::format::Damage;
use crate::format::attr::{ATTR_HEAD_BYTES, ATTR_NAME_BYTES_MAX, ATTR_VALUE_BYTES_MAX, RawAttr};
use crate::format::damage::{BlobDamage, BlobFault};
use crate::format::inode::ATTR_BLOB_BYTES_MAX;
use crate::inode::blob::{self, AttrTree};
use crate::inode::core::{AttrFork, InodeCore};

/// Name and value.
pub type Attribute = (Box<[u8]>, Box<[u8]>);

/// The reason why attributes can't be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A name that is empty or longer than 255 bytes, or a value that is longer than 64 KiB.
    #[error("an attribute's name has 1 to 255 bytes, and its value 64 KiB at most")]
    Length,
    /// Too many, or too large attributes.
    #[error("the attributes of an inode have {ATTR_BLOB_BYTES_MAX} bytes at most")]
    Full,
}

/// Reads all attributes of inode `ino`, in the order of their names.
///
/// # Errors
/// [`Error`].
pub fn load<N: Nodes>(
    nodes: &N,
    ino: u64,
    fork: &AttrFork,
) -> Result<Vec<Attribute>, Error<N::Error>> {
    let list = match fork {
        AttrFork::None => return Ok(Vec::new()),
        AttrFork::Inline(blob) => decode(blob),
        AttrFork::Tree { root, bytes } => decode(&blob::load(nodes, tree(*root, ino), *bytes)?),
    };
    list.map_err(|fault| Damage::from(BlobDamage { ino, fault }).into())
}

/// Sets an attribute in a list that is in order, or removes it.
pub fn set(list: &mut Vec<Attribute>, name: &[u8], value: Option<&[u8]>) {
    match (list.binary_search_by(|(other, _)| (**other).cmp(name)), value) {
        (Ok(at), Some(value)) => list[at].1 = value.into(),
        (Ok(at), None) => drop(list.remove(at)),
        (Err(at), Some(value)) => list.insert(at, (name.into(), value.into())),
        (Err(_), None) => {}
    }
}

/// Encodes a list that is sorted by name.
///
/// # Errors
/// [`Refusal`].
pub fn encode(list: &[Attribute]) -> Result<Vec<u8>, Refusal> {
    let mut blob = Vec::new();
    for (name, value) in list {
        let name_bytes = u8::try_from(name.len()).map_err(|_| Refusal::Length)?;
        if name.is_empty() || value.len() > ATTR_VALUE_BYTES_MAX {
            return Err(Refusal::Length);
        }
        // The length is at most `ATTR_VALUE_BYTES_MAX`, so the cast is lossless.
        let value_bytes = (value.len() as u32).into();
        blob.extend_from_slice(RawAttr { value_bytes, name_bytes }.as_bytes());
        blob.extend_from_slice(name);
        blob.extend_from_slice(value);
    }
    if blob.len() > ATTR_BLOB_BYTES_MAX as usize { Err(Refusal::Full) } else { Ok(blob) }
}

/// Decodes the attributes of a blob.
///
/// # Errors
/// The first fault of the blob.
pub fn decode(blob: &[u8]) -> Result<Vec<Attribute>, BlobFault> {
    let mut list = Vec::new();
    decode_into(blob, &mut list).map(|()| list)
}

/// Decodes attributes into `list`, which has those before the first fault if there is one.
pub(crate) fn decode_into(blob: &[u8], list: &mut Vec<Attribute>) -> Result<(), BlobFault> {
    let mut rest = blob;
    while !rest.is_empty() {
        let offset = (blob.len() - rest.len()) as u32;
        let Ok((head, behind)) = RawAttr::read_from_prefix(rest) else {
            return Err(BlobFault::Rest { bytes: rest.len() as u32 });
        };
        let (name_bytes, value_bytes) = (head.name_bytes, head.value_bytes.get());
        let fault = BlobFault::Attribute { offset, name_bytes, value_bytes };
        let (name, behind) = behind.split_at_checked(name_bytes.into()).ok_or(fault)?;
        let (value, behind) = behind.split_at_checked(value_bytes as usize).ok_or(fault)?;
        if name.is_empty() || value.len() > ATTR_VALUE_BYTES_MAX {
            return Err(fault);
        }
        if list.last().is_some_and(|(last, _)| **last >= *name) {
            return Err(BlobFault::Order { offset });
        }
        list.push((name.into(), value.into()));
        rest = behind;
    }
    Ok(())
}

/// Stores the attributes of `blob` (from [`encode`]) in place of the former attributes of `core`.
/// If the inode has no room for them, they are written near the address `near`. After an error the
/// caller discards `core` and the nodes.
///
/// # Errors
/// [`Error`].
pub fn store<N: Nodes>(
    nodes: &mut N,
    ino: u64,
    near: u64,
    core: &mut InodeCore,
    blob: &[u8],
) -> Result<(), Error<N::Error>> {
    let mut nodes = Counted::new(nodes);
    let former = std::mem::take(&mut core.attr);
    core.attr = match former {
        AttrFork::Tree { root, .. } if blob.len() > core.attr_room() => {
            blob::replace(&mut nodes, tree(root, ino), blob)?;
            AttrFork::Tree { root, bytes: blob.len() as u32 }
        }
        former => {
            if let AttrFork::Tree { root, .. } = former {
                blob::remove(&mut nodes, tree(root, ino))?;
            }
            fresh(&mut nodes, ino, near, core.attr_room(), blob)?
        }
    };
    core.blocks = core.blocks.saturating_add_signed(nodes.grown());
    Ok(())
}

fn fresh<N: Nodes>(
    nodes: &mut N,
    ino: u64,
    near: u64,
    room: usize,
    blob: &[u8],
) -> Result<AttrFork, Error<N::Error>> {
    if blob.is_empty() {
        return Ok(AttrFork::None);
    }
    if blob.len() <= room {
        return Ok(AttrFork::Inline(blob.into()));
    }
    let root = blob::create::<AttrTree, _>(nodes, ino, near, blob)?.root();
    Ok(AttrFork::Tree { root, bytes: blob.len() as u32 })
}

fn tree(root: u64, ino: u64) -> Tree<AttrTree> {
    Tree::at(root, ino)
}

/// Assertion: in a blob a name always fits in front of a value.
const _: () = {
    let most = ATTR_HEAD_BYTES + ATTR_NAME_BYTES_MAX + ATTR_VALUE_BYTES_MAX;
    assert!(most <= ATTR_BLOB_BYTES_MAX as usize);
};

#[cfg(test)]
mod tests;
