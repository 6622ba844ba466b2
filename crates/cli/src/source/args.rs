//! The options of a command that name a file system, and how it is served.

use clap::Args;
use vfscale::options::Size;
use vfscale::{Scaling, ScalingError};

use crate::error::Failure;
use crate::options::{self, LongOptions, MountOptions};

/// Options that select the served file system.
#[derive(Clone, Debug, Args)]
pub(crate) struct SourceArgs {
    /// A new memory file system, of SIZE at most: bytes, with K, M, G or T, or a share of the
    /// memory such as 50%. Without SIZE the limit is half of the memory: of the machine, or of the
    /// control group if that has less
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true)]
    pub(crate) memory: Option<Option<Size>>,

    /// The size of a missing image, which is then created. By default `run` creates one of 1T,
    /// with a log of 16M, `mount` none. The image is sparse: it takes space on the disk as it fills
    #[arg(long, value_name = "SIZE", value_parser = options::parse_bytes, conflicts_with = "memory")]
    pub(crate) size: Option<u64>,

    /// Take an image of Ceph RBD from a holder that is alive: the cluster refuses it from then on.
    /// Of what it had made durable nothing is lost
    #[arg(long, conflicts_with_all = ["memory", "read_only"])]
    pub(crate) take_over: bool,

    /// Disable a scaling patch: lockref, seqrwlock, brlock, mount-count, files-lock, dcache-hash,
    /// lru, dentry-count, inode-hash, inode-list, ino-alloc, inode-count, pseudo, and with a volume
    /// read-mostly, active-trans, cil-counters, cil-lists, busy-extents, orphan. These disable what
    /// goes beyond a patch, and leave it as it was published: lockref-spread, path-retry,
    /// dir-moves, mount-rcu, file-lock, and with a volume dirty-list, cil-context, log-space. May
    /// be given several times
    #[arg(long, value_name = "PATCH", value_parser = parse_patch)]
    pub(crate) before: Vec<String>,
}

/// Options that set how the file system is served.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// Show the file system's own state as text in `.vfscale` at its root: mounts, dentry-state,
    /// inode-state, file-nr, lock_stat, scaling. The kernel then caches names and attributes for
    /// only a second, and reports when files are opened
    #[arg(long, conflicts_with = "writeback")]
    pub(crate) proc: bool,

    #[command(flatten)]
    pub(crate) long: LongOptions,

    /// With `--transport uring`, as root: switch FUSE over io_uring on, for the whole machine and
    /// until it is restarted (the parameter enable_uring of the kernel's module fuse, and
    /// kernel.io_uring_disabled if that forbids it), and say what was changed
    #[arg(long)]
    pub(crate) enable_uring: bool,

    /// Options of mount(8), separated by commas: --help and the manual page list them
    #[arg(short, value_name = "OPTIONS", value_parser = options::checked,
          long_help = options::help_of_all())]
    pub(crate) options: Vec<String>,
}

/// Parses the name of a patch that can be disabled.
fn parse_patch(name: &str) -> Result<String, ScalingError> {
    Scaling::before(name).map(|_| name.to_owned())
}

impl SourceArgs {
    /// Returns the scaling settings, with the patches of `--before` disabled.
    pub(crate) fn scaling(&self) -> Result<Scaling, Failure> {
        let of_volumes = |name: &&String| {
            vfscale::PATCHES
                .iter()
                .any(|patch| patch.is_of_volumes() && patch.name() == name.as_str())
        };
        if self.memory.is_some()
            && let Some(name) = self.before.iter().find(of_volumes)
        {
            return Err(Failure::Usage(format!(
                "--before {name}: this patch is about volumes, and a file system in memory has no log"
            )));
        }
        let and_before = |scaling: Scaling, name: &String| scaling.and_before(name);
        let scaling = self.before.iter().try_fold(Scaling::default(), and_before);
        scaling.map_err(|e: ScalingError| Failure::Usage(e.to_string()))
    }
}

impl ServeArgs {
    /// Merges all `-o`, of which later ones win, and the long options of the table.
    pub(crate) fn merged_options(&self) -> MountOptions {
        let mut merged = MountOptions::default();
        for text in &self.options {
            let read = merged.read(text);
            debug_assert_eq!(read, Ok(()), "the parser of the command line has checked it");
        }
        merged.apply_long(&self.long);
        merged
    }
}
