//! The options of a command that name a file system, and how it is served.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use vfscale::{Scaling, ScalingError};
use vfscale_command::Size;
use vfscale_fuse::{Polling, Transport, Xattrs};

use crate::error::Failure;
use crate::options::{self, MountOptions};

/// Options that select the served file system.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// A new memory file system, of SIZE at most: bytes, with K, M, G or T, or a share of the
    /// memory such as 50%. Without SIZE the limit is half of the memory: of the machine, or of the
    /// control group if that has less
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true)]
    pub(crate) memory: Option<Option<Size>>,

    /// The size of a missing image, which is then created. By default `run` creates one of 1G,
    /// `mount` none. The image is sparse: it takes space on the disk as it fills
    #[arg(long, value_name = "SIZE", value_parser = options::parse_bytes, conflicts_with = "memory")]
    pub(crate) size: Option<u64>,

    /// The size of the log of an image that is created (default: follows the size of the image)
    #[arg(long, value_name = "SIZE", value_parser = options::parse_bytes, conflicts_with = "memory")]
    pub(crate) log_size: Option<u64>,

    /// The image or device with the log, for a volume with an external log
    #[arg(long, value_name = "DEVICE", conflicts_with = "memory")]
    pub(crate) log_device: Option<PathBuf>,

    /// Seconds until unsynced changes reach the disk (default: 5)
    #[arg(long, value_name = "SECONDS", value_parser = options::parse_seconds,
          conflicts_with = "memory")]
    pub(crate) sync_interval: Option<Duration>,

    /// Size of the volume's cache: bytes, with K, M, G, or a share of the memory such as 10%
    /// (default: 320M, but at most a quarter of the memory of the machine or control group). Three
    /// quarters hold data: writers wait when all of that is dirty. One quarter holds metadata.
    /// Dirty metadata that is not yet written in place may take half as much again; beyond that,
    /// changes wait. Names and inodes take another 128M. Branches that are mounted beside one of
    /// `-o branch` share its memory, unless they have a size of their own
    #[arg(long, value_name = "SIZE", conflicts_with = "memory")]
    pub(crate) cache_size: Option<Size>,

    /// The branch of the image, as `-o branch=NAME`; by default `main`, which is the volume itself
    #[arg(long, value_name = "NAME", conflicts_with = "memory")]
    pub(crate) branch: Option<String>,

    /// Take an image of Ceph RBD from a holder that is alive: the cluster refuses it from then on.
    /// Of what it had made durable nothing is lost
    #[arg(long, conflicts_with_all = ["memory", "read_only"])]
    pub(crate) take_over: bool,

    /// Write nothing to the volume, as `-o ro`. If it was not unmounted, its log is replayed in
    /// memory; with `-o ro,norecovery` the log is ignored
    #[arg(long, conflicts_with = "memory")]
    pub(crate) read_only: bool,

    /// Maximum number of files and directories (default: as many as fit)
    #[arg(long, value_name = "N", requires = "memory")]
    pub(crate) inodes: Option<u64>,

    /// Disable a scaling patch: lockref, seqrwlock, brlock, mount-count, files-lock, dcache-hash,
    /// lru, dentry-count, inode-hash, inode-list, ino-alloc, inode-count, pseudo, and with a volume
    /// read-mostly, active-trans, cil-counters, cil-lists, busy-extents, orphan. These disable what
    /// goes beyond a patch, and leave it as it was published: lockref-spread, path-retry,
    /// dir-moves, mount-rcu, file-lock, and with a volume dirty-list, cil-context, log-space. May
    /// be given several times
    #[arg(long, value_name = "PATCH", value_parser = parse_patch)]
    pub(crate) before: Vec<String>,

    /// Owner of the root directory of a new file system (default: you)
    #[arg(long, value_parser = options::parse_id)]
    pub(crate) uid: Option<u32>,

    /// Group of the root directory of a new file system (default: yours)
    #[arg(long, value_parser = options::parse_id)]
    pub(crate) gid: Option<u32>,

    /// Permissions of the root directory of a new file system, in octal (default: 755)
    #[arg(long, value_parser = options::parse_mode)]
    pub(crate) mode: Option<u32>,
}

/// Options that set how the file system is served.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Worker threads (default: one for each CPU, 2 to 16)
    #[arg(long, value_name = "N", value_parser = options::parse_threads)]
    pub(crate) threads: Option<u16>,

    /// Whether a worker looks for the next request for a moment, 50 microseconds at most, before it
    /// sleeps: `auto` or `never`. Calls of a single client then take a quarter less time, and a CPU
    /// while it works. `auto`: where that saves time, while there are fewer clients than CPUs, but
    /// not on battery or if a control group limits the CPU time; `vfscale stat DIR` shows it
    /// (default: auto)
    #[arg(long, value_name = "WHEN", value_parser = options::parse_polling)]
    pub(crate) poll: Option<Polling>,

    /// Give other users access, as permissions allow (default: yes for a mount of root, no for
    /// others and for `run`)
    #[arg(long, value_name = "YES", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(crate) allow_other: Option<bool>,

    /// Show the file system's own state as text in `.vfscale` at its root: mounts, dentry-state,
    /// inode-state, file-nr, lock_stat, scaling. The kernel then caches names and attributes for
    /// only a second, and reports when files are opened
    #[arg(long, conflicts_with = "writeback")]
    pub(crate) proc: bool,

    /// Let the kernel combine small writes; errors such as a lack of space then show late, when a
    /// file is closed or synced, and SEEK_DATA and SEEK_HOLE find no holes. A file that is renamed
    /// over another while it is open, and not synced, can be empty after a crash
    #[arg(long)]
    pub(crate) writeback: bool,

    /// Serve no extended attributes, access control lists and file capabilities, as `-o noxattr`:
    /// writing many small files then takes fewer messages. Refused if a file has any, which takes a
    /// walk over all files; with `force` those are ignored, and stay stored
    #[arg(long, value_name = "force", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = options::parse_noxattr)]
    pub(crate) noxattr: Option<Xattrs>,

    /// How the kernel hands requests to the server: `classic`, through /dev/fuse (default), or
    /// `uring`, through io_uring with a queue and a thread for each CPU (Linux 6.14), which is
    /// faster with several CPUs; the worker threads then serve what takes long. root must have
    /// switched it on
    #[arg(long, value_name = "TRANSPORT")]
    pub(crate) transport: Option<Transport>,

    /// With `--transport uring`, as root: switch FUSE over io_uring on, for the whole machine and
    /// until it is restarted (the parameter enable_uring of the kernel's module fuse, and
    /// kernel.io_uring_disabled if that forbids it), and say what was changed
    #[arg(long)]
    pub(crate) enable_uring: bool,

    /// Options of mount(8), separated by commas: ro, norecovery (with ro: ignore the log, for
    /// example if it can't be read), errors=shutdown|remount-ro (the reaction of a volume to damage
    /// or to a failure of its log), sync (all changes are durable when their calls return), dirsync
    /// (those of names are), nosuid, nodev, noexec, noatime, size=SIZE, nr_inodes=N, mode=MODE,
    /// uid=UID, gid=GID, allow_other, fsname=NAME, noauto_da_alloc (a file that replaces another
    /// may be empty after a crash), discard and nodiscard (whether the space of removed files is
    /// given back to the file system of a sparse image, which is the default, or to a block device,
    /// which is not), chattr (immutable and append-only files can't be opened for
    /// writing, which takes two messages for each opening; without it that is so if there were such
    /// files before), idmap (mounts of it can be id-mapped, as with X-mount.idmap of mount(8), from
    /// Linux 6.12 on), noxattr, noxattr=force, remount, ... The options above can be given here
    /// too, for fstab(5): branch=NAME, log_device=DEVICE, ceph_conf=FILE, id=USER,
    /// sync_interval=SECONDS or commit=SECONDS, cache_size=SIZE, threads=N, poll=WHEN,
    /// transport=TRANSPORT, writeback
    #[arg(short, value_name = "OPTIONS", value_parser = options::checked)]
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
    /// Merges all `-o`; later ones win.
    pub(crate) fn merged_options(&self) -> MountOptions {
        let mut merged = MountOptions::default();
        for text in &self.options {
            let read = merged.read(text);
            debug_assert_eq!(read, Ok(()), "the parser of the command line has checked it");
        }
        merged
    }
}
