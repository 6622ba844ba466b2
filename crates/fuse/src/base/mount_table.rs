//! The mount table of this process, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Path of the table.
pub const PATH: &str = "/proc/self/mountinfo";

/// A line of the table: a mount.
#[derive(Clone, Copy, Debug)]
pub struct MountLine<'t> {
    id: &'t [u8],
    device: &'t [u8],
    root: &'t [u8],
    dir: &'t [u8],
    kind: &'t [u8],
    source: &'t [u8],
    /// The options of the superblock.
    options: &'t [u8],
}

/// Returns the lines of a table, the latest mount last.
pub fn lines(table: &[u8]) -> impl DoubleEndedIterator<Item = MountLine<'_>> {
    table.split(|byte| *byte == b'\n').filter_map(MountLine::parse)
}

impl<'t> MountLine<'t> {
    fn parse(line: &'t [u8]) -> Option<MountLine<'t>> {
        let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
        // Fields of their own may be in front of the dash.
        let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
        Some(MountLine {
            id: fields.first()?,
            device: fields.get(2)?,
            root: fields.get(3)?,
            dir: fields.get(4)?,
            kind: fields.get(dash + 1)?,
            source: fields.get(dash + 2)?,
            options: fields.get(dash + 3)?,
        })
    }

    /// Returns whether it is that of the mount with this number of the file system with this device
    /// number.
    pub(crate) fn is(&self, id: u64, (major, minor): (u32, u32)) -> bool {
        self.id == id.to_string().as_bytes() && self.device == format!("{major}:{minor}").as_bytes()
    }

    /// Returns the device number of the superblock, as text.
    pub fn device(&self) -> &'t [u8] {
        self.device
    }

    /// Returns the directory of the mount.
    pub fn dir(&self) -> PathBuf {
        PathBuf::from(unescaped(self.dir))
    }

    /// Returns the source of the mount.
    pub fn source(&self) -> PathBuf {
        PathBuf::from(unescaped(self.source))
    }

    /// Returns whether vfscale serves the mount.
    pub fn is_ours(&self) -> bool {
        self.kind == b"fuse.vfscale"
    }

    /// Returns whether the whole tree is mounted, and not a directory of it.
    pub fn is_whole(&self) -> bool {
        self.root == b"/"
    }

    /// Returns whether the superblock is read-only, through whichever mount.
    pub fn is_read_only(&self) -> bool {
        self.has("ro")
    }

    /// Returns whether the superblock has an option.
    pub fn has(&self, option: &str) -> bool {
        self.options().any(|it| it == option.as_bytes())
    }

    /// Returns the user who has made the mount; `None` if that is no mount of FUSE.
    pub fn user(&self) -> Option<u32> {
        let user = self.options().find_map(|option| option.strip_prefix(b"user_id="))?;
        std::str::from_utf8(user).ok()?.parse().ok()
    }

    fn options(&self) -> impl Iterator<Item = &'t [u8]> {
        self.options.split(|byte| *byte == b',')
    }
}

/// Replaces the octal escapes of blanks and other special bytes.
fn unescaped(mut escaped: &[u8]) -> OsString {
    let mut path = Vec::with_capacity(escaped.len());
    while let Some((&first, rest)) = escaped.split_first() {
        let digits = rest.get(..3).filter(|_| first == b'\\');
        let number = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                escaped = &rest[3..];
            }
            None => {
                path.push(first);
                escaped = rest;
            }
        }
    }
    OsString::from_vec(path)
}

#[cfg(test)]
mod tests;
