//! The mount table of this process, `/proc/self/mountinfo`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Path of the table.
pub(crate) const PATH: &str = "/proc/self/mountinfo";

/// A line of the mount table.
pub(crate) struct MountLine<'t> {
    /// Number of the mount.
    id: &'t [u8],
    /// Device number of the file system.
    pub(crate) device: &'t [u8],
    /// Mount point, escaped.
    pub(crate) dir: &'t [u8],
    /// Whether the superblock is read-only, through whichever mount.
    pub(crate) is_read_only: bool,
}

impl MountLine<'_> {
    /// Returns whether it is that of the mount with this number of the file system with this device
    /// number.
    pub(crate) fn is(&self, id: u64, (major, minor): (u32, u32)) -> bool {
        self.id == id.to_string().as_bytes() && self.device == format!("{major}:{minor}").as_bytes()
    }
}

/// Returns the lines of a table.
pub(crate) fn lines(table: &[u8]) -> impl DoubleEndedIterator<Item = MountLine<'_>> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let options = fields.last()?;
        Some(MountLine {
            id: fields.first()?,
            device: fields.get(2)?,
            dir: fields.get(4)?,
            is_read_only: options.split(|byte| *byte == b',').next() == Some(b"ro"),
        })
    })
}

/// Escapes a path as the table does.
pub(crate) fn escaped(path: &OsStr) -> Vec<u8> {
    let mut escaped = Vec::new();
    for &byte in path.as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").into_bytes()),
            byte => escaped.push(byte),
        }
    }
    escaped
}

/// Returns the path that the table escapes.
pub(crate) fn unescaped(mut escaped: &[u8]) -> OsString {
    let mut path = Vec::new();
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
