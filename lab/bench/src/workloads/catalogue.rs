//! The catalogue of workloads: their names, sources and operations.

use super::workload::{Layout, Scene, Workload};
use super::{
    aim, bytes, close, evict, handles, kv, many, mounts, names, orphans, path_jobs, paths, pieces,
    sizes, slob, times, tree,
};
use crate::base::error::{Error, Outcome, Result};
use crate::measure::player::{Act, Player};
use crate::published::{CHINNER, KARA, LOCKREF, OWN, PIGGIN, SEQRWLOCK};
use crate::targets::Target;

/// The type of a workload, with its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    OpenClose(Layout),
    CreateUnlink(Layout),
    StatDeep,
    Rename(Layout),
    CloseMany(close::Ends),
    OpenHandle,
    MountCross,
    BindUmount,
    Remount,
    Evict,
    Aim(aim::Mix),
    DPath,
    PathJobs,
    CatFds,
    Tree(tree::Walk),
    Slob,
    OrphanTruncate,
    OrphanUnlink,
    OrphanCut,
    Touch { is_pushed: bool },
    Many(many::ManyFiles),
    Bytes(bytes::Transfer),
    Pieces(pieces::PieceCall),
    Store(kv::StoreCall),
}

/// Evaluates an expression with the workload of a kind, whose type depends on the kind.
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
            Kind::CloseMany(ends) => {
                let $workload = close::CloseMany(ends);
                $body
            }
            Kind::OpenHandle => {
                let $workload = handles::OpenHandle;
                $body
            }
            Kind::MountCross => {
                let $workload = mounts::MountCross;
                $body
            }
            Kind::BindUmount => {
                let $workload = mounts::BindUmount;
                $body
            }
            Kind::Remount => {
                let $workload = mounts::Remount;
                $body
            }
            Kind::Evict => {
                let $workload = evict::Evict;
                $body
            }
            Kind::Aim(mix) => {
                let $workload = aim::Aim(mix);
                $body
            }
            Kind::DPath => {
                let $workload = paths::DPath;
                $body
            }
            Kind::PathJobs => {
                let $workload = path_jobs::PathJobs;
                $body
            }
            Kind::CatFds => {
                let $workload = paths::CatFds;
                $body
            }
            Kind::Tree(walk) => {
                let $workload = tree::TreeWalk(walk);
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
            Kind::OrphanUnlink => {
                let $workload = orphans::OrphanUnlink;
                $body
            }
            Kind::OrphanCut => {
                let $workload = orphans::OrphanCut;
                $body
            }
            Kind::Touch { is_pushed } => {
                let $workload = times::Touch { is_pushed };
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
            Kind::Pieces(call) => {
                let $workload = pieces::Pieces(call);
                $body
            }
            Kind::Store(call) => {
                let $workload = kv::Store(call);
                $body
            }
        }
    };
}

/// The unit that a document uses for the rate of a workload.
#[derive(Clone, Copy, Debug)]
pub struct SourceUnit {
    /// The unit, such as `jobs/min`.
    pub unit: &'static str,
    /// Factor from operations per second to the unit.
    pub factor: f64,
}

/// The description of a workload for the command line, the results and the documentation.
#[derive(Debug)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// The document whose experiment it repeats, such as [`PIGGIN`], or [`OWN`].
    pub source: &'static str,
    /// The counted unit.
    pub unit: &'static str,
    /// An operation, in words.
    pub operation: &'static str,
    /// The document's unit of the rate, if that is another.
    pub source_unit: Option<SourceUnit>,
    pub(crate) kind: Kind,
}

/// The unit of AIM7.
const JOBS_PER_MINUTE: Option<SourceUnit> = Some(SourceUnit { unit: "jobs/min", factor: 60.0 });

/// All workloads.
pub const ALL: &[Description] = &[
    Description {
        name: "open-close-same-dir",
        source: PIGGIN,
        unit: "open+close",
        operation: "open a file for reading and close it; each worker its own, all in one \
                    directory, the working directory of all",
        source_unit: None,
        kind: Kind::OpenClose(Layout::Same),
    },
    Description {
        name: "open-close-own-dir",
        source: PIGGIN,
        unit: "open+close",
        operation: "open a file for reading and close it; each worker in a working directory of \
                    its own",
        source_unit: None,
        kind: Kind::OpenClose(Layout::Own),
    },
    Description {
        name: "open-close-one-file",
        source: PIGGIN,
        unit: "open+close",
        operation: "open a file for reading and close it; all workers the same file",
        source_unit: None,
        kind: Kind::OpenClose(Layout::Shared),
    },
    Description {
        name: "create-unlink-same-dir",
        source: PIGGIN,
        unit: "create+unlink",
        operation: "create a file, close it and unlink it; each worker its own name, all in one \
                    working directory",
        source_unit: None,
        kind: Kind::CreateUnlink(Layout::Same),
    },
    Description {
        name: "create-unlink-own-dir",
        source: PIGGIN,
        unit: "create+unlink",
        operation: "create a file, close it and unlink it; each worker in a working directory of \
                    its own",
        source_unit: None,
        kind: Kind::CreateUnlink(Layout::Own),
    },
    Description {
        name: "stat-deep",
        source: PIGGIN,
        unit: "stat",
        operation: "stat one file six names deep, the same for all workers",
        source_unit: None,
        kind: Kind::StatDeep,
    },
    Description {
        name: "rename-same-dir",
        source: PIGGIN,
        unit: "rename",
        operation: "rename a file and, next time, back; each worker its own names, all in one \
                    directory",
        source_unit: None,
        kind: Kind::Rename(Layout::Same),
    },
    Description {
        name: "rename-own-dir",
        source: PIGGIN,
        unit: "rename",
        operation: "rename a file between two directories of the worker's own, back and forth",
        source_unit: None,
        kind: Kind::Rename(Layout::Own),
    },
    Description {
        name: "rename-cross-dir",
        source: PIGGIN,
        unit: "rename",
        operation: "rename a file between two directories that all workers use, back and forth; \
                    half of them begin in each",
        source_unit: None,
        kind: Kind::Rename(Layout::Shared),
    },
    Description {
        name: "close-many",
        source: PIGGIN,
        unit: "descriptor",
        operation: "make and close one end of a pipe or of a pair of sockets; each worker has 64 \
                    of both open at the same time",
        source_unit: None,
        kind: Kind::CloseMany(close::Ends::Both),
    },
    Description {
        name: "close-sockets",
        source: PIGGIN,
        unit: "descriptor",
        operation: "make and close one end of a pair of sockets; each worker has 128 of them open \
                    at the same time",
        source_unit: None,
        kind: Kind::CloseMany(close::Ends::Sockets),
    },
    Description {
        name: "mount-cross",
        source: PIGGIN,
        unit: "stat",
        operation: "stat one file below a mount, the same for all workers (in the library)",
        source_unit: None,
        kind: Kind::MountCross,
    },
    Description {
        name: "open-handle",
        source: PIGGIN,
        unit: "open+close",
        operation: "open a file by its handle and close it; each worker 64 of its own, one after \
                    the other",
        source_unit: None,
        kind: Kind::OpenHandle,
    },
    Description {
        name: "evict",
        source: PIGGIN,
        unit: "name",
        operation: "look up a name and drop it from the cache; each worker 64 of its own at a time \
                    (on volumes, in the library)",
        source_unit: None,
        kind: Kind::Evict,
    },
    Description {
        name: "remount",
        source: PIGGIN,
        unit: "remount",
        operation: "make the file system read-only and then writable again; each worker has 16 \
                    files open for reading (in the library)",
        source_unit: None,
        kind: Kind::Remount,
    },
    Description {
        name: "bind-umount",
        source: PIGGIN,
        unit: "mount+umount",
        operation: "bind a directory to one of the worker's own and unmount it (in the library)",
        source_unit: None,
        kind: Kind::BindUmount,
    },
    Description {
        name: "aim-short",
        source: LOCKREF,
        unit: "job",
        operation: "a job of AIM7's short mix, reduced to its calls to a file system; 17 kinds, \
                    for each number of --users",
        source_unit: JOBS_PER_MINUTE,
        kind: Kind::Aim(aim::Mix::Short),
    },
    Description {
        name: "aim-alltests",
        source: LOCKREF,
        unit: "job",
        operation: "a job of AIM7's alltests mix, of those that call a file system, as often as \
                    its work file says; for each number of --users",
        source_unit: JOBS_PER_MINUTE,
        kind: Kind::Aim(aim::Mix::Alltests),
    },
    Description {
        name: "aim-five-sec",
        source: LOCKREF,
        unit: "job",
        operation: "a job of AIM7's five_sec mix, of those that call a file system, as often as \
                    its work file says; for each number of --users",
        source_unit: JOBS_PER_MINUTE,
        kind: Kind::Aim(aim::Mix::FiveSec),
    },
    Description {
        name: "aim-fserver",
        source: LOCKREF,
        unit: "job",
        operation: "a job of AIM7's fserver mix, of those that call a file system, as often as \
                    its work file says; for each number of --users",
        source_unit: JOBS_PER_MINUTE,
        kind: Kind::Aim(aim::Mix::Fserver),
    },
    Description {
        name: "aim-high-systime",
        source: LOCKREF,
        unit: "job",
        operation: "a job of AIM7's high_systime mix, of those that call a file system, as often as \
                    its work file says; for each number of --users",
        source_unit: JOBS_PER_MINUTE,
        kind: Kind::Aim(aim::Mix::HighSystime),
    },
    Description {
        name: "aim-new-fserver",
        source: LOCKREF,
        unit: "job",
        operation: "a job of AIM7's new_fserver mix, of those that call a file system, as often as \
                    its work file says; for each number of --users",
        source_unit: JOBS_PER_MINUTE,
        kind: Kind::Aim(aim::Mix::NewFserver),
    },
    Description {
        name: "aim-shared",
        source: LOCKREF,
        unit: "job",
        operation: "a job of AIM7's shared mix, of those that call a file system, as often as \
                    its work file says; for each number of --users",
        source_unit: JOBS_PER_MINUTE,
        kind: Kind::Aim(aim::Mix::Shared),
    },
    Description {
        name: "d-path",
        source: LOCKREF,
        unit: "path",
        operation: "the absolute path of an open file eight directories down, which all workers \
                    share",
        source_unit: None,
        kind: Kind::DPath,
    },
    Description {
        name: "path-jobs",
        source: LOCKREF,
        unit: "job",
        operation: "open a program and its five libraries, which all workers share, tell the path of \
                    each as perf does, and close them",
        source_unit: None,
        kind: Kind::PathJobs,
    },
    Description {
        name: "cat-fds",
        source: LOCKREF,
        unit: "table",
        operation: "the absolute paths of 64 open files, as the lines of /proc/PID/maps have; all \
                    workers have the same files open",
        source_unit: None,
        kind: Kind::CatFds,
    },
    Description {
        name: "find-size",
        source: LOCKREF,
        unit: "file",
        operation: "a name visited by `find -size 0` in a tree; each worker walks over the whole \
                    tree",
        source_unit: None,
        kind: Kind::Tree(tree::Walk::FindSize),
    },
    Description {
        name: "git-diff",
        source: LOCKREF,
        unit: "file",
        operation: "a tracked file checked by `git diff`: lstat of each, and reading every \
                    fiftieth, which looks modified",
        source_unit: None,
        kind: Kind::Tree(tree::Walk::GitDiff),
    },
    Description {
        name: "slob",
        source: SEQRWLOCK,
        unit: "transaction",
        operation: "read, change and write a block of 8 KiB and 2 KiB of redo; every other worker \
                    only reads and is not counted, so two workers have at most the rate of one",
        source_unit: Some(SourceUnit { unit: "MB/s of redo", factor: slob::REDO as f64 / 1e6 }),
        kind: Kind::Slob,
    },
    Description {
        name: "orphan-truncate",
        source: KARA,
        unit: "truncate",
        operation: "make a file of the worker's own one byte shorter, from 4 KiB down to one byte \
                    and then 4 KiB again",
        source_unit: None,
        kind: Kind::OrphanTruncate,
    },
    Description {
        name: "orphan-unlink",
        source: KARA,
        unit: "orphan",
        operation: "create a file in a directory of the worker's own, unlink it while it is open, \
                    and close it",
        source_unit: None,
        kind: Kind::OrphanUnlink,
    },
    Description {
        name: "orphan-cut",
        source: KARA,
        unit: "truncate",
        operation: "write 32 extents to a file of the worker's own, make them durable, and truncate \
                    it to one byte, which takes a volume several transactions",
        source_unit: None,
        kind: Kind::OrphanCut,
    },
    Description {
        name: "create-many",
        source: CHINNER,
        unit: "inode",
        operation: "create an empty file, 10,000 in a directory of the worker's own, --files for \
                    each worker",
        source_unit: None,
        kind: Kind::Many(many::ManyFiles::Create),
    },
    Description {
        name: "remove-many",
        source: CHINNER,
        unit: "inode",
        operation: "remove one of the files that create-many makes",
        source_unit: None,
        kind: Kind::Many(many::ManyFiles::Remove),
    },
    Description {
        name: "touch",
        source: OWN,
        unit: "touch",
        operation: "set the time of the last change of a file of the worker's own (futimens): on a \
                    volume a transaction of one inode, which mostly is already in the log's list",
        source_unit: None,
        kind: Kind::Touch { is_pushed: false },
    },
    Description {
        name: "push",
        source: CHINNER,
        unit: "push",
        operation: "set the time of a file of the worker's own and make all changes durable \
                    (syncfs)",
        source_unit: None,
        kind: Kind::Touch { is_pushed: true },
    },
    Description {
        name: "create-many-sync",
        source: OWN,
        unit: "inode",
        operation: "as create-many, and all of them made durable at the end (syncfs), which counts",
        source_unit: None,
        kind: Kind::Many(many::ManyFiles::CreateSync),
    },
    Description {
        name: "write-seq",
        source: OWN,
        unit: "MiB",
        operation: "write the next MiB of a file of the worker's own, --database bytes from an \
                    empty one, with an fsync at the end, which counts",
        source_unit: None,
        kind: Kind::Bytes(bytes::Transfer::Write),
    },
    Description {
        name: "read-seq",
        source: OWN,
        unit: "MiB",
        operation: "read the next MiB of a file of the worker's own of --database bytes, over and \
                    over",
        source_unit: None,
        kind: Kind::Bytes(bytes::Transfer::Read),
    },
    Description {
        name: "append-sync",
        source: OWN,
        unit: "append+fsync",
        operation: "append --io-size KiB to a file of the worker's own and make it durable",
        source_unit: None,
        kind: Kind::Bytes(bytes::Transfer::Append),
    },
    Description {
        name: "pwrite",
        source: OWN,
        unit: "pwrite",
        operation: "overwrite the next --io-size KiB of a file of the worker's own of --database \
                    bytes, over and over",
        source_unit: None,
        kind: Kind::Pieces(pieces::PieceCall::Write),
    },
    Description {
        name: "pread",
        source: OWN,
        unit: "pread",
        operation: "read the next --io-size KiB of such a file, over and over",
        source_unit: None,
        kind: Kind::Pieces(pieces::PieceCall::Read),
    },
    Description {
        name: "write-truncate",
        source: OWN,
        unit: "write+truncate",
        operation: "write --io-size KiB to an empty file of the worker's own and truncate it to \
                    nothing",
        source_unit: None,
        kind: Kind::Pieces(pieces::PieceCall::Truncate),
    },
    Description {
        name: "punch-write",
        source: OWN,
        unit: "punch+write",
        operation: "punch the next --io-size KiB out of a file of the worker's own of --database \
                    bytes and write them anew",
        source_unit: None,
        kind: Kind::Pieces(pieces::PieceCall::Punch),
    },
    Description {
        name: "kv-put",
        source: OWN,
        unit: "put",
        operation: "replace a value of 256 bytes to 4 KiB: write it to a temporary file and rename \
                    that over the key's; each worker --files random keys of its own, in 1,000 \
                    directories that all use",
        source_unit: None,
        kind: Kind::Store(kv::StoreCall::Put),
    },
    Description {
        name: "kv-put-sync",
        source: OWN,
        unit: "put",
        operation: "as kv-put, with an fsync of the file before the rename and one of the \
                    directory after it",
        source_unit: None,
        kind: Kind::Store(kv::StoreCall::PutSync),
    },
    Description {
        name: "kv-get",
        source: OWN,
        unit: "get",
        operation: "open the file of a random key, read its value, and close it; the keys of kv-put",
        source_unit: None,
        kind: Kind::Store(kv::StoreCall::Get),
    },
    Description {
        name: "readdir-stat",
        source: OWN,
        unit: "file",
        operation: "read a name from a directory of about 25 and get its attributes; all workers \
                    walk over the same tree",
        source_unit: None,
        kind: Kind::Tree(tree::Walk::ReaddirStat),
    },
];

/// Finds the workload with a name.
///
/// # Errors
/// Returns [`Error::UnknownWorkload`], with the nearest name and all names, if there is none.
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

/// Returns the Levenshtein distance of two words: the number of letters to change, insert or
/// delete.
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

/// Creates the files of a case, on this thread.
pub(crate) fn prepare<T: Target>(kind: Kind, target: &T, scene: &Scene) -> Outcome<()> {
    let mut calls = target.enter()?;
    with_workload!(kind, workload => workload.prepare(&mut calls, scene))
}

/// Creates the work of a worker on this thread, inside the measured loop.
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

/// Checks the whole tree of a case, on this thread.
pub(crate) fn inspect<T: Target>(kind: Kind, target: &T, scene: &Scene) -> Outcome<()> {
    let mut calls = target.enter()?;
    with_workload!(kind, workload => workload.inspect(&mut calls, scene))
}

#[cfg(test)]
mod tests;
