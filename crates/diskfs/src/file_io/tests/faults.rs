//! Devices that fail.

use super::*;

#[test]
fn a_page_that_can_not_be_written_is_dropped_and_told() {
    let cache = PageCache::new(1 << 20, 1);
    let file = Disk::new(100).open(&cache);
    let data = file.data();
    data.write(0, &[1; 10 * PAGE_SIZE]).unwrap();
    data.write_back().unwrap();
    data.write(2 * PAGE, &[2; PAGE_SIZE]).unwrap();
    data.write(12 * PAGE, &[2; PAGE_SIZE]).unwrap();
    file.disk.state.lock().unwrap().writes_left = 0;
    data.write_back().unwrap_err();
    file.disk.state.lock().unwrap().writes_left = u64::MAX;
    assert!(!file.write_errors.is_told());
    check_counts(&file, &cache);
    // Old data still exists; the rest is a hole.
    let mut expected = vec![0; 13 * PAGE_SIZE];
    expected[..10 * PAGE_SIZE].fill(1);
    assert_eq!(contents(&file), expected);
    // Three places for the page that has no block were tried.
    assert_eq!(file.disk.free_blocks(), 90 - 3);
    data.write_back().unwrap();
    assert_eq!(file.disk_size(), 13 * PAGE);
    assert_eq!(contents(&file.disk.open(&cache)), expected);
}

#[test]
fn every_failing_change_is_an_error_and_leaks_nothing() {
    for changes in 0..12 {
        let cache = PageCache::new(1 << 20, 1);
        let disk = Disk::new(60);
        let file = disk.open(&cache);
        {
            let mut state = disk.state.lock().unwrap();
            (state.changes_left, state.claim_max) = (changes, 2);
        }
        let data = file.data();
        data.write(0, b"in the inode").unwrap();
        let mut failed = data.write_back().is_err();
        data.write(PAGE, &[1; 6 * PAGE_SIZE]).unwrap();
        failed |= data.write_back().is_err();
        failed |= data.allocate(9 * PAGE, PAGE, false).is_err();
        failed |= data.punch(2 * PAGE, PAGE).is_err();
        failed |= data.set_size(3 * PAGE).is_err();
        let left = std::mem::replace(&mut disk.state.lock().unwrap().changes_left, u64::MAX);
        assert!(failed || left > 0 || changes == 8, "{changes}");
        check_counts(&file, &cache);
        let bytes = contents(&file);
        assert!(!bytes.contains(&POISON));
        data.write_back().unwrap();
        assert_eq!(contents(&disk.open(&cache)), bytes);
        data.set_size(0).unwrap();
        assert_eq!(disk.free_blocks(), 60);
    }
}

#[test]
fn a_page_that_can_not_be_read_fails_the_call() {
    let cache = PageCache::new(1 << 20, 1);
    let file = Disk::new(100).open(&cache);
    file.data().write(0, &[1; 10 * PAGE_SIZE]).unwrap();
    file.data().write_back().unwrap();
    let file = file.disk.open(&cache);
    let mut bytes = [0; 100];
    file.disk.state.lock().unwrap().reads_left = 0;
    file.data().read(0, &mut bytes).unwrap_err();
    // Nor can a part of a page be written then; a whole page can.
    file.data().write(5, b"x").unwrap_err();
    assert_eq!(file.data().write(PAGE, &[2; PAGE_SIZE]).unwrap(), PAGE_SIZE);
    file.disk.state.lock().unwrap().reads_left = 1;
    assert_eq!(file.data().read(0, &mut bytes).unwrap(), 100);
    assert_eq!(bytes, [1; 100]);
    // Up to what can't be read.
    let mut bytes = vec![0; 10 * PAGE_SIZE];
    assert_eq!(file.data().read(0, &mut bytes).unwrap(), 2 * PAGE_SIZE);
}

/// Which block of the device a page has.
fn block_of(file: &File, page: u64) -> u64 {
    match Store::map(&file, page).unwrap() {
        Mapping::Mapped { start, .. } => start,
        other => panic!("page {page} has no block: {other:?}"),
    }
}

#[test]
fn a_bad_block_costs_its_own_page_and_no_other() {
    let cache = PageCache::new(16 << 20, 1);
    let file = Disk::new(1000).open(&cache);
    let data = file.data();
    data.write(0, &[1; 600 * PAGE_SIZE]).unwrap();
    data.write_back().unwrap();
    let bad = [block_of(&file, 0), block_of(&file, 300), block_of(&file, 599)];
    file.disk.state.lock().unwrap().bad = bad.into();
    data.write(0, &[2; 600 * PAGE_SIZE]).unwrap();
    data.write_back().unwrap_err();
    assert!(!file.write_errors.is_told());
    check_counts(&file, &cache);
    let mut expected = vec![2; 600 * PAGE_SIZE];
    for page in [0, 300, 599] {
        expected[page * PAGE_SIZE..][..PAGE_SIZE].fill(1);
    }
    assert_eq!(contents(&file), expected);
    assert_eq!(contents(&file.disk.open(&cache)), expected);
}

#[test]
fn new_pages_go_elsewhere_than_into_bad_blocks() {
    let mut all = 0;
    for (bad, claim_max) in [(7, u32::MAX), (7, 3), (1, 100)] {
        let cache = PageCache::new(16 << 20, 1);
        let disk = Disk::new(1000);
        let file = disk.open(&cache);
        let blocks: Vec<u64> = (0..bad).map(|n| FIRST + n * 83).collect();
        {
            let mut state = disk.state.lock().unwrap();
            (state.bad, state.claim_max) = (blocks.clone(), claim_max);
        }
        let data = file.data();
        let bytes: Vec<u8> = (0..600 * PAGE_SIZE).map(|at| (at / PAGE_SIZE) as u8 | 1).collect();
        data.write(0, &bytes).unwrap();
        data.write_back().unwrap();
        assert!(file.write_errors.is_told());
        check_counts(&file, &cache);
        assert!((0..600).all(|page| !blocks.contains(&block_of(&file, page))));
        assert_eq!(contents(&disk.open(&cache)), bytes);
        let aside = disk.state.lock().unwrap().aside;
        assert!(aside <= bad, "{aside} blocks are left out");
        assert_eq!(disk.free_blocks(), 400 - aside);
        all += aside;
    }
    assert!(all > 0, "no bad block was met");
}

#[test]
fn a_page_for_which_several_places_fail_is_given_up() {
    let cache = PageCache::new(16 << 20, 1);
    let disk = Disk::new(100);
    let file = disk.open(&cache);
    disk.state.lock().unwrap().bad = (FIRST..FIRST + 100).collect();
    file.data().write(0, &[1; PAGE_SIZE]).unwrap();
    file.data().write_back().unwrap_err();
    check_counts(&file, &cache);
    assert_eq!(disk.state.lock().unwrap().aside, 3);
    assert_eq!(contents(&file), [0; PAGE_SIZE]);
    disk.state.lock().unwrap().bad.clear();
    file.data().write(0, &[2; PAGE_SIZE]).unwrap();
    file.data().write_back().unwrap();
    assert_eq!(contents(&disk.open(&cache)), [2; PAGE_SIZE]);
}

#[test]
fn a_full_disk_has_no_other_place_for_a_bad_block() {
    let cache = PageCache::new(16 << 20, 1);
    let disk = Disk::new(10);
    let file = disk.open(&cache);
    disk.state.lock().unwrap().bad = vec![FIRST + 4];
    file.data().write(0, &[1; 10 * PAGE_SIZE]).unwrap();
    file.data().write_back().unwrap_err();
    check_counts(&file, &cache);
    // One page is lost, and with its space there is another place for the next one.
    assert_eq!(disk.free_blocks() + disk.state.lock().unwrap().aside, 1);
    let bytes = contents(&file);
    assert_eq!(bytes.iter().filter(|byte| **byte == 0).count(), PAGE_SIZE);
}

#[test]
fn a_dead_device_is_not_asked_for_each_page() {
    let cache = PageCache::new(64 << 20, 1);
    let disk = Disk::new(5000);
    let file = disk.open(&cache);
    disk.state.lock().unwrap().bad = (FIRST..FIRST + 5000).collect();
    file.data().write(0, &vec![1; 4000 * PAGE_SIZE]).unwrap();
    file.data().write_back().unwrap_err();
    check_counts(&file, &cache);
    let refused = disk.state.lock().unwrap().refused;
    assert!(refused < 300, "{refused} writes");
    assert_eq!(file.data().pages.read().unstable_pages(), 0);
}

/// A file is cut within a block and grows again, so the block has old bytes behind the end on the
/// device until its page is written. If that can't be, the file must not grow over them.
#[test]
fn a_bad_block_at_the_end_shows_no_old_bytes_when_the_file_grows() {
    for (bad, is_log_dead) in [(1, false), (100, false), (100, true)] {
        let cache = PageCache::new(16 << 20, 1);
        let disk = Disk::new(100);
        let file = disk.open(&cache);
        let data = file.data();
        data.write(0, &[1; 3 * PAGE_SIZE]).unwrap();
        data.write_back().unwrap();
        data.set_size(PAGE + 50).unwrap();
        data.write_back().unwrap();
        let at = block_of(&file, 1);
        {
            let mut state = disk.state.lock().unwrap();
            state.bad = if bad == 1 { vec![at] } else { (FIRST..FIRST + bad).collect() };
            state.changes_left = if is_log_dead { 0 } else { u64::MAX };
        }
        data.set_size(9 * PAGE).unwrap();
        data.write(0, &[2; 100]).unwrap();
        data.write(12 * PAGE, &[3; PAGE_SIZE]).unwrap();
        let written = data.write_back();
        assert_eq!(written.is_ok(), bad == 1, "another block takes the page");
        check_counts(&file, &cache);
        {
            let mut state = disk.state.lock().unwrap();
            (state.bad, state.changes_left) = (Vec::new(), u64::MAX);
        }
        let told = contents(&file);
        // A page without another place is given up; it stays in memory if it can't be.
        let kept = if bad == 1 || is_log_dead { PAGE_SIZE + 50 } else { PAGE_SIZE };
        assert!(told[..kept].iter().all(|byte| [1, 2].contains(byte)), "{bad} {is_log_dead}");
        assert!(!told[PAGE_SIZE + 50..].contains(&1), "{bad} {is_log_dead}");
        data.write_back().unwrap();
        let stored = contents(&disk.open(&cache));
        assert!(stored == told, "{bad} {is_log_dead}");
    }
}

/// A file of so many dirty pages, each with its number, whose write-back begins.
fn numbered_pages(count: u32) -> (Arc<PageCache>, File, Vec<u8>) {
    let cache = PageCache::new(64 << 20, 1);
    let file = Disk::new(u64::from(count) + 1000).open(&cache);
    let bytes: Vec<u8> = (1..=count).flat_map(|n| n.to_le_bytes().repeat(PAGE_SIZE / 4)).collect();
    file.data().write(0, &bytes).unwrap();
    (cache, file, bytes)
}

/// A file of 3,000 dirty pages, which are three segments.
fn numbered() -> (Arc<PageCache>, File, Vec<u8>) {
    numbered_pages(3000)
}

#[test]
fn up_to_four_segments_are_in_flight() {
    for (count, most) in [(2000, 2), (3000, 3), (7000, 4)] {
        let (cache, file, bytes) = numbered_pages(count);
        file.data().write_back().unwrap();
        {
            let state = file.disk.state.lock().unwrap();
            assert_eq!(state.in_flight, (0, most));
            // The size does not pass a segment that is still being written.
            let ends = (1..).map(|n| n * 1024 * PAGE).take_while(|end| *end <= 6 << 22);
            let whole: Vec<u64> = ends.take(count as usize / 1024).collect();
            assert_eq!(state.sizes[..whole.len()], whole);
            assert!(state.sizes.is_sorted());
            assert_eq!(state.sizes.last(), Some(&(u64::from(count) * PAGE)));
        }
        check_counts(&file, &cache);
        assert_eq!(contents(&file.disk.open(&cache)), bytes);
        // In place as well.
        file.disk.state.lock().unwrap().in_flight = (0, 0);
        file.data().write(0, &bytes).unwrap();
        file.data().write_back().unwrap();
        assert_eq!(file.disk.state.lock().unwrap().in_flight, (0, most));
        check_counts(&file, &cache);
    }
}

#[test]
fn a_segment_with_zeros_around_it_is_alone() {
    let (_, file, bytes) = numbered();
    file.data().write_back().unwrap();
    file.data().set_size(0).unwrap();
    file.data().allocate(0, 3000 * PAGE, false).unwrap();
    file.disk.state.lock().unwrap().in_flight = (0, 0);
    file.data().write(0, &bytes).unwrap();
    file.data().write_back().unwrap();
    assert_eq!(file.disk.state.lock().unwrap().in_flight, (0, 1));
    assert_eq!(contents(&file), bytes);
}

#[test]
fn a_bad_block_in_any_of_the_segments_in_flight_loses_nothing() {
    for bad in [0, 1023, 1024, 1500, 2047, 2500] {
        let (cache, file, bytes) = numbered();
        file.disk.state.lock().unwrap().bad = vec![FIRST + bad];
        assert_eq!(file.data().write_back().unwrap(), 3000);
        assert!(file.disk.state.lock().unwrap().refused > 0);
        // Half of a segment that has failed is a segment too.
        assert!(matches!(file.disk.state.lock().unwrap().in_flight, (0, 3..=4)));
        check_counts(&file, &cache);
        assert_eq!(contents(&file), bytes);
        assert_eq!(contents(&file.disk.open(&cache)), bytes);
    }
}

#[test]
fn a_change_that_fails_with_another_segment_in_flight_loses_its_own_pages_only() {
    for changes in 0..3 {
        let (cache, file, bytes) = numbered();
        file.disk.state.lock().unwrap().changes_left = changes;
        file.data().write_back().unwrap_err();
        file.disk.state.lock().unwrap().changes_left = u64::MAX;
        check_counts(&file, &cache);
        file.data().write_back().unwrap();
        let now = contents(&file);
        assert_eq!(contents(&file.disk.open(&cache)), now);
        let kept = (changes * 1024 * PAGE) as usize;
        assert!(now[..kept] == bytes[..kept], "{changes}");
        assert!(now[kept..].iter().all(|byte| *byte == 0), "{changes}");
    }
}
