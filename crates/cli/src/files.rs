//! `vfscale ls`, `cat`, `rm`, `cp`, `import` and `export`: the files in an image without a mount.
//!
//! They need no /dev/fuse and no rights but those to read or write the image. Commands that only
//! read open it so; what the others change is durable when they end. If a mount serves the branch,
//! they use its files there, with the rights of the user; if only others of the image are mounted,
//! so it is for that time: a fork of it if they only read.
//!
//! | module | contents |
//! | --- | --- |
//! | `tree` | the files of a branch, in the image or on its mount |
//! | `place` | `IMAGE[:BRANCH][:/PATH]` |
//! | `list` | `ls` |
//! | `copy` | `cp`, `import`, `export`, and the copy of `mkfs --from` |

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use vfscale::{Errno, Error, Escaped};

use crate::error::Failure;
use crate::output::written;
use place::Place;
use tree::Tree;

pub(crate) mod copy;
pub(crate) mod list;
pub(crate) mod place;
mod tree;

/// The most bytes of one read.
const STEP_BYTES: usize = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// The device of the log, if it is not in the volume
    #[arg(long, value_name = "PATH")]
    log_device: Option<PathBuf>,

    /// The files
    #[arg(value_name = place::FORM, required = true)]
    places: Vec<Place>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Remove directories too, with all that is in them
    #[arg(long, short)]
    recursive: bool,

    /// Ignore files that do not exist
    #[arg(long, short)]
    force: bool,

    /// The device of the log, if it is not in the volume
    #[arg(long, value_name = "PATH")]
    log_device: Option<PathBuf>,

    /// The files
    #[arg(value_name = place::FORM, required = true)]
    places: Vec<Place>,
}

/// Writes files to the standard output.
pub(crate) fn cat(args: &CatArgs) -> Result<ExitCode, Failure> {
    for places in args.places.chunk_by(Place::is_beside) {
        places[0].read(args.log_device.as_deref(), |tree| {
            places.iter().try_for_each(|place| contents(tree, place))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn contents(tree: &Tree<'_>, place: &Place) -> Result<(), Failure> {
    let path = &place.path;
    // Waiting for a writer of a fifo would be for ever: in the image none can come.
    let file = tree.open(path).map_err(|error| place.failed(error))?;
    let found = file.metadata(path).map_err(|error| place.failed(error))?;
    if !found.is_file() {
        let errno = if found.is_dir() { Errno::ISDIR } else { Errno::INVAL };
        return Err(place.failed(Error::at("read", errno, path)));
    }
    let (mut buf, mut at, mut out) = (vec![0; STEP_BYTES], 0, io::stdout().lock());
    loop {
        let n = file.read_at(&mut buf, at, path).map_err(|error| place.failed(error))?;
        if n == 0 {
            return written(out.flush()).map(drop);
        }
        at += n as u64;
        match out.write_all(&buf[..n]) {
            // The reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            outcome => written(outcome)?,
        };
    }
}

/// Removes files.
pub(crate) fn rm(args: &RmArgs) -> Result<ExitCode, Failure> {
    for places in args.places.chunk_by(Place::is_beside) {
        places[0].write(args.log_device.as_deref(), |tree| {
            places.iter().try_for_each(|place| remove(tree, place, args))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(tree: &Tree<'_>, place: &Place, args: &RmArgs) -> Result<(), Failure> {
    let refused = |why: String| Failure::Refused(place.image.clone(), why);
    let path = &place.path;
    let found = match tree.symlink_metadata(path) {
        Err(error) if args.force && error.errno() == Errno::NOENT => return Ok(()),
        found => found.map_err(|error| place.failed(error))?,
    };
    let root = tree.metadata(Path::new("/")).map_err(|error| place.failed(error))?;
    if (found.dev, found.ino) == (root.dev, root.ino) {
        return Err(refused("the root directory can't be removed; name a file in it".into()));
    }
    if found.is_dir() && !args.recursive {
        let path = Escaped::new(path);
        return Err(refused(format!("{path} is a directory; -r removes it with its contents")));
    }
    tree.remove_all(path).map_err(|error| place.failed(error))
}
