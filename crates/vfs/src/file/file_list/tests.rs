#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use vfscale_sync::cpu;

use super::*;
use crate::base::types::{Mode, MountFlags, OpenHow};
use crate::names_only_tests::names_only;
use crate::task::task_struct::{At, Task};
use vfscale_sync::scaling::Scaling;

const MODE: Mode = Mode::from_bits_retain(0o755);
const CPUS: u32 = 4;

fn task() -> Task {
    names_only(Scaling::with_slots(CPUS as usize)).task()
}

fn create(task: &Task, path: &str) -> File {
    task.posix().open(path, OFlags::CREATE | OFlags::RDWR, MODE).unwrap()
}

fn ids(task: &Task) -> Vec<u64> {
    let mut ids: Vec<u64> =
        task.posix().open_files("/").unwrap().iter().map(|file| file.id).collect();
    ids.sort_unstable();
    ids
}

fn remount(task: &Task, flags: MountFlags) -> Result<(), Errno> {
    task.posix().remount("/", flags).map_err(|e| e.errno())
}

#[test]
fn open_files_are_told() {
    let task = task();
    assert_eq!(ids(&task), []);
    let file = create(&task, "/file");
    let place = task.posix().open("/", OFlags::PATH, MODE).unwrap();
    let fd = task.posix().open_fd(At::Cwd, "/file", &OpenHow::new(OFlags::RDONLY)).unwrap();
    let told = task.posix().open_files("/").unwrap();
    assert_eq!(told.len(), 3);
    let stat = file.stat().unwrap();
    let this = told.iter().find(|info| info.id == file.id()).unwrap();
    assert_eq!((this.dev, this.ino, this.flags), (stat.dev, stat.ino, OFlags::RDWR));
    assert!(told.iter().any(|info| info.id == place.id() && info.flags == OFlags::PATH));
    let clone = file.clone();
    drop(file);
    assert_eq!(ids(&task).len(), 3, "another handle holds it open");
    drop(clone);
    task.posix().close(fd).unwrap();
    assert_eq!(ids(&task), [place.id()]);
    task.remove_file("/file").unwrap();
}

#[test]
fn open_files_tells_only_an_administrator() {
    let task = task();
    let nobody = task.vfs().task_as(crate::security::cred::Credentials::user(7, 7));
    assert_eq!(nobody.posix().open_files("/").unwrap_err().errno(), Errno::PERM);
}

#[test]
fn many_files_are_told_of_once() {
    let task = task();
    let files: Vec<File> = (0..500)
        .map(|n| {
            let _there = cpu::pretend(n % CPUS);
            create(&task, &format!("/{n}"))
        })
        .collect();
    let mut expected: Vec<u64> = files.iter().map(File::id).collect();
    expected.sort_unstable();
    assert_eq!(ids(&task), expected);
}

#[test]
fn a_remount_walks_the_lists_of_all_cpus() {
    let task = task();
    for cpu in 0..CPUS {
        let writer = {
            let _there = cpu::pretend(cpu);
            create(&task, "/file")
        };
        let reader = task.posix().open("/file", OFlags::RDONLY, MODE).unwrap();
        assert_eq!(remount(&task, MountFlags::RDONLY), Err(Errno::BUSY));
        // Still writable: the failed remount reverted its change.
        drop(create(&task, "/other"));
        {
            let _elsewhere = cpu::pretend((cpu + 1) % CPUS);
            drop(writer);
        }
        assert_eq!(remount(&task, MountFlags::RDONLY), Ok(()));
        let refused = task.posix().open("/file", OFlags::WRONLY, MODE).err().map(|e| e.errno());
        assert_eq!(refused, Some(Errno::ROFS));
        assert_eq!(remount(&task, MountFlags::empty()), Ok(()));
        drop(reader);
    }
}

#[test]
fn a_file_opened_through_another_mount_does_not_keep_this_one_writable() {
    let task = task();
    task.create_dir("/dir").unwrap();
    task.create_dir("/bind").unwrap();
    task.posix().bind("/dir", "/bind", false).unwrap();
    let file = create(&task, "/bind/file");
    let bind = |flags| task.posix().remount_bind("/bind", flags).map_err(|e| e.errno());
    let root = |flags| task.posix().remount_bind("/", flags).map_err(|e| e.errno());
    assert_eq!(bind(MountFlags::RDONLY), Err(Errno::BUSY));
    assert_eq!(root(MountFlags::RDONLY), Ok(()));
    assert_eq!(root(MountFlags::empty()), Ok(()));
    // Both mounts share the superblock.
    assert_eq!(remount(&task, MountFlags::RDONLY), Err(Errno::BUSY));
    drop(file);
    assert_eq!(bind(MountFlags::RDONLY), Ok(()));
    assert_eq!(remount(&task, MountFlags::RDONLY), Ok(()));
}

#[test]
fn a_private_list_has_its_files_for_itself() {
    let task = task();
    let terminal = FileList::new();
    let (mine, other) = (create(&task, "/mine"), create(&task, "/other"));
    assert!(terminal.adopt(&mine));
    assert!(!terminal.adopt(&mine) && !FileList::new().adopt(&mine.clone()), "owned already");
    assert_eq!(ids(&task), [other.id()]);
    assert_eq!(terminal.files().iter().map(|file| file.id).collect::<Vec<_>>(), [mine.id()]);
    drop(other);
    // Not on the superblock's lists, but open for writing nevertheless.
    assert_eq!(remount(&task, MountFlags::RDONLY), Err(Errno::BUSY));
    let reader = task.posix().open("/mine", OFlags::RDONLY, MODE).unwrap();
    assert!(terminal.adopt(&reader));
    assert_eq!(terminal.files().len(), 2);
    let again = terminal.clone();
    drop(terminal);
    drop(mine);
    assert_eq!(remount(&task, MountFlags::RDONLY), Ok(()));
    assert_eq!(again.files().iter().map(|file| file.id).collect::<Vec<_>>(), [reader.id()]);
    drop(again);
    drop(reader);
    assert_eq!(remount(&task, MountFlags::empty()), Ok(()));
    assert_eq!(ids(&task), []);
}

/// While the file system is read-only, no file is open for writing, on any CPU and on any list.
///
/// Race: A remount to read-only against opening for writing.
#[test]
fn no_writer_is_left_on_a_read_only_file_system() {
    const REMOUNTS: u32 = 2_000;
    let task = task();
    drop(create(&task, "/file"));
    let read_only = AtomicBool::new(false);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (task, read_only, done) = (&task, &read_only, &done);
            scope.spawn(move || {
                let terminal = FileList::new();
                let mut round = thread;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let opened = {
                        let _there = cpu::pretend(round % CPUS);
                        task.posix().open("/file", OFlags::WRONLY, MODE)
                    };
                    if let Ok(file) = opened {
                        assert!(!read_only.load(Ordering::SeqCst), "open for writing");
                        if round % 3 == 0 {
                            assert!(terminal.adopt(&file));
                            assert!(!read_only.load(Ordering::SeqCst), "open for writing");
                        }
                        let _elsewhere = cpu::pretend((round + 1) % CPUS);
                        drop(file);
                    }
                    if round % 5 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut successes = 0;
        while successes < REMOUNTS {
            if remount(&task, MountFlags::RDONLY).is_ok() {
                read_only.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                read_only.store(false, Ordering::SeqCst);
                remount(&task, MountFlags::empty()).unwrap();
                successes += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(ids(&task), []);
    assert_eq!(remount(&task, MountFlags::RDONLY), Ok(()));
}
