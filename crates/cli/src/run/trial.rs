//! `vfscale run --discard`: a branch that lives as long as the command.

use std::path::{Path, PathBuf};

use vfscale::{BranchInfo, Pool, PoolError};
use vfscale_fuse::control::{self, BranchRequest};

use crate::args::RunArgs;
use crate::error::Failure;
use crate::mounts;
use crate::options::MountOptions;
use crate::source;
use crate::volume::branch_mounted as mounted;
use crate::volume::reached::mount_of_locked;

/// A branch that lives as long as the command.
pub(super) struct Trial {
    image: PathBuf,
    name: String,
}

impl Trial {
    /// Forks the branch that the arguments name, and has them name the fork.
    pub(super) fn new(args: &mut RunArgs, options: &MountOptions) -> Result<Trial, Failure> {
        let Some(image) = args.image.clone() else {
            return Err(Failure::Usage("--discard is for an image".into()));
        };
        let parent = source::branch_name(&args.source, options);
        let name = match mount_of(&image)? {
            Some(dir) => fork_mounted(&image, &dir, &parent)?,
            None => {
                let pool = crate::device::pool(&image).convert(true).open()?;
                let forked = fork(&pool, &parent);
                pool.close()?;
                forked?
            }
        };
        args.source.branch = Some(name.clone());
        Ok(Trial { image, name })
    }

    /// Deletes the branch.
    pub(super) fn end(self) -> Result<(), Failure> {
        if let Some(dir) = mount_of(&self.image)? {
            return mounted::ask(&dir, &BranchRequest::Delete { name: self.name });
        }
        let pool = crate::device::pool(&self.image).open()?;
        let deleted = pool.delete(&self.name).and_then(|()| pool.reap());
        pool.close()?;
        Ok(deleted?)
    }
}

/// Returns a directory at which the image is mounted; `None` if no process has it open, or if there
/// is none.
fn mount_of(image: &Path) -> Result<Option<PathBuf>, Failure> {
    match image.try_exists() {
        Ok(false) => Ok(None),
        _ => mount_of_locked(image, "branch"),
    }
}

/// Returns a name that no branch has.
fn free_name(branches: &[BranchInfo], first: u64) -> (u64, String) {
    let names = (first..).map(|number| (number, format!("run {number}")));
    let mut free = names.filter(|(_, name)| branches.iter().all(|info| info.name != *name));
    free.next().unwrap_or_default()
}

fn fork(pool: &Pool, parent: &str) -> Result<String, PoolError> {
    let (_, name) = free_name(&pool.branches(), 0);
    pool.fork(parent, &name).map(|()| name)
}

/// Has a mount of the image make the fork. Others may do so at the same time.
fn fork_mounted(image: &Path, dir: &Path, parent: &str) -> Result<String, Failure> {
    mounts::sync_kernel(image, dir)?;
    let mut first = 0;
    loop {
        let branches = mounted::branches(dir)?;
        let (number, name) = free_name(&branches, first);
        let request = BranchRequest::Create {
            parent: parent.to_owned(),
            name: name.clone(),
            read_only: false,
            as_synced: false,
        };
        match control::branch(dir, &request) {
            Ok(()) => return Ok(name),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => first = number + 1,
            Err(error) => return Err(mounted::failure(dir, &error)),
        }
    }
}
