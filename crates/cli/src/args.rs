//! The command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::crashlab::CrashlabArgs;
use crate::device::{self, CephArgs};
use crate::files::{self, copy, list};
use crate::freeze::FreezeArgs;
use crate::list::MountsArgs;
use crate::mount::MountArgs;
use crate::native::LeftArgs;
use crate::run::args::RunArgs;
use crate::served::listen::{Life, Wish};
use crate::source::args::ServeArgs;
use crate::umount;
use crate::volume::{
    apply, branch, checkpoint, copy_out, diff, fsck, grow, log, make, merge, show, trim, view,
};

/// A POSIX file system in user space whose every layer scales with cores
///
/// vfscale keeps files in volumes, which are image files or block devices that survive a crash, or
/// in memory. It mounts them, checks and repairs them, and forks a whole volume at once into a
/// branch that is compared, adopted or dropped. vfscale(7) says what volumes, branches and mounts
/// are.
///
/// Examples: vfscale run disk.vfs -- sh -c 'git clone -q ~/project . && make'; vfscale run disk.vfs
/// --discard -- rm -rf project; vfscale mount --memory=64M /mnt/scratch
#[derive(Debug, Parser)]
#[command(name = "vfscale", version, propagate_version = true, after_help = device::CEPH_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) ceph: CephArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Usage of `run`, by hand: clap can't derive that either an image or `--memory` is given.
const RUN_USAGE: &str = "vfscale run [OPTIONS] IMAGE -- COMMAND...
       vfscale run [OPTIONS] --memory[=SIZE] -- COMMAND...";
const CRASHLAB_USAGE: &str = "vfscale crashlab [OPTIONS] --check CHECK [IMAGE] -- COMMAND...";
const MOUNT_USAGE: &str = "vfscale mount [OPTIONS] IMAGE DIR
       vfscale mount [OPTIONS] --memory[=SIZE] DIR";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a file system at a temporary directory and run a command in it
    ///
    /// The command finds itself in the root of the file system; the environment variable
    /// VFSCALE_MOUNT names the directory. When it ends, the file system is unmounted and closed,
    /// the directory removed. Signals that vfscale gets are passed on to the command. Other users
    /// can't enter the file system, unless --allow-other lets them. Of a run that was killed the
    /// next one of its user removes the directory, and so does `vfscale mounts --prune`.
    ///
    /// Any number of runs of one image can be there at once, in branches (--branch, --discard) or
    /// in the same one, whose commands then share the directory. The first one starts the process
    /// that serves all, for root and for its user, and which ends with the last of them.
    ///
    /// Exits with the command's exit status, or with 128 plus the number of the signal that ended
    /// it; with 126 or 127 if the command can't be run or is not found.
    ///
    /// Examples: vfscale run disk.vfs --size 10G -- sh -c 'git clone -q ~/project . && make';
    /// vfscale run --memory=2G -- make -C project
    #[command(override_usage = RUN_USAGE)]
    Run(RunArgs),

    /// Mount a file system at a directory
    ///
    /// Serves until Ctrl-C, SIGTERM or `umount DIR`, then closes the volume. The contents of a
    /// memory file system are lost. A service of systemd can have the type notify, as the package's
    /// vfscale@.service has.
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

    /// List your mounts: directory, image, branch, and the process that serves it
    ///
    /// Of a server that was killed the mount stays, and calls in it fail with the message
    /// `Transport endpoint is not connected`; --prune removes such mounts. What was synced is there
    /// when the image is opened next.
    ///
    /// Examples: vfscale mounts; vfscale mounts --json --prune
    Mounts(MountsArgs),

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
    /// seconds of --for. Of an image with branches all are held, also those at other mounts.
    ///
    /// Exits with the command's exit status, and with 1 if the time was over before. Only root and
    /// the user who mounted it may do that. Data that the kernel holds back with --writeback is
    /// included only if it was synced by itself (`fsync`).
    ///
    /// Example: vfscale freeze /srv/home rbd snap create pool/home@monday
    Freeze(FreezeArgs),

    /// Check what a power cut can leave of what a command does
    ///
    /// Runs a command in a copy of a branch, or in an empty file system, and records what it
    /// changes and syncs. Then finds the states that a power cut can leave, by what a kind of file
    /// system promises, makes each of them, and runs a check in it. Prints which changes were lost
    /// or late in the states that the check refuses: of two states of which one has lost more, only
    /// the other. Everything happens in memory. Not seen are `sync` and `syncfs`, which Linux keeps
    /// from file systems in user space: a program that relies on them is reported.
    ///
    /// The states are those after each change in which nothing is lost, one change, everything from
    /// a change on, or all but one, and in which a write arrives in part.
    ///
    /// Exits with 0 if the check accepts all states, with 1 if it refuses one, and with 2 if
    /// nothing can be said: the command fails, or the check fails without a power cut.
    ///
    /// Example: vfscale crashlab --check 'cat f && ! grep -q half f'
    /// -- sh -c 'echo whole >f.new && mv f.new f'
    #[command(override_usage = CRASHLAB_USAGE)]
    Crashlab(CrashlabArgs),

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

    /// Serve branches of an image to an agent, by the Model Context Protocol (MCP)
    ///
    /// Runs the program vfscale-mcp, which lies beside this one or in PATH, with all arguments that
    /// follow; `vfscale mcp --help` describes them. A client of the protocol starts this, and
    /// speaks with it on the standard input and output: tools fork, compare, merge and roll back
    /// branches, read and write their files, and run commands in them.
    ///
    /// Example: vfscale mcp --branch trial --audit calls.jsonl work.vfs
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Mcp {
        /// The arguments of vfscale-mcp
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
    /// request of root or of the user who mounted it. Each branch of an image has its own size;
    /// the space that they share grows with it, or alone.
    ///
    /// Examples: vfscale grow disk.vfs --size 20G; vfscale grow /mnt/data --size +1.5G; vfscale
    /// grow disk.vfs --branch-space +100G
    Grow(grow::GrowArgs),

    /// Discard the free space of a volume, also while it is mounted
    ///
    /// An image file gives the space back to its file system, and a block device is told that it is
    /// not in use. On a mounted volume it is a request of root or of the user who mounted it;
    /// fstrim(8) works as well. Prints how much the file system of an image has got back, and of a
    /// device how much was discarded. Of an image with branches that is what no branch has; at a
    /// directory, free blocks of the branch there are discarded before. See also the mount options
    /// discard and nodiscard.
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

    /// Keep the present state of a branch
    ///
    /// Makes a branch that can only be read, BRANCH@1 or with the number after the greatest one in
    /// use, and prints its name. Every command takes it for a branch: `vfscale diff`, `log`,
    /// `view`, `branch create --from`, `branch rollback --to`, `branch delete`. The branch may be
    /// mounted: all changes whose calls have returned are in it.
    ///
    /// Example: vfscale checkpoint disk.vfs -m "before the upgrade"
    Checkpoint(checkpoint::CheckpointArgs),

    /// Show the history of a branch
    ///
    /// Prints a line for each state that the image has of it and of what was merged into it, the
    /// last one first: number, time in UTC, what happened, and the branches that are there. A state
    /// is kept as long as two branches come from it, or a rollback or a merge may need it.
    ///
    /// Example: vfscale log --graph disk.vfs trial
    Log(log::LogArgs),

    /// Show the differences between two branches
    ///
    /// Prints a line for each file that was added, removed, replaced by another one, moved or
    /// changed from A to B: its contents, attributes or extended attributes. Contents are compared,
    /// not times; blocks that both branches share are not read. Time and memory depend on the
    /// differences, not on the number of files.
    ///
    /// If the image is mounted, the process that serves it compares them: a branch that is mounted
    /// as it is at the beginning, with all changes whose calls have returned.
    ///
    /// Exits as diff(1) does: 0 without differences, 1 with some, 2 if they can't be compared.
    ///
    /// Examples: vfscale diff disk.vfs main trial; vfscale diff --stat disk.vfs main trial /etc;
    /// vfscale diff --tar=layer.tar disk.vfs main trial
    Diff(diff::DiffArgs),

    /// Give a branch the contents of a branch that was forked from it
    ///
    /// That is done only if nothing has changed in the parent since the fork; what was read, forked
    /// or compared since then is no change. The name of the child is free afterwards. A rollback of
    /// the parent leads to this moment. The child must not be mounted. If the parent is, its users
    /// go on with the other contents, as after `branch rollback`.
    ///
    /// Example: vfscale adopt disk.vfs trial
    Adopt(diff::AdoptArgs),

    /// Make in a branch what another one has changed
    ///
    /// Both are compared with the last state that they had in common: what only one of them has
    /// changed since then is taken, texts that both have changed are merged by lines, and of what
    /// else both have changed the file of FROM stands beside the other one, as NAME.FROM. A file
    /// that was moved is known as the one that it was. All is done by one commit, or nothing.
    /// FROM stays as it is, and may be mounted. If the other branch is, its users go on with the
    /// merged tree, as after `branch rollback`.
    ///
    /// Prints what was done, and a line for each conflict. Exits as git merge does: 0 without
    /// conflicts, 1 with some, 2 if it can't be merged.
    ///
    /// Example: vfscale merge disk.vfs trial
    Merge(merge::MergeArgs),

    /// Put a branch onto what another one has now
    ///
    /// BRANCH gets what NEWBASE has, and in it what it has changed itself since both had the same
    /// contents. That is merged as `vfscale merge` does: NEWBASE takes the part of INTO, BRANCH
    /// that of FROM. All is done by one commit, or nothing. What BRANCH had becomes another branch,
    /// BRANCH@1 or with the next free number, which is printed. NEWBASE stays as it is.
    ///
    /// Exits as `vfscale merge` does.
    ///
    /// Example: vfscale rebase disk.vfs trial --onto main
    Rebase(merge::RebaseArgs),

    /// Apply a layer or a patch to a branch
    ///
    /// FILE is a layer, as `vfscale diff --tar` and container engines write it (a tar archive that
    /// is not compressed), or a patch, as `vfscale diff --patch`, `git diff` and `diff -u` write
    /// it. It is applied by one commit, or nothing is changed: what does not apply is named, with
    /// the line of a patch. A file that is changed stays the one that it is. No name may lead
    /// through a symbolic link.
    ///
    /// Exits with 0 if it was applied, with 2 if it can't be.
    ///
    /// Examples: vfscale apply disk.vfs fix.patch; vfscale diff --tar disk.vfs a b | vfscale apply
    /// other.vfs:trial -
    Apply(apply::ApplyArgs),

    /// List files of an image
    ///
    /// A place is IMAGE, IMAGE:BRANCH, IMAGE:/PATH or IMAGE:BRANCH:/PATH: without a branch it is in
    /// main, without a path it is the root directory. A file whose own name has a colon is found
    /// before a branch. `ls`, `cat`, `rm`, `cp`, `import` and `export` need no /dev/fuse, and no
    /// rights but those to read or write the image: in it they may do all. While the branch is
    /// mounted, they use its files there, with the rights of the user. Names are escaped, so each
    /// has a line.
    ///
    /// Examples: vfscale ls disk.vfs; vfscale ls -lR disk.vfs:trial:/etc
    Ls(list::LsArgs),

    /// Print files of an image
    ///
    /// `vfscale ls --help` says how places are named.
    ///
    /// Example: vfscale cat disk.vfs:trial:/etc/hostname
    Cat(files::CatArgs),

    /// Remove files of an image
    ///
    /// The removal is durable when the command ends. `vfscale ls --help` says how places are named.
    ///
    /// Example: vfscale rm -r disk.vfs:/tmp/cache
    Rm(files::RmArgs),

    /// Copy files into an image, or out of it
    ///
    /// A name with `:/` is a place in an image, any other one a file of the host. If TARGET is a
    /// directory, copies are made in it. Holes, several names of a file, symbolic links, extended
    /// attributes and times are copied, and owners into an image, or by root. A file that exists is
    /// replaced in one step, directories that exist are kept, and all is durable when the command
    /// ends. `vfscale ls --help` says how places are named.
    ///
    /// Examples: vfscale cp app.conf disk.vfs:/etc/app.conf; vfscale cp -r disk.vfs:trial:/src .
    Cp(copy::CpArgs),

    /// Copy what is in a directory into an image
    ///
    /// Copies as `cp -r`, but the files in DIR to PLACE, or the root directory. `vfscale mkfs
    /// --from` makes an image of a directory.
    ///
    /// Example: vfscale import build disk.vfs:/srv/www
    Import(copy::ImportArgs),

    /// Copy what is in a directory of an image to the host
    ///
    /// Copies as `cp -r`, but the files in PLACE, or the root directory, to DIR, which is made if
    /// it is missing.
    ///
    /// Example: vfscale export disk.vfs:trial out
    Export(copy::ExportArgs),

    /// Keep the changes that a killed `vfscale run --native` has left
    ///
    /// Makes them in the branch by one commit. If the branch has changed since the run began, it
    /// stays as it is, and the changes become a branch of their own. `vfscale branch list` tells of
    /// changes that were left.
    ///
    /// Example: vfscale commit disk.vfs trial
    Commit(LeftArgs),

    /// Drop the changes that a killed `vfscale run --native` has left
    ///
    /// Example: vfscale discard disk.vfs trial
    Discard(LeftArgs),

    /// Make a view of a branch, by which Linux reads it in place, without vfscale
    ///
    /// A view is metadata of EROFS, a file system of Linux that is only read: names, attributes,
    /// and where the contents of files are in the image. With DIR it is mounted there, and shows
    /// the branch as it is at this moment, until umount(8). A read-only branch `native N` keeps its
    /// blocks meanwhile; the next such command removes it. An image without branches becomes a
    /// pool, as by `vfscale branch create`. Needs root, and Linux 6.12.
    ///
    /// With --out the command writes the view to FILE, whole or not at all. Mount it with the image
    /// as its device:
    ///
    /// mount -t erofs -o ro,device=$(losetup --find --show --read-only IMAGE) FILE DIR
    ///
    /// The loop device is for mount(8), which makes one for FILE too; mount(2) takes the image
    /// itself since Linux 6.12. Of such a view BRANCH has to be a read-only one (`vfscale branch
    /// create --read-only`), since a view is right as long as its branch exists: unmount it before
    /// the branch is deleted. Other branches may be written meanwhile. The image must not be
    /// mounted while the view is made.
    ///
    /// EROFS has one time for each file, that of the last change of its contents, no flags, and
    /// inode numbers of its own. A file that it can't store at all, such as one with an attribute
    /// of 64 KiB, is an error.
    ///
    /// Views are kept beside the image, in the directory IMAGE.native, the latest four of those
    /// that are not in use; --gc removes these as well.
    ///
    /// Examples: vfscale view disk.vfs main /mnt; vfscale view disk.vfs base --out base.erofs
    View(view::ViewArgs),

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

    /// Print the words that the last of some words can become, for completions
    #[command(hide = true)]
    Complete {
        /// The words, with the name of the program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },

    /// Write the manual pages and completions to a directory that is laid out as /usr/share
    #[command(hide = true)]
    Man {
        /// The directory; made if missing
        dir: PathBuf,
    },
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

/// Parses the command line of a command that mounts, for the process that serves its mount.
///
/// # Errors
/// Says why it names no mount.
pub(crate) fn parse_mount(arguments: &[OsString]) -> Result<Wish, String> {
    let cli = parse(arguments).map_err(|e| e.render().to_string())?;
    match cli.command {
        Command::Mount(MountArgs { source, serve, .. }) => {
            Ok(Wish { source, serve, life: Life::Mount })
        }
        Command::Run(RunArgs { source, serve, discard, .. }) => {
            let life = if discard { Life::Trial } else { Life::Run };
            Ok(Wish { source, serve, life })
        }
        _ => Err("this command has no mount".into()),
    }
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

#[cfg(test)]
mod tests;
