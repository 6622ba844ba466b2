//! Merging a branch into another one.
//!
//! # Purpose
//!
//! Two branches that have changed since they were one become one again: [`Pool::merge`] makes the
//! changes of FROM in INTO, all of them by one commit.
//!
//! # How
//!
//! Both are compared with the last state that they had in common, which may be one of FROM that was
//! merged before ([`delta`]). Objects are inodes,
//! and names are edges between them, so a file that was moved is known as the one that it was. What
//! only one side has changed is taken; where both have, a rule decides ([`rules`], [`objects`],
//! [`text`]). The outcome is a list of changes of INTO, which are made in a temporary fork of it
//! ([`apply`]). INTO adopts that in the end, or FROM gets it, which is a rebase; until then an
//! error or a crash changes nothing.
//!
//! # Invariants
//!
//! * The result depends on the three trees, not on the order in which they are read.
//! * Nothing that a side has changed is dropped without a conflict that names it.

use vfscale_pool::Error;
use vfscale_vfs::Errno;

use crate::diff::edges::Edges;
use crate::diff::side::Side;
use crate::error::pool::PoolError;
use crate::ingest::free_name;
use crate::pool::{ForkOptions, Pool};
use delta::{Delta, Id};
pub use report::{Conflict, ConflictKind, MergeOptions, Merged, Strategy};
use rules::Plan;

mod apply;
mod delta;
mod objects;
mod report;
mod rules;
mod text;

/// How often a merge begins anew because INTO was changed meanwhile.
const TRIES: usize = 8;

/// The branch that gets what was merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// INTO.
    Merge,
    /// FROM.
    Rebase,
}

/// A look at what was decided: at the plan, and at the changes of INTO and of FROM.
type Decided<'d> = &'d dyn Fn(&mut Plan, (&Delta<'_>, &Delta<'_>));

impl Pool {
    /// Makes in branch `into` what branch `from` has changed since both had the same contents, by
    /// one commit: after a power cut it is there whole, or not at all. SEMANTICS.md has the rules.
    /// `from` stays as it is; it may be open, and all changes whose calls have returned are taken.
    /// `into` has to be closed, or open as a [`LiveVolume`](crate::volume::LiveVolume), unless this
    /// is a dry run. Whoever changes it meanwhile loses nothing: the merge begins anew then. The
    /// history notes the merge, so the next one compares with what `from` has now: merging once
    /// more changes nothing.
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
    /// Blocks for the I/O: reads what both have changed, as [`diff`](Self::diff) does, and writes
    /// what `from` has changed. The memory depends on the changes and on the largest directory.
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
        self.merge_with((from, into), options, &|_, _| ())
    }

    /// Puts branch `branch` onto what branch `onto` has now: it gets the contents of that, and in
    /// them all that it has changed itself since both had the same contents, by one commit: after a
    /// power cut all of it is there, or nothing. Its changes are merged as [`merge`](Self::merge)
    /// does, where `onto` takes the part of INTO, and `branch` that of FROM. `onto` stays as it is,
    /// and may be open; `branch` has to be closed, unless this is a dry run.
    ///
    /// Another branch, [`Merged::kept`], takes over the former contents: `branch@1`, or with the
    /// number after the greatest one in use. The history tells the rebase as a merge of that.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// pool.fork("main", "trial")?;
    /// for name in ["main", "trial"] {
    ///     let volume = pool.open(name)?;
    ///     volume.task().write(format!("/{name}"), "work")?;
    ///     volume.close()?;
    /// }
    /// let rebased = pool.rebase("trial", "main", vfscale::MergeOptions::new())?;
    /// assert_eq!((rebased.added, rebased.kept.as_deref()), (1, Some("trial@1")));
    /// assert_eq!(pool.diff("main", "trial")?.len(), 1);
    /// pool.adopt("main", "trial")?;
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Blocks for the I/O, and takes memory, as a merge does.
    ///
    /// # Errors
    /// Errors of `merge`, about `branch` in place of `into`, which is as before then.
    pub fn rebase(
        &self,
        branch: &str,
        onto: &str,
        options: MergeOptions,
    ) -> Result<Merged, PoolError> {
        self.join(Aim::Rebase, (branch, onto), options, &|_, _| ())
    }

    /// Merges as [`merge`](Self::merge) does, and calls `decided` between decision and act.
    fn merge_with(
        &self,
        (from, into): (&str, &str),
        options: MergeOptions,
        decided: Decided<'_>,
    ) -> Result<Merged, PoolError> {
        self.join(Aim::Merge, (from, into), options, decided)
    }

    /// Merges `from` into a fork of `into`, which one of them takes over.
    fn join(
        &self,
        aim: Aim,
        (from, into): (&str, &str),
        options: MergeOptions,
        decided: Decided<'_>,
    ) -> Result<Merged, PoolError> {
        if options.dry_run {
            return self.merge_once(into, aim, (from, into), options, decided);
        }
        let changed = if aim == Aim::Merge { into } else { from };
        let mut tries = 1;
        loop {
            self.check_closed(changed, aim == Aim::Merge)?;
            let fork = free_name(self, "merge");
            match self.fork_with(into, &fork, ForkOptions::new().temporary(true)) {
                // Another merge has been faster.
                Err(error) if error.errno() == Errno::EXIST => continue,
                forked => forked?,
            }
            let merged = self.merge_once(&fork, aim, (from, into), options, decided);
            if !merged.as_ref().is_ok_and(|merged| merged.is_done) {
                // An error of this says no more than the first one; the next opening deletes it.
                let _ = self.delete(&fork);
            }
            match merged {
                Err(
                    PoolError::HasChanged { .. }
                    | PoolError::Branches { error: Error::Changed(_), .. },
                ) if tries < TRIES => tries += 1,
                Err(error) => return Err(self.named(error, changed)),
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

    /// Checks that a branch can take other contents: it is closed, or its user goes on with them,
    /// if it `may_switch`.
    pub(crate) fn check_closed(&self, name: &str, may_switch: bool) -> Result<(), PoolError> {
        if self.shared.is_read_only(name) {
            let why = "it can only be read; use a fork of it";
            return self.shared.call(Err(Error::Refused { name: name.to_owned(), why }));
        }
        if may_switch && self.shared.switchable(name).is_some() {
            return Ok(());
        }
        let open = self.shared.open_branch(name).map_err(|error| self.named(error, name))?;
        open.close()
    }

    /// Merges in a fork of INTO, which one of both takes over then; or plans that in INTO itself.
    fn merge_once(
        &self,
        fork: &str,
        aim: Aim,
        (from, into): (&str, &str),
        options: MergeOptions,
        decided: Decided<'_>,
    ) -> Result<Merged, PoolError> {
        let base = self.shared.common(into, from)?;
        let (other, own) = (self.shared.snapshot(from)?, self.shared.snapshot(fork)?);
        let [into_edges, from_edges] = edges(base.side(), [own.side(), other.side()])?;
        let mut ours = Delta::new(base.side(), own.side(), Id::Into, into_edges);
        let mut theirs = Delta::new(base.side(), other.side(), Id::From, from_edges);
        ours.take_versions()?;
        theirs.take_versions()?;
        let beside = |name: &[u8]| (1..4).map(|it| rules::beside(name, from, it)).collect();
        ours.take_restored(&theirs, beside)?;
        theirs.take_restored(&ours, |_| Vec::new())?;
        theirs.take_twins(&ours, |name| rules::beside(name, from, 1))?;
        let decision = rules::decide(&ours, &theirs, options.strategy, (from, into))?;
        let (mut plan, mut merged) = decision;
        decided(&mut plan, (&ours, &theirs));
        let is_refused = options.strategy == Strategy::Fail && !merged.conflicts.is_empty();
        if is_refused {
            merged = Merged { conflicts: merged.conflicts, ..Merged::default() };
            merged.conflicts.iter_mut().for_each(|conflict| conflict.beside = None);
        }
        // A state that was merged is noted already, and a branch may come from this state already.
        let [base_state, from_state, into_state] =
            [&base, &other, &own].map(|it| it.side().branch().state());
        let is_told = match aim {
            Aim::Merge => plan.is_empty() && base_state == from_state,
            Aim::Rebase => base_state == into_state,
        };
        if aim == Aim::Rebase && is_told {
            return Ok(Merged::default());
        }
        if is_refused || options.dry_run || is_told {
            return Ok(merged);
        }
        if !plan.is_empty() {
            let volume = self.open(fork).map_err(|error| apply::failed(&error.into()))?;
            let task = volume.task();
            let applied = apply::apply(&task, &plan, (&ours, &theirs));
            drop(task);
            let closed = volume.close().map_err(|error| apply::failed(&error.into()));
            applied?;
            closed?;
        }
        match aim {
            Aim::Merge => self.shared.adopt_merged(into, fork, (&other, from))?,
            Aim::Rebase => merged.kept = self.shared.rebase(from, &other, fork)?,
        }
        self.shared.reap_soon();
        merged.is_done = aim == Aim::Rebase || !plan.is_empty();
        Ok(merged)
    }
}

/// Compares both sides with the base. The names of a file that has changed are searched for only if
/// it may be in a conflict: if both have touched it.
fn edges<'s>(base: &'s Side, sides: [&'s Side; 2]) -> Result<[Edges<'s>; 2], PoolError> {
    let [ours, theirs] = sides.map(|side| Edges::of(base, side));
    let (ours, theirs) = (ours?, theirs?);
    let both = &ours.touched() & &theirs.touched();
    Ok([ours.named(&both)?, theirs.named(&both)?])
}

#[cfg(test)]
mod tests;
