//! Values of an inode that don't fit into it, in a tree of chunks.
//!
//! # Purpose
//!
//! Attributes, and the targets of long symbolic links, are read and written as a whole. Such a
//! value is a blob: its length is stored in the inode, its bytes in records of a tree, one for each
//! [`CHUNK_BYTES`].
//!
//! # All or nothing
//!
//! A change of a blob changes several records. After an error the caller discards the nodes, as by
//! dropping the transaction.
//!
//! # Locks, references
//!
//! None: the owner of the inode holds its lock.

use zerocopy::little_endian::U32;

use crate::btree::{Error, Kind, Nodes, Record, Tree};
use crate::format::attr::{ATTR_MAGIC, CHUNK_BYTES, LINK_MAGIC, RawBlobChunk};
use crate::format::damage::{BlobDamage, BlobFault};
use crate::format::{Damage, Magic};

/// The tree of attributes that don't fit into the inode.
#[derive(Clone, Copy, Debug)]
pub enum AttrTree {}

/// The tree of a link's target that does not fit into the inode.
#[derive(Clone, Copy, Debug)]
pub enum LinkTree {}

/// A tree of chunks.
pub trait BlobKind: Kind<Key = U32, Value = RawBlobChunk> {}

impl Kind for AttrTree {
    type Key = U32;
    type Value = RawBlobChunk;
    const MAGIC: Magic = ATTR_MAGIC;
    const KEY_MIN: U32 = U32::ZERO;
}

impl Kind for LinkTree {
    type Key = U32;
    type Value = RawBlobChunk;
    const MAGIC: Magic = LINK_MAGIC;
    const KEY_MIN: U32 = U32::ZERO;
}

impl BlobKind for AttrTree {}
impl BlobKind for LinkTree {}

/// Reads a blob of `bytes` bytes.
///
/// # Errors
/// [`Error`]; damage if a chunk is missing, or there is one too many.
pub fn load<K: BlobKind, N: Nodes>(
    nodes: &N,
    tree: Tree<K>,
    bytes: u32,
) -> Result<Vec<u8>, Error<N::Error>> {
    let chunks = chunks_of(bytes as usize);
    let damage = |fault| Error::Damage(Damage::from(BlobDamage { ino: tree.owner(), fault }));
    let mut blob = Vec::with_capacity(chunks as usize * CHUNK_BYTES);
    let mut cursor = tree.seek(nodes, K::KEY_MIN)?;
    for chunk in 0..chunks {
        match cursor.forward()? {
            Some(record) if record.key == chunk => blob.extend_from_slice(&record.value.0),
            _ => return Err(damage(BlobFault::Missing { chunk })),
        }
    }
    if let Some(record) = cursor.forward()? {
        return Err(damage(BlobFault::Surplus { chunk: record.key.get(), chunks }));
    }
    blob.truncate(bytes as usize);
    Ok(blob)
}

/// Creates a tree with a blob, near the address `near`.
///
/// # Errors
/// [`Error`].
pub fn create<K: BlobKind, N: Nodes>(
    nodes: &mut N,
    owner: u64,
    near: u64,
    blob: &[u8],
) -> Result<Tree<K>, Error<N::Error>> {
    let records: Vec<_> = records::<K>(blob).collect();
    Tree::build(nodes, owner, near, &records, 100)
}

/// Replaces the content of the tree by `blob`.
///
/// # Errors
/// [`Error`].
pub fn replace<K: BlobKind, N: Nodes>(
    nodes: &mut N,
    tree: Tree<K>,
    blob: &[u8],
) -> Result<(), Error<N::Error>> {
    for Record::<K> { key, value } in records::<K>(blob) {
        if tree.update(nodes, key, value)?.is_none() {
            tree.insert(nodes, key, value)?;
        }
    }
    cut(nodes, tree, chunks_of(blob.len()))
}

/// Frees the tree, the root included.
///
/// # Errors
/// [`Error`].
pub fn remove<K: BlobKind, N: Nodes>(nodes: &mut N, tree: Tree<K>) -> Result<(), Error<N::Error>> {
    cut(nodes, tree, 0)?;
    let slot = nodes.freeable(tree.root(), &tree.expected())?;
    nodes.free(slot);
    Ok(())
}

/// Removes the chunks from `chunks` on, the last one first, so that the remaining blocks stay full.
fn cut<K: BlobKind, N: Nodes>(
    nodes: &mut N,
    tree: Tree<K>,
    chunks: u32,
) -> Result<(), Error<N::Error>> {
    while let Some(last) = tree.last(nodes)?.filter(|last| last.key.get() >= chunks) {
        tree.remove(nodes, last.key)?;
    }
    Ok(())
}

fn chunks_of(bytes: usize) -> u32 {
    // Blobs are much smaller than the 2 TiB that 32-bit chunk numbers address.
    bytes.div_ceil(CHUNK_BYTES) as u32
}

fn records<K: BlobKind>(blob: &[u8]) -> impl Iterator<Item = Record<K>> {
    (0..).zip(blob.chunks(CHUNK_BYTES)).map(|(number, bytes): (u32, &[u8])| {
        let mut chunk = [0; CHUNK_BYTES];
        chunk[..bytes.len()].copy_from_slice(bytes);
        Record::<K> { key: number.into(), value: RawBlobChunk(chunk) }
    })
}
