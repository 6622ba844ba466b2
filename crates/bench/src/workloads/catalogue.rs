//! The catalogue of workloads: their names, sources and operations.

use super::workload::{Place, Scene, Workload};
use super::{aim, bytes, close, many, names, paths, sizes, slob, times, tree};
use crate::base::error::{Error, Outcome, Result};
use crate::measure::player::{Act, Player};
use crate::targets::Target;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OpenClose(Place),
    CreateUnlink(Place),
    StatDeep,
    Rename(Place),
    CloseMany,
    AimShort,
    DPath,
    CatMaps,
    Tree(tree::Walk),
    Slob,
    OrphanTruncate,
    Touch,
    Many(many::Part),
    Bytes(bytes::Part),
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
            Kind::CloseMany => {
                let $workload = close::CloseMany;
                $body
            }
            Kind::AimShort => {
                let $workload = aim::AimShort;
                $body
            }
            Kind::DPath => {
                let $workload = paths::DPath;
                $body
            }
            Kind::CatMaps => {
                let $workload = paths::CatMaps;
                $body
            }
            Kind::Tree(walk) => {
                let $workload = tree::Tree(walk);
                $body
            }
            Kind::Slob => {
                let $workload = slob::Slob;
                $body
            }
            Kind::OrphanTruncate => {
                let $workload = sizes::OrphanTruncate;
                $body
            }
            Kind::Touch => {
                let $workload = times::Touch;
                $body
            }
            Kind::Many(part) => {
                let $workload = many::Many(part);
                $body
            }
            Kind::Bytes(part) => {
                let $workload = bytes::Bytes(part);
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
    Description {
        name: "close-many",
        seed: "004",
        unit: "descriptor",
        operation: "make and close one end of a pipe or of a pair of sockets; each worker has 64 \
                    of both open at once",
        seed_rate: None,
        kind: Kind::CloseMany,
    },
    Description {
        name: "aim-short",
        seed: "000",
        unit: "job",
        operation: "a job of AIM7's short mix, reduced to what reaches a file system; 17 kinds, \
                    for each number of --users",
        seed_rate: Some(SeedRate { unit: "jobs/min", factor: 60.0 }),
        kind: Kind::AimShort,
    },
    Description {
        name: "d-path",
        seed: "000",
        unit: "path",
        operation: "the absolute path of an open file eight directories down, which all workers \
                    share",
        seed_rate: None,
        kind: Kind::DPath,
    },
    Description {
        name: "cat-maps",
        seed: "000",
        unit: "table",
        operation: "read the tables of what is mapped (/proc/self/maps and numa_maps); each worker \
                    has mapped 64 files of the target",
        seed_rate: None,
        kind: Kind::CatMaps,
    },
    Description {
        name: "find-size",
        seed: "000",
        unit: "file",
        operation: "a name seen by `find -size 0` over a whole tree; each worker walks over all of \
                    it",
        seed_rate: None,
        kind: Kind::Tree(tree::Walk::FindSize),
    },
    Description {
        name: "git-diff",
        seed: "000",
        unit: "file",
        operation: "a tracked file looked at by `git diff`: lstat of each, and reading every \
                    fiftieth, which looks touched",
        seed_rate: None,
        kind: Kind::Tree(tree::Walk::GitDiff),
    },
    Description {
        name: "slob",
        seed: "002",
        unit: "transaction",
        operation: "read, change and write a block of 8 KiB and 2 KiB of redo; every other worker \
                    only reads",
        seed_rate: Some(SeedRate { unit: "MB/s of redo", factor: slob::REDO as f64 / 1e6 }),
        kind: Kind::Slob,
    },
    Description {
        name: "orphan-truncate",
        seed: "001",
        unit: "truncate",
        operation: "make a file of the worker's own one byte shorter, from 4 KiB down to one byte \
                    and then 4 KiB again",
        seed_rate: None,
        kind: Kind::OrphanTruncate,
    },
    Description {
        name: "create-many",
        seed: "003",
        unit: "inode",
        operation: "create an empty file, 10,000 in a directory of the worker's own, --files for \
                    each worker",
        seed_rate: None,
        kind: Kind::Many(many::Part::Create),
    },
    Description {
        name: "remove-many",
        seed: "003",
        unit: "inode",
        operation: "remove one of the files that create-many makes",
        seed_rate: None,
        kind: Kind::Many(many::Part::Remove),
    },
    Description {
        name: "touch",
        seed: "-",
        unit: "touch",
        operation: "set the time of the last change of a file of the worker's own (futimens): on a \
                    volume a transaction of one inode, which mostly is in the log's list already",
        seed_rate: None,
        kind: Kind::Touch,
    },
    Description {
        name: "create-many-sync",
        seed: "-",
        unit: "inode",
        operation: "as create-many, and all of them made durable at the end (syncfs), which counts",
        seed_rate: None,
        kind: Kind::Many(many::Part::CreateSync),
    },
    Description {
        name: "write-seq",
        seed: "-",
        unit: "MiB",
        operation: "write the next MiB of a file of the worker's own, --database bytes from an \
                    empty one, with an fsync at the end, which counts",
        seed_rate: None,
        kind: Kind::Bytes(bytes::Part::Write),
    },
    Description {
        name: "read-seq",
        seed: "-",
        unit: "MiB",
        operation: "read the next MiB of a file of the worker's own of --database bytes, over and \
                    over",
        seed_rate: None,
        kind: Kind::Bytes(bytes::Part::Read),
    },
    Description {
        name: "append-sync",
        seed: "-",
        unit: "append+fsync",
        operation: "append 4 KiB to a file of the worker's own and make it durable",
        seed_rate: None,
        kind: Kind::Bytes(bytes::Part::Append),
    },
    Description {
        name: "readdir-stat",
        seed: "-",
        unit: "file",
        operation: "a name read from a directory of 25 or so and asked for its attributes; workers \
                    go over the same tree",
        seed_rate: None,
        kind: Kind::Tree(tree::Walk::ReaddirStat),
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
        Error::UnknownWorkload {
            name: name.to_owned(),
            nearest: near.map(|(_, name)| name),
            known: ALL.iter().map(|w| w.name).collect(),
        }
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

#[cfg(test)]
mod tests;
