//! `vfscale ls`, `cat`, `rm`, `cp`, `import` and `export`: the files in an image without a mount.
//!
//! They need no /dev/fuse and no rights but those to read or write the image. Commands that only
//! read open it so; what the others change is durable when they end.
//!
//! | module | contents |
//! | --- | --- |
//! | `place` | `IMAGE[:BRANCH][:/PATH]` |
//! | `list` | `ls` |
//! | `copy` | `cp`, `import`, `export`, and the copy of `mkfs --from` |

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use vfscale::posix::OFlags;
use vfscale::{Errno, Error, Escaped, Task};

use crate::error::Failure;
use crate::output::written;
use place::Place;

pub(crate) mod copy;
pub(crate) mod list;
mod place;

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
        places[0].read(args.log_device.as_deref(), |task| {
            places.iter().try_for_each(|place| contents(task, place))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn contents(task: &Task, place: &Place) -> Result<(), Failure> {
    let path = &place.path;
    // Without it the open of a fifo waits for a writer, who can't come.
    let opened = task.posix().open(path, OFlags::RDONLY | OFlags::NONBLOCK, 0);
    let file = opened.map_err(|error| place.failed(error))?;
    let found = file.metadata().map_err(|error| place.failed(error))?;
    if !found.is_file() {
        let errno = if found.is_dir() { Errno::ISDIR } else { Errno::INVAL };
        return Err(place.failed(Error::at("read", errno, path)));
    }
    let (mut buf, mut at, mut out) = (vec![0; STEP_BYTES], 0, io::stdout().lock());
    loop {
        let read = file.pread(&mut buf, at);
        let n = read.map_err(|error| place.failed(Error::at("pread", error.errno(), path)))?;
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
        places[0].write(args.log_device.as_deref(), |task| {
            places.iter().try_for_each(|place| remove(task, place, args))
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn remove(task: &Task, place: &Place, args: &RmArgs) -> Result<(), Failure> {
    let refused = |why: String| Failure::Refused(place.image.clone(), why);
    let path = &place.path;
    let found = match task.symlink_metadata(path) {
        Err(error) if args.force && error.errno() == Errno::NOENT => return Ok(()),
        found => found.map_err(|error| place.failed(error))?,
    };
    let root = task.metadata("/").map_err(|error| place.failed(error))?;
    if (found.dev, found.ino) == (root.dev, root.ino) {
        return Err(refused("the root directory can't be removed; name a file in it".into()));
    }
    if found.is_dir() && !args.recursive {
        let path = Escaped::new(path);
        return Err(refused(format!("{path} is a directory; -r removes it with its contents")));
    }
    task.remove_dir_all(path).map_err(|error| place.failed(error))
}
