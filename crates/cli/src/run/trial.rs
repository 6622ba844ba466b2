//! `vfscale run --discard`: a file system that lives as long as the command.
//!
//! Of a pool it is a temporary branch. A volume without branches stays one: what the command
//! changes is in memory, and nothing is written to the image.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::block::{CowDevice, Device};
use vfscale::pool::MAIN;
use vfscale::{BranchInfo, Errno, ForkOptions, Pool, PoolError};
use vfscale_command::say;
use vfscale_fuse::control::Request;

use super::args::RunArgs;
use crate::elsewhere;
use crate::error::Failure;
use crate::options::MountOptions;
use crate::source::{self, Source};
use crate::volume::branch::branches;
use crate::volume::reached::mount_of_locked;

/// A file system that lives as long as the command.
pub(super) enum Trial {
    /// A branch of an image that another process has mounted.
    Served { image: PathBuf, name: String },
    /// A branch of an image that this process has open.
    Branch { pool: Pool, name: String },
    /// A volume without branches, whose changes are in memory.
    Memory(Arc<dyn Device>),
}

impl Trial {
    /// Makes it as a copy of the branch that the arguments name, and has them name the copy.
    pub(super) fn new(args: &RunArgs, options: &mut MountOptions) -> Result<Trial, Failure> {
        let Some(image) = args.image.clone() else {
            return Err(Failure::Usage("--discard is for an image".into()));
        };
        let parent = source::branch_name(options);
        let trial = match mount_of(&image)? {
            Some(dir) => {
                let name = fork_mounted(&image, &dir, &parent)?;
                Trial::Served { image, name }
            }
            None => match crate::device::pool(&image).open() {
                Ok(pool) => {
                    let name = fork(&pool, &parent)?;
                    Trial::Branch { pool, name }
                }
                Err(PoolError::NoPool { .. }) if parent == MAIN => in_memory(options, &image)?,
                Err(error) => return Err(error.into()),
            },
        };
        if let Trial::Served { name, .. } = &trial {
            options.branch = Some(name.clone());
        }
        Ok(trial)
    }

    /// Opens the file system, unless another process has it open.
    pub(super) fn open(
        &self,
        args: &RunArgs,
        options: &MountOptions,
    ) -> Option<Result<Source, Failure>> {
        match self {
            Trial::Served { .. } => None,
            Trial::Branch { pool, name } => {
                Some(Source::of_branch(pool, name, &args.source, options))
            }
            Trial::Memory(device) => Some(Source::of_device(device.clone(), &args.source, options)),
        }
    }

    /// Returns whether all changes are in memory.
    pub(super) fn is_in_memory(&self) -> bool {
        matches!(self, Trial::Memory(_))
    }

    /// Deletes the branch.
    pub(super) fn end(self) -> Result<(), Failure> {
        match self {
            Trial::Served { image, name } => match mount_of(&image)? {
                Some(dir) => elsewhere::ask(&image, &dir, |it| it.tell(&Request::Delete(name))),
                // Its server has ended: the next opening of the image deletes it.
                None => Ok(()),
            },
            Trial::Branch { pool, name } => {
                let deleted = pool.delete(&name).and_then(|()| pool.reap());
                pool.close()?;
                Ok(deleted?)
            }
            Trial::Memory(_) => Ok(()),
        }
    }
}

/// Returns a copy of a volume without branches.
fn in_memory(options: &MountOptions, image: &Path) -> Result<Trial, Failure> {
    if options.fs.log_device.is_some() {
        let why = "--discard is not for a volume with its log on a device of its own";
        return Err(Failure::Usage(why.into()));
    }
    // The copy is none of a volume that another process writes.
    let device = crate::device::open(image, false)?;
    Ok(Trial::Memory(Arc::new(CowDevice::in_place_of(device))))
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
    let options = ForkOptions::new().temporary(true);
    pool.fork_with(parent, &name, options).map(|()| name)
}

/// Has a mount of the image make the fork. Others may do so at the same time.
fn fork_mounted(image: &Path, dir: &Path, parent: &str) -> Result<String, Failure> {
    elsewhere::sync_kernel(image, dir)?;
    let mut first = 0;
    loop {
        let branches = branches(image, dir)?;
        if branches.is_empty() {
            say(format_args!(
                "vfscale: {} is mounted, and becomes a pool of branches now, which can't be undone",
                image.display()
            ));
        }
        let (number, name) = free_name(&branches, first);
        let request = Request::Fork {
            parent: parent.to_owned(),
            name: name.clone(),
            read_only: false,
            as_synced: false,
            temporary: true,
        };
        match elsewhere::try_ask(image, dir, |connection| connection.tell(&request))? {
            Ok(()) => return Ok(name),
            Err(error) if error.errno() == Errno::EXIST => first = number + 1,
            Err(error) => return Err(elsewhere::refused(dir, &error)),
        }
    }
}
