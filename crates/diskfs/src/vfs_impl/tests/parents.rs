//! The directory and the place of a name that inodes tell.

use vfscale_sync::random::{Random, seed};
use vfscale_vfs::OFlags;
use vfscale_vfs::types::FileType;

use super::*;
use crate::format::superblock::Features;
use crate::inode::core::InodeCore;
use crate::volume::copies;

/// Options under which all names are delayed that may be, or none.
fn options(is_beside: bool) -> Settings {
    Settings { dir_heat: if is_beside { 0 } else { u32::MAX }, ..Settings::default() }
}

fn formatted() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(64 * MIB).unwrap();
    let log_blocks = Some(1000);
    mkfs::format(&device, &MkfsOptions { log_blocks, ..MkfsOptions::default() }).unwrap();
    Arc::new(device)
}

/// Creates a volume as programs made it that did not know the feature.
fn old() -> Arc<MemoryDevice> {
    let device = formatted();
    let mut superblock = copies::read(&*device).unwrap().superblock;
    assert!(superblock.features.has_parents());
    superblock.features.incompat &= !Features::PARENTS;
    copies::write(&*device, &mut superblock).unwrap();
    device
}

impl Mounted {
    fn core(&self, path: &str) -> Arc<InodeCore> {
        let ino = self.stat(path).ino;
        self.fs.table.get(self.fs.volume(), ino).unwrap().unwrap().core()
    }

    /// Asserts that the inode at `path` tells the place of a name: one of `told`, a path, or none.
    #[track_caller]
    fn tells(&self, path: &str, told: &str) {
        let core = self.core(path);
        let expected = match told.rsplit_once('/') {
            Some((dir, name)) => {
                let dir = if dir.is_empty() { "/" } else { dir };
                (self.stat(dir).ino, self.fs.hash.head(name.as_bytes()))
            }
            None => (0, 0),
        };
        assert_eq!((core.parent, core.name_head), expected, "{path}: {told:?}");
    }

    fn gone(&self, path: &str) {
        self.unlink(path, AtFlags::empty()).unwrap();
    }

    fn link(&self, old: &str, new: &str) {
        self.task.hard_link(old, new).unwrap();
    }
}

#[test]
fn an_inode_tells_where_its_name_is() {
    for is_beside in [false, true] {
        let mounted = opened_with(formatted(), options(is_beside));
        for dir in ["/a", "/b", "/a/d"] {
            mounted.mkdir(dir);
        }
        let calls = mounted.task.posix();
        mounted.write("/a/f", b"file");
        mounted.task.symlink("to", "/a/l").unwrap();
        calls.mknodat(At::Cwd, "/a/fifo", FileType::Fifo, 0o644, 0).unwrap();
        for path in ["/a", "/a/d", "/a/f", "/a/l", "/a/fifo"] {
            mounted.tells(path, path);
        }
        // Moved in a directory, elsewhere, over another file, and exchanged.
        mounted.rename("/a/f", "/a/g", RenameFlags::empty()).unwrap();
        mounted.tells("/a/g", "/a/g");
        mounted.rename("/a/g", "/b/g", RenameFlags::empty()).unwrap();
        mounted.rename("/a/d", "/b/d", RenameFlags::empty()).unwrap();
        mounted.write("/a/over", b"other");
        mounted.rename("/a/over", "/b/g", RenameFlags::empty()).unwrap();
        for path in ["/b/g", "/b/d"] {
            mounted.tells(path, path);
        }
        mounted.rename("/b/g", "/a/l", RenameFlags::EXCHANGE).unwrap();
        mounted.rename("/a/l", "/b/d", RenameFlags::EXCHANGE).unwrap();
        for path in ["/b/g", "/a/l", "/b/d"] {
            mounted.tells(path, path);
        }
        mounted.rename("/b/d", "/a/moved", RenameFlags::WHITEOUT).unwrap();
        mounted.tells("/a/moved", "/a/moved");
        mounted.tells("/b/d", "/b/d");
        let mounted = mounted.again();
        mounted.tells("/a/moved", "/a/moved");
    }
}

#[test]
fn a_file_with_several_names_tells_the_last_one_made() {
    for is_beside in [false, true] {
        let mounted = opened_with(formatted(), options(is_beside));
        mounted.mkdir("/a");
        mounted.mkdir("/b");
        mounted.write("/a/f", b"file");
        mounted.link("/a/f", "/b/g");
        mounted.tells("/a/f", "/b/g");
        mounted.link("/a/f", "/a/h");
        mounted.gone("/a/f");
        mounted.tells("/b/g", "/a/h");
        // Which one is left is not known.
        mounted.gone("/a/h");
        mounted.tells("/b/g", "");
        mounted.link("/b/g", "/b/h");
        mounted.write("/a/new", b"new");
        mounted.rename("/a/new", "/b/h", RenameFlags::empty()).unwrap();
        mounted.tells("/b/g", "");
        mounted.rename("/b/g", "/b/named", RenameFlags::empty()).unwrap();
        mounted.tells("/b/named", "/b/named");
        mounted.again().tells("/b/named", "/b/named");
    }
}

#[test]
fn a_file_tells_its_first_name() {
    let mounted = opened(formatted());
    mounted.mkdir("/d");
    let calls = mounted.task.posix();
    let file = calls.open("/d", OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o600)).unwrap();
    calls.linkat(At::File(&file), "", At::Cwd, "/named", AtFlags::EMPTY_PATH).unwrap();
    drop(file);
    mounted.tells("/named", "/named");
    mounted.again().tells("/named", "/named");
}

/// Older programs find files damaged that have a parent.
#[test]
fn an_old_volume_stays_one() {
    for is_beside in [false, true] {
        let mounted = opened_with(old(), options(is_beside));
        mounted.mkdir("/d");
        mounted.mkdir("/e");
        mounted.write("/d/f", b"file");
        mounted.link("/d/f", "/d/g");
        mounted.gone("/d/f");
        mounted.rename("/d/g", "/e/g", RenameFlags::empty()).unwrap();
        mounted.rename("/e", "/d/e", RenameFlags::empty()).unwrap();
        mounted.tells("/d/e/g", "");
        let core = mounted.core("/d/e");
        assert_eq!((core.parent, core.name_head), (mounted.stat("/d").ino, 0));
        let mounted = mounted.again();
        assert!(!mounted.fs.volume().superblock().features.has_parents());
    }
}

/// A check finds a place that is wrong; so it is asked after random calls, and after crashes.
#[test]
fn places_are_right_after_random_calls() {
    let mut random = Random::new(seed());
    for round in 0..12 {
        let mut mounted = opened_with(formatted(), options(round % 2 == 0));
        for dir in ["/a", "/b", "/b/c"] {
            mounted.mkdir(dir);
        }
        for step in 0..300 {
            let mut path =
                || format!("{}/n{}", random.one(&["", "/a", "/b", "/b/c"]), random.below(7));
            let (one, other) = (path(), path());
            let calls = mounted.task.posix();
            let flags = [RenameFlags::empty(), RenameFlags::EXCHANGE, RenameFlags::WHITEOUT];
            // Calls that fail change nothing.
            let _ = match random.below(8) {
                0 | 1 => mounted.task.write(&one, "new"),
                2 => mounted.task.create_dir(&one),
                3 => mounted.task.hard_link(&one, &other),
                4 => mounted.task.remove_file(&one),
                5 => mounted.task.remove_dir(&one),
                _ => calls.renameat2(At::Cwd, &one, At::Cwd, &other, random.one(&flags)),
            };
            if step % 100 == 99 {
                mounted = mounted.crashed();
            }
        }
        drop(mounted.again());
    }
}
