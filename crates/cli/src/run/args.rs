//! The arguments of `vfscale run`.

use std::path::PathBuf;

use clap::Args;

use crate::child::CommandArgs;
use crate::source::args::{ServeArgs, SourceArgs};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    /// Run the command in a copy of the file system: nothing of what it does is kept. Of an image
    /// with branches it is a new branch `run N`, forked from `main` or from the one that --branch
    /// names, and deleted when the command ends; if vfscale is killed, when the image is opened
    /// next. An image without branches is not written at all, and the changes are in memory; but if
    /// it is mounted, it becomes a pool, see `vfscale branch create`
    #[arg(long, conflicts_with = "memory")]
    pub(crate) discard: bool,

    /// Record lock statistics, and print them to standard error at the end: a table with the
    /// columns of the kernel's lock_stat, times in microseconds
    #[arg(long)]
    pub(crate) lockstat: bool,

    /// The image of a volume, or a block device with one; a missing image is created. Not with
    /// --memory
    #[arg(value_name = "IMAGE", required = true)]
    pub(crate) image: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) words: CommandArgs,
}
