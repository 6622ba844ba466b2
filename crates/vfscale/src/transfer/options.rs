//! The options of a copy, and its counts.

use std::path::Path;

/// The owners of copies; an option of [`Transfer`](crate::Transfer).
///
/// ```
/// use vfscale::{Owners, Transfer};
///
/// let as_in_the_source = Transfer::new().owners(Owners::Source).xattrs(true);
/// # let _ = as_in_the_source;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// The user who makes the copy: the task's, or that of this process. The default.
    Copier,
    /// The owner and group of the source. The copier needs the right to give files away.
    Source,
    /// This user and group.
    Fixed(u32, u32),
}

/// The counts of a copy; from [`import`](crate::Transfer::import) and
/// [`export`](crate::Transfer::export).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transferred {
    /// Files of every type, directories included; several names of a file count once.
    pub files: u64,
    /// Bytes of data in regular files, without holes.
    pub bytes: u64,
    /// Files that the copy lacks: sockets, and what [`devices`](crate::Transfer::devices),
    /// [`links`](crate::Transfer::links) and [`except`](crate::Transfer::except) leave out.
    pub skipped: u64,
}

/// The treatment of symbolic links that lead out of the copied tree; an option of
/// [`Transfer`](crate::Transfer).
///
/// These are links with an absolute target, those that climb above the file or directory that is
/// copied, and those with a `..` behind a name, since that name may be a link itself. A copy never
/// follows a link, but programs that read the copy may, and then read other files than the maker of
/// the link could.
///
/// ```
/// use vfscale::{Links, Transfer};
///
/// let of_a_guest = Transfer::new().links(Links::Refuse);
/// # let _ = of_a_guest;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// They are copied as they are, as `cp -a`, `tar` and `rsync -a` do: a tree with links such as
    /// `/usr/bin/python3` stays whole, and can come back unchanged. The default.
    #[default]
    Keep,
    /// They are left out, and counted in [`Transferred::skipped`], as `rsync --safe-links` does.
    Skip,
    /// They end the copy with `EXDEV`, the error of `openat2` with `RESOLVE_BENEATH`, as the filter
    /// `data` of Python's `tarfile` refuses them.
    Refuse,
}

/// Is told what was copied, and the source of the next file.
pub(super) type OnFile<'a> = Box<dyn FnMut(&Transferred, &Path) + 'a>;

/// The options of a copy.
pub(super) struct Options<'a> {
    pub(super) owners: Owners,
    pub(super) times: bool,
    pub(super) xattrs: bool,
    pub(super) devices: bool,
    pub(super) links: Links,
    pub(super) replace: bool,
    /// Device and inode numbers of the files that are left out.
    pub(super) except: Vec<(u64, u64)>,
    pub(super) on_file: Option<OnFile<'a>>,
}
