//! `vfscale checkpoint`: a state of a branch that stays, with a text.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use vfscale_fuse::control::{Reply, Request};

use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::output::written;

#[derive(Debug, Args)]
pub(crate) struct CheckpointArgs {
    /// A line that says what the checkpoint is of
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The branch, mounted or not
    #[arg(value_name = "BRANCH", default_value = vfscale::pool::MAIN)]
    branch: String,
}

/// Makes a checkpoint, and prints its name.
pub(crate) fn checkpoint(args: &CheckpointArgs) -> Result<ExitCode, Failure> {
    let CheckpointArgs { message, image, branch } = args;
    let ask = |dir: &Path| served(image, dir, branch, message);
    let here = || with_pool(image, Access::Convert, |pool| pool.checkpoint(branch, message));
    let name = at_server_or_here(image, "checkpoint DIR BRANCH", ask, here)?;
    written(writeln!(io::stdout().lock(), "{name}"))
}

/// Has the process that serves the mount at `dir` make a checkpoint of a branch of its image, and
/// returns its name.
pub(crate) fn served(
    image: &Path,
    dir: &Path,
    branch: &str,
    message: &str,
) -> Result<String, Failure> {
    let request = Request::Checkpoint(branch.to_owned(), message.to_owned());
    // First the data that the kernel holds back.
    elsewhere::sync_kernel(image, dir)?;
    let mut made = String::new();
    elsewhere::ask(image, dir, |connection| {
        connection.ask(&request, |reply| match reply {
            Reply::Kept(name) => {
                made = name;
                true
            }
            _ => false,
        })
    })?;
    Ok(made)
}
