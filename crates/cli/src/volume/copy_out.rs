//! `vfscale copy-out`: copies all readable files out of a volume that will not mount.
//!
//! A damaged volume may contain anything. So each file is created by its name in an open directory,
//! and never by a path; existing files are neither opened nor replaced; and each directory of the
//! volume is copied once. A directory that could not be copied under its name (because directories
//! are nested too deeply, or the name is taken) is copied with the files that no directory names.

mod target;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use vfscale::Escaped;
use vfscale::block::Device;
use vfscale_command::say;
use vfscale_diskfs::{InodeCore, ROOT_INO, rescue::LogRead, rescue::Name, rescue::Rescue};

use crate::device::open;
use crate::error::Failure;
use target::Made;

/// Directory for files that no directory names.
const LOST_FOUND: &str = "lost+found";
/// Number of names that are tried for such a file, if the first is taken.
const NAMES: u32 = 16;
/// Number of inodes for each word of [`MetInodes`].
const INODES: u64 = 64;

#[derive(Debug, Args)]
pub(crate) struct CopyOutArgs {
    /// The device of the log, if it is not in the volume and can be read
    #[arg(long, value_name = "PATH")]
    log_device: Option<PathBuf>,

    /// Copy this branch of the image (default: main)
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,

    /// Make the devices of the volume too. Without it they are named, and left out: a device of an
    /// image that somebody else has made is one of this machine
    #[arg(long)]
    devices: bool,

    /// The image file or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The directory to copy to: made if missing, otherwise it must be empty
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn copy_out(args: &CopyOutArgs) -> Result<ExitCode, Failure> {
    let (device, _) = super::open_branch(&args.image, true, args.branch.as_deref())?;
    let mut told = Complaints(0);
    let log = args.log_device.as_deref().and_then(|path| match open(path, true) {
        Ok(log) => Some(log as Arc<dyn Device>),
        Err(error) => {
            told.tell(path, &[&error]);
            None
        }
    });
    let rescue = Rescue::open(device, log)?;
    let dir = target::root(&args.dir)?;
    if let LogRead::Unusable(fault) = rescue.log() {
        let why = format!("the log can't be used, and what was changed last is missing: {fault}");
        told.tell(&args.image, &[&why]);
    }
    if let Some(bytes) = rescue.cut_off() {
        let why = format!("only its first {bytes} bytes are there");
        told.tell(&args.image, &[&why]);
    }
    let (met, links) = (MetInodes::default(), HashMap::new());
    let (target, devices) = (dir.as_fd(), args.devices);
    let mut copy = Copy { rescue: &rescue, dir: target, devices, met, links, told, copied: 0 };
    copy.named();
    copy.lost(&args.image);
    let (image, dir) = (Escaped::new(&args.image), Escaped::new(&args.dir));
    println!("{image}: {} names copied to {dir}", copy.copied);
    match copy.told.0 {
        0 => Ok(ExitCode::SUCCESS),
        count => {
            say(format_args!("vfscale: not copied, only in part, or under another path: {count}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Number of paths with reported problems.
struct Complaints(u64);

impl Complaints {
    /// Prints the problems with one path, and counts the path if there is any.
    fn tell(&mut self, path: &Path, why: &[impl Display]) {
        for why in why {
            say(format_args!("vfscale: {}: {why}", Escaped::new(path)));
        }
        self.0 += u64::from(!why.is_empty());
    }
}

/// Inodes whose names were met, copied or told as failed: a sparse bitmap, in words of 64 inodes.
#[derive(Default)]
struct MetInodes(HashMap<u64, u64>);

impl MetInodes {
    fn has(&self, ino: u64) -> bool {
        self.0.get(&(ino / INODES)).is_some_and(|bits| bits >> (ino % INODES) & 1 == 1)
    }

    fn set(&mut self, ino: u64) {
        *self.0.entry(ino / INODES).or_default() |= 1 << (ino % INODES);
    }
}

/// A directory that is being copied.
struct Level {
    dir: OwnedFd,
    /// Its path on the volume.
    path: PathBuf,
    ino: u64,
    core: InodeCore,
    /// Entries that are still to be copied.
    names: std::vec::IntoIter<Name>,
    wrong: Vec<String>,
}

/// A copy in progress.
struct Copy<'r> {
    rescue: &'r Rescue,
    /// The directory to copy to.
    dir: BorrowedFd<'r>,
    /// Whether devices are made.
    devices: bool,
    met: MetInodes,
    /// First name, relative to `dir`, of each file with several.
    links: HashMap<u64, PathBuf>,
    told: Complaints,
    copied: u64,
}

impl Copy<'_> {
    /// Copies the root directory, and all files that are reachable from it.
    fn named(&mut self) {
        let root = PathBuf::from("/");
        let core = match self.rescue.inode(ROOT_INO) {
            Ok(Some((core, _))) if core.is_directory() => core,
            Ok(_) => return self.told.tell(&root, &["it is not a directory"]),
            Err(loss) => return self.told.tell(&root, &[loss]),
        };
        match self.dir.try_clone_to_owned() {
            Ok(dir) => {
                let level = self.level(dir, root, ROOT_INO, core);
                self.tree(level);
            }
            Err(error) => self.told.tell(&root, &[error]),
        }
    }

    fn level(&mut self, dir: OwnedFd, path: PathBuf, ino: u64, core: InodeCore) -> Level {
        self.met.set(ino);
        let (names, losses) = self.rescue.names(ino, &core);
        let wrong = losses.iter().map(ToString::to_string).collect();
        Level { dir, path, ino, core, names: names.into_iter(), wrong }
    }

    /// Copies a directory and its subtree.
    fn tree(&mut self, top: Level) {
        let mut levels = vec![top];
        while let Some(level) = levels.last_mut() {
            if let Some(Name { name, ino }) = level.names.next() {
                let name = OsStr::from_bytes(&name);
                let path = level.path.join(name);
                let below = self.name(level.dir.as_fd(), name, path, ino, Vec::new());
                levels.extend(below);
            } else if let Some(Level { dir, path, ino, core, mut wrong, .. }) = levels.pop() {
                let made = Made::Open(dir.as_fd());
                made.take_attributes(self.rescue, ino, &core, &mut wrong);
                self.told.tell(&path, &wrong);
            }
        }
    }

    /// Copies the file of one name, of which `wrong` is known already. Returns a directory, whose
    /// entries are still to be copied.
    fn name(
        &mut self,
        dir: BorrowedFd,
        name: &OsStr,
        path: PathBuf,
        ino: u64,
        mut wrong: Vec<String>,
    ) -> Option<Level> {
        let found = self.rescue.inode(ino).map_err(|loss| loss.to_string());
        let (core, loss) = match found.and_then(|it| it.ok_or("its inode does not exist".into())) {
            Ok(found) => found,
            Err(why) => {
                wrong.push(why);
                self.told.tell(&path, &wrong);
                return None;
            }
        };
        if core.is_directory() {
            return self.directory(dir, name, path, ino, core, wrong);
        }
        if let Some(first) = self.links.get(&ino) {
            match target::link(self.dir, first, dir, name) {
                Ok(()) => self.copied += 1,
                Err(error) => wrong.push(error.to_string()),
            }
            self.told.tell(&path, &wrong);
            return None;
        }
        wrong.extend(loss.iter().map(ToString::to_string));
        let from = (self.rescue, ino, &core);
        match target::file(dir, name, from, self.devices, &mut wrong) {
            Ok(()) => {
                self.copied += 1;
                self.met.set(ino);
                if core.nlink > 1 {
                    let from_root = path.strip_prefix("/").unwrap_or(&path);
                    self.links.insert(ino, from_root.to_owned());
                }
            }
            Err(unmade) => {
                // A file that only its name prevents is copied under another name.
                if !unmade.is_of_name {
                    self.met.set(ino);
                }
                wrong.push(unmade.why);
            }
        }
        self.told.tell(&path, &wrong);
        None
    }

    fn directory(
        &mut self,
        dir: BorrowedFd,
        name: &OsStr,
        path: PathBuf,
        ino: u64,
        core: InodeCore,
        mut wrong: Vec<String>,
    ) -> Option<Level> {
        if self.met.has(ino) {
            wrong.push("the directory was copied under another name".into());
            self.told.tell(&path, &wrong);
            return None;
        }
        match target::directory(dir, name) {
            Ok(made) => {
                self.copied += 1;
                let mut level = self.level(made, path, ino, core);
                level.wrong.splice(..0, wrong);
                Some(level)
            }
            Err(error) => {
                wrong.push(error.to_string());
                self.told.tell(&path, &wrong);
                None
            }
        }
    }

    /// Copies the files that no directory names.
    fn lost(&mut self, image: &Path) {
        let (mut lost, met) = (BTreeMap::new(), &self.met);
        let losses = self.rescue.each_inode(&mut |ino, core| {
            if !met.has(ino) {
                lost.insert(ino, core.is_directory());
            }
        });
        losses.iter().for_each(|loss| self.told.tell(image, &[loss]));
        if lost.is_empty() {
            return;
        }
        let place = PathBuf::from("/").join(LOST_FOUND);
        let dir = match target::directory_there(self.dir, OsStr::new(LOST_FOUND)) {
            Ok(dir) => dir,
            Err(error) => return self.told.tell(&place, &[error]),
        };
        // Files below a lost directory are copied with it. Directories that form a loop are below
        // each other, so they are tried last.
        let mut below = BTreeSet::new();
        for ino in lost.iter().filter(|(_, is_directory)| **is_directory).map(|(ino, _)| *ino) {
            if let Ok(Some((core, _))) = self.rescue.inode(ino) {
                below.extend(self.rescue.names(ino, &core).0.iter().map(|name| name.ino));
            }
        }
        let (tops, others): (Vec<u64>, Vec<u64>) =
            lost.into_keys().partition(|ino| !below.contains(ino));
        for ino in tops.into_iter().chain(others) {
            if !self.met.has(ino) {
                self.found(dir.as_fd(), &place, ino);
            }
        }
    }

    /// Copies a lost file under its inode number.
    fn found(&mut self, dir: BorrowedFd, place: &Path, ino: u64) {
        let more = (1..NAMES).map(|number| format!("#{ino}.{number}"));
        let mut names = std::iter::once(format!("#{ino}")).chain(more);
        let Some(name) = names.find(|name| !target::is_there(dir, name)) else {
            return self.told.tell(place, &[format!("#{ino}: no name is left for it")]);
        };
        let path = place.join(&name);
        let why = vec!["no directory leads to it".into()];
        if let Some(level) = self.name(dir, OsStr::new(&name), path, ino, why) {
            self.tree(level);
        }
    }
}
