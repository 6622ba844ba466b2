//! `vfscale trim`: discards the free space of a volume, also while it is mounted.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use vfscale::Pool;
use vfscale::block::{self, Guarded};
use vfscale::posix::FstrimRange;
use vfscale_diskfs::{Fault, TrimRange};

use super::reached::{Reached, change, reach};
use crate::elsewhere;
use crate::elsewhere::branches::{Access, with_pool};
use crate::error::Failure;
use crate::mounts;
use crate::options;

#[derive(Debug, Args)]
pub(crate) struct TrimArgs {
    /// Leave free extents alone that are shorter: bytes, or with K, M, G or T
    #[arg(long, value_name = "SIZE", value_parser = options::parse_bytes)]
    pub(crate) minimum: Option<u64>,

    /// The device of an external log; not needed for a mounted volume
    #[arg(long, value_name = "PATH")]
    pub(crate) log_device: Option<PathBuf>,

    /// The image file or block device, mounted or not; or the directory at which the volume, or a
    /// branch, is mounted
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) place: PathBuf,
}

/// Discards the free space of a volume, and prints how much of it the file system of the image has
/// got back: most may be back before. Of a block device it is what was discarded.
pub(crate) fn trim(args: &TrimArgs) -> Result<ExitCode, Failure> {
    let minlen = args.minimum.unwrap_or(0);
    let reached = reach(&args.place, "trim DIR")?;
    let image = match mounts::is_dir(&args.place) {
        true => mounts::source_around(&mounts::table()?, &args.place),
        false => Some(args.place.clone()),
    };
    let before = image.as_deref().and_then(allocated);
    let bytes = match reached {
        Reached::Closed(device) => closed(args, device, minlen)?,
        Reached::Branches => with_pool(&args.place, Access::Write, Pool::trim)?,
        Reached::Mounted(dir) => {
            let range = FstrimRange { start: 0, len: u64::MAX, minlen };
            elsewhere::ask(&args.place, &dir, |connection| connection.trim(range))?
        }
    };
    let after = image.as_deref().and_then(allocated);
    let place = args.place.display();
    match (image, before.zip(after)) {
        (Some(image), Some((before, after))) => {
            let (given, image) = (before.saturating_sub(after) >> 20, image.display());
            println!("{place}: {given} MiB given back to the file system of {image}");
        }
        _ => println!("{place}: {} MiB discarded", bytes >> 20),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the bytes that an image file takes.
fn allocated(image: &Path) -> Option<u64> {
    let meta = image.metadata().ok().filter(std::fs::Metadata::is_file)?;
    // The unit of `st_blocks`.
    Some(meta.blocks() * 512)
}

/// Trims a volume that no other process has open.
fn closed(args: &TrimArgs, device: Arc<dyn Guarded>, minlen: u64) -> Result<u64, Failure> {
    change(&args.place, device, args.log_device.as_deref(), |volume| {
        volume.trim(TrimRange { minlen, ..TrimRange::ALL }).map_err(|fault| {
            let why = match fault {
                Fault::Device(block::Error::Unsupported { .. }) => {
                    "its device or file system can't discard".into()
                }
                fault => fault.to_string(),
            };
            Failure::Refused(args.place.clone(), why)
        })
    })
}
