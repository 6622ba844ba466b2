//! `vfscale umount`: unmounts, and waits until the server has closed the volume.
//!
//! `umount(2)` returns when the mount is gone. The server of a volume then still writes what is
//! dirty, and its log, which takes a moment: until then the image is not that of a closed volume.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use vfscale::Escaped;
use vfscale::block::named::is_rbd;
use vfscale::block::{Error, Holder};
use vfscale_command::say;
use vfscale_diskfs::Superblock;
use vfscale_diskfs::on_disk::Block;
use vfscale_fuse::mount_table::{MountLine, lines};

use crate::device;
use crate::elsewhere::{Awaited, Ended};
use crate::error::Failure;
use crate::mounts;
use crate::options;

/// Time between two looks at the lock of an image.
const PAUSE: Duration = Duration::from_millis(5);
/// Time after which a message says what is being waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Default limit of the wait.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// Unmount though the mount is in use: its users get errors from then on
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Detach the mount now, and let its present users keep it. Does not wait
    #[arg(short, long)]
    pub(crate) lazy: bool,

    /// The most seconds to wait for the volume to be closed (default: 60)
    #[arg(long, value_name = "SECONDS", value_parser = options::parse_seconds)]
    pub(crate) timeout: Option<Duration>,

    /// A directory of a mount; several may be given
    #[arg(value_name = "DIR", required = true)]
    pub(crate) dirs: Vec<PathBuf>,
}

/// Runs `vfscale umount`.
pub(crate) fn umount(args: &UmountArgs) -> Result<ExitCode, Failure> {
    for dir in &args.dirs {
        let failed = |e| Failure::Unmount(dir.clone(), e);
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let server = server_of(&dir)?;
        let limit = args.timeout.unwrap_or(TIMEOUT);
        // The server says when it has closed the volume, and whether it could. One that hangs is
        // not asked with force, which ends its mount.
        let asked = server.as_ref().filter(|_| !args.lazy && !args.force);
        let awaited = asked.map(|_| Awaited::new(&dir, limit)).transpose();
        let awaited = awaited.map_err(|e| {
            let why = format!("{e}; --force ends the mount, and its users get errors");
            failed(std::io::Error::new(std::io::ErrorKind::TimedOut, why))
        })?;
        let awaited = awaited.flatten();
        unmount(&dir, args).map_err(failed)?;
        if let Some(server) = server.filter(|_| !args.lazy) {
            server.wait(awaited, limit)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Unmounts. With force, calls that a server has left waiting fail, and keep the mount busy until
/// they have.
fn unmount(dir: &Path, args: &UmountArgs) -> std::io::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match vfscale_fuse::control::unmount(dir, args.force, args.lazy) {
            Err(e) if args.force && is_busy(&e) && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            unmounted => return unmounted,
        }
    }
}

fn is_busy(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ResourceBusy
}

/// The server of a mounted volume.
struct Server {
    image: PathBuf,
    holder: Option<Box<Holder>>,
    /// Whether other branches of the image are mounted.
    has_others: bool,
    /// Whether the mount was one that can be written.
    is_written: bool,
}

/// Returns the server of the topmost mount at `dir`, if that is a volume whose image this process
/// can see.
fn server_of(dir: &Path) -> Result<Option<Server>, Failure> {
    let table = mounts::table()?;
    let Some(mount) = mounts::at(&table, dir).filter(MountLine::is_ours) else {
        let nothing = std::io::Error::from_raw_os_error(libc::ENOTTY);
        return Err(Failure::Unmount(dir.to_owned(), nothing));
    };
    // A bind mount, or one of several: the server goes on.
    let is_last = lines(&table).filter(|other| other.device() == mount.device()).count() == 1;
    let image = Some(mount.source()).filter(|image| {
        let trusted = mounts::Trusted::with(Some(image));
        is_last && trusted.has_made(&mount) && (image.is_absolute() || is_rbd(image))
    });
    let is_written = !mount.has("ro");
    let has_others = image.as_ref().is_some_and(|image| mounts::of(&table, image).len() > 1);
    Ok(image.and_then(|image| match device::options(true).check_free(&image) {
        Err(Error::Locked { holder, .. }) => Some(Server { image, holder, has_others, is_written }),
        // Not the image, or one that this user can't read.
        _ => None,
    }))
}

impl Server {
    /// Waits until the server has closed the image, or the branch that `awaited` is about.
    fn wait(self, awaited: Option<Awaited>, limit: Duration) -> Result<(), Failure> {
        let start = Instant::now();
        let mut told = Told { image: &self.image, start, is_told: false };
        let ended = awaited.map(|awaited| match awaited.wait(limit.min(PATIENCE)) {
            Ended::Late if limit > PATIENCE => {
                told.tell();
                awaited.wait(limit.saturating_sub(start.elapsed()))
            }
            ended => ended,
        });
        match ended {
            Some(Ended::Closed) => return Ok(()),
            Some(Ended::Late) => return Err(Failure::NotClosed(self.image, self.holder, limit)),
            Some(Ended::Failed(why)) => return Err(Failure::Unclosed(why)),
            // This user may not ask the server, which goes on.
            None if self.has_others => return Ok(()),
            Some(Ended::Last) | None => {}
        }
        while let Err(Error::Locked { holder, .. }) = device::options(true).check_free(&self.image)
        {
            if holder.is_some() && self.holder.is_some() && holder != self.holder {
                // Another process has opened it since.
                return Ok(());
            }
            if start.elapsed() > limit {
                return Err(Failure::NotClosed(self.image, holder, limit));
            }
            told.tell();
            std::thread::sleep(PAUSE);
        }
        self.check_closed()
    }

    /// Fails if the log of a volume without branches is not closed, as its superblock says. Takes
    /// no lock, which would be in the way of others.
    fn check_closed(&self) -> Result<(), Failure> {
        let mut block = Block::zeroed();
        let read =
            File::open(&self.image).and_then(|file| file.read_exact_at(block.bytes_mut(), 0));
        let superblock = Superblock::decode(&block, 0).ok().filter(|_| self.is_written);
        let Some(superblock) = superblock.filter(|found| read.is_ok() && found.pool().is_none())
        else {
            return Ok(());
        };
        // Volumes of older versions do not say it, and one that was opened since is not closed.
        let says = superblock.log_seen.epoch > 0 && !superblock.log_seen.is_closed;
        if !says || device::options(true).check_free(&self.image).is_err() {
            return Ok(());
        }
        let is_full = || rustix::fs::statvfs(&self.image).is_ok_and(|stat| stat.f_bavail == 0);
        let why = match &superblock.stopped {
            Some(stopped) => format!(": {}", Escaped::message(stopped.why())),
            None if is_full() => ": the file system of the image is full".into(),
            None => String::new(),
        };
        let image = Escaped::new(&self.image);
        Err(Failure::Unclosed(format!(
            "{image}: unmounted, but not closed{why}; it will be recovered when it is opened again"
        )))
    }
}

/// Says what is being waited for, once, when that takes long.
struct Told<'i> {
    image: &'i Path,
    start: Instant,
    is_told: bool,
}

impl Told<'_> {
    fn tell(&mut self) {
        if self.start.elapsed() >= PATIENCE && !self.is_told {
            self.is_told = true;
            let image = Escaped::new(&self.image);
            say(format_args!("{image}: unmounted; waiting until the volume is closed"));
        }
    }
}
