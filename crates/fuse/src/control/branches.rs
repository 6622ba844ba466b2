//! Requests about the branches of the image of a mounted volume.

#![allow(clippy::host_endian_bytes, reason = "an ioctl is between programs of one machine")]

use std::io;
use std::path::Path;

use rustix::ioctl::{self, opcode};
use vfscale::pool::{MAIN, PoolMaker};
use vfscale::{BranchInfo, Errno, ForkOptions, Pool, PoolError};

use super::open;

/// Bytes of a name, which zeros follow.
const NAME_BYTES: usize = 128;
/// Branches of one reply.
const PAGE: usize = 32;
/// Bytes of a branch in a reply: name, size, own space, depth, flags.
const INFO_BYTES: usize = NAME_BYTES + 24;
/// Bytes of a reply: how many branches follow, and the branches.
const LIST_BYTES: usize = 8 + PAGE * INFO_BYTES;

/// Bytes of a request.
const REQUEST_BYTES: usize = 8 + 2 * NAME_BYTES;

type RawRequest = [u8; REQUEST_BYTES];
type RawList = [u8; LIST_BYTES];

/// `VFSCALE_IOC_BRANCH`.
pub(crate) const BRANCH: ioctl::Opcode = opcode::write::<RawRequest>(0xe7, 4);
/// `VFSCALE_IOC_BRANCHES`.
pub(crate) const BRANCHES: ioctl::Opcode = opcode::read_write::<RawList>(0xe7, 5);

/// Flags of a request, and of a branch in a reply.
const READ_ONLY: u32 = 1;
const AS_SYNCED: u32 = 2;
const TEMPORARY: u32 = 4;

/// A change of the branches of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchRequest {
    /// Make a branch.
    Create {
        /// The branch that it is a copy of.
        parent: String,
        /// Its name.
        name: String,
        /// Whether it can only be read.
        read_only: bool,
        /// Whether it has what a power cut would leave of the parent.
        as_synced: bool,
        /// Whether whoever opens the image next deletes it.
        temporary: bool,
    },
    /// Delete a branch.
    Delete {
        /// Its name.
        name: String,
    },
    /// Rename a branch.
    Rename {
        /// Its name.
        name: String,
        /// Its new name.
        to: String,
    },
    /// Give a branch the contents of its last fork back.
    Rollback {
        /// Its name.
        name: String,
    },
}

impl BranchRequest {
    fn encode(&self) -> Result<RawRequest, Errno> {
        let (number, flags, name, other) = match self {
            Self::Create { parent, name, read_only, as_synced, temporary } => {
                let flags =
                    [(READ_ONLY, read_only), (AS_SYNCED, as_synced), (TEMPORARY, temporary)];
                let flags = flags.iter().map(|(flag, is_set)| flag * u32::from(**is_set)).sum();
                (1_u32, flags, name.as_str(), parent.as_str())
            }
            Self::Delete { name } => (2, 0, name.as_str(), ""),
            Self::Rename { name, to } => (3, 0, name.as_str(), to.as_str()),
            Self::Rollback { name } => (4, 0, name.as_str(), ""),
        };
        let mut raw = [0; REQUEST_BYTES];
        raw[..4].copy_from_slice(&number.to_ne_bytes());
        raw[4..8].copy_from_slice(&flags.to_ne_bytes());
        put(&mut raw[8..8 + NAME_BYTES], name)?;
        put(&mut raw[8 + NAME_BYTES..], other)?;
        Ok(raw)
    }

    fn decode(raw: &[u8]) -> Result<Self, Errno> {
        let raw: &RawRequest = raw.try_into().map_err(|_| Errno::INVAL)?;
        let (number, flags) = (number(&raw[..4])?, number(&raw[4..8])?);
        let (name, other) = (text(&raw[8..8 + NAME_BYTES])?, text(&raw[8 + NAME_BYTES..])?);
        let known = if number == 1 { READ_ONLY | AS_SYNCED | TEMPORARY } else { 0 };
        // A read-only branch is not temporary.
        if flags & !known != 0 || flags & (READ_ONLY | TEMPORARY) == READ_ONLY | TEMPORARY {
            return Err(Errno::INVAL);
        }
        Ok(match number {
            1 => {
                let (read_only, as_synced) = (flags & READ_ONLY != 0, flags & AS_SYNCED != 0);
                let temporary = flags & TEMPORARY != 0;
                Self::Create { parent: other, name, read_only, as_synced, temporary }
            }
            2 => Self::Delete { name },
            3 => Self::Rename { name, to: other },
            4 => Self::Rollback { name },
            _ => return Err(Errno::INVAL),
        })
    }
}

fn put(raw: &mut [u8], text: &str) -> Result<(), Errno> {
    if text.len() > raw.len() || text.contains('\0') {
        return Err(Errno::INVAL);
    }
    raw[..text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}

fn text(raw: &[u8]) -> Result<String, Errno> {
    let length = raw.iter().position(|byte| *byte == 0).unwrap_or(raw.len());
    String::from_utf8(raw[..length].to_vec()).map_err(|_| Errno::INVAL)
}

fn number(raw: &[u8]) -> Result<u32, Errno> {
    raw.try_into().map(u32::from_ne_bytes).map_err(|_| Errno::INVAL)
}

fn long(raw: &[u8]) -> Result<u64, Errno> {
    raw.try_into().map(u64::from_ne_bytes).map_err(|_| Errno::INVAL)
}

/// Makes a change that [`BRANCH`] asks for, in the pool that there is, or the first branch with
/// `maker`.
pub(crate) fn serve(
    pool: impl FnOnce() -> Option<Pool>,
    maker: Option<&PoolMaker>,
    data: &[u8],
) -> Result<(), Errno> {
    let refused = |error: PoolError| {
        tracing::info!("a request about branches was refused: {error}");
        error.errno()
    };
    let request = BranchRequest::decode(data)?;
    let pool = match (pool(), maker, &request) {
        (Some(pool), ..) => pool,
        (None, Some(maker), BranchRequest::Create { parent, .. }) if parent == MAIN => {
            maker.make_pool().map_err(refused)?
        }
        (None, Some(_), BranchRequest::Create { .. }) => return Err(Errno::NOENT),
        (None, ..) => return Err(Errno::OPNOTSUPP),
    };
    let made = match request {
        BranchRequest::Create { parent, name, read_only, as_synced, temporary } => {
            let options = ForkOptions::new().as_synced(as_synced);
            let options =
                if temporary { options.temporary(true) } else { options.read_only(read_only) };
            pool.fork_with(&parent, &name, options)
        }
        BranchRequest::Delete { name } => pool.delete(&name),
        BranchRequest::Rename { name, to } => pool.rename(&name, &to),
        BranchRequest::Rollback { name } => pool.rollback(&name).map(drop),
    };
    made.map_err(refused)
}

/// Returns the reply to [`BRANCHES`]: the branches from the number in `data` on.
pub(crate) fn list(pool: &Pool, data: &[u8]) -> Result<Vec<u8>, Errno> {
    let first = long(data.get(..8).ok_or(Errno::INVAL)?)?;
    let all = pool.branches();
    let rest = all.get(usize::try_from(first).unwrap_or(usize::MAX)..).unwrap_or(&[]);
    let mut raw = vec![0; LIST_BYTES];
    raw[..8].copy_from_slice(&(rest.len() as u64).to_ne_bytes());
    for (info, raw) in rest.iter().zip(raw[8..].chunks_exact_mut(INFO_BYTES)) {
        let (name, numbers) = raw.split_at_mut(NAME_BYTES);
        put(name, &info.name)?;
        numbers[..8].copy_from_slice(&info.size.to_ne_bytes());
        numbers[8..16].copy_from_slice(&info.own.to_ne_bytes());
        numbers[16..20].copy_from_slice(&info.depth.to_ne_bytes());
        numbers[20..].copy_from_slice(&(READ_ONLY * u32::from(info.read_only)).to_ne_bytes());
    }
    Ok(raw)
}

fn info(raw: &[u8]) -> Result<BranchInfo, Errno> {
    let (name, numbers) = raw.split_at(NAME_BYTES);
    Ok(BranchInfo {
        name: text(name)?,
        size: long(&numbers[..8])?,
        own: long(&numbers[8..16])?,
        depth: number(&numbers[16..20])?,
        read_only: number(&numbers[20..])? & READ_ONLY != 0,
    })
}

/// Changes the branches of the image whose branch is mounted at `dir`. The first one that is made
/// makes the image a pool ([`Volume::make_pool`](vfscale::Volume::make_pool)). Blocks for the I/O.
/// Data that the kernel holds back ([`writeback`](crate::Builder::writeback)) is in a new branch
/// only if it was synced before.
///
/// # Errors
/// * `ENOTTY` if no vfscale file system is mounted there.
/// * `EOPNOTSUPP` if the image has no branches, and none is to be made.
/// * `EXDEV`, `EFBIG`, `EOVERFLOW` or `EUCLEAN` if it can't have the first one: its log is on a
///   device of its own, its device has a fixed size, it is too large, or it needs a repair.
/// * `EPERM` if the caller has neither `CAP_SYS_ADMIN` nor mounted it as another user than root.
/// * `ENOENT`, `EEXIST`, `EBUSY` for a branch that does not exist, exists, or is in use.
/// * `EINVAL` for a name that no branch can have, or if the branch does not allow it.
/// * `ENOSPC`, `EROFS`, `EIO`.
pub fn branch(dir: impl AsRef<Path>, request: &BranchRequest) -> io::Result<()> {
    let dir = open(dir.as_ref())?;
    let raw = request.encode()?;
    // SAFETY: the command's number encodes the size of a request, which is read through its
    // argument. No file system but vfscale has this command.
    unsafe { ioctl::ioctl(&dir, ioctl::Setter::<BRANCH, RawRequest>::new(raw))? };
    Ok(())
}

/// Lists the branches of the image whose branch is mounted at `dir`.
///
/// # Errors
/// `ENOTTY`, `EOPNOTSUPP` and `EPERM` as [`branch`].
pub fn branches(dir: impl AsRef<Path>) -> io::Result<Vec<BranchInfo>> {
    let dir = open(dir.as_ref())?;
    let mut found = Vec::new();
    loop {
        let mut raw: RawList = [0; LIST_BYTES];
        raw[..8].copy_from_slice(&(found.len() as u64).to_ne_bytes());
        // SAFETY: the command's number encodes the size of a list, which is read and written
        // through its argument. No file system but vfscale has this command.
        unsafe { ioctl::ioctl(&dir, ioctl::Updater::<BRANCHES, RawList>::new(&mut raw))? };
        let left = long(&raw[..8])?;
        let page = raw[8..].chunks_exact(INFO_BYTES).take(usize::try_from(left).unwrap_or(PAGE));
        let page: Vec<BranchInfo> = page.map(info).collect::<Result<_, Errno>>()?;
        let is_last = left <= page.len() as u64;
        found.extend(page);
        if is_last {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests;
