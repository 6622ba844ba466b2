//! All cases of two kinds of calls, by number.
//!
//! A number is read in a mixed-radix system: it has a digit for each choice, whose base is the
//! number of alternatives.

use vfscale::posix::OFlags;

use super::fixture::{Choice, Cwd, Fixture, Occupant, Opened, Source, written};
use super::symbolic_path::{self, SymbolicPath};
use super::template::{Sees, templates};
use crate::case::{Call, CallKind, Op};

/// First slot for new descriptors of the first call and of the second.
const NEW_SLOTS: [u8; 2] = [4, 6];

/// The alternatives of each choice.
pub(super) struct Space {
    firsts: Vec<Op>,
    seconds: Vec<Op>,
    sequences: Vec<Vec<SymbolicPath>>,
    occupants: Vec<Occupant>,
    sources: Vec<Source>,
    flags: Vec<OFlags>,
    /// Number of file positions, in pages.
    positions: u64,
    cwds: Vec<Cwd>,
    /// Number of combinations of extended attributes.
    xattrs: u64,
    /// Number of calls that use a slot.
    slots: u64,
    /// Maximum number of names.
    leaves: u32,
    len: u64,
}

/// Strongest relation between the two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alias {
    /// An open file.
    File,
    /// An inode, open in a slot of each.
    Inode,
    /// A path.
    Path,
    /// A directory.
    Directory,
    /// None of these.
    Nothing,
}

impl Alias {
    fn of(
        first: &[SymbolicPath],
        second: &[SymbolicPath],
        slots: &[(u8, Opened)],
        shares: bool,
    ) -> Alias {
        let again = slots.get(1).is_some_and(|(_, opened)| opened.source == Source::Again);
        if shares {
            Alias::File
        } else if again {
            Alias::Inode
        } else if first.iter().any(|spot| second.contains(spot)) {
            Alias::Path
        } else if first.iter().any(|a| second.iter().any(|b| a.dir() == b.dir())) {
            Alias::Directory
        } else {
            Alias::Nothing
        }
    }
}

/// A case that is not yet known to commute.
pub(super) struct Candidate {
    /// Indexes of the two calls among the calls of their kinds.
    pub(super) templates: (usize, usize),
    pub(super) alias: Alias,
    pub(super) first: Call,
    pub(super) second: Call,
    pub(super) setup: Vec<Call>,
    notes: Vec<String>,
}

impl Candidate {
    /// Returns the name of the case.
    pub(super) fn name(&self) -> String {
        let (first, second) = (&self.first.op, &self.second.op);
        let who = if self.first.process == self.second.process { "one process" } else { "" };
        let notes: Vec<_> =
            self.notes.iter().map(String::as_str).chain([who]).filter(|n| !n.is_empty()).collect();
        if notes.is_empty() {
            return format!("{first} || {second}");
        }
        format!("{first} || {second}: {}", notes.join("; "))
    }
}

/// The digits of a number, the lowest one first.
struct Digits(u64);

impl Digits {
    fn next(&mut self, base: u64) -> u64 {
        let digit = self.0 % base;
        self.0 /= base;
        digit
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    fn index(&mut self, len: usize) -> usize {
        self.next(len as u64) as usize
    }
}

impl Space {
    pub(super) fn new(kinds: [CallKind; 2]) -> Space {
        let sees = Sees::of(kinds);
        let [firsts, seconds] =
            [true, false].map(|first| templates(kinds[usize::from(!first)], first));
        let count = |ops: &[Op]| ops[0].paths().len();
        let uses = |ops: &[Op]| u64::from(ops[0].slot().is_some());
        let paths = count(&firsts) + count(&seconds);
        let slots = uses(&firsts) + uses(&seconds);
        let mut space = Space {
            sequences: symbolic_path::sequences(paths),
            occupants: occupants(sees),
            sources: sources(sees, paths > 0),
            flags: access(sees),
            positions: if sees.positions { 3 } else { 1 },
            cwds: working_directories(sees),
            xattrs: if sees.xattrs { 4 } else { 1 },
            slots,
            leaves: paths as u32,
            firsts,
            seconds,
            len: 0,
        };
        space.len = space.count();
        space
    }

    /// Returns the number of points.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    fn count(&self) -> u64 {
        let slot = (self.sources.len() * self.flags.len()) as u64 * self.positions;
        let calls = (self.firsts.len() * self.seconds.len() * self.sequences.len()) as u64;
        let names = (self.occupants.len() as u64).pow(self.leaves) * self.xattrs;
        let around = MOUNTED.len() as u64 * self.cwds.len() as u64 * PROCESSES;
        calls * names * around * slot.pow(self.slots as u32) * self.sharing()
    }

    /// Returns the number of alternatives for sharing a slot: the second call may use the first
    /// one's.
    fn sharing(&self) -> u64 {
        if self.slots == 2 { 2 } else { 1 }
    }

    /// Returns the case of a point, or `None` if the point contradicts itself.
    pub(super) fn candidate(&self, point: u64) -> Option<Candidate> {
        let mut digits = Digits(point);
        let templates = (digits.index(self.firsts.len()), digits.index(self.seconds.len()));
        let spots = &self.sequences[digits.index(self.sequences.len())];
        let second_process = digits.next(PROCESSES) as u8;
        let shares = digits.next(self.sharing()) == 1;
        let cwd = digits.one(&self.cwds);
        let mounted = digits.one(&MOUNTED);
        let xattrs = digits.next(self.xattrs);
        let occupants: Vec<_> = (0..self.leaves).map(|_| digits.one(&self.occupants)).collect();
        let (first, second) = (&self.firsts[templates.0], &self.seconds[templates.1]);
        let mut slots = Vec::new();
        for process in [first.slot().map(|_| 0), second.slot().map(|_| second_process)] {
            let opened = |digits: &mut Digits| Opened {
                source: digits.one(&self.sources),
                flags: digits.one(&self.flags),
                position: digits.next(self.positions),
            };
            slots.extend(process.map(|process| (process, opened(&mut digits))));
        }
        let second_slot = u8::from(first.slot().is_some() && !shares);
        if shares {
            slots.truncate(1);
        }
        let leaves = symbolic_path::leaves(spots).len();
        let choice = Choice {
            spots,
            occupants: occupants.get(..leaves)?,
            xattrs,
            slots: &slots,
            passed: shares && second_process == 1,
            cwd,
            mounted,
        };
        let fixture = Fixture::build(&choice)?;
        let paths: Vec<_> = spots.iter().map(|&spot| written(spot, cwd)).collect();
        let (of_first, of_second) = paths.split_at(first.paths().len());
        let op = |op: &Op, paths: &[String], slot, new| {
            op.clone().with_paths(paths).with_slots(slot, new)
        };
        let (first_spots, second_spots) = spots.split_at(first.paths().len());
        Some(Candidate {
            templates,
            alias: Alias::of(first_spots, second_spots, &slots, shares),
            first: Call { process: 0, op: op(first, of_first, 0, NEW_SLOTS[0]) },
            second: Call {
                process: second_process,
                op: op(second, of_second, second_slot, NEW_SLOTS[1]),
            },
            setup: fixture.setup,
            notes: fixture.notes,
        })
    }
}

/// Number of alternatives for the process of the second call.
const PROCESSES: u64 = 2;

/// The directory that is a mount of its own. Mostly none, since calls across a mount often fail.
const MOUNTED: [Option<u8>; 6] = [None, None, None, None, Some(0), Some(1)];

/// Returns the possible occupants of a name. Common ones are repeated to be drawn more often.
fn occupants(sees: Sees) -> Vec<Occupant> {
    let mut all = [Occupant::File(1); 4].to_vec();
    all.extend([Occupant::Absent; 3]);
    all.extend([Occupant::Directory; 2]);
    all.extend([
        Occupant::LinkOf(0),
        Occupant::LinkOf(1),
        Occupant::FullDirectory,
        Occupant::MountPoint,
        Occupant::Symlink,
        Occupant::Dangling,
    ]);
    if sees.sizes {
        all.extend([Occupant::File(0), Occupant::File(2), Occupant::Sparse]);
    }
    all
}

fn sources(sees: Sees, has_paths: bool) -> Vec<Source> {
    let mut all =
        vec![Source::Dir, Source::Own(1), Source::Orphan, Source::Nameless, Source::Again];
    if has_paths {
        // Calls on files that both calls name are the interesting ones.
        all.extend([Source::Leaf(0), Source::Leaf(0), Source::Leaf(1)]);
    }
    if sees.sizes {
        all.extend([Source::Own(0), Source::Own(2), Source::OwnSparse]);
    }
    all.push(Source::OtherEnd);
    for writer in [false, true] {
        all.push(Source::Pipe { writer, pages: 0, alone: false });
        if sees.positions {
            all.push(Source::Pipe { writer, pages: 1, alone: false });
            all.push(Source::Pipe { writer, pages: 0, alone: true });
        }
    }
    all
}

fn access(sees: Sees) -> Vec<OFlags> {
    if sees.access {
        let mut all = [OFlags::RDWR; 3].to_vec();
        all.extend([OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR | OFlags::APPEND]);
        all
    } else {
        vec![OFlags::RDWR]
    }
}

fn working_directories(sees: Sees) -> Vec<Cwd> {
    if sees.cwd {
        vec![Cwd::Root, Cwd::InDir, Cwd::Removed]
    } else {
        vec![Cwd::Root, Cwd::Root, Cwd::InDir]
    }
}
