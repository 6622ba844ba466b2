//! Creation and removal of many files, in the manner of fs_mark, as measured by Chinner (2020).
//!
//! Each worker creates empty files in directories of its own, 10,000 in each. A round is a fixed
//! amount of work, and begins with new directories.

use std::ffi::CString;

use vfscale::posix::OFlags;

use super::expect::expect_names;
use super::workload::{Scene, Workload};
use crate::base::error::Outcome;
use crate::measure::work::Work;
use crate::targets::{Calls, name};

const FILES_PER_DIR: u64 = 10_000;

/// The measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManyFiles {
    Create,
    CreateSync,
    Remove,
}

pub(super) struct Many(pub(super) ManyFiles);

impl Workload for Many {
    type Work<C: Calls> = ManyWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..scene.workers {
            calls.mkdir(&name(format!("w{worker}")))?;
        }
        Ok(())
    }

    fn work<C: Calls>(&self, mut calls: C, scene: &Scene, worker: usize) -> Outcome<ManyWork<C>> {
        calls.chdir(&name(format!("w{worker}")))?;
        // Names are ready before time is taken, and are the same in every round.
        let files = (0..scene.files).map(|n| name(format!("d{}/f{n}", n / FILES_PER_DIR)));
        let dirs = scene.files.div_ceil(FILES_PER_DIR);
        Ok(ManyWork {
            calls,
            part: self.0,
            files: files.collect(),
            dirs: (0..dirs).map(|n| name(format!("d{n}"))).collect(),
            done: 0,
        })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..scene.workers {
            expect_names(calls, &name(format!("w{worker}")), 0)?;
        }
        expect_names(calls, c".", scene.workers)
    }
}

pub(super) struct ManyWork<C> {
    calls: C,
    part: ManyFiles,
    files: Vec<CString>,
    dirs: Vec<CString>,
    done: usize,
}

impl<C: Calls> ManyWork<C> {
    fn create(&self, n: usize) -> Outcome<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        drop(self.calls.open(&self.files[n], flags)?);
        Ok(())
    }

    /// Checks the number of files in each directory.
    fn expect_files(&self, all: usize) -> Outcome<()> {
        let per_dir = FILES_PER_DIR as usize;
        for (n, dir) in self.dirs.iter().enumerate() {
            expect_names(&self.calls, dir, all.saturating_sub(n * per_dir).min(per_dir))?;
        }
        Ok(())
    }

    fn remove_dirs(&self) -> Outcome<()> {
        self.expect_files(0)?;
        self.dirs.iter().try_for_each(|dir| Ok(self.calls.rmdir(dir)?))
    }
}

impl<C: Calls> Work for ManyWork<C> {
    fn is_fixed(&self) -> bool {
        true
    }

    fn begin(&mut self) -> Outcome<()> {
        self.done = 0;
        for dir in &self.dirs {
            self.calls.mkdir(dir)?;
        }
        if self.part == ManyFiles::Remove {
            (0..self.files.len()).try_for_each(|n| self.create(n))?;
            self.expect_files(self.files.len())?;
        }
        Ok(())
    }

    #[inline]
    fn left(&self) -> u64 {
        (self.files.len() - self.done) as u64
    }

    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        match self.part {
            ManyFiles::Create => self.create(self.done)?,
            ManyFiles::CreateSync => {
                self.create(self.done)?;
                if self.left() == 1 {
                    let here = self.calls.open(c".", OFlags::RDONLY | OFlags::DIRECTORY)?;
                    self.calls.sync_fs(&here)?;
                }
            }
            ManyFiles::Remove => self.calls.unlink(&self.files[self.done])?,
        }
        self.done += 1;
        Ok(1)
    }

    /// Checks that all files exist, or none; and removes the files, including files of an
    /// interrupted round.
    fn end(&mut self) -> Outcome<()> {
        let rest = match self.part {
            ManyFiles::Create | ManyFiles::CreateSync => {
                self.expect_files(self.done)?;
                0..self.done
            }
            ManyFiles::Remove => self.done..self.files.len(),
        };
        for file in &self.files[rest] {
            self.calls.unlink(file)?;
        }
        self.remove_dirs()
    }
}
