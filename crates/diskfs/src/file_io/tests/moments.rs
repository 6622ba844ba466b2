//! Events at a certain moment of a call: other threads interfere, again and again at the same
//! point.

use std::thread;
use std::time::Duration;

use super::*;

const LONG: Duration = Duration::from_millis(100);

struct World {
    cache: Arc<PageCache>,
    file: Arc<File>,
}

impl World {
    fn new() -> Self {
        let cache = PageCache::new(1 << 20, 1);
        let file = Arc::new(Disk::new(100).open(&cache));
        Self { cache, file }
    }

    /// With `pages` pages of ones, written back, of which none is in memory.
    fn with_pages(pages: usize) -> Self {
        let world = Self::new();
        world.write(0, &vec![1; pages * PAGE_SIZE]);
        world.file.data().write_back().unwrap();
        world.cache.reclaim(1000);
        world
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        assert_eq!(self.file.data().write(at, bytes).unwrap(), bytes.len());
    }

    /// The next time that the file comes to `point`, somebody else does `work` before it goes on.
    fn at(&self, point: Point, work: impl FnOnce(&World) + Send + 'static) {
        let world = World { cache: Arc::clone(&self.cache), file: Arc::clone(&self.file) };
        let other = move || thread::spawn(move || work(&world)).join().unwrap();
        *self.file.disk.hook.lock().unwrap() = Some((point, Box::new(other)));
    }

    fn byte_at(&self, at: u64) -> u8 {
        let mut byte = [0];
        assert_eq!(self.file.data().read(at, &mut byte).unwrap(), 1);
        byte[0]
    }

    fn write_back(&self) {
        self.file.data().write_back().unwrap();
        assert!(self.file.disk.hook.lock().unwrap().is_none(), "it did not come to that point");
    }
}

#[test]
fn a_page_that_was_read_too_early_is_not_kept() {
    let world = World::with_pages(1);
    world.at(Point::HasRead, |other| {
        other.write(0, &[2; PAGE_SIZE]);
        other.file.data().write_back().unwrap();
        other.cache.reclaim(1000);
        assert!(other.file.data().pages.read().is_empty());
    });
    // The read began before the write, so either result is right.
    assert!([1, 2].contains(&world.byte_at(7)));
    assert_eq!(world.byte_at(7), 2);
}

#[test]
fn a_page_that_came_meanwhile_is_newer_than_what_was_read() {
    let world = World::with_pages(2);
    world.at(Point::HasRead, |other| other.write(0, &[2; PAGE_SIZE]));
    assert_eq!(world.byte_at(7), 2);
    check_counts(&world.file, &world.cache);
}

#[test]
fn a_page_that_is_being_written_back_is_not_dropped() {
    let world = World::with_pages(2);
    world.write(0, &[2; PAGE_SIZE]);
    world.at(Point::Write, |other| {
        other.cache.reclaim(1000);
        assert_eq!(other.byte_at(7), 2);
    });
    world.write_back();
    assert_eq!(world.byte_at(7), 2);
    check_counts(&world.file, &world.cache);
}

#[test]
fn write_back_repeats_a_page_written_on_its_way() {
    let world = World::with_pages(2);
    world.write(0, &[2; PAGE_SIZE]);
    world.at(Point::Write, |other| other.write(5, &[3; 10]));
    world.write_back();
    world.file.data().write_back().unwrap();
    world.cache.reclaim(1000);
    assert_eq!((world.byte_at(4), world.byte_at(5)), (2, 3));
    check_counts(&world.file, &world.cache);
}

#[test]
fn write_back_counts_no_bytes_appended_on_its_way() {
    let world = World::new();
    world.write(0, &[1; 500]);
    world.at(Point::Write, |other| other.write(500, &[2; 100]));
    world.write_back();
    // As long as it was when it was copied.
    assert_eq!(world.file.disk.state.lock().unwrap().sizes, [500]);
    world.write_back();
    assert_eq!(world.file.disk_size(), 600);
    assert_eq!(contents(&world.file.disk.open(&PageCache::new(0, 1)))[500..], [2; 100]);
}

#[test]
fn write_back_gives_a_file_a_block_whose_room_in_the_inode_was_taken() {
    let world = World::new();
    world.write(0, &[1; 200]);
    world.at(Point::Change, |other| other.file.disk.state.lock().unwrap().room = 100);
    world.write_back();
    assert_eq!(contents(&world.file.disk.open(&PageCache::new(0, 1))), [1; 200]);
    check_counts(&world.file, &world.cache);
}

#[test]
fn the_size_waits_for_pages_that_come_meanwhile() {
    let world = World::new();
    world.write(0, &[1; PAGE_SIZE]);
    world.at(Point::Change, |other| other.write(5 * PAGE, &[2; PAGE_SIZE]));
    world.write_back();
    assert_eq!(world.file.disk_size(), 5 * PAGE);
    assert!(world.file.data().is_dirty());
    world.write_back();
    assert_eq!(world.file.disk_size(), 6 * PAGE);
}

#[test]
fn a_page_in_the_inode_that_changes_on_its_way_keeps_its_space() {
    let world = World::new();
    world.write(0, &[1; 100]);
    world.at(Point::Change, |other| other.write(50, &[2; 10]));
    world.write_back();
    assert_eq!((world.file.disk_size(), world.file.pages.delayed_blocks()), (100, 1));
    check_counts(&world.file, &world.cache);
    world.write_back();
    assert_eq!(world.file.pages.delayed_blocks(), 0);
    assert_eq!(world.file.inline().unwrap()[50..60], [2; 10]);
}

#[test]
fn blocks_that_are_being_read_are_not_taken_away() {
    for cut in [true, false] {
        let world = World::with_pages(3);
        let (cache, file) = (Arc::clone(&world.cache), Arc::clone(&world.file));
        let (sender, receiver) = std::sync::mpsc::channel();
        let begin = move || {
            let other = thread::spawn(move || match cut {
                true => file.data().set_size(0).unwrap(),
                false => file.data().punch(0, 3 * PAGE).unwrap(),
            });
            // If it is not kept off, it is done by then.
            vfscale_harness::pause(LONG);
            sender.send(other).unwrap();
        };
        *world.file.disk.hook.lock().unwrap() = Some((Point::Read, Box::new(begin)));
        let mut bytes = [0; 3 * PAGE_SIZE];
        world.file.data().read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 1 || *byte == 0));
        receiver.recv().unwrap().join().unwrap();
        assert!(contents(&world.file).iter().all(|byte| *byte == 0));
        check_counts(&world.file, &cache);
    }
}

#[test]
fn a_truncation_waits_for_pages_under_write_back() {
    let world = World::with_pages(3);
    world.write(0, &[2; 3 * PAGE_SIZE]);
    let file = Arc::clone(&world.file);
    let (sender, receiver) = std::sync::mpsc::channel();
    let begin = move || {
        let other = thread::spawn(move || file.data().set_size(0).unwrap());
        vfscale_harness::pause(LONG);
        sender.send(other).unwrap();
    };
    *world.file.disk.hook.lock().unwrap() = Some((Point::Write, Box::new(begin)));
    world.write_back();
    receiver.recv().unwrap().join().unwrap();
    check_counts(&world.file, &world.cache);
    // Nothing of it was written into a block that was free by then.
    let disk = &world.file.disk;
    assert_eq!(disk.free_blocks(), 100);
    for block in FIRST..FIRST + 100 {
        let mut bytes = [0; PAGE_SIZE];
        disk.device.read_at(block * PAGE, &mut bytes).unwrap();
        assert_eq!(bytes, [POISON; PAGE_SIZE], "block {block}");
    }
}

/// The volume is sealed while a piece is on its way, and a page of it is written to once more.
///
/// Race: A sync against other threads that write back.
#[test]
fn a_page_that_can_not_be_written_now_stays_dirty() {
    let world = World::new();
    world.write(0, &[1; 10 * PAGE_SIZE]);
    world.at(Point::Change, |world| {
        world.write(3 * PAGE, &[2; PAGE_SIZE]);
        world.file.disk.state.lock().unwrap().is_sealed = true;
    });
    let data = world.file.data();
    assert!(matches!(data.write_back(), Err(Fault::ReadOnly)));
    assert!(matches!(data.write_back(), Err(Fault::ReadOnly)));
    assert!(world.file.write_errors.is_told());
    assert_eq!(data.pages.read().unstable_pages(), 10);
    check_counts(&world.file, &world.cache);
    let mut expected = vec![1; 10 * PAGE_SIZE];
    expected[3 * PAGE_SIZE..4 * PAGE_SIZE].fill(2);
    assert_eq!(contents(&world.file), expected);
    world.file.disk.state.lock().unwrap().is_sealed = false;
    data.write_back().unwrap();
    assert_eq!(contents(&world.file.disk.open(&world.cache)), expected);
}

#[test]
fn a_range_is_zero_before_the_file_grows_by_it() {
    let world = World::with_pages(2);
    // Only the first page has to be read when it is zeroed in part.
    assert_eq!(world.byte_at(PAGE), 1);
    world.at(Point::Read, |other| {
        assert_eq!(other.file.data().size(), 2 * PAGE);
        // A crash shows the old end with this.
        other.file.data().write_back().unwrap();
        assert_eq!(other.file.disk_size(), 2 * PAGE);
    });
    world.file.data().zero_range(1000, 5 * PAGE, false).unwrap();
    world.write_back();
    assert_eq!(world.file.disk_size(), 1000 + 5 * PAGE);
    assert_eq!((world.byte_at(999), world.byte_at(1000), world.byte_at(PAGE)), (1, 0, 0));
}
