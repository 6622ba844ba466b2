//! Trees that come from the host and go back to it are the same.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use vfscale::posix::{At, OFlags, Whence};
use vfscale::{Errno, FileType, Owners, Task, Transfer};

fn task() -> Task {
    vfscale::memory().size(64 << 20).build().unwrap().task()
}

/// Makes a tree with something of each kind.
fn plant(dir: &Path) {
    fs::create_dir(dir).unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/file"), "contents").unwrap();
    fs::hard_link(dir.join("sub/file"), dir.join("other name")).unwrap();
    symlink("../elsewhere", dir.join("link")).unwrap();
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 4 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("fifo"),
        FileType::Fifo,
        rustix::fs::Mode::from(0o640),
        0,
    )
    .unwrap();
    fs::set_permissions(dir.join("sub/file"), fs::Permissions::from_mode(0o4711)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    let times = fs::FileTimes::new().set_accessed(time).set_modified(time);
    fs::File::open(dir.join("sub/file")).unwrap().set_times(times).unwrap();
    fs::set_permissions(dir.join("sub"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::File::open(dir.join("sub")).unwrap().set_times(times).unwrap();
}

#[test]
fn a_tree_comes_in_and_goes_out() {
    let dir = tempfile::tempdir().unwrap();
    let (from, back) = (dir.path().join("from"), dir.path().join("back"));
    plant(&from);
    let task = task();
    let mut seen = 0;
    let done = Transfer::new().on_file(|_, _| seen += 1).import(&task, &from, "/in").unwrap();
    // The second name of a file is seen, too, but is no file.
    assert_eq!((done.files, done.skipped, seen), (7 - 1, 0, 7));
    assert_eq!(task.read_to_string("/in/sub/file").unwrap(), "contents");
    let file = task.metadata("/in/sub/file").unwrap();
    assert_eq!((file.permissions(), file.nlink), (0o4711.into(), 2));
    assert_eq!((file.mtime.secs(), file.mtime.nanos()), (1_000_000_000, 123_456_789));
    let sub = task.metadata("/in/sub").unwrap();
    assert_eq!((sub.permissions(), sub.mtime.secs()), (0o500.into(), 1_000_000_000));
    assert_eq!(task.read_link("/in/link").unwrap(), Path::new("../elsewhere"));
    assert_eq!(task.symlink_metadata("/in/fifo").unwrap().file_type(), FileType::Fifo);
    let sparse = task.posix().open("/in/sparse", OFlags::RDONLY, 0).unwrap();
    assert_eq!(sparse.metadata().unwrap().len(), 9 << 20);
    let data = sparse.seek(Whence::Data(0)).unwrap();
    assert!((1..=4 << 20).contains(&data), "the hole before {data} stays one");
    assert!(done.bytes < 4 << 20, "{done:?}");

    Transfer::new().export(&task, "/in", &back).unwrap();
    for path in ["", "sub", "sub/file", "other name", "link", "sparse", "fifo"] {
        let [one, two] = [&from, &back].map(|dir| fs::symlink_metadata(dir.join(path)).unwrap());
        assert_eq!((one.mode(), one.len(), one.nlink()), (two.mode(), two.len(), two.nlink()));
        assert_eq!((one.mtime(), one.mtime_nsec()), (two.mtime(), two.mtime_nsec()), "{path}");
    }
    assert!(fs::read(from.join("sparse")).unwrap() == fs::read(back.join("sparse")).unwrap());
    assert!(fs::metadata(back.join("sparse")).unwrap().blocks() * 512 < 4 << 20);
}

#[test]
fn owners_and_attributes_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::write(&from, "x").unwrap();
    let owner = fs::metadata(&from).unwrap();
    let task = task();
    let ids = |path| task.metadata(path).map(|found| (found.uid, found.gid)).unwrap();
    Transfer::new().owners(Owners::Fixed(7, 8)).import(&task, &from, "/fixed").unwrap();
    assert_eq!(ids("/fixed"), (7, 8));
    Transfer::new().owners(Owners::Source).import(&task, &from, "/source").unwrap();
    assert_eq!(ids("/source"), (owner.uid(), owner.gid()));
    task.set_xattr("/source", "user.note", "1").unwrap();
    let out = dir.path().join("out");
    // Not every file system of a host has attributes of users.
    match Transfer::new().xattrs(true).export(&task, "/source", &out) {
        Err(error) => assert_eq!((error.errno(), error.path()), (Errno::OPNOTSUPP, Some(&*out))),
        Ok(_) => {
            Transfer::new().xattrs(true).import(&task, &out, "/again").unwrap();
            assert_eq!(task.xattr("/again", "user.note").unwrap().unwrap(), b"1");
        }
    }
}

#[test]
fn a_copy_replaces_nothing_and_follows_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (from, out) = (dir.path().join("from"), dir.path().join("out"));
    fs::create_dir(&from).unwrap();
    symlink("/etc", from.join("link")).unwrap();
    let task = task();
    task.create_dir("/in").unwrap();
    let error = Transfer::new().import(&task, &from, "/in").unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::EXIST, Some(Path::new("/in"))));
    Transfer::new().import(&task, &from, "/new").unwrap();
    assert!(task.symlink_metadata("/new/link").unwrap().is_symlink());
    symlink(dir.path(), &out).unwrap();
    let error = Transfer::new().export(&task, "/new", &out).unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::EXIST, Some(&*out)));
    let none = dir.path().join("none");
    let error = Transfer::new().import(&task, &none, "/x").unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::NOENT, Some(&*none)));
    task.posix().mknodat(At::Cwd, "/new/socket", FileType::Socket, 0o600, 0).unwrap();
    let done = Transfer::new().export(&task, "/new", dir.path().join("fine")).unwrap();
    assert_eq!(done.skipped, 1);
}
