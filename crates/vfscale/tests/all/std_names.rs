//! The methods of tasks and files with the names of `std::fs`: they behave as those do.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use vfscale::posix::{At, AtFlags, LockKind, SetTime};
use vfscale::{
    Credentials, DirBuilder, Durability, Errno, Error, FileType, Mode, OpenOptions, Result, Task,
    Timestamp, TryLockError, Vfs,
};

fn vfs() -> Vfs {
    vfscale::memory().size(64 << 20).build().unwrap()
}

fn task() -> Task {
    vfs().task()
}

fn mode(task: &Task, path: &str) -> Mode {
    task.symlink_metadata(path).unwrap().permissions()
}

fn errno<T>(result: Result<T>) -> Errno {
    result.err().map(|error| error.errno()).unwrap()
}

#[test]
fn one_name() {
    let task = task();
    task.write("/a", "contents").unwrap();
    task.hard_link("/a", "/b").unwrap();
    task.symlink("a", "/link").unwrap();
    assert_eq!(task.read_link("/link").unwrap(), Path::new("a"));
    assert_eq!(task.metadata("/link").unwrap().nlink, 2);
    assert!(task.symlink_metadata("/link").unwrap().is_symlink());
    task.rename("/b", "/c").unwrap();
    assert!(!task.exists("/b").unwrap());
    task.remove_file("/a").unwrap();
    assert_eq!(task.read_to_string("/c").unwrap(), "contents");
    task.create_dir("/d").unwrap();
    assert_eq!(errno(task.remove_file("/d")), Errno::ISDIR);
    task.remove_dir("/d").unwrap();
    task.set_permissions("/c", 0o640).unwrap();
    assert_eq!(mode(&task, "/c"), 0o640.into());
    task.chown("/c", Some(7), None).unwrap();
    assert_eq!(task.metadata("/c").unwrap().uid, 7);
}

#[test]
fn metadata_has_the_names_of_std() {
    let task = task();
    task.write("/f", [1; 5000]).unwrap();
    let at = |secs| SetTime::At(Timestamp::new(secs, 0));
    task.posix().utimensat(At::Cwd, "/f", [at(5), at(7)], AtFlags::empty()).unwrap();
    let metadata = task.metadata("/f").unwrap();
    assert_eq!((metadata.len(), metadata.is_file(), metadata.is_dir()), (5000, true, false));
    assert_eq!(metadata.allocated_bytes(), 8192);
    assert_eq!(metadata.accessed().duration_since(UNIX_EPOCH).unwrap().as_secs(), 5);
    assert_eq!(metadata.modified().duration_since(UNIX_EPOCH).unwrap().as_secs(), 7);
    assert!(metadata.created() > metadata.modified());
    let file = task.open("/f").unwrap();
    assert_eq!(file.metadata().unwrap(), metadata);
}

#[test]
fn directories_are_made_with_the_permissions_of_the_builder() {
    let task = task();
    task.create_dir_all("/a/b/c").unwrap();
    task.create_dir_all("/a/b/c").unwrap();
    assert_eq!(mode(&task, "/a/b"), 0o755.into());
    task.create_dir_with("/x/y", &DirBuilder::new().recursive(true).mode(0o700)).unwrap();
    assert_eq!((mode(&task, "/x"), mode(&task, "/x/y")), (0o700.into(), 0o700.into()));
    assert_eq!(errno(task.create_dir_with("/x/y", &DirBuilder::new())), Errno::EXIST);
    assert_eq!(errno(task.create_dir("/q/r")), Errno::NOENT);
}

#[test]
fn entries_of_a_directory() {
    let task = task();
    task.create_dir_all("/d/sub").unwrap();
    task.write("/d/file", "123").unwrap();
    task.symlink("nowhere", "/d/link").unwrap();
    let mut found: Vec<_> = task.read_dir("/d").unwrap().map(Result::unwrap).collect();
    found.sort_by_key(|entry| entry.file_name());
    let names: Vec<_> = found.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["file", "link", "sub"]);
    let types: Vec<_> = found.iter().map(|entry| entry.file_type()).collect();
    assert_eq!(types, [FileType::RegularFile, FileType::Symlink, FileType::Directory]);
    assert_eq!(found[0].path(), Path::new("/d/file"));
    assert_eq!(found[0].metadata().unwrap().len(), 3);
    assert!(found[1].metadata().unwrap().is_symlink());
    // The entry is found in the directory that was read, wherever that is.
    task.rename("/d", "/moved").unwrap();
    assert_eq!(found[0].metadata().unwrap().ino, found[0].ino());
    task.remove_file("/moved/file").unwrap();
    assert_eq!(errno(found[0].metadata()), Errno::NOENT);
    assert_eq!(errno(task.read_dir("/moved/link")), Errno::NOENT);
    task.write("/plain", "").unwrap();
    assert_eq!(errno(task.read_dir("/plain")), Errno::NOTDIR);
}

#[test]
fn a_walk_has_depths_and_a_filter() {
    let task = task();
    for path in ["/t/a/x", "/t/skip/y", "/t/b/deep/deeper"] {
        task.create_dir_all(path).unwrap();
    }
    let paths = |walk: vfscale::WalkDir<'_>| {
        let mut paths: Vec<PathBuf> = walk.map(|entry| entry.unwrap().path).collect();
        paths.sort();
        paths
    };
    let all = task.walk_dir("/t").filter_entry(|entry| entry.file_name() != "skip");
    let expected = ["/t", "/t/a", "/t/a/x", "/t/b", "/t/b/deep", "/t/b/deep/deeper"];
    assert_eq!(paths(all), expected.map(PathBuf::from));
    let two = task.walk_dir("/t").min_depth(1).max_depth(2);
    let expected = ["/t/a", "/t/a/x", "/t/b", "/t/b/deep", "/t/skip", "/t/skip/y"];
    assert_eq!(paths(two), expected.map(PathBuf::from));
    let mut walk = task.walk_dir("/t").min_depth(1);
    let mut seen = Vec::new();
    while let Some(entry) = walk.next() {
        let entry = entry.unwrap();
        if entry.file_name() == "skip" {
            walk.skip_current_dir();
        }
        seen.push(entry.path);
    }
    assert!(seen.contains(&"/t/skip".into()) && !seen.contains(&"/t/skip/y".into()), "{seen:?}");
    assert!(seen.contains(&"/t/b/deep/deeper".into()), "{seen:?}");
}

#[test]
fn a_copy_has_contents_and_permissions() {
    let task = task();
    task.write("/from", [3; 100_000]).unwrap();
    task.set_permissions("/from", 0o4750).unwrap();
    task.write("/to", [1; 200_000]).unwrap();
    assert_eq!(task.copy("/from", "/to").unwrap(), 100_000);
    assert_eq!(task.read("/to").unwrap(), [3; 100_000]);
    assert_eq!(mode(&task, "/to"), 0o4750.into());
    task.hard_link("/from", "/same").unwrap();
    assert_eq!(errno(task.copy("/from", "/same")), Errno::INVAL);
    assert_eq!(task.metadata("/from").unwrap().len(), 100_000);
    assert_eq!(errno(task.copy("/missing", "/to")), Errno::NOENT);
}

#[test]
fn a_copy_of_a_tree() {
    let task = task();
    task.create_dir_all("/t/d").unwrap();
    task.write("/t/d/f", "contents").unwrap();
    task.hard_link("/t/d/f", "/t/other").unwrap();
    task.symlink("../t/d", "/t/link").unwrap();
    task.posix().mknodat(At::Cwd, "/t/queue", FileType::Fifo, 0o620, 0).unwrap();
    task.set_permissions("/t/queue", 0o620).unwrap();
    task.set_permissions("/t/d", 0o500).unwrap();
    assert_eq!(task.copy_dir_all("/t", "/copy").unwrap(), 6);
    assert_eq!(task.read_to_string("/copy/d/f").unwrap(), "contents");
    assert_eq!(task.metadata("/copy/d/f").unwrap().nlink, 2);
    assert_eq!(task.read_link("/copy/link").unwrap(), Path::new("../t/d"));
    assert_eq!(mode(&task, "/copy/d"), 0o500.into());
    assert_eq!(mode(&task, "/copy/queue"), 0o620.into());
    assert_eq!(errno(task.copy_dir_all("/t", "/copy")), Errno::EXIST);
    task.symlink("/t", "/way").unwrap();
    assert_eq!(task.copy_dir_all("/way", "/same").unwrap(), 6);
    assert_eq!(errno(task.copy_dir_all("/none", "/new")), Errno::NOENT);
    assert_eq!(errno(task.copy_dir_all("/t/other", "/new")), Errno::NOTDIR);
    assert!(!task.exists("/new").unwrap());
    // Into itself it would never end.
    assert_eq!(errno(task.copy_dir_all("/t", "/t/inside")), Errno::INVAL);
    assert!(!task.exists("/t/inside").unwrap());
}

#[test]
fn extended_attributes_by_path() {
    let task = task();
    task.write("/f", "").unwrap();
    assert_eq!(task.xattr("/f", "user.note").unwrap(), None);
    task.set_xattr("/f", "user.note", "1").unwrap();
    assert_eq!(task.xattr("/f", "user.note").unwrap().unwrap(), b"1");
    assert_eq!(task.list_xattrs("/f").unwrap(), ["user.note"]);
    task.remove_xattr("/f", "user.note").unwrap();
    assert_eq!(errno(task.remove_xattr("/f", "user.note")), Errno::NODATA);
}

#[test]
fn paths_of_files_and_directories() {
    let task = task();
    task.create_dir_all("/d/e").unwrap();
    task.symlink("d/e", "/link").unwrap();
    assert_eq!(task.canonicalize("/link/../e/.").unwrap(), Path::new("/d/e"));
    assert_eq!(errno(task.canonicalize("/none")), Errno::NOENT);
    task.set_current_dir("/link").unwrap();
    assert_eq!(task.current_dir().unwrap(), Path::new("/d/e"));
}

#[test]
fn locks_of_whole_files() {
    let task = task();
    task.write("/f", "").unwrap();
    let (one, two) = (task.open("/f").unwrap(), task.open("/f").unwrap());
    one.lock_shared().unwrap();
    two.try_lock_shared().unwrap();
    assert!(matches!(one.try_lock(), Err(TryLockError::WouldBlock)));
    two.unlock().unwrap();
    one.try_lock().unwrap();
    assert!(matches!(two.try_lock_shared(), Err(TryLockError::WouldBlock)));
    assert_eq!(Error::from(two.try_lock().unwrap_err()).errno(), Errno::AGAIN);
    assert_eq!(errno(two.flock(Some(LockKind::Shared), None)), Errno::AGAIN);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| two.lock());
        one.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
    drop(two);
    one.try_lock().unwrap();
}

#[test]
fn a_guest_sees_its_directory_as_the_root() {
    let vfs = vfs();
    let host = vfs.task();
    host.create_dir_all("/jail/home").unwrap();
    host.chown("/jail/home", Some(1000), Some(1000)).unwrap();
    host.write("/secret", "s").unwrap();
    let guest = vfs.task_in("/jail", Credentials::user(1000, 1000)).unwrap();
    assert_eq!(guest.current_dir().unwrap(), Path::new("/"));
    assert_eq!(errno(guest.read("/secret")), Errno::NOENT);
    assert_eq!(errno(guest.read("../../secret")), Errno::NOENT);
    assert_eq!(errno(guest.write("/f", "")), Errno::ACCESS);
    guest.write("/home/f", "").unwrap();
    assert_eq!(host.metadata("/jail/home/f").unwrap().uid, 1000);
    assert_eq!(errno(vfs.task_in("/secret", Credentials::root())), Errno::NOTDIR);
    assert_eq!(errno(vfs.task_in("/none", Credentials::root())), Errno::NOENT);
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let task = task();
    task.create_dir("/d").unwrap();
    task.replace_file("/d/f", "one", Durability::Ordered).unwrap();
    assert_eq!(mode(&task, "/d/f"), 0o644.into());
    task.set_permissions("/d/f", 0o600).unwrap();
    task.chown("/d/f", Some(7), Some(8)).unwrap();
    let old = task.open("/d/f").unwrap();
    task.replace_file("/d/f", "two", Durability::Durable).unwrap();
    assert_eq!(task.read_to_string("/d/f").unwrap(), "two");
    let metadata = task.metadata("/d/f").unwrap();
    assert_eq!((metadata.uid, metadata.gid), (7, 8));
    assert_eq!(metadata.permissions(), 0o600.into());
    let mut bytes = [0; 3];
    assert_eq!((old.read_at(&mut bytes, 0).unwrap(), &bytes), (3, b"one"));
    assert_eq!(errno(task.replace_file("/d", "", Durability::Ordered)), Errno::ISDIR);
    assert_eq!(errno(task.replace_file("/none/f", "", Durability::Ordered)), Errno::NOENT);
    task.set_current_dir("/d").unwrap();
    task.replace_file("relative", "three", Durability::Durable).unwrap();
    assert_eq!(task.read_dir("/d").unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn a_temporary_file_goes_unless_it_is_kept() {
    let task = task();
    task.create_dir("/d").unwrap();
    let temp = task.temp_file_in("/d").unwrap();
    assert_eq!(mode(&task, temp.path().to_str().unwrap()), 0o600.into());
    temp.file().write_all(b"x").unwrap();
    drop(temp);
    assert_eq!(task.read_dir("/d").unwrap().count(), 0);
    let temp = task.temp_file_in("/d").unwrap();
    temp.file().write_all(b"kept").unwrap();
    temp.persist_new("/d/f").unwrap();
    assert_eq!(errno(task.temp_file_in("/d").unwrap().persist_new("/d/f")), Errno::EXIST);
    assert_eq!(task.read_to_string("/d/f").unwrap(), "kept");
    assert_eq!(task.read_dir("/d").unwrap().count(), 1);
    task.temp_file_in("/d").unwrap().persist("/d/f").unwrap();
    assert_eq!(task.read_to_string("/d/f").unwrap(), "");
}

#[test]
fn space_is_in_bytes() {
    let task = task();
    let before = task.space("/").unwrap();
    task.write("/f", vec![1; 1 << 20]).unwrap();
    let after = task.space("/").unwrap();
    assert_eq!(before.total, after.total);
    assert_eq!(after.total, 64 << 20, "in bytes");
    assert!(after.used >= before.used + (1 << 20));
    assert!(after.available <= after.total - after.used);
}

/// The text of an error says what to look at.
#[test]
fn errors_name_their_paths() {
    let task = task();
    let text = |error: Error| error.to_string();
    let error = task.rename("/old", "/new").unwrap_err();
    assert_eq!(error.path(), Some(Path::new("/old")));
    assert_eq!(error.new_path(), Some(Path::new("/new")));
    let missing = "No such file or directory (os error 2)";
    assert_eq!(text(error), format!("renameat2 /old to /new: {missing}"));
    task.create_dir("/dir").unwrap();
    task.write("/dir/file", "").unwrap();
    let file = task.open("/dir/file").unwrap();
    let bad = "Bad file descriptor (os error 9)";
    assert_eq!(text(file.write(b"x").unwrap_err()), format!("write /dir/file: {bad}"));
    task.rename("/dir", "/moved").unwrap();
    assert_eq!(text(file.write_all(b"x").unwrap_err()), format!("write /moved/file: {bad}"));
    let error = std::io::Error::from(task.open("/none").unwrap_err());
    assert_eq!((error.raw_os_error(), error.kind()), (Some(2), std::io::ErrorKind::NotFound));
}

/// A file below several mounts is named from the top of the tree.
#[test]
fn errors_of_files_name_the_path_through_mounts() {
    let task = task();
    task.create_dir_all("/a/mnt").unwrap();
    let other = vfscale::MemFs::builder().size(1 << 20).build();
    task.posix().mount(other, "/a/mnt", vfscale::posix::MountFlags::empty()).unwrap();
    task.write("/a/mnt/f", "").unwrap();
    let error = task.open("/a/mnt/f").unwrap().set_len(1).unwrap_err();
    assert_eq!(error.path(), Some(Path::new("/a/mnt/f")));
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let task = task();
    task.write("/f", "123").unwrap();
    let none = OpenOptions::new();
    for options in [none, none.create(true), none.read(true).truncate(true)] {
        assert_eq!(errno(task.open_with("/f", &options)), Errno::INVAL);
    }
    let file = task.open_with("/f", &none.append(true)).unwrap();
    file.write_all(b"4").unwrap();
    assert_eq!(task.read_to_string("/f").unwrap(), "1234");
    let new = none.write(true).create_new(true).mode(0o600);
    assert_eq!(errno(task.open_with("/f", &new)), Errno::EXIST);
    task.open_with("/g", &new).unwrap();
    assert_eq!(mode(&task, "/g"), 0o600.into());
}

/// A guest must not learn from a message where its root is.
#[test]
fn errors_name_no_path_above_the_root_of_their_task() {
    let vfs = vfscale::memory().size(1 << 20).build().unwrap();
    let host = vfs.task();
    host.create_dir_all("/sandbox/home").unwrap();
    host.chown("/sandbox/home", Some(1000), Some(1000)).unwrap();
    let guest = vfs.task_in("/sandbox", Credentials::user(1000, 1000)).unwrap();
    let file = guest.create("/home/other").unwrap();
    let file_of_child = guest.fork().create("/home/child").unwrap();
    let file_of_host = host.create("/sandbox/home/mine").unwrap();
    let big = vec![0; 4 << 20];
    let named = |error: Error| (error.errno(), error.path().map(Path::to_owned));
    let full = |path: &str| (Errno::NOSPC, Some(PathBuf::from(path)));
    assert_eq!(named(guest.write("/home/big", &big).unwrap_err()), full("/home/big"));
    guest.set_current_dir("/home").unwrap();
    assert_eq!(named(guest.write("big", &big).unwrap_err()), full("big"));
    let replaced = guest.replace_file("big", &big, Durability::Ordered).unwrap_err();
    assert_eq!(named(replaced), full("big"));
    // An open file has no path that was passed: its name, for a task that has a root of its own.
    assert_eq!(named(file.write_all(&big).unwrap_err()), full("other"));
    assert_eq!(named(file_of_child.write_all(&big).unwrap_err()), full("child"));
    let root = guest.open("/").unwrap();
    assert_eq!(root.read(&mut [0]).unwrap_err().path(), None);
    // The host sees where it is.
    let path = "/sandbox/home/mine";
    assert_eq!(named(file_of_host.write_all(&big).unwrap_err()), full(path));
}

/// A call on a `&mut File` is that of the trait, if there is one.
#[test]
fn errors_of_the_traits_of_std_are_errors_of_calls() {
    fn read(file: &mut vfscale::File, bytes: usize) -> vfscale::Result<()> {
        use std::io::Read;
        file.write(b"x")?;
        Ok(file.read_exact(&mut vec![0; bytes])?)
    }
    let task = vfscale::memory().size(1 << 20).build().unwrap().task();
    task.write("/f", "four").unwrap();
    let error = read(&mut task.open("/f").unwrap(), 1).unwrap_err();
    assert_eq!(error.errno(), Errno::BADF);
    let options = vfscale::OpenOptions::new().read(true).write(true);
    let file = || task.open_with("/f", &options).unwrap();
    read(&mut file(), 3).unwrap();
    let error = read(&mut file(), 9).unwrap_err();
    assert_eq!(error.errno(), Errno::IO, "the traits have errors without a number");
    assert!(error.to_string().contains("fill whole buffer"), "{error}");
}
