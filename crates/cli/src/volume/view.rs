//! `vfscale view`: metadata by which Linux reads a branch.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::elsewhere::branches::Access;
use crate::error::Failure;
use crate::native::branches::{Branches, with_branches};
use crate::native::session::{self, Lock, Session};
use crate::native::{self, mounts};

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// The file to write; one that exists is replaced
    #[arg(long, value_name = "FILE", conflicts_with = "dir", required_unless_present_any = ["dir", "gc"])]
    out: Option<PathBuf>,
    /// Remove all views beside the image that are not in use
    #[arg(long, conflicts_with_all = ["out", "branch"])]
    gc: bool,
    /// The image file or block device, mounted or not
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
    let image = &native::image_file(image)?;
    match (branch, dir, out) {
        (Some(branch), _, Some(out)) => {
            let view = with_branches(image, Access::Read, |branches| branches.view(branch, out))?;
            tracing::info!("{} inodes in {} bytes", view.inodes, view.bytes);
        }
        (Some(branch), Some(dir), None) => {
            let lock = session::lock(image)?;
            with_branches(image, Access::Convert, |branches| {
                mount(branches, (image, &lock), branch, dir)
            })?;
        }
        _ => {
            let lock = session::lock(image)?;
            let clean = |it: &Branches<'_>| session::clean((image, &lock), it, Some(0));
            with_branches(image, Access::Write, clean)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Mounts a view of a branch at a directory. Linux keeps its file open until it is unmounted, which
/// the next cleaning finds.
fn mount(
    branches: &Branches<'_>,
    (image, lock): (&Path, &Lock),
    branch: &str,
    dir: &Path,
) -> Result<(), Failure> {
    session::clean((image, lock), branches, None)?;
    let session = Session::begin(branches, (image, lock), branch, None, false)?;
    if let Err(failure) = mounts::view(&session.view(), image, dir) {
        session.end(branches)?;
        return Err(failure);
    }
    Ok(())
}
