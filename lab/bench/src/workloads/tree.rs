//! Walks over a tree of files: `find -size 0` and `git diff`, as measured by Long (2013), and
//! reading of directories.
//!
//! The tree is a copy of the named one, its directories and regular files, or a generated one: 40
//! directories with 25 files each, of 0 to 8 KiB, every tenth of them empty.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vfscale::posix::OFlags;

use super::expect::{expect_equal, write_file};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::base::stats::Rng;
use crate::measure::work::Work;
use crate::targets::{Calls, Meta, name};

const DIRS: usize = 40;
const FILES_PER_DIR: usize = 25;
const SIZE_MAX: u64 = 8 << 10;

/// Root directory of the tree.
const ROOT: &CStr = c"tree";

/// The kind of walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    FindSize,
    GitDiff,
    ReaddirStat,
}

pub(super) struct TreeWalk(pub(super) Walk);

/// The contents of the tree.
#[derive(Default)]
struct Contents {
    /// Directories, parents first.
    dirs: Vec<CString>,
    /// Regular files with their attributes, sorted by path.
    files: Vec<(CString, Meta)>,
}

fn joined(dir: &CStr, entry: &CStr) -> CString {
    let mut path = dir.to_bytes().to_vec();
    path.push(b'/');
    path.extend_from_slice(entry.to_bytes());
    // Neither contained a NUL.
    CString::new(path).unwrap_or_default()
}

/// Paths in memory that a walk uses again. The allocator would else take a third of its time.
#[derive(Default)]
struct Paths {
    /// The paths, each with its NUL.
    bytes: Vec<u8>,
    /// Where each path begins.
    begins: Vec<usize>,
}

impl Paths {
    fn clear(&mut self) {
        self.bytes.clear();
        self.begins.clear();
    }

    /// Adds a path in pieces.
    fn push(&mut self, pieces: &[&[u8]]) {
        self.begins.push(self.bytes.len());
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        self.bytes.push(0);
    }

    fn get(&self, index: usize) -> Option<&CStr> {
        let begin = *self.begins.get(index)?;
        // No piece contained a NUL.
        CStr::from_bytes_until_nul(&self.bytes[begin..]).ok()
    }

    /// Replaces the paths by those of all entries of a directory.
    fn list<C: Calls>(&mut self, calls: &C, dir: &CStr) -> Outcome<()> {
        self.clear();
        calls.list(dir, |entry, _| self.push(&[dir.to_bytes(), b"/", entry.to_bytes()]))?;
        Ok(())
    }
}

impl Contents {
    /// Lists the contents by walking over the tree.
    fn of<C: Calls>(calls: &C) -> Outcome<Contents> {
        let mut contents = Contents { dirs: vec![ROOT.to_owned()], files: vec![] };
        let mut next = 0;
        while let Some(dir) = contents.dirs.get(next).cloned() {
            let mut names = Vec::new();
            calls.list(&dir, |entry, _| names.push(joined(&dir, entry)))?;
            for path in names {
                let meta = calls.lstat(&path)?;
                if meta.file_type.is_dir() {
                    contents.dirs.push(path);
                } else {
                    contents.files.push((path, meta));
                }
            }
            next += 1;
        }
        contents.files.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(contents)
    }

    fn entries(&self) -> u64 {
        // All but the root are in some directory.
        (self.dirs.len() - 1 + self.files.len()) as u64
    }
}

/// Copies a real tree, without links and devices.
fn copy<C: Calls>(calls: &C, from: &Path, to: &CStr) -> Outcome<()> {
    let unreadable = |e: std::io::Error| {
        Fault::unsupported(format!("--tree: cannot read {}: {e}", from.display()))
    };
    calls.mkdir(to)?;
    for entry in std::fs::read_dir(from).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let file_name = CString::new(entry.file_name().as_bytes()).unwrap_or_default();
        let path = joined(to, &file_name);
        let kind = entry.file_type().map_err(unreadable)?;
        if kind.is_dir() {
            copy(calls, &entry.path(), &path)?;
        } else if kind.is_file() {
            write_file(calls, &path, &std::fs::read(entry.path()).map_err(unreadable)?)?;
        }
    }
    Ok(())
}

fn make_up<C: Calls>(calls: &C, random_seed: u64) -> Outcome<()> {
    let mut rng = Rng::new(random_seed);
    calls.mkdir(ROOT)?;
    for dir in 0..DIRS {
        // Every fourth directory contains the three after it.
        let path = match dir % 4 {
            0 => format!("tree/d{dir}"),
            _ => format!("tree/d{}/d{dir}", dir - dir % 4),
        };
        calls.mkdir(&name(path.as_str()))?;
        for file in 0..FILES_PER_DIR {
            let size = if file % 10 == 0 { 0 } else { 1 + rng.below(SIZE_MAX) };
            let bytes: Vec<u8> = (0..size).map(|_| rng.next_u64() as u8).collect();
            write_file(calls, &name(format!("{path}/f{file}")), &bytes)?;
        }
    }
    Ok(())
}

/// Returns a checksum of a file's bytes (FNV-1a, 64 bits).
fn checksum<C: Calls>(calls: &C, path: &CStr, buf: &mut [u8]) -> Outcome<u64> {
    let file = calls.open(path, OFlags::RDONLY)?;
    let (mut sum, mut offset) = (0xcbf2_9ce4_8422_2325_u64, 0);
    loop {
        let n = calls.pread(&file, buf, offset)?;
        if n == 0 {
            return Ok(sum);
        }
        offset += n as u64;
        for byte in &buf[..n] {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Workload for TreeWalk {
    type Work<C: Calls> = TreeWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        match &scene.tree {
            Some(from) => copy(calls, from, ROOT)?,
            None => make_up(calls, scene.random_seed)?,
        }
        if Contents::of(calls)?.files.is_empty() {
            return Err(Fault::unsupported("--tree: it contains no file"));
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<TreeWork<C>> {
        let contents = Contents::of(&calls)?;
        let mut buf = vec![0; 64 << 10];
        let mut index = Vec::new();
        if self.0 == Walk::GitDiff {
            for (n, (path, meta)) in contents.files.iter().enumerate() {
                // Every fiftieth looks modified.
                let dirty = n % 50 == 7 % contents.files.len();
                let mut meta = *meta;
                meta.mtime -= i64::from(dirty);
                let sum = if dirty { checksum(&calls, path, &mut buf)? } else { 0 };
                index.push(Tracked { path: path.clone(), meta, sum });
            }
        }
        let next = worker * contents.dirs.len() / scene.workers.max(1);
        let empty = contents.files.iter().filter(|(_, meta)| meta.size == 0).count() as u64;
        let (dirs, names) = (Paths::default(), Paths::default());
        let (walk, found) = (self.0, empty);
        Ok(TreeWork { calls, walk, contents, index, next, empty, found, buf, dirs, names })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        let contents = Contents::of(calls)?;
        if scene.tree.is_none() {
            let due = DIRS + DIRS * FILES_PER_DIR;
            expect_equal("the number of names in the tree", contents.entries(), due as u64)?;
        }
        Ok(())
    }
}

/// A file in git's index, with the attributes recorded there.
struct Tracked {
    path: CString,
    meta: Meta,
    /// Checksum of the committed contents, if the file looks modified.
    sum: u64,
}

pub(super) struct TreeWork<C> {
    calls: C,
    walk: Walk,
    contents: Contents,
    index: Vec<Tracked>,
    /// Index of the next directory to read.
    next: usize,
    /// Number of empty files in the tree.
    empty: u64,
    /// Number of empty files that the last walk found.
    found: u64,
    buf: Vec<u8>,
    /// The directories of a walk.
    dirs: Paths,
    /// The names of one directory.
    names: Paths,
}

impl<C: Calls> TreeWork<C> {
    /// Does `find tree -size 0`, with the directories in a list instead of on the stack.
    fn find_size(&mut self) -> Outcome<u64> {
        let TreeWork { calls, dirs, names, .. } = self;
        let (mut seen, mut found, mut next) = (0, 0, 0);
        dirs.clear();
        dirs.push(&[ROOT.to_bytes()]);
        while let Some(dir) = dirs.get(next) {
            names.list(calls, dir)?;
            next += 1;
            for path in (0..).map_while(|i| names.get(i)) {
                let meta = calls.lstat(path)?;
                seen += 1;
                if meta.file_type.is_dir() {
                    dirs.push(&[path.to_bytes()]);
                } else if meta.size == 0 {
                    found += 1;
                }
            }
        }
        self.found = found;
        Ok(seen)
    }

    /// Gets the attributes of every tracked file, and reads the files that look modified.
    fn git_diff(&mut self) -> Outcome<u64> {
        for tracked in &self.index {
            let meta = self.calls.lstat(&tracked.path)?;
            if meta != tracked.meta
                && checksum(&self.calls, &tracked.path, &mut self.buf)? != tracked.sum
            {
                let path = tracked.path.to_string_lossy();
                return Err(Fault::wrong(format!("{path} has changed, though it was not written")));
            }
        }
        Ok(self.index.len() as u64)
    }

    /// Reads one directory, and gets the attributes of all its entries.
    fn readdir_stat(&mut self) -> Outcome<u64> {
        self.next = (self.next + 1) % self.contents.dirs.len();
        let dir = &self.contents.dirs[self.next];
        self.names.list(&self.calls, dir)?;
        for path in (0..).map_while(|i| self.names.get(i)) {
            self.calls.lstat(path)?;
        }
        Ok(self.names.begins.len() as u64)
    }
}

impl<C: Calls> Work for TreeWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        match self.walk {
            Walk::FindSize => self.find_size(),
            Walk::GitDiff => self.git_diff(),
            Walk::ReaddirStat => self.readdir_stat(),
        }
    }

    /// Checks that each walk finds exactly the contents of the tree.
    fn end(&mut self) -> Outcome<()> {
        let due = self.contents.entries();
        match self.walk {
            Walk::FindSize => {
                expect_equal("the number of names found", self.find_size()?, due)?;
                expect_equal("the number of empty files found", self.found, self.empty)
            }
            Walk::GitDiff => {
                let files = self.contents.files.len() as u64;
                expect_equal("the number of tracked files", self.git_diff()?, files)?;
                let (path, meta) = &self.contents.files[0];
                expect_equal("the size", self.calls.lstat(path)?.size, meta.size)
            }
            Walk::ReaddirStat => {
                let dirs = self.contents.dirs.len();
                let seen = (0..dirs).map(|_| self.readdir_stat()).sum::<Outcome<u64>>()?;
                expect_equal("the number of names in all directories", seen, due)
            }
        }
    }
}
