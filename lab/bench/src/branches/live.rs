//! Checkpoints and rollbacks of a branch that is in use.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use vfscale::Volume;
use vfscale::volume::LiveVolume;

use super::plan::{BranchRow, said};
use super::steps::{Steps, WRITERS, timed, write_until, write_zeros};
use crate::base::error::{Fault, Outcome};
use crate::workloads::expect::expect_equal;

/// Bytes that are written before a checkpoint is made, and the most checkpoints. The volume bounds
/// how many of them are dirty.
const DIRTY: [(u64, u64); 3] = [(0, 100), (64 << 20, 30), (1 << 30, 5)];

/// Number of files that a rollback undoes the change of.
const CHANGED: u64 = 1_000;

impl Steps<'_> {
    /// Makes checkpoints beside writers, after more and more data, as far as the volume has room
    /// for it.
    pub(super) fn checkpoints(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        for (dirty, most) in DIRTY {
            if dirty * 3 <= self.plan.size {
                self.checkpoints_with(dirty, self.some().min(most), note)?;
            }
        }
        Ok(())
    }

    fn checkpoints_with(
        &self,
        dirty: u64,
        rounds: u64,
        note: &mut dyn FnMut(BranchRow),
    ) -> Outcome<()> {
        let builder = self.pool.branch("main").cache_size(4 * dirty + (256 << 20));
        let main = builder.sync_interval(None).open().map_err(said)?;
        let (over, longest) = (AtomicBool::new(false), <[AtomicU64; WRITERS]>::default());
        let (mut held, mut calls, mut waits, mut had) = <[Vec<f64>; 4]>::default().into();
        std::thread::scope(|scope| -> Outcome<()> {
            let writer = |n: usize| {
                let (task, longest, over) = (main.task(), &longest[n], &over);
                scope.spawn(move || write_until(&task, n, longest, over))
            };
            let writers: Vec<_> = (0..WRITERS).map(writer).collect();
            let mut round = || -> Outcome<()> {
                self.is_over()?;
                write_zeros(&main.task(), "/dirty", dirty)?;
                longest.iter().for_each(|one| one.store(0, Ordering::Relaxed));
                had.push(dirty_bytes(&main) / f64::from(1 << 20));
                let (time, made) = timed(|| self.pool.checkpoint("main", ""));
                let made = made.map_err(said)?;
                held.push(main.driver().held_up().as_secs_f64() * 1e6);
                calls.push(time);
                waits.extend(longest.iter().map(|one| one.load(Ordering::Relaxed) as f64 / 1e3));
                self.pool.delete(&made).map_err(said)?;
                self.pool.reap().map_err(said)
            };
            let done = await_writers(&longest).and_then(|()| (0..rounds).try_for_each(|_| round()));
            over.store(true, Ordering::Relaxed);
            let ended = writers.into_iter().map(|writer| {
                writer.join().unwrap_or_else(|_| Err(Fault::wrong("a writer has panicked")))
            });
            done.and(ended.collect::<Vec<_>>().into_iter().collect())
        })?;
        let with = format!("{} MiB written before and {WRITERS} writers", dirty >> 20);
        for (what, unit, figures) in [
            ("calls held up by a checkpoint", "us", &held),
            ("longest write of each writer beside a checkpoint", "us", &waits),
            ("checkpoint", "us", &calls),
            ("dirty at the call of a checkpoint", "MiB", &had),
        ] {
            note(BranchRow::of(format!("{what}, {with}"), unit, figures));
        }
        let files = (0..WRITERS).map(|n| format!("/writer{n}"));
        for file in files.chain(["/dirty".to_owned()]) {
            main.task().remove_file(file)?;
        }
        main.close().map_err(said)?;
        self.pool.reap().map_err(said)
    }

    /// Rolls an open branch back, of which files have been changed.
    pub(super) fn roll_backs(&self, note: &mut dyn FnMut(BranchRow)) -> Outcome<()> {
        let live = LiveVolume::new(self.pool.open("main").map_err(said)?);
        let write = |text: &str| -> Outcome<()> {
            let written = live.with(|volume| -> Outcome<()> {
                let task = volume.task();
                (0..CHANGED).try_for_each(|n| Ok(task.write(format!("/live{n}"), text)?))
            });
            written.unwrap_or_else(|| Err(Fault::wrong("the volume is closed")))
        };
        write("before")?;
        let before = self.pool.checkpoint("main", "").map_err(said)?;
        let mut times = Vec::new();
        for _ in 0..self.some().min(30) {
            self.is_over()?;
            write("after")?;
            let (time, kept) = timed(|| self.pool.rollback_to("main", &before));
            times.push(time);
            let kept = kept.map_err(said)?.ok_or_else(|| Fault::wrong("nothing was kept"))?;
            self.pool.delete(&kept).map_err(said)?;
            let len = live.with(|volume| volume.task().metadata("/live0").map(|it| it.len()));
            let len = len.ok_or_else(|| Fault::wrong("the volume is closed"))??;
            expect_equal("the size of a file that was rolled back", len, 6)?;
        }
        note(BranchRow::of(
            format!("rollback of an open branch, {CHANGED} files changed"),
            "us",
            &times,
        ));
        live.close().map_err(said)?;
        self.pool.delete(&before).map_err(said)?;
        self.pool.reap().map_err(said)
    }
}

/// Waits until each writer has written, for ten seconds at most.
fn await_writers(longest: &[AtomicU64; WRITERS]) -> Outcome<()> {
    for _ in 0..10_000 {
        if longest.iter().all(|one| one.load(Ordering::Relaxed) > 0) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Fault::wrong("the writers do not write"))
}

/// Returns the dirty bytes in the cache of a volume.
fn dirty_bytes(volume: &Volume) -> f64 {
    volume.vfs().storage_counts().cache.map_or(0.0, |cache| cache.dirty_bytes as f64)
}
