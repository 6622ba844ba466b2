//! FxMark's microbenchmarks of names.

use std::ffi::CString;
use std::hint::black_box;

use vfscale::posix::OFlags;

use super::{PAGE, Sharing, is_background, own_dir};
use crate::base::error::{Fault, Outcome};
use crate::base::stats::Rng;
use crate::measure::work::Work;
use crate::targets::{Calls, name};
use crate::workloads::expect::{expect_equal, expect_gone, expect_names, write_at, write_file};
use crate::workloads::workload::{Scene, Workload};

/// Names of a path in the tree that is looked up, and branches of each of its directories.
const DEPTH: usize = 5;
const BRANCHES: u64 = 8;
/// Files of each worker in a directory that is listed.
const ENTRIES: usize = 1_000;
/// Names that a background worker makes and removes.
const CHANGED: usize = 64;
/// The directory that all workers share.
const SHARED: &str = "all";

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameCall {
    /// Returns the attributes of a file five names deep.
    Stat,
    /// Opens a directory and reads all of its entries.
    List,
    /// Creates an empty file.
    Create,
    /// Creates a file of a page.
    CreateWrite,
    /// Removes a file.
    Unlink,
    /// Gives a file a new name, in the same directory or in the shared one.
    Rename,
    /// Makes names, then removes them: what a background worker does.
    Change,
}

/// Calls on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) call: NameCall,
    sharing: Sharing,
    /// Whether the last worker makes and removes names among those that the others read.
    has_writer: bool,
}

impl Names {
    /// Names a microbenchmark without a background worker.
    pub(crate) const fn new(call: NameCall, sharing: Sharing) -> Names {
        Names { call, sharing, has_writer: false }
    }

    /// Names the one with a background worker.
    pub(crate) const fn with_writer(self) -> Names {
        Names { has_writer: true, ..self }
    }

    /// Returns the directory in which a worker's names are at the end of a round.
    fn dir(self, worker: usize) -> String {
        if self.sharing == Sharing::Low { own_dir(worker) } else { SHARED.to_owned() }
    }

    /// Returns the names of files that a worker looks up, lists, makes, removes or renames.
    fn names(self, scene: &Scene, worker: usize) -> Vec<String> {
        let files = scene.files.max(2) as usize;
        let file = |dir: &str, n| format!("{dir}/f{worker}-{n}");
        match (self.call, self.sharing) {
            (NameCall::Stat, Sharing::Low) => vec![format!("{}/0/0/0/0", own_dir(worker))],
            (NameCall::Stat, Sharing::Medium) => {
                (0..BRANCHES.pow(DEPTH as u32)).map(leaf).collect()
            }
            (NameCall::Stat, Sharing::High) => vec![leaf(0)],
            (NameCall::List, _) => (0..ENTRIES).map(|n| file(&self.dir(worker), n)).collect(),
            (NameCall::Rename, _) => (0..files).map(|n| file(&own_dir(worker), n)).collect(),
            _ => (0..files).map(|n| file(&self.dir(worker), n)).collect(),
        }
    }

    /// Returns the names that a background worker makes and removes.
    fn changed(self, scene: &Scene, worker: usize) -> Vec<String> {
        let mut rng = Rng::new(scene.random_seed);
        let mut change = |n| match self.call {
            NameCall::Stat => {
                let (path, names) = (leaf(rng.below(BRANCHES.pow(4))), 1 + rng.below(4) as usize);
                let dirs: Vec<&str> = path.split('/').take(1 + names).collect();
                format!("{}/b{n}", dirs.join("/"))
            }
            _ => format!("{}/b{n}", self.dir(worker)),
        };
        (0..CHANGED).map(&mut change).collect()
    }

    fn makes_own_dirs(self) -> bool {
        self.sharing == Sharing::Low || self.call == NameCall::Rename
    }
}

/// Returns the path of a leaf of the shared tree.
fn leaf(number: u64) -> String {
    let digit = |n: usize| number / BRANCHES.pow(n as u32) % BRANCHES;
    (0..DEPTH).fold(SHARED.to_owned(), |path, n| format!("{path}/{}", digit(n)))
}

/// Creates the missing directories above a file.
fn make_dirs<C: Calls>(calls: &C, file: &str) -> Outcome<()> {
    for (end, _) in file.match_indices('/') {
        let dir = name(&file[..end]);
        if calls.stat(&dir).is_err() {
            calls.mkdir(&dir)?;
        }
    }
    Ok(())
}

impl Workload for Names {
    type Work<C: Calls> = NamesWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        calls.mkdir(&name(SHARED))?;
        for worker in (0..scene.workers).filter(|_| self.makes_own_dirs()) {
            calls.mkdir(&name(own_dir(worker)))?;
        }
        let all_read_the_same = self.call == NameCall::Stat && self.sharing != Sharing::Low;
        if matches!(self.call, NameCall::Stat | NameCall::List) {
            for worker in 0..if all_read_the_same { 1 } else { scene.workers } {
                for file in self.names(scene, worker) {
                    make_dirs(calls, &file)?;
                    write_file(calls, &name(file), &[])?;
                }
            }
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<NamesWork<C>> {
        let is_writer = is_background(self.has_writer, scene, worker);
        let names = if is_writer { self.changed(scene, worker) } else { self.names(scene, worker) };
        let files: Vec<CString> = names.into_iter().map(name).collect();
        let moved = match (self.call, self.sharing) {
            (NameCall::Rename, Sharing::Low) => files[1..].to_vec(),
            (NameCall::Rename, _) => {
                (0..files.len()).map(|n| name(format!("{SHARED}/f{worker}-{n}"))).collect()
            }
            _ => Vec::new(),
        };
        let shared = self.sharing == Sharing::Medium;
        Ok(NamesWork {
            calls,
            call: if is_writer { NameCall::Change } else { self.call },
            dir: name(self.dir(worker)),
            entries: ENTRIES * if shared { scene.workers } else { 1 },
            changed: if self.has_writer { CHANGED } else { 0 },
            files,
            moved,
            rng: Rng::new(scene.random_seed ^ (worker as u64) << 32),
            done: 0,
        })
    }

    /// Checks the number of names: those that are read, and none that a round made.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        let own = if self.makes_own_dirs() { scene.workers } else { 0 };
        expect_names(calls, c".", 1 + own)?;
        let left = if self.call == NameCall::List { ENTRIES } else { 0 };
        match (self.call, self.sharing) {
            (NameCall::Stat, Sharing::Low) => expect_names(calls, &name(SHARED), 0),
            (NameCall::Stat, Sharing::Medium) => {
                expect_names(calls, &name(SHARED), BRANCHES as usize)
            }
            (NameCall::Stat, Sharing::High) => expect_names(calls, &name(SHARED), 1),
            (_, Sharing::Low) => (0..scene.workers)
                .try_for_each(|worker| expect_names(calls, &name(own_dir(worker)), left)),
            _ => expect_names(calls, &name(SHARED), left * scene.workers),
        }
    }
}

pub(crate) struct NamesWork<C> {
    calls: C,
    call: NameCall,
    /// The directory that is listed.
    dir: CString,
    /// Entries of that directory, and at most how many more a background worker makes.
    entries: usize,
    changed: usize,
    files: Vec<CString>,
    /// Each file's name after it was renamed.
    moved: Vec<CString>,
    rng: Rng,
    /// Operations of a round of fixed work, or of a background worker.
    done: usize,
}

impl<C: Calls> NamesWork<C> {
    fn create(&self, n: usize) -> Outcome<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = self.calls.open(&self.files[n], flags)?;
        if self.call == NameCall::CreateWrite {
            write_at(&self.calls, &file, &[7; PAGE], 0)?;
        }
        Ok(())
    }

    fn stat(&mut self) -> Outcome<()> {
        let n = self.rng.below(self.files.len() as u64) as usize;
        let seen = black_box(self.calls.stat(&self.files[n])?);
        expect_equal("the size of an empty file", seen.size, 0)
    }

    fn list(&mut self) -> Outcome<u64> {
        let mut seen = 0;
        self.calls.list(&self.dir, |_, _| seen += 1)?;
        if !(self.entries..=self.entries + self.changed).contains(&seen) {
            let expected = self.entries;
            return Err(Fault::wrong(format!("{seen} entries were listed, not {expected}")));
        }
        Ok(seen as u64)
    }

    /// Makes the next name, or removes it if this round through the names is one of removals.
    fn change(&mut self) -> Outcome<()> {
        let (round, n) = (self.done / self.files.len(), self.done % self.files.len());
        if round.is_multiple_of(2) {
            return self.create(n);
        }
        Ok(self.calls.unlink(&self.files[n])?)
    }

    /// Returns the names of this worker's files after `done` operations.
    fn present(&self) -> Vec<&CString> {
        let (done, files) = (self.done, &self.files);
        let is_one_file = self.moved.len() < files.len();
        match self.call {
            NameCall::Stat | NameCall::List => Vec::new(),
            NameCall::Create | NameCall::CreateWrite => files[..done].iter().collect(),
            NameCall::Unlink => files[done..].iter().collect(),
            NameCall::Rename if is_one_file => vec![&files[done]],
            NameCall::Rename => self.moved[..done].iter().chain(&files[done..]).collect(),
            NameCall::Change => {
                let (round, n) = (done / files.len(), done % files.len());
                files[if round.is_multiple_of(2) { 0..n } else { n..files.len() }].iter().collect()
            }
        }
    }

    /// Returns the names that are gone after `done` operations.
    fn gone(&self) -> &[CString] {
        match self.call {
            NameCall::Unlink | NameCall::Rename => &self.files[..self.done],
            NameCall::Create | NameCall::CreateWrite => &self.files[self.done..],
            NameCall::Stat | NameCall::List | NameCall::Change => &[],
        }
    }
}

impl<C: Calls> Work for NamesWork<C> {
    fn is_fixed(&self) -> bool {
        !matches!(self.call, NameCall::Stat | NameCall::List | NameCall::Change)
    }

    fn begin(&mut self) -> Outcome<()> {
        self.done = 0;
        let before = match self.call {
            NameCall::Unlink => self.files.len(),
            NameCall::Rename if self.moved.len() < self.files.len() => 1,
            NameCall::Rename => self.files.len(),
            _ => 0,
        };
        (0..before).try_for_each(|n| self.create(n))
    }

    #[inline]
    fn left(&self) -> u64 {
        match self.call {
            NameCall::Rename => (self.moved.len() - self.done) as u64,
            _ if self.is_fixed() => (self.files.len() - self.done) as u64,
            _ => u64::MAX,
        }
    }

    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        let n = self.done;
        match self.call {
            NameCall::Stat => return self.stat().map(|()| 1),
            NameCall::List => return self.list(),
            NameCall::Create | NameCall::CreateWrite => self.create(n)?,
            NameCall::Unlink => self.calls.unlink(&self.files[n])?,
            NameCall::Rename => self.calls.rename(&self.files[n], &self.moved[n])?,
            NameCall::Change => self.change()?,
        }
        self.done += 1;
        Ok(u64::from(self.call != NameCall::Change))
    }

    /// Checks which names there are, and the sizes of their files; removes what the round made.
    fn end(&mut self) -> Outcome<()> {
        if self.call == NameCall::Stat {
            return self.stat();
        }
        self.gone().iter().try_for_each(|file| expect_gone(&self.calls, file))?;
        let size = if self.call == NameCall::CreateWrite { PAGE as u64 } else { 0 };
        for file in self.present() {
            expect_equal("the size of a file", self.calls.lstat(file)?.size, size)?;
            self.calls.unlink(file)?;
            expect_gone(&self.calls, file)?;
        }
        Ok(())
    }
}
