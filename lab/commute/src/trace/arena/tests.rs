use super::*;

#[test]
fn blocks_are_whole_lines_and_stay_with_who_frees_them() {
    let arena = Arena::new().unwrap();
    let blocks: Vec<Box<[u8]>> = (1..200).map(|n| vec![1; n * 37].into_boxed_slice()).collect();
    for block in &blocks {
        let start = block.as_ptr() as u64;
        let found = block_of(start + block.len() as u64 - 1).unwrap();
        assert_eq!((found.start, start % 64), (start, 0));
        assert!(found.bytes >= block.len() as u64 && found.bytes.is_multiple_of(64));
    }
    let (a, b) = (Box::new(1u8), Box::new(2u8));
    assert!((&raw const *a as usize).abs_diff(&raw const *b as usize) >= LINE);
    let address = &raw const *a as usize;
    let elsewhere = std::thread::spawn(move || {
        let _arena = Arena::new().unwrap();
        drop(a);
        let again = Box::new(3u8);
        &raw const *again as usize
    });
    assert_eq!(elsewhere.join().unwrap(), address);
    assert_ne!(&raw const *Box::new(4u8) as usize, address);
    drop(arena);
    assert_eq!(block_of((&raw const *Box::new(5u8)) as u64), None);
}

/// A volume's threads drop what a recording thread has made.
#[test]
fn blocks_that_a_thread_without_arena_frees_are_used_again() {
    let _arena = Arena::new().unwrap();
    let made: Vec<Box<[u8; 600]>> = (0..1_000).map(|_| Box::new([1; 600])).collect();
    let addresses = |boxes: &[Box<[u8; 600]>]| {
        boxes.iter().map(|one| one.as_ptr() as usize).collect::<std::collections::BTreeSet<_>>()
    };
    let before = addresses(&made);
    std::thread::spawn(move || drop(made)).join().unwrap();
    let fresh = Box::new([2; 600]);
    assert!(!before.contains(&(fresh.as_ptr() as usize)));
    collect_returned();
    // A former thread with this arena may have left some, too.
    let again: Vec<Box<[u8; 600]>> = (0..5_000).map(|_| Box::new([3; 600])).collect();
    assert!(before.is_subset(&addresses(&again)));
}

/// A recording is made by host code, and freed by other code of its thread or of another one.
#[test]
fn blocks_of_host_code_are_used_again_by_host_code() {
    let _arena = Arena::new().unwrap();
    let made = || {
        let _host = as_host();
        let block = Box::new([1u8; 900]);
        ((&raw const *block) as usize, block)
    };
    let (first, block) = made();
    drop(block);
    let (second, block) = made();
    assert_eq!(second, first);
    std::thread::spawn(move || drop(block)).join().unwrap();
    collect_returned();
    let (third, _block) = made();
    assert_eq!(third, first);
}

#[test]
fn arenas_align_allocations() {
    let _arena = Arena::new().unwrap();
    for align in [64, 128, 4096, 65536] {
        let layout = Layout::from_size_align(100, align).unwrap();
        // SAFETY: the layout has a size, and the block is freed with the same layout.
        unsafe {
            let block = std::alloc::alloc_zeroed(layout);
            assert!(!block.is_null() && (block as usize).is_multiple_of(align));
            std::alloc::dealloc(block, layout);
        }
    }
}

#[test]
fn host_code_has_a_part_of_its_own_and_other_threads_have_none() {
    let _arena = Arena::new().unwrap();
    let address = || (&raw const *Box::new(1u8)) as u64;
    let before = address();
    let host = as_host();
    assert!(address().abs_diff(before) >= 1 << 30 && block_of(address()).is_some());
    host.leave_for(|| assert_eq!(address(), before));
    drop(host);
    assert_eq!(address(), before);
    let other = std::thread::spawn(|| block_of((&raw const *Box::new(3u8)) as u64));
    assert_eq!(other.join().unwrap(), None);
}
