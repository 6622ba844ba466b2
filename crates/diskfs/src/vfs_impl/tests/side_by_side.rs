//! Names of one directory that are changed side by side: [`crate::inode::delayed_names`].

use std::collections::BTreeMap;

use super::*;
use crate::format::BLOCK_BYTES;
use crate::inode::delayed_names::NameStep;
use crate::inode::incore::{DirLock, Node};
use crate::volume::tx::steps::DirStep;

/// Options under which all names are delayed that may be, or none.
fn options(is_beside: bool) -> Settings {
    Settings { dir_heat: if is_beside { 0 } else { u32::MAX }, ..Settings::default() }
}

/// Creates a volume with a large log.
fn formatted(bytes: u64) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(bytes).unwrap();
    let log_blocks = Some((bytes / 8 / BLOCK_BYTES as u64).min(1000));
    mkfs::format(&device, &MkfsOptions { log_blocks, ..MkfsOptions::default() }).unwrap();
    Arc::new(device)
}

fn made_beside(bytes: u64) -> Mounted {
    opened_with(formatted(bytes), options(true))
}

impl Mounted {
    /// Returns the node of a directory.
    fn dir(&self, path: &str) -> Arc<Node> {
        let ino = self.stat(path).ino;
        self.fs.table.get(self.fs.volume(), ino).unwrap().unwrap()
    }

    /// Returns the number of delayed changes of names in a directory.
    fn delayed(&self, path: &str) -> usize {
        let dir = self.dir(path);
        let _locked = dir.read();
        dir.delayed_names().map_or(0, |names| names.all().len())
    }

    fn sync(&self) {
        self.task.posix().sync();
    }

    /// Makes everything durable, and so many changes that later ones are delayed again, although
    /// the context was small.
    fn sync_and_delay(&self) {
        self.sync();
        for _ in 0..20 {
            self.write("/soon", b"");
            self.unlink("/soon", AtFlags::empty()).unwrap();
        }
    }

    /// Returns the paths in the tree: the content of files, the number of links of all.
    fn tree(&self) -> BTreeMap<String, (Vec<u8>, u32)> {
        let (mut found, mut dirs) = (BTreeMap::new(), vec![String::new()]);
        while let Some(dir) = dirs.pop() {
            let path = if dir.is_empty() { "/" } else { &dir };
            for name in self.names(path) {
                let path = format!("{dir}/{name}");
                let stat = self.stat(&path);
                let is_dir = stat.mode & 0o170_000 == 0o040_000;
                let content = if is_dir { Vec::new() } else { self.read(&path) };
                found.insert(path.clone(), (content, stat.nlink));
                if is_dir {
                    dirs.push(path);
                }
            }
        }
        found
    }
}

#[test]
fn a_name_that_comes_and_goes_changes_no_directory() {
    let mounted = made_beside(64 * MIB);
    mounted.mkdir("/d");
    mounted.write("/d/stays", b"");
    mounted.sync_and_delay();
    assert_eq!(mounted.delayed("/d"), 0, "a sync writes it");
    let (before, left) = (mounted.dir("/d").stored(), mounted.fs.volume().metadata().dirs().left());
    for round in 0..100 {
        mounted.write("/d/a", b"");
        mounted.rename("/d/a", "/d/b", RenameFlags::empty()).unwrap();
        assert_eq!(mounted.names("/d"), ["b", "stays"], "round {round}");
        assert_eq!(mounted.delayed("/d"), 1);
        mounted.unlink("/d/b", AtFlags::empty()).unwrap();
        mounted.rename("/d/stays", "/d/c", RenameFlags::empty()).unwrap();
        assert_eq!((mounted.delayed("/d"), mounted.names("/d")), (2, vec!["c".into()]));
        mounted.rename("/d/c", "/d/stays", RenameFlags::empty()).unwrap();
    }
    assert_eq!((mounted.delayed("/d"), mounted.names("/d")), (0, vec!["stays".into()]));
    assert!(Arc::ptr_eq(&before, &mounted.dir("/d").stored()), "the directory was written");
    assert_eq!(mounted.fs.volume().metadata().dirs().left(), left, "log space is lost");
    assert_eq!(mounted.again().names("/d"), ["stays"]);
}

#[test]
fn delayed_names_are_durable_with_their_inodes() {
    let mounted = made_beside(64 * MIB);
    mounted.mkdir("/d");
    mounted.mkdir("/e");
    mounted.write("/d/moves", b"1");
    mounted.write("/d/goes", b"2");
    mounted.sync_and_delay();
    mounted.rename("/d/moves", "/e/moved", RenameFlags::empty()).unwrap();
    mounted.unlink("/d/goes", AtFlags::empty()).unwrap();
    mounted.write("/d/new", b"3");
    assert_eq!((mounted.delayed("/d"), mounted.delayed("/e")), (3, 1));
    let file = mounted.task.open("/d/new").unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mounted = mounted.crashed();
    assert_eq!(mounted.names("/d"), ["new"]);
    assert_eq!((mounted.read("/d/new"), mounted.read("/e/moved")), (b"3".into(), b"1".into()));
}

/// A rename changes nothing but names: the directory alone keeps the context open.
#[test]
fn a_context_does_not_end_while_a_name_is_delayed() {
    let mounted = made_beside(64 * MIB);
    mounted.mkdir("/d");
    mounted.write("/d/old", b"");
    mounted.sync();
    let volume = mounted.fs.volume();
    assert!(!volume.has_delayed(), "a sync has left something");
    for (old, new) in [("/d/old", "/d/a"), ("/d/a", "/d/b")] {
        (0..20).for_each(|_| _ = mounted.fs.is_side_by_side(&mounted.dir("/d")));
        mounted.rename(old, new, RenameFlags::empty()).unwrap();
        assert!(volume.has_delayed());
    }
    mounted.sync();
    assert!(!volume.has_delayed());
    assert_eq!(mounted.delayed("/d"), 0);
}

/// A directory in which names come and go gets hot by one thread, until the next sync; one in which
/// they stay does not.
#[test]
fn a_directory_is_hot_where_names_come_and_go() {
    let mounted = opened(formatted(64 * MIB));
    ["/d", "/e"].iter().for_each(|path| mounted.mkdir(path));
    let is_hot = |path: &str| mounted.dir(path).names_if_hot(12).is_some();
    for number in 0..20 {
        mounted.write(&format!("/e/{number}"), b"");
    }
    assert!(!is_hot("/e") && !is_hot("/d"));
    for _ in 0..12 {
        assert!(!is_hot("/d"));
        mounted.write("/d/temporary", b"");
        mounted.unlink("/d/temporary", AtFlags::empty()).unwrap();
    }
    assert!(is_hot("/d"));
    mounted.write("/d/delayed", b"");
    assert_eq!(mounted.delayed("/d"), 1);
    mounted.sync();
    assert!(!is_hot("/d"), "it has cooled");
    // Files of an earlier context.
    (0..20).for_each(|number| mounted.unlink(&format!("/e/{number}"), AtFlags::empty()).unwrap());
    assert!(!is_hot("/e"));
    mounted.again();
}

/// Many names, more than the log has space for, in a directory that grows out of its inode and gets
/// a tree of two levels, and shrinks again.
#[test]
fn a_directory_grows_and_shrinks_by_delayed_names() {
    let mounted = made_beside(64 * MIB);
    mounted.mkdir("/d");
    let path = |number: u32| match number % 3 {
        0 => format!("/d/{number}-{}", "long".repeat(60)),
        _ => format!("/d/{number}"),
    };
    let mut most = 0;
    for number in 0..1000 {
        mounted.write(&path(number), &number.to_le_bytes());
        most = most.max(mounted.delayed("/d"));
    }
    assert!(most > 1, "nothing was delayed");
    assert_eq!(mounted.names("/d").len(), 1000);
    let mounted = mounted.again();
    let Mounted { device, fs, vfs, task } = mounted;
    drop((task, vfs));
    fs.close().unwrap();
    drop(fs);
    let mounted = opened_with(device, options(true));
    for number in 0..1000 {
        assert_eq!(mounted.read(&path(number)), number.to_le_bytes(), "{number}");
        if number % 7 != 0 {
            mounted.unlink(&path(number), AtFlags::empty()).unwrap();
        }
    }
    assert_eq!(mounted.names("/d").len(), 143);
    assert_eq!(mounted.fs.volume().overruns(), 0);
    mounted.again();
}

/// A reader in pieces gets each name once that is there all the time, while others come and go and
/// a sync writes the directory in between.
#[test]
fn names_are_listed_once_while_others_come_and_go() {
    let mounted = made_beside(64 * MIB);
    mounted.mkdir("/d");
    (0..700).for_each(|number| mounted.write(&format!("/d/stays{number}"), b""));
    let mut seen = BTreeMap::<String, u32>::new();
    let mut number = 0;
    for entry in mounted.task.read_dir("/d").unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        *seen.entry(name).or_default() += 1;
        number += 1;
        mounted.write(&format!("/d/new{number}"), b"");
        if number > 2 {
            mounted.unlink(&format!("/d/new{}", number - 2), AtFlags::empty()).unwrap();
        }
        if number % 50 == 0 {
            mounted.sync();
        }
    }
    assert!(seen.values().all(|times| *times == 1));
    let stayed = seen.keys().filter(|name| name.starts_with("stays")).count();
    assert_eq!(stayed, 700);
    mounted.again();
}

#[test]
fn a_directory_with_delayed_names_is_removed_once_they_are() {
    let mounted = made_beside(64 * MIB);
    mounted.mkdir("/d");
    mounted.write("/d/a", b"");
    let refused = mounted.unlink("/d", AtFlags::REMOVEDIR);
    assert_eq!(refused, Err(Errno::NOTEMPTY));
    mounted.mkdir("/e");
    assert_eq!(mounted.rename("/e", "/d", RenameFlags::empty()), Err(Errno::NOTEMPTY));
    mounted.unlink("/d/a", AtFlags::empty()).unwrap();
    mounted.rename("/e", "/d", RenameFlags::empty()).unwrap();
    mounted.unlink("/d", AtFlags::REMOVEDIR).unwrap();
    assert_eq!(mounted.names("/"), [""; 0]);
    mounted.again();
}

/// Directories are made, moved and removed in the directory itself, together with its delayed
/// names, and count there at once.
#[test]
fn names_of_directories_are_not_delayed() {
    let mounted = made_beside(64 * MIB);
    ["/d", "/e"].iter().for_each(|path| mounted.mkdir(path));
    mounted.write("/e/file", b"");
    mounted.sync_and_delay();
    let change = |change: &dyn Fn(), links: [u32; 2]| {
        mounted.write("/d/delayed", b"");
        mounted.write("/e/delayed", b"");
        assert_eq!((mounted.delayed("/d"), mounted.delayed("/e")), (1, 1));
        change();
        assert_eq!(mounted.delayed("/d"), 0);
        for (dir, links) in ["/d", "/e"].into_iter().zip(links) {
            assert_eq!((mounted.stat(dir).nlink, mounted.dir(dir).core().nlink), (links, links));
            mounted.unlink(&format!("{dir}/delayed"), AtFlags::empty()).unwrap();
            mounted.sync_and_delay();
        }
    };
    let rename = |from, to, flags| mounted.rename(from, to, flags).unwrap();
    change(&|| ["/d/a", "/d/b", "/d/c"].iter().for_each(|path| mounted.mkdir(path)), [5, 2]);
    change(&|| rename("/d/a", "/e/a", RenameFlags::empty()), [4, 3]);
    change(&|| rename("/d/b", "/d/moved", RenameFlags::empty()), [4, 3]);
    change(&|| rename("/d/moved", "/e/file", RenameFlags::EXCHANGE), [3, 4]);
    change(&|| rename("/d/moved", "/e/file", RenameFlags::EXCHANGE), [4, 3]);
    change(&|| rename("/d/c", "/e/a", RenameFlags::empty()), [3, 3]);
    assert_eq!(mounted.task.canonicalize("/e/a/../..").unwrap().as_os_str(), "/");
}

/// Files change places, and leave whiteouts, beside other threads, too.
#[test]
fn exchanges_and_whiteouts_are_delayed() {
    let mounted = made_beside(64 * MIB);
    ["/d", "/e"].iter().for_each(|path| mounted.mkdir(path));
    [("/d/a", b"1"), ("/d/b", b"2"), ("/e/c", b"3")].iter().for_each(|(path, bytes)| {
        mounted.write(path, *bytes);
    });
    mounted.sync_and_delay();
    mounted.rename("/d/a", "/d/b", RenameFlags::EXCHANGE).unwrap();
    mounted.rename("/d/a", "/e/c", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((mounted.delayed("/d"), mounted.delayed("/e")), (2, 1));
    mounted.rename("/d/b", "/e/moved", RenameFlags::WHITEOUT).unwrap();
    assert_eq!((mounted.delayed("/d"), mounted.delayed("/e")), (2, 2));
    let check = |mounted: &Mounted| {
        let read = ["/d/a", "/e/c", "/e/moved"].map(|path| mounted.read(path));
        assert_eq!(read, [b"3", b"2", b"1"]);
        assert_eq!(mounted.stat("/d/b").mode & 0o170_000, 0o020_000);
    };
    check(&mounted);
    mounted.sync();
    let mounted = mounted.crashed();
    check(&mounted);
    mounted.again();
}

/// A change of attributes leaves the delayed names of a directory, and is durable with them.
#[test]
fn attributes_change_beside_names() {
    let mounted = made_beside(64 * MIB);
    mounted.mkdir("/d");
    mounted.sync_and_delay();
    mounted.write("/d/a", b"1");
    let set = |name: &str, value: &[u8]| {
        let (how, flags) = (XattrFlags::empty(), AtFlags::empty());
        mounted.task.posix().setxattrat(At::Cwd, "/d", name, value, how, flags).unwrap();
    };
    mounted.task.set_permissions("/d", Mode::from(0o711)).unwrap();
    set("user.small", b"in the inode");
    set("user.large", &[7; 3000]);
    assert_eq!(mounted.delayed("/d"), 1);
    mounted.task.set_permissions("/d", Mode::from(0o700)).unwrap();
    mounted.write("/d/b", b"2");
    assert_eq!(mounted.stat("/d").mode & 0o777, 0o700);
    mounted.sync();
    let mounted = mounted.crashed();
    assert_eq!((mounted.stat("/d").mode & 0o777, mounted.names("/d").len()), (0o700, 2));
    let get = |name: &str| mounted.task.posix().getxattrat(At::Cwd, "/d", name, AtFlags::empty());
    assert_eq!(get("user.small").unwrap(), b"in the inode");
    assert_eq!(get("user.large").unwrap(), [7; 3000]);
    mounted.again();
}

/// The second of two changes can't be made: the first one is undone, and nothing that was set aside
/// is lost. A transaction without space to set aside has changed nothing.
#[test]
fn a_change_of_two_names_is_made_whole_or_not_at_all() {
    let mounted = made_beside(64 * MIB);
    mounted.mkdir("/d");
    mounted.write("/d/a", b"1");
    let (dir, volume) = (mounted.dir("/d"), mounted.fs.volume());
    let ino = mounted.stat("/d/a").ino;
    let kind = crate::inode::core::FileKind::Regular;
    let (left, space) = (volume.metadata().dirs().left(), volume.space().figures());
    let all = |node: &Node| {
        let _locked = node.read();
        format!("{:?}", node.delayed_names().unwrap().all())
    };
    let before = all(&dir);
    let change = |need, steps: &[(&[u8], NameStep)]| {
        let mut tx = volume.begin(need).unwrap();
        let _sharing = dir.read();
        let steps: Vec<_> =
            steps.iter().map(|(name, step)| DirStep { dir: &dir, name, step: *step }).collect();
        tx.commit_names(DirLock::Shared, mounted.fs.hash, &steps, 0)
    };
    let needs = mounted.fs.needs;
    let refused = [
        (vec![(&b"b"[..], NameStep::Add(ino, kind)), (b"c", NameStep::Remove(ino))], Errno::STALE),
        (vec![(b"a", NameStep::Remove(ino)), (b"a", NameStep::Remove(ino))], Errno::STALE),
        (vec![(b"b", NameStep::Add(ino, kind)), (b"b", NameStep::Add(9, kind))], Errno::EXIST),
        (
            vec![(b"a", NameStep::Replace(ino, (9, kind))), (b"..", NameStep::Add(9, kind))],
            Errno::INVAL,
        ),
    ];
    for (steps, errno) in refused {
        let result = change(needs.rename, &steps);
        assert!(matches!(result, Err(Fault::Refused(got)) if got == errno), "{result:?}");
        assert_eq!(all(&dir), before);
    }
    let lacks = change(needs.record, &[(b"b", NameStep::Add(ino, kind))]);
    assert!(matches!(lacks, Ok(None)), "{lacks:?}");
    assert_eq!((all(&dir), volume.metadata().dirs().left()), (before, left));
    assert_eq!(volume.space().figures(), space);
    mounted.again();
}

/// A volume that is so full that no space can be set aside still removes names, and neither fails
/// nor loses space.
#[test]
fn a_full_volume_changes_names_as_before() {
    let mounted = made_beside(16 * MIB);
    mounted.mkdir("/d");
    let mut made = 0;
    let full = loop {
        match mounted.task.write(format!("/d/{made}"), vec![7; 20_000]) {
            Ok(()) => made += 1,
            Err(error) => break error.errno(),
        }
    };
    assert_eq!(full, Errno::NOSPC);
    assert!(mounted.fs.volume().failure().is_none());
    for number in 0..made {
        mounted.unlink(&format!("/d/{number}"), AtFlags::empty()).unwrap();
    }
    mounted.sync();
    assert!(mounted.fs.volume().failure().is_none());
    mounted.write("/d/again", &[7; 20_000]);
    mounted.again();
}

/// Random calls have the same results with delayed names and without, also after a sync and a
/// crash, and after closing and opening.
#[test]
fn delayed_names_change_no_result() {
    for seed in 0..12 {
        same_results(seed);
    }
}

fn same_results(seed: u64) {
    let mut random = seed + 1;
    let mut next = |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let make = |is_beside| {
        let mounted = opened_with(formatted(64 * MIB), options(is_beside));
        ["/a", "/b", "/a/c"].iter().for_each(|path| mounted.mkdir(path));
        mounted
    };
    let mut both = [make(true), make(false)];
    let mut delayed = 0;
    for step in 0..400 {
        let mut path = || {
            let dir = ["/a", "/b", "/a/c"][next(3) as usize];
            let tail = if next(4) == 0 { "tail".repeat(20) } else { String::new() };
            format!("{dir}/{}{tail}", next(12))
        };
        let (one, other) = (path(), path());
        let what = next(12);
        let call = |mounted: &Mounted| -> Result<(), Errno> {
            let task = &mounted.task;
            let done = match what {
                0..3 => task.write(&one, step.to_string()),
                3..5 => {
                    task.posix().renameat2(At::Cwd, &one, At::Cwd, &other, RenameFlags::empty())
                }
                5 => task.hard_link(&one, &other),
                6 => task.create_dir(&one),
                7 => task.remove_dir(&one),
                8 => task.posix().renameat2(At::Cwd, &one, At::Cwd, &other, RenameFlags::EXCHANGE),
                9 if step % 40 == 0 => {
                    task.posix().sync();
                    Ok(())
                }
                _ => task.remove_file(&one),
            };
            done.map_err(|error| error.errno())
        };
        let results = [&both[0], &both[1]].map(call);
        assert_eq!(results[0], results[1], "seed {seed} step {step}: {what} {one} {other}");
        delayed += both[0].delayed("/a");
        if step % 16 == 0 {
            assert_eq!(both[0].tree(), both[1].tree(), "seed {seed} step {step}");
        }
        if step % 133 == 132 {
            both = both.map(|mounted| {
                mounted.sync();
                let is_beside = mounted.dir("/a").delayed_names().is_some();
                let tree = mounted.tree();
                let Mounted { device, fs, vfs, task } = mounted.crashed();
                drop((task, vfs));
                fs.close().unwrap();
                drop(fs);
                let mounted = opened_with(device, options(is_beside));
                assert_eq!(mounted.tree(), tree, "seed {seed} step {step}");
                mounted
            });
        }
    }
    assert!(delayed > 100, "few names were delayed: {delayed}");
    let [one, other] = both.map(|mounted| {
        let tree = mounted.tree();
        (tree, mounted.again().tree())
    });
    assert_eq!((&one.0, &one.0), (&one.1, &other.1));
}
