//! The argument of the page of this crate as an executable specification: every state of a small
//! pool, every order of steps of two branches, and each state that a power cut can leave.
//!
//! Two branches share a frozen parent. A branch writes blocks, flushes by a record, makes
//! checkpoints by a commit of the pool, and is deleted; each of these is cut into the steps between
//! which the other branch acts. The device has a cache: a cut keeps any part of what was written
//! since the last flush, torn or whole. After a cut, recovery reads the last commit and the records
//! behind it: each block must have the content of its last flush, or a later one, and no two
//! branches may name one place.
//!
//! A log is a list here, and not places of its own: that a record is found or not, and never half,
//! is a matter of its format (`disk/delta_log.rs`), and the crash tests of the crate cut that.
//!
//! Each planted fault breaks one rule of the argument, and is found.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Checker, Model, Property};

/// Branches, and blocks of each.
const BRANCHES: usize = 2;
const BLOCKS: usize = 2;
/// Places: the first ones are the parent's.
const PLACES: usize = BLOCKS + 4;
/// A block of which a cut has left a part.
const TORN: u8 = u8::MAX;

/// A rule that the pool breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// I1: a branch overwrites a place of the parent.
    SharedInPlace,
    /// I2: recovery takes the last record without its checksums.
    Unchecked,
    /// I3: what a record gives up is free when the record is durable.
    FreeAtRecord,
    /// I3: what a commit gives up is free before its superblock is durable.
    FreeBeforeCommit,
    /// I4: the superblock is written in one flush with what it leads to.
    OneFlush,
    /// I5: what a record has the checksum of is overwritten in place.
    FragileInPlace,
    /// I5: a record confirms its predecessor before it is durable.
    ConfirmedEarly,
}

type Map = [usize; BLOCKS];

/// The new places of blocks, with the checksums of their contents.
type Record = BTreeMap<usize, (usize, u8)>;

/// The state that a commit makes durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Super {
    /// `None` for a branch that was deleted.
    maps: [Option<Map>; BRANCHES],
    /// The number of records that the maps have already.
    begins: [usize; BRANCHES],
}

/// A step of a branch that has begun, and has not returned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Idle,
    /// The record is written; the device has to flush it.
    Recorded {
        given_up: BTreeSet<usize>,
    },
    /// The map was captured; the device has to flush the contents.
    Captured {
        is_deletion: bool,
        begins: usize,
        map: Map,
        given_up: BTreeSet<usize>,
    },
    /// The superblock is written; the device has to flush it.
    Committing {
        given_up: BTreeSet<usize>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Branch {
    map: Map,
    step: Step,
    /// Blocks that were written to a new place since the last record or capture.
    open: BTreeSet<usize>,
    /// Blocks of the last record, and of the one before until the last is durable.
    fragile: BTreeSet<usize>,
    confirmed: BTreeSet<usize>,
    /// Places that are free after the next checkpoint.
    given_up: BTreeSet<usize>,
    log: Vec<Record>,
    /// Whether the last record of the log may be lost in a cut.
    is_pending: bool,
    /// The promise, which the pool does not know: contents that a block may have after a cut, and
    /// the number of them that the flush under way was called with.
    may: [Vec<u8>; BLOCKS],
    asked: [usize; BLOCKS],
    is_deleted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    branches: [Branch; BRANCHES],
    /// Durable contents of places, and those that were written since the last flush.
    durable: [u8; PLACES],
    cached: [Vec<u8>; PLACES],
    free: BTreeSet<usize>,
    superblock: Super,
    next_superblock: Option<Super>,
    writes: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Act {
    Write {
        branch: usize,
        block: usize,
    },
    Flush {
        branch: usize,
    },
    Checkpoint {
        branch: usize,
    },
    Delete {
        branch: usize,
    },
    /// The device has flushed, and the step of the branch goes on.
    GoOn {
        branch: usize,
    },
}

struct Pool {
    fault: Fault,
    /// Writes in a run.
    writes: u8,
}

fn is_shared(place: usize) -> bool {
    place < BLOCKS
}

/// A state of the device after a cut.
struct Cut<'s> {
    places: [u8; PLACES],
    superblock: &'s Super,
    /// Whether the pending record of each branch is there.
    has_last: [bool; BRANCHES],
}

impl State {
    /// Makes what is in the cache of the device durable.
    fn flush_device(&mut self) {
        for (place, cached) in self.cached.iter_mut().enumerate() {
            if let Some(last) = cached.pop() {
                self.durable[place] = last;
                cached.clear();
            }
        }
        for branch in &mut self.branches {
            branch.is_pending = false;
        }
        if let Some(next) = self.next_superblock.take() {
            self.superblock = next;
        }
    }

    /// Returns what a place has for a reader.
    fn content(&self, place: usize) -> u8 {
        self.cached[place].last().copied().unwrap_or(self.durable[place])
    }

    /// Whether a commit is under way, which others wait for.
    fn is_committing(&self) -> bool {
        let commits =
            |it: &Branch| matches!(it.step, Step::Captured { .. } | Step::Committing { .. });
        self.branches.iter().any(commits)
    }

    /// Returns whether `judge` returns true of each state that a cut can leave.
    fn cuts(&self, judge: &dyn Fn(&Cut<'_>) -> bool) -> bool {
        let choices: Vec<Vec<u8>> = (0..PLACES)
            .map(|place| {
                let mut some = vec![self.durable[place]];
                some.extend(&self.cached[place]);
                some.extend((!self.cached[place].is_empty()).then_some(TORN));
                some
            })
            .collect();
        let ways: usize = choices.iter().map(Vec::len).product();
        let supers: Vec<_> = [Some(&self.superblock), self.next_superblock.as_ref()].into();
        supers.into_iter().flatten().all(|superblock| {
            (0..ways << BRANCHES).all(|way| {
                let has_last = std::array::from_fn(|branch| way >> branch & 1 == 1);
                let mut way = way >> BRANCHES;
                let places = std::array::from_fn(|place| {
                    let some = &choices[place];
                    let chosen = some[way % some.len()];
                    way /= some.len();
                    chosen
                });
                judge(&Cut { places, superblock, has_last })
            })
        })
    }
}

impl Branch {
    /// Returns the map that recovery makes of a commit and the records that follow.
    fn recovered(&self, fault: Fault, at: usize, mut map: Map, cut: &Cut<'_>) -> Map {
        let there = self.log.len() - usize::from(self.is_pending && !cut.has_last[at]);
        let begins = cut.superblock.begins[at];
        for (number, record) in self.log.iter().enumerate().take(there).skip(begins) {
            for (&block, &(place, checksum)) in record {
                let is_last = number + 1 == there;
                if !is_last || cut.places[place] == checksum || fault == Fault::Unchecked {
                    map[block] = place;
                }
            }
        }
        map
    }
}

impl Pool {
    fn write(&self, state: &mut State, at: usize, block: usize) -> Option<()> {
        state.writes += 1;
        let content = state.writes;
        let branch = &mut state.branches[at];
        let old = branch.map[block];
        let is_fragile = branch.fragile.contains(&block) && self.fault != Fault::FragileInPlace;
        let in_place = match is_shared(old) {
            true => self.fault == Fault::SharedInPlace,
            false => branch.open.contains(&block) || !is_fragile,
        };
        let place = match in_place {
            true => old,
            false => {
                let place = state.free.pop_first()?;
                branch.map[block] = place;
                branch.open.insert(block);
                if !is_shared(old) {
                    branch.given_up.insert(old);
                }
                place
            }
        };
        branch.may[block].push(content);
        state.cached[place].push(content);
        Some(())
    }

    /// Writes the record of what has new places.
    fn begin_flush(&self, state: &mut State, at: usize) {
        let branch = &state.branches[at];
        let record: Record = (branch.open.iter())
            .map(|&block| (block, (branch.map[block], state.content(branch.map[block]))))
            .collect();
        let branch = &mut state.branches[at];
        branch.asked = std::array::from_fn(|block| branch.may[block].len());
        if !record.is_empty() {
            // Blocks of the record before are confirmed when this one is durable.
            branch.confirmed = std::mem::take(&mut branch.fragile);
            branch.fragile = record.keys().copied().collect();
            if self.fault != Fault::ConfirmedEarly {
                branch.fragile.extend(&branch.confirmed);
            }
            branch.log.push(record);
            branch.is_pending = true;
        }
        branch.open.clear();
        let given_up = branch.given_up.clone();
        branch.step = Step::Recorded { given_up };
    }

    fn begin_commit(&self, state: &mut State, at: usize, is_deletion: bool) {
        let branch = &mut state.branches[at];
        branch.asked = std::array::from_fn(|block| branch.may[block].len());
        branch.open.clear();
        let mut given_up = std::mem::take(&mut branch.given_up);
        if is_deletion {
            branch.is_deleted = true;
            given_up.extend(branch.map.iter().filter(|place| !is_shared(**place)));
        }
        let (map, begins) = (branch.map, branch.log.len());
        branch.step = Step::Captured { is_deletion, begins, map, given_up };
        if self.fault == Fault::OneFlush {
            self.write_superblock(state, at);
        }
    }

    fn write_superblock(&self, state: &mut State, at: usize) {
        let step = std::mem::replace(&mut state.branches[at].step, Step::Idle);
        let Step::Captured { is_deletion, begins, map, given_up } = step else {
            unreachable!("a superblock follows a capture")
        };
        let mut next = state.superblock.clone();
        next.maps[at] = (!is_deletion).then_some(map);
        next.begins[at] = begins;
        state.next_superblock = Some(next);
        if self.fault == Fault::FreeBeforeCommit {
            state.free.extend(&given_up);
        }
        state.branches[at].step = Step::Committing { given_up };
    }

    fn go_on(&self, state: &mut State, at: usize) {
        state.flush_device();
        match state.branches[at].step.clone() {
            Step::Idle => unreachable!("nothing goes on"),
            Step::Recorded { given_up } => {
                let branch = &mut state.branches[at];
                let confirmed = std::mem::take(&mut branch.confirmed);
                let last = branch.log.last().filter(|_| !confirmed.is_empty());
                branch.fragile.retain(|block| last.is_none_or(|it| it.contains_key(block)));
                if self.fault == Fault::FreeAtRecord {
                    branch.given_up.retain(|place| !given_up.contains(place));
                    state.free.extend(&given_up);
                }
                self.returned(state, at);
            }
            Step::Captured { .. } => self.write_superblock(state, at),
            Step::Committing { given_up } => {
                state.branches[at].fragile.clear();
                state.free.extend(&given_up);
                self.returned(state, at);
            }
        }
    }

    /// A flush or a checkpoint has returned: what was written before is promised.
    fn returned(&self, state: &mut State, at: usize) {
        let branch = &mut state.branches[at];
        for (may, asked) in branch.may.iter_mut().zip(branch.asked) {
            may.drain(..asked - 1);
        }
        branch.asked = [1; BLOCKS];
        branch.step = Step::Idle;
    }

    /// Returns whether each branch is what it may be after any cut.
    fn keeps(&self, state: &State) -> bool {
        state.cuts(&|cut| {
            let mut owners = BTreeMap::new();
            state.branches.iter().enumerate().all(|(at, branch)| {
                let Some(map) = cut.superblock.maps[at] else { return branch.is_deleted };
                // Recovery reads the logs in any order.
                let logged =
                    branch.log.iter().skip(cut.superblock.begins[at]).flat_map(Record::values);
                let named = map.iter().chain(logged.map(|(place, _)| place));
                let mut named = named.filter(|place| !is_shared(**place));
                if named.any(|place| *owners.entry(*place).or_insert(at) != at) {
                    return false;
                }
                let map = branch.recovered(self.fault, at, map, cut);
                let is_right = |(block, place): (usize, &usize)| match cut.places[*place] {
                    TORN => branch.may[block].len() > 1,
                    content => branch.may[block].contains(&content),
                };
                branch.is_deleted || map.iter().enumerate().all(is_right)
            })
        })
    }
}

impl Model for Pool {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let map: Map = std::array::from_fn(|block| block);
        let branch = Branch {
            map,
            step: Step::Idle,
            open: BTreeSet::new(),
            fragile: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            given_up: BTreeSet::new(),
            log: Vec::new(),
            is_pending: false,
            may: std::array::from_fn(|_| vec![0]),
            asked: [1; BLOCKS],
            is_deleted: false,
        };
        vec![State {
            branches: std::array::from_fn(|_| branch.clone()),
            durable: [0; PLACES],
            cached: std::array::from_fn(|_| Vec::new()),
            free: (BLOCKS..PLACES).collect(),
            superblock: Super { maps: [Some(map); BRANCHES], begins: [0; BRANCHES] },
            next_superblock: None,
            writes: 0,
        }]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        for (branch, of) in state.branches.iter().enumerate() {
            if !of.is_deleted && state.writes < self.writes {
                acts.extend((0..BLOCKS).map(|block| Act::Write { branch, block }));
            }
            if of.step != Step::Idle {
                acts.push(Act::GoOn { branch });
            } else if !of.is_deleted {
                acts.push(Act::Flush { branch });
                if !state.is_committing() {
                    acts.push(Act::Checkpoint { branch });
                    // The other one shows what a deletion gives away.
                    acts.extend((branch == 0).then_some(Act::Delete { branch }));
                }
            }
        }
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        match act {
            Act::Write { branch, block } => self.write(&mut state, branch, block)?,
            Act::Flush { branch } => self.begin_flush(&mut state, branch),
            Act::Checkpoint { branch } => self.begin_commit(&mut state, branch, false),
            Act::Delete { branch } => self.begin_commit(&mut state, branch, true),
            Act::GoOn { branch } => self.go_on(&mut state, branch),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a cut keeps what was flushed", |pool: &Pool, state| {
                pool.keeps(state)
            }),
            // The first write has taken it.
            Property::sometimes("a place is free again", |_, state: &State| {
                state.writes > 0 && state.free.contains(&BLOCKS)
            }),
        ]
    }
}

/// `VFSCALE_SPEC_WRITES` sets the writes of a run (3): 4 take minutes.
#[test]
fn a_cut_keeps_what_branches_have_flushed() {
    let writes = std::env::var("VFSCALE_SPEC_WRITES").map_or(3, |text| text.parse().unwrap());
    let checked = Pool { fault: Fault::None, writes }.checker().threads(2).spawn_bfs().join();
    println!("{} states", checked.unique_state_count());
    checked.assert_properties();
}

#[test]
fn each_broken_rule_of_the_argument_is_found() {
    let faults = [
        Fault::SharedInPlace,
        Fault::Unchecked,
        Fault::FreeAtRecord,
        Fault::FreeBeforeCommit,
        Fault::OneFlush,
        Fault::FragileInPlace,
        Fault::ConfirmedEarly,
    ];
    for fault in faults {
        let checked = Pool { fault, writes: 3 }.checker().threads(2).spawn_bfs().join();
        let found = checked.discovery("a cut keeps what was flushed");
        let found = found.unwrap_or_else(|| panic!("{fault:?} was not found"));
        println!("{fault:?}: {:?}", found.into_actions());
    }
}
