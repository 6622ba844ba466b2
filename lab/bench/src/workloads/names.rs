//! Opening, creating, `stat` and renaming of names: the first experiments of Piggin (2009).

use std::ffi::CString;
use std::hint::black_box;

use vfscale::posix::OFlags;

use super::expect::{expect_content, expect_equal, expect_gone, expect_names, write_file};
use super::workload::{Layout, Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// Returns the directory of a worker.
fn own_dir(worker: usize) -> CString {
    name(format!("w{worker}"))
}

/// The workload that opens and closes files.
pub(super) struct OpenClose(pub(super) Layout);

impl OpenClose {
    fn file(&self, worker: usize) -> CString {
        name(match self.0 {
            Layout::Same => format!("f{worker}"),
            Layout::Own => format!("w{worker}/f"),
            Layout::Shared => "f".to_owned(),
        })
    }

    /// Returns the unique content of a file.
    fn content(&self, worker: usize) -> Vec<u8> {
        format!("the file {}", self.file(worker).to_string_lossy()).into_bytes()
    }

    fn files(&self, scene: &Scene) -> usize {
        if self.0 == Layout::Shared { 1 } else { scene.workers }
    }
}

impl Workload for OpenClose {
    type Work<C: Calls> = OpenCloseWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..self.files(scene) {
            if self.0 == Layout::Own {
                calls.mkdir(&own_dir(worker))?;
            }
            write_file(calls, &self.file(worker), &self.content(worker))?;
        }
        Ok(())
    }

    fn work<C: Calls>(&self, mut calls: C, _: &Scene, worker: usize) -> Outcome<OpenCloseWork<C>> {
        let content = self.content(worker);
        let mut file = self.file(worker);
        if self.0 == Layout::Own {
            calls.chdir(&own_dir(worker))?;
            file = name("f");
        }
        Ok(OpenCloseWork { calls, file, content })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..self.files(scene) {
            expect_content(calls, &self.file(worker), &self.content(worker))?;
        }
        expect_names(calls, c".", self.files(scene))
    }
}

pub(super) struct OpenCloseWork<C> {
    calls: C,
    file: CString,
    content: Vec<u8>,
}

impl<C: Calls> Work for OpenCloseWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        drop(black_box(self.calls.open(&self.file, OFlags::RDONLY)?));
        Ok(1)
    }

    /// Checks that the right file is opened, and that a missing one can't be.
    fn end(&mut self) -> Outcome<()> {
        expect_content(&self.calls, &self.file, &self.content)?;
        match self.calls.open(c"missing", OFlags::RDONLY) {
            Ok(_) => Err(Fault::wrong("a file that was never made can be opened")),
            Err(_) => Ok(()),
        }
    }
}

/// The workload that creates and unlinks files.
pub(super) struct CreateUnlink(pub(super) Layout);

impl Workload for CreateUnlink {
    type Work<C: Calls> = CreateUnlinkWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        if self.0 == Layout::Own {
            for worker in 0..scene.workers {
                calls.mkdir(&own_dir(worker))?;
            }
        }
        Ok(())
    }

    fn work<C: Calls>(
        &self,
        mut calls: C,
        _: &Scene,
        worker: usize,
    ) -> Outcome<CreateUnlinkWork<C>> {
        let mut file = name(format!("n{worker}"));
        if self.0 == Layout::Own {
            calls.chdir(&own_dir(worker))?;
            file = name("n");
        }
        Ok(CreateUnlinkWork { calls, file })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        if self.0 != Layout::Own {
            return expect_names(calls, c".", 0);
        }
        for worker in 0..scene.workers {
            expect_names(calls, &own_dir(worker), 0)?;
        }
        expect_names(calls, c".", scene.workers)
    }
}

pub(super) struct CreateUnlinkWork<C> {
    calls: C,
    file: CString,
}

const CREATE: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::WRONLY);

impl<C: Calls> Work for CreateUnlinkWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        drop(black_box(self.calls.open(&self.file, CREATE)?));
        self.calls.unlink(&self.file)?;
        Ok(1)
    }

    /// Checks that the name does not exist; then creates the file again, checks it, and unlinks it.
    fn end(&mut self) -> Outcome<()> {
        expect_gone(&self.calls, &self.file)?;
        let made = self.calls.fstat(&self.calls.open(&self.file, CREATE)?)?;
        let seen = self.calls.stat(&self.file)?;
        if !seen.file_type.is_file() || seen.ino != made.ino {
            return Err(Fault::wrong("the name of a new file is not that of the file"));
        }
        expect_equal("the size of a new file", seen.size, 0)?;
        expect_equal("the number of names of a new file", seen.nlink, 1)?;
        let mut listed = false;
        self.calls.list(c".", |name, _| listed |= name == self.file.as_c_str())?;
        if !listed {
            return Err(Fault::wrong("a new file is not in its directory's list"));
        }
        self.calls.unlink(&self.file)?;
        expect_gone(&self.calls, &self.file)
    }
}

/// The workload that calls `stat` on a file six names deep.
pub(super) struct StatDeep;

const DEEP: [&str; 5] = ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"];
const DEEP_FILE: &str = "a/b/c/d/e/f";
const DEEP_BYTES: u64 = 12_345;

impl Workload for StatDeep {
    type Work<C: Calls> = StatDeepWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        for dir in DEEP {
            calls.mkdir(&name(dir))?;
        }
        write_file(calls, &name(DEEP_FILE), &[7; DEEP_BYTES as usize])
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, _: usize) -> Outcome<StatDeepWork<C>> {
        Ok(StatDeepWork { calls, file: name(DEEP_FILE) })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        expect_content(calls, &name(DEEP_FILE), &[7; DEEP_BYTES as usize])
    }
}

pub(super) struct StatDeepWork<C> {
    calls: C,
    file: CString,
}

impl<C: Calls> Work for StatDeepWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        black_box(self.calls.stat(&self.file)?);
        Ok(1)
    }

    fn end(&mut self) -> Outcome<()> {
        let seen = self.calls.stat(&self.file)?;
        expect_equal("the size", seen.size, DEEP_BYTES)?;
        let file = self.calls.open(&self.file, OFlags::RDONLY)?;
        if self.calls.fstat(&file)? != seen {
            return Err(Fault::wrong("stat by name and of the open file disagree"));
        }
        expect_gone(&self.calls, c"a/b/c/d/e/missing")
    }
}

/// The workload that renames files back and forth.
pub(super) struct Rename(pub(super) Layout);

impl Rename {
    /// The directories, in the root, or in the worker's own directory.
    const DIRS: [&str; 2] = ["left", "right"];

    /// Returns the two names of a worker, relative to its working directory.
    fn names(&self, worker: usize) -> [CString; 2] {
        let mut names = match self.0 {
            Layout::Same => [format!("r{worker}"), format!("s{worker}")],
            Layout::Own => Self::DIRS.map(|dir| format!("{dir}/r")),
            Layout::Shared => Self::DIRS.map(|dir| format!("{dir}/r{worker}")),
        };
        if self.0 == Layout::Shared && worker % 2 == 1 {
            names.reverse();
        }
        names.map(name)
    }

    fn content(worker: usize) -> Vec<u8> {
        format!("the file of worker {worker}").into_bytes()
    }
}

impl Workload for Rename {
    type Work<C: Calls> = RenameWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        match self.0 {
            Layout::Same => {}
            Layout::Own => {
                for worker in 0..scene.workers {
                    let own = own_dir(worker);
                    calls.mkdir(&own)?;
                    for dir in Self::DIRS {
                        calls.mkdir(&name(format!("w{worker}/{dir}")))?;
                    }
                }
            }
            Layout::Shared => {
                for dir in Self::DIRS {
                    calls.mkdir(&name(dir))?;
                }
            }
        }
        Ok(())
    }

    fn work<C: Calls>(&self, mut calls: C, _: &Scene, worker: usize) -> Outcome<RenameWork<C>> {
        if self.0 == Layout::Own {
            calls.chdir(&own_dir(worker))?;
        }
        let [from, to] = self.names(worker);
        let content = Self::content(worker);
        write_file(&calls, &from, &content)?;
        Ok(RenameWork { calls, from, to, content })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        let count = |dir: String| -> Outcome<usize> {
            let mut count = 0;
            calls.list(&name(dir), |_, _| count += 1)?;
            Ok(count)
        };
        let mut files = 0;
        match self.0 {
            Layout::Same => files = count(".".to_owned())?,
            Layout::Shared => {
                for dir in Self::DIRS {
                    files += count(dir.to_owned())?;
                }
            }
            Layout::Own => {
                for worker in 0..scene.workers {
                    for dir in Self::DIRS {
                        files += count(format!("w{worker}/{dir}"))?;
                    }
                }
            }
        }
        expect_equal("the number of files", files as u64, scene.workers as u64)
    }
}

pub(super) struct RenameWork<C> {
    calls: C,
    /// Current name of the file.
    from: CString,
    /// Next name of the file.
    to: CString,
    content: Vec<u8>,
}

impl<C: Calls> Work for RenameWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        self.calls.rename(&self.from, &self.to)?;
        std::mem::swap(&mut self.from, &mut self.to);
        Ok(1)
    }

    /// Checks that the file exists under exactly the right name, before and after another rename.
    fn end(&mut self) -> Outcome<()> {
        for _ in 0..2 {
            expect_gone(&self.calls, &self.to)?;
            expect_content(&self.calls, &self.from, &self.content)?;
            self.op()?;
        }
        Ok(())
    }
}
