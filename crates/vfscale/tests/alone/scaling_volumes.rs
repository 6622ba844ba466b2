//! Two threads that work in different directories of a volume never contend for one of its locks.
//! Each setting that reverts a patch of volumes makes them contend again, for the lock that the
//! patch removed.

use std::sync::Arc;

use crate::common::{CALLS, all_recorded, in_turn, of_class};
use vfscale::block::MemoryDevice;
use vfscale::posix::OFlags;
use vfscale::{File, Mode, Scaling, Task, Volume};
use vfscale_diskfs::{mkfs, mkfs::MkfsOptions};
use vfscale_harness::alone;
use vfscale_journal::TicketTrace;
use vfscale_sync::lock::{
    LockStatRow, lockstat, lockstat_record, lockstat_record_for, lockstat_reset,
};
use vfscale_sync::{cpu, reclaim};

const MODE: Mode = Mode::from_bits_retain(0o755);
/// The range of ranks of the locks of the log and of volumes.
const OF_VOLUMES: std::ops::Range<u16> = 28_000..64_000;

/// Classes of locks that are chosen by the number of a block or inode, so unrelated ones may share
/// a lock.
const BY_CHANCE: [&str; 2] = ["cache_shard", "inode_table"];

/// Returns a volume that is written to only by the test's calls, with a directory created on each
/// of two CPUs.
fn volume(scaling: Scaling) -> Volume {
    let device = MemoryDevice::new(256 << 20).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    let volume = vfscale::volume_on(Arc::new(device)).scaling(scaling).sync_interval(None);
    let volume = volume.open().unwrap();
    let task = volume.task();
    for cpu in 0..2 {
        let _there = cpu::pretend(cpu);
        task.create_dir(format!("/{cpu}")).unwrap();
    }
    volume
}

/// Creates open files with data on the device, alternately in the directories of two CPUs.
fn files(volume: &Volume, bytes: usize) -> Vec<File> {
    let (task, mut files) = (volume.task(), Vec::new());
    in_turn(|cpu| {
        let name = format!("/{cpu}/{}", files.len());
        let file = task.posix().open(name, OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
        file.pwrite(&vec![1; bytes], 0).unwrap();
        files.push(file);
    });
    volume.sync().unwrap();
    files
}

fn before(patch: &str) -> Scaling {
    Scaling::with_slots(2).and_before(patch).unwrap()
}

/// Returns the classes of volume locks among `rows` that moved between CPUs more often than the
/// setup alone causes.
fn bouncing(rows: &[LockStatRow]) -> Vec<(&'static str, u64)> {
    let is_told =
        |row: &&LockStatRow| OF_VOLUMES.contains(&row.rank) && !BY_CHANCE.contains(&row.name);
    let told = rows.iter().filter(is_told);
    told.filter(|row| row.acq_bounces > 4).map(|row| (row.name, row.acq_bounces)).collect()
}

fn unlink(task: &Task, cpu: u32, number: usize) {
    task.remove_file(format!("/{cpu}/{number}")).unwrap();
}

/// Removes the names of open files: each becomes an orphan.
fn unlinked(scaling: Scaling) -> Vec<LockStatRow> {
    let volume = volume(scaling);
    let files = files(&volume, 100);
    let (task, mut number) = (volume.task(), 0);
    let rows = all_recorded(|| {
        in_turn(|cpu| {
            unlink(&task, cpu, number);
            number += 1;
        });
    });
    assert_eq!(volume.driver().volume().orphans().len() as u64, CALLS);
    drop(files);
    drop(task);
    volume.close().unwrap();
    rows
}

#[test]
fn unlinking_open_files_in_different_directories_meets_at_no_lock() {
    let _alone = alone();
    let rows = unlinked(Scaling::with_slots(2));
    assert_eq!(of_class(&rows, "s_orphan_lock").acquisitions, 0);
    assert_eq!(of_class(&rows, "group_lock").acquisitions, CALLS);
    assert_eq!(bouncing(&rows), []);
}

/// Creates files, and removes their names while they are open.
fn made_and_unlinked(scaling: Scaling) -> Vec<LockStatRow> {
    let volume = volume(scaling);
    let (task, mut files) = (volume.task(), Vec::new());
    let rows = all_recorded(|| {
        in_turn(|cpu| {
            let name = format!("/{cpu}/{}", files.len());
            files.push(task.posix().open(name, OFlags::CREATE | OFlags::RDWR, MODE).unwrap());
            unlink(&task, cpu, files.len() - 1);
        });
    });
    drop(files);
    drop(task);
    volume.close().unwrap();
    rows
}

/// Prints a row for each with `--nocapture`.
#[test]
fn each_patch_does_away_with_a_lock_that_bounces() {
    let _alone = alone();
    let default = made_and_unlinked(Scaling::with_slots(2));
    assert_eq!(bouncing(&default), []);
    for (patch, class) in
        [("cil-lists", "xc_cil"), ("busy-extents", "xc_cil_lock"), ("orphan", "s_orphan_lock")]
    {
        let rows = made_and_unlinked(before(patch));
        let [after, before] = [&default, &rows].map(|rows| of_class(rows, class));
        let of = |row: &LockStatRow| format!("{}, {}", row.acquisitions, row.acq_bounces);
        println!("| `{patch}` | `{class}` | {} | {} |", of(&after), of(&before));
        // A commit for each of two calls.
        assert!(before.acquisitions >= 2 * CALLS, "{patch}: {before:?}");
        assert!(before.acq_bounces >= CALLS - 2 && after.acq_bounces <= 4, "{patch}: {before:?}");
    }
}

/// Makes a call with each of `numbers`, alternately on two CPUs and 250 in a checkpoint; returns
/// the tickets of the checkpoints. Prints them, with `--nocapture`.
fn tickets(volume: &Volume, numbers: std::ops::Range<u32>, call: impl Fn(u32)) -> Vec<TicketTrace> {
    volume.sync().unwrap();
    let journal = || volume.driver().volume().journal().unwrap().stats().tickets;
    let last = journal().last().map_or(0, |ticket| ticket.sequence);
    for number in numbers {
        let _there = cpu::pretend(number % 2);
        call(number);
        if number % 250 == 249 {
            volume.sync().unwrap();
        }
    }
    let tickets: Vec<_> = journal().into_iter().filter(|ticket| ticket.sequence > last).collect();
    for ticket in &tickets {
        let used = ticket.used + ticket.spared;
        println!("| {} | {used} | {} |", ticket.reserved, ticket.returned);
        assert_eq!(ticket.reserved, used + ticket.returned);
    }
    tickets
}

/// The table in the discussion of patch 3 of Chinner, per-CPU delayed logging (2020): the space
/// that checkpoints reserved, used and returned. There a tenth was returned, here the two blocks of
/// each checkpoint, and less than a byte for each commit: also where files are removed, whose items
/// then have less to log than before, or nothing.
#[test]
fn checkpoints_reserve_little_more_than_they_use() {
    let _alone = alone();
    let volume = volume(Scaling::with_slots(2));
    let task = volume.task();
    let create = |number: u32| {
        let name = format!("/{}/{number}", number % 2);
        drop(task.posix().open(name, OFlags::CREATE | OFlags::WRONLY, MODE).unwrap());
    };
    let remove = |number: u32| task.remove_file(format!("/{}/{number}", number % 2)).unwrap();
    let mut all = tickets(&volume, 0..2_000, create);
    let removed = tickets(&volume, 0..2_000, remove);
    let both = tickets(&volume, 2_000..4_000, |number| {
        create(number);
        if number % 10 != 0 {
            remove(number);
        }
    });
    assert!([all.len(), removed.len(), both.len()].into_iter().all(|checkpoints| checkpoints >= 8));
    all.extend(removed);
    all.extend(both);
    for ticket in all {
        assert!(ticket.returned <= 2 * 4096 + 2_000, "{ticket:?}");
    }
    drop(task);
    volume.close().unwrap();
}

#[test]
fn orphan_before_holds_one_lock_for_all_of_it() {
    let _alone = alone();
    let row = of_class(&unlinked(before("orphan")), "s_orphan_lock");
    // One for the check, and one for the whole change.
    assert_eq!(row.acquisitions, 2 * CALLS);
    assert!(row.acq_bounces >= CALLS - 2, "{row:?}");
}

/// The stress test of Kara, orphan list scaling (2014): files are truncated by a byte repeatedly.
/// None has to become an orphan for that.
#[test]
fn orphan_before_asks_under_the_lock_whenever_a_file_is_cut() {
    let _alone = alone();
    let cuts = |scaling| {
        let volume = volume(scaling);
        let files = files(&volume, 4096);
        let mut number = 0;
        let rows = all_recorded(|| {
            in_turn(|_| {
                files[number].truncate(4095).unwrap();
                number += 1;
            });
        });
        drop(files);
        volume.close().unwrap();
        rows
    };
    let rows = cuts(Scaling::with_slots(2));
    assert_eq!(of_class(&rows, "s_orphan_lock").acquisitions, 0);
    assert_eq!(of_class(&rows, "group_lock").acquisitions, 0);
    let row = of_class(&cuts(before("orphan")), "s_orphan_lock");
    assert!(row.acquisitions >= CALLS && row.acq_bounces >= CALLS - 2, "{row:?}");
}

/// Files become dirty, on the lists of two CPUs or on one.
#[test]
fn dirty_list_before_has_one_list_of_dirty_files() {
    let _alone = alone();
    let written = |scaling| {
        let volume = volume(scaling);
        let files = files(&volume, 4096);
        let mut number = 0;
        let rows = all_recorded(|| {
            in_turn(|_| {
                // Only the first write of each makes it dirty; its times may, too, if the clock has
                // advanced.
                for at in 0..3 {
                    files[number].pwrite(&[2; 100], at * 100).unwrap();
                }
                number += 1;
            });
        });
        drop(files);
        volume.close().unwrap();
        of_class(&rows, "b_dirty")
    };
    let row = written(Scaling::with_slots(2));
    let once = CALLS..=2 * CALLS;
    assert!(once.contains(&row.acquisitions) && row.acq_bounces <= 2, "{row:?}");
    let row = written(before("dirty-list"));
    assert!(once.contains(&row.acquisitions) && row.acq_bounces >= CALLS - 2, "{row:?}");
}

/// Truncates files to zero: their blocks are busy until that is durable.
fn freed(scaling: Scaling) -> Vec<LockStatRow> {
    let volume = volume(scaling);
    let files = files(&volume, 64 << 10);
    let free = || volume.driver().volume().groups().totals().available;
    let (before, mut number) = (free(), 0);
    let rows = all_recorded(|| {
        in_turn(|_| {
            files[number].truncate(0).unwrap();
            number += 1;
        });
    });
    assert_eq!(free(), before, "what is not durable was given back");
    volume.sync().unwrap();
    assert!(free() >= before + 16 * CALLS, "{} {before}", free());
    drop(files);
    volume.close().unwrap();
    rows
}

#[test]
fn freeing_in_different_directories_meets_at_no_lock() {
    let _alone = alone();
    let rows = freed(Scaling::with_slots(2));
    assert!(of_class(&rows, "xc_cil").acquisitions >= CALLS);
    assert_eq!(bouncing(&rows), []);
}

#[test]
fn busy_extents_before_meet_at_one_lock() {
    let _alone = alone();
    let row = of_class(&freed(before("busy-extents")), "xc_cil_lock");
    assert!(row.acquisitions >= CALLS && row.acq_bounces >= CALLS - 2, "{row:?}");
}

/// Two volumes work concurrently, of which one has the lock of all orphans. Its threads free files
/// after the last call, which is in no row of the other volume.
#[test]
fn a_row_of_one_volume_has_nothing_of_another() {
    let _alone = alone();
    let [old, new] = [before("orphan"), Scaling::with_slots(2)].map(volume);
    let rows = |record: &dyn Fn()| {
        let orphans = files(&old, 100);
        for number in 0..orphans.len() {
            unlink(&old.task(), number as u32 % 2, number);
        }
        let of_old = old.driver().volume().orphans();
        assert_eq!(of_old.len() as u64, CALLS);
        reclaim::settle();
        lockstat_reset();
        record();
        let caller = old.driver().thread_owner();
        caller.spawn(move || drop(orphans)).join().unwrap();
        files(&new, 100);
        for number in 0..CALLS as usize {
            unlink(&new.task(), number as u32 % 2, number);
        }
        vfscale_harness::wait_until("the end of the orphans", || of_old.is_empty());
        lockstat_record(false);
        let rows = lockstat();
        [of_class(&rows, "s_orphan_lock"), of_class(&rows, "l_icloglock")].map(|r| r.acquisitions)
    };
    let [orphan, log] = rows(&|| lockstat_record_for(new.driver().thread_owner()));
    assert!(orphan == 0 && log > 0, "{orphan} of orphans, {log} of the log");
    assert!(rows(&|| lockstat_record(true))[0] >= CALLS);
    old.close().unwrap();
    new.close().unwrap();
}

/// Commits on two CPUs write the word of one context lock, or each its own slot of it.
#[test]
fn cil_context_before_has_one_semaphore() {
    let _alone = alone();
    let context = |scaling| of_class(&made_and_unlinked(scaling), "xc_ctx_lock");
    let default = context(Scaling::with_slots(2));
    assert!(default.acquisitions >= 2 * CALLS && default.acq_bounces <= 4, "{default:?}");
    let before = context(before("cil-context"));
    assert!(before.acquisitions >= 2 * CALLS && before.acq_bounces >= CALLS - 2, "{before:?}");
}
