//! Credentials, limits, and arguments that make no sense.

use std::sync::Arc;

use vfscale::Credentials;
use vfscale_wasi::{Access, Filesystem};

use crate::puppet::{
    ACCES, BADF, CREAT, DATA, INVAL, IOVS, NOENT, OUT, PATH, Puppet, READ, ROOT, WRITE, root_of,
};
use crate::trees::Tree;

const MFILE: i32 = 33;
const NOSPC: i32 = 51;
const SPIPE: i32 = 70;
const XDEV: i32 = 75;

#[test]
fn a_guest_has_the_rights_of_its_task() {
    let tree = vfscale::memory().size(1 << 20).build().unwrap();
    let host = tree.task();
    host.create_dir_all("/home").unwrap();
    host.chown("/home", Some(1000), Some(1000)).unwrap();
    host.write("/secret", "x").unwrap();
    host.set_permissions("/secret", 0o600).unwrap();
    let eve = Arc::new(tree.task_as(Credentials::user(1000, 1000)));
    let files = || {
        let mut files = Filesystem::new();
        files.preopen(Arc::clone(&eve), "/", "/", Access::ReadWrite).unwrap();
        files
    };
    for mut guest in Puppet::both(files) {
        assert_eq!(guest.open("secret", 0, READ), Err(ACCES));
        assert_eq!(guest.open("mine", CREAT, WRITE), Err(ACCES));
        let fd = guest.open("home/mine", CREAT, WRITE).unwrap();
        assert_eq!(guest.write(fd, b"x"), 0);
        assert_eq!(host.metadata("/home/mine").unwrap().uid, 1000);
        assert_eq!(guest.unlink(ROOT, "home/mine"), 0);
    }
}

#[test]
fn a_guest_has_the_space_of_its_tree() {
    let files = || {
        let tree = vfscale::memory().size(256 << 10).build().unwrap();
        let mut files = Filesystem::new();
        files.preopen(Arc::new(tree.task()), "/", "/", Access::ReadWrite).unwrap();
        files
    };
    let mut guest = Puppet::module(files());
    let fd = guest.open("file", CREAT, WRITE).unwrap();
    guest.poke(IOVS, u64::from(DATA) | (128 << 10) << 32);
    let args = [fd.into(), IOVS.into(), 1, OUT.into()];
    let numbers: Vec<_> = (0..4).map(|_| guest.call("fd_write", &args)).collect();
    assert_eq!((numbers[0], numbers[3]), (0, NOSPC));
    assert_eq!(guest.call("fd_allocate", &[fd.into(), 0, 1 << 30]), NOSPC);
}

#[test]
fn a_guest_has_the_descriptors_of_its_task() {
    let tree = Tree::memory();
    let task = Arc::new(tree.task());
    task.posix().set_descriptors_max(6).unwrap();
    let mut files = Filesystem::new();
    files.preopen(task, "/", "/", Access::ReadWrite).unwrap();
    let mut guest = Puppet::module(files);
    let fds: Vec<_> = (0..4).map(|_| guest.open("file", CREAT, READ)).collect();
    assert_eq!(fds, [Ok(4), Ok(5), Err(MFILE), Err(MFILE)]);
    guest.close(4);
    assert_eq!(guest.open("file", CREAT, READ), Ok(4));
}

#[test]
fn trees_of_several_tasks_are_apart() {
    for mut guest in Puppet::both(|| {
        let mut files = root_of(&Tree::memory());
        let other = Tree::memory();
        files.preopen(Arc::new(other.task()), "/", "/other", Access::ReadWrite).unwrap();
        files
    }) {
        let fd = guest.open("file", CREAT, READ).unwrap();
        guest.close(fd);
        let args = [ROOT.into(), PATH.into(), 4, u64::from(ROOT) + 1, PATH.into(), 4];
        guest.put(PATH, b"file");
        assert_eq!(guest.call("path_rename", &args), XDEV);
        assert_eq!(guest.call("fd_prestat_get", &[4, OUT.into()]), 0);
        assert_eq!(guest.peek(OUT), 6 << 32);
        assert_eq!(guest.call("fd_prestat_dir_name", &[4, DATA.into(), 6]), 0);
        assert_eq!(guest.get(DATA, 6), b"/other");
    }
}

#[test]
fn arguments_without_sense_are_errors() {
    for mut guest in Puppet::both(|| root_of(&Tree::memory())) {
        let fd = guest.open("file", CREAT, READ | WRITE).unwrap();
        assert_eq!(guest.seek(fd, -1, 0), Err(INVAL));
        assert_eq!(guest.seek(fd, i64::MIN, 1), Err(INVAL));
        assert_eq!(guest.seek(99, 0, 0), Err(BADF));
        assert_eq!(guest.seek(1, 0, 0), Err(SPIPE));
        assert_eq!(guest.open("nul\0", CREAT, READ), Err(INVAL));
        assert_eq!(guest.open("", 0, READ), Err(NOENT));
        assert_eq!(guest.make_dir(ROOT, ""), NOENT);
        assert_eq!(guest.call("fd_close", &[99]), BADF);
        if guest.is_module() {
            assert_eq!(guest.read(ROOT, 1), Err(BADF));
            assert_eq!(guest.call("fd_renumber", &[fd.into(), 99]), BADF);
        }
    }
}

#[test]
fn places_outside_of_its_memory_end_a_guest() {
    let end = 8u64 << 16;
    for (name, args) in [
        ("path_open", vec![3, 0, end - 2, 4, 0, READ, 0, 0, OUT.into()]),
        ("path_open", vec![3, 0, PATH.into(), u32::MAX.into(), 0, READ, 0, 0, OUT.into()]),
        ("path_create_directory", vec![3, u32::MAX.into(), u32::MAX.into()]),
        ("fd_filestat_get", vec![3, end - 63]),
        ("fd_readdir", vec![3, DATA.into(), end, 0, OUT.into()]),
        ("fd_read", vec![4, end - 4, 1, OUT.into()]),
        ("fd_write", vec![4, end - 8, 1, end - 3]),
        ("poll_oneoff", vec![end - 47, 0, 1, OUT.into()]),
    ] {
        let mut guest = Puppet::module(root_of(&Tree::memory()));
        assert_eq!(guest.open("file", CREAT, READ | WRITE), Ok(4));
        assert!(guest.try_call(name, &args).is_err(), "{name} {args:?}");
    }
}

#[test]
fn files_are_ready_at_any_time() {
    let tree = Tree::memory();
    tree.task().write("/file", "12345").unwrap();
    let mut guest = Puppet::module(root_of(&tree));
    let fd = guest.open("file", 0, READ).unwrap();
    guest.seek(fd, 2, 0).unwrap();
    let (subscriptions, events) = (DATA, DATA + 0x1000);
    // A clock of an hour, the file, and a descriptor that is not open.
    for (n, (kind, what)) in [(0, 1), (1, fd), (2, 99)].into_iter().enumerate() {
        let at = subscriptions + 48 * n as u32;
        guest.poke(at, 70 + n as u64);
        guest.poke(at + 8, kind);
        guest.poke(at + 16, what.into());
        guest.poke(at + 24, if kind == 0 { 3_600_000_000_000 } else { 0 });
    }
    let args = [subscriptions.into(), events.into(), 3, OUT.into()];
    assert_eq!(guest.call("poll_oneoff", &args), 0);
    assert_eq!(guest.peek(OUT) as u32, 2);
    assert_eq!([guest.peek(events), guest.peek(events + 8)], [71, 1 << 16]);
    assert_eq!(guest.peek(events + 16), 3);
    assert_eq!([guest.peek(events + 32), guest.peek(events + 40)], [72, 2 << 16 | BADF as u64]);
    // A clock alone is the rest of WASI's.
    guest.poke(subscriptions + 24, 1000);
    let args = [subscriptions.into(), events.into(), 1, OUT.into()];
    assert_eq!(guest.call("poll_oneoff", &args), 0);
    assert_eq!((guest.peek(OUT) as u32, guest.peek(events)), (1, 70));
}

#[test]
fn a_file_takes_the_number_of_a_standard_stream() {
    let tree = Tree::memory();
    let mut guest = Puppet::module(root_of(&tree));
    let fd = guest.open("log", CREAT, WRITE).unwrap();
    assert_eq!(guest.call("fd_renumber", &[fd.into(), 1]), 0);
    assert_eq!(guest.write(1, b"printed"), 0);
    assert_eq!(tree.task().read("/log").unwrap(), b"printed");
    assert_eq!(guest.write(fd, b"x"), BADF);
    assert_eq!(guest.call("fd_fdstat_get", &[2, OUT.into()]), 0);
    assert_eq!(guest.peek(OUT + 8), WRITE);
}
