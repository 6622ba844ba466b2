//! Requests about branches to the mount of an image.

use std::io;
use std::path::Path;

use vfscale::{BranchInfo, Errno};
use vfscale_fuse::control::{self, BranchRequest};

use crate::elsewhere;
use crate::error::{Failure, NOT_ALLOWED};

/// Sends the mount at `dir` a request.
pub(crate) fn ask(dir: &Path, request: &BranchRequest) -> Result<(), Failure> {
    send(dir, request).map_err(|error| failure(dir, &error))
}

/// Sends the mount at `dir` a request, and returns its error as it is.
pub(crate) fn send(dir: &Path, request: &BranchRequest) -> io::Result<()> {
    elsewhere::request(|| control::branch(dir, request).map(|()| Vec::new())).map(drop)
}

/// Lists the branches of the image of the mount at `dir`: none of a volume that is no pool.
pub(crate) fn branches(dir: &Path) -> Result<Vec<BranchInfo>, Failure> {
    match elsewhere::request(|| Ok(serde_json::to_vec(&fields(control::branches(dir)?))?)) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => Ok(Vec::new()),
        listed => {
            let listed = listed.and_then(|text| Ok(serde_json::from_slice::<Vec<Fields>>(&text)?));
            listed.map(infos).map_err(|error| failure(dir, &error))
        }
    }
}

/// The fields of a branch, in the order of their declaration.
type Fields = (String, u64, bool, u32, u64);

fn fields(branches: Vec<BranchInfo>) -> Vec<Fields> {
    let of = |it: BranchInfo| (it.name, it.size, it.read_only, it.depth, it.own);
    branches.into_iter().map(of).collect()
}

fn infos(fields: Vec<Fields>) -> Vec<BranchInfo> {
    let of = |(name, size, read_only, depth, own)| BranchInfo { name, size, read_only, depth, own };
    fields.into_iter().map(of).collect()
}

/// Returns the failure for an error that a mount has replied.
pub(crate) fn failure(dir: &Path, error: &io::Error) -> Failure {
    let words = match Errno::from_io_error(error) {
        Some(Errno::NOTTY) => "no volume with branches is mounted there".into(),
        Some(Errno::OPNOTSUPP) => {
            "its image has no branches yet: `vfscale branch create` makes the first one".into()
        }
        Some(Errno::PERM | Errno::ACCESS) => NOT_ALLOWED.into(),
        Some(Errno::EXIST) => "a branch with that name exists".into(),
        Some(Errno::NOENT) => "there is no such branch".into(),
        Some(Errno::BUSY) => "the branch is in use".into(),
        Some(Errno::NOSPC) => "the pool of branches is full".into(),
        Some(Errno::INVAL) => {
            "no branch can have that name, or the branch does not allow it".into()
        }
        Some(Errno::ROFS) => "it is mounted for reading only".into(),
        Some(Errno::XDEV) => "its log is on a device of its own: copy its files to a volume with \
             its log inside"
            .into(),
        Some(Errno::FBIG) => {
            "its device has a fixed size, and too little space behind the volume: \
             `vfscale mkfs --branch-space` makes a volume with room behind it"
                .into()
        }
        Some(Errno::UCLEAN) => "it is damaged: unmount it, and run `vfscale fsck`".into(),
        Some(Errno::OVERFLOW) => "it is too large to have branches".into(),
        _ => error.to_string(),
    };
    Failure::Branch(dir.to_owned(), words)
}
