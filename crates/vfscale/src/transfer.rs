//! Trees that come from the host, and go back to it.
//!
//! # Purpose
//!
//! [`Transfer`] copies a tree between the host's file system and a [`Task`]'s: regular files with
//! their holes, directories, symbolic links as they are, several names of a file as several names
//! of its copy, and fifos; with permission bits, times, extended attributes and owners.
//!
//! # Invariants
//!
//! * A copy writes only below its target, which must not exist without [`Transfer::replace`]. On
//!   either side each file is reached by a name in an open directory, and no symbolic link is
//!   followed, not even one that takes the place of a directory meanwhile.
//! * A directory gets its permission bits and times when everything in it is there. So an owner
//!   without write permission, or a copy that was interrupted, is no special case.
//! * Nobody gains rights by a copy: without the owners of the source it has no set-id bits and no
//!   capabilities, and without [`Transfer::devices`] no devices.

use std::fmt;
use std::path::Path;

use vfscale_vfs::{Result, Task};

mod copy;
pub(crate) mod host;
mod options;
pub(crate) mod side;
pub(crate) mod tree;

use copy::Copy;
use host::Host;
use options::Options;
pub use options::{Links, Owners, Transferred};
use side::Side;
use tree::InTree;

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
pub struct Transfer<'a>(Options<'a>);

impl<'a> Transfer<'a> {
    /// Returns options that copy times, but neither owners, extended attributes nor devices.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Transfer<'a> {
        Transfer(Options {
            owners: Owners::Copier,
            times: true,
            xattrs: false,
            devices: false,
            links: Links::Keep,
            replace: false,
            except: Vec::new(),
            on_file: None,
        })
    }

    /// Sets who owns the copies. Unless that is the owner of the source, they have neither set-id
    /// bits nor capabilities (`security.capability`), which would give the rights of the new owner
    /// to whoever runs them.
    pub fn owners(mut self, owners: Owners) -> Self {
        self.0.owners = owners;
        self
    }

    /// Sets whether copies have the access and modification times of the source; on by default.
    pub fn times(mut self, on: bool) -> Self {
        self.0.times = on;
        self
    }

    /// Sets whether extended attributes, among them ACLs, are copied; off by default. The names
    /// that the copier can't read or set are errors.
    pub fn xattrs(mut self, on: bool) -> Self {
        self.0.xattrs = on;
        self
    }

    /// Sets whether devices are made, with the numbers of the source; off by default, since whoever
    /// may open one reaches the device itself. Others are counted in [`Transferred::skipped`].
    pub fn devices(mut self, on: bool) -> Self {
        self.0.devices = on;
        self
    }

    /// Sets what is done with symbolic links that lead out of the copied tree; kept by default.
    /// Refuse or skip them in what a guest has made.
    pub fn links(mut self, links: Links) -> Self {
        self.0.links = links;
        self
    }

    /// Sets whether the copy may go into directories that exist and replace files; off by default.
    /// A directory that exists keeps its attributes and what the copy does not replace. Any other
    /// file has a name that begins with `.tmp` until it is whole, and then takes the place of what
    /// has its name: others see the old file or the new one. It does not replace a directory, nor a
    /// directory something else.
    pub fn replace(mut self, on: bool) -> Self {
        self.0.replace = on;
        self
    }

    /// Leaves out the file with this device and inode number (`st_dev`, `st_ino`), beside those of
    /// earlier calls: the image of the volume that a directory with the image is copied to, which
    /// would be copied into itself.
    pub fn except(mut self, dev: u64, ino: u64) -> Self {
        self.0.except.push((dev, ino));
        self
    }

    /// Calls `f` before each file, with what was copied so far and the source of the file.
    pub fn on_file(mut self, f: impl FnMut(&Transferred, &Path) + 'a) -> Self {
        self.0.on_file = Some(Box::new(f));
        self
    }

    /// Copies the file or directory `from` of the host to the new name `to` in the tree of `task`,
    /// with the task's rights. Blocks for the host's I/O.
    ///
    /// # Errors
    /// `EEXIST` if `to` exists; with [`replace`](Self::replace) `EISDIR` or `ENOTDIR` if one of a
    /// file and the file in its place is a directory; `EXDEV` for a link that
    /// [`links`](Self::links) refuses; `ESTALE` if a directory of a deep tree is moved during the
    /// copy, `EBUSY` if the file of a name is exchanged again and again; `EACCES` for another name
    /// of a file that was copied into a directory which the copier may not search; the errors of
    /// reading and writing, with the path that they concern. Files that were copied before an error
    /// stay.
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

    /// Copies the file or directory `from` of the host to the new name `to` on the host, with the
    /// rights of this process: a copy from or to a mount. Blocks for the host's I/O.
    ///
    /// # Errors
    /// As [`import`](Self::import).
    pub fn copy(self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Transferred> {
        self.run(&Host, &Host, from.as_ref(), to.as_ref())
    }

    fn run<S: Side, T: Side>(
        self,
        source: &S,
        target: &T,
        from: &Path,
        to: &Path,
    ) -> Result<Transferred> {
        let mut copy = Copy::new(source, target, self.0);
        copy.tree(from, to)?;
        Ok(copy.done)
    }
}

impl fmt::Debug for Transfer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("owners", &self.0.owners)
            .field("times", &self.0.times)
            .field("xattrs", &self.0.xattrs)
            .field("devices", &self.0.devices)
            .field("links", &self.0.links)
            .field("replace", &self.0.replace)
            .field("except", &self.0.except)
            .finish_non_exhaustive()
    }
}
