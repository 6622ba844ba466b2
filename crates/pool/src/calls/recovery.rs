//! Recovery: what branches have flushed since the last commit of a pool that was not closed.
//!
//! The logs of all branches are read before any place is handed out. A log that is broken
//! ([`crate::disk::delta_log`]), or leads to places that are in use already, damages its branch:
//! that can't be used, keeps its log, and its places are not handed out. If these are not known,
//! any place may be one of them, so the pool can only be read. A branch whose map can't be read is
//! damaged as well. A bitmap that the logs need is made of the maps if it can't be read.

use std::sync::Arc;

use crate::branch::Inner;
use crate::calls::check::check;
use crate::disk::delta_log::{self, Broken, Replay};
use crate::disk::record::{Record, TEMPORARY};
use crate::state::commit::{Change, Shared, State};
use crate::state::head::Purpose;
use crate::{Error, Pool};

impl Pool {
    /// Makes the pool of a state that nobody has used yet.
    pub(crate) fn recovered(shared: Arc<Shared>) -> Result<Self, Error> {
        recover(&shared)?;
        let pool = Self { shared, open: Arc::default() };
        pool.reap_for_room();
        if pool.shared.purpose != Purpose::Repair {
            pool.delete_temporary()?;
        }
        Ok(pool)
    }

    /// Deletes the branches that were to live as long as the pool was open, but damaged ones.
    fn delete_temporary(&self) -> Result<(), Error> {
        let names: Vec<String> = {
            let table = &self.shared.state.lock().table;
            let temporary = table.records().filter(|record| record.has(TEMPORARY));
            let whole = temporary.filter(|record| table.named(&record.name).is_ok());
            whole.map(|record| record.name.clone()).collect()
        };
        names.iter().try_for_each(|name| self.delete(name))
    }
}

/// The changes that the log of a branch has.
pub(crate) struct Logged {
    record: Record,
    own_above: u32,
    /// The blocks and their new places, oldest first.
    pub(crate) maps: Vec<(u64, u64)>,
    broken: Option<Broken>,
}

/// Reads the logs that have any record. Changes nothing.
pub(crate) fn read_logs(shared: &Shared, state: &State) -> Vec<Logged> {
    let open = |record: &&Record| record.log.is_some() && !record.is_frozen();
    let live = state.table.records().filter(open).filter(|record| !record.is_zombie());
    let read = live.map(|record| {
        let Replay { maps, is_used, broken } = delta_log::read(&shared.disk, record);
        let (record, own_above) = (record.clone(), state.table.own_above(record));
        is_used.then_some(Logged { record, own_above, maps, broken })
    });
    read.flatten().collect()
}

/// Makes checkpoints of what the logs have. A branch whose log is broken, or whose map can't be
/// read, stays as it is.
fn recover(shared: &Arc<Shared>) -> Result<(), Error> {
    let logs = read_logs(shared, &shared.state.lock());
    let mut whole = Vec::new();
    // No place may be handed out before all that are in use are known.
    for mut log in logs {
        let id = log.record.id;
        let mut known = log.maps.iter().map(|(_, place)| *place).collect::<Vec<_>>();
        match log.broken.take() {
            None => whole.push(log),
            Some(Broken { error, .. }) if shared.purpose == Purpose::Repair => {
                let loss = format!("branch {:?}: {}", log.record.name, error.loss());
                shared.state.lock().losses.push(loss);
                whole.push(log);
            }
            // Any free place may be one of its.
            Some(Broken { error, places: None }) if shared.purpose == Purpose::Use => {
                return Err(error);
            }
            Some(Broken { error, places }) => {
                known.extend(places.unwrap_or_default());
                shared.state.lock().table.damage(id, error);
            }
        }
        for place in known {
            let claimed = shared.space.claim(place).or_else(|error| {
                rebuild_bitmaps(shared, error)?;
                shared.space.claim(place)
            });
            if !claimed? {
                let what = "a log refers to a place that is in use already";
                shared.state.lock().table.damage(id, Error::Damage { place, what });
            } else if !shared.space.budget.take(1) {
                shared.state.lock().owe(1);
            }
        }
    }
    for Logged { record, own_above, maps, .. } in whole {
        if shared.state.lock().table.damaged().contains_key(&record.id) {
            continue;
        }
        let opened = Inner::open(shared, &record, own_above);
        if let Err(error) = opened.and_then(|inner| inner.replay(&maps)) {
            shared.alive()?;
            if error == Error::Full {
                return Err(error);
            }
            shared.state.lock().table.damage(record.id, error);
        }
    }
    end_logs(shared)
}

/// Makes the bitmaps anew, in memory, that are damaged or can't be read: the logs need them. The
/// next commits write them to their other places.
///
/// # Errors
/// `cause` if a map can't be read either.
fn rebuild_bitmaps(shared: &Shared, cause: Error) -> Result<(), Error> {
    let found = check(shared, &shared.state.lock())?.1;
    if found.is_partial {
        return Err(cause);
    }
    found.zones.iter().for_each(|(zone, used)| shared.space.rebuild(*zone, used));
    Ok(())
}

/// Gives the logs up of branches that were open at a crash and had no record. Makes durable what
/// the opening has changed.
fn end_logs(shared: &Shared) -> Result<(), Error> {
    let mut state = shared.state.lock();
    let damaged = state.table.damaged();
    let with_log = state.table.records().filter(|record| record.log.is_some());
    let with_log = with_log.filter(|record| !damaged.contains_key(&record.id));
    let ids: Vec<u64> = with_log.map(|record| record.id).collect();
    if ids.is_empty() && !state.must_commit {
        return Ok(());
    }
    let mut change = Change::default();
    for id in ids {
        let mut log = None;
        state.table.update(id, |record| log = record.log.take());
        shared.end_log(&mut state, log, &mut change);
    }
    shared.commit(&mut state, change, || ())
}
