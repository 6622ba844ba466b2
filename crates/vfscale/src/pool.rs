//! Pools: branches of a volume.
//!
//! # Purpose
//!
//! A *branch* is a volume that began as a copy of another one. Branches of one image share all
//! blocks that they have not changed, so a [fork](Pool::fork) copies nothing: a program can try
//! something in a branch, [compare](Pool::diff), and keep it ([`adopt`](Pool::adopt)) or throw it
//! away ([`delete`](Pool::delete)).
//!
//! A volume is made a pool by [`PoolBuilder::convert`], in place, or by [`Volume::make_pool`] while
//! it is open: it is the branch `main` then. It can be opened as before, but not by versions of
//! this library that do not know pools.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("disk.vfs");
//! # let volume = vfscale::volume(&path).create(64 << 20).open()?;
//! # volume.task().write("/config", "old")?;
//! # volume.close()?;
//! let pool = vfscale::pool(&path).convert(true).open()?;
//! pool.fork("main", "trial")?;
//!
//! let trial = pool.open("trial")?;
//! trial.task().write("/config", "new")?;
//! trial.close()?;
//!
//! let main = pool.open("main")?;
//! assert_eq!(main.task().read_to_string("/config")?, "old");
//! main.close()?;
//!
//! pool.adopt("main", "trial")?;
//! let main = pool.open("main")?;
//! assert_eq!(main.task().read_to_string("/config")?, "new");
//! main.close()?;
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! * An image has one [`Pool`] in one process at a time. It serves all branches.
//! * A fork, a deletion, a rename, a rollback and an adoption are there whole after a crash, or not
//!   at all, and are durable when their calls return.
//! * A branch never sees changes of another one.
//!
//! # Space
//!
//! A pool has the space of its image, which is twice that of the volume that it was and 128 MiB
//! more, and sparse. A device of a fixed size keeps its size: the pool has what is behind the
//! volume, and its free blocks. When that is in use ([`Pool::usage`]), calls that need space fail
//! with `ENOSPC`, whatever free space the branch shows itself, also those that only overwrite
//! bytes: the block may be one that another branch shares. Removing files works, on a reserve. The
//! space of deleted branches becomes free in the background, and a sparse image gives it back to
//! its file system then ([`Pool::trim`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale_block::{Ceph, Device, DeviceOptions};
pub use vfscale_pool::{BranchInfo, LIMIT_MIN, LogEntry, LogKind, LogMerge, Usage};
use vfscale_pool::{Kind, Repaired};
use vfscale_vfs::Scaling;

use crate::place::devices::DeviceSource;
use crate::volume::{CacheBudget, Volume, VolumeBuilder, VolumeError};

mod compare;
mod diff_options;
mod maker;
mod travel;

pub use crate::diff::{Changes, Difference, DifferenceKind};
pub use crate::error::pool::PoolError;
use crate::place::convert::{Converted, convert, discard_free};
pub use crate::place::shared::MAIN;
use crate::place::shared::{Access, BranchDevice, PoolShared};
use crate::view;
pub use crate::view::View;
pub use diff_options::DiffOptions;
pub use maker::PoolMaker;
pub use travel::{Received, SendOptions, Sent};

/// Returns the options of a pool in an image file or on a block device; open it with
/// [`open`](PoolBuilder::open).
pub fn pool(path: impl Into<PathBuf>) -> PoolBuilder {
    PoolBuilder::new(DeviceSource::Path(path.into()))
}

/// Returns the options of a pool on a device of the caller's.
pub fn pool_on(device: Arc<dyn Device>) -> PoolBuilder {
    PoolBuilder::new(DeviceSource::Device(device))
}

/// Options of [`pool`] and [`pool_on`].
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct PoolBuilder {
    place: DeviceSource,
    device: DeviceOptions,
    read_only: bool,
    convert: bool,
    repair: bool,
    budget: Option<Arc<CacheBudget>>,
}

impl PoolBuilder {
    fn new(place: DeviceSource) -> Self {
        Self {
            place,
            device: DeviceOptions::new(),
            read_only: false,
            convert: false,
            repair: false,
            budget: None,
        }
    }

    /// Sets the user and the configuration of Ceph, for an image whose name begins with `rbd:`.
    pub fn ceph(mut self, ceph: Ceph) -> Self {
        self.device = self.device.ceph(ceph);
        self
    }

    /// Takes an image of Ceph RBD from a holder that is alive: the cluster refuses it from then on.
    /// An image in a file can't be taken over.
    pub fn take_over(mut self, take_over: bool) -> Self {
        self.device = self.device.take_over(take_over);
        self
    }

    /// Opens the pool without writing: branches can only be read, and calls that change the pool
    /// fail. What has to be recovered after a crash is recovered in memory.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the memory for the caches of all branches, which volumes and other pools may share: so
    /// a process has one budget for all of its caches. By default the pool has one of 256 MiB.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// let budget = vfscale::volume::CacheBudget::new(64 << 20);
    /// let pool = vfscale::pool(&path).convert(true).cache_budget(&budget).open()?;
    /// let main = pool.open("main")?;
    /// main.task().write("/f", "in the budget")?;
    /// assert!(budget.used().0 > 0);
    /// # main.close()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache_budget(mut self, budget: &Arc<CacheBudget>) -> Self {
        self.budget = Some(Arc::clone(budget));
        self
    }

    /// Makes the image a pool if it has a volume that is none yet; off by default. That can't be
    /// undone, and older versions refuse the image from then on.
    ///
    /// The image gets twice the size, and stays sparse. It takes the same short time for all sizes,
    /// and a crash leaves the volume or the pool. A volume that was not closed is recovered when
    /// its branch is opened.
    ///
    /// A device of a fixed size keeps it, and has to have space behind the volume: 60 MiB and 0.4 %
    /// of the volume, or less for small ones (16 MiB for 64 MiB). All free blocks of the volume are
    /// discarded once it is a pool, so that branches can use them.
    pub fn convert(mut self, convert: bool) -> Self {
        self.convert = convert;
        self
    }

    /// Repairs the pool when it is opened: space that no branch has becomes free, and space that
    /// one has is not given to another, and what each branch has replaced is listed anew;
    /// [`Pool::repaired`] tells what was wrong, and [`Pool::check`] what is left. Reads all maps.
    /// Off by default, and without effect on a pool that is opened for reading only.
    pub fn repair(mut self, repair: bool) -> Self {
        self.repair = repair;
        self
    }

    /// Opens the pool, and recovers it if it was not closed.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`PoolError`]; [`PoolError::NoPool`] if there is a volume that is no pool.
    pub fn open(self) -> Result<Pool, PoolError> {
        let name = self.place.name();
        let device = self.device.clone().read_only(self.read_only);
        let device = self.place.open(&device).map_err(|error| {
            let missing = self.place.missing(&error).cloned();
            missing.map_or(PoolError::Device(error), PoolError::Missing)
        })?;
        let access = match (self.read_only, self.repair) {
            (true, _) => Access::Read,
            (false, false) => Access::Write,
            (false, true) => Access::Repair,
        };
        let is_converted = self.convert && !self.read_only;
        let converted = is_converted.then(|| convert(&name, MAIN, &device)).transpose()?;
        let pool = Pool { shared: PoolShared::open(&name, device, access, self.budget)? };
        if converted == Some(Converted::Fixed)
            && let Err(error) = pool.take_free_blocks()
        {
            tracing::warn!("the free blocks of the volume are not used for branches: {error}");
        }
        Ok(pool)
    }
}

/// Options of [`Pool::fork_with`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ForkOptions {
    kind: Kind,
    as_synced: bool,
}

impl ForkOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the new branch can only be read: it keeps its contents.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.kind = if read_only { Kind::ReadOnly } else { Kind::Writable };
        self
    }

    /// Sets whether the new branch lives no longer than the pool is open: whoever opens the pool
    /// next deletes it, unless it was renamed. It can be written.
    #[must_use]
    pub fn temporary(mut self, temporary: bool) -> Self {
        self.kind = if temporary { Kind::Temporary } else { Kind::Writable };
        self
    }

    /// Sets whether the new branch has what a power cut at this moment would leave of the parent,
    /// instead of all changes whose calls have returned. That makes no difference unless the parent
    /// is open, and is faster then.
    #[must_use]
    pub fn as_synced(mut self, as_synced: bool) -> Self {
        self.as_synced = as_synced;
        self
    }
}

/// An open pool. `Send` and `Sync`; clones are the same pool.
///
/// Dropping the last clone loses nothing that was synced; the space of deleted branches is freed
/// after the next opening. Volumes that are open keep the pool open.
#[derive(Clone)]
pub struct Pool {
    pub(crate) shared: Arc<PoolShared>,
}

impl Pool {
    /// Gives the free blocks of the volume that has become a pool to all branches.
    fn take_free_blocks(&self) -> Result<(), VolumeError> {
        let main = self.open(MAIN)?;
        discard_free(self.shared.name(), main.driver());
        Ok(main.close()?)
    }

    /// Lists the branches by name: `t2` before `t10`.
    ///
    /// Waits for changes of the pool that are under way.
    #[must_use]
    pub fn branches(&self) -> Vec<BranchInfo> {
        self.shared.pool().list()
    }

    /// Returns whether the pool was opened for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared.read_only()
    }

    /// Returns the space of the pool, and the number of its branches. Waits for a commit that is
    /// under way.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.pool().usage()
    }

    /// Returns the options of the volume in a branch; open it with [`open`](VolumeBuilder::open).
    /// Its caches share a [budget](PoolBuilder::cache_budget) with those of the other branches,
    /// unless [`cache_size`](VolumeBuilder::cache_size) gives it caches of its own; and its
    /// structures are for one CPU, since there may be many. A branch other than `main` leaves
    /// access times as they are, until its root is remounted with another rule. A branch can be
    /// opened by one user for writing, and a read-only one by many.
    pub fn branch(&self, name: &str) -> VolumeBuilder {
        let builder = VolumeBuilder::of_branch(self.shared.clone(), name);
        let builder = builder.scaling(Scaling::with_slots(1));
        builder.read_only(self.shared.is_read_only(name))
    }

    /// Opens the volume in a branch with the default options of [`branch`](Self::branch).
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub fn open(&self, name: &str) -> Result<Volume, VolumeError> {
        self.branch(name).open()
    }

    /// Makes branch `name` of a branch, which may be open: all changes whose calls have returned
    /// are in it.
    ///
    /// Blocks for the I/O: two flushes, and the writing of what is dirty if the parent is open.
    /// Writers of the parent wait for a short part of the call.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such parent, the name exists or can't be one, or the
    /// pool is full; [`PoolError::Sync`].
    pub fn fork(&self, parent: &str, name: &str) -> Result<(), PoolError> {
        self.fork_with(parent, name, ForkOptions::new())
    }

    /// Makes a branch as [`fork`](Self::fork) does, with options.
    ///
    /// # Errors
    /// Errors of [`fork`](Self::fork).
    pub fn fork_with(
        &self,
        parent: &str,
        name: &str,
        options: ForkOptions,
    ) -> Result<(), PoolError> {
        self.shared.fork(parent, name, options.kind, options.as_synced)
    }

    /// Makes a *checkpoint* of a branch, which may be open: a branch that can only be read, with
    /// all changes whose calls have returned, and with a text of one line. Returns its name,
    /// `main@1` or with the number after the greatest one in use. It is used as any such branch:
    /// compared, forked, opened, renamed, [deleted](Self::delete), and [rolled back
    /// to](Self::rollback_to).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// let before = pool.checkpoint("main", "before the upgrade")?;
    /// assert_eq!(before, "main@1");
    /// let main = pool.open("main")?;
    /// main.task().write("/new", "contents")?;
    /// main.close()?;
    /// assert_eq!(pool.diff(&before, "main")?.len(), 1);
    /// let after = pool.rollback_to("main", &before)?;
    /// assert_eq!(after.as_deref(), Some("main@2"));
    /// assert!(pool.diff(&before, "main")?.is_empty());
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Blocks for the I/O: two flushes, and the writing of what is dirty if the branch is open.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, the text is too long beside the name
    /// (both have 128 bytes) or no line, or the pool is full; [`PoolError::Sync`].
    pub fn checkpoint(&self, branch: &str, text: &str) -> Result<String, PoolError> {
        self.shared.checkpoint(branch, text)
    }

    /// Tells the history of a branch, the last state first, with those of branches that were merged
    /// into it. A state is told as long as the pool has it: two branches come from it, or a
    /// rollback or a merge may need it.
    ///
    /// Waits for changes of the pool that are under way.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch.
    pub fn log(&self, branch: &str) -> Result<Vec<LogEntry>, PoolError> {
        self.shared.call(self.shared.pool().log(branch))
    }

    /// Deletes a branch. Its space becomes free in the background, as long as the pool is open.
    ///
    /// Blocks for the I/O: two flushes. Works if the pool is full.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, it is open, or it is [`MAIN`].
    pub fn delete(&self, name: &str) -> Result<(), PoolError> {
        self.shared.call(no_main(name))?;
        self.shared.call(self.shared.to_change()?.delete(name))?;
        self.shared.reap_soon();
        Ok(())
    }

    /// Renames a branch.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, it is open or is [`MAIN`], or the new
    /// name exists or can't be one.
    pub fn rename(&self, name: &str, to: &str) -> Result<(), PoolError> {
        self.shared.call(no_main(name))?;
        self.shared.call(self.shared.to_change()?.rename(name, to))
    }

    /// Limits how much a branch may have for itself, in bytes; `None` ends that. All that it has
    /// written since it was forked counts, its checkpoints included, until it gives that up; blocks
    /// that it shares with the branch that it was forked from do not. At the limit, changes that
    /// need more space fail with [`Errno::DQUOT`](crate::Errno::DQUOT); other branches notice
    /// nothing. A branch that has more already loses nothing.
    ///
    /// The limit stays with the name. A rollback, an adoption and a rebase begin the count anew. If
    /// the branch that this one was forked from is deleted, and nothing else has that one's blocks,
    /// this one has them for itself, and the limit rises by as much.
    ///
    /// Blocks for the I/O: two flushes. The branch may be open.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, it can only be read, or the limit is
    /// below [`LIMIT_MIN`].
    pub fn set_limit(&self, name: &str, limit: Option<u64>) -> Result<(), PoolError> {
        self.shared.call(self.shared.to_change()?.set_limit(name, limit))
    }

    /// Gives a branch the contents back that it had at its last fork, as parent or as child, or at
    /// its last [adoption](Self::adopt). Those of a fork are kept as long as another branch needs
    /// them; a read-only branch of that moment does. Those of an adoption are kept until the next
    /// fork or adoption, or until the pool is nearly full.
    ///
    /// The contents until now become another branch, whose name is returned: `name@1`, or
    /// with the next number that is free. [Adopting](Self::adopt) that undoes the rollback, and
    /// [deleting](Self::delete) it frees its space. `None` if the branch has written nothing.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// pool.fork("main", "trial")?;
    /// let trial = pool.open("trial")?;
    /// trial.task().write("/new", "contents")?;
    /// trial.close()?;
    /// assert_eq!(pool.rollback("trial")?.as_deref(), Some("trial@1"));
    /// assert_eq!(pool.diff("trial", "trial@1")?.len(), 1);
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A branch that is open as a [`LiveVolume`](crate::volume::LiveVolume) goes on with them.
    ///
    /// Blocks for the I/O: two flushes, or eight and the writing of what is dirty if it is open.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, it is open otherwise or can only be
    /// read, or the state is gone; if it is open, also [`PoolError::Sync`],
    /// [`PoolError::Follow`] and [`PoolError::Switch`].
    pub fn rollback(&self, name: &str) -> Result<Option<String>, PoolError> {
        let kept = self.shared.roll_back(name, None)?;
        self.shared.reap_soon();
        Ok(kept)
    }

    /// Gives a branch the contents of one that can only be read, as of a
    /// [checkpoint](Self::checkpoint), and otherwise does what [`rollback`](Self::rollback) does.
    ///
    /// # Errors
    /// Errors of `rollback`; [`PoolError::Branches`] if `to` can be written.
    pub fn rollback_to(&self, name: &str, to: &str) -> Result<Option<String>, PoolError> {
        let kept = self.shared.roll_back(name, Some(to))?;
        self.shared.reap_soon();
        Ok(kept)
    }

    /// Writes a *view* of a branch that can only be read to the file `out`, whole or not at all:
    /// metadata of EROFS, by which Linux reads all of the branch in place, without this library, if
    /// the image is its device (`mount(2)` with the type `erofs` and `device=IMAGE`). POOL.md
    /// describes it, and SEMANTICS.md has what EROFS can't store.
    ///
    /// The file is right as long as the branch exists, under any name, in this image and in a copy
    /// of it that was made while it did. Unmount the view before you delete the branch: its blocks
    /// are used for other files then. The same branch always gives the same bytes.
    ///
    /// Blocks for the I/O: reads all metadata of the branch. Takes memory for the names of the
    /// directories on one path from the root down, 8 MiB beside, some bits for each inode, and 40
    /// bytes for each file with several names of which one is still to come.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// # let main = pool.open("main")?;
    /// # main.task().write("/f", "contents")?;
    /// # main.close()?;
    /// pool.fork_with("main", "base", vfscale::ForkOptions::new().read_only(true))?;
    /// let view = pool.view("base", &dir.path().join("base.erofs"))?;
    /// assert_eq!(view.inodes, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, or it can be written;
    /// [`PoolError::View`] and [`PoolError::Damage`] name the file that can't be in a view;
    /// [`PoolError::Output`].
    pub fn view(&self, branch: &str, out: &Path) -> Result<View, PoolError> {
        if self.shared.pool().is_read_only(branch) == Some(false) {
            let why = "it can be written; a view is one of a branch that can only be read";
            let refused = vfscale_pool::Error::Refused { name: branch.to_owned(), why };
            return self.shared.call(Err(refused));
        }
        view::write(self.shared.look(branch)?.open_to_walk(branch)?.side(), out)
    }

    /// Returns an id of what a branch has now: as long as it has the same one, a
    /// [view](Self::view) of a fork shows what the branch has.
    ///
    /// Blocks for the I/O: two flushes if the branch has changed since its last fork.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, or the pool is full;
    /// [`PoolError::Sync`].
    pub fn state(&self, branch: &str) -> Result<[u8; 16], PoolError> {
        Ok(self.shared.snapshot(branch)?.side().branch().state())
    }

    /// Gives a branch the contents of one that was forked from it, or from one that it comes from,
    /// and frees the name of that. The parent must not have changed since the last state that both
    /// have in common; what was forked from it, compared or read since then is no change. The child
    /// has to be closed, and the parent closed or a [`LiveVolume`](crate::volume::LiveVolume).
    /// Users who change the parent meanwhile lose nothing: it is compared again then.
    ///
    /// Blocks for the I/O: compares the parent with that state, and four flushes.
    ///
    /// # Errors
    /// [`PoolError::HasChanged`]; [`PoolError::Branches`] if there is no such branch, one of them
    /// is in use or can only be read, the child is [`MAIN`], or they have no state in common.
    pub fn adopt(&self, parent: &str, child: &str) -> Result<(), PoolError> {
        self.shared.call(no_main(child))?;
        let adopted = self.shared.adopt(parent, child);
        self.shared.reap_soon();
        adopted
    }

    /// Frees the space of deleted branches now, instead of in the background.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`PoolError::Branches`] for an error of the device or a damaged pool.
    pub fn reap(&self) -> Result<(), PoolError> {
        self.shared.reap()
    }

    /// Makes the volume in a branch larger, which may be open: `bytes`, rounded down to a size that
    /// a volume can have. The image grows by twice as much, as far as it can: a device of a fixed
    /// size keeps it. Returns the size of the volume.
    ///
    /// Blocks for the I/O; the branches go on meanwhile.
    ///
    /// # Errors
    /// [`PoolError::Grow`] if the volume is larger already, or can't be as large;
    /// [`PoolError::Branches`] if there is no such branch, or for an error of the device.
    pub fn grow_branch(&self, name: &str, bytes: u64) -> Result<u64, PoolError> {
        self.shared.grow_branch(name, bytes)
    }

    /// Makes the space larger that all branches share: the image gets `bytes`, rounded down to
    /// blocks of 4096; without a size, the branches get all of the file or device. The volumes in
    /// them keep their sizes. Returns the size.
    ///
    /// Blocks for the I/O; the branches go on meanwhile.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if it is larger already or can't be as large, and for an error of
    /// the device, in particular if its size is fixed.
    pub fn grow(&self, bytes: Option<u64>) -> Result<u64, PoolError> {
        self.shared.call(self.shared.to_change()?.grow(bytes))
    }

    /// Calls `meanwhile` while the image has everything of all branches, in place and durable, and
    /// does not change, as [`Freezer::freeze`](crate::volume::Freezer::freeze) does.
    ///
    /// # Errors
    /// [`PoolError::Sync`] if a volume can't be frozen; [`PoolError::Branches`] if a branch is just
    /// being opened, or is open as a device, or for an error of the device. `meanwhile` was not
    /// called then.
    pub fn freeze<T>(&self, meanwhile: impl FnOnce() -> T) -> Result<T, PoolError> {
        self.shared.freeze(meanwhile)
    }

    /// Discards all space that no branch has, also what was discarded before: an image gives it
    /// back to its file system, and a disk of flash memory need not copy it. In a sparse image this
    /// happens in the background, within a second, for what becomes free while the pool is open.
    /// Returns the bytes.
    ///
    /// Blocks for the I/O. Changes of the pool wait for parts of it.
    ///
    /// # Errors
    /// [`PoolError::Branches`] for an error of the device, in particular one that can't discard.
    pub fn trim(&self) -> Result<u64, PoolError> {
        self.shared.call(self.shared.to_change()?.trim())
    }

    /// Opens the device of a branch, for tools that look at the volume themselves. A branch that
    /// can be written is in use until it is dropped.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch or it is open.
    pub fn device(&self, name: &str) -> Result<Arc<dyn Device>, PoolError> {
        let open = self.shared.open_branch(name)?;
        Ok(Arc::new(BranchDevice::new(open)))
    }

    /// Opens the device of what a branch has now, for tools that look at the volume themselves.
    /// That has no name and does not change, and goes when the device is dropped. The branch may be
    /// open.
    ///
    /// Blocks as a [`fork`](Self::fork) does.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, and [`PoolError::Sync`].
    pub fn still_device(&self, name: &str) -> Result<Arc<dyn Device>, PoolError> {
        Ok(Arc::new(self.shared.look(name)?))
    }

    /// Checks the pool: each block against every branch that refers to it. Returns the first
    /// hundred problems. Does not look into the volumes.
    ///
    /// Blocks for the I/O: reads all maps. Changes of the pool wait for it.
    ///
    /// # Errors
    /// [`PoolError::Branches`] for an error of the device, or a block that can't be interpreted.
    pub fn check(&self) -> Result<Vec<String>, PoolError> {
        Ok(self.shared.call(self.shared.pool().check())?.problems)
    }

    /// Returns what was wrong with the pool and has been [repaired](PoolBuilder::repair) when it
    /// was opened, and what is lost; empty if nothing was.
    #[must_use]
    pub fn repaired(&self) -> Vec<String> {
        let Repaired { freed, marked, counts, lists, merges, bitmaps, copies, losses } =
            self.shared.repaired();
        let told = [
            (freed, "places that no branch has were not free"),
            (marked, "places that a branch has were free"),
            (counts, "counts of places were wrong"),
            (lists, "lists of places that a branch has replaced were wrong"),
            (merges, "records of merges were wrong"),
            (bitmaps, "bitmaps were damaged"),
            (copies, "blocks that the pool has twice were damaged"),
        ];
        let some = told.iter().filter(|(count, _)| **count > 0);
        let some = some.map(|(count, what)| format!("{count} {what}"));
        some.chain(losses.iter().cloned()).collect()
    }

    /// Closes the pool, so that the next opening has nothing to recover, and gives back the space
    /// of deleted branches. The image can be opened again after the return, if no clone is left.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if a branch is open, or for an error of the device.
    pub fn close(self) -> Result<(), PoolError> {
        self.shared.close()
    }
}

/// Refuses to take its name from the branch that the image is opened as.
fn no_main(name: &str) -> Result<(), vfscale_pool::Error> {
    match name {
        MAIN => Err(vfscale_pool::Error::Refused {
            name: name.to_owned(),
            why: "it is the volume itself: roll it back, or have it adopt another branch",
        }),
        _ => Ok(()),
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("name", &self.shared.name()).finish_non_exhaustive()
    }
}
