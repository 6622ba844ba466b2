//! Snapshots of whole trees, and the times that a call updates.
//!
//! Both are written against [`Calls`], so equal calls are made on both sides in the same order, and
//! their own effects (on a symbolic link's access time) are equal too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::calls::op::{CWD, Op, PathArg, Probe, Seek, Time};
use crate::calls::outcome::{Outcome, StatView, Value};
use crate::calls::{Calls, fstat, open_path};
use crate::world::sys;

/// Size of the chunks in which contents are compared.
const PIECE: u64 = 4096;

/// Limit on the depth of a tree. Beyond it, trees are cut off equally on both sides.
const DEPTH_MAX: usize = 24;
/// Limit on the number of files of a tree.
const FILES_MAX: usize = 600;

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Node {
    pub stat: Outcome,
    /// Number of the inode: the number of its first name in the order of the snapshot.
    pub same_as: usize,
    /// Number of the device, counted in the order of the snapshot.
    pub device: usize,
    /// Target of a symbolic link, entries of a directory, or number of data chunks.
    pub content: Outcome,
    /// Non-zero chunks of a regular file: a checksum by the number of the chunk.
    pub pieces: BTreeMap<u64, u64>,
    /// Extended attributes with their values.
    pub xattrs: BTreeMap<PathArg, Outcome>,
}

/// Every file of a tree by its path.
pub type Snapshot = BTreeMap<PathArg, Node>;

/// Takes a snapshot, as root with the namespace's root.
pub fn snapshot(task: &mut dyn Calls) -> Snapshot {
    let mut walk = Walk::default();
    walk.visit(task, b"/".to_vec(), 0);
    walk.nodes
}

/// Compares two snapshots. Returns the kinds of their differences, and a description of the first
/// few.
pub fn compare(left: &Snapshot, right: &Snapshot) -> Option<(String, String)> {
    let mut lines = Vec::new();
    let mut kinds = BTreeSet::new();
    let paths: BTreeSet<_> = left.keys().chain(right.keys()).collect();
    for path in paths {
        match (left.get(path), right.get(path)) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) => lines.push(difference(path, a, b, &mut kinds)),
            (here, _) => {
                let side = if here.is_some() { "oracle" } else { "subject" };
                kinds.insert(format!("only in the {side}"));
                lines.push(format!("{path}: only in the {side}"));
            }
        }
    }
    lines.truncate(6);
    let kinds: Vec<_> = kinds.into_iter().collect();
    if lines.is_empty() { None } else { Some((kinds.join(", "), lines.join("\n"))) }
}

fn difference(path: &PathArg, a: &Node, b: &Node, kinds: &mut BTreeSet<String>) -> String {
    let mut parts = Vec::new();
    let mut part = |name: &str, equal: bool, a: String, b: String| {
        if !equal {
            kinds.insert(name.to_owned());
            parts.push(format!("  {name}\n    expected {a}\n    got      {b}"));
        }
    };
    let text = |o: &Outcome| format!("{o:?}");
    let attributes = match (a.stat.stat(), b.stat.stat()) {
        (Some(x), Some(y)) => {
            let dir = if x.mode & libc::S_IFMT == libc::S_IFDIR { " of a directory" } else { "" };
            format!("{}{dir}", x.differing(y))
        }
        _ => "attributes".to_owned(),
    };
    part(&attributes, a.stat == b.stat, text(&a.stat), text(&b.stat));
    part("content", a.content == b.content, text(&a.content), text(&b.content));
    let (x, y) = (format!("{:?}", a.pieces), format!("{:?}", b.pieces));
    part("data", a.pieces == b.pieces, x, y);
    let (x, y) = (format!("{:?}", a.xattrs), format!("{:?}", b.xattrs));
    part("xattrs", a.xattrs == b.xattrs, x, y);
    part("inode", a.same_as == b.same_as, a.same_as.to_string(), b.same_as.to_string());
    part("device", a.device == b.device, a.device.to_string(), b.device.to_string());
    format!("{path}:\n{}", parts.join("\n"))
}

#[derive(Default)]
struct Walk {
    nodes: Snapshot,
    inodes: BTreeMap<(u64, u64), usize>,
    devices: BTreeMap<u64, usize>,
}

impl Walk {
    fn visit(&mut self, task: &mut dyn Calls, path: Vec<u8>, depth: usize) {
        if depth > DEPTH_MAX || self.nodes.len() >= FILES_MAX {
            return;
        }
        let stat = lstat(task, &path);
        let (mode, size) = stat.stat().map_or((0, 0), |s| (s.mode, s.size));
        let number = self.nodes.len();
        let mut node = Node {
            same_as: number,
            device: 0,
            content: Outcome::Skip,
            pieces: BTreeMap::new(),
            xattrs: xattrs(task, &path),
            stat,
        };
        if let Some(stat) = node.stat.stat() {
            node.same_as = *self.inodes.entry((stat.dev.0, stat.ino.0)).or_insert(number);
            let devices = self.devices.len();
            node.device = *self.devices.entry(stat.dev.0).or_insert(devices);
        }
        let mut children = Vec::new();
        match mode & libc::S_IFMT {
            libc::S_IFLNK => {
                node.content = task.call(&Op::Readlink { at: CWD, path: PathArg(path.clone()) })
            }
            libc::S_IFREG if node.same_as == number => {
                (node.content, node.pieces) = data(task, &path, size);
            }
            libc::S_IFDIR => {
                node.content = list(task, &path);
                children = below(&path, &node.content);
            }
            _ => {}
        }
        self.nodes.insert(PathArg(path), node);
        children.into_iter().for_each(|child| self.visit(task, child, depth + 1));
    }
}

fn lstat(task: &mut dyn Calls, path: &[u8]) -> Outcome {
    let flags = libc::AT_SYMLINK_NOFOLLOW as u32;
    task.call(&Op::Stat { at: CWD, path: PathArg(path.to_vec()), flags })
}

fn open(task: &mut dyn Calls, path: &[u8]) -> Result<i32, Outcome> {
    let flags = (libc::O_RDONLY | libc::O_NOATIME | libc::O_NONBLOCK | libc::O_NOFOLLOW) as u32;
    let outcome = task.call(&Op::Open { at: CWD, path: PathArg(path.to_vec()), flags, mode: 0 });
    outcome.number().map(|fd| fd as i32).ok_or(outcome)
}

fn list(task: &mut dyn Calls, path: &[u8]) -> Outcome {
    let fd = match open(task, path) {
        Ok(fd) => fd,
        Err(outcome) => return outcome,
    };
    let entries = task.call(&Op::ReadDir { fd });
    task.call(&Op::Close { fd });
    entries
}

/// Returns the paths of the entries of the directory at `path`, without `.` and `..`.
fn below(path: &[u8], listed: &Outcome) -> Vec<Vec<u8>> {
    let Outcome::Ok(Value::Entries(entries)) = listed else { return Vec::new() };
    let dir = path.strip_suffix(b"/").unwrap_or(path);
    let names = entries.iter().map(|(name, _)| &name.0[..]);
    let names = names.filter(|name| !matches!(*name, b"." | b".."));
    names.map(|name| [dir, b"/", name].concat()).collect()
}

/// Reads the chunks that are not all zero. A file system may store parts of a hole; they must read
/// as zeros.
fn data(task: &mut dyn Calls, path: &[u8], size: u64) -> (Outcome, BTreeMap<u64, u64>) {
    let mut pieces = BTreeMap::new();
    let fd = match open(task, path) {
        Ok(fd) => fd,
        Err(outcome) => return (outcome, pieces),
    };
    let mut at = 0;
    let mut end = Outcome::Ok(Value::Unit);
    while at < size {
        let data = task.call(&Op::Lseek { fd, whence: Seek::Data, off: at as i64 });
        let Some(start) = data.number() else {
            end = data;
            break;
        };
        let hole = task.call(&Op::Lseek { fd, whence: Seek::Hole, off: start });
        let Some(stop) = hole.number() else {
            end = hole;
            break;
        };
        let mut piece = start as u64 / PIECE;
        while piece * PIECE < stop as u64 {
            let read = task.call(&Op::Pread { fd, len: PIECE as u32, off: piece * PIECE });
            if let Outcome::Ok(Value::Bytes(bytes)) = read
                && bytes.iter().any(|&b| b != 0)
            {
                pieces.insert(piece, sum(&bytes));
            }
            piece += 1;
        }
        at = stop as u64;
    }
    task.call(&Op::Close { fd });
    if end == Outcome::Err(libc::ENXIO) {
        end = Outcome::Ok(Value::Unit);
    }
    (end, pieces)
}

/// Returns the FNV-1a hash of the bytes, without the zeros at the end (a last chunk may be cut off
/// after data or hole).
fn sum(bytes: &[u8]) -> u64 {
    let len = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    bytes[..len].iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn xattrs(task: &mut dyn Calls, path: &[u8]) -> BTreeMap<PathArg, Outcome> {
    let flags = libc::AT_SYMLINK_NOFOLLOW as u32;
    let path = PathArg(path.to_vec());
    let mut all = BTreeMap::new();
    match task.call(&Op::Listxattr { at: CWD, path: path.clone(), flags }) {
        Outcome::Ok(Value::Names(names)) => {
            for name in names {
                let op = Op::Getxattr { at: CWD, path: path.clone(), name: name.clone(), flags };
                all.insert(name, task.call(&op));
            }
        }
        other => {
            all.insert(PathArg::default(), other);
        }
    }
    all
}

/// A watched file.
pub struct Watched {
    /// Path of the file when the watch began.
    pub path: PathArg,
    fd: i32,
    before: StatView,
}

/// The times of a file that a call updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Path of the file when the watch began.
    pub path: PathArg,
    /// Whether access, modification and change time were updated, or the error of reading them.
    pub times: Result<[bool; 3], Outcome>,
}

/// Sets the times of every file to known values and holds a descriptor of each.
pub fn watch(task: &mut dyn Calls, probe: Probe) -> Vec<Watched> {
    let mut paths = Vec::new();
    collect(task, b"/".to_vec(), 0, &mut paths);
    let (atime, mtime) = match probe {
        Probe::Past => (Time::At(1_000_000, 1), Time::At(2_000_000, 2)),
        Probe::Future => (Time::At(5_000_000_000, 3), Time::At(2_000_000, 4)),
    };
    let mut watched = Vec::new();
    for path in paths {
        let path = PathArg(path);
        let Some(fd) = open_path(task, &path.0) else { continue };
        let flags = libc::AT_EMPTY_PATH as u32;
        task.call(&Op::Utimens { at: fd, path: PathArg::default(), atime, mtime, flags });
        match fstat(task, fd) {
            Outcome::Ok(Value::Stat(before)) => {
                watched.push(Watched { path, fd, before: *before });
            }
            _ => {
                task.call(&Op::Close { fd });
            }
        }
    }
    watched
}

/// Waits until the clock has passed the change times of all watched files. A file system that
/// stamps files with clock ticks could not show a change before that.
pub fn wait_for_tick(watched: &[&[Watched]]) {
    let all = watched.iter().copied().flatten();
    let last = all.map(|w| w.before.ctime_exact.0).max().unwrap_or_default();
    while sys::clock_coarse().is_ok_and(|now| now <= last) {
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Returns the times that were updated since the watch began, and ends the watch.
pub fn moved(task: &mut dyn Calls, watched: Vec<Watched>) -> Vec<Moved> {
    let mut all = Vec::new();
    for Watched { path, fd, before } in watched {
        let after = fstat(task, fd);
        let times = match after.stat() {
            Some(after) => Ok([
                before.atime != after.atime,
                before.mtime != after.mtime,
                before.ctime_exact.0 != after.ctime_exact.0,
            ]),
            None => Err(after.clone()),
        };
        task.call(&Op::Close { fd });
        all.push(Moved { path, times });
    }
    all
}

fn collect(task: &mut dyn Calls, path: Vec<u8>, depth: usize, paths: &mut Vec<Vec<u8>>) {
    if depth > DEPTH_MAX || paths.len() >= FILES_MAX {
        return;
    }
    let stat = lstat(task, &path);
    if stat.stat().is_some_and(|s| s.mode & libc::S_IFMT == libc::S_IFDIR) {
        let listed = list(task, &path);
        let children = below(&path, &listed).into_iter();
        children.for_each(|child| collect(task, child, depth + 1, paths));
    }
    paths.push(path);
}
