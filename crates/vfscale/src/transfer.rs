//! Trees that come from the host, and go back to it.
//!
//! # Purpose
//!
//! [`Transfer`] copies a tree between the host's file system and a [`Task`]'s: regular files with
//! their holes, directories, symbolic links as they are, several names of a file as several names
//! of its copy, fifos and devices; with permission bits, times, extended attributes and owners.
//!
//! # Invariants
//!
//! * A copy writes only below its target, which must not exist: no symbolic link of the source is
//!   followed, and none in the target can exist before the copy makes it.
//! * A directory gets its permission bits and times when everything in it is there. So an owner
//!   without write permission, or a copy that was interrupted, is no special case.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use vfscale_vfs::{FileType, Result, Stat, Task};

mod host;
mod side;
mod tree;

use host::Host;
use side::Side;
use tree::InTree;

/// The owners of copies; an option of [`Transfer`].
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

/// The counts of a copy; from [`Transfer::import`] and [`Transfer::export`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transferred {
    /// Files of every type, directories included; several names of a file count once.
    pub files: u64,
    /// Bytes of data in regular files, without holes.
    pub bytes: u64,
    /// Sockets: the copy has none.
    pub skipped: u64,
}

/// Options of a copy between the host and a tree.
///
/// ```
/// # fn main() -> vfscale::Result<()> {
/// use vfscale::Transfer;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let (host, back) = (dir.path().join("in"), dir.path().join("out"));
/// # std::fs::create_dir(&host).unwrap();
/// # std::fs::write(host.join("main.rs"), "fn main() {}").unwrap();
/// let task = vfscale::memory().size(64 << 20).build()?.task();
/// let seen = |done: &vfscale::Transferred, path: &std::path::Path| {
///     println!("{} files, {}", done.files, path.display());
/// };
/// Transfer::new().on_file(seen).import(&task, &host, "/src")?;
/// assert_eq!(task.read_to_string("/src/main.rs")?, "fn main() {}");
/// Transfer::new().export(&task, "/src", &back)?;
/// assert!(back.join("main.rs").exists());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Transfer<'a> {
    owners: Owners,
    times: bool,
    xattrs: bool,
    on_file: Option<OnFile<'a>>,
}

/// Is told what was copied, and the source of the next file.
type OnFile<'a> = Box<dyn FnMut(&Transferred, &Path) + 'a>;

impl<'a> Transfer<'a> {
    /// Returns options that copy times, but neither owners nor extended attributes.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Transfer<'a> {
        Transfer { owners: Owners::Copier, times: true, xattrs: false, on_file: None }
    }

    /// Sets who owns the copies.
    pub fn owners(mut self, owners: Owners) -> Self {
        self.owners = owners;
        self
    }

    /// Sets whether copies have the access and modification times of the source; on by default.
    pub fn times(mut self, on: bool) -> Self {
        self.times = on;
        self
    }

    /// Sets whether extended attributes, among them ACLs, are copied; off by default. The names
    /// that the copier can't read or set are errors.
    pub fn xattrs(mut self, on: bool) -> Self {
        self.xattrs = on;
        self
    }

    /// Calls `f` before each file, with what was copied so far and the source of the file.
    pub fn on_file(mut self, f: impl FnMut(&Transferred, &Path) + 'a) -> Self {
        self.on_file = Some(Box::new(f));
        self
    }

    /// Copies the file or directory `from` of the host to the new name `to` in the tree of `task`,
    /// with the task's rights. Blocks for the host's I/O.
    ///
    /// # Errors
    /// `EEXIST` if `to` exists; the errors of reading and writing, with the path that they concern.
    /// Files that were copied before an error stay.
    pub fn import(
        self,
        task: &Task,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<Transferred> {
        self.run(&Host, &InTree(task), from.as_ref(), to.as_ref())
    }

    /// Copies the file or directory `from` in the tree of `task` to the new name `to` on the host,
    /// with the rights of this process. Blocks for the host's I/O.
    ///
    /// # Errors
    /// As [`import`](Self::import).
    pub fn export(
        self,
        task: &Task,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
    ) -> Result<Transferred> {
        self.run(&InTree(task), &Host, from.as_ref(), to.as_ref())
    }

    fn run<S: Side, T: Side>(
        self,
        source: &S,
        target: &T,
        from: &Path,
        to: &Path,
    ) -> Result<Transferred> {
        let mut copy = Copy {
            source,
            target,
            options: self,
            done: Transferred::default(),
            links: HashMap::new(),
        };
        copy.tree(from, to)?;
        Ok(copy.done)
    }
}

impl fmt::Debug for Transfer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("owners", &self.owners)
            .field("times", &self.times)
            .field("xattrs", &self.xattrs)
            .finish_non_exhaustive()
    }
}

/// The most bytes of one read.
const STEP_BYTES: usize = 1 << 20;

/// A copy in progress.
struct Copy<'s, 'a, S, T> {
    source: &'s S,
    target: &'s T,
    options: Transfer<'a>,
    done: Transferred,
    /// The first copy of each file that has several names, by device and inode number.
    links: HashMap<(u64, u64), PathBuf>,
}

impl<S: Side, T: Side> Copy<'_, '_, S, T> {
    /// Copies a tree, without recursion, which a deep tree would exhaust.
    fn tree(&mut self, from: &Path, to: &Path) -> Result<()> {
        let mut below = vec![(from.to_owned(), to.to_owned())];
        let mut dirs = Vec::new();
        while let Some((from, to)) = below.pop() {
            let stat = self.source.stat(&from)?;
            if let Some(on_file) = &mut self.options.on_file {
                on_file(&self.done, &from);
            }
            if FileType::from_raw_mode(stat.mode) == FileType::Directory {
                self.target.create_dir(&to)?;
                self.done.files += 1;
                let names = self.source.names(&from)?;
                below.extend(names.iter().map(|name| (from.join(name), to.join(name))));
                dirs.push((from, to, stat));
            } else {
                self.file(&from, &to, &stat)?;
            }
        }
        dirs.iter().rev().try_for_each(|(from, to, stat)| self.attributes(from, to, stat))
    }

    fn file(&mut self, from: &Path, to: &Path, stat: &Stat) -> Result<()> {
        if stat.nlink > 1 {
            if let Some(first) = self.links.get(&(stat.dev, stat.ino)) {
                return self.target.hard_link(first, to);
            }
            self.links.insert((stat.dev, stat.ino), to.to_owned());
        }
        match FileType::from_raw_mode(stat.mode) {
            FileType::RegularFile => self.data(from, to, stat)?,
            FileType::Symlink => self.target.symlink(&self.source.read_link(from)?, to)?,
            FileType::Socket => {
                self.done.skipped += 1;
                self.links.remove(&(stat.dev, stat.ino));
                return Ok(());
            }
            _ => self.target.mknod(to, stat)?,
        }
        self.done.files += 1;
        self.attributes(from, to, stat)
    }

    fn data(&mut self, from: &Path, to: &Path, stat: &Stat) -> Result<()> {
        let (source, target) = (self.source.open(from)?, self.target.create(to)?);
        let mut buf = vec![0; STEP_BYTES.min(stat.size.max(1) as usize)];
        let mut at = 0;
        while let Some((start, end)) = self.source.data(&source, from, at)? {
            at = start;
            while at < end {
                let len = buf.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
                let n = self.source.read_at(&source, from, &mut buf[..len], at)?;
                if n == 0 {
                    // The file became shorter meanwhile.
                    return self.target.set_len(&target, to, at);
                }
                self.target.write_all_at(&target, to, &buf[..n], at)?;
                at += n as u64;
                self.done.bytes += n as u64;
            }
        }
        self.target.set_len(&target, to, stat.size.max(at))
    }

    /// Sets the owner first, which ends set-id bits, and the times last, which all else changes.
    fn attributes(&self, from: &Path, to: &Path, stat: &Stat) -> Result<()> {
        match self.options.owners {
            Owners::Copier => {}
            Owners::Source => self.target.chown(to, stat.uid, stat.gid)?,
            Owners::Fixed(uid, gid) => self.target.chown(to, uid, gid)?,
        }
        if FileType::from_raw_mode(stat.mode) != FileType::Symlink {
            self.target.chmod(to, stat.mode & 0o7777)?;
        }
        if self.options.xattrs {
            for (name, value) in self.source.xattrs(from)? {
                self.target.set_xattr(to, &name, &value)?;
            }
        }
        if self.options.times {
            self.target.set_times(to, stat)?;
        }
        Ok(())
    }
}
