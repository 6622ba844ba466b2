//! Calls that change nothing take no lock: those that fail, and those that find the requested state
//! already set. So they do not disturb readers of the same names and files.

use crate::common::all_recorded;
use vfscale::posix::{At, AtFlags, MountFlags, OFlags, RenameFlags, Whence, XattrFlags};
use vfscale::{Errno, Mode, Task};
use vfscale_harness::alone;

const MODE: Mode = Mode::from_bits_retain(0o755);

/// Returns a tree in which `full` and `other` are directories with a file each, `empty` is an empty
/// one, and `file` and `link` are one file.
fn tree() -> Task {
    let task = vfscale::memory().size(64 << 20).build().unwrap().task();
    for dir in ["/full", "/other", "/empty"] {
        task.create_dir(dir).unwrap();
    }
    for file in ["/full/file", "/other/file", "/file"] {
        task.write(file, "some text").unwrap();
    }
    task.set_permissions("/file", MODE).unwrap();
    task.hard_link("/file", "/link").unwrap();
    task
}

/// Returns the result of a call, and the locks it takes: not that of the shrinker, which the
/// reclaim thread takes now and then.
fn taken<T>(call: impl FnOnce() -> T) -> (T, Vec<&'static str>) {
    let mut result = None;
    let rows = all_recorded(|| result = Some(call()));
    let names = rows.iter().filter(|row| row.acquisitions > 0).map(|row| row.name);
    (result.unwrap(), names.filter(|name| *name != "shrinker").collect())
}

#[test]
fn a_refused_removal_takes_no_lock() {
    let _alone = alone();
    let task = tree();
    let mounted = vfscale::MemFs::builder().size(1 << 20).build();
    task.posix().mount(mounted, "/other", MountFlags::empty()).unwrap();
    let calls: [(&str, AtFlags, Errno); 7] = [
        ("/missing", AtFlags::empty(), Errno::NOENT),
        ("/empty", AtFlags::empty(), Errno::ISDIR),
        ("/file/", AtFlags::empty(), Errno::NOTDIR),
        ("/missing", AtFlags::REMOVEDIR, Errno::NOENT),
        ("/file", AtFlags::REMOVEDIR, Errno::NOTDIR),
        ("/full", AtFlags::REMOVEDIR, Errno::NOTEMPTY),
        ("/other", AtFlags::REMOVEDIR, Errno::BUSY),
    ];
    for (path, flags, errno) in calls {
        let (result, locks) = taken(|| task.posix().unlinkat(At::Cwd, path, flags));
        assert_eq!(result.unwrap_err().errno(), errno, "{path}");
        assert_eq!(locks, [""; 0], "{path}");
    }
    let (result, locks) = taken(|| task.remove_file("/file"));
    result.unwrap();
    assert!(locks.contains(&"d_children"), "{locks:?}");
}

#[test]
fn a_rename_that_fails_or_has_nothing_to_do_takes_no_lock() {
    let _alone = alone();
    let task = tree();
    let (none, noreplace, exchange) =
        (RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE);
    let calls: [(&str, &str, RenameFlags, Option<Errno>); 11] = [
        ("/missing", "/file", none, Some(Errno::NOENT)),
        ("/file", "/missing", exchange, Some(Errno::NOENT)),
        ("/file", "/full/file", noreplace, Some(Errno::EXIST)),
        ("/file", "/empty", none, Some(Errno::ISDIR)),
        ("/empty", "/file", none, Some(Errno::NOTDIR)),
        ("/empty", "/full", none, Some(Errno::NOTEMPTY)),
        ("/full", "/full/below", none, Some(Errno::INVAL)),
        ("/full/file", "/full", none, Some(Errno::NOTEMPTY)),
        ("/file", "/link", none, None),
        ("/file", "/link", exchange, None),
        ("/full", "/full", none, None),
    ];
    for (old, new, flags, errno) in calls {
        let (result, locks) = taken(|| task.posix().renameat2(At::Cwd, old, At::Cwd, new, flags));
        assert_eq!(result.err().map(|error| error.errno()), errno, "{old} {new}");
        assert_eq!(locks, [""; 0], "{old} {new}");
    }
    let (result, locks) = taken(|| task.rename("/full", "/other/full"));
    result.unwrap();
    assert!(locks.contains(&"s_vfs_rename_mutex"), "{locks:?}");
}

#[test]
fn a_call_that_leaves_a_file_unchanged_takes_no_lock() {
    let _alone = alone();
    let task = tree();
    let chmod = |mode| task.set_permissions("/file", mode);
    let (result, locks) = taken(|| chmod(MODE));
    result.unwrap();
    assert_eq!(locks, [""; 0]);
    let (result, locks) = taken(|| chmod(Mode::RUSR));
    result.unwrap();
    assert_eq!(locks, ["i_rwsem"]);

    let file = task.posix().open("/file", OFlags::RDONLY, MODE).unwrap();
    let mut buffer = [0; 64];
    let (read, locks) = taken(|| file.read(&mut buffer).unwrap());
    assert_eq!((read, locks), (9, vec!["f_pos_lock"]));
    let at_end = || {
        let mut buffer = [0; 64];
        (file.read(&mut buffer).unwrap(), file.seek(Whence::Current(0)).unwrap())
    };
    assert_eq!(taken(at_end), ((0, 9), vec![]));
    let (pos, locks) = taken(|| (file.seek(Whence::End(0)).unwrap(), file.seek(Whence::Set(9))));
    assert_eq!((pos.0, pos.1.unwrap(), locks), (9, 9, vec![]));
    let (pos, locks) = taken(|| file.seek(Whence::Set(3)).unwrap());
    assert_eq!((pos, locks), (3, vec!["f_pos_lock"]));
    assert_eq!(file.read(&mut buffer).unwrap(), 6);

    let dir = task.posix().open("/full", OFlags::DIRECTORY, MODE).unwrap();
    let (read, locks) = taken(|| dir.read(&mut buffer));
    assert_eq!((read.unwrap_err().errno(), locks), (Errno::ISDIR, vec![]));
}

#[test]
fn an_attribute_that_is_not_of_the_mode_takes_no_lock_of_the_file() {
    let _alone = alone();
    let task = tree();
    let set = |name| {
        taken(|| {
            task.posix().setxattrat(
                At::Cwd,
                "/file",
                name,
                b"value",
                XattrFlags::empty(),
                AtFlags::empty(),
            )
        })
    };
    let (result, locks) = set("user.name");
    result.unwrap();
    assert!(!locks.contains(&"i_rwsem") && locks.contains(&"xattrs"), "{locks:?}");
    let get = || task.posix().getxattrat(At::Cwd, "/file", "user.name", AtFlags::empty());
    let (value, locks) = taken(get);
    assert_eq!((value.unwrap().as_slice(), locks), (&b"value"[..], vec![]));
}
