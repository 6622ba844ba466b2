//! Bad input, extreme sizes, and misuse: the right error, and nothing lost.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::common::{MODE, errno, make, task};
use vfscale::posix::{
    At, AtFlags, FallocateFlags, OFlags, OpenHow, RenameFlags, ResolveFlags, Whence,
};
use vfscale::{Credentials, Errno, File, FileType, Mode};

#[test]
fn forty_links_and_no_more() {
    let task = task();
    make(&task, "/l0");
    for n in 1..=41 {
        task.symlink(format!("l{}", n - 1), format!("/l{n}")).unwrap();
    }
    assert!(task.metadata("/l40").unwrap().is_file());
    assert_eq!(errno(task.metadata("/l41")), Errno::LOOP);
    assert!(task.symlink_metadata("/l41").unwrap().is_symlink());
    task.symlink("self", "/self").unwrap();
    assert_eq!(errno(task.metadata("/self")), Errno::LOOP);
    assert_eq!(errno(task.metadata("/self/x")), Errno::LOOP);
    assert_eq!(errno(task.posix().open("/l1", OFlags::NOFOLLOW, MODE)), Errno::LOOP);
    let how = OpenHow { resolve: ResolveFlags::NO_SYMLINKS, ..OpenHow::new(OFlags::RDONLY) };
    assert_eq!(errno(task.posix().openat2(At::Cwd, "/l1", &how)), Errno::LOOP);
}

#[test]
fn offsets_at_the_end_of_64_bits() {
    let task = task();
    let file = make(&task, "/f");
    let last = i64::MAX as u64;
    let mut buf = [0; 16];
    // Linux refuses the whole of a range that extends beyond the last offset.
    assert_eq!(file.pread(&mut buf[..8], last - 8).unwrap(), 0);
    assert_eq!(errno(file.pread(&mut buf[..9], last - 8)), Errno::INVAL);
    for offset in [last + 1, u64::MAX] {
        assert_eq!(errno(file.pread(&mut buf, offset)), Errno::INVAL);
        assert_eq!(errno(file.pwrite(&buf, offset)), Errno::INVAL);
        assert_eq!(errno(file.truncate(offset)), Errno::INVAL);
        assert_eq!(errno(file.seek(Whence::Set(offset))), Errno::INVAL);
    }
    assert_eq!(errno(file.pwrite(&buf, last)), Errno::INVAL);
    assert_eq!(errno(file.pwrite(&[7; 16], last - 4)), Errno::INVAL);
    assert_eq!(file.pwrite(&[7; 4], last - 4).unwrap(), 4);
    assert_eq!(file.stat().unwrap().size, last);
    assert_eq!(file.pread(&mut buf[..8], last - 8).unwrap(), 8);
    assert_eq!(buf[..8], [0, 0, 0, 0, 7, 7, 7, 7]);
    assert_eq!(errno(file.seek(Whence::End(1))), Errno::INVAL);
    assert_eq!(errno(file.seek(Whence::Current(-1))), Errno::INVAL);
    assert_eq!(errno(file.seek(Whence::Current(i64::MIN))), Errno::INVAL);
    assert!(file.seek(Whence::Data(0)).unwrap() <= last - 4);
    let alloc = |mode, offset, len| errno(file.fallocate(mode, offset, len));
    assert_eq!(alloc(FallocateFlags::empty(), last, last), Errno::FBIG);
    assert_eq!(alloc(FallocateFlags::empty(), 0, 0), Errno::INVAL);
    assert_eq!(alloc(FallocateFlags::empty(), 0, 1 << 40), Errno::NOSPC);
    assert_eq!(alloc(FallocateFlags::PUNCH_HOLE, 0, 1), Errno::OPNOTSUPP);
    file.truncate(0).unwrap();
    assert_eq!(file.stat().unwrap().blocks, 0);
}

/// Race: Reading a directory while it changes.
#[test]
fn a_million_entries_in_one_directory() {
    const ENTRIES: u64 = 1_000_000;
    let task = task();
    task.create_dir("/d").unwrap();
    let dir = task.posix().open("/d", OFlags::RDONLY | OFlags::DIRECTORY, MODE).unwrap();
    for n in 0..ENTRIES {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        task.posix().openat(At::File(&dir), n.to_string(), flags, MODE).unwrap();
    }
    let names = |dir: &File| -> HashSet<String> {
        let mut names = HashSet::new();
        for entry in dir.read_dir() {
            let name = entry.unwrap().name.into_string().unwrap();
            assert!(names.insert(name), "an entry occurs twice");
        }
        names
    };
    assert_eq!(names(&dir).len() as u64, ENTRIES + 2);
    assert_eq!(task.metadata("/d/777777").unwrap().nlink, 1);
    assert_eq!(errno(task.remove_dir("/d")), Errno::NOTEMPTY);

    // Removal while reading: every entry is seen once, and none exists in the end.
    dir.seek(Whence::Set(0)).unwrap();
    let mut removed = 0;
    for entry in dir.read_dir() {
        let entry = entry.unwrap();
        if entry.file_type == FileType::RegularFile {
            task.posix().unlinkat(At::File(&dir), &entry.name, AtFlags::empty()).unwrap();
            removed += 1;
        }
    }
    assert_eq!(removed, ENTRIES);
    task.remove_dir("/d").unwrap();
    dir.seek(Whence::Set(0)).unwrap();
    assert_eq!(errno(dir.read_dir().next().unwrap()), Errno::NOENT);
}

/// Race: Reading a directory while it changes.
#[test]
fn positions_survive_changes() {
    let task = task();
    for n in 0..500 {
        make(&task, &format!("/stays{n}"));
    }
    let dir = task.posix().open("/", OFlags::RDONLY, MODE).unwrap();
    let mut seen = HashSet::new();
    let mut pos = 0;
    let mut turn = 0;
    loop {
        let mut one = None;
        dir.read_dir_at(pos, |entry| {
            one = Some((entry.next, entry.name.to_owned()));
            ControlFlow::Break(())
        })
        .unwrap();
        let Some((next, name)) = one else { break };
        pos = next;
        if name.to_string_lossy().starts_with("stays") {
            assert!(seen.insert(name), "an entry occurs twice");
        }
        // Grows and shrinks the table while it is read.
        if turn < 100 {
            for n in 0..20 {
                make(&task, &format!("/goes{turn}-{n}"));
            }
        }
        if turn < 100 && turn % 2 == 1 {
            for n in 0..20 {
                let name = format!("/goes{turn}-{n}");
                task.remove_file(name).unwrap();
            }
        }
        turn += 1;
    }
    assert_eq!(seen.len(), 500);
}

/// While a directory is read, names are renamed within it, to another directory, and exchanged. The
/// names that stay are returned once, whatever they refer to, and no name is returned that the
/// directory never contained.
///
/// Race: Reading a directory while it changes.
#[test]
fn positions_survive_renames() {
    let task = task();
    ["/d", "/e"].into_iter().for_each(|dir| task.create_dir(dir).unwrap());
    for n in 0..300 {
        make(&task, &format!("/d/stays{n}"));
        make(&task, &format!("/d/goes{n}"));
        make(&task, &format!("/e/out{n}"));
    }
    let rename = |from: String, to: String, flags| {
        task.posix().renameat2(At::Cwd, from, At::Cwd, to, flags).unwrap();
    };
    let dir = task.posix().open("/d", OFlags::RDONLY, MODE).unwrap();
    let (mut seen, mut pos, mut turn) = (HashSet::new(), 0, 0);
    loop {
        let mut batch = Vec::new();
        dir.read_dir_at(pos, |entry| {
            batch.push((entry.next, entry.name.to_string_lossy().into_owned()));
            if batch.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
        let Some((next, _)) = batch.last() else { break };
        pos = *next;
        for (_, name) in batch {
            assert!(!name.starts_with("out"), "{name} is in another directory");
            let is_new = seen.insert(name.clone());
            assert!(is_new || !name.starts_with("stays"), "{name} occurs twice");
        }
        if turn < 300 {
            let other = (turn * 7 + 1) % 300;
            rename(format!("/d/goes{turn}"), format!("/d/came{turn}"), RenameFlags::empty());
            rename(format!("/d/came{turn}"), format!("/e/out-{turn}"), RenameFlags::empty());
            rename(format!("/e/out-{turn}"), format!("/d/back{turn}"), RenameFlags::empty());
            rename(format!("/d/stays{turn}"), format!("/e/out{turn}"), RenameFlags::EXCHANGE);
            let (a, b) = (format!("/d/stays{turn}"), format!("/d/stays{other}"));
            if other != turn {
                rename(a.clone(), b, RenameFlags::EXCHANGE);
            }
            make(&task, "/e/new");
            rename("/e/new".into(), a, RenameFlags::empty());
        }
        turn += 1;
    }
    assert!(turn > 100);
    assert_eq!(seen.iter().filter(|name| name.starts_with("stays")).count(), 300);
}

#[test]
fn ten_thousand_directories_deep() {
    const DEPTH: usize = 10_000;
    let task = task();
    for _ in 0..DEPTH {
        task.create_dir("d").unwrap();
        task.posix().chdir("d").unwrap();
    }
    assert_eq!(errno(task.posix().getcwd()), Errno::NAMETOOLONG);
    let up = task.posix().open("../../..", OFlags::PATH, MODE).unwrap();
    task.posix().fchdir(&up).unwrap();
    task.posix().chdir("/").unwrap();
    let other = task.fork();
    other.posix().chdir("d/d/d").unwrap();
    task.remove_dir_all("d").unwrap();
    assert_eq!(errno(task.metadata("d")), Errno::NOENT);
    assert_eq!(errno(other.posix().getcwd()), Errno::NOENT);
    assert_eq!(errno(other.create_dir("x")), Errno::NOENT);
    assert!(other.metadata(".").unwrap().is_dir());
    drop(up);
}

#[test]
fn open_files_outlive_names_and_permissions() {
    let task = task();
    let file = make(&task, "/f");
    file.write_all(b"hello").unwrap();
    task.rename("/f", "/g").unwrap();
    assert_eq!(task.posix().path_of(&file).unwrap().to_str(), Some("/g"));
    task.set_permissions("/g", Mode::empty()).unwrap();
    task.remove_file("/g").unwrap();
    assert_eq!(task.posix().path_of(&file).unwrap().to_str(), Some("/g (deleted)"));
    let mut buf = [0; 5];
    assert_eq!(file.pread(&mut buf, 0).unwrap(), 5);
    assert_eq!(&buf, b"hello");
    assert_eq!(file.stat().unwrap().nlink, 0);
    let empty = AtFlags::EMPTY_PATH;
    assert_eq!(errno(task.posix().linkat(At::File(&file), "", At::Cwd, "/h", empty)), Errno::NOENT);
    let unnamed = task.posix().open("/", OFlags::TMPFILE | OFlags::RDWR, MODE).unwrap();
    unnamed.write_all(b"late").unwrap();
    task.posix().linkat(At::File(&unnamed), "", At::Cwd, "/late", empty).unwrap();
    assert_eq!(task.read_to_string("/late").unwrap(), "late");
}

#[test]
fn space_runs_out_in_order() {
    let task = vfscale::memory().size(2 << 20).build().unwrap().task();
    let file = make(&task, "/big");
    let mut written = 0;
    let full = loop {
        match file.write(&[1; 100_000]) {
            Ok(n) => written += n,
            Err(error) => break error,
        }
    };
    assert_eq!(full.errno(), Errno::NOSPC);
    assert!(written > 1 << 20);
    assert_eq!(file.stat().unwrap().size, written as u64);
    let statfs = task.posix().statfs(At::Cwd, "/").unwrap();
    assert!(statfs.blocks_free <= 2, "{statfs:?}");
    let mut small = 0;
    while task.create_dir(format!("/d{small}")).is_ok() {
        small += 1;
        assert!(small < 100_000);
    }
    assert_eq!(errno(task.create_dir("/more")), Errno::NOSPC);
    task.remove_file("/big").unwrap();
    drop(file);
    vfscale_sync::rcu::synchronize();
    task.write("/again", vec![2; 1 << 20]).unwrap();
}

#[test]
fn errors_name_call_and_path() {
    let task = task();
    let error = task.metadata("/no/such").unwrap_err();
    assert_eq!((error.call(), error.path().unwrap().to_str()), ("stat", Some("/no/such")));
    assert!(error.to_string().contains("/no/such"), "{error}");
    let io = std::io::Error::from(error);
    assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
    let user = task.with_credentials(Credentials::user(1000, 1000));
    assert_eq!(errno(user.create_dir("/x")), Errno::ACCESS);
}

/// A file may have any size: one that consists of holes takes no memory until it is read.
#[test]
fn a_file_larger_than_all_memory_is_not_read_whole() {
    let task = vfscale::memory().build().unwrap().task();
    let file = task.create("/file").unwrap();
    file.set_len(1 << 60).unwrap();
    let error = task.read("/file").unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::NOMEM, Some("/file".as_ref())));
}
