//! The introspection file system, read like the kernel's: each file is parsed as its usual parser
//! does, and its contents are compared with the calls made before.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::process::Command;
use std::sync::Arc;

use vfscale::posix::{FileList, MemfdFlags, MountFlags, OFlags, UmountFlags};
use vfscale::{Credentials, Errno, MemFs, Mode, PATCHES, ProcFs, Scaling, Task, Vfs};
use vfscale_harness::alone;
use vfscale_vfs::lockstat;

const MODE: Mode = Mode::from_bits_retain(0o755);

fn errno<T: Debug>(result: vfscale::Result<T>) -> Errno {
    result.unwrap_err().errno()
}

/// Returns a tree with its own state at `/proc`, and a task that is listed there.
fn tree() -> (Vfs, Arc<ProcFs>, Arc<Task>) {
    let vfs = vfscale::memory().size(16 << 20).scaling(Scaling::with_slots(2)).build().unwrap();
    let task = Arc::new(vfs.task());
    let proc = ProcFs::new(&vfs);
    task.create_dir("/proc").unwrap();
    task.posix().mount(proc.clone(), "/proc", MountFlags::NOSUID).unwrap();
    proc.show(&task);
    (vfs, proc, task)
}

fn numbers(text: &str) -> Vec<i64> {
    assert!(text.ends_with('\n') && text.lines().count() == 1, "{text:?}");
    text.trim_end().split('\t').map(|n| n.parse().unwrap()).collect()
}

#[test]
fn the_root_is_a_directory_of_empty_files_that_can_be_read() {
    let (_vfs, _proc, task) = tree();
    let mut names: Vec<_> = task
        .read_dir("/proc")
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let all = ["dentry-state", "file-nr", "inode-state", "lock_stat", "mounts", "scaling", "tasks"];
    assert_eq!(names, all);
    for name in &all[..6] {
        let stat = task.metadata(format!("/proc/{name}")).unwrap();
        let mode = if *name == "lock_stat" { 0o100_600 } else { 0o100_444 };
        assert_eq!((stat.size, stat.mode), (0, mode), "{name}");
        assert!(!task.read_to_string(format!("/proc/{name}")).unwrap().is_empty(), "{name}");
    }
    assert_eq!(errno(task.posix().open("/proc/mounts", OFlags::RDWR, MODE)), Errno::ROFS);
    assert_eq!(errno(task.create_dir("/proc/new")), Errno::ROFS);
    assert_eq!(errno(task.remove_file("/proc/mounts")), Errno::ROFS);
    assert_eq!(errno(task.metadata("/proc/nothing")), Errno::NOENT);
    let user = task.with_credentials(Credentials::user(1000, 1000));
    assert_eq!(errno(user.posix().open("/proc/lock_stat", OFlags::RDONLY, MODE)), Errno::ACCESS);
    task.posix().umount("/proc", UmountFlags::empty()).unwrap();
}

/// For one open file, a text is unchanged from its first read until the beginning is read again.
#[test]
fn a_text_is_of_one_moment() {
    let (_vfs, _proc, task) = tree();
    let whole = task.read_to_string("/proc/mounts").unwrap();
    let file = task.posix().open("/proc/mounts", OFlags::RDONLY, MODE).unwrap();
    let mut start = [0; 5];
    assert_eq!(file.read(&mut start).unwrap(), 5);
    task.create_dir("/m").unwrap();
    task.posix().mount(MemFs::builder().size(1 << 20).build(), "/m", MountFlags::empty()).unwrap();
    let mut rest = vec![0; 4096];
    let n = file.read(&mut rest).unwrap();
    assert_eq!([&start, &rest[..n]].concat(), whole.as_bytes());
    assert_eq!(file.read(&mut rest).unwrap(), 0);
    let n = file.pread(&mut rest, 0).unwrap();
    let reread = String::from_utf8(rest[..n].to_vec()).unwrap();
    assert!(reread.starts_with(&whole) && reread.lines().count() == whole.lines().count() + 1);
    assert_eq!(file.pread(&mut rest, 5).unwrap(), n - 5);
    assert_eq!(file.pread(&mut rest, 1 << 40).unwrap(), 0);
    // Another open file has its own text.
    assert_eq!(task.read_to_string("/proc/mounts").unwrap(), reread);
}

#[test]
fn mounts_are_read_by_findmnt() {
    let (_vfs, _proc, task) = tree();
    task.create_dir("/a dir").unwrap();
    task.posix()
        .mount(MemFs::builder().size(1 << 20).build(), "/a dir", MountFlags::NODEV)
        .unwrap();
    let text = task.read_to_string("/proc/mounts").unwrap();
    let places: Vec<_> =
        text.lines().map(|line| line.split(' ').nth(1).unwrap().replace("\\040", " ")).collect();
    assert_eq!(places, ["/", "/proc", "/a dir"]);
    assert!(text.lines().all(|line| line.split(' ').count() == 6));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mounts");
    std::fs::write(&path, &text).unwrap();
    let findmnt =
        Command::new("findmnt").arg("-F").arg(&path).args(["-rno", "TARGET,FSTYPE"]).output();
    let Ok(output) = findmnt else {
        println!("######## SKIPPED: findmnt is not installed");
        return;
    };
    let told = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<_> = told.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["/ memfs", "/a\\x20dir memfs", "/proc vfscale"]);
}

#[test]
fn files_dentries_and_inodes_are_counted_exactly() {
    let (vfs, _proc, task) = tree();
    let files = || numbers(&task.read_to_string("/proc/file-nr").unwrap());
    let inodes = || numbers(&task.read_to_string("/proc/inode-state").unwrap());
    let dentries = || numbers(&task.read_to_string("/proc/dentry-state").unwrap());
    // The read itself opens the file.
    let max = i64::try_from(vfs.limits().open_files_max()).unwrap();
    assert_eq!(files(), [1, 0, max]);
    // The names of the three files are now cached.
    assert!(dentries()[0] > 0 && inodes()[0] > 0);
    let before = (dentries(), inodes());
    assert_eq!((before.0.len(), before.1.len()), (6, 7));
    let file = task.posix().open("/file", OFlags::CREATE | OFlags::WRONLY, MODE).unwrap();
    task.hard_link("/file", "/link").unwrap();
    assert_eq!(files()[0], 2);
    assert_eq!((dentries()[0], inodes()[0]), (before.0[0] + 2, before.1[0] + 1));
    // A file on a private list counts as open, and so do files without a name.
    let list = FileList::new();
    assert!(list.adopt(&file));
    assert_eq!(files()[0], 2);
    let (reader, writer) = task.posix().pipe2(OFlags::empty()).unwrap();
    let memory = task.posix().memfd_create("m", MemfdFlags::empty()).unwrap();
    assert_eq!(files()[0], 5);
    drop((reader, writer, memory, file));
    assert_eq!(files()[0], 1);
    // A nonexistent name is a negative dentry.
    let negative = dentries()[4];
    assert!(task.metadata("/proc/nothing").is_err());
    assert_eq!(dentries()[4], negative + 1);
    assert_eq!(vfs.counts().open_files, 0);
}

#[test]
fn patches_are_listed() {
    let (_vfs, _proc, task) = tree();
    let text = task.read_to_string("/proc/scaling").unwrap();
    let states: BTreeMap<_, _> = text.lines().map(|l| l.split_once('\t').unwrap()).collect();
    assert_eq!(states.len(), PATCHES.len());
    assert!(states.values().all(|state| *state == "after"), "{text}");
    let before = vfscale::memory().scaling(Scaling::kernel_2_6()).build().unwrap();
    let task = before.task();
    task.create_dir("/p").unwrap();
    task.posix().mount(ProcFs::new(&before), "/p", MountFlags::empty()).unwrap();
    assert!(task.read_to_string("/p/scaling").unwrap().lines().all(|l| l.ends_with("\tbefore")));
}

/// Parses like the tools for the kernel's file: names end at a colon, and the columns follow the
/// heading.
#[test]
fn locks_are_counted_while_they_are_recorded() {
    let _alone = alone();
    let (_vfs, _proc, task) = tree();
    lockstat::reset();
    lockstat::record(true);
    for n in 0..50 {
        task.write(format!("/{n}"), "x").unwrap();
    }
    lockstat::record(false);
    let text = task.read_to_string("/proc/lock_stat").unwrap();
    let heading = text.lines().find(|line| line.contains("class name")).unwrap();
    let columns: Vec<_> = heading.split_whitespace().skip(2).collect();
    let row = |class: &str| {
        let line = text
            .lines()
            .find(|line| line.split_once(':').is_some_and(|(name, _)| name.trim_start() == class));
        let cells = line.unwrap().split_once(':').unwrap().1;
        let cells = cells.split_whitespace().map(|cell| cell.parse::<f64>().unwrap());
        columns.iter().copied().zip(cells).collect::<BTreeMap<_, _>>()
    };
    let children = row("d_children");
    assert_eq!(children.len(), 12);
    assert!(children["acquisitions"] >= 50.0, "{children:?}");
    assert!(children["holdtime-total"] >= children["holdtime-max"]);
    assert!(row("files_lock")["acquisitions"] >= 100.0);
}

#[test]
fn tasks_show_their_descriptors_and_directories() {
    let (vfs, proc, task) = tree();
    let other = Arc::new(vfs.task_as(Credentials::user(1000, 100)));
    proc.show(&other);
    let ids = || {
        let mut ids: Vec<u64> = task
            .read_dir("/proc/tasks")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(), [task.id(), other.id()]);
    let own = format!("/proc/tasks/{}", task.id());
    task.create_dir("/dir").unwrap();
    task.posix().chdir("/dir").unwrap();
    let link = |name: &str| task.read_link(format!("{own}/{name}"));
    let told = |name: &str| link(name).unwrap().to_str().unwrap().to_owned();
    assert_eq!(told("cwd"), "/dir");
    let file = task.posix().open("file", OFlags::CREATE | OFlags::WRONLY, MODE).unwrap();
    let fd = task.posix().install(file).unwrap();
    let (reader, _) = task.posix().pipe2_fd(OFlags::empty()).unwrap();
    assert_eq!(told(&format!("fd/{}", fd.0)), "/dir/file");
    let ino = task.posix().fstat(reader).unwrap().ino;
    assert_eq!(told(&format!("fd/{}", reader.0)), format!("pipe:[{ino}]"));
    // Links follow renames.
    task.rename("file", "new").unwrap();
    assert_eq!(told(&format!("fd/{}", fd.0)), "/dir/new");
    task.remove_file("new").unwrap();
    assert_eq!(told(&format!("fd/{}", fd.0)), "/dir/new (deleted)");
    let mode = |fd: i32| {
        let path = format!("{own}/fd/{fd}");
        task.symlink_metadata(path).map(|stat| stat.mode & 0o7777)
    };
    assert_eq!((mode(fd.0).unwrap(), mode(reader.0).unwrap()), (0o300, 0o500));
    let names = || task.read_dir(format!("{own}/fd")).unwrap().count();
    assert_eq!(names(), 3);
    // A closed descriptor does not exist; a descriptor reused for another file shows that.
    task.posix().close(fd).unwrap();
    assert_eq!(errno(mode(fd.0)), Errno::NOENT);
    task.posix().dup2(reader, fd).unwrap();
    assert_eq!(mode(fd.0).unwrap(), 0o500);
    assert_eq!(names(), 3);
    for bad in ["07", "x", "-1", "1048576", "99"] {
        assert_eq!(errno(link(&format!("fd/{bad}"))), Errno::NOENT);
    }
    // Only the owner may read a task's descriptors.
    let theirs = format!("/proc/tasks/{}/fd", other.id());
    assert_eq!(task.metadata(&theirs).unwrap().uid, 1000);
    assert!(other.read_dir(&theirs).is_ok());
    assert_eq!(errno(other.read_dir(format!("{own}/fd"))), Errno::ACCESS);
    other.set_credentials(Credentials::user(1001, 100));
    assert_eq!(task.metadata(&theirs).unwrap().uid, 1001);
    // An ended task does not exist.
    let held = task.posix().open(&theirs, OFlags::RDONLY, MODE).unwrap();
    drop(other);
    assert_eq!(ids(), [task.id()]);
    assert_eq!(errno(task.metadata(&theirs)), Errno::NOENT);
    assert_eq!(held.read_dir().count(), 2);
    drop(held);
    task.posix().chdir("/").unwrap();
    task.posix().umount("/proc", UmountFlags::empty()).unwrap();
}

/// The driver owns neither the tree nor its contents.
#[test]
fn the_tree_ends_with_its_state_mounted_in_it() {
    let (vfs, proc, task) = tree();
    let other = vfscale::memory().size(1 << 20).build().unwrap();
    let elsewhere = other.task();
    elsewhere.create_dir("/it").unwrap();
    elsewhere.posix().mount(ProcFs::new(&vfs), "/it", MountFlags::empty()).unwrap();
    assert!(elsewhere.read_to_string("/it/mounts").unwrap().contains(" /proc vfscale "));
    drop((task, vfs, proc));
    assert_eq!(errno(elsewhere.read_to_string("/it/mounts")), Errno::NODEV);
}
