//! `vfscale grow`: makes a volume, or the space of all branches, larger, also while it is mounted.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use vfscale::block::{Guarded, named::is_rbd};
use vfscale::pool::MAIN;
use vfscale::{Errno, Pool};
use vfscale_fuse::control::Growth;

use super::reached::{Reached, change, reach};
use crate::elsewhere;
use crate::elsewhere::branches::{Access, with_pool};
use crate::error::Failure;
use crate::mounts;
use crate::options;

#[derive(Debug, Args)]
pub(crate) struct GrowArgs {
    /// The new size of the volume: bytes, or with K, M, G or T, also in parts as 1.5T; or +SIZE for
    /// so much more. An image file is extended to it, or, if it has branches, by twice the growth;
    /// a block device must be that large already. Without it the volume takes all of the file or
    /// device, or the branches share all of it
    #[arg(long, value_name = "[+]SIZE", value_parser = options::parse_growth)]
    pub(crate) size: Option<Growth>,

    /// The branch whose volume grows (default: `main`, or the one that is mounted at DIR)
    #[arg(long, value_name = "NAME", requires = "size")]
    pub(crate) branch: Option<String>,

    /// Make the space larger that all branches of the image share, and no volume: the new size of
    /// the image, or +SIZE for so much more
    #[arg(long, value_name = "[+]SIZE", value_parser = options::parse_growth, conflicts_with = "size")]
    pub(crate) branch_space: Option<Growth>,

    /// The device of an external log; not needed for a mounted volume
    #[arg(long, value_name = "PATH")]
    pub(crate) log_device: Option<PathBuf>,

    /// The image file or block device, mounted or not; or the directory at which the volume, or a
    /// branch, is mounted
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) place: PathBuf,
}

/// Makes a volume larger, or the space of all branches.
pub(crate) fn grow(args: &GrowArgs) -> Result<ExitCode, Failure> {
    let bytes = match reach(&args.place, "grow DIR --size SIZE")? {
        Reached::Closed(device) => closed(args, device)?,
        Reached::Branches => with_pool(&args.place, Access::Write, |pool| branches(args, pool))?,
        Reached::Mounted(dir) => mounted(args, &dir)?,
    };
    println!("{}: {} MiB", args.place.display(), bytes >> 20);
    Ok(ExitCode::SUCCESS)
}

/// Grows a volume that no other process has open.
fn closed(args: &GrowArgs, device: Arc<dyn Guarded>) -> Result<u64, Failure> {
    let is_main = args.branch.as_deref().is_none_or(|name| name == MAIN);
    if args.branch_space.is_some() || !is_main {
        let why = "its image has no branches yet: `vfscale branch create` makes the first one";
        return Err(Failure::Refused(args.place.clone(), why.into()));
    }
    change(&args.place, device, args.log_device.as_deref(), |volume| {
        let size = args.size.map(|growth| growth.of(volume.geometry().bytes()));
        let grown = volume.grow(size).map(|geometry| geometry.bytes());
        grown.map_err(|error| Failure::Refused(args.place.clone(), error.to_string()))
    })
}

/// Grows a branch of an image that no other process has open, or the space of all.
fn branches(args: &GrowArgs, pool: &Pool) -> Result<u64, vfscale::PoolError> {
    let Some(growth) = args.size else {
        return pool.grow(args.branch_space.map(|growth| growth.of(pool.usage().size)));
    };
    let name = args.branch.as_deref().unwrap_or(MAIN);
    let size = pool.branches().into_iter().find(|it| it.name == name).map_or(0, |it| it.size);
    pool.grow_branch(name, growth.of(size))
}

/// Has the server of a mount grow a volume, or the space of all branches.
fn mounted(args: &GrowArgs, dir: &std::path::Path) -> Result<u64, Failure> {
    let GrowArgs { place, size, branch_space, .. } = args;
    // An image stands for its branch `main`, whichever is mounted at the directory.
    let default = (!mounts::is_dir(place)).then_some(MAIN);
    let branch = args.branch.as_deref().or(default);
    if let Some(growth) = size {
        return elsewhere::ask(place, dir, |connection| connection.grow(branch, *growth));
    }
    let shared =
        elsewhere::ask(place, dir, |connection| match connection.grow_space(*branch_space) {
            Err(error) if error.errno() == Errno::OPNOTSUPP && branch_space.is_none() => Ok(None),
            grown => grown.map(Some),
        })?;
    match shared {
        Some(bytes) => Ok(bytes),
        None => {
            let growth = Growth::To(size_of_mounted(args)?);
            elsewhere::ask(place, dir, |connection| connection.grow(branch, growth))
        }
    }
}

/// Returns the size of the image or device of a mounted volume.
fn size_of_mounted(args: &GrowArgs) -> Result<u64, Failure> {
    if mounts::is_dir(&args.place) || is_rbd(&args.place) {
        let text = "set the new size of a mounted volume with --size";
        return Err(Failure::Usage(text.into()));
    }
    File::open(&args.place)
        .and_then(|mut file| file.seek(SeekFrom::End(0)))
        .map_err(|error| Failure::Refused(args.place.clone(), error.to_string()))
}
