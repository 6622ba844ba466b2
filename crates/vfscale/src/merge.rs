//! Merging a branch into another one.
//!
//! # Purpose
//!
//! Two branches that have changed since they were one become one again: [`Pool::merge`] makes the
//! changes of FROM in INTO, all of them by one commit.
//!
//! # How
//!
//! Both are compared with the last state that they had in common ([`delta`]). Objects are inodes,
//! and names are edges between them, so a file that was moved is known as the one that it was. What
//! only one side has changed is taken; where both have, a rule decides ([`rules`], [`objects`],
//! [`text`]). The outcome is a list of changes of INTO, which are made in a temporary fork of it
//! ([`apply`]). INTO adopts that in the end; until then an error or a crash changes nothing.
//!
//! # Invariants
//!
//! * The result depends on the three trees, not on the order in which they are read.
//! * Nothing that a side has changed is dropped without a conflict that names it.

use vfscale_pool::Error;
use vfscale_vfs::Errno;

use crate::error::pool::PoolError;
use crate::ingest::free_name;
use crate::pool::{ForkOptions, Pool};
use delta::{Delta, Id};
pub use report::{Conflict, ConflictKind, MergeOptions, Merged, Strategy};

mod apply;
mod delta;
mod objects;
mod report;
mod rules;
mod text;

/// How often a merge begins anew because INTO was changed meanwhile.
const TRIES: usize = 8;

impl Pool {
    /// Makes in branch `into` what branch `from` has changed since both had the same contents, by
    /// one commit: after a power cut it is there whole, or not at all. SEMANTICS.md has the rules.
    /// `from` stays as it is; it may be open, and all changes whose calls have returned are taken.
    /// `into` has to be closed, unless this is a dry run. Whoever opens it meanwhile loses nothing:
    /// the merge begins anew then. The history does not record a merge, so merging once more
    /// compares with the same state: it changes nothing, but for a file that one side has moved and
    /// the other one has replaced by a new one, which it may put beside.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// pool.fork("main", "a")?;
    /// pool.fork("main", "b")?;
    /// for name in ["a", "b"] {
    ///     let volume = pool.open(name)?;
    ///     volume.task().write(format!("/{name}"), "work")?;
    ///     volume.close()?;
    /// }
    /// for name in ["a", "b"] {
    ///     let merged = pool.merge(name, "main", vfscale::MergeOptions::new())?;
    ///     assert_eq!((merged.added, merged.conflicts.len()), (1, 0));
    /// }
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Blocks for the I/O: reads both trees, and writes what `from` has changed. The memory depends
    /// on the changes and on the largest directory.
    ///
    /// # Errors
    /// [`PoolError::MergeInUse`]; [`PoolError::Branches`] if there is no such branch, `into` can
    /// only be read, both are one or have no state in common, or the pool is full;
    /// [`PoolError::HasChanged`] if `into` does not stop to change; [`PoolError::Merge`],
    /// [`PoolError::Damage`], [`PoolError::Sync`]. `into` is as before then.
    pub fn merge(
        &self,
        from: &str,
        into: &str,
        options: MergeOptions,
    ) -> Result<Merged, PoolError> {
        if options.dry_run {
            return self.merge_once(into, (from, into), options);
        }
        let mut tries = 1;
        loop {
            self.check_closed(into)?;
            let fork = free_name(self, "merge");
            match self.fork_with(into, &fork, ForkOptions::new().temporary(true)) {
                // Another merge has been faster.
                Err(error) if error.errno() == Errno::EXIST => continue,
                forked => forked?,
            }
            let merged = self.merge_once(&fork, (from, into), options);
            if !merged.as_ref().is_ok_and(|merged| merged.is_done) {
                // An error of this says no more than the first one; the next opening deletes it.
                let _ = self.delete(&fork);
            }
            match merged {
                Err(PoolError::HasChanged { .. }) if tries < TRIES => tries += 1,
                Err(error) => return Err(self.named(error, into)),
                merged => return merged,
            }
        }
    }

    /// Names the branch that was opened during a merge.
    fn named(&self, error: PoolError, into: &str) -> PoolError {
        match error {
            PoolError::Branches { error: Error::InUse(name), .. } if name == into => {
                PoolError::MergeInUse { name: format!("{}:{into}", self.shared.name()) }
            }
            error => error,
        }
    }

    /// Checks that a branch can take other contents.
    fn check_closed(&self, name: &str) -> Result<(), PoolError> {
        if self.shared.is_read_only(name) {
            let why = "it can only be read; merge into a fork of it";
            return self.shared.call(Err(Error::Refused { name: name.to_owned(), why }));
        }
        let open = self.shared.open_branch(name).map_err(|error| self.named(error, name))?;
        open.close()
    }

    /// Merges in a fork of INTO, which INTO adopts then; or plans that in INTO itself.
    fn merge_once(
        &self,
        fork: &str,
        (from, into): (&str, &str),
        options: MergeOptions,
    ) -> Result<Merged, PoolError> {
        let base = self.shared.common(into, from)?;
        let (theirs, ours) = (self.shared.snapshot(from)?, self.shared.snapshot(fork)?);
        let mut ours = Delta::new(base.side(), ours.side(), Id::Into)?;
        let mut theirs = Delta::new(base.side(), theirs.side(), Id::From)?;
        ours.take_versions()?;
        theirs.take_versions()?;
        let beside = |name: &[u8]| (1..4).map(|it| rules::beside(name, from, it)).collect();
        ours.take_restored(&theirs, beside)?;
        theirs.take_restored(&ours, |_| Vec::new())?;
        theirs.take_twins(&ours, |name| rules::beside(name, from, 1))?;
        let (plan, mut merged) = rules::decide(&ours, &theirs, options.strategy, (from, into))?;
        let is_refused = options.strategy == Strategy::Fail && !merged.conflicts.is_empty();
        if is_refused {
            merged = Merged { conflicts: merged.conflicts, ..Merged::default() };
            merged.conflicts.iter_mut().for_each(|conflict| conflict.beside = None);
        }
        if is_refused || options.dry_run || plan.is_empty() {
            return Ok(merged);
        }
        let volume = self.open(fork).map_err(|error| apply::failed(&error.into()))?;
        let task = volume.task();
        let applied = apply::apply(&task, &plan, (&ours, &theirs));
        drop(task);
        let closed = volume.close().map_err(|error| apply::failed(&error.into()));
        applied?;
        closed?;
        self.adopt(into, fork)?;
        merged.is_done = true;
        Ok(merged)
    }
}
