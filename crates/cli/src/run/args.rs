//! The arguments of `vfscale run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::child::CommandArgs;
use crate::options;
use crate::source::args::{ServeArgs, SourceArgs};
use crate::volume::branch::parse_limit;

#[derive(Clone, Debug, Args)]
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

    /// Run the command in a new branch of this name, which stays when it ends. A missing image is
    /// created first, and one without branches becomes a pool, see `vfscale branch create`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["memory", "discard", "branch"])]
    pub(crate) new: Option<String>,

    /// The branch that the new one is forked from (default: `main`)
    #[arg(long, value_name = "BRANCH", requires = "new", default_value = vfscale::pool::MAIN)]
    pub(crate) from: String,

    /// The space that the new branch may have for itself, see `vfscale branch limit`
    #[arg(long, value_name = "SIZE", requires = "new", value_parser = parse_limit)]
    pub(crate) limit: Option<u64>,

    /// Run the command at the kernel's speed: Linux reads the branch in place, and what the command
    /// writes is in a directory of the host until it has ended. Then one commit makes all of it in
    /// the branch. Needs root, EROFS and overlayfs: any number of runs can have branches of the
    /// image then, and others may be mounted. As another user, the command reads through a mount,
    /// and the image is the run's alone. Without namespaces of users or overlayfs the branch is
    /// mounted as ever. An image without branches becomes a pool, which can't be undone
    #[arg(long, conflicts_with_all = ["memory", "lockstat"])]
    pub(crate) native: bool,

    /// Where a native run keeps what the command writes: an empty directory, or `tmpfs` or
    /// `tmpfs=SIZE` for memory, which a run that is killed loses. By default it is beside the
    /// image, and a run that is killed leaves it: `vfscale commit` keeps it, `vfscale discard`
    /// drops it
    #[arg(long, value_name = "DIR", requires = "native")]
    pub(crate) upper: Option<String>,

    /// Say how a native run reads the branch, and which options of its mounts the kernel refuses
    #[arg(short, long, requires = "native")]
    pub(crate) verbose: bool,

    /// Make a checkpoint of the branch each time that these seconds have passed and something has
    /// changed, see `vfscale checkpoint`: what the command had then can be compared, read and
    /// rolled back to. An image without branches becomes a pool. Checkpoints stay until `vfscale
    /// branch delete`
    #[arg(long, value_name = "SECONDS", value_parser = options::parse_seconds,
          conflicts_with_all = ["memory", "discard", "native"])]
    pub(crate) checkpoint_every: Option<Duration>,

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

impl RunArgs {
    /// Returns the arguments of the same run that is neither native nor a trial.
    pub(super) fn as_mount(&self) -> Self {
        Self { native: false, discard: false, upper: None, ..self.clone() }
    }
}
