//! The workloads: what they are called, where they come from, and what they do.
//!
//! A workload makes its files once for a case (`Workload::prepare`). Then each worker gets its `Work`,
//! which is asked for one operation after the other while time is taken, and checks at the end of
//! each round, when none is taken, that the file system did what it said. After the last round
//! `Workload::inspect` looks at the whole tree.
//!
//! Everything is generic over the target's calls, so an operation is compiled into the loop that
//! measures it.

use std::ffi::CStr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vfscale::{Errno, OFlags};

use crate::fault::{Error, Fault, Outcome, Result};
use crate::targets::{Calls, Target};
use crate::worker::{Act, Player};

mod names;

/// What all workers of a case agree on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scene {
    /// How many workers there are.
    pub workers: usize,
    /// Files that each worker makes, for workloads that make many.
    pub files: u64,
    /// A tree to work on instead of a made-up one.
    pub tree: Option<PathBuf>,
    /// Where random numbers start.
    pub random_seed: u64,
}

/// What one worker does.
pub(crate) trait Work {
    /// Whether a round is a fixed amount of work, instead of a fixed time.
    const FIXED: bool = false;

    /// Before a round, while no time is taken.
    fn begin(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// How many more times [`op`](Self::op) may be called in this round.
    #[inline]
    fn left(&self) -> u64 {
        u64::MAX
    }

    /// One operation. Returns what it counts for, in the workload's unit.
    fn op(&mut self) -> Outcome<u64>;

    /// After a round, while no time is taken: checks what the file system did.
    fn end(&mut self) -> Outcome<()>;
}

/// A kind of experiment.
pub(crate) trait Workload {
    /// What its workers do.
    type Work<C: Calls>: Work + 'static;

    /// Makes the files of a case.
    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()>;

    /// The work of one worker, from 0.
    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<Self::Work<C>>;

    /// Checks the whole tree after the last round.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()>;
}

/// Where the workers of a workload meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// All in one directory, on names of their own.
    Same,
    /// Each in a directory of its own.
    Own,
    /// All on one file, or between two directories that all share.
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OpenClose(Place),
    CreateUnlink(Place),
    StatDeep,
    Rename(Place),
}

/// Calls a generic function with the workload of a kind, whose type differs from kind to kind.
macro_rules! with_workload {
    ($kind:expr, $workload:ident => $body:expr) => {
        match $kind {
            Kind::OpenClose(place) => {
                let $workload = names::OpenClose(place);
                $body
            }
            Kind::CreateUnlink(place) => {
                let $workload = names::CreateUnlink(place);
                $body
            }
            Kind::StatDeep => {
                let $workload = names::StatDeep;
                $body
            }
            Kind::Rename(place) => {
                let $workload = names::Rename(place);
                $body
            }
        }
    };
}

/// The rate of a workload in the unit that its document uses.
#[derive(Clone, Copy, Debug)]
pub struct SeedRate {
    /// The unit, such as `jobs/min`.
    pub unit: &'static str,
    /// What operations per second are multiplied with.
    pub factor: f64,
}

/// A workload as the command line, the results and the documentation speak of it.
#[derive(Debug)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// The number of the document that it comes from; `-` if it comes from none.
    pub seed: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// What an operation is.
    pub operation: &'static str,
    /// The rate in the document's own unit, where that is another.
    pub seed_rate: Option<SeedRate>,
    pub(crate) kind: Kind,
}

/// All workloads.
pub const ALL: &[Description] = &[
    Description {
        name: "open-close-same-dir",
        seed: "004",
        unit: "open+close",
        operation: "open a file for reading and close it; each worker its own, all in one \
                    directory, which is everybody's working directory",
        seed_rate: None,
        kind: Kind::OpenClose(Place::Same),
    },
    Description {
        name: "open-close-own-dir",
        seed: "004",
        unit: "open+close",
        operation: "open a file for reading and close it; each worker in a working directory of \
                    its own",
        seed_rate: None,
        kind: Kind::OpenClose(Place::Own),
    },
    Description {
        name: "open-close-one-file",
        seed: "004",
        unit: "open+close",
        operation: "open a file for reading and close it; all workers the same file",
        seed_rate: None,
        kind: Kind::OpenClose(Place::Shared),
    },
    Description {
        name: "create-unlink-same-dir",
        seed: "004",
        unit: "create+unlink",
        operation: "create a file, close it and unlink it; each worker its own name, all in one \
                    working directory",
        seed_rate: None,
        kind: Kind::CreateUnlink(Place::Same),
    },
    Description {
        name: "create-unlink-own-dir",
        seed: "004",
        unit: "create+unlink",
        operation: "create a file, close it and unlink it; each worker in a working directory of \
                    its own",
        seed_rate: None,
        kind: Kind::CreateUnlink(Place::Own),
    },
    Description {
        name: "stat-deep",
        seed: "004",
        unit: "stat",
        operation: "stat one file six names deep, the same for all workers",
        seed_rate: None,
        kind: Kind::StatDeep,
    },
    Description {
        name: "rename-same-dir",
        seed: "004",
        unit: "rename",
        operation: "rename a file and, next time, back; each worker its own names, all in one \
                    directory",
        seed_rate: None,
        kind: Kind::Rename(Place::Same),
    },
    Description {
        name: "rename-own-dir",
        seed: "004",
        unit: "rename",
        operation: "rename a file between two directories of the worker's own, back and forth",
        seed_rate: None,
        kind: Kind::Rename(Place::Own),
    },
    Description {
        name: "rename-cross-dir",
        seed: "004",
        unit: "rename",
        operation: "rename a file between two directories that all workers use, back and forth; \
                    half of them begin in each",
        seed_rate: None,
        kind: Kind::Rename(Place::Shared),
    },
];

/// The workload of a name.
///
/// # Errors
/// If there is none; the error tells the nearest and lists all.
pub fn find(name: &str) -> Result<&'static Description> {
    ALL.iter().find(|w| w.name == name).ok_or_else(|| {
        let near = ALL.iter().map(|w| (distance(name, w.name), w.name)).min();
        let near = near.filter(|(edits, _)| *edits <= 2 + name.len() / 4);
        Error::UnknownWorkload(name.to_owned(), near.map(|(_, name)| name))
    })
}

/// How many letters must be changed, put in or taken out to get from one word to the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Makes the files of a case, on the thread that asks.
pub(crate) fn prepare<T: Target>(kind: Kind, target: &T, scene: &Scene) -> Outcome<()> {
    let mut calls = target.enter()?;
    with_workload!(kind, workload => workload.prepare(&mut calls, scene))
}

/// The work of a worker on the thread that asks, ready to be measured.
pub(crate) fn actor<T: Target>(
    kind: Kind,
    target: &T,
    scene: &Scene,
    worker: usize,
) -> Outcome<Box<dyn Act>> {
    let calls = target.enter()?;
    with_workload!(kind, workload => {
        Ok(Box::new(Player::new(workload.work(calls, scene, worker)?)))
    })
}

/// Checks the whole tree of a case, on the thread that asks.
pub(crate) fn inspect<T: Target>(kind: Kind, target: &T, scene: &Scene) -> Outcome<()> {
    let mut calls = target.enter()?;
    with_workload!(kind, workload => workload.inspect(&mut calls, scene))
}

/// Makes a file with these bytes in it.
pub(crate) fn write_file<C: Calls>(calls: &C, name: &CStr, bytes: &[u8]) -> Outcome<()> {
    let file = calls.open(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
    write_at(calls, &file, bytes, 0)
}

/// Writes all of it.
pub(crate) fn write_at<C: Calls>(
    calls: &C,
    file: &C::File,
    bytes: &[u8],
    offset: u64,
) -> Outcome<()> {
    let mut done = 0;
    while done < bytes.len() {
        match calls.pwrite(file, &bytes[done..], offset + done as u64)? {
            0 => return Err(Fault::wrong("a write of some bytes wrote none")),
            n => done += n,
        }
    }
    Ok(())
}

/// Checks that a file holds these bytes and no more.
pub(crate) fn expect_content<C: Calls>(calls: &C, name: &CStr, bytes: &[u8]) -> Outcome<()> {
    let file = calls.open(name, OFlags::RDONLY)?;
    let mut seen = vec![0; bytes.len() + 1];
    let n = calls.pread(&file, &mut seen, 0)?;
    if seen[..n] != *bytes {
        return Err(Fault::wrong(format!(
            "{} holds {:?} instead of {:?}",
            name.to_string_lossy(),
            String::from_utf8_lossy(&seen[..n]),
            String::from_utf8_lossy(bytes)
        )));
    }
    Ok(())
}

/// Checks that there is no such name.
pub(crate) fn expect_gone<C: Calls>(calls: &C, name: &CStr) -> Outcome<()> {
    match calls.lstat(name) {
        Err(e) if e.errno() == Errno::NOENT => Ok(()),
        Err(e) => Err(e.into()),
        Ok(_) => {
            let name = name.to_string_lossy();
            Err(Fault::wrong(format!("{name} is there, though it was removed or never made")))
        }
    }
}

/// Checks how many names a directory holds.
pub(crate) fn expect_names<C: Calls>(calls: &C, dir: &CStr, count: usize) -> Outcome<()> {
    let mut seen = 0;
    calls.list(dir, |_, _| seen += 1)?;
    if seen != count {
        return Err(Fault::wrong(format!(
            "{seen} names in {}, not {count}",
            dir.to_string_lossy()
        )));
    }
    Ok(())
}

/// Checks a number.
pub(crate) fn expect_equal(what: &str, seen: u64, due: u64) -> Outcome<()> {
    if seen != due {
        return Err(Fault::wrong(format!("{what} is {seen}, not {due}")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "workloads_tests.rs"]
mod tests;
