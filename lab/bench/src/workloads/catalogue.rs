//! The catalogue of workloads: their names, sources and operations.

use super::fxmark::{BlockCall, Blocks, NameCall, Names, Sharing};
use super::workload::{Layout, Scene, Workload};
use super::{
    aim, bytes, close, evict, fxmark, handles, kv, many, mounts, names, orphans, path_jobs, paths,
    pieces, sizes, slob, times, tree,
};
use crate::base::error::{Error, Outcome, Result};
use crate::measure::player::{Act, Player};
use crate::published::{CHINNER, FXMARK, KARA, LOCKREF, OWN, PIGGIN, SEQRWLOCK};
use crate::targets::Target;

/// Declares the kinds of workloads, with the parameter and the workload of each, and what a case
/// calls: the type of a workload depends on its kind.
macro_rules! kinds {
    ($($kind:ident $(($param:ident: $type:ty))? => $workload:expr;)+) => {
        /// The type of a workload, with its parameter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($kind $(($type))?,)+
        }

        /// Creates the files of a case, on this thread.
        pub(crate) fn prepare<T: Target>(kind: Kind, target: &T, scene: &Scene) -> Outcome<()> {
            let mut calls = target.enter()?;
            match kind {
                $(Kind::$kind $(($param))? => $workload.prepare(&mut calls, scene),)+
            }
        }

        /// Creates the work of a worker on this thread, inside the measured loop.
        pub(crate) fn actor<T: Target>(
            kind: Kind,
            target: &T,
            scene: &Scene,
            worker: usize,
        ) -> Outcome<Box<dyn Act>> {
            let calls = target.enter()?;
            Ok(match kind {
                $(Kind::$kind $(($param))? => {
                    Box::new(Player::new($workload.work(calls, scene, worker)?))
                })+
            })
        }

        /// Checks the whole tree of a case, on this thread.
        pub(crate) fn inspect<T: Target>(kind: Kind, target: &T, scene: &Scene) -> Outcome<()> {
            let mut calls = target.enter()?;
            match kind {
                $(Kind::$kind $(($param))? => $workload.inspect(&mut calls, scene),)+
            }
        }
    };
}

kinds! {
    OpenClose(place: Layout) => names::OpenClose(place);
    CreateUnlink(place: Layout) => names::CreateUnlink(place);
    StatDeep => names::StatDeep;
    Rename(place: Layout) => names::Rename(place);
    CloseMany(ends: close::Ends) => close::CloseMany(ends);
    OpenHandle => handles::OpenHandle;
    MountCross => mounts::MountCross;
    BindUmount => mounts::BindUmount;
    Remount => mounts::Remount;
    Evict => evict::Evict;
    Aim(mix: aim::Mix) => aim::Aim(mix);
    DPath => paths::DPath;
    PathJobs => path_jobs::PathJobs;
    CatFds => paths::CatFds;
    Tree(walk: tree::Walk) => tree::TreeWalk(walk);
    Slob => slob::Slob;
    OrphanTruncate => sizes::OrphanTruncate;
    OrphanUnlink => orphans::OrphanUnlink;
    OrphanCut => orphans::OrphanCut;
    Touch(is_pushed: bool) => times::Touch { is_pushed };
    Many(part: many::ManyFiles) => many::Many(part);
    Bytes(part: bytes::Transfer) => bytes::Bytes(part);
    Pieces(call: pieces::PieceCall) => pieces::Pieces(call);
    Store(call: kv::StoreCall) => kv::Store(call);
    Blocks(blocks: Blocks) => blocks;
    Names(names: Names) => names;
    Filebench(personality: fxmark::Filebench) => personality;
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
const JOBS_PER_MINUTE: SourceUnit = SourceUnit { unit: "jobs/min", factor: 60.0 };

/// The unit of SLOB.
const MB_OF_REDO: SourceUnit = SourceUnit { unit: "MB/s of redo", factor: slob::REDO as f64 / 1e6 };

/// Declares the workloads: name, document, kind, unit, perhaps the document's unit, and operation.
macro_rules! workloads {
    (@unit) => { None };
    (@unit $source_unit:expr) => { Some($source_unit) };
    ($($name:literal of $source:ident, $kind:expr, $unit:literal $(as $source_unit:expr)?,
        $operation:literal;)+) => {
        /// All workloads.
        pub const ALL: &[Description] = &[$(Description {
            name: $name,
            source: $source,
            unit: $unit,
            operation: $operation,
            source_unit: workloads!(@unit $($source_unit)?),
            kind: $kind,
        },)+];
    };
}

workloads! {
    "open-close-same-dir" of PIGGIN, Kind::OpenClose(Layout::Same), "open+close",
        "open a file for reading and close it; each worker its own, all in one directory, the \
         working directory of all";
    "open-close-own-dir" of PIGGIN, Kind::OpenClose(Layout::Own), "open+close",
        "open a file for reading and close it; each worker in a working directory of its own";
    "open-close-one-file" of PIGGIN, Kind::OpenClose(Layout::Shared), "open+close",
        "open a file for reading and close it; all workers the same file";
    "create-unlink-same-dir" of PIGGIN, Kind::CreateUnlink(Layout::Same), "create+unlink",
        "create a file, close it and unlink it; each worker its own name, all in one working \
         directory";
    "create-unlink-own-dir" of PIGGIN, Kind::CreateUnlink(Layout::Own), "create+unlink",
        "create a file, close it and unlink it; each worker in a working directory of its own";
    "stat-deep" of PIGGIN, Kind::StatDeep, "stat",
        "stat one file six names deep, the same for all workers";
    "rename-same-dir" of PIGGIN, Kind::Rename(Layout::Same), "rename",
        "rename a file and, next time, back; each worker its own names, all in one directory";
    "rename-own-dir" of PIGGIN, Kind::Rename(Layout::Own), "rename",
        "rename a file between two directories of the worker's own, back and forth";
    "rename-cross-dir" of PIGGIN, Kind::Rename(Layout::Shared), "rename",
        "rename a file between two directories that all workers use, back and forth; half of \
         them begin in each";
    "close-many" of PIGGIN, Kind::CloseMany(close::Ends::Both), "descriptor",
        "make and close one end of a pipe or of a pair of sockets; each worker has 64 of both \
         open at the same time";
    "close-sockets" of PIGGIN, Kind::CloseMany(close::Ends::Sockets), "descriptor",
        "make and close one end of a pair of sockets; each worker has 128 of them open at the \
         same time";
    "mount-cross" of PIGGIN, Kind::MountCross, "stat",
        "stat one file below a mount, the same for all workers (in the library)";
    "open-handle" of PIGGIN, Kind::OpenHandle, "open+close",
        "open a file by its handle and close it; each worker 64 of its own, one after the other";
    "evict" of PIGGIN, Kind::Evict, "name",
        "look up a name and drop it from the cache; each worker 64 of its own at a time (on \
         volumes, in the library)";
    "remount" of PIGGIN, Kind::Remount, "remount",
        "make the file system read-only and then writable again; each worker has 16 files open \
         for reading (in the library)";
    "bind-umount" of PIGGIN, Kind::BindUmount, "mount+umount",
        "bind a directory to one of the worker's own and unmount it (in the library)";
    "aim-short" of LOCKREF, Kind::Aim(aim::Mix::Short), "job" as JOBS_PER_MINUTE,
        "a job of AIM7's short mix, reduced to its calls to a file system; 17 kinds, for each \
         number of --users";
    "aim-alltests" of LOCKREF, Kind::Aim(aim::Mix::Alltests), "job" as JOBS_PER_MINUTE,
        "a job of AIM7's alltests mix, of those that call a file system, as often as its work \
         file says; for each number of --users";
    "aim-five-sec" of LOCKREF, Kind::Aim(aim::Mix::FiveSec), "job" as JOBS_PER_MINUTE,
        "a job of AIM7's five_sec mix, of those that call a file system, as often as its work \
         file says; for each number of --users";
    "aim-fserver" of LOCKREF, Kind::Aim(aim::Mix::Fserver), "job" as JOBS_PER_MINUTE,
        "a job of AIM7's fserver mix, of those that call a file system, as often as its work \
         file says; for each number of --users";
    "aim-high-systime" of LOCKREF, Kind::Aim(aim::Mix::HighSystime), "job" as JOBS_PER_MINUTE,
        "a job of AIM7's high_systime mix, of those that call a file system, as often as its \
         work file says; for each number of --users";
    "aim-new-fserver" of LOCKREF, Kind::Aim(aim::Mix::NewFserver), "job" as JOBS_PER_MINUTE,
        "a job of AIM7's new_fserver mix, of those that call a file system, as often as its work \
         file says; for each number of --users";
    "aim-shared" of LOCKREF, Kind::Aim(aim::Mix::Shared), "job" as JOBS_PER_MINUTE,
        "a job of AIM7's shared mix, of those that call a file system, as often as its work file \
         says; for each number of --users";
    "d-path" of LOCKREF, Kind::DPath, "path",
        "the absolute path of an open file eight directories down, which all workers share";
    "path-jobs" of LOCKREF, Kind::PathJobs, "job",
        "open a program and its five libraries, which all workers share, tell the path of each \
         as perf does, and close them";
    "cat-fds" of LOCKREF, Kind::CatFds, "table",
        "the absolute paths of 64 open files, as the lines of /proc/PID/maps have; all workers \
         have the same files open";
    "find-size" of LOCKREF, Kind::Tree(tree::Walk::FindSize), "file",
        "a name visited by `find -size 0` in a tree; each worker walks over the whole tree";
    "git-diff" of LOCKREF, Kind::Tree(tree::Walk::GitDiff), "file",
        "a tracked file checked by `git diff`: lstat of each, and reading every fiftieth, which \
         looks modified";
    "slob" of SEQRWLOCK, Kind::Slob, "transaction" as MB_OF_REDO,
        "read, change and write a block of 8 KiB and 2 KiB of redo; every other worker only \
         reads and is not counted, so two workers have at most the rate of one";
    "orphan-truncate" of KARA, Kind::OrphanTruncate, "truncate",
        "make a file of the worker's own one byte shorter, from 4 KiB down to one byte and then \
         4 KiB again";
    "orphan-unlink" of KARA, Kind::OrphanUnlink, "orphan",
        "create a file in a directory of the worker's own, unlink it while it is open, and close \
         it";
    "orphan-cut" of KARA, Kind::OrphanCut, "truncate",
        "write 32 extents to a file of the worker's own, make them durable, and truncate it to \
         one byte, which takes a volume several transactions";
    "create-many" of CHINNER, Kind::Many(many::ManyFiles::Create), "inode",
        "create an empty file, 10,000 in a directory of the worker's own, --files for each worker";
    "remove-many" of CHINNER, Kind::Many(many::ManyFiles::Remove), "inode",
        "remove one of the files that create-many makes";
    "touch" of OWN, Kind::Touch(false), "touch",
        "set the time of the last change of a file of the worker's own (futimens): on a volume a \
         transaction of one inode, which mostly is already in the log's list";
    "push" of CHINNER, Kind::Touch(true), "push",
        "set the time of a file of the worker's own and make all changes durable (syncfs)";
    "create-many-sync" of OWN, Kind::Many(many::ManyFiles::CreateSync), "inode",
        "as create-many, and all of them made durable at the end (syncfs), which counts";
    "write-seq" of OWN, Kind::Bytes(bytes::Transfer::Write), "MiB",
        "write the next MiB of a file of the worker's own, --database bytes from an empty one, \
         with an fsync at the end, which counts";
    "read-seq" of OWN, Kind::Bytes(bytes::Transfer::Read), "MiB",
        "read the next MiB of a file of the worker's own of --database bytes, over and over";
    "append-sync" of OWN, Kind::Bytes(bytes::Transfer::Append), "append+fsync",
        "append --io-size KiB to a file of the worker's own and make it durable";
    "pwrite" of OWN, Kind::Pieces(pieces::PieceCall::Write), "pwrite",
        "overwrite the next --io-size KiB of a file of the worker's own of --database bytes, \
         over and over";
    "pread" of OWN, Kind::Pieces(pieces::PieceCall::Read), "pread",
        "read the next --io-size KiB of such a file, over and over";
    "write-truncate" of OWN, Kind::Pieces(pieces::PieceCall::Truncate), "write+truncate",
        "write --io-size KiB to an empty file of the worker's own and truncate it to nothing";
    "punch-write" of OWN, Kind::Pieces(pieces::PieceCall::Punch), "punch+write",
        "punch the next --io-size KiB out of a file of the worker's own of --database bytes and \
         write them anew";
    "kv-put" of OWN, Kind::Store(kv::StoreCall::Put), "put",
        "replace a value of 256 bytes to 4 KiB: write it to a temporary file and rename that \
         over the key's; each worker --files random keys of its own, in 1,000 directories that \
         all use";
    "kv-put-sync" of OWN, Kind::Store(kv::StoreCall::PutSync), "put",
        "as kv-put, with an fsync of the file before the rename and one of the directory after it";
    "kv-get" of OWN, Kind::Store(kv::StoreCall::Get), "get",
        "open the file of a random key, read its value, and close it; the keys of kv-put";
    "readdir-stat" of OWN, Kind::Tree(tree::Walk::ReaddirStat), "file",
        "read a name from a directory of about 25 and get its attributes; all workers walk over \
         the same tree";
    "DRBL" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Read, Sharing::Low)), "pread",
        "read the one block of a file of the worker's own";
    "DRBM" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Read, Sharing::Medium)), "pread",
        "read a block of the worker's own in one file of all";
    "DRBH" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Read, Sharing::High)), "pread",
        "read the one block of one file, the same for all workers";
    "DWOL" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Overwrite, Sharing::Low)), "pwrite",
        "overwrite the one block of a file of the worker's own";
    "DWOM" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Overwrite, Sharing::Medium)), "pwrite",
        "overwrite a block of the worker's own in one file of all";
    "DWAL" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Append, Sharing::Low)), "append",
        "append a block to a file of the worker's own, --database bytes from an empty one";
    "DWTL" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Truncate, Sharing::Low)), "truncate",
        "cut a block off a file of the worker's own, down from --database bytes on the disk";
    "DWSL" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Sync, Sharing::Low)), "pwrite+fsync",
        "overwrite the one block of a file of the worker's own and make it durable";
    "MRPL" of FXMARK, Kind::Names(Names::new(NameCall::Stat, Sharing::Low)), "stat",
        "stat a file of the worker's own, five names deep";
    "MRPM" of FXMARK, Kind::Names(Names::new(NameCall::Stat, Sharing::Medium)), "stat",
        "stat a random one of 32,768 files, five names deep, all workers the same tree";
    "MRPH" of FXMARK, Kind::Names(Names::new(NameCall::Stat, Sharing::High)), "stat",
        "stat one file five names deep, the same for all workers";
    "MRDL" of FXMARK, Kind::Names(Names::new(NameCall::List, Sharing::Low)), "entry",
        "read an entry of a directory of the worker's own with 1,000, over and over";
    "MRDM" of FXMARK, Kind::Names(Names::new(NameCall::List, Sharing::Medium)), "entry",
        "read an entry of one directory of all, with 1,000 for each worker";
    "MWCL" of FXMARK, Kind::Names(Names::new(NameCall::Create, Sharing::Low)), "create",
        "create an empty file in a directory of the worker's own, --files in a round";
    "MWCM" of FXMARK, Kind::Names(Names::new(NameCall::CreateWrite, Sharing::Medium)), "create",
        "create a file of a block in one directory of all, --files of each worker in a round";
    "MWUL" of FXMARK, Kind::Names(Names::new(NameCall::Unlink, Sharing::Low)), "unlink",
        "remove an empty file from a directory of the worker's own, --files in a round";
    "MWUM" of FXMARK, Kind::Names(Names::new(NameCall::Unlink, Sharing::Medium)), "unlink",
        "remove an empty file from one directory of all, --files of each worker in a round";
    "MWRL" of FXMARK, Kind::Names(Names::new(NameCall::Rename, Sharing::Low)), "rename",
        "give the one file in a directory of the worker's own its next name, --files in a round";
    "MWRM" of FXMARK, Kind::Names(Names::new(NameCall::Rename, Sharing::Medium)), "rename",
        "move a file from the worker's own directory to one of all, --files in a round";
    "DRBL_bg" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Read, Sharing::Low).with_writer()), "pread",
        "as DRBL, while the last worker overwrites the block of its own";
    "DRBM_bg" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Read, Sharing::Medium).with_writer()), "pread",
        "as DRBM, while the last worker overwrites the blocks of all";
    "DRBH_bg" of FXMARK, Kind::Blocks(Blocks::new(BlockCall::Read, Sharing::High).with_writer()), "pread",
        "as DRBH, while the last worker overwrites the block";
    "MRPM_bg" of FXMARK, Kind::Names(Names::new(NameCall::Stat, Sharing::Medium).with_writer()), "stat",
        "as MRPM, while the last worker makes and removes names in the tree";
    "MRDL_bg" of FXMARK, Kind::Names(Names::new(NameCall::List, Sharing::Low).with_writer()), "entry",
        "as MRDL, while the last worker makes and removes names in its own directory";
    "MRDM_bg" of FXMARK, Kind::Names(Names::new(NameCall::List, Sharing::Medium).with_writer()), "entry",
        "as MRDM, while the last worker makes and removes names in the directory";
    "varmail" of FXMARK, Kind::Filebench(fxmark::Filebench::Varmail), "flowop",
        "a call of filebench's mail server: delete, create, append, fsync, read whole files of \
         about 16 KiB, in one directory";
    "fileserver" of FXMARK, Kind::Filebench(fxmark::Filebench::Fileserver), "flowop",
        "a call of filebench's file server: create, append, read whole, delete and stat files \
         of about 128 KiB, in directories of 20";
    "webserver" of FXMARK, Kind::Filebench(fxmark::Filebench::Webserver), "flowop",
        "a call of filebench's web server: read ten whole files of about 16 KiB, and append to \
         a log of all";
}

/// Name of all workloads of [`FXMARK`] together.
const FXMARK_GROUP: &str = "fxmark";

/// Finds the workloads with a name: one, or those of FxMark by `fxmark`.
///
/// # Errors
/// As [`find`].
pub fn find_all(name: &str) -> Result<Vec<&'static Description>> {
    if name == FXMARK_GROUP {
        return Ok(ALL.iter().filter(|workload| workload.source == FXMARK).collect());
    }
    find(name).map(|workload| vec![workload])
}

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

#[cfg(test)]
mod tests;
