//! Many branches: their space when they are closed, and their memory while they are open.

use vfscale::{OpenOptions, Volume};

use super::plan::{BranchRow, said};
use super::steps::{LARGE, Steps};
use crate::base::error::Outcome;
use crate::base::machine;
use crate::workloads::expect::expect_equal;

/// Directories with files that branches read, the files of each, and their size.
const DIRS: u64 = 10;
const FILES: u64 = 1_000;
const BYTES: usize = 4_000;

/// Files that each branch reads, and how many of them it writes again.
const READ: u64 = 200;
const WRITTEN: u64 = 10;

/// The path of the file that a branch reads as number `n`: of ten directories, and other ones for
/// the next branch.
fn path(branch: u64, n: u64) -> String {
    let in_dir = n / DIRS * (FILES * DIRS / READ) + branch * 7;
    format!("/read{}/f{}", n % DIRS, in_dir % FILES)
}

impl Steps<'_> {
    /// Forks branches, and opens, changes and closes each of them.
    pub(super) fn change_many(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let (count, before) = (self.plan.changed, self.used());
        if count == 0 {
            return Ok(());
        }
        for n in 0..count {
            self.is_over()?;
            let name = format!("changed{n}");
            self.pool.fork("main", &name).map_err(said)?;
            let volume = self.pool.open(&name).map_err(said)?;
            let file = volume.task().open_with("/large", &OpenOptions::new().write(true))?;
            let offset = n * 4096 % LARGE;
            expect_equal("the bytes written", file.write_at(&[1; 4096], offset)? as u64, 4096)?;
            file.sync_all()?;
            drop(file);
            volume.close().map_err(said)?;
        }
        let all = self.used().saturating_sub(before) as f64;
        note(BranchRow::of(format!("space of {count} branches with one such change"), "B", &[all]));
        let each = [all / count as f64];
        note(BranchRow::of("space of each of them", "B", &each));
        Ok(())
    }

    /// Opens many branches at once, and takes the memory of the process, while they are idle and
    /// after each of them has read and written.
    pub(super) fn open_many(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let count = self.plan.open;
        if count == 0 {
            return Ok(());
        }
        self.make_files()?;
        for n in 0..count {
            self.pool.fork("main", &format!("many{n}")).map_err(said)?;
        }
        vfscale::idle_memory::trim();
        let before = machine::resident();
        let mut row = |what: &str| {
            let bytes = machine::resident().saturating_sub(before) as f64;
            note(BranchRow::of(format!("memory of {count} open branches, {what}"), "B", &[bytes]));
        };
        let mut volumes = Vec::new();
        for n in 0..count {
            self.is_over()?;
            volumes.push(self.pool.open(&format!("many{n}")).map_err(said)?);
        }
        row("idle");
        for (branch, volume) in (0..).zip(&volumes) {
            self.is_over()?;
            read_and_write(branch, volume)?;
        }
        row("200 files read and 10 written in each");
        volumes.into_iter().try_for_each(|volume| volume.close().map_err(said))
    }

    /// Makes the files that the branches read.
    fn make_files(&self) -> Outcome<()> {
        let main = self.pool.open("main").map_err(said)?;
        let task = main.task();
        for dir in 0..DIRS {
            task.create_dir(format!("/read{dir}"))?;
            for n in 0..FILES {
                task.write(format!("/read{dir}/f{n}"), [7; BYTES])?;
            }
        }
        drop(task);
        main.close().map_err(said)
    }
}

fn read_and_write(branch: u64, volume: &Volume) -> Outcome<()> {
    let task = volume.task();
    for n in 0..READ {
        let bytes = task.read(path(branch, n))?;
        expect_equal("the size of a file", bytes.len() as u64, BYTES as u64)?;
    }
    for n in 0..WRITTEN {
        task.write(path(branch, n), [8; BYTES])?;
    }
    Ok(())
}
