//! Data that a program has stored in a shared mapping, which the kernel has not sent to the server:
//! they are no holes for anybody.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use tempfile::TempDir;
use vfscale::Volume;
use vfscale_fuse::Sharing;

use crate::common::{self, Kid, SHARED, TestMount, drop_caches};
use crate::data::Map;

/// The part of the helper processes of these tests. The process that serves a mount must not map a
/// file of it: a page fault could wait for a thread that waits for the address space.
#[test]
fn helper() {
    let Some((role, dir)) = common::role() else { return };
    let dir = Path::new(&dir);
    match role.as_str() {
        "hold" => {
            let _held = stored(&dir.join("f"), |_| {});
            let ready = dir.join("ready");
            File::create(&ready).unwrap();
            vfscale_harness::wait_until("the end", || !ready.exists());
        }
        "seek" => seek(dir, false),
        "seek-gathered" => seek(dir, true),
        "many" => seek_at_once(dir),
        "times" => set_times(dir),
        "grown" => grow(dir),
        other => panic!("{other}"),
    }
}

const SIZE: u64 = 1 << 20;
const AT: u64 = 512 << 10;

/// Runs a test in each kind of mount, in memory and on a volume. The test is told the kind, and
/// whether the kernel gathers writes.
fn everywhere(test: impl Fn(&TestMount, &str, bool)) {
    for (sharing, writeback) in
        [(Sharing::Exclusive, false), (Sharing::Exclusive, true), (SHARED, false)]
    {
        for on_volume in [false, true] {
            let what = format!("{sharing:?}, gathers {writeback}, volume {on_volume}");
            let (uid, gid) = common::owner();
            let volume: Option<(Volume, TempDir)> = on_volume.then(|| {
                let place = tempfile::tempdir().unwrap();
                let image = place.path().join("image");
                let volume = vfscale::volume(image).create(64 << 20).owner(uid, gid).open();
                (volume.unwrap(), place)
            });
            let vfs = volume
                .as_ref()
                .map_or_else(|| common::memory(64 << 20), |(volume, _)| volume.vfs().clone());
            let options = |b: vfscale_fuse::Builder| b.writeback(writeback).volatile(!on_volume);
            let Some(m) = TestMount::of(vfs, sharing, options) else { return };
            test(&m, &what, writeback);
            drop(m);
            if let Some((volume, _)) = volume {
                volume.close().unwrap();
            }
        }
    }
}

/// Makes a file without data, and stores some bytes in a mapping of it. The mapping holds them back
/// while it and the file are not closed, by anybody.
fn stored(path: &Path, prepare: impl Fn(&File)) -> (File, Map) {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    file.set_len(SIZE).unwrap();
    prepare(&file);
    let map = Map::new(&file, SIZE as usize);
    map.store(AT as usize, 7);
    map.store(AT as usize + 4097, 8);
    (file, map)
}

fn is_whole(copy: &[u8]) -> bool {
    copy.len() == SIZE as usize && copy[AT as usize] == 7 && copy[AT as usize + 4097] == 8
}

fn seek(dir: &Path, gathers: bool) {
    // Opened before, and not closed while the mapping lives: a close has everything sent.
    let path = dir.join("seek");
    let (file, map) = stored(&path, |_| {});
    let reader = File::open(&path).unwrap();
    let seek = |from| rustix::fs::seek(&reader, from);
    for round in ["first", "again"] {
        let data = seek(SeekFrom::Data(0)).unwrap();
        assert!(data == AT || (gathers && data < AT), "{round}: data at {data}");
        assert!(seek(SeekFrom::Hole(AT)).unwrap() > AT + 4097, "{round}");
        assert!(reader.metadata().unwrap().blocks() > 0, "{round}");
        let late = seek(SeekFrom::Data(AT + (256 << 10)));
        assert_eq!(late.is_ok(), gathers || round == "again", "{round}: {late:?}");
        map.store(SIZE as usize - 1, 9);
    }
    drop((file, map, reader));
    // A page that was punched is stored anew.
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (file, map) = stored(&dir.join("punched"), |file| {
        file.write_all_at(&vec![1; SIZE as usize], 0).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fallocate(file, punch, AT - 65536, 256 << 10).unwrap();
    });
    let reader = File::open(dir.join("punched")).unwrap();
    let hole = rustix::fs::seek(&reader, SeekFrom::Hole(0)).unwrap();
    assert_eq!(hole, if gathers { SIZE } else { AT - 65536 });
    let data = rustix::fs::seek(&reader, SeekFrom::Data(AT - 65536)).unwrap();
    assert!(data <= AT, "data at {data}");
    drop((file, map, reader));
}

#[test]
fn seek_data_finds_pages_of_a_mapping() {
    everywhere(|m, _, gathers| {
        let role = if gathers { "seek-gathered" } else { "seek" };
        common::run(common::helper("mapped", role, m.dir()));
    });
}

#[test]
fn programs_that_skip_holes_copy_what_a_mapping_holds() {
    // The pages are written while `tar` reads, which it tells, and ends with 1.
    let copies = [
        "cp --sparse=auto f copy",
        "tar -cSf tar f 2>told || grep -q changed told; tar -xSf tar -O > copy",
    ];
    everywhere(|m, what, _| {
        for script in copies {
            let kid = Kid::start(common::helper("mapped", "hold", m.dir()));
            vfscale_harness::wait_until("a mapping", || m.path("ready").exists());
            let mut shell = Command::new("sh");
            common::run({
                shell.args(["-c", script]).current_dir(m.dir());
                shell
            });
            assert!(is_whole(&fs::read(m.path("copy")).unwrap()), "{what}: {script}");
            fs::remove_file(m.path("ready")).unwrap();
            kid.finish();
            fs::remove_file(m.path("f")).unwrap();
        }
    });
}

fn seek_at_once(dir: &Path) {
    std::thread::scope(|scope| {
        for i in 0..8 {
            scope.spawn(move || {
                let path = dir.join(format!("f{i}"));
                let (_file, map) = stored(&path, |_| {});
                let reader = File::open(path).unwrap();
                for round in 0..50 {
                    map.store(AT as usize, round);
                    let data = rustix::fs::seek(&reader, SeekFrom::Data(0)).unwrap();
                    assert!(data <= AT, "data at {data}");
                }
            });
        }
    });
}

/// None waits for the answer to another for ever, while the kernel sends pages.
#[test]
fn many_ask_for_holes_at_once() {
    everywhere(|m, _, _| common::run(common::helper("mapped", "many", m.dir())));
}

/// A file that was never mapped keeps its holes, and what the kernel has cached of it.
#[test]
fn holes_of_other_files_stay_holes() {
    everywhere(|m, what, gathers| {
        if gathers {
            return;
        }
        let path = m.path("f");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(&[1; 8192], AT).unwrap();
        assert!(fs::read(&path).unwrap().len() == SIZE as usize);
        let seek = |from| rustix::fs::seek(&file, from);
        assert_eq!(seek(SeekFrom::Data(0)), Ok(AT), "{what}");
        assert_eq!(seek(SeekFrom::Hole(AT)), Ok(AT + 8192), "{what}");
        assert_eq!(seek(SeekFrom::Data(AT + 8192)), Err(Errno::NXIO), "{what}");
        let mut copy = Command::new("cp");
        common::run({
            copy.args(["--sparse=auto", "f", "g"]).current_dir(m.dir());
            copy
        });
        assert!(fs::metadata(m.path("g")).unwrap().blocks() <= 64, "{what}");
    });
}

/// tar(1) reads nothing of a file without blocks, if it has 512 bytes or more.
#[test]
fn a_file_with_a_size_has_blocks() {
    everywhere(|m, what, _| {
        let path = m.path("f");
        fs::write(&path, "hello").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.sync_all().unwrap();
        for size in [5, 600, 4096, SIZE] {
            file.set_len(size).unwrap();
            file.sync_all().unwrap();
            assert!(fs::metadata(&path).unwrap().blocks() > 0, "{what}: {size}");
            let script = "rm -rf out && mkdir out && tar -cSf tar f && tar -xSf tar -C out";
            let mut shell = Command::new("sh");
            common::run({
                shell.args(["-c", script]).current_dir(m.dir());
                shell
            });
            assert_eq!(fs::read(m.path("out/f")).unwrap()[..5], *b"hello", "{what}: {size}");
        }
        drop_caches();
        assert!(fs::metadata(&path).unwrap().blocks() > 0, "{what}");
        file.set_len(0).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().blocks(), 0, "{what}");
    });
}

/// The kernel keeps no number of blocks; it asks for it again.
#[test]
fn blocks_are_those_of_synced_data() {
    everywhere(|m, what, _| {
        let file = File::create(m.path("f")).unwrap();
        file.write_all_at(&vec![1; SIZE as usize], 0).unwrap();
        file.sync_all().unwrap();
        let blocks = file.metadata().unwrap().blocks();
        assert!(blocks * 512 >= SIZE, "{what}: {blocks}");
        file.write_all_at(&vec![1; SIZE as usize], SIZE).unwrap();
        file.sync_all().unwrap();
        let blocks = file.metadata().unwrap().blocks();
        assert!(blocks * 512 >= 2 * SIZE, "{what}: {blocks}");
    });
}

/// A mapping of a file of two pages, with a byte stored that the kernel has not sent.
fn held(path: &Path) -> (File, Map) {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.sync_all().unwrap();
    let map = Map::new(&file, 8192);
    map.store(1, 2);
    (file, map)
}

fn set_times(dir: &Path) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000_000_000_123_456_789);
    let set = |file: &File| file.set_times(FileTimes::new().set_modified(old)).unwrap();
    let path = dir.join("f");
    let has = |modified| assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
    let ways: [fn(&File, &Map, &Path); 3] = [
        |_, map, _| map.sync().unwrap(),
        |file, _, _| file.sync_all().unwrap(),
        // A close of any descriptor has all sent.
        |_, _, path| drop(File::open(path).unwrap()),
    ];
    for send in ways {
        let (file, map) = held(&path);
        set(&file);
        has(old);
        send(&file, &map, &path);
        has(old);
        assert_eq!(fs::read(&path).unwrap()[1], 2);
        // A store that is made after the time was set shows.
        map.store(1, 3);
        send(&file, &map, &path);
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > old);
        assert_eq!(fs::read(&path).unwrap()[1], 3);
        drop((file, map));
        fs::remove_file(&path).unwrap();
    }
}

/// Nor does a time that is set hide a store that is made later.
#[test]
fn a_time_that_is_set_outlives_stores_made_before() {
    everywhere(|m, _, _| common::run(common::helper("mapped", "times", m.dir())));
}

fn grow(dir: &Path) {
    let path = dir.join("f");
    for (is_sent, by_name, to) in
        [(false, false, 3000), (true, false, 3000), (false, true, 9000), (true, true, 9000)]
    {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(&[1; 100], 0).unwrap();
        file.sync_all().unwrap();
        let map = Map::new(&file, 4096);
        (200..1200).for_each(|at| map.store(at, 7));
        if is_sent {
            map.sync().unwrap();
        }
        match by_name {
            true => common::truncate(&path, to as i64).unwrap(),
            false => file.set_len(to).unwrap(),
        }
        let mut grown = vec![0; to as usize];
        grown[..100].fill(1);
        assert!(fs::read(&path).unwrap() == grown, "grown to {to}, sent {is_sent}");
        // From now on a store stays.
        map.store(150, 9);
        grown[150] = 9;
        map.sync().unwrap();
        file.write_all_at(&[8; 300], 400).unwrap();
        grown[400..700].fill(8);
        drop((file, map));
        drop_caches();
        assert!(fs::read(&path).unwrap() == grown, "grown to {to}, sent {is_sent}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn bytes_stored_behind_the_end_are_gone_when_a_file_grows() {
    everywhere(|m, what, gathers| {
        if gathers || !what.starts_with("Exclusive") {
            return;
        }
        common::run(common::helper("mapped", "grown", m.dir()));
    });
}
