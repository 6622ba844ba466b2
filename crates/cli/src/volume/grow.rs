//! `vfscale grow`: makes a volume larger, also while it is mounted.
//!
//! The process that mounts a volume has locked it, so no other process can write to it. Such a
//! volume is grown by a request to its mount, which `/proc/self/mountinfo` lists with the path of
//! the image as the source.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use vfscale::{Errno, VolumeError};
use vfscale::{block, block::Device};
use vfscale_diskfs::{Volume, VolumeOptions};

use super::{open, open_log};
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
    let bytes = if args.place.is_dir() {
        let size = args.size.ok_or_else(|| {
            Failure::Usage("set the new size of the volume at a directory with --size".into())
        })?;
        ask(&args.place, size)?
    } else {
        match open(&args.place, false) {
            Ok(device) => closed(args, device)?,
            Err(Failure::Device(error @ block::Error::Locked { .. })) => mounted(args, error)?,
            Err(failure) => return Err(failure),
        }
    };
    println!("{}: {} MiB", args.place.display(), bytes >> 20);
    Ok(ExitCode::SUCCESS)
}

/// Grows a volume that no other process has open.
fn closed(args: &GrowArgs, device: Arc<dyn Device>) -> Result<u64, Failure> {
    let name = || args.place.display().to_string();
    let options = VolumeOptions {
        log_device: open_log(args.log_device.as_deref(), false)?,
        ..VolumeOptions::default()
    };
    let volume = Volume::open(device, options).map_err(|fault| {
        Failure::Open(VolumeError::Open { name: name(), fault: Box::new(fault) })
    })?;
    let grown = volume.grow(args.size);
    let closed = volume.close();
    let geometry = grown.map_err(|error| Failure::Grow(args.place.clone(), error.to_string()))?;
    closed.map_err(|fault| {
        Failure::Open(VolumeError::Close { name: name(), fault: Box::new(fault) })
    })?;
    Ok(geometry.bytes())
}

/// Finds the mount of a locked image, and sends it a request to grow the volume.
fn mounted(args: &GrowArgs, locked: block::Error) -> Result<u64, Failure> {
    let size = match args.size {
        Some(size) => size,
        None => File::open(&args.place)
            .and_then(|mut file| file.seek(SeekFrom::End(0)))
            .map_err(|error| Failure::Grow(args.place.clone(), error.to_string()))?,
    };
    match mount_of(&mounts::table()?, &args.place) {
        Some(dir) => ask(&dir, size),
        None => Err(Failure::InUse(locked, "grow DIR --size SIZE")),
    }
}

/// Sends the mount at `dir` a request to grow its volume.
fn ask(dir: &Path, size: u64) -> Result<u64, Failure> {
    vfscale_fuse::control::grow(dir, size)
        .map_err(|error| Failure::Grow(dir.to_owned(), why_not(&error)))
}

/// Returns the meaning of an error that a mount has replied.
fn why_not(error: &io::Error) -> String {
    let words = match Errno::from_io_error(error) {
        Some(Errno::NOTTY) => "no volume is mounted there",
        Some(Errno::OPNOTSUPP) => "the file system that is mounted there is no volume",
        Some(Errno::PERM | Errno::ACCESS) => "only root and the user who mounted it may do that",
        Some(Errno::INVAL) => "it is larger already: a volume does not shrink",
        Some(Errno::FBIG) => "a volume has 16 TiB at most",
        Some(Errno::NOSPC) => "its device is smaller, or there is no room for a larger image",
        Some(Errno::BUSY) => "it has grown too often since it was mounted: unmount it first",
        Some(Errno::ROFS) => "it is mounted for reading only",
        _ => return error.to_string(),
    };
    words.into()
}

/// Returns the directory at which the volume in `image` is mounted, the latest one of several.
pub(super) fn mount_of(mountinfo: &[u8], image: &Path) -> Option<PathBuf> {
    let image = &fs::canonicalize(image).unwrap_or_else(|_| image.to_owned());
    mounts::parse(mountinfo).rfind(|mount| mount.is_of(image)).map(|mount| mount.dir())
}

#[cfg(test)]
mod tests;
