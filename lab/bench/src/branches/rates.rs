//! The rates of work in branches, beside a plain volume.
//!
//! All volumes of a comparison are open, and have their turns one after the other, so a change of
//! the machine's speed concerns all of them.

use std::sync::Barrier;

use vfscale::{OpenOptions, Task, Volume};

use super::plan::{BranchRow, said};
use super::steps::{LARGE, Steps, timed, write_zeros};
use crate::base::error::{Fault, Outcome};
use crate::workloads::expect::expect_equal;

/// Most turns of each volume.
const ROUNDS: u64 = 11;

/// Number of files that a turn creates and removes; with a sync each, a tenth.
const FILES: u32 = 5_000;

/// Number of forks behind the old branch. Each has changed a part of the large file.
const OLD: u64 = 10;

/// The names of the volumes that work is compared on; the first is no branch.
const NAMES: [&str; 4] = ["a plain volume", "the parent", "a fresh branch", "a branch ten deep"];

/// Work in one volume, which returns microseconds for each operation.
type Work<'w> = &'w dyn Fn(&Volume) -> Outcome<f64>;

impl Steps<'_> {
    /// Takes all rates. `plain` has the same files as the parent of the branches.
    pub(super) fn rates(&self, plain: Volume, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let old = self.old_branch()?;
        self.pool.fork("main", "fresh").map_err(said)?;
        let open = |name: &str| self.pool.open(name).map_err(said);
        let volumes = [plain, open("main")?, open("fresh")?, open(&old)?];
        let each: [(&str, &str, Work<'_>); 5] = [
            ("create and unlink", "us", &|volume| create_and_unlink(&volume.task(), "/new")),
            ("create, sync and unlink", "us", &|volume| create_and_sync(&volume.task())),
            ("overwrite of 1 MiB", "us", &|volume| overwrite(&volume.task())),
            ("new 1 MiB, synced", "us", &|volume| append(&volume.task())),
            ("read of 1 MiB", "us", &|volume| read(&volume.task())),
        ];
        for (what, unit, work) in each {
            let mut figures = [const { Vec::new() }; NAMES.len()];
            for _ in 0..self.some().min(ROUNDS) {
                self.is_over()?;
                for (volume, figures) in volumes.iter().zip(&mut figures) {
                    figures.push(work(volume)?);
                }
            }
            for (name, figures) in NAMES.iter().zip(&figures) {
                note(BranchRow::of(format!("{what}, {name}"), unit, figures));
            }
        }
        volumes.into_iter().try_for_each(|volume| volume.close().map_err(said))?;
        self.siblings(note)
    }

    /// Makes a branch with [`OLD`] ancestors, each of which has changed a part of the large file.
    fn old_branch(&self) -> Outcome<String> {
        let mut parent = "main".to_owned();
        for n in 0..OLD {
            self.is_over()?;
            let name = format!("old{n}");
            self.pool.fork(&parent, &name).map_err(said)?;
            let volume = self.pool.open(&name).map_err(said)?;
            let file = volume.task().open_with("/large", &OpenOptions::new().write(true))?;
            let piece = vec![n as u8; 64 << 10];
            for part in (n..LARGE / piece.len() as u64).step_by(OLD as usize) {
                let written = file.write_at(&piece, part * piece.len() as u64)?;
                expect_equal("the bytes written", written as u64, piece.len() as u64)?;
            }
            file.sync_all()?;
            drop(file);
            volume.close().map_err(said)?;
            parent = name;
        }
        Ok(parent)
    }

    /// Creates and unlinks files in one of two sibling branches, and in both at once.
    fn siblings(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let open = |name: &str| {
            self.pool.fork("main", name).map_err(said)?;
            self.pool.open(name).map_err(said)
        };
        let volumes = [open("left")?, open("right")?];
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for round in 0..self.some().min(ROUNDS) as usize {
            self.is_over()?;
            alone.push(create_and_unlink(&volumes[round % 2].task(), "/new")?);
            together.push(at_once(&volumes)?);
        }
        note(BranchRow::of("create and unlink, one of two siblings", "us", &alone));
        note(BranchRow::of("create and unlink, both siblings at once", "us", &together));
        volumes.into_iter().try_for_each(|volume| volume.close().map_err(said))
    }
}

/// Works in both volumes at once; returns the mean time of an operation of one thread.
fn at_once(volumes: &[Volume; 2]) -> Outcome<f64> {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let works = volumes.each_ref().map(|volume| {
            let (task, start) = (volume.task(), &start);
            scope.spawn(move || {
                start.wait();
                create_and_unlink(&task, "/new")
            })
        });
        let mut sum = 0.0;
        for work in works {
            sum += work.join().map_err(|_| Fault::wrong("a worker has panicked"))??;
        }
        Ok(sum / 2.0)
    })
}

fn create_and_unlink(task: &Task, path: &str) -> Outcome<f64> {
    let (time, done) = timed(|| -> vfscale::Result<()> {
        for _ in 0..FILES {
            drop(task.create(path)?);
            task.remove_file(path)?;
        }
        Ok(())
    });
    done?;
    Ok(time / f64::from(FILES))
}

fn create_and_sync(task: &Task) -> Outcome<f64> {
    let count = FILES / 10;
    let (time, done) = timed(|| -> vfscale::Result<()> {
        for _ in 0..count {
            task.create("/new")?.sync_all()?;
            task.remove_file("/new")?;
        }
        Ok(())
    });
    done?;
    Ok(time / f64::from(count))
}

/// Overwrites the large file, which a fresh branch shares with its parent, and syncs it.
fn overwrite(task: &Task) -> Outcome<f64> {
    let file = task.open_with("/large", &OpenOptions::new().write(true))?;
    let piece = vec![1; 1 << 20];
    let pieces = LARGE / piece.len() as u64;
    let (time, done) = timed(|| -> vfscale::Result<()> {
        (0..pieces).try_for_each(|_| file.write_all(&piece))?;
        file.sync_all()
    });
    done?;
    Ok(time / pieces as f64)
}

/// Writes a new file as large as the large one, syncs it, and removes it.
fn append(task: &Task) -> Outcome<f64> {
    let (time, done) = timed(|| -> Outcome<()> {
        write_zeros(task, "/another", LARGE)?;
        task.open("/another")?.sync_all()?;
        Ok(())
    });
    done?;
    task.remove_file("/another")?;
    Ok(time / (LARGE >> 20) as f64)
}

/// Reads the large file.
fn read(task: &Task) -> Outcome<f64> {
    let file = task.open("/large")?;
    let mut piece = vec![0; 1 << 20];
    let pieces = LARGE / piece.len() as u64;
    let (time, sum) = timed(|| -> vfscale::Result<u64> {
        (0..pieces).try_fold(0, |sum, n| Ok(sum + file.read_at(&mut piece, n * (1 << 20))? as u64))
    });
    expect_equal("the bytes read", sum?, LARGE)?;
    Ok(time / pieces as f64)
}
