//! `vfscale mkfs` and `vfscale tune`: makes a volume, and changes its superblock.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::{ArgGroup, Args};
use vfscale::VolumeError;
use vfscale::block::{Device, Guarded};
use vfscale::options::Size;
use vfscale_diskfs::copies::OpenError;
use vfscale_diskfs::mkfs::{self, MkfsOptions, RootDirectory};
use vfscale_diskfs::{Label, LogPlace, Superblock, Uuid, copies, identity};

use super::{open_branch, open_log};
use crate::device::{self, open};
use crate::error::Failure;
use crate::files::copy;
use crate::options;
use crate::output::spinner;

const BLOCK: u64 = 4096;

#[derive(Debug, Args)]
pub(crate) struct MkfsArgs {
    /// The size of the volume: bytes, or with K, M, G or T. A missing image file is created, a
    /// smaller one is extended. Without it the volume takes all of the file or device
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,

    /// Leave this much of the device behind the volume: bytes, or with K, M, G or T, or a share of
    /// the device such as 10%. A block device can't grow, and its first branch needs space there:
    /// 60M and 0.4% of the volume, or less for a small one. Free blocks of the volume are used for
    /// branches as well
    #[arg(long, value_name = "SIZE", conflicts_with = "size")]
    pub(crate) branch_space: Option<Size>,

    /// The name of the volume: up to 64 bytes of text
    #[arg(long, short = 'L', value_name = "TEXT")]
    pub(crate) label: Option<Label>,

    /// The id of the volume, as 12345678-1234-4234-8234-123456789abc (default: a new one)
    #[arg(long, short = 'U', value_name = "UUID")]
    pub(crate) uuid: Option<Uuid>,

    /// The size of the log, 1M to 2G (default: a 64th of the volume, 4M to 1G)
    #[arg(long, value_name = "SIZE")]
    pub(crate) log_size: Option<Size>,

    /// Put the log on a device of its own, which is overwritten too
    #[arg(long, value_name = "PATH")]
    pub(crate) log_device: Option<PathBuf>,

    /// Write zeros to all of it first, so that the file system below has allocated every block of
    /// an image: on a disk, syncs of new files need not wait for that
    #[arg(long)]
    pub(crate) preallocate: bool,

    /// Owner and group of the root directory, as two numbers (default: you and your group)
    #[arg(long, value_name = "UID:GID", value_parser = options::parse_owner)]
    pub(crate) root_owner: Option<(u32, u32)>,

    /// Copy what is in this directory into the volume, as `vfscale import` does; its root directory
    /// gets owner, group and permissions of the directory
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,

    /// Overwrite a known file system, partition table, or other known format
    #[arg(long, short, short_alias = 'F')]
    pub(crate) force: bool,

    /// Print nothing
    #[arg(long, short)]
    pub(crate) quiet: bool,

    /// The image file or block device
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,
}

/// Makes a volume.
pub(crate) fn mkfs(args: &MkfsArgs) -> Result<ExitCode, Failure> {
    let size = args.size.map(bytes).transpose()?;
    let log_size = args.log_size.map(bytes).transpose()?;
    let root = root(args)?;
    let (device, is_new) = open_or_create(&args.image, size)?;
    let all = device.size();
    let less = |space: Size| all.saturating_sub(space.in_bytes(all));
    let size = size.or(args.branch_space.map(less));
    let options = MkfsOptions {
        size,
        label: args.label.clone().unwrap_or_default(),
        uuid: args.uuid,
        force: args.force,
        preallocate: args.preallocate,
        log_blocks: log_size.map(|bytes| bytes / BLOCK),
        log_device: open_log(args.log_device.as_deref(), false)?,
        root,
    };
    let made = make(args, &device, &options).inspect_err(|_| {
        if is_new {
            // A failed mkfs leaves nothing behind. If this fails, an image is left, which the next
            // mkfs accepts if it is empty.
            device.release();
            device::options(false).remove(&args.image).unwrap_or_default();
        }
    });
    let superblock = made?;
    if !args.quiet {
        let geometry = superblock.geometry();
        let log = match superblock.log() {
            LogPlace::Inside { blocks, .. } => format!("a log of {} MiB", (blocks * BLOCK) >> 20),
            LogPlace::Outside { .. } => "its log on a device of its own".into(),
        };
        println!(
            "{}: volume {}, {} MiB in {} groups, {log}",
            args.image.display(),
            superblock.volume(),
            geometry.bytes() >> 20,
            geometry.groups(),
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the volume, and copies into it what --from names.
fn make(
    args: &MkfsArgs,
    device: &Arc<dyn Guarded>,
    options: &MkfsOptions,
) -> Result<Superblock, Failure> {
    let waiting = args.preallocate.then(|| spinner(args.quiet, "writing zeros"));
    let formatted = mkfs::format(&**device, options);
    drop(waiting);
    let superblock = formatted.map_err(|error| Failure::Mkfs(args.image.clone(), error))?;
    if let Some(dir) = &args.from {
        let mut builder = vfscale::volume_on(device.clone());
        if let Some(log) = &options.log_device {
            builder = builder.log_device(log.clone());
        }
        let volume = builder.open()?;
        let copied = copy::fill(&volume.task(), &args.image, dir, args.quiet);
        let closed = volume.close();
        copied?;
        closed.map_err(VolumeError::from)?;
    }
    Ok(superblock)
}

/// Returns owner, group and permissions of the root directory.
fn root(args: &MkfsArgs) -> Result<RootDirectory, Failure> {
    let (uid, gid) = options::caller();
    let root = match &args.from {
        None => RootDirectory { uid, gid, ..RootDirectory::default() },
        Some(dir) => {
            let found = fs::metadata(dir).map_err(|e| Failure::Read(dir.clone(), e))?;
            RootDirectory { uid: found.uid(), gid: found.gid(), mode: found.mode() }
        }
    };
    let (uid, gid) = args.root_owner.unwrap_or((root.uid, root.gid));
    Ok(RootDirectory { uid, gid, ..root })
}

/// Opens the image or device, or creates the image; returns whether it was created.
fn open_or_create(path: &Path, size: Option<u64>) -> Result<(Arc<dyn Guarded>, bool), Failure> {
    let options = device::options(false);
    // A cluster that does not answer now may a moment later: then the image would be opened that is
    // not there, and its absence be the error.
    match (options.exists(path)?, size) {
        (false, Some(size)) => {
            // An image consists of whole blocks; the size of the volume is rounded down, too.
            Ok((options.create(path, size / BLOCK * BLOCK)?, true))
        }
        (false, None) => Err(Failure::Usage(format!(
            "{} does not exist: set the size of a new image with --size",
            path.display()
        ))),
        (true, _) => Ok((open(path, false)?, false)),
    }
}

/// Returns a size in bytes, which can't be a share of the memory.
fn bytes(size: Size) -> Result<u64, Failure> {
    match size {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Percent(_) => {
            Err(Failure::Usage("a volume has a size such as 64M or 2G, not a share of it".into()))
        }
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true).args(["label", "uuid"]))]
pub(crate) struct TuneArgs {
    /// The name of the volume: up to 64 bytes of text; an empty one removes it
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<Label>,

    /// The id of the volume: one such as 12345678-1234-4234-8234-123456789abc, `random` for a new
    /// one, or `restore` for the original one. A new id distinguishes a copy of an image from the
    /// image. Blocks retain the original id
    #[arg(long, value_name = "UUID|random|restore")]
    pub(crate) uuid: Option<NewId>,

    /// The device of an external log, for --uuid, which also changes the id of the log
    #[arg(long, value_name = "PATH", requires = "uuid")]
    pub(crate) log_device: Option<PathBuf>,

    /// The branch of the image whose volume is changed (default: `main`)
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,

    /// The image file or block device
    #[arg(value_name = "IMAGE")]
    pub(crate) image: PathBuf,
}

/// A new id of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewId {
    Random,
    /// The id that the volume was made with.
    Restore,
    This(Uuid),
}

impl FromStr for NewId {
    type Err = <Uuid as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "random" => Ok(Self::Random),
            "restore" => Ok(Self::Restore),
            id => id.parse().map(Self::This),
        }
    }
}

/// Changes the label, the id, or both.
pub(crate) fn tune(args: TuneArgs) -> Result<ExitCode, Failure> {
    let (device, _) = open_branch(&args.image, false, args.branch.as_deref())?;
    if let Some(label) = args.label {
        let found = copies::read(&*device)?;
        if found.is_read_only() {
            return Err(Failure::Usage(format!(
                "{}: the volume has features that this program does not know: it may only be read",
                args.image.display()
            )));
        }
        let mut superblock = found.superblock;
        superblock.label = label;
        copies::write(&*device, &mut superblock).map_err(OpenError::Device)?;
    }
    if let Some(id) = args.uuid {
        let log = open_log(args.log_device.as_deref(), false)?;
        let id = match id {
            NewId::Random => Some(Uuid::random().map_err(|e| Failure::System("getrandom", e))?),
            NewId::Restore => None,
            NewId::This(id) => Some(id),
        };
        let superblock = identity::set_id(&device, log.as_ref(), id)?;
        println!("{}: volume {}", args.image.display(), superblock.id());
    }
    Ok(ExitCode::SUCCESS)
}
