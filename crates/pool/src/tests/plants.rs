//! Planted faults, which the sweeps have to find: devices that lie, memory that is changed between
//! two calls, and openings that are not shown everything.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use vfscale_block::Device;
use vfscale_testkit::hooked::Hook;
use vfscale_testkit::{Call, HookedDevice};
use zerocopy::FromBytes;

use crate::branch::tests::{forget_deads, forget_fragile, keep_own};
use crate::disk::format::{
    BITMAP, BitmapBlock, LOG, LogBlock, LogMap, PLACE_BYTES, SUPER, ZONE_PLACES, checksum_of, seal,
};
use crate::disk::record::LogArea;
use crate::state::commit::{Change, Shared, State};
use crate::state::head::Purpose;
use crate::state::read_spares;
use crate::tests::crash::Run;
use crate::{Error, Pool};

const UNIT: u64 = PLACE_BYTES as u64;

/// Numbers that a fault has seen.
pub(crate) type Known = HashMap<u64, u64>;

/// A fault of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plant {
    /// A record claims that its contents were flushed before.
    RecordBeforeContent,
    /// Places of the last record are overwritten in place.
    OverwriteUnconfirmed,
    /// Places that a commit gives up are written by others before it is durable.
    EarlyReuse,
    /// A superblock is written without flushing what it leads to.
    RootBeforeContent,
    /// A superblock is written before what it leads to is flushed, too.
    SuperblockEarly,
    /// A fork does not make later writes of the parent go to other places.
    ForkWithoutDepth,
    /// Places that a node replaces and its parent has are not put on its dead list.
    DeadForgotten,
    /// The first record of a log is not there when the commit is that names the log.
    FirstRecordLate,
    /// The first record of a spare has no checksums of contents that were not flushed.
    FirstUnchecked,
    /// A log becomes a spare with the sequence that it had.
    SpareSequenceAgain,
    /// A superblock goes on naming a spare that a branch has taken.
    SpareKept,
    /// A spare that a branch takes stays on the list.
    SpareTwice,
    /// An opening does not look for the records of spares.
    SpareNotAdopted,
    /// An opening looks for the records of spares when it has replayed the logs of branches.
    SpareAdoptedLate,
}

impl Plant {
    pub(crate) fn plant_in(self, run: &mut Run) {
        match self {
            Self::RecordBeforeContent => {
                run.reopen(|device| unchecked(flushes_late(device, LOG, false), false));
            }
            Self::EarlyReuse => run.reopen(reuses_early),
            Self::RootBeforeContent => run.reopen(|device| flushes_late(device, SUPER, false)),
            Self::SuperblockEarly => run.reopen(|device| flushes_late(device, SUPER, true)),
            Self::FirstRecordLate => run.reopen(first_record_late),
            Self::FirstUnchecked => run.reopen(|device| unchecked(device, true)),
            Self::OverwriteUnconfirmed => run.tamper = forget_fragile,
            Self::DeadForgotten => run.tamper = forget_deads,
            Self::ForkWithoutDepth => run.tamper = keep_own,
            Self::SpareSequenceAgain => run.tamper = give_former_sequences,
            Self::SpareKept => run.tamper = name_taken_spares,
            Self::SpareTwice => run.tamper = put_taken_spares_back,
            Self::SpareNotAdopted => {
                run.opening = |device, first| Pool::recovered(open_without_logs(device, first)?)
            }
            Self::SpareAdoptedLate => run.opening = adopt_late,
        }
    }
}

const RELAXED: Ordering = Ordering::Relaxed;

type Below = Arc<dyn Device>;

fn lying<S: Debug + Send + Sync + 'static>(device: Below, state: S, hook: Hook<Below, S>) -> Below {
    Arc::new(HookedDevice::new(device, state, hook))
}

/// Puts a flush off until the next call, and leaves it out if that writes a block of the kind
/// `magic`. If `is_early`, it comes then between two writes of this block.
fn flushes_late(device: Below, magic: [u8; 4], is_early: bool) -> Below {
    let state = (magic, is_early, Mutex::new(false));
    lying(device, state, |device, (magic, is_early, owed), call| {
        let was_owed = std::mem::replace(&mut *owed.lock().unwrap(), matches!(call, Call::Flush));
        match call {
            Call::Write(at, bytes) if was_owed && bytes.starts_with(magic) => {
                if *is_early {
                    device.write_at(at, bytes)?;
                    device.flush()?;
                }
                device.write_at(at, bytes)
            }
            call => {
                if was_owed {
                    device.flush()?;
                }
                if matches!(call, Call::Flush) { Ok(()) } else { call.pass(device) }
            }
        }
    })
}

/// Stores records without the checksums of contents: all, or only the first one of each log.
fn unchecked(device: Below, is_first: bool) -> Below {
    // The checksums of the records that were written, and of those that were stored.
    let sums = Mutex::new(HashMap::<u32, u32>::new());
    lying(device, (is_first, sums), |device, (is_first, sums), call| match call {
        Call::Write(at, bytes) if bytes.starts_with(&LOG) => {
            let mut block = LogBlock::read_from_bytes(bytes).unwrap();
            let (told, extra) = (block.header.checksum.get(), block.header.extra.get());
            let mut sums = sums.lock().unwrap();
            let previous = sums.get(&(extra as u32)).copied().unwrap_or(extra as u32);
            block.header.extra = (extra >> 32 << 32 | u64::from(previous)).into();
            if !is_first || block.header.number.get() == 0 {
                block.maps.iter_mut().for_each(|map| map.kind = LogMap::FLUSHED.into());
            }
            let stored = seal(&block);
            sums.insert(told, checksum_of(&stored));
            device.write_at(at, &stored[..])
        }
        call => call.pass(device),
    })
}

/// Writes other contents to the places that a bitmap makes free, before it stores the bitmap.
pub(crate) fn reuses_early(device: Below) -> Below {
    lying(device, (), |device, (), call| {
        if let Call::Write(at, bytes) = call
            && bytes.starts_with(&BITMAP)
        {
            let new = BitmapBlock::read_from_bytes(bytes).unwrap();
            // The other bitmap of the zone is before it or behind it.
            let found = [at - UNIT, at, at + UNIT].into_iter().filter_map(|at| {
                let mut bytes = [0; PLACE_BYTES];
                device.read_at(at, &mut bytes).unwrap();
                BitmapBlock::read_from_bytes(&bytes).ok().filter(|old| {
                    old.header.magic == BITMAP && old.header.number == new.header.number
                })
            });
            let old = found.max_by_key(|old| old.header.generation.get());
            let words = old.iter().flat_map(|old| old.words.iter().zip(&new.words).enumerate());
            let freed = words.flat_map(|(index, (old, new))| {
                let gone = old.get() & !new.get();
                (0..64).filter(move |bit| gone >> bit & 1 != 0).map(move |bit| 64 * index + bit)
            });
            let zone = new.header.number.get() * ZONE_PLACES;
            for place in freed {
                device.write_at((zone + place as u64) * UNIT, &[0xee; PLACE_BYTES])?;
            }
        }
        call.pass(device)
    })
}

/// Holds the first record of a log back while a commit names the log.
fn first_record_late(device: Below) -> Below {
    let state = Mutex::new((None::<(u64, Vec<u8>)>, [0; 4]));
    lying(device, state, |device, state, call| {
        let (held, last) = &mut *state.lock().unwrap();
        match call {
            Call::Write(at, bytes) => {
                last.copy_from_slice(&bytes[..4]);
                if !bytes.starts_with(&LOG)
                    || LogBlock::read_from_bytes(bytes).unwrap().header.number.get() != 0
                {
                    return device.write_at(at, bytes);
                }
                *held = Some((at, bytes.to_vec()));
                Ok(())
            }
            Call::Flush => {
                let mut release =
                    || held.take().map_or(Ok(()), |(at, bytes)| device.write_at(at, &bytes));
                match *last {
                    SUPER => device.flush().and_then(|()| release()),
                    // A spare log, which no commit names.
                    LOG => release().and_then(|()| device.flush()),
                    _ => device.flush(),
                }
            }
            call => call.pass(device),
        }
    })
}

/// Returns the logs that branches have taken, and that no commit has begun anew.
fn taken(state: &State) -> Vec<LogArea> {
    state.table.records().filter_map(|record| record.log).filter(LogArea::is_new).collect()
}

fn give_former_sequences(pool: &Pool, known: &mut Known) {
    let mut state = pool.shared.state.lock();
    let mut is_any = false;
    for area in &mut state.spares {
        let former = known.get(&area.place).copied().unwrap_or(area.sequence);
        is_any |= std::mem::replace(&mut area.sequence, former) != former;
    }
    let logs = state.table.records().filter_map(|record| record.log);
    known.extend(logs.map(|area| (area.place, area.sequence)));
    if is_any {
        pool.shared.commit(&mut state, Change::default(), || ()).unwrap();
    }
}

fn name_taken_spares(pool: &Pool, _: &mut Known) {
    let mut state = pool.shared.state.lock();
    let (spares, taken) = (state.spares.clone(), taken(&state));
    if !taken.is_empty() {
        state.spares.extend(taken);
        pool.shared.commit(&mut state, Change::default(), || ()).unwrap();
        state.spares = spares;
    }
}

fn put_taken_spares_back(pool: &Pool, _: &mut Known) {
    let mut state = pool.shared.state.lock();
    for area in taken(&state) {
        if !state.spares.contains(&area) {
            state.spares.push(area);
        }
    }
    pool.shared.count_spares(&state);
}

/// Reads the state of a pool from a device that shows no records of logs meanwhile.
fn open_without_logs(device: Below, first: u64) -> Result<Arc<Shared>, Error> {
    let is_hiding = Arc::new(AtomicBool::new(true));
    let device = lying(device, is_hiding.clone(), |device, is_hiding, call| match call {
        Call::Read(at, buf) => {
            device.read_at(at, buf)?;
            if is_hiding.load(RELAXED) && buf.starts_with(&LOG) {
                buf.fill(0);
            }
            Ok(())
        }
        call => call.pass(device),
    });
    let shared = Shared::open(device, first, 1)?;
    is_hiding.store(false, RELAXED);
    Ok(Arc::new(shared))
}

fn adopt_late(device: Below, first: u64) -> Result<Pool, Error> {
    let shared = open_without_logs(device, first)?;
    drop(Pool::recovered(shared.clone())?);
    let mut state = shared.state.lock();
    let spares = std::mem::take(&mut state.spares);
    let adopted = read_spares::adopt(&shared.disk, &mut state.table, spares, Purpose::Use)?;
    state.spares = adopted.spares;
    drop(state);
    Pool::recovered(shared)
}
