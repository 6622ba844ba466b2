//! `vfscale view`: metadata by which Linux reads a branch.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::reached::{Access, with_pool};
use crate::error::Failure;

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// The file to write; one that exists is replaced
    #[arg(long, value_name = "FILE", required = true)]
    out: PathBuf,
    /// The image file or block device, not mounted
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// A read-only branch
    #[arg(value_name = "BRANCH")]
    branch: String,
}

/// Writes a view.
pub(crate) fn view(args: &ViewArgs) -> Result<ExitCode, Failure> {
    let ViewArgs { out, image, branch } = args;
    let view = with_pool(image, Access::Read, |pool| pool.view(branch, out))?;
    tracing::info!("{} inodes in {} bytes", view.inodes, view.bytes);
    Ok(ExitCode::SUCCESS)
}
