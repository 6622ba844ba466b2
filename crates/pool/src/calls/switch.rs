//! Branches that get other contents while they are open.
//!
//! A rollback or an adoption gives the name of a branch to another node of the history. Whoever has
//! the branch open keeps it open: the handle until then goes on with the former node, of which
//! nothing is written any more, and a new one has what the branch has from then on. Both happen
//! under the lock of the open branches, so nobody else opens or deletes the branch in between.

use std::sync::Arc;

use crate::branch::Inner;
use crate::branch::registry::{Branches, close, open_in};
use crate::{Branch, Error, Pool};

/// A branch that has got other contents.
#[derive(Debug)]
pub struct Switched {
    /// The branch as it is now.
    pub branch: Arc<Branch>,
    /// The state that it goes on from, which does not change.
    pub state: Arc<Branch>,
}

impl Pool {
    /// Rolls back the branch that `held` has open, to `to` as [`rollback_to`](Self::rollback_to)
    /// does, or as [`rollback`](Self::rollback). Nobody writes to `held` during the call; if that
    /// succeeds, its user [releases](Branch::release) it. Also returns the name of the branch that
    /// has what `held` had.
    ///
    /// Blocks for the I/O: four flushes.
    ///
    /// # Errors
    /// Errors of [`rollback_to`](Self::rollback_to): then nothing was changed, and `held` goes on.
    pub fn roll_back_held(
        &self,
        held: &Branch,
        to: Option<&str>,
    ) -> Result<(Option<String>, Switched), Error> {
        let rolled = self.shared.with_room(|| self.roll_back(held.opened_as(), to, Some(held)))?;
        let (kept, switched) = rolled;
        Ok((kept, switched.ok_or(Error::Closed)?))
    }

    /// Opens what a branch has from now on that somebody has open, and the frozen node `state`.
    pub(crate) fn switched(
        &self,
        branches: &mut Branches<'_>,
        name: &str,
        state: u64,
    ) -> Result<Switched, Error> {
        branches.remove(name);
        let inner = open_in(branches, name, || self.open_named(name))?;
        let branch = Arc::new(Branch::new(inner, &self.open, name));
        Ok(Switched { branch, state: self.open_node(branches, state)? })
    }
}

/// Closes a branch that is to have other contents. If `held` has it open, it stays open, with all
/// that was written durable.
///
/// # Errors
/// [`Error::InUse`] if another handle has it open, [`Error::Closed`], and errors of a checkpoint.
pub(crate) fn close_but(
    branches: &mut Branches<'_>,
    name: &str,
    held: Option<&Branch>,
) -> Result<(), Error> {
    let Some(held) = held else { return close(branches, name, 0) };
    let inner: &Arc<Inner> = held.inner()?;
    match branches.get(name) {
        Some(open) if Arc::ptr_eq(open, inner) => inner.close(),
        _ => Err(Error::InUse(name.into())),
    }
}
