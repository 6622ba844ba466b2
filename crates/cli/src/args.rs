//! The command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use vfscale::{Scaling, ScalingError};
use vfscale_command::Size;
use vfscale_fuse::{Polling, Transport, Xattrs};

use crate::device::{self, CephArgs};
use crate::error::Failure;
use crate::freeze::FreezeArgs;
use crate::options::{self, MountOptions};
use crate::umount;
use crate::volume::{branch, copy_out, diff, fsck, grow, make, show, trim};

/// A POSIX file system in user space whose every layer scales with cores.
#[derive(Debug, Parser)]
#[command(name = "vfscale", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) ceph: CephArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Usage of `run`, by hand: clap can't derive that either an image or `--memory` is given.
const RUN_USAGE: &str = "vfscale run [OPTIONS] IMAGE -- COMMAND...
       vfscale run [OPTIONS] --memory[=SIZE] -- COMMAND...";
const MOUNT_USAGE: &str = "vfscale mount [OPTIONS] IMAGE DIR
       vfscale mount [OPTIONS] --memory[=SIZE] DIR";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a file system at a temporary directory and run a command in it
    ///
    /// The command finds itself in the root of the file system; the environment variable
    /// VFSCALE_MOUNT names the directory. When it ends, the file system is unmounted and closed,
    /// the directory removed, and vfscale exits with the command's exit status (128 plus the
    /// number of the signal that ended it). Signals that vfscale gets are passed on to the command.
    /// Other users can't enter the file system, unless --allow-other lets them. Of a run that was
    /// killed the next one of its user removes the directory.
    ///
    /// Examples: vfscale run disk.vfs --size 10G -- sh -c 'git clone -q ~/project . && make';
    /// vfscale run --memory=2G -- make -C project
    #[command(override_usage = RUN_USAGE)]
    Run(RunArgs),

    /// Mount a file system at a directory
    ///
    /// Serves until Ctrl-C, SIGTERM or `umount DIR`, then closes the volume. The contents of a
    /// memory file system are lost. A service of systemd can have the type notify (the package has
    /// an example, vfscale@.service).
    ///
    /// If a branch of the image is mounted already, its process serves further ones as well, for
    /// root and for the user who runs it. Then this command waits until its own mount is ended, and
    /// a signal to it ends that one. The process that serves ends with the last mount, and a signal
    /// to it ends all.
    ///
    /// Examples: vfscale mount disk.vfs /mnt/data; vfscale mount disk.vfs /mnt/trial
    /// -o branch=trial; vfscale mount --memory=64M /mnt/scratch
    #[command(override_usage = MOUNT_USAGE)]
    Mount(MountArgs),

    /// Unmount, and wait until the volume is closed
    ///
    /// umount(8) returns when the mount is gone, and the server writes the rest of the volume
    /// afterwards. This command returns when the volume is closed: its image can be copied, and has
    /// a log with nothing to replay. umount(8) does so too if it finds vfscale under the name
    /// umount.fuse.vfscale.
    ///
    /// The image is known by the source of the mount, so there is no wait with `-o fsname=`.
    ///
    /// Example: vfscale umount /mnt/data && cp disk.vfs /backup
    Umount(umount::UmountArgs),

    /// Make all changes on a mount durable
    ///
    /// Does what `sync` and `syncfs` do on other file systems: Linux does not pass these on to
    /// FUSE. Data that the kernel holds back with --writeback is included only if it was synced by
    /// itself (`fsync`).
    ///
    /// Example: vfscale sync /mnt/data
    Sync {
        /// A directory of the mount; several may be given
        #[arg(value_name = "DIR", required = true)]
        dirs: Vec<PathBuf>,
    },

    /// Hold a mounted volume still while a command runs, for a copy or snapshot of its image
    ///
    /// First everything is made durable and written in place, so the image that the command copies
    /// opens with all that was there, and with nothing to replay. Until the command ends, calls
    /// that change the volume wait, and others may; so the command must not use the mount. The
    /// volume thaws when this process ends, even if it is killed, and at the latest after the
    /// seconds of --for.
    ///
    /// Exits with the command's exit status, and with 1 if the time was over before. Only root and
    /// the user who mounted it may do that. Data that the kernel holds back with --writeback is
    /// included only if it was synced by itself (`fsync`).
    ///
    /// Example: vfscale freeze /srv/home rbd snap create pool/home@monday
    Freeze(FreezeArgs),

    /// Measure how file systems scale: vfscale in memory, or any mounted directory
    ///
    /// Runs the program vfscale-bench, which lies beside this one or in PATH, with all arguments
    /// that follow; `vfscale bench --help` describes them.
    ///
    /// Example: vfscale bench open-close-same-dir stat-deep --target memory
    /// --target path:/mnt/disk --threads 1,2 --before lockref
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Bench {
        /// The arguments of vfscale-bench
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Make a volume in an image file or on a block device
    ///
    /// A device that holds a known file system or partition table is not overwritten without
    /// --force.
    ///
    /// Example: vfscale mkfs disk.vfs --size 10G
    Mkfs(make::MkfsArgs),

    /// Check a volume for damage, and repair it
    ///
    /// Reads all metadata of a volume and cross-checks it. Each finding has a number, which
    /// docs/FORMAT.md explains. Nothing is written without --repair; the log of a volume that was
    /// not closed is then replayed in memory before the check.
    ///
    /// Operations that a crash interrupted are not damage: inodes being removed, files being
    /// truncated, copies of the superblock not yet written. The next mount finishes them, and so
    /// does a repair.
    ///
    /// A repair links files without a name into /lost+found, removes names without a file,
    /// copies blocks that two files share, and removes from files blocks that can't be theirs. An
    /// interrupted repair must be run again: until a repair completes, the volume can't be mounted.
    ///
    /// The exit status is a sum, as fsck(8) defines it: 0, no finding; 1, all findings repaired; 4,
    /// findings left; 8, the check could not be made; 16, the command line is invalid.
    ///
    /// Example: vfscale fsck disk.vfs
    Fsck(fsck::FsckArgs),

    /// Show a structure of a volume, in words or as JSON
    ///
    /// Reads the structure from disk, and reports damage in it. Nothing is written.
    ///
    /// Examples: vfscale dump disk.vfs inode /etc/passwd; vfscale dump disk.vfs log --json
    Dump(show::DumpArgs),

    /// Show the size of a volume, its free space, its label, its log, and when it was used; or how
    /// a mount is used
    ///
    /// With a directory it shows the requests that the mount has served, by operation, with their
    /// mean and longest service times, how much the kernel and the mount cache, and by which
    /// transport they exchange messages. Of a volume it also shows the log (its size and the bytes
    /// in use, checkpoints, and waits for space) and the clean and dirty bytes in the cache; what
    /// is counted counts from the mount on. Service times are those of the server, from the arrival
    /// of a request to the moment when its reply is ready. Only root and the user who mounted it
    /// may do that.
    ///
    /// Examples: vfscale stat disk.vfs; vfscale stat /mnt; vfscale stat --prometheus /mnt
    Stat(show::StatArgs),

    /// Make a volume larger, also while it is mounted
    ///
    /// An image file is extended first; a block device has to be larger already. A crash during
    /// that leaves the former size or the new one. A mounted volume is grown by its mount, at the
    /// request of root or of the user who mounted it.
    ///
    /// Examples: vfscale grow disk.vfs --size 20G; vfscale grow /mnt/data --size 20G
    Grow(grow::GrowArgs),

    /// Discard the free space of a volume, also while it is mounted
    ///
    /// An image file gives the space back to its file system, and a block device is told that it is
    /// not in use. On a mounted volume it is a request of root or of the user who mounted it;
    /// fstrim(8) works as well. Prints how much the file system of an image has got back, which is
    /// nothing if a pool of branches keeps the space, and of a device how much was discarded. See
    /// also the mount options discard and nodiscard.
    ///
    /// Examples: vfscale trim disk.vfs; vfscale trim /mnt/data
    Trim(trim::TrimArgs),

    /// Change the label or the id of a volume
    ///
    /// Examples: vfscale tune disk.vfs --label music; vfscale tune copy.vfs --uuid random
    Tune(make::TuneArgs),

    /// Make, list and delete branches of a volume
    ///
    /// A branch is a volume that began as a copy of another one. Branches of an image share all
    /// blocks that they have not changed. `vfscale run --branch` and `-o branch=` use one; `vfscale
    /// diff` compares two; `vfscale adopt` keeps what was done in one. If a branch of the image is
    /// mounted, its mount makes the change, at the request of root or of the user who mounted it.
    ///
    /// Examples: vfscale branch create disk.vfs trial; vfscale branch list disk.vfs
    Branch(branch::BranchArgs),

    /// Show the differences between two branches
    ///
    /// Prints a line for each file that was added, removed, moved or changed from A to B: its
    /// contents, attributes or extended attributes. Contents are compared, not times; blocks that
    /// both branches share are not read. The memory depends on the differences and on the largest
    /// directory.
    ///
    /// If the image is mounted, the process that serves it compares them: a branch that is mounted
    /// as it is at the beginning, with all changes whose calls have returned.
    ///
    /// Exits as diff(1) does: 0 without differences, 1 with some, 2 if they can't be compared.
    ///
    /// Example: vfscale diff disk.vfs main trial
    Diff(diff::DiffArgs),

    /// Give a branch the contents of a branch that was forked from it
    ///
    /// That is done only if nothing has changed in the parent since the fork; what was read, forked
    /// or compared since then is no change. The name of the child is free afterwards. A rollback of
    /// the parent leads to this moment. Neither of them may be mounted; other branches of the image
    /// may be.
    ///
    /// Example: vfscale adopt disk.vfs trial
    Adopt(diff::AdoptArgs),

    /// Copy all readable files out of a volume that will not mount
    ///
    /// Reads directories, files, links, devices, attributes, access control lists, times, and as
    /// root owners, and writes them below a directory. The log is replayed in memory; if it can't
    /// be read, the latest changes are missing. Continues after errors, and names each path that
    /// could not be copied, or only in part. Files that no directory names any more are put into
    /// lost+found there, each under the number of its inode. The volume itself is not written.
    ///
    /// Exits with 0 if all was copied and 1 otherwise.
    ///
    /// Example: vfscale copy-out disk.vfs /mnt/rescued
    CopyOut(copy_out::CopyOutArgs),

    /// Write the manual pages and completions to a directory that is laid out as /usr/share
    #[command(hide = true)]
    Man {
        /// The directory; made if missing
        dir: PathBuf,
    },
}

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

    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,

    /// Say how the file system is served: the number of workers, the transport, and whether workers
    /// poll
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Return as soon as it is mounted, and serve in the background
    #[arg(short, long)]
    pub(crate) background: bool,

    /// Append the messages of the background to a file, each with its time. Without it they go to
    /// the system's log
    #[arg(long, value_name = "FILE", requires = "background")]
    pub(crate) log_file: Option<PathBuf>,

    /// Wait until nobody has the image of Ceph RBD mounted, or its holder has been gone for the
    /// time of --grace, and mount it then. Two machines that do this serve one volume: when one
    /// dies, the other one goes on after that time and the one after which Ceph knows that a client
    /// is gone (30 seconds by default)
    #[arg(long, conflicts_with_all = ["memory", "background", "take_over", "read_only"])]
    pub(crate) standby: bool,

    /// With --standby, the seconds for which the holder must have been gone (default: 5)
    #[arg(long, value_name = "SECONDS", requires = "standby",
          value_parser = options::parse_seconds)]
    pub(crate) grace: Option<Duration>,

    /// The image of a volume, or a block device with one (not with --memory), and the directory to
    /// mount at, whose contents are hidden while it is mounted. A directory /dev/fd/N is the open
    /// /dev/fuse of a mount that another program has made
    #[arg(value_names = ["IMAGE", "DIR"], required = true, num_args = 1..=2)]
    pub(crate) places: Vec<PathBuf>,
}

impl Cli {
    /// Sets the cluster and the user of all images of Ceph RBD, as all options name them.
    pub(crate) fn use_ceph(&self) {
        let serve = match &self.command {
            Command::Run(args) => Some(&args.serve),
            Command::Mount(args) => Some(&args.serve),
            _ => None,
        };
        device::use_ceph(&self.ceph, serve.map(ServeArgs::merged_options));
    }
}

impl MountArgs {
    /// Returns the image, if there is one, and the directory.
    ///
    /// # Errors
    /// Returns [`Failure::Usage`] if the number of arguments does not fit `--memory`.
    pub(crate) fn places(&self) -> Result<(Option<&Path>, &Path), Failure> {
        match (&self.places[..], self.source.memory.is_some()) {
            ([image, dir], false) => Ok((Some(image), dir)),
            ([dir], true) => Ok((None, dir)),
            ([_, _], true) => Err(Failure::Usage("--memory has no image: give a directory".into())),
            _ => Err(Failure::Usage(
                "say what to mount: IMAGE and DIR, or --memory and DIR (see --help)".into(),
            )),
        }
    }
}

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
    #[arg(short, value_name = "OPTIONS", value_parser = options::parse)]
    pub(crate) options: Vec<MountOptions>,
}

/// Parses the name of a patch that can be disabled.
fn parse_patch(name: &str) -> Result<String, ScalingError> {
    Scaling::before(name).map(|_| name.to_owned())
}

/// Parses the command line.
///
/// # Errors
/// Any error of clap, which reports help and versions as errors too.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = Cli::command();
    if asks_for_memory(arguments) {
        // Without an image the first word is the command, and all words after it its arguments.
        command = command.mut_subcommand("run", |run| {
            run.mut_arg("image", |image| image.long("image").hide(true).required(false))
        });
    }
    let matches = command.try_get_matches_from_mut(arguments)?;
    let cli = Cli::from_arg_matches(&matches)?;
    match &cli.command {
        Command::Run(args) if args.source.memory.is_none() => named_image(command, arguments)?,
        _ => {}
    }
    Ok(cli)
}

/// Fails if the image of `run` is the first word behind `--`, which is the command.
fn named_image(mut command: clap::Command, arguments: &[OsString]) -> Result<(), clap::Error> {
    let Some(end) = arguments.iter().position(|word| word == "--") else { return Ok(()) };
    let before = [&arguments[..=end], &["true".into()]].concat();
    command.try_get_matches_from_mut(before).map(drop).map_err(|_| {
        let why = "no IMAGE before `--`: write `vfscale run IMAGE -- COMMAND`, or `vfscale run \
                   --memory -- COMMAND`\n";
        command.error(clap::error::ErrorKind::MissingRequiredArgument, why)
    })
}

fn asks_for_memory(arguments: &[OsString]) -> bool {
    let own = arguments.iter().map(|a| a.as_bytes()).take_while(|a| *a != b"--");
    own.into_iter().any(|a| a == b"--memory" || a.starts_with(b"--memory="))
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
        self.options.iter().fold(MountOptions::default(), |merged, o| merged.then(o))
    }
}

#[cfg(test)]
mod tests;
