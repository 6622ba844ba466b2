//! `vfscale grow`: makes a volume larger, also while it is mounted.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use vfscale::block::{Guarded, named::is_rbd};

use super::reached::{Reached, change, reach};
use crate::elsewhere;
use crate::error::Failure;
use crate::mounts;
use crate::options;

#[derive(Debug, Args)]
pub(crate) struct GrowArgs {
    /// The new size of the volume: bytes, or with K, M, G or T. An image file is extended to it; a
    /// block device must be that large already. Without it the volume takes all of the file or
    /// device
    #[arg(long, value_name = "SIZE", value_parser = options::parse_bytes)]
    pub(crate) size: Option<u64>,

    /// The device of an external log; not needed for a mounted volume
    #[arg(long, value_name = "PATH")]
    pub(crate) log_device: Option<PathBuf>,

    /// The image file or block device, mounted or not; or the directory at which the volume is
    /// mounted
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) place: PathBuf,
}

/// Makes a volume larger.
pub(crate) fn grow(args: &GrowArgs) -> Result<ExitCode, Failure> {
    let bytes = match reach(&args.place, "grow DIR --size SIZE")? {
        Reached::Closed(device) => closed(args, device)?,
        Reached::Branches => {
            let why = "it has branches, and does not grow".into();
            return Err(Failure::Refused(args.place.clone(), why));
        }
        Reached::Mounted(dir) => {
            let size = size_of_mounted(args)?;
            elsewhere::ask(&args.place, &dir, |connection| connection.grow(size))?
        }
    };
    println!("{}: {} MiB", args.place.display(), bytes >> 20);
    Ok(ExitCode::SUCCESS)
}

/// Grows a volume that no other process has open.
fn closed(args: &GrowArgs, device: Arc<dyn Guarded>) -> Result<u64, Failure> {
    change(&args.place, device, args.log_device.as_deref(), |volume| {
        let grown = volume.grow(args.size).map(|geometry| geometry.bytes());
        grown.map_err(|error| Failure::Refused(args.place.clone(), error.to_string()))
    })
}

/// Returns the new size of a mounted volume; without `--size`, that of its image or device.
fn size_of_mounted(args: &GrowArgs) -> Result<u64, Failure> {
    if let Some(size) = args.size {
        return Ok(size);
    }
    if mounts::is_dir(&args.place) || is_rbd(&args.place) {
        let text = "set the new size of a mounted volume with --size";
        return Err(Failure::Usage(text.into()));
    }
    File::open(&args.place)
        .and_then(|mut file| file.seek(SeekFrom::End(0)))
        .map_err(|error| Failure::Refused(args.place.clone(), error.to_string()))
}
