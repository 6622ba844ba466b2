//! The table of mounts of this process, `/proc/self/mountinfo`; and making one durable.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::error::Failure;

/// A line of the table.
pub(crate) struct Line<'a> {
    device: &'a [u8],
    root: &'a [u8],
    dir: &'a [u8],
    kind: &'a [u8],
    source: &'a [u8],
    /// The options of the superblock.
    options: &'a [u8],
}

/// Reads the table.
pub(crate) fn table() -> Result<Vec<u8>, Failure> {
    let path = "/proc/self/mountinfo";
    std::fs::read(path).map_err(|error| Failure::System(path, error))
}

/// Returns the topmost mount at the directory `dir`.
pub(crate) fn at<'a>(table: &'a [u8], dir: &Path) -> Option<Line<'a>> {
    parse(table).rfind(|mount| mount.dir() == dir)
}

/// The users whose mounts a command believes: root, its own, and the owner of the image. Every
/// other user can mount something with the source of the image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trusted {
    root: u32,
    own: u32,
    owner: Option<u32>,
}

impl Trusted {
    /// Returns the users that are trusted with an image, if one is named.
    pub(crate) fn with(image: Option<&Path>) -> Trusted {
        let owner = image.and_then(|image| image.metadata().ok()).map(|meta| meta.uid());
        Trusted { root: 0, own: rustix::process::geteuid().as_raw(), owner }
    }

    /// Returns the user of this process alone.
    pub(crate) fn only_self() -> Trusted {
        let own = rustix::process::geteuid().as_raw();
        Trusted { root: own, own, owner: None }
    }

    /// Returns whether a user is one of them.
    pub(crate) fn has(self, user: u32) -> bool {
        user == self.root || user == self.own || Some(user) == self.owner
    }
}

/// Returns the directories at which branches of the image are mounted by users that are trusted
/// with it, and that no other mount hides: the latest mount first, each device once.
pub(crate) fn of(table: &[u8], image: &Path) -> Vec<PathBuf> {
    let image = &image.canonicalize().unwrap_or_else(|_| image.to_owned());
    let trusted = Trusted::with(Some(image));
    let is_topmost = |mount: &Line<'_>| {
        at(table, &mount.dir()).is_some_and(|topmost| topmost.device == mount.device)
    };
    let mut devices = Vec::new();
    let mut dirs = Vec::new();
    for mount in parse(table).rev().filter(|mount| mount.is_of(image)) {
        if !devices.contains(&mount.device) && mount.is_by(trusted) && is_topmost(&mount) {
            devices.push(mount.device);
            dirs.push(mount.dir());
        }
    }
    dirs
}

/// Returns the device number of what is mounted at a directory. Sends its server no request.
pub(crate) fn device_of(dir: &Path) -> std::io::Result<(u32, u32)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, dir, flags, StatxFlags::TYPE)?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Returns whether a directory is in a mount of vfscale that is `wanted`.
pub(crate) fn around(table: &[u8], dir: &Path, wanted: impl Fn(&Line<'_>) -> bool) -> bool {
    line_around(table, dir).is_some_and(|mount| wanted(&mount))
}

/// Returns the source of the mount of vfscale that a directory is in.
pub(crate) fn source_around(table: &[u8], dir: &Path) -> Option<PathBuf> {
    line_around(table, dir).map(|mount| mount.source())
}

/// Returns a line of the mount of vfscale that a directory is in.
fn line_around<'a>(table: &'a [u8], dir: &Path) -> Option<Line<'a>> {
    let (major, minor) = device_of(&dir.canonicalize().ok()?).ok()?;
    let device = format!("{major}:{minor}");
    parse(table).find(|mount| mount.is_ours() && mount.device == device.as_bytes())
}

/// Makes the file system at `dir` durable.
pub(crate) fn sync(dir: &Path) -> std::io::Result<()> {
    // First the data that the kernel holds back.
    rustix::fs::syncfs(std::fs::File::open(dir)?)?;
    vfscale_fuse::control::sync(dir)
}

/// Makes the kernel write to the servers what it holds back of the mounts of an image, and makes
/// the file system at `dir`, which is one of them, durable.
pub(crate) fn sync_kernel(image: &Path, dir: &Path) -> Result<(), Failure> {
    for other in of(&table()?, image) {
        // Of a mount without a server, or that this user may not open, nothing can be held back.
        let Ok(at) = std::fs::File::open(&other) else { continue };
        rustix::fs::syncfs(at).map_err(|error| Failure::Sync(other, error.into()))?;
    }
    sync(dir).map_err(|error| Failure::Sync(dir.to_owned(), error))
}

/// Returns the lines of a table, the latest mount last.
pub(crate) fn parse(table: &[u8]) -> impl DoubleEndedIterator<Item = Line<'_>> {
    table.split(|byte| *byte == b'\n').filter_map(Line::parse)
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
        let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
        Some(Line {
            device: fields.get(2)?,
            root: fields.get(3)?,
            dir: fields.get(4)?,
            kind: fields.get(dash + 1)?,
            source: fields.get(dash + 2)?,
            options: fields.get(dash + 3)?,
        })
    }

    /// Returns the device number of the superblock, as text.
    pub(crate) fn device(&self) -> &'a [u8] {
        self.device
    }

    /// Returns the directory of the mount.
    pub(crate) fn dir(&self) -> PathBuf {
        PathBuf::from(unescaped(self.dir))
    }

    /// Returns the source of the mount.
    pub(crate) fn source(&self) -> PathBuf {
        PathBuf::from(unescaped(self.source))
    }

    /// Returns whether vfscale serves the mount.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == b"fuse.vfscale"
    }

    /// Returns whether the whole tree of the volume in `image` is mounted here.
    pub(crate) fn is_of(&self, image: &Path) -> bool {
        // The path is shown as text, whatever its bytes are.
        let image = image.display().to_string();
        self.root == b"/" && self.is_ours() && *self.source() == *image
    }

    /// Returns whether one of these users has made the mount.
    pub(crate) fn is_by(&self, trusted: Trusted) -> bool {
        let mut options = self.options.split(|byte| *byte == b',');
        let user = options.find_map(|option| option.strip_prefix(b"user_id="));
        let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok());
        user.is_some_and(|user| trusted.has(user))
    }

    /// Returns whether the superblock has an option.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.split(|byte| *byte == b',').any(|it| it == option.as_bytes())
    }
}

/// Replaces the octal escapes of blanks and other special bytes.
fn unescaped(text: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests;
