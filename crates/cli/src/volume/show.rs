//! `vfscale dump` and `vfscale stat`: the structures of a volume, in words or as JSON. `stat` also
//! shows the figures of a mount.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use vfscale::Pool;
use vfscale::pool::{MAIN, Usage};
use vfscale_diskfs::{dump::Dump, dump::DumpError, dump::Value, dump::What};

use super::mount_stat::{self, Form};
use super::open_log;
use crate::elsewhere;
use crate::error::Failure;
use crate::mounts;
use crate::output::written;

/// Options of both commands: the volume's log, and the form of the output.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Print JSON instead of words
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Show the volume after a replay of its log in memory
    #[arg(long, global = true)]
    pub(crate) replay: bool,

    /// Show this branch of the image (default: main)
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) branch: Option<String>,

    /// The device of the log, if it is not in the volume
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) log_device: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    pub(crate) show: ShowArgs,

    /// Print the figures of a mount in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,

    /// The image file or block device, of which the figures of its mount are shown while it is
    /// mounted; or a directory of a mounted file system
    #[arg(value_name = "IMAGE|DIR")]
    pub(crate) place: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    pub(crate) show: ShowArgs,

    /// The image file or block device
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,

    #[command(subcommand)]
    pub(crate) what: Structure,
}

/// Structures of a volume.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Structure {
    /// The superblock and its copies
    Superblock,
    /// A group: its header, its free space, its chunks of inodes
    Group {
        /// The number of the group, from 0 on
        #[arg(value_name = "N")]
        number: u32,
    },
    /// An inode: its record
    Inode {
        /// Its number, of which the root directory has 64; or its path from there
        #[arg(value_name = "INO|/PATH")]
        inode: InodeName,
    },
    /// The entries of a directory
    Dir {
        /// The number of its inode, of which the root directory has 64; or its path from there
        #[arg(value_name = "INO|/PATH")]
        inode: InodeName,
    },
    /// The extents of a file
    Extents {
        /// The number of its inode, or its path from the root directory
        #[arg(value_name = "INO|/PATH")]
        inode: InodeName,
    },
    /// The extended attributes of an inode
    Attributes {
        /// The number of the inode, or its path from the root directory
        #[arg(value_name = "INO|/PATH")]
        inode: InodeName,
    },
    /// The contents of a block
    Block {
        /// Its address, in blocks of 4096 bytes
        #[arg(value_name = "N")]
        number: u64,
    },
    /// A whole tree, with its shape and its records
    Tree {
        /// The address of its root, in blocks of 4096 bytes
        #[arg(value_name = "N")]
        root: u64,
    },
    /// The log, record by record, and the changes that a recovery would replay
    Log,
}

/// An inode's number or path.
#[derive(Clone, Debug)]
pub(crate) enum InodeName {
    Number(u64),
    Path(OsString),
}

impl From<OsString> for InodeName {
    /// Takes a number as an inode number, and any other text as a path.
    fn from(text: OsString) -> Self {
        match text.to_str().and_then(|text| text.parse().ok()) {
            Some(number) => Self::Number(number),
            None => Self::Path(text),
        }
    }
}

impl InodeName {
    fn find(&self, dump: &Dump) -> Result<u64, DumpError> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Path(path) => dump.find(path.as_bytes()),
        }
    }
}

impl Structure {
    fn find(&self, dump: &Dump) -> Result<What, DumpError> {
        Ok(match self {
            Self::Superblock => What::Superblock,
            Self::Group { number } => What::Group(*number),
            Self::Inode { inode } => What::Inode(inode.find(dump)?),
            Self::Dir { inode } => What::Directory(inode.find(dump)?),
            Self::Extents { inode } => What::Extents(inode.find(dump)?),
            Self::Attributes { inode } => What::Attributes(inode.find(dump)?),
            Self::Block { number } => What::Block(*number),
            Self::Tree { root } => What::Tree(*root),
            Self::Log => What::Log,
        })
    }
}

/// Shows one structure.
pub(crate) fn dump(args: &DumpArgs) -> Result<ExitCode, Failure> {
    let (dump, _) = volume(&args.image, &args.show)?;
    let value = dump.show(args.what.find(&dump)?)?;
    print(&value, args.show.json)
}

/// Shows the figures of a volume, or of a mount.
pub(crate) fn stat(args: &StatArgs) -> Result<ExitCode, Failure> {
    let show = &args.show;
    if mounts::is_dir(&args.place) {
        if show.replay || show.log_device.is_some() || show.branch.is_some() {
            let why = "--replay, --branch and --log-device are for volumes that are not mounted";
            return Err(Failure::Usage(why.into()));
        }
        return stat_of_mount(&args.place, args);
    }
    let (volume, pool) = match volume(&args.place, show) {
        Err(failure) if elsewhere::is_locked(&failure) => {
            let (dirs, wanted) =
                (mounts::of(&mounts::table()?, &args.place), show.branch.as_deref());
            let is_it = |dir: &&PathBuf| elsewhere::has_branch(dir, wanted.unwrap_or(MAIN));
            let dir = dirs.iter().find(is_it).filter(|_| !show.replay);
            return stat_of_mount(dir.ok_or(failure)?, args);
        }
        volume => volume?,
    };
    if args.prometheus {
        return Err(Failure::Usage("--prometheus is for a volume that is mounted".into()));
    }
    let figures = match pool.map(|pool| pool.usage()) {
        Some(Usage { size, free, branches }) => {
            let pool = Value::fields().with("bytes", size).with("free bytes", free);
            volume.figures().with("pool", pool.with("branches", branches))
        }
        None => volume.figures(),
    };
    print(&figures, show.json)
}

/// Shows the figures of the mount at a directory.
fn stat_of_mount(dir: &Path, args: &StatArgs) -> Result<ExitCode, Failure> {
    let form = match (args.show.json, args.prometheus) {
        (true, _) => Form::Json,
        (_, true) => Form::Prometheus,
        _ => Form::Words,
    };
    let text = mount_stat::text(dir, form)?;
    written(writeln!(io::stdout().lock(), "{text}"))
}

/// Opens the volume of an image, or of a branch, with the pool if it has branches.
fn volume(image: &Path, show: &ShowArgs) -> Result<(Dump, Option<Pool>), Failure> {
    let (device, pool) = super::open_branch(image, true, show.branch.as_deref())?;
    let log = open_log(show.log_device.as_deref(), true)?;
    Ok((Dump::open(device, log.as_ref(), show.replay)?, pool))
}

fn print(value: &Value, json: bool) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    written(if json {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::from);
        text.and_then(|text| writeln!(out, "{text}"))
    } else {
        writeln!(out, "{value}")
    })
}
