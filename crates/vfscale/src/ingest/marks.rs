//! The attributes by which an overlay marks files of its upper layer.
//!
//! Overlays of users, with the option `userxattr`, have other names for them, and fewer: the kernel
//! gives a user no handles of files, so a copy does not say of what, and there is no index.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use vfscale_vfs::{FileType, Stat};

/// The names of the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marking {
    /// `trusted.overlay.*`
    Trusted,
    /// `user.overlay.*`
    User,
}

impl Marking {
    fn prefix(self) -> &'static [u8] {
        match self {
            Self::Trusted => b"trusted.overlay.",
            Self::User => b"user.overlay.",
        }
    }

    /// Reads what the attributes of a file say.
    pub(super) fn read(self, xattrs: Vec<(OsString, Vec<u8>)>) -> Marks {
        let mut marks = Marks {
            marking: self,
            opaque: None,
            redirect: None,
            origin: None,
            is_without_contents: false,
            is_marked_out: false,
        };
        for (name, value) in xattrs {
            match name.as_bytes().strip_prefix(self.prefix()) {
                Some(b"opaque") => marks.opaque = Some(value),
                Some(b"redirect") => marks.redirect = Some(OsString::from_vec(value).into()),
                Some(b"origin") => marks.origin = Some(value),
                Some(b"metacopy") => marks.is_without_contents = true,
                Some(b"whiteout") => marks.is_marked_out = true,
                _ => {}
            }
        }
        marks
    }

    /// Returns the attributes that programs see in the overlay: without its own, and those of
    /// programs with such names by the names that the programs know.
    pub(super) fn visible(self, xattrs: Vec<(OsString, Vec<u8>)>) -> Vec<(OsString, Vec<u8>)> {
        let own = self.prefix();
        let name = |name: OsString| {
            let Some(rest) = name.as_bytes().strip_prefix(own) else { return Some(name) };
            let rest = rest.strip_prefix(b"overlay.")?;
            Some(OsString::from_vec([own, rest].concat()))
        };
        xattrs.into_iter().filter_map(|(it, value)| name(it).map(|it| (it, value))).collect()
    }
}

/// The marks of a file.
pub(super) struct Marks {
    pub(super) marking: Marking,
    pub(super) opaque: Option<Vec<u8>>,
    pub(super) redirect: Option<PathBuf>,
    pub(super) origin: Option<Vec<u8>>,
    /// Only its attributes were copied.
    pub(super) is_without_contents: bool,
    is_marked_out: bool,
}

impl Marks {
    /// Returns whether the file says that a name of the base is gone. Empty files do in a directory
    /// that `has_marked` ones.
    pub(super) fn is_whiteout(&self, stat: &Stat, has_marked: bool) -> bool {
        match stat.file_type() {
            FileType::CharacterDevice => stat.rdev == 0,
            FileType::RegularFile => has_marked && self.is_marked_out && stat.size == 0,
            _ => false,
        }
    }
}
