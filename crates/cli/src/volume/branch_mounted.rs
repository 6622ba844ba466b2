//! Requests about branches to the mount of an image.

use std::io;
use std::path::Path;

use vfscale::{BranchInfo, Errno};
use vfscale_fuse::control::{self, BranchRequest};

use crate::error::Failure;

/// Sends the mount at `dir` a request.
pub(crate) fn ask(dir: &Path, request: &BranchRequest) -> Result<(), Failure> {
    control::branch(dir, request).map_err(|error| failure(dir, &error))
}

/// Lists the branches of the image of the mount at `dir`: none of a volume that is no pool.
pub(crate) fn branches(dir: &Path) -> Result<Vec<BranchInfo>, Failure> {
    match control::branches(dir) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => Ok(Vec::new()),
        listed => listed.map_err(|error| failure(dir, &error)),
    }
}

/// Returns the failure for an error that a mount has replied.
pub(crate) fn failure(dir: &Path, error: &io::Error) -> Failure {
    let words = match Errno::from_io_error(error) {
        Some(Errno::NOTTY) => "no volume with branches is mounted there".into(),
        Some(Errno::OPNOTSUPP) => {
            "its image has no branches yet: `vfscale branch create` makes the first one".into()
        }
        Some(Errno::PERM | Errno::ACCESS) => {
            "only root and the user who mounted it may do that".into()
        }
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
