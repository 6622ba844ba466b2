#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use vfscale_sync::{cpu, rcu};

use super::{Mount, MountRef, Verdict, WriteAccess};
use crate::base::types::{Mode, MountFlags, OFlags};
use crate::file::file_list::FileList;
use crate::file::open_file::File;
use crate::mount::namespace::Vfs;
use crate::names_only_tests::{NamesOnly, names_only};
use crate::objects::super_ref::SuperRef;
use vfscale_sync::scaling::Scaling;

const MODE: Mode = Mode::from_bits_retain(0o755);
const CPUS: usize = 4;

/// Returns the counts of users and writers of a mount with an open file and a change in progress on
/// each of `CPUS` CPUs.
fn counts(scaling: Scaling) -> (Vec<i64>, Vec<i64>) {
    let task = names_only(scaling).task();
    let root = task.vfs().tree().root_path();
    let mount = root.mount();
    let before: Vec<i64> = mount.users.parts().collect();
    let files: Vec<File> = (0..CPUS)
        .map(|cpu| {
            let _there = cpu::pretend(cpu as u32);
            task.posix().open(format!("/{cpu}"), OFlags::CREATE | OFlags::WRONLY, MODE).unwrap()
        })
        .collect();
    let users: Vec<i64> = mount.users.parts().collect();
    assert_eq!((users.len(), files.len()), (before.len(), CPUS));
    let added: Vec<i64> = users.iter().zip(before).map(|(now, before)| now - before).collect();
    let changes: Vec<WriteAccess<'_>> = (0..CPUS)
        .map(|cpu| {
            let _there = cpu::pretend(cpu as u32);
            WriteAccess::new(mount).unwrap()
        })
        .collect();
    let writers = mount.writers.parts().collect();
    drop(changes);
    assert!(!mount.has_changes());
    (added, writers)
}

/// The patch removed no lock, and no thread waits for a counter; but the parts show where the uses
/// of each CPU were counted.
#[test]
fn mount_count_before_has_one_counter() {
    let (users, writers) = counts(Scaling::with_slots(CPUS));
    assert_eq!((users.as_slice(), writers.as_slice()), (&[1; CPUS][..], &[1; CPUS][..]));
    let before = Scaling::with_slots(CPUS).and_before("mount-count").unwrap();
    let (users, writers) = counts(before);
    assert_eq!((users.as_slice(), writers.as_slice()), (&[CPUS as i64][..], &[CPUS as i64][..]));
}

/// A refused change is subtracted from the part that it was added to, on whatever CPU the thread
/// then runs. Otherwise a sum could see the subtraction without the addition, and miss a writer.
///
/// Race: A remount to read-only against opening for writing.
#[test]
fn a_refused_change_leaves_every_part_as_it_was() {
    let task = names_only(Scaling::with_slots(CPUS)).task();
    let root = task.vfs().tree().root_path();
    let mount = root.mount();
    task.posix().remount("/", MountFlags::RDONLY).unwrap();
    for cpu in 0..CPUS {
        let _there = cpu::pretend(cpu as u32);
        assert_eq!(WriteAccess::new(mount).err(), Some(Errno::ROFS));
        assert!(mount.writers.parts().all(|part| part == 0));
    }
    // The thread moves to another CPU during the check.
    let _there = cpu::pretend(1);
    let mut moved = None;
    let kept = mount.writers.add_if(1, || {
        moved = Some(cpu::pretend(2));
        false
    });
    drop(moved);
    assert!(!kept && mount.writers.parts().all(|part| part == 0));
}

/// A change in an RCU section is counted only if it lasts longer, or a remount has announced
/// itself, or the patch is disabled.
#[test]
fn changes_in_sections_are_counted_when_a_remount_looks() {
    let before = Scaling::with_slots(CPUS).and_before("mount-count").unwrap();
    for (scaling, is_counted) in [(Scaling::with_slots(CPUS), false), (before, true)] {
        let task = names_only(scaling).task();
        let root = task.vfs().tree().root_path();
        let mount = root.mount();
        let guard = rcu::pin();
        let change = WriteAccess::in_section(mount, &guard).unwrap();
        assert_eq!(mount.has_changes(), is_counted);
        let kept = change.keep(root.mount_ref());
        assert!(mount.has_changes());
        drop(kept);
        assert!(!mount.has_changes());
        drop(guard);
        for flags in [mount.sb().remount_flags(), &mount.flags] {
            flags.count_sections();
            flags.set(flags.get());
            let guard = rcu::pin();
            let change = WriteAccess::in_section(mount, &guard).unwrap();
            assert!(mount.has_changes(), "the announcement stays");
            drop(change);
            assert!(!mount.has_changes());
        }
    }
}

/// A change in an RCU section is over before a remount to read-only looks for writers, also one
/// through a mount that has ended: such a change uses no mount.
///
/// Race: A remount to read-only against a change through a mount that ends.
///
/// A change under way does not use its mount: the RCU section that it is made in protects it. So an
/// unmount may drop the last use of the mount during the change. A remount of the superblock,
/// through another mount, has to wait for the change nevertheless, or, if it was counted, to find
/// it. Therefore a mount stays on the list of its superblock until the grace period ends; it used
/// to leave the list with its last use.
#[test]
fn a_remount_waits_for_a_change_through_a_mount_that_goes() {
    let task = names_only(Scaling::with_slots(CPUS)).task();
    let root = task.vfs().tree().root_path();
    waits_for_a_change(root.mount().sb(), 1);
}

/// The mount that ends may be the last one.
///
/// Race: A remount to read-only against a change through the last mount, which ends.
#[test]
fn a_remount_waits_for_a_change_through_the_last_mount() {
    let vfs = names_only(Scaling::with_slots(CPUS));
    let driver = Arc::new(NamesOnly::default());
    let sb = vfs.ns().new_super(driver, Scaling::with_slots(CPUS)).unwrap();
    waits_for_a_change(&sb, 0);
}

/// Makes a change through a mount that ends meanwhile, and a remount of the superblock, which keeps
/// `mounts`.
fn waits_for_a_change(sb: &SuperRef, mounts: usize) {
    thread::scope(|scope| {
        let guard = rcu::pin();
        let owned = Mount::alloc(99, sb.clone(), sb.root_ref(), MountFlags::empty());
        let mount = MountRef::new(&owned).borrow(&guard);
        let change = WriteAccess::in_section(mount, &guard).unwrap();
        drop(owned);
        let remount = scope.spawn(|| sb.remount(MountFlags::RDONLY));
        while mount.flags.verdict(sb.remount_flags()) == Verdict::Writable && !remount.is_finished()
        {
            thread::yield_now();
        }
        // Many times what a remount takes that need not wait.
        vfscale_harness::stays("the change is in progress", Duration::from_millis(50), || {
            !remount.is_finished() && !mount.is_readonly()
        });
        drop(change);
        drop(guard);
        assert_eq!(remount.join().unwrap(), Ok(()));
    });
    rcu::synchronize();
    assert_eq!(sb.mount_count(), mounts, "the mount has left the list");
}

/// Once a remount has announced itself, changes in sections are counted, and a remount does not
/// wait for them. A concurrent unmount does not hide one from a remount of the superblock.
///
/// Race: A remount to read-only against a change through a mount that ends.
#[test]
fn a_counted_change_through_a_mount_that_goes_keeps_the_file_system_writable() {
    let task = names_only(Scaling::with_slots(CPUS)).task();
    let root = task.vfs().tree().root_path();
    let sb = root.mount().sb();
    sb.remount_flags().count_sections();
    let guard = rcu::pin();
    let owned = Mount::alloc(99, sb.clone(), sb.root_ref(), MountFlags::empty());
    let mount = MountRef::new(&owned).borrow(&guard);
    let change = WriteAccess::in_section(mount, &guard).unwrap();
    drop(owned);
    // On a thread of its own: a remount may wait for a disk, so it is in no RCU section.
    let remount =
        || thread::scope(|scope| scope.spawn(|| sb.remount(MountFlags::RDONLY)).join().unwrap());
    assert_eq!(remount(), Err(Errno::BUSY));
    drop(change);
    assert_eq!(remount(), Ok(()));
    drop(guard);
    rcu::synchronize();
    assert_eq!(sb.mount_count(), 1, "the mount has left the list");
}

/// Files enter and leave private lists at any time, on any CPU. The parts that a remount sums do
/// not count them: otherwise a sum could see a file leave that it did not see enter, and miss a
/// writer.
///
/// Race: A remount to read-only against opening for writing.
#[test]
fn files_on_private_lists_leave_every_part_as_it_was() {
    let task = names_only(Scaling::with_slots(CPUS)).task();
    let root = task.vfs().tree().root_path();
    let mount = root.mount();
    let file = task.posix().open("/file", OFlags::CREATE | OFlags::WRONLY, MODE).unwrap();
    let before: Vec<i64> = mount.writers.parts().collect();
    let same = || mount.writers.parts().eq(before.iter().copied());
    let terminal = FileList::new();
    for cpu in 0..CPUS {
        let _there = cpu::pretend(cpu as u32);
        assert_eq!(terminal.adopt(&file), cpu == 0);
        assert!(same() && mount.has_unlisted());
    }
    let _elsewhere = cpu::pretend(1);
    drop(file);
    assert!(same() && !mount.has_unlisted());
}

/// A remount that fails reverts its change, and a concurrent remount does not mistake the temporary
/// flags for its own success.
///
/// Race: Two remounts of one mount.
#[test]
fn remounts_of_one_mount_wait_for_each_other() {
    let task = names_only(Scaling::with_slots(CPUS)).task();
    let root = task.vfs().tree().root_path();
    let writer = task.posix().open("/file", OFlags::CREATE | OFlags::WRONLY, MODE).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    let busy = root.mount().set_flags(MountFlags::RDONLY);
                    assert_eq!(busy, Err(Errno::BUSY));
                }
            });
        }
    });
    assert!(!root.mount().is_readonly());
    drop(writer);
    assert_eq!(root.mount().set_flags(MountFlags::RDONLY), Ok(()));
}

/// A writer that arrives while a remount checks for writers is counted and waits, even with the
/// locks of a reader of a directory, and proceeds if the remount changes nothing.
#[test]
fn a_writer_waits_while_a_remount_looks() {
    let task = names_only(Scaling::with_slots(CPUS)).task();
    let root = task.vfs().tree().root_path();
    drop(task.posix().open("/file", OFlags::CREATE | OFlags::WRONLY, MODE).unwrap());
    let mount = root.mount();
    let kept = [&mount.flags, mount.sb().remount_flags()];
    for flags in kept {
        for after in [MountFlags::empty(), MountFlags::RDONLY] {
            let before = flags.get();
            let reads = task.posix().open("/", OFlags::RDONLY, MODE).unwrap();
            let looks = mount.sb().lock_write_hold();
            flags.hold();
            assert_eq!(flags.get(), before, "the hold is no option");
            let opened = std::thread::scope(|scope| {
                let opens = scope.spawn(|| {
                    reads.read_dir().for_each(|entry| _ = entry.unwrap());
                    task.posix()
                        .open("/file", OFlags::WRONLY, MODE)
                        .map(drop)
                        .map_err(|e| e.errno())
                });
                while !mount.has_changes() {
                    std::thread::yield_now();
                }
                assert!(!opens.is_finished(), "it waits");
                flags.set(before | after);
                drop(looks);
                opens.join().unwrap()
            });
            let refused = after.contains(MountFlags::RDONLY);
            assert_eq!(opened.err(), refused.then_some(Errno::ROFS));
            flags.set(before);
        }
    }
    assert!(!mount.has_changes());
}

/// A remount has forbidden changes and makes them durable: a concurrent sync does not return before
/// they are durable.
///
/// Race: A sync against a remount to read-only.
///
/// While the driver of a file system that had just become read-only was still writing everything,
/// `sync` and `syncfs` found it read-only and returned immediately, as if everything were durable.
/// Now they wait for the remount (`s_umount`), and sync if it has failed.
#[test]
fn a_sync_waits_for_a_remount_that_writes() {
    let driver = Arc::new(NamesOnly::default());
    let vfs = Vfs::with_scaling(driver.clone(), Scaling::with_slots(CPUS)).unwrap();
    let (synced, told) = mpsc::channel();
    let told = Mutex::new(told);
    let task = Arc::new(vfs.task());
    let syncs = task.clone();
    let set = driver.while_sealed.set(Box::new(move || {
        let (syncs, synced) = (syncs.clone(), synced.clone());
        std::thread::spawn(move || {
            syncs.posix().sync();
            synced.send(()).unwrap();
        });
        // No message arrives; a sync that did not wait would have sent one by this time.
        let early = told.lock().unwrap().recv_timeout(Duration::from_millis(300));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "nothing is durable yet");
    }));
    assert!(set.is_ok());
    task.posix().remount("/", MountFlags::RDONLY).unwrap();
}

/// A task that leaves its working directory drops the reference immediately, although no grace
/// period can end: the mount is no longer busy, and a removed directory is freed.
#[test]
fn a_directory_that_is_left_is_given_back_at_once() {
    let task = names_only(Scaling::with_slots(CPUS)).task();
    let root = task.vfs().tree().root_path();
    task.create_dir("/d").unwrap();
    task.posix().chdir("/d").unwrap();
    task.remove_dir("/d").unwrap();
    let (users, dentries) = (root.mount().users(), task.vfs().counts().dentries);
    let reader = rcu::pin();
    task.posix().chdir("/").unwrap();
    assert_eq!(root.mount().users(), users);
    assert_eq!(task.vfs().counts().dentries, dentries - 1);
    let before = task.root(&reader);
    task.posix().chroot("/").unwrap();
    assert!(before.is_same(root.mount(), root.dentry()));
    assert_eq!(root.mount().users(), users);
}
