//! Files and directories, as a guest has them.

use crate::puppet::{
    APPEND, CREAT, DATA, DIRECTORY, EXCL, EXIST, FOLLOW, INVAL, IOVS, ISDIR, LOOP, NOENT, NOTDIR,
    NOTEMPTY, OUT, PATH, READ, ROOT, TRUNC, WRITE, everywhere,
};

const FILE: u8 = 4;
const DIR: u8 = 3;
const SYMLINK: u8 = 7;

#[test]
fn what_is_written_is_read() {
    everywhere(|guest, tree| {
        let fd = guest.open("file", CREAT | EXCL, READ | WRITE).unwrap();
        assert_eq!(guest.write(fd, b"one two three"), 0);
        assert_eq!(guest.seek(fd, -5, 2), Ok(8));
        assert_eq!(guest.read(fd, 100).unwrap(), b"three");
        assert_eq!(guest.read(fd, 100).unwrap(), b"");
        assert_eq!(guest.seek(fd, 4, 0), Ok(4));
        assert_eq!(guest.write(fd, b"TWO"), 0);
        assert_eq!(tree.task().read("/file").unwrap(), b"one TWO three");
        assert_eq!(guest.stat(0, "file"), Ok((13, FILE)));
        guest.close(fd);
        assert_eq!(guest.open("file", CREAT | EXCL, READ), Err(EXIST));
        let fd = guest.open("file", TRUNC, WRITE).unwrap();
        assert_eq!(guest.stat(0, "file"), Ok((0, FILE)));
        guest.close(fd);
    });
}

#[test]
fn positions_of_calls_are_their_own() {
    everywhere(|guest, tree| {
        tree.task().write("/file", "0123456789").unwrap();
        let fd = guest.open("file", 0, READ | WRITE).unwrap();
        guest.put(DATA, b"ab");
        guest.poke(IOVS, u64::from(DATA) | 2 << 32);
        assert_eq!(guest.call("fd_pwrite", &[fd.into(), IOVS.into(), 1, 5, OUT.into()]), 0);
        assert_eq!(tree.task().read("/file").unwrap(), b"01234ab789");
        assert_eq!(guest.call("fd_pread", &[fd.into(), IOVS.into(), 1, 6, OUT.into()]), 0);
        assert_eq!(guest.get(DATA, 2), b"b7");
        assert_eq!(guest.call("fd_tell", &[fd.into(), OUT.into()]), 0);
        assert_eq!(guest.peek(OUT), 0);
        assert_eq!(guest.call("fd_filestat_set_size", &[fd.into(), 3]), 0);
        assert_eq!(tree.task().read("/file").unwrap(), b"012");
        for sync in ["fd_sync", "fd_datasync"] {
            assert_eq!(guest.call(sync, &[fd.into()]), 0);
        }
        assert_eq!(guest.call("fd_advise", &[fd.into(), 0, 100, 3]), 0);
    });
}

#[test]
fn appends_come_after_each_other() {
    everywhere(|guest, tree| {
        tree.task().write("/log", "1").unwrap();
        let open = |guest: &mut crate::puppet::Puppet| {
            guest.open_at(ROOT, 0, "log", 0, READ | WRITE, APPEND).unwrap()
        };
        let (a, b) = (open(guest), open(guest));
        assert_eq!(guest.write(a, b"2"), 0);
        assert_eq!(guest.write(b, b"3"), 0);
        assert_eq!(guest.write(a, b"4"), 0);
        assert_eq!(tree.task().read("/log").unwrap(), b"1234");
    });
}

#[test]
fn several_buffers_are_one_call() {
    everywhere(|guest, tree| {
        if !guest.is_module() {
            // The adapter takes the first one.
            return;
        }
        let fd = guest.open("file", CREAT, READ | WRITE).unwrap();
        guest.put(DATA, b"abcdef");
        let buffers = [(0, 2), (2, 0), (2, 4)];
        for (n, (at, len)) in buffers.into_iter().enumerate() {
            guest.poke(IOVS + 8 * n as u32, u64::from(DATA + at) | len << 32);
        }
        assert_eq!(guest.call("fd_write", &[fd.into(), IOVS.into(), 3, OUT.into()]), 0);
        assert_eq!(tree.task().read("/file").unwrap(), b"abcdef");
        guest.put(DATA, b"------");
        guest.seek(fd, 0, 0).unwrap();
        assert_eq!(guest.call("fd_read", &[fd.into(), IOVS.into(), 3, OUT.into()]), 0);
        assert_eq!(guest.peek(OUT) as u32, 6);
        assert_eq!(guest.get(DATA, 6), b"abcdef");
    });
}

#[test]
fn directories_list_every_name_once() {
    everywhere(|guest, tree| {
        assert_eq!(guest.make_dir(ROOT, "dir"), 0);
        assert_eq!(guest.make_dir(ROOT, "dir"), EXIST);
        let mut expected = vec![".".to_string(), "..".to_string()];
        for n in 0..200 {
            tree.task().write(format!("/dir/name {n}"), "").unwrap();
            expected.push(format!("name {n}"));
        }
        expected.sort();
        let fd = guest.open("dir", DIRECTORY, READ).unwrap();
        for len in [100, 4096] {
            let mut names = guest.names(fd, len);
            names.sort();
            assert_eq!(names, expected);
        }
        assert_eq!(guest.remove_dir(ROOT, "dir"), NOTEMPTY);
        assert_eq!(guest.unlink(fd, "name 7"), 0);
        assert!(!tree.task().exists("/dir/name 7").unwrap());
        assert_eq!(guest.open("dir", DIRECTORY | CREAT, READ), Err(INVAL));
        assert_eq!(guest.open("dir", 0, WRITE), Err(ISDIR));
        assert_eq!(guest.open("dir/name 8", DIRECTORY, READ), Err(NOTDIR));
    });
}

#[test]
fn names_move_and_files_have_several() {
    everywhere(|guest, tree| {
        tree.task().write("/a", "contents").unwrap();
        assert_eq!(guest.make_dir(ROOT, "d"), 0);
        assert_eq!(guest.rename("a", "d/b"), 0);
        assert_eq!(guest.link(0, "d/b", "c"), 0);
        assert_eq!(guest.link(FOLLOW, "d/b", "e"), INVAL);
        assert_eq!(guest.unlink(ROOT, "d/b"), 0);
        assert_eq!(tree.task().read("/c").unwrap(), b"contents");
        assert_eq!(guest.rename("d/b", "x"), NOENT);
        assert_eq!(guest.remove_dir(ROOT, "d/"), 0);
    });
}

#[test]
fn links_are_followed_where_a_call_says_so() {
    everywhere(|guest, tree| {
        tree.task().write("/file", "contents").unwrap();
        assert_eq!(guest.symlink("file", "link"), 0);
        assert_eq!(guest.read_link("link").unwrap(), "file");
        assert_eq!(guest.read_link("file"), Err(INVAL));
        assert_eq!(guest.stat(0, "link").unwrap().1, SYMLINK);
        assert_eq!(guest.stat(FOLLOW, "link"), Ok((8, FILE)));
        assert_eq!(guest.open_at(ROOT, 0, "link", 0, READ, 0), Err(LOOP));
        let fd = guest.open("link", 0, READ).unwrap();
        assert_eq!(guest.read(fd, 8).unwrap(), b"contents");
        assert_eq!(guest.symlink("round", "round"), 0);
        assert_eq!(guest.stat(FOLLOW, "round"), Err(LOOP));
        assert_eq!(guest.stat(FOLLOW, "."), guest.stat(0, "./"));
        assert_eq!(guest.stat(0, ".").unwrap().1, DIR);
    });
}

#[test]
fn times_are_those_that_were_set() {
    everywhere(|guest, tree| {
        tree.task().write("/file", "").unwrap();
        let path = "file";
        guest.put(PATH, path.as_bytes());
        let (second, at) = (1_000_000_000, [PATH.into(), path.len() as u64]);
        let set = [ROOT.into(), 0, at[0], at[1], 5 * second + 7, 9 * second, 0b101];
        assert_eq!(guest.call("path_filestat_set_times", &set), 0);
        let both = [ROOT.into(), 0, at[0], at[1], 0, 0, 0b011];
        assert_eq!(guest.call("path_filestat_set_times", &both), INVAL);
        guest.stat(0, path).unwrap();
        assert_eq!([guest.peek(OUT + 40), guest.peek(OUT + 48)], [5 * second + 7, 9 * second]);
        let fd = guest.open(path, 0, READ | WRITE).unwrap();
        assert_eq!(guest.call("fd_filestat_set_times", &[fd.into(), 3 * second, 0, 0b001]), 0);
        assert_eq!(guest.call("fd_filestat_get", &[fd.into(), OUT.into()]), 0);
        assert_eq!([guest.peek(OUT + 40), guest.peek(OUT + 48)], [3 * second, 9 * second]);
    });
}
