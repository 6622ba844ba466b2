//! Every small workload, after ACE of CrashMonkey (Mohan, Martinez, Ponnapalli, Raju, Chidambaram:
//! "Finding crash-consistency bugs with bounded black-box testing", OSDI 2018).
//!
//! A workload has one to three calls of a table, on the files `foo` and `bar` of the directories
//! `/A` and `/B` and on a directory `C` in each. After each call but the last comes nothing, or a
//! *persistence point*: `sync`, or `fsync` or `fdatasync` of a file or directory that a call so far
//! has used; after the last always one. The files that the calls need are there and durable before.
//!
//! # What differs
//!
//! * Of workloads that are alike but for the names of the two directories, or of the two files in
//!   one, there is the first only. Those in which a call fails are left out.
//! * There are no direct writes and no mappings: in this file system the first are those of the
//!   page cache, and the second are the kernel's.
//! * Their authors look at the state after the last persistence point. Here the power is cut at
//!   each write and flush from the beginning of the last call on ([`Script::first`]).

mod historic;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use vfscale::posix::RenameFlags;
use vfscale_testkit::CrashPlan;
use vfscale_testkit::calls::compound::{Compound, Space};

pub use self::historic::historic;
use crate::script::Script;
use crate::subject::Subject;
use crate::sweep::{Bounds, Summary, Sweep, SweepPlan};

/// The calls of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// All of them.
    All,
    /// Calls that change names and attributes.
    Metadata,
}

/// The directories.
const DIRS: [&str; 2] = ["/A", "/B"];
/// Number of files: two in each directory.
const FILES: u8 = 4;
/// Size of a file that is there before.
const SIZE: usize = 10_000;
/// Offset and length of writes: within a file, over its end, and behind it.
const WRITES: [(u64, usize); 3] = [(0, 5_000), (8_000, 5_000), (20_000, 3_000)];
/// Offset and length of ranges: within a file, and from there far over its end.
const RANGES: [(u64, u64); 2] = [(1_000, 6_000), (8_000, 20_000)];
const SPACES: [Space; 5] = [Space::Take, Space::Keep, Space::Punch, Space::Zero, Space::ZeroKeep];
const SIZES: [u64; 3] = [0, 5_000, 20_000];
const XATTR: &str = "user.ace";

/// A file: the number of its directory times two, and that of its name.
type File = u8;
/// The number of a directory.
type Dir = u8;

/// A call. Directories are those of the name `C` in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Create(File),
    Link(File, File),
    Symlink(File),
    Unlink(File),
    /// To a free name.
    Rename(File, File),
    /// Over another file.
    Replace(File, File),
    SetXattr(File),
    RemoveXattr(File),
    Mkdir(Dir),
    Rmdir(Dir),
    RenameDir(Dir),
    ReplaceDir(Dir),
    Truncate(File, u8),
    Write(File, u8),
    Allocate(File, u8, u8),
}

/// A persistence point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    Nothing,
    Sync,
    Fsync(File),
    Fdatasync(File),
    FsyncDir(Dir),
}

/// The way to exchange the directories, and the files in each.
#[derive(Clone, Copy, Debug)]
struct Swap {
    dirs: bool,
    files: [bool; 2],
}

impl Swap {
    fn all() -> impl Iterator<Item = Self> {
        (1..8).map(|bits| Self { dirs: bits & 4 != 0, files: [bits & 1 != 0, bits & 2 != 0] })
    }

    fn dir(self, dir: Dir) -> Dir {
        dir ^ u8::from(self.dirs)
    }

    fn file(self, file: File) -> File {
        self.dir(file / 2) * 2 + ((file % 2) ^ u8::from(self.files[usize::from(file / 2)]))
    }

    fn call(self, call: Call) -> Call {
        let (file, dir) = (|file| self.file(file), |dir| self.dir(dir));
        match call {
            Call::Create(it) => Call::Create(file(it)),
            Call::Link(old, new) => Call::Link(file(old), file(new)),
            Call::Symlink(it) => Call::Symlink(file(it)),
            Call::Unlink(it) => Call::Unlink(file(it)),
            Call::Rename(old, new) => Call::Rename(file(old), file(new)),
            Call::Replace(old, new) => Call::Replace(file(old), file(new)),
            Call::SetXattr(it) => Call::SetXattr(file(it)),
            Call::RemoveXattr(it) => Call::RemoveXattr(file(it)),
            Call::Mkdir(it) => Call::Mkdir(dir(it)),
            Call::Rmdir(it) => Call::Rmdir(dir(it)),
            Call::RenameDir(it) => Call::RenameDir(dir(it)),
            Call::ReplaceDir(it) => Call::ReplaceDir(dir(it)),
            Call::Truncate(it, size) => Call::Truncate(file(it), size),
            Call::Write(it, part) => Call::Write(file(it), part),
            Call::Allocate(it, how, range) => Call::Allocate(file(it), how, range),
        }
    }

    fn point(self, point: Point) -> Point {
        match point {
            Point::Nothing | Point::Sync => point,
            Point::Fsync(it) => Point::Fsync(self.file(it)),
            Point::Fdatasync(it) => Point::Fdatasync(self.file(it)),
            Point::FsyncDir(it) => Point::FsyncDir(self.dir(it)),
        }
    }
}

/// State of a name that a call needs: free, that of a file or directory, or of a file with an
/// attribute. Directories have the numbers behind those of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Free,
    There,
    Marked,
}

fn place(dir: Dir) -> usize {
    usize::from(FILES + dir)
}

impl Call {
    fn all(table: Table) -> Vec<Self> {
        let files = || 0..FILES;
        let pairs = || files().flat_map(move |a| files().map(move |b| (a, b)));
        let pairs = || pairs().filter(|(a, b)| a != b);
        let one = [Self::Create, Self::Symlink, Self::Unlink, Self::SetXattr, Self::RemoveXattr];
        let two = [Self::Link, Self::Rename, Self::Replace];
        let dirs = [Self::Mkdir, Self::Rmdir, Self::RenameDir, Self::ReplaceDir];
        let mut calls: Vec<Self> = one.iter().flat_map(|call| files().map(call)).collect();
        calls.extend(two.iter().flat_map(|call| pairs().map(|(a, b)| call(a, b))));
        calls.extend(dirs.iter().flat_map(|call| (0..2).map(call)));
        if table == Table::All {
            let index = |length: usize| 0..length as u8;
            for file in files() {
                calls.extend(index(SIZES.len()).map(|n| Self::Truncate(file, n)));
                calls.extend(index(WRITES.len()).map(|n| Self::Write(file, n)));
                let ranges = || index(RANGES.len());
                let spaces = index(SPACES.len());
                calls
                    .extend(spaces.flat_map(|n| ranges().map(move |r| Self::Allocate(file, n, r))));
            }
        }
        calls
    }

    fn files(self) -> Vec<File> {
        match self {
            Self::Create(it)
            | Self::Symlink(it)
            | Self::Unlink(it)
            | Self::SetXattr(it)
            | Self::RemoveXattr(it)
            | Self::Truncate(it, _)
            | Self::Write(it, _)
            | Self::Allocate(it, ..) => vec![it],
            Self::Link(old, new) | Self::Rename(old, new) | Self::Replace(old, new) => {
                vec![old, new]
            }
            Self::Mkdir(_) | Self::Rmdir(_) | Self::RenameDir(_) | Self::ReplaceDir(_) => vec![],
        }
    }

    fn dirs(self) -> Vec<Dir> {
        match self {
            Self::Mkdir(it) | Self::Rmdir(it) => vec![it],
            Self::RenameDir(_) | Self::ReplaceDir(_) => vec![0, 1],
            _ => self.files().into_iter().map(|file| file / 2).collect(),
        }
    }

    fn is_of_data(self) -> bool {
        matches!(self, Self::Truncate(..) | Self::Write(..) | Self::Allocate(..))
    }

    fn needs(self) -> Vec<(usize, Need)> {
        let at = usize::from;
        match self {
            Self::Create(it) | Self::Symlink(it) => vec![(at(it), Need::Free)],
            Self::Link(old, new) | Self::Rename(old, new) => {
                vec![(at(old), Need::There), (at(new), Need::Free)]
            }
            Self::Replace(old, new) => vec![(at(old), Need::There), (at(new), Need::There)],
            Self::RemoveXattr(it) => vec![(at(it), Need::Marked)],
            Self::Mkdir(it) => vec![(place(it), Need::Free)],
            Self::Rmdir(it) => vec![(place(it), Need::There)],
            Self::RenameDir(it) => vec![(place(it), Need::There), (place(it ^ 1), Need::Free)],
            Self::ReplaceDir(it) => vec![(place(it), Need::There), (place(it ^ 1), Need::There)],
            _ => vec![(at(self.files()[0]), Need::There)],
        }
    }

    fn compound(self, tag: u32) -> Compound {
        use Compound as C;
        let rename = |old, new| C::rename(old, new, RenameFlags::empty().bits());
        let range = |n: u8| RANGES[usize::from(n)];
        match self {
            Self::Create(it) => C::create(path(it)),
            Self::Link(old, new) => C::link(path(old), path(new)),
            Self::Symlink(it) => C::symlink("foo", path(it)),
            Self::Unlink(it) => C::unlink(path(it)),
            Self::Rename(old, new) | Self::Replace(old, new) => rename(path(old), path(new)),
            Self::SetXattr(it) => C::setxattr(path(it), XATTR, vec![b'n'; 30]),
            Self::RemoveXattr(it) => C::removexattr(path(it), XATTR),
            Self::Mkdir(it) => C::mkdir(inner(it)),
            Self::Rmdir(it) => C::rmdir(inner(it)),
            Self::RenameDir(it) | Self::ReplaceDir(it) => rename(inner(it), inner(it ^ 1)),
            Self::Truncate(it, n) => C::truncate(path(it), SIZES[usize::from(n)]),
            Self::Write(it, n) => {
                let (offset, length) = WRITES[usize::from(n)];
                C::write(path(it), offset, length, tag)
            }
            Self::Allocate(it, how, n) => {
                C::fallocate(path(it), SPACES[usize::from(how)], range(n).0, range(n).1)
            }
        }
    }
}

impl Point {
    fn compound(self) -> Option<Compound> {
        match self {
            Self::Nothing => None,
            Self::Sync => Some(Compound::sync()),
            Self::Fsync(it) => Some(Compound::fsync(path(it))),
            Self::Fdatasync(it) => Some(Compound::fdatasync(path(it))),
            Self::FsyncDir(it) => Some(Compound::fsync_dir(DIRS[usize::from(it)])),
        }
    }

    /// Returns the points that may follow these calls.
    fn after(calls: &[Call]) -> Vec<Self> {
        let mut points = vec![Self::Sync];
        for call in calls {
            points.extend(call.files().into_iter().map(Self::Fsync));
            points.extend(call.dirs().into_iter().map(Self::FsyncDir));
            if call.is_of_data() {
                points.extend(call.files().into_iter().map(Self::Fdatasync));
            }
        }
        points.sort_unstable();
        points.dedup();
        points
    }
}

fn path(file: File) -> String {
    format!("{}/{}", DIRS[usize::from(file / 2)], ["foo", "bar"][usize::from(file % 2)])
}

/// Returns the directory in a directory.
fn inner(dir: Dir) -> String {
    format!("{}/C", DIRS[usize::from(dir)])
}

/// Calls, each with the persistence point after it.
type Workload = Vec<(Call, Point)>;

/// Returns whether no exchange of names makes a workload that comes before this one.
fn is_first(workload: &[(Call, Point)]) -> bool {
    let swapped = |swap: Swap| {
        workload.iter().map(move |(call, point)| (swap.call(*call), swap.point(*point)))
    };
    Swap::all().all(|swap| swapped(swap).ge(workload.iter().copied()))
}

/// State of each name that a workload needs before its first call.
type Needs = [Option<Need>; FILES as usize + 2];

fn needs(workload: &[(Call, Point)]) -> Needs {
    let mut first = Needs::default();
    for (name, need) in workload.iter().flat_map(|(call, _)| call.needs()) {
        first[name].get_or_insert(need);
    }
    first
}

/// The names during a workload.
struct Names {
    /// The inode of each name.
    inodes: [Option<usize>; FILES as usize + 2],
    /// For each inode, whether it can have data and attributes, and whether it has one.
    kinds: Vec<(bool, bool)>,
}

impl Names {
    fn before(workload: &[(Call, Point)]) -> Self {
        let mut names = Self { inodes: Default::default(), kinds: Vec::new() };
        for (name, need) in needs(workload).into_iter().enumerate() {
            if let Some(need @ (Need::There | Need::Marked)) = need {
                names.make(name, true, need == Need::Marked);
            }
        }
        names
    }

    fn make(&mut self, name: usize, is_plain: bool, is_marked: bool) {
        self.inodes[name] = Some(self.kinds.len());
        self.kinds.push((is_plain, is_marked));
    }

    /// Returns whether a name is that of a file which can have data.
    fn is_plain(&self, name: usize) -> bool {
        self.inodes[name].is_some_and(|inode| self.kinds[inode].0)
    }

    fn is(&self, (name, need): (usize, Need)) -> bool {
        match (self.inodes[name], need) {
            (inode, Need::Free) => inode.is_none(),
            (inode, Need::There) => inode.is_some(),
            (inode, Need::Marked) => inode.is_some_and(|inode| self.kinds[inode].1),
        }
    }

    /// Makes a call. Returns false if it fails, or changes nothing.
    fn make_call(&mut self, call: Call) -> bool {
        let at = usize::from;
        let is_plain = match call {
            Call::SetXattr(it) | Call::Truncate(it, _) => self.is_plain(at(it)),
            Call::Write(it, _) | Call::Allocate(it, ..) => self.is_plain(at(it)),
            // Both names may be those of one file.
            Call::Replace(old, new) => self.inodes[at(old)] != self.inodes[at(new)],
            _ => true,
        };
        if !is_plain || !call.needs().into_iter().all(|need| self.is(need)) {
            return false;
        }
        let mut mark = |file: File, is_marked| {
            if let Some(inode) = self.inodes[at(file)] {
                self.kinds[inode].1 = is_marked;
            }
        };
        match call {
            Call::SetXattr(it) => mark(it, true),
            Call::RemoveXattr(it) => mark(it, false),
            Call::Create(it) => self.make(at(it), true, false),
            Call::Symlink(it) => self.make(at(it), false, false),
            Call::Mkdir(it) => self.make(place(it), false, false),
            Call::Unlink(it) => self.inodes[at(it)] = None,
            Call::Rmdir(it) => self.inodes[place(it)] = None,
            Call::Link(old, new) => self.inodes[at(new)] = self.inodes[at(old)],
            Call::Rename(old, new) | Call::Replace(old, new) => {
                self.inodes[at(new)] = self.inodes[at(old)].take();
            }
            Call::RenameDir(it) | Call::ReplaceDir(it) => {
                self.inodes[place(it ^ 1)] = self.inodes[place(it)].take();
            }
            Call::Truncate(..) | Call::Write(..) | Call::Allocate(..) => {}
        }
        true
    }
}

/// Returns whether all calls of a workload succeed.
fn succeeds(workload: &[(Call, Point)]) -> bool {
    let mut names = Names::before(workload);
    workload.iter().all(|(call, point)| {
        names.make_call(*call)
            && match *point {
                Point::Fsync(it) | Point::Fdatasync(it) => names.is_plain(it.into()),
                Point::Nothing | Point::Sync | Point::FsyncDir(_) => true,
            }
    })
}

/// Returns the calls that make what a workload needs, all of it durable.
fn made_before(workload: &[(Call, Point)]) -> Vec<Compound> {
    let mut made = Vec::new();
    for (name, need) in needs(workload).into_iter().enumerate() {
        if matches!(need, None | Some(Need::Free)) {
            continue;
        }
        let Some(dir) = name.checked_sub(usize::from(FILES)) else {
            let path = path(name as File);
            made.push(Compound::create(&path));
            made.push(Compound::write(&path, 0, SIZE, 1_000 + name as u32));
            if need == Some(Need::Marked) {
                made.push(Compound::setxattr(&path, XATTR, vec![b'o'; 20]));
            }
            continue;
        };
        made.push(Compound::mkdir(inner(dir as Dir)));
    }
    made.push(Compound::sync());
    made
}

fn script(workload: &[(Call, Point)]) -> Script {
    let mut ops = made_before(workload);
    let mut first = 0;
    for ((call, point), tag) in workload.iter().zip(1..) {
        first = ops.len();
        ops.push(call.compound(tag));
        ops.extend(point.compound());
    }
    Script { name: format!("{workload:?}"), ops, first }
}

/// Returns the calls that make the tree which all workloads begin with.
pub fn setup() -> Vec<Compound> {
    DIRS.map(Compound::mkdir).into()
}

/// Returns all workloads of `length` calls of a table, in the same order each time.
pub fn workloads(table: Table, length: usize) -> impl Iterator<Item = Script> {
    let calls = Call::all(table);
    // The numbers of calls and points count up as the digits of a number do.
    let count = calls.len().pow(length as u32);
    let of_number = move |number: usize| -> Vec<Call> {
        let digit = |n: usize| number / calls.len().pow(n as u32) % calls.len();
        (0..length).map(|n| calls[digit(n)]).collect()
    };
    (0..count)
        .map(of_number)
        .flat_map(with_points)
        .filter(|it| is_first(it) && succeeds(it))
        .map(|it| script(&it))
}

/// Returns the workloads with these calls.
fn with_points(calls: Vec<Call>) -> Vec<Workload> {
    let mut workloads = vec![Workload::new()];
    for (number, call) in calls.iter().enumerate() {
        let mut points = Point::after(&calls[..=number]);
        if number + 1 < calls.len() {
            points.insert(0, Point::Nothing);
        }
        let longer = |it: &Workload| {
            let it = it.clone();
            let with = |point: &Point| it.iter().copied().chain([(*call, *point)]).collect();
            points.iter().map(with).collect::<Vec<Workload>>()
        };
        workloads = workloads.iter().flat_map(longer).collect();
    }
    workloads
}

/// Sweeps workloads on as many threads as there are CPUs.
///
/// # Errors
/// If the subject can't make a device of this size.
pub fn sweep(
    subject: &dyn Subject,
    device_bytes: u64,
    workloads: impl Iterator<Item = Script> + Send,
) -> Result<Summary, String> {
    let (workloads, done) = (Mutex::new(workloads), AtomicUsize::new(0));
    let plan = SweepPlan { device_bytes, states_of_script: usize::MAX, seed: 1 };
    let next = || workloads.lock().ok().and_then(|mut all| all.next());
    let one = || {
        let crashes = CrashPlan::default().listed_max(2).samples(1).exhaustive_bits(2);
        let bounds = Bounds { setup: setup(), crashes, is_thorough: false };
        let mut sweep = Sweep::within(subject, plan, bounds)?;
        while let Some(script) = next() {
            sweep.run(&script);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(10_000) {
                println!("{done} workloads");
            }
        }
        Ok(sweep.finish())
    };
    thread::scope(|scope| {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, Result<Summary, String>>| {
            thread.join().unwrap_or_else(|_| Err("a panic, see above".into()))
        };
        threads.into_iter().map(end).sum()
    })
}

#[cfg(test)]
mod tests;
