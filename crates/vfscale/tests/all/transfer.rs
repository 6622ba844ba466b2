//! Trees that come from the host and go back to it are the same.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use vfscale::posix::{At, AtFlags, OFlags, RenameFlags, Whence};
use vfscale::{Credentials, Errno, FileType, Links, Owners, Task, Transfer};

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
    assert_eq!((file.permissions(), file.nlink), (0o711.into(), 2));
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
        let mode = one.mode() & !0o6000;
        assert_eq!((mode, one.len(), one.nlink()), (two.mode(), two.len(), two.nlink()), "{path}");
        assert_eq!((one.mtime(), one.mtime_nsec()), (two.mtime(), two.mtime_nsec()), "{path}");
    }
    assert!(fs::read(from.join("sparse")).unwrap() == fs::read(back.join("sparse")).unwrap());
    assert!(fs::metadata(back.join("sparse")).unwrap().blocks() * 512 < 4 << 20);
}

/// The copy of the directory with the first name has its permission bits when the second is made.
#[test]
fn a_second_name_needs_no_right_to_read_the_directory_of_the_first() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    for name in ["", "a", "b"] {
        fs::create_dir(from.join(name)).unwrap();
    }
    fs::write(from.join("a/file"), "x").unwrap();
    fs::hard_link(from.join("a/file"), from.join("b/file")).unwrap();
    for name in ["a", "b"] {
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(0o311)).unwrap();
    }
    let root = task();
    root.create_dir("/home").unwrap();
    root.posix().fchownat(At::Cwd, "/home", Some(7), Some(7), AtFlags::empty()).unwrap();
    let user = root.with_credentials(Credentials::user(7, 7));
    Transfer::new().import(&user, &from, "/home/in").unwrap();
    assert_eq!(root.metadata("/home/in/b/file").unwrap().nlink, 2);
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

/// Returns a task of a tree with what a hostile guest makes.
fn hostile() -> Task {
    let task = task();
    task.create_dir("/w").unwrap();
    task.write("/w/evil", "#!/bin/sh").unwrap();
    task.chown("/w/evil", Some(1000), Some(1000)).unwrap();
    task.set_permissions("/w/evil", 0o6755).unwrap();
    task.create_dir("/w/shared").unwrap();
    task.set_permissions("/w/shared", 0o3777).unwrap();
    task.posix().mknodat(At::Cwd, "/w/disk", FileType::BlockDevice, 0o666, 0x800).unwrap();
    task.posix().mknodat(At::Cwd, "/w/null", FileType::CharacterDevice, 0o666, 0x103).unwrap();
    task
}

#[test]
fn nobody_gains_rights_by_an_export() {
    let dir = tempfile::tempdir().unwrap();
    let task = hostile();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    let me = fs::metadata(dir.path()).unwrap();
    for (n, owners) in [Owners::Copier, Owners::Fixed(me.uid(), me.gid())].into_iter().enumerate() {
        let out = dir.path().join(n.to_string());
        let done = Transfer::new().owners(owners).export(&task, "/w", &out).unwrap();
        assert_eq!((done.files, done.skipped), (3, 2), "{owners:?}");
        assert_eq!(mode(&out.join("evil")), 0o755, "{owners:?}");
        assert_eq!(mode(&out.join("shared")), 0o1777, "{owners:?}");
        for device in ["disk", "null"] {
            assert!(fs::symlink_metadata(out.join(device)).is_err(), "{owners:?}: {device}");
        }
    }
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let out = dir.path().join("asked");
    let asked = Transfer::new().owners(Owners::Source).devices(true);
    assert_eq!(asked.export(&task, "/w", &out).unwrap().skipped, 0);
    let evil = fs::metadata(out.join("evil")).unwrap();
    assert_eq!((evil.mode() & 0o7777, evil.uid()), (0o6755, 1000));
    assert_eq!(fs::symlink_metadata(out.join("null")).unwrap().rdev(), 0x103);
}

#[test]
fn nobody_gains_rights_by_an_import() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("evil"), "#!/bin/sh").unwrap();
    fs::set_permissions(from.join("evil"), fs::Permissions::from_mode(0o6755)).unwrap();
    let task = task();
    Transfer::new().owners(Owners::Fixed(0, 0)).import(&task, &from, "/in").unwrap();
    assert_eq!(task.metadata("/in/evil").unwrap().permissions(), 0o755.into());
    Transfer::new().owners(Owners::Source).import(&task, &from, "/asked").unwrap();
    assert_eq!(task.metadata("/asked/evil").unwrap().permissions(), 0o6755.into());
}

#[test]
fn capabilities_come_only_with_the_owner() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    // Version 2 of the attribute, with CAP_NET_RAW permitted and effective.
    let mut capability = vec![1, 0, 0, 2, 0, 0x20, 0, 0];
    capability.resize(20, 0);
    let task = task();
    task.write("/ping", "program").unwrap();
    task.set_xattr("/ping", "security.capability", &capability).unwrap();
    Transfer::new().xattrs(true).export(&task, "/ping", &out).unwrap();
    let found = rustix::fs::getxattr(&out, "security.capability", &mut [0_u8; 64][..]);
    assert_eq!(found, Err(Errno::NODATA));
    fs::remove_file(&out).unwrap();
    let asked = Transfer::new().owners(Owners::Source).xattrs(true);
    asked.export(&task, "/ping", &out).unwrap();
    let found = rustix::fs::getxattr(&out, "security.capability", &mut [0_u8; 64][..]);
    assert_eq!(found, Ok(20));
}

#[test]
fn links_that_lead_out_are_kept_skipped_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let task = task();
    task.create_dir_all("/home/sub").unwrap();
    task.write("/home/notes", "").unwrap();
    for (link, target) in [("sub/in", "../notes"), ("next", "sub"), ("here", "sub/../notes")] {
        task.symlink(target, Path::new("/home").join(link)).unwrap();
    }
    task.symlink("/../secret", "/home/trap").unwrap();
    task.symlink("../../secret", "/home/sub/trap").unwrap();

    let names = |out: &Path| {
        let of = |dir: &Path| fs::read_dir(dir).unwrap().count();
        (of(out), of(&out.join("sub")))
    };
    let out = dir.path().join("kept");
    assert_eq!(Transfer::new().export(&task, "/home", &out).unwrap().skipped, 0);
    assert_eq!(names(&out), (5, 2));
    let out = dir.path().join("skipped");
    let done = Transfer::new().links(Links::Skip).export(&task, "/home", &out).unwrap();
    assert_eq!((done.skipped, names(&out)), (3, (3, 1)));
    let out = dir.path().join("refused");
    let error = Transfer::new().links(Links::Refuse).export(&task, "/home", &out).unwrap_err();
    assert_eq!(error.errno(), Errno::XDEV);
    assert!(["trap", "here"].iter().any(|name| error.path().unwrap().ends_with(name)), "{error}");
    // A link that is copied alone has nothing around it.
    let out = dir.path().join("alone");
    let error = Transfer::new().links(Links::Refuse).export(&task, "/home/next", &out).unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::XDEV, Some(Path::new("/home/next"))));
    // So the copies have none that leads out, and come back.
    let skipped = dir.path().join("skipped");
    Transfer::new().links(Links::Refuse).import(&task, &skipped, "/back").unwrap();
}

/// Exchanges two names of the host.
fn exchange(a: &Path, b: &Path) {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, b, flags).unwrap();
}

/// Makes a directory with two files, and beside it a link to another directory with other contents.
fn plant_swap(dir: &Path) {
    for (name, text) in [("from/d", "open"), ("secret", "secret")] {
        fs::create_dir_all(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("one"), text).unwrap();
        fs::write(dir.join(name).join("two"), text).unwrap();
    }
    symlink(dir.join("secret"), dir.join("link")).unwrap();
}

#[test]
fn an_import_follows_no_directory_that_became_a_link() {
    let dir = tempfile::tempdir().unwrap();
    plant_swap(dir.path());
    let (d, link) = (dir.path().join("from/d"), dir.path().join("link"));
    let task = task();
    let mut is_swapped = false;
    let swap = |_: &vfscale::Transferred, path: &Path| {
        if path.starts_with(&d) && path != d && !is_swapped {
            exchange(&d, &link);
            is_swapped = true;
        }
    };
    Transfer::new().on_file(swap).import(&task, dir.path().join("from"), "/in").unwrap();
    for name in ["one", "two"] {
        assert_eq!(task.read_to_string(Path::new("/in/d").join(name)).unwrap(), "open");
    }
}

#[test]
fn an_export_follows_no_directory_that_became_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (out, victim) = (dir.path().join("out"), dir.path().join("victim"));
    fs::create_dir(&victim).unwrap();
    symlink(&victim, dir.path().join("link")).unwrap();
    let task = task();
    for (name, text) in [("/w/d", "open"), ("/secret", "secret")] {
        task.create_dir_all(name).unwrap();
        task.write(Path::new(name).join("one"), text).unwrap();
        task.write(Path::new(name).join("two"), text).unwrap();
    }
    task.symlink("/secret", "/link").unwrap();
    let mut is_swapped = false;
    let swap = |_: &vfscale::Transferred, path: &Path| {
        if path.starts_with("/w/d/") && path != Path::new("/w/d") && !is_swapped {
            let flags = RenameFlags::EXCHANGE;
            task.posix().renameat2(At::Cwd, "/w/d", At::Cwd, "/link", flags).unwrap();
            exchange(&out.join("d"), &dir.path().join("link"));
            is_swapped = true;
        }
    };
    Transfer::new().on_file(swap).export(&task, "/w", &out).unwrap();
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    for name in ["one", "two"] {
        // The directory itself is where the link was.
        let text = fs::read_to_string(dir.path().join("link").join(name)).unwrap();
        assert_eq!(text, "open");
    }
}

#[test]
fn an_import_beside_exchanges_brings_in_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    plant_swap(dir.path());
    let (d, link) = (dir.path().join("from/d"), dir.path().join("link"));
    let task = task();
    let is_over = &AtomicBool::new(false);
    let leaked = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                exchange(&d, &link);
            }
        });
        let leaks = |to: &str| {
            // EBUSY tells that a name did not hold still.
            let _ = Transfer::new().import(&task, dir.path().join("from"), to);
            let files = task.walk_dir(to).filter_map(Result::ok).filter(|e| e.metadata.is_file());
            let mut texts = files.map(|file| task.read_to_string(&file.path));
            texts.any(|text| !text.is_ok_and(|text| text == "open"))
        };
        let leaked = (0..300).find(|n| leaks(&format!("/{n}")));
        is_over.store(true, Ordering::Relaxed);
        leaked
    });
    assert_eq!(leaked, None, "a copy has what is behind the link");
}

/// Returns how many descriptors the process has.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_tree_deeper_than_a_path_goes_out_and_comes_in() {
    const LEVELS: usize = 3000;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let task = task();
    task.create_dir("/w").unwrap();
    task.set_current_dir("/w").unwrap();
    for level in 0..LEVELS {
        task.create_dir("d").unwrap();
        task.write("file", level.to_string()).unwrap();
        task.set_current_dir("d").unwrap();
    }
    task.write("one", "bottom").unwrap();
    task.hard_link("one", "two").unwrap();
    task.set_permissions(".", 0o700).unwrap();
    task.set_current_dir("/").unwrap();

    let (mut most, before) = (0, descriptors());
    let watch = |done: &vfscale::Transferred, _: &Path| {
        if done.files.is_multiple_of(500) {
            most = most.max(descriptors());
        }
    };
    let done = Transfer::new().on_file(watch).export(&task, "/w", &out).unwrap();
    assert_eq!(done.files, 2 * LEVELS as u64 + 2);
    assert!(most < before + 400, "{most} descriptors, {before} before");
    let back = Transfer::new().import(&task, &out, "/back").unwrap();
    assert_eq!(back.files, done.files);
    task.set_current_dir("/back").unwrap();
    for level in 0..LEVELS {
        assert_eq!(task.read_to_string("file").unwrap(), level.to_string());
        task.set_current_dir("d").unwrap();
    }
    assert_eq!(task.read_to_string("two").unwrap(), "bottom");
    assert_eq!(task.metadata("one").unwrap().nlink, 2);
    assert_eq!(task.metadata(".").unwrap().permissions(), 0o700.into());
    // Without a recursion that opens each level.
    assert!(std::process::Command::new("rm").arg("-rf").arg(&out).status().unwrap().success());
}

/// A copy into a tree that exists merges directories, and replaces each file in one step.
#[test]
fn a_copy_replaces_files_and_keeps_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let (from, out) = (dir.path().join("from"), dir.path().join("out"));
    plant(&from);
    let task = task();
    task.create_dir_all("/sub/kept").unwrap();
    task.write("/sub/file", "old").unwrap();
    task.hard_link("/sub/file", "/sub/held").unwrap();
    task.write("/link", "was a file").unwrap();
    let import = || Transfer::new().replace(true).import(&task, &from, "/");
    assert_eq!((import().unwrap().files, import().unwrap().files), (6, 6));
    assert_eq!(task.read_to_string("/sub/file").unwrap(), "contents");
    assert_eq!(task.read_to_string("/sub/held").unwrap(), "old", "it was replaced, not written");
    assert_eq!(task.metadata("/other name").unwrap().nlink, 2);
    assert_eq!(task.read_link("/link").unwrap(), Path::new("../elsewhere"));
    assert!(task.metadata("/sub/kept").unwrap().is_dir());
    // The directories that were there are as they were.
    assert_eq!(task.metadata("/sub").unwrap().permissions(), 0o755.into());

    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o1777)).unwrap();
    let export = || Transfer::new().replace(true).export(&task, "/", &out);
    export().unwrap();
    export().unwrap();
    assert_eq!(fs::metadata(&out).unwrap().mode() & 0o7777, 0o1777);
    assert_eq!(fs::read(out.join("sub/file")).unwrap(), b"contents");
    assert_eq!(fs::metadata(out.join("sub/file")).unwrap().nlink(), 2);

    task.create_dir("/taken").unwrap();
    let replace = || Transfer::new().replace(true);
    let error = replace().import(&task, from.join("sub/file"), "/taken").unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::ISDIR, Some(Path::new("/taken"))));
    let error = replace().import(&task, from.join("sub"), "/sub/file").unwrap_err();
    assert_eq!(error.errno(), Errno::NOTDIR);
    assert_eq!(task.read_dir("/").unwrap().count(), 6, "nothing is left of it");
}
