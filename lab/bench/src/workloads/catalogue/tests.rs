//! Tests that each workload detects a broken file system.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vfscale::posix::OFlags;
use vfscale::{FileType, Result, Scaling};

use super::*;
use crate::base::interrupt::Interrupt;
use crate::measure::player::Timing;
use crate::targets::memory::Memory;
use crate::targets::path::Directory;
use crate::targets::volume::Image;
use crate::targets::{Calls, Meta};

/// The bug of a broken file system, active once the files are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Reports success of `unlink`, but leaves the name.
    UnlinkDoesNothing,
    /// Reports success of `rename`, but leaves the old name.
    RenameDoesNothing,
    /// Links the new name of `rename`, but does not remove the old one.
    RenameCopies,
    /// Opens the directory instead of the file.
    OpensSomethingElse,
    /// Opens a file that does not exist.
    OpensAnything,
    /// Returns a size that is one byte off.
    StatLies,
    /// Lists nothing.
    ListsNothing,
    /// Leaves a file behind at the first create.
    Litters,
    /// Reports success of `ftruncate`, but leaves the size.
    TruncateDoesNothing,
    /// Reports success of `fallocate` that punches a hole, but leaves the bytes.
    PunchDoesNothing,
    /// Reports success of `futimens`, but leaves the time.
    TouchDoesNothing,
    /// Reports success of `pwrite`, but writes nothing.
    WritesNothing,
    /// Reads nothing, as at the end of a file.
    ReadsNothing,
    /// Omits the last letter of a path.
    PathIsShort,
    /// Opens the same file for every pipe.
    PipesAreOne,
    /// Opens the directory instead of the file of a handle.
    HandleOpensSomethingElse,
    /// Reports success of a mount, but mounts nothing.
    BindDoesNothing,
    /// Reports success of `umount`, but leaves the mount.
    UmountDoesNothing,
    /// Reports success of a remount, but leaves the flags.
    RemountDoesNothing,
    /// Drops no name from the cache.
    EvictsNothing,
    /// Reports that all bytes were sent through a pipe, but sends none.
    PassesNothing,
}

impl Bug {
    /// Returns whether the bug is active before the first round.
    fn is_early(self) -> bool {
        matches!(self, Bug::BindDoesNothing | Bug::OpensSomethingElse)
    }
}

/// A target that works except for the bug.
#[derive(Clone)]
struct Broken<T> {
    target: T,
    bug: Bug,
    armed: Arc<AtomicBool>,
}

struct BrokenCalls<C> {
    calls: C,
    bug: Bug,
    armed: Arc<AtomicBool>,
}

impl<C: Calls> BrokenCalls<C> {
    fn has(&self, bug: Bug) -> bool {
        self.bug == bug && self.armed.load(Ordering::Relaxed)
    }

    fn lie(&self, mut meta: Meta) -> Meta {
        meta.size += u64::from(self.has(Bug::StatLies));
        meta
    }
}

impl<T: Target> Target for Broken<T> {
    type Calls = BrokenCalls<T::Calls>;

    fn enter(&self) -> Outcome<BrokenCalls<T::Calls>> {
        let armed = Arc::clone(&self.armed);
        Ok(BrokenCalls { calls: self.target.enter()?, bug: self.bug, armed })
    }
}

impl<C: Calls> Calls for BrokenCalls<C> {
    type File = C::File;
    type Handle = C::Handle;

    fn chdir(&mut self, path: &CStr) -> Result<()> {
        self.calls.chdir(path)
    }
    fn open(&self, path: &CStr, flags: OFlags) -> Result<Self::File> {
        if self.has(Bug::OpensSomethingElse) {
            return self.calls.open(c".", OFlags::RDONLY);
        }
        if self.has(Bug::Litters) && flags.contains(OFlags::CREATE) {
            drop(self.calls.open(c"litter", OFlags::CREATE | OFlags::WRONLY)?);
        }
        match self.calls.open(path, flags) {
            Err(_) if self.has(Bug::OpensAnything) => self.calls.open(c".", OFlags::RDONLY),
            other => other,
        }
    }
    fn mkdir(&self, path: &CStr) -> Result<()> {
        self.calls.mkdir(path)
    }
    fn unlink(&self, path: &CStr) -> Result<()> {
        if self.has(Bug::UnlinkDoesNothing) { Ok(()) } else { self.calls.unlink(path) }
    }
    fn rmdir(&self, path: &CStr) -> Result<()> {
        self.calls.rmdir(path)
    }
    fn rename(&self, old: &CStr, new: &CStr) -> Result<()> {
        match () {
            () if self.has(Bug::RenameDoesNothing) => Ok(()),
            () if self.has(Bug::RenameCopies) => {
                // The second time the name exists already.
                let _ = self.calls.link(old, new);
                Ok(())
            }
            () => self.calls.rename(old, new),
        }
    }
    fn link(&self, old: &CStr, new: &CStr) -> Result<()> {
        self.calls.link(old, new)
    }
    fn stat(&self, path: &CStr) -> Result<Meta> {
        self.calls.stat(path).map(|meta| self.lie(meta))
    }
    fn lstat(&self, path: &CStr) -> Result<Meta> {
        self.calls.lstat(path).map(|meta| self.lie(meta))
    }
    fn fstat(&self, file: &Self::File) -> Result<Meta> {
        self.calls.fstat(file).map(|meta| self.lie(meta))
    }
    fn pread(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> Result<usize> {
        if self.has(Bug::ReadsNothing) { Ok(0) } else { self.calls.pread(file, buf, offset) }
    }
    fn pwrite(&self, file: &Self::File, buf: &[u8], offset: u64) -> Result<usize> {
        if self.has(Bug::WritesNothing) {
            return Ok(buf.len());
        }
        self.calls.pwrite(file, buf, offset)
    }
    fn read(&self, file: &Self::File, buf: &mut [u8]) -> Result<usize> {
        if self.has(Bug::PassesNothing) { Ok(0) } else { self.calls.read(file, buf) }
    }
    fn write(&self, file: &Self::File, buf: &[u8]) -> Result<usize> {
        if self.has(Bug::PassesNothing) { Ok(buf.len()) } else { self.calls.write(file, buf) }
    }
    fn truncate(&self, file: &Self::File, size: u64) -> Result<()> {
        if self.has(Bug::TruncateDoesNothing) {
            return Ok(());
        }
        self.calls.truncate(file, size)
    }
    fn punch(&self, file: &Self::File, offset: u64, len: u64) -> Result<()> {
        if self.has(Bug::PunchDoesNothing) {
            return Ok(());
        }
        self.calls.punch(file, offset, len)
    }
    fn touch(&self, file: &Self::File, mtime: i64) -> Result<()> {
        if self.has(Bug::TouchDoesNothing) { Ok(()) } else { self.calls.touch(file, mtime) }
    }
    fn sync(&self, file: &Self::File) -> Result<()> {
        self.calls.sync(file)
    }
    fn sync_fs(&self, file: &Self::File) -> Result<()> {
        self.calls.sync_fs(file)
    }
    fn list(&self, path: &CStr, each: impl FnMut(&CStr, FileType)) -> Result<()> {
        if self.has(Bug::ListsNothing) { Ok(()) } else { self.calls.list(path, each) }
    }
    fn path_of(&self, file: &Self::File, buf: &mut Vec<u8>) -> Result<()> {
        self.calls.path_of(file, buf)?;
        if self.has(Bug::PathIsShort) {
            buf.pop();
        }
        Ok(())
    }
    fn pipe(&self) -> Outcome<(Self::File, Self::File)> {
        match self.has(Bug::PipesAreOne) {
            true => Ok((self.open(c".", OFlags::RDONLY)?, self.open(c".", OFlags::RDONLY)?)),
            false => self.calls.pipe(),
        }
    }
    fn socket_pair(&self) -> Outcome<(Self::File, Self::File)> {
        match self.has(Bug::PipesAreOne) {
            true => Ok((self.open(c".", OFlags::RDONLY)?, self.open(c".", OFlags::RDONLY)?)),
            false => self.calls.socket_pair(),
        }
    }
    fn handle(&self, path: &CStr) -> Outcome<Self::Handle> {
        self.calls.handle(path)
    }
    fn open_handle(&self, handle: &Self::Handle, flags: OFlags) -> Outcome<Self::File> {
        match self.has(Bug::HandleOpensSomethingElse) {
            true => Ok(self.calls.open(c".", OFlags::RDONLY)?),
            false => self.calls.open_handle(handle, flags),
        }
    }
    fn bind(&self, source: &CStr, target: &CStr) -> Outcome<()> {
        if self.has(Bug::BindDoesNothing) { Ok(()) } else { self.calls.bind(source, target) }
    }
    fn umount(&self, target: &CStr) -> Outcome<()> {
        if self.has(Bug::UmountDoesNothing) { Ok(()) } else { self.calls.umount(target) }
    }
    fn remount(&self, read_only: bool) -> Outcome<()> {
        if self.has(Bug::RemountDoesNothing) { Ok(()) } else { self.calls.remount(read_only) }
    }
    fn drop_cached(&self, dir: &CStr) -> Outcome<u64> {
        if self.has(Bug::EvictsNothing) { Ok(0) } else { self.calls.drop_cached(dir) }
    }
}

/// Runs a workload with two workers, one after the other, on a file system with a bug.
fn play_on<T: Target>(workload: &Description, target: T, bug: Bug) -> Outcome<()> {
    let target = Broken { target, bug, armed: Arc::default() };
    let scene = Scene {
        workers: 2,
        readers: None,
        users: 4,
        files: 50,
        database: 1 << 20,
        io_size: 64 << 10,
        tree: None,
        random_seed: 1,
    };
    // Directories are mounted before the first round, and files may be opened.
    target.armed.store(bug == Bug::BindDoesNothing, Ordering::Relaxed);
    prepare(workload.kind, &target, &scene)?;
    target.armed.store(bug.is_early(), Ordering::Relaxed);
    let workers = (0..2).map(|worker| actor(workload.kind, &target, &scene, worker));
    let mut workers = workers.collect::<Outcome<Vec<_>>>()?;
    target.armed.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let mut ops = 0;
        for worker in &mut workers {
            worker.begin()?;
            ops += worker.go(0, 500_000, Timing::Throughput, &Interrupt::new())?.ops;
        }
        assert!(ops > 0 || bug != Bug::None, "{}", workload.name);
        for worker in &mut workers {
            worker.end()?;
        }
    }
    drop(workers);
    inspect(workload.kind, &target, &scene)
}

/// Runs a workload on a file system in memory with a bug; on a volume if the workload needs names
/// that can be dropped. Workloads that build paths also run in a directory, where the kernel builds
/// them and all workers share one working directory.
fn play(workload: &Description, bug: Bug) -> Outcome<()> {
    if workload.kind == Kind::Evict {
        let dir = tempfile::tempdir().unwrap();
        let image = Image::open(&dir.path().join("image.vfs"), Scaling::default()).unwrap();
        return play_on(workload, image.case()?, bug);
    }
    let played = play_on(workload, Memory::new(Scaling::default())?, bug);
    let builds_paths = matches!(workload.kind, Kind::CatFds | Kind::PathJobs);
    if !builds_paths || (played.is_err() && bug == Bug::None) {
        return played;
    }
    assert!(played.is_err() || bug == Bug::None, "{} in memory with {bug:?}", workload.name);
    let dir = tempfile::tempdir().unwrap();
    let target = Directory::of_parent(dir.path().to_owned());
    // The working directory of the thread changes.
    std::thread::scope(|scope| scope.spawn(|| play_on(workload, target, bug)).join().unwrap())
}

/// Returns the bugs that a mix of AIM7 must detect.
fn noticed_in_mix(mix: aim::Mix) -> &'static [Bug] {
    use Bug::*;
    match mix {
        aim::Mix::FiveSec => {
            &[UnlinkDoesNothing, ListsNothing, WritesNothing, ReadsNothing, OpensSomethingElse]
        }
        aim::Mix::Fserver | aim::Mix::NewFserver | aim::Mix::Shared => &[
            UnlinkDoesNothing,
            ListsNothing,
            WritesNothing,
            ReadsNothing,
            OpensSomethingElse,
            PassesNothing,
        ],
        aim::Mix::HighSystime | aim::Mix::Alltests => &[
            UnlinkDoesNothing,
            RenameDoesNothing,
            ListsNothing,
            ReadsNothing,
            OpensSomethingElse,
            PassesNothing,
        ],
        aim::Mix::Short => &[
            UnlinkDoesNothing,
            RenameDoesNothing,
            ListsNothing,
            WritesNothing,
            ReadsNothing,
            OpensSomethingElse,
        ],
    }
}

/// Returns the bugs that a microbenchmark of blocks must detect.
fn noticed_in_blocks(call: BlockCall) -> &'static [Bug] {
    use Bug::*;
    match call {
        BlockCall::Read => &[ReadsNothing],
        BlockCall::Overwrite | BlockCall::Sync => &[WritesNothing, ReadsNothing],
        BlockCall::Append => &[WritesNothing, ReadsNothing, StatLies],
        BlockCall::Truncate => &[TruncateDoesNothing, WritesNothing, StatLies],
    }
}

/// Returns the bugs that a microbenchmark of names must detect.
fn noticed_in_names(call: NameCall) -> &'static [Bug] {
    use Bug::*;
    match call {
        NameCall::Stat => &[StatLies, ListsNothing],
        NameCall::List => &[ListsNothing],
        NameCall::Create => &[UnlinkDoesNothing, OpensSomethingElse, StatLies, Litters],
        NameCall::CreateWrite => &[UnlinkDoesNothing, WritesNothing, StatLies, Litters],
        NameCall::Unlink => &[UnlinkDoesNothing, OpensSomethingElse, Litters],
        NameCall::Rename => &[RenameDoesNothing, RenameCopies, UnlinkDoesNothing],
        NameCall::Change => &[],
    }
}

/// Returns the bugs that a personality of filebench must detect.
fn noticed_in_filebench(personality: fxmark::Filebench) -> &'static [Bug] {
    use Bug::*;
    match personality {
        fxmark::Filebench::Webserver => &[ReadsNothing, PassesNothing, StatLies, ListsNothing],
        _ => &[UnlinkDoesNothing, WritesNothing, ReadsNothing, OpensSomethingElse, StatLies],
    }
}

/// Returns the bugs that a workload must detect.
fn noticed(kind: Kind) -> &'static [Bug] {
    use Bug::*;
    match kind {
        Kind::OpenClose(_) => &[OpensSomethingElse, OpensAnything, ListsNothing],
        Kind::CreateUnlink(Layout::Own) => {
            &[UnlinkDoesNothing, OpensSomethingElse, StatLies, Litters]
        }
        Kind::CreateUnlink(_) => &[UnlinkDoesNothing, OpensSomethingElse, ListsNothing, Litters],
        Kind::StatDeep => &[StatLies, OpensSomethingElse],
        Kind::Rename(_) => &[RenameDoesNothing, RenameCopies, ListsNothing],
        Kind::CloseMany(_) => &[PipesAreOne],
        Kind::OpenHandle => &[HandleOpensSomethingElse, ReadsNothing, ListsNothing],
        Kind::MountCross => &[BindDoesNothing, UmountDoesNothing, StatLies],
        Kind::BindUmount => &[BindDoesNothing, UmountDoesNothing, ListsNothing],
        Kind::Remount => &[RemountDoesNothing, ListsNothing],
        Kind::Evict => &[EvictsNothing, StatLies, ListsNothing],
        Kind::CatFds => &[PathIsShort, OpensSomethingElse, ListsNothing],
        Kind::PathJobs => &[PathIsShort, OpensSomethingElse, ListsNothing],
        Kind::Aim(mix) => noticed_in_mix(mix),
        Kind::DPath => &[PathIsShort, ListsNothing],
        Kind::Tree(tree::Walk::FindSize) => &[StatLies, ListsNothing],
        Kind::Tree(tree::Walk::GitDiff) => &[StatLies, ReadsNothing, OpensSomethingElse],
        Kind::Tree(tree::Walk::ReaddirStat) => &[ListsNothing],
        Kind::Slob => &[WritesNothing, ReadsNothing, PathIsShort, StatLies],
        Kind::OrphanTruncate => &[TruncateDoesNothing, StatLies, ReadsNothing],
        Kind::OrphanUnlink => {
            &[UnlinkDoesNothing, OpensSomethingElse, StatLies, WritesNothing, ReadsNothing, Litters]
        }
        Kind::OrphanCut => &[TruncateDoesNothing, StatLies, WritesNothing, ListsNothing],
        Kind::Touch { .. } => &[TouchDoesNothing, ListsNothing],
        Kind::Many(_) => &[UnlinkDoesNothing, ListsNothing, OpensSomethingElse],
        Kind::Bytes(bytes::Transfer::Read) => &[ReadsNothing],
        Kind::Bytes(_) => &[WritesNothing, ReadsNothing, StatLies],
        Kind::Pieces(pieces::PieceCall::Read) => &[ReadsNothing],
        Kind::Pieces(pieces::PieceCall::Write) => &[WritesNothing, ReadsNothing, StatLies],
        Kind::Pieces(pieces::PieceCall::Truncate) => {
            &[TruncateDoesNothing, WritesNothing, ReadsNothing, StatLies]
        }
        Kind::Pieces(pieces::PieceCall::Punch) => {
            &[PunchDoesNothing, WritesNothing, ReadsNothing, StatLies]
        }
        Kind::Store(kv::StoreCall::Get) => &[ReadsNothing, OpensSomethingElse, ListsNothing],
        Kind::Blocks(blocks) => noticed_in_blocks(blocks.call),
        Kind::Names(names) => noticed_in_names(names.call),
        Kind::Filebench(personality) => noticed_in_filebench(personality),
        Kind::Store(_) => &[
            RenameDoesNothing,
            RenameCopies,
            WritesNothing,
            OpensSomethingElse,
            ListsNothing,
            Litters,
        ],
    }
}

#[test]
fn every_workload_passes_on_a_file_system_that_works() {
    for workload in ALL {
        if let Err(fault) = play(workload, Bug::None) {
            panic!("{}: {fault}", workload.name);
        }
    }
}

#[test]
fn every_workload_notices_a_file_system_that_is_broken() {
    for workload in ALL {
        for bug in noticed(workload.kind) {
            assert!(play(workload, *bug).is_err(), "{} does not notice {bug:?}", workload.name);
        }
    }
}

#[test]
fn names_are_found_and_near_ones_proposed() {
    for workload in ALL {
        assert_eq!(find(workload.name).unwrap().name, workload.name);
    }
    let near = |name: &str| match find(name) {
        Err(Error::UnknownWorkload { nearest, .. }) => nearest,
        _ => panic!("{name} exists"),
    };
    assert_eq!(near("stat-depe"), Some("stat-deep"));
    assert_eq!(near("open-close-samedir"), Some("open-close-same-dir"));
    assert_eq!(near("xyzzy"), None);
    let message = find("stat-depe").unwrap_err().to_string();
    assert!(message.contains("did you mean `stat-deep`?") && message.contains("rename-own-dir"));
}

#[test]
fn distances_of_words() {
    let cases = [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("same", "same", 0)];
    for (a, b, edits) in cases {
        assert_eq!(distance(a, b), edits, "{a} {b}");
    }
}
