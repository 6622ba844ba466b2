//! `vfscale view`: metadata by which Linux reads a branch.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use vfscale::Pool;

use super::reached::{Access, with_pool};
use crate::error::Failure;
use crate::native::session::{self, Session};
use crate::native::{self, mounts};

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// The file to write; one that exists is replaced
    #[arg(long, value_name = "FILE", conflicts_with = "dir", required_unless_present_any = ["dir", "gc"])]
    out: Option<PathBuf>,
    /// Remove all views beside the image that are not in use
    #[arg(long, conflicts_with_all = ["out", "branch"])]
    gc: bool,
    /// The image file or block device, not mounted
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The branch; with --out a read-only one
    #[arg(value_name = "BRANCH", required_unless_present = "gc")]
    branch: Option<String>,
    /// The directory to mount at
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Writes a view, or mounts one.
pub(crate) fn view(args: &ViewArgs) -> Result<ExitCode, Failure> {
    let ViewArgs { out, image, branch, dir, .. } = args;
    match (branch, dir, out) {
        (Some(branch), _, Some(out)) => {
            let view = with_pool(image, Access::Read, |pool| pool.view(branch, out))?;
            tracing::info!("{} inodes in {} bytes", view.inodes, view.bytes);
        }
        (Some(branch), Some(dir), None) => {
            with_sessions(args, |pool, image| mount(pool, image, branch, dir))?;
        }
        _ => with_sessions(args, |pool, image| session::clean(image, pool, Some(0)))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the pool in an image to change the uses of its views.
fn with_sessions(
    args: &ViewArgs,
    act: impl FnOnce(&Pool, &Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let image = native::image_file(&args.image)?;
    let pool = native::open(&image, !args.gc)?;
    let acted = act(&pool, &image);
    let closed = pool.close();
    acted?;
    Ok(closed?)
}

/// Mounts a view of a branch at a directory. Linux keeps its file open until it is unmounted, which
/// the next cleaning finds.
fn mount(pool: &Pool, image: &Path, branch: &str, dir: &Path) -> Result<(), Failure> {
    session::clean(image, pool, None)?;
    let session = Session::begin(pool, image, branch, None, false)?;
    if let Err(failure) = mounts::view(&session.view(), image, dir) {
        session.end(pool)?;
        return Err(failure);
    }
    Ok(())
}
