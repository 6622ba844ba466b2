//! Repairing a pool: its bitmaps, counts and dead lists are made to say what its maps say.
//!
//! Branches read by their maps, so these are right by definition. A place that is marked as used,
//! and that no map, log or list refers to, is lost: it becomes free. A place that something refers
//! to, and that is marked as free, would be handed out to another one: it is marked. A place that
//! two branches have by mistake can't be mended, since nobody knows whose content it has; the check
//! names the younger branch.
//!
//! A dead list is what the map of the parent has and that of the node has not, so one that says
//! something else, or can't be read, is written anew. The blocks of a list that can't be read are
//! lost, and become free as such. A block that something else uses as well stays marked: whichever
//! of both goes first, the other one has it still.
//!
//! A bitmap that can't be read is made of the maps. A part of a map that can't be read may have had
//! any place that nothing else refers to: then none is freed, and no bitmap is made.
//!
//! This happens before the logs of branches are replayed, because that hands places out. One commit
//! makes it durable: a crash leaves the pool as it was, or repaired. Blocks that were flushed since
//! the last commit are in places that only a log refers to, and that are marked as free. So the
//! repair claims them before it takes any: it would write its own blocks there, and undo the flush.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_sync::cpu;

use crate::calls::check::{Found, WrongList, check};
use crate::calls::recovery::read_logs;
use crate::state::commit::{Change, Shared, State};
use crate::state::dead_list::{self, DeadList};
use crate::state::head::Purpose;
use crate::{Error, Pool};

/// The result of [`Pool::open_repaired`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// How many places are free again that nothing referred to.
    pub freed: u64,
    /// How many places are marked as used that something refers to.
    pub marked: u64,
    /// How many counts were wrong.
    pub counts: u64,
    /// How many lists of what a branch does not share with its parent any more were wrong or
    /// damaged.
    pub lists: u64,
    /// How many records of merges were wrong, and are dropped.
    pub merges: u64,
    /// How many bitmaps were damaged or could not be read.
    pub bitmaps: u64,
    /// How many blocks that are there twice were damaged, and written again.
    pub copies: u64,
    /// The losses, in words: blocks that could not be read and were given up.
    pub losses: Vec<String>,
}

impl Repaired {
    /// Returns whether there was something to repair.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

impl Pool {
    /// Opens a pool as [`open_behind`](Self::open_behind) does, and before that makes its bitmaps,
    /// counts and dead lists agree with what its branches refer to. [`check`](Self::check) shows
    /// what is left then.
    ///
    /// Blocks for the I/O: reads all maps, and two flushes if there is something to repair.
    ///
    /// # Errors
    /// Errors of [`open_behind`](Self::open_behind) and of [`check`](Self::check).
    pub fn open_repaired(device: Arc<dyn Device>, first: u64) -> Result<(Self, Repaired), Error> {
        let slots = cpu::possible() as usize;
        Self::repaired(Shared::open_for(device, first, slots, Purpose::Repair)?)
    }

    /// Repairs the state of a pool that nobody has used yet, and then makes the pool of it.
    pub(crate) fn repaired(shared: Shared) -> Result<(Self, Repaired), Error> {
        let mut repaired = repair(&shared)?;
        let pool = Self::recovered(Arc::new(shared))?;
        let mut state = pool.shared.state.lock();
        repaired.copies += state.copies;
        repaired.losses = std::mem::take(&mut state.losses);
        drop(state);
        Ok((pool, repaired))
    }
}

/// Repairs the last commit of a pool that nobody uses.
fn repair(shared: &Shared) -> Result<Repaired, Error> {
    let mut state = shared.state.lock();
    let (_, found) = check(shared, &state)?;
    let Found { lost, unmarked, counts, used, lists, table, disputed, is_partial, .. } = found;
    let merges = found.merges;
    // A part that can't be read has places that nothing else tells.
    let zones = if is_partial { Vec::new() } else { found.zones };
    let used = if is_partial { state.used } else { used };
    let is_used_wrong = used != state.used;
    let (freed, marked) = (lost.len() as u64, unmarked.len() as u64);
    let counts_wrong = counts.len() as u64 + u64::from(is_used_wrong);
    let repaired = Repaired {
        freed,
        marked,
        counts: counts_wrong,
        lists: lists.len() as u64,
        merges: merges.len() as u64,
        copies: table.len() as u64,
        bitmaps: zones.len() as u64,
        ..Repaired::default()
    };
    if !repaired.is_any() {
        return Ok(repaired);
    }
    table.into_iter().for_each(|block| state.table.renew(block));
    for id in merges {
        state.table.update(id, |record| record.merged = 0);
    }
    for (id, own) in counts {
        state.table.update(id, |record| record.own = own);
    }
    zones.iter().for_each(|(zone, used)| shared.space.rebuild(*zone, used));
    // The commit itself must not get these, nor what only logs refer to.
    for place in &unmarked {
        shared.space.claim(*place)?;
    }
    let logged = claim_logged(shared, &state)?;
    // The commit counts the marked places as new, and the lost ones as given up.
    let told = std::mem::replace(&mut state.used, (used + freed).saturating_sub(marked));
    pay(shared, &mut state, told, used + freed);
    let zones = zones.into_iter().map(|(zone, _)| zone).collect();
    let mut change = Change { sets: unmarked, clears: lost, zones, ..Change::default() };
    for WrongList { node, entries, mut blocks } in lists {
        let empty = DeadList::default();
        let list = dead_list::append(shared, &mut state, &mut change, node, empty, entries)?;
        blocks.retain(|place| !disputed.contains(place));
        change.clears.extend(blocks);
        state.table.update(node, |record| list.store(record));
    }
    shared.commit(&mut state, change, || ())?;
    shared.space.free(&logged);
    Ok(repaired)
}

/// Claims the places that only the logs of branches refer to: what was flushed since the last
/// commit. Returns them; whoever reads the logs claims them again.
fn claim_logged(shared: &Shared, state: &State) -> Result<Vec<u64>, Error> {
    let mut claimed = Vec::new();
    for log in read_logs(shared, state) {
        for (_, place) in log.maps {
            if shared.space.claim(place)? {
                claimed.push(place);
            }
        }
    }
    Ok(claimed)
}

/// Has the budget of a pool lack `wanted` places instead of `told`.
fn pay(shared: &Shared, state: &mut State, told: u64, wanted: u64) {
    let budget = &shared.space.budget;
    if let Some(less) = told.checked_sub(wanted) {
        shared.space.give(less);
        return;
    }
    let more = wanted - told;
    let some = more.min(budget.available());
    let paid = if budget.take(some) { some } else { 0 };
    state.owe(more - paid);
}
