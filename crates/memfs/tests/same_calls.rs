//! Compares a directory-backed file system with a dcache-backed (memory) one: the same random calls
//! give the same results, errors included. `VFSCALE_SEED` repeats a run.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used)]

#[path = "../../vfs/tests/tables/mod.rs"]
mod tables;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tables::Tables;
use vfscale_memfs::MemFs;
use vfscale_sync::random::{self, Random};
use vfscale_sync::rcu;
use vfscale_vfs::acl::{Acl, AclTag};
use vfscale_vfs::{
    At, AtFlags, Credentials, File, FileType, Mode, OFlags, RenameFlags, Result, SetTime, Task,
    Timestamp, Vfs, XattrFlags,
};

const STEPS: usize = 20_000;
/// Maximum number of open files.
const OPEN: usize = 4;

/// One of the two trees, with a privileged task and an unprivileged one.
struct Side {
    tasks: [Task; 2],
    open: Vec<File>,
}

impl Side {
    fn new(vfs: &Vfs) -> Side {
        let root = vfs.task();
        root.umask(Mode::from(0o022));
        let user = root.with_credentials(Credentials::user(7, 8));
        root.set_permissions("/", Mode::from(0o777)).unwrap();
        Side { tasks: [root, user], open: Vec::new() }
    }
}

/// Returns a path of up to four names out of a few. Some are symbolic links or have a suffix.
fn path(random: &mut Random) -> String {
    let mut path = String::new();
    for _ in 0..=random.below(3) {
        path += random.one(&["/a", "/b", "/c", "/d", "/a", "/b", "/e", "/.", "/.."]);
    }
    match random.below(40) {
        0 => path + "/",
        1 => path + "/" + &"x".repeat(256),
        _ => path,
    }
}

fn said<T: Debug>(result: Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.errno()),
    }
}

/// Returns the attributes that must be equal on both sides.
fn seen(task: &Task, path: &str) -> String {
    said(task.symlink_metadata(path).map(|stat| {
        let size = if stat.mode & 0o170_000 == 0o040_000 { 0 } else { stat.size };
        (stat.mode, stat.nlink, stat.uid, stat.gid, size, stat.rdev)
    }))
}

fn list(task: &Task, path: &str) -> String {
    said(task.posix().open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).and_then(
        |dir| {
            let mut names = Vec::new();
            for entry in dir.read_dir() {
                let entry = entry?;
                names.push((entry.name, entry.file_type));
            }
            names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            Ok(names)
        },
    ))
}

fn access_list(random: &mut Random) -> Vec<u8> {
    let mut bits = || random.below(8) as u16;
    let entries = [
        (AclTag::UserObj, bits()),
        (AclTag::User(7), bits()),
        (AclTag::GroupObj, bits()),
        (AclTag::Mask, bits()),
        (AclTag::Other, bits()),
    ];
    Acl::new(entries).unwrap().to_xattr()
}

/// Opens a file and adds it to the open files.
fn open(side: &mut Side, who: usize, path: &str, flags: OFlags, mode: Mode) -> String {
    let opened = side.tasks[who].posix().open(path, flags, mode);
    match opened {
        Ok(file) => {
            side.open.push(file);
            "opened".to_owned()
        }
        Err(error) => format!("{:?}", error.errno()),
    }
}

/// Makes a call that changes names.
fn change_names(side: &mut Side, random: &mut Random) -> String {
    let who = random.below(4).min(1) as usize ^ 1;
    let (one, other) = (path(random), path(random));
    let mode = Mode::from_bits_retain(random.one(&[0o755, 0o777, 0o700, 0o1777, 0o2775, 0o644]));
    let task = &side.tasks[who];
    let none = AtFlags::empty();
    let call = random.below(9);
    let result = match call {
        0 => said(task.posix().mkdirat(At::Cwd, &one, mode)),
        1 => said(task.remove_dir(&one)),
        2 => said(task.posix().unlinkat(At::Cwd, &one, none)),
        3 => said(task.symlink(&other, &one)),
        4 => said(task.posix().linkat(At::Cwd, &one, At::Cwd, &other, none)),
        5 => {
            let flags = random.one(&[
                RenameFlags::empty(),
                RenameFlags::empty(),
                RenameFlags::NOREPLACE,
                RenameFlags::EXCHANGE,
            ]);
            said(task.posix().renameat2(At::Cwd, &one, At::Cwd, &other, flags))
        }
        6 => said(task.posix().mknodat(At::Cwd, &one, FileType::Fifo, mode, 0)),
        7 => {
            let flags = random.one(&[
                OFlags::CREATE,
                OFlags::CREATE | OFlags::EXCL,
                OFlags::CREATE | OFlags::TRUNC,
                OFlags::TMPFILE,
            ]);
            open(side, who, &one, flags | OFlags::RDWR | OFlags::NONBLOCK, mode)
        }
        _ => match side.open.first() {
            Some(file) => {
                let flags = AtFlags::EMPTY_PATH;
                said(task.posix().linkat(At::File(file), "", At::Cwd, &one, flags))
            }
            None => String::new(),
        },
    };
    format!("{call} by {who} on {one} and {other}: {result}")
}

/// Makes a call that changes a file's attributes or contents.
fn change_file(side: &mut Side, random: &mut Random) -> String {
    let who = random.below(2) as usize;
    let one = path(random);
    let mode = random.one(&[0o755, 0o700, 0o6755, 0o2711, 0o1777, 0o4644]);
    let task = &side.tasks[who];
    let none = AtFlags::empty();
    let how = random.one(&[XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE]);
    let name = random.one(&[
        "user.a",
        "user.b",
        "trusted.a",
        "system.posix_acl_access",
        "system.posix_acl_default",
        "security.capability",
        "other.a",
    ]);
    let call = random.below(9);
    let result = match call {
        0 => said(task.posix().fchmodat(At::Cwd, &one, Mode::from_bits_retain(mode), none)),
        1 => {
            let id = |random: &mut Random| random.one(&[None, Some(0), Some(7), Some(8)]);
            let (uid, gid) = (id(random), id(random));
            said(task.posix().fchownat(At::Cwd, &one, uid, gid, none))
        }
        2 => {
            let times = [SetTime::Now, SetTime::At(Timestamp(random.below(9) as i64))];
            let times = [random.one(&times), random.one(&times)];
            said(task.posix().utimensat(At::Cwd, &one, times, none))
        }
        3 => said(task.posix().truncate(&one, random.below(5000))),
        4 | 5 => {
            let value = if name.starts_with("system") {
                access_list(random)
            } else if name.starts_with("security") {
                [vec![1, 0, 0, 2], vec![0; 16]].concat()
            } else {
                vec![1; random.below(9) as usize]
            };
            said(task.posix().setxattrat(At::Cwd, &one, name, &value, how, none))
        }
        6 => said(task.posix().removexattrat(At::Cwd, &one, name, none)),
        7 => {
            let flags = random.one(&[OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::TRUNC]);
            open(side, who, &one, flags | OFlags::NONBLOCK, Mode::empty())
        }
        _ => match side.open.last() {
            Some(file) => said(file.pwrite(b"what is written", random.below(5000))),
            None => String::new(),
        },
    };
    format!("{call} by {who} on {one}, {name}: {result}")
}

/// Makes a call that changes nothing.
fn look(side: &mut Side, random: &mut Random) -> String {
    let who = random.below(2) as usize;
    let one = path(random);
    let task = &side.tasks[who];
    let result = match random.below(4) {
        0 => seen(task, &one),
        1 => list(task, &one),
        2 => said(task.read_link(&one)),
        _ => {
            let names = task.posix().listxattrat(At::Cwd, &one, AtFlags::empty());
            let names = names.map(|names| {
                let get =
                    |name| said(task.posix().getxattrat(At::Cwd, &one, name, AtFlags::empty()));
                names.iter().map(get).collect::<Vec<_>>()
            });
            said(names)
        }
    };
    format!("looked at {one} by {who}: {result}")
}

/// Makes a step. All its choices depend on `random` only, so both sides make the same step.
fn step(side: &mut Side, random: &mut Random) -> String {
    let said = match random.below(4) {
        0 | 1 => change_names(side, random),
        2 => change_file(side, random),
        _ => look(side, random),
    };
    if side.open.len() > OPEN {
        drop(side.open.remove(0));
    }
    let of_open = side.open.iter().map(|file| file.stat().unwrap());
    let of_open: Vec<_> = of_open.map(|stat| (stat.nlink, stat.mode, stat.uid)).collect();
    format!("{said} {of_open:?}")
}

/// Lists everything below a directory.
fn tree(task: &Task, dir: &str) -> Vec<String> {
    let mut found = vec![format!("{dir} {}", seen(task, dir))];
    let Ok(file) = task.posix().open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) else {
        return found;
    };
    let names = file.read_dir().map(|entry| entry.unwrap());
    let mut names: Vec<_> = names.map(|entry| (entry.name, entry.file_type)).collect();
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    for (name, file_type) in names {
        let path = format!("{dir}/{}", name.to_str().unwrap());
        if name == "." || name == ".." {
            continue;
        } else if file_type == FileType::Directory {
            found.extend(tree(task, &path));
        } else {
            found.push(format!("{path} {}", seen(task, &path)));
        }
    }
    found
}

#[test]
fn a_directory_backed_driver_gives_the_results_of_memory() {
    let seed = random::seed();
    let memory = Vfs::new(MemFs::builder().build()).unwrap();
    let fs: Arc<Tables> = Tables::new();
    let tables = Vfs::new(fs.clone()).unwrap();
    let (mut one, mut other) = (Side::new(&memory), Side::new(&tables));
    let mut random = Random::new(seed);
    let mut done: Vec<String> = Vec::new();
    let mut succeeded = 0;
    for number in 0..STEPS {
        let mut again = random.clone();
        let expected = step(&mut one, &mut random);
        let found = step(&mut other, &mut again);
        let latest = || done[done.len().saturating_sub(40)..].join("\n");
        assert_eq!(expected, found, "step {number} after\n{}", latest());
        succeeded += usize::from(expected.contains(": ()") || expected.contains(": opened"));
        done.push(expected);
        // Dropping cached entries makes no difference.
        if random.below(8) == 0 {
            fs.with_super(|sb| sb.shrink(usize::MAX));
        }
        if number % 500 == 0 {
            let (expected, found) = (tree(&one.tasks[0], "/."), tree(&other.tasks[0], "/."));
            assert_eq!(
                expected,
                found,
                "after\n{}",
                done[done.len().saturating_sub(40)..].join("\n")
            );
            fs.check();
        }
    }
    println!("{succeeded} of {STEPS} calls changed something");
    assert!(succeeded > STEPS / 50);
    one.open.clear();
    other.open.clear();
    rcu::synchronize();
    fs.with_super(|sb| while sb.shrink(usize::MAX) > 0 {});
    fs.check();
    assert_eq!(fs.with_super(|sb| sb.inodes_in_use()), 2, "the root, and none");
    assert!(fs.lookups.load(Ordering::Relaxed) > 0);
}
