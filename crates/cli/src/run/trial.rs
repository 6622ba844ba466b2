//! The file system that a run serves: a volume, or with `--discard` one that lives as long as the
//! command.
//!
//! Of a pool, the latter is a temporary branch. A volume without branches stays one: what the
//! command changes is in memory, and nothing is written to the image.

use std::path::Path;
use std::sync::Arc;

use vfscale::PoolError;
use vfscale::block::CowDevice;
use vfscale::pool::MAIN;

use super::args::RunArgs;
use crate::error::Failure;
use crate::options::MountOptions;
use crate::served::listen::Trial;
use crate::source::{self, Source};

/// A file system that this process has open.
pub(super) struct Opened {
    pub(super) source: Source,
    /// Its branch, if that ends with the command.
    pub(super) trial: Option<Trial>,
    /// Whether all changes are in memory.
    pub(super) is_in_memory: bool,
}

impl Opened {
    /// Opens what the arguments name, or makes it. A branch of its own is named in `options`.
    pub(super) fn new(args: &RunArgs, options: &mut MountOptions) -> Result<Opened, Failure> {
        let size = args.source.size.unwrap_or(source::IMAGE_SIZE);
        let image = args.image.as_deref();
        let Some(image) = image.filter(|_| args.discard) else {
            let named = image.map(|path| (path, Some(size)));
            let source = match image.and_then(|image| read_branch(args, options, image)) {
                Some(source) => source,
                None => Source::open(&args.source, options, named, None)?,
            };
            return Ok(Opened { source, trial: None, is_in_memory: image.is_none() });
        };
        let parent = source::branch_name(options);
        // Others may read the image of trials in memory.
        let pool = match crate::device::pool(image).read_only(true).open() {
            Ok(read) => {
                drop(read);
                source::pool(&args.source, options, image, false)?
            }
            Err(PoolError::NoPool { .. }) if parent == MAIN => {
                return in_memory(args, options, image);
            }
            Err(error) => return Err(error.into()),
        };
        let trial = Trial::fork(pool, &parent)?;
        options.branch = Some(trial.branch.clone());
        let source = Source::of_branch(&trial.pool, &trial.branch, &args.source, options)?;
        Ok(Opened { source, trial: Some(trial), is_in_memory: false })
    }
}

/// Opens a branch that is only read, in a pool that can be written, for others that join. `None` if
/// that is not wanted, or the pool can't be opened so.
fn read_branch(args: &RunArgs, options: &MountOptions, image: &Path) -> Option<Source> {
    let is_ignored = options.fs.no_recovery == Some(true);
    let name = options.branch.as_ref().filter(|_| options.is_read_only() && !is_ignored)?;
    let pool = source::pool(&args.source, options, image, false).ok()?;
    Source::of_branch(&pool, name, &args.source, options).ok()
}

/// Opens a copy of a volume without branches.
fn in_memory(args: &RunArgs, options: &MountOptions, image: &Path) -> Result<Opened, Failure> {
    if options.fs.log_device.is_some() {
        let why = "--discard is not for a volume with its log on a device of its own";
        return Err(Failure::Usage(why.into()));
    }
    // The copy is none of a volume that another process writes.
    let device = crate::device::open(image, true)?;
    let device = Arc::new(CowDevice::in_place_of(device));
    let source = Source::of_device(device, &args.source, options)?;
    Ok(Opened { source, trial: None, is_in_memory: true })
}
