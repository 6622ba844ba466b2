//! Operations on files, one at a time.

use super::*;

fn file_of(blocks: u64) -> (Arc<PageCache>, File) {
    let cache = PageCache::new(1 << 20, 2);
    let file = Disk::new(blocks).open(&cache);
    (cache, file)
}

fn extents(file: &File) -> Vec<Extent> {
    let state = file.disk.state.lock().unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(extent) = state.map.next(&state.nodes, INO, at).unwrap() {
        found.push(extent);
        at = extent.end();
    }
    found
}

#[test]
fn a_small_file_lies_in_its_inode_until_it_grows() {
    let (cache, file) = file_of(50);
    let data = file.data();
    assert_eq!(data.write(0, b"hello").unwrap(), 5);
    assert_eq!((data.pages.delayed_blocks(), file.disk.state.lock().unwrap().reserved), (1, 1));
    data.write_back().unwrap();
    assert_eq!(file.inline().as_deref(), Some(&b"hello"[..]));
    assert_eq!(
        (file.disk_size(), data.pages.delayed_blocks(), file.disk.free_blocks()),
        (5, 0, 50)
    );
    assert!(!data.is_dirty());
    data.write(3, b"p, and more of it").unwrap();
    data.write_back().unwrap();
    assert_eq!(file.inline().as_deref(), Some(&b"help, and more of it"[..]));
    // Behind a hole: it has to leave.
    data.write(5 * PAGE, b"far away").unwrap();
    data.write_back().unwrap();
    assert_eq!((file.inline(), extents(&file).len()), (None, 2));
    let mut expected = vec![0; 5 * PAGE_SIZE + 8];
    expected[..20].copy_from_slice(b"help, and more of it");
    expected[5 * PAGE_SIZE..].copy_from_slice(b"far away");
    assert_eq!(contents(&file), expected);
    cache.reclaim(100);
    assert_eq!(cache.pages(), 0);
    assert_eq!(contents(&file), expected);
    assert_eq!(contents(&file.disk.open(&cache)), expected);
}

#[test]
fn a_file_written_in_order_is_one_extent() {
    let (_cache, file) = file_of(200);
    for page in 0..100 {
        file.data().write(page * PAGE, &[1; PAGE_SIZE]).unwrap();
    }
    assert_eq!(file.pages.delayed_blocks(), 100);
    assert_eq!(file.data().write_back().unwrap(), 100);
    let only = Extent { file_block: 0, start: FIRST, blocks: 100, is_unwritten: false };
    assert_eq!(extents(&file), [only]);
    // Again, in place.
    file.data().write(5 * PAGE + 7, &[2; 10]).unwrap();
    assert_eq!(file.pages.delayed_blocks(), 0);
    assert_eq!(file.data().write_back().unwrap(), 1);
    assert_eq!(extents(&file), [only]);
}

#[test]
fn a_page_gone_before_write_back_never_has_a_block() {
    let (cache, file) = file_of(10);
    file.data().write(0, &[1; 8 * PAGE_SIZE]).unwrap();
    file.data().set_size(PAGE + 1).unwrap();
    assert_eq!(file.pages.delayed_blocks(), 2);
    check_counts(&file, &cache);
    file.data().set_size(0).unwrap();
    assert_eq!(file.pages.delayed_blocks(), 0);
    file.data().write_back().unwrap();
    assert_eq!((extents(&file).len(), file.disk.free_blocks()), (0, 10));
}

#[test]
fn space_runs_out_at_the_call_and_to_the_block() {
    let (cache, file) = file_of(10);
    let bytes = [3; 20 * PAGE_SIZE];
    assert_eq!(file.data().write(100, &bytes).unwrap(), 10 * PAGE_SIZE - 100);
    assert!(matches!(file.data().write(10 * PAGE, b"x"), Err(Fault::NoSpace)));
    // Within what is there it goes on.
    assert_eq!(file.data().write(5, &bytes[..100]).unwrap(), 100);
    file.data().write_back().unwrap();
    assert!(file.write_errors.is_told());
    check_counts(&file, &cache);
    assert_eq!(file.disk.free_blocks(), 0);
    assert!(matches!(file.data().write(10 * PAGE, b"x"), Err(Fault::NoSpace)));
    file.data().punch(2 * PAGE, 3 * PAGE).unwrap();
    assert_eq!(file.data().write(10 * PAGE, &bytes).unwrap(), 3 * PAGE_SIZE);
}

#[test]
fn allocating_takes_all_or_nothing() {
    let (cache, file) = file_of(20);
    let data = file.data();
    data.write(4 * PAGE, &[1; 2 * PAGE_SIZE]).unwrap();
    data.write_back().unwrap();
    let before = extents(&file);
    assert!(matches!(data.allocate(0, 30 * PAGE, true), Err(Fault::NoSpace)));
    assert_eq!(file.disk.free_blocks(), 18);
    // The last piece can't be had: those before it are taken back.
    file.disk.state.lock().unwrap().claim_max = 3;
    file.disk.state.lock().unwrap().claims_left = 4;
    data.allocate(0, 20 * PAGE, true).unwrap_err();
    file.disk.state.lock().unwrap().claims_left = u64::MAX;
    check_counts(&file, &cache);
    assert_eq!((extents(&file), file.disk.free_blocks()), (before, 18));
    data.allocate(0, 20 * PAGE, true).unwrap();
    assert_eq!((file.disk.free_blocks(), data.size()), (0, 6 * PAGE));
    check_counts(&file, &cache);
    let mut expected = vec![0; 6 * PAGE_SIZE];
    expected[4 * PAGE_SIZE..].fill(1);
    assert_eq!(contents(&file), expected);
    // Writing there needs no space.
    assert_eq!(data.write(PAGE + 5, &[2; 100]).unwrap(), 100);
    data.write_back().unwrap();
    expected[PAGE_SIZE + 5..PAGE_SIZE + 105].fill(2);
    assert_eq!(contents(&file.disk.open(&cache)), expected);
    // Setting the current size frees blocks behind the end.
    data.set_size(6 * PAGE).unwrap();
    assert_eq!(file.disk.free_blocks(), 14);
}

#[test]
fn data_and_holes_are_told_apart() {
    let (cache, file) = file_of(40);
    let data = file.data();
    data.write(2 * PAGE, &[1; PAGE_SIZE]).unwrap();
    data.write_back().unwrap();
    data.allocate(3 * PAGE, 2 * PAGE, false).unwrap();
    data.write(7 * PAGE, &[1; 10]).unwrap();
    for _ in 0..2 {
        // Dirty pages are data, and so are they when they have been written; what is allocated is a
        // hole.
        assert_eq!(data.seek_data(0).unwrap(), Some(2 * PAGE));
        assert_eq!(data.seek_hole(0).unwrap(), Some(0));
        assert_eq!(data.seek_hole(2 * PAGE + 5).unwrap(), Some(3 * PAGE));
        assert_eq!(data.seek_data(3 * PAGE).unwrap(), Some(7 * PAGE));
        assert_eq!(data.seek_data(7 * PAGE + 3).unwrap(), Some(7 * PAGE + 3));
        assert_eq!(data.seek_hole(7 * PAGE).unwrap(), Some(7 * PAGE + 10));
        assert_eq!(data.seek_data(7 * PAGE + 10).unwrap(), None);
        assert_eq!(data.seek_hole(7 * PAGE + 10).unwrap(), None);
        data.write_back().unwrap();
        cache.reclaim(100);
    }
}

#[test]
fn reading_in_order_reads_ahead() {
    let (_, file) = file_of(600);
    file.data().write(0, &vec![5; 512 * PAGE_SIZE]).unwrap();
    file.data().write_back().unwrap();
    let cache = PageCache::new(8 << 20, 1);
    let file = file.disk.open(&cache);
    let reads = |file: &File| u64::MAX - file.disk.state.lock().unwrap().reads_left;
    let mut page = [0; PAGE_SIZE];
    for at in 0..512 {
        assert_eq!(file.data().read(at * PAGE, &mut page).unwrap(), PAGE_SIZE);
        assert_eq!(page, [5; PAGE_SIZE]);
    }
    assert!(reads(&file) < 20, "{} reads", reads(&file));
    assert_eq!(cache.pages(), 512);
    // Here and there does not.
    let before = reads(&file);
    let file = file.disk.open(&PageCache::new(8 << 20, 1));
    for at in [400, 3, 77, 300, 9] {
        file.data().read(at * PAGE, &mut page).unwrap();
    }
    assert_eq!(reads(&file) - before, 5);
    assert_eq!(file.data().pages.read().len(), 5);
}

#[test]
fn a_file_that_is_gone_gives_everything_back() {
    let (cache, file) = file_of(100);
    file.data().write(0, &[1; 40 * PAGE_SIZE]).unwrap();
    file.data().discard();
    assert_eq!((cache.pages(), cache.unstable(), file.pages.delayed_blocks()), (0, 0, 0));
    assert_eq!(file.disk.state.lock().unwrap().reserved, 0);
    // And what was only read goes with its last user.
    let other = Disk::new(10).open(&cache);
    other.data().write(0, &[1; 5 * PAGE_SIZE]).unwrap();
    other.data().write_back().unwrap();
    assert_eq!(cache.pages(), 5);
    drop(other);
    assert_eq!(cache.pages(), 0);
    assert_eq!(cache.reclaim(1), 0);
}

#[test]
fn files_give_room_to_each_other() {
    let cache = PageCache::new(256 << 10, 1);
    let files: Vec<File> = (0..10).map(|_| Disk::new(40).open(&cache)).collect();
    for (number, file) in files.iter().enumerate() {
        file.data().write(0, &[number as u8 + 1; 20 * PAGE_SIZE]).unwrap();
        file.data().write_back().unwrap();
    }
    for (number, file) in files.iter().enumerate() {
        assert_eq!(contents(file), [number as u8 + 1; 20 * PAGE_SIZE]);
    }
    assert!(cache.pages() <= 64);
    let present: u64 = files.iter().map(|file| file.data().pages.read().len()).sum();
    assert_eq!(cache.pages(), present);
}

#[test]
fn large_writes_set_space_aside_and_go_to_the_device_in_large_pieces() {
    let cache = PageCache::new(64 << 20, 1);
    let file = Disk::new(3000).open(&cache);
    // From the middle of a page on: 32 chunks are concerned, the last one in part.
    let bytes: Vec<u8> = (0..2000 * PAGE_SIZE).map(|at| (at / 9 % 251) as u8).collect();
    assert_eq!(file.data().write(100, &bytes).unwrap(), bytes.len());
    {
        let state = file.disk.state.lock().unwrap();
        assert_eq!((state.reserves, state.reserved), (32, 2001));
    }
    check_counts(&file, &cache);
    file.data().write_back().unwrap();
    assert_eq!(file.disk.state.lock().unwrap().written, [1024, 977]);
    assert_eq!(contents(&file)[100..], bytes);
    // Again: what has blocks needs no space.
    assert_eq!(file.data().write(100, &bytes).unwrap(), bytes.len());
    assert_eq!(file.disk.state.lock().unwrap().reserves, 32);
    check_counts(&file, &cache);
}

#[test]
fn read_ahead_windows_grow_for_a_reader_in_order() {
    let file = Disk::new(3000).open(&PageCache::new(64 << 20, 1));
    file.data().write(0, &vec![5; 2500 * PAGE_SIZE]).unwrap();
    file.data().write_back().unwrap();
    let cache = PageCache::new(64 << 20, 1);
    let file = file.disk.open(&cache);
    let mut page = [0; PAGE_SIZE];
    let mut ahead = Vec::new();
    for at in 0..2500 {
        assert_eq!(file.data().read(at * PAGE, &mut page).unwrap(), PAGE_SIZE);
        let pages = cache.pages() - at - 1;
        if ahead.last().is_none_or(|last| *last < pages) {
            ahead.push(pages);
        }
    }
    // The first page by itself, then sixteen and twice as many, up to four megabytes and what is
    // left of the window before.
    assert_eq!(ahead[..4], [0, 47, 95, 191], "{ahead:?}");
    assert!((1024..2200).contains(ahead.last().unwrap()), "{ahead:?}");
    assert_eq!(cache.pages(), 2500);
    // The device is never read for pages in memory.
    let reads = u64::MAX - file.disk.state.lock().unwrap().reads_left;
    assert!(reads < 18, "{reads} reads");
    file.data().read(0, &mut page).unwrap();
    assert_eq!(cache.pages(), 2500);
}

/// Two threads of a mount read for one reader, and the second read comes first.
#[test]
fn reads_that_overtake_each_other_are_read_ahead_for() {
    let file = Disk::new(3000).open(&PageCache::new(64 << 20, 1));
    file.data().write(0, &vec![5; 2560 * PAGE_SIZE]).unwrap();
    file.data().write_back().unwrap();
    let file = file.disk.open(&PageCache::new(64 << 20, 1));
    let mut part = vec![0; 32 * PAGE_SIZE];
    for pair in 0..40 {
        let order = if pair == 0 { [0, 1] } else { [2 * pair + 1, 2 * pair] };
        for at in order {
            part.fill(0);
            assert_eq!(file.data().read(at * 32 * PAGE, &mut part).unwrap(), part.len());
            assert!(part.iter().all(|byte| *byte == 5));
        }
    }
    let reads = u64::MAX - file.disk.state.lock().unwrap().reads_left;
    assert!(reads < 24, "{reads} reads");
}

/// Readers of pages in memory write nothing that other readers of the file read.
#[test]
fn a_cached_read_elsewhere_leaves_the_place_of_the_reader_in_order() {
    let (_, file) = file_of(100);
    file.data().write(0, &[5; 40 * PAGE_SIZE]).unwrap();
    let mut page = [0; PAGE_SIZE];
    let mut end_after = |at: u64| {
        file.data().read(at * PAGE, &mut page).unwrap();
        file.data().pages.read_end.load(Ordering::Relaxed)
    };
    assert_eq!(end_after(0), end_after(30));
    assert_eq!(end_after(17), end_after(0));
}

#[test]
fn write_behind_follows_a_writer_in_order() {
    let file = Disk::new(4000).open(&PageCache::new(64 << 20, 1));
    let (data, part) = (file.data(), vec![5; 100 * PAGE_SIZE]);
    for at in 0..21 {
        data.write(at * 100 * PAGE, &part).unwrap();
    }
    // Asked for when four megabytes are full: they end where a part of a chunk does.
    let behind = std::mem::take(&mut file.disk.state.lock().unwrap().behind);
    assert_eq!(behind, [0..1024, 1024..2048]);
    data.write_behind(0, 1024).unwrap();
    assert_eq!(file.disk.state.lock().unwrap().written, [1024]);
    assert_eq!((file.disk_size(), data.pages.read().unstable_pages()), (1024 * PAGE, 1076));
    // Nothing is left of it, and nothing else is written.
    data.write_behind(0, 1024).unwrap();
    data.write_behind(0, 0).unwrap();
    assert_eq!(file.disk.state.lock().unwrap().written, [1024]);
    data.write_back().unwrap();
    assert_eq!(contents(&file), vec![5; 2100 * PAGE_SIZE]);
    assert_eq!(contents(&file.disk.open(&PageCache::new(1 << 20, 1))), vec![5; 2100 * PAGE_SIZE]);
}

#[test]
fn write_behind_ignores_a_writer_here_and_there() {
    let file = Disk::new(4000).open(&PageCache::new(64 << 20, 1));
    for at in (0..30).rev() {
        file.data().write(at * 100 * PAGE, &vec![5; 100 * PAGE_SIZE]).unwrap();
    }
    // Nor the last page, as long as more of it may come.
    file.data().write(0, &vec![5; 1023 * PAGE_SIZE]).unwrap();
    file.data().write(1023 * PAGE, &[5; 90]).unwrap();
    assert_eq!(file.disk.state.lock().unwrap().behind, []);
    file.data().write(1023 * PAGE + 90, &[5; PAGE_SIZE]).unwrap();
    assert_eq!(file.disk.state.lock().unwrap().behind, vec![0..1024]);
}
