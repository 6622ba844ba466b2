//! A crash at every change: what was durable is there, and nothing that never was the file's.

use super::*;

/// Does `work` with all changes failing from one on, for every such one: as if it had crashed
/// there. `check` gets what the file then holds for somebody who knows nothing but the disk.
fn at_every_change(work: impl Fn(&File), check: impl Fn(&[u8])) {
    for changes in 0.. {
        let disk = Disk::new(100);
        let file = disk.open(&PageCache::new(1 << 20, 1));
        {
            let mut state = disk.state.lock().unwrap();
            (state.claim_max, state.changes_left) = (3, changes);
        }
        work(&file);
        let is_done = disk.state.lock().unwrap().changes_left > 0;
        let bytes = contents(&disk.open(&PageCache::new(0, 1)));
        assert!(!bytes.contains(&POISON), "bytes of somebody else");
        check(&bytes);
        if is_done {
            assert!(changes > 3);
            return;
        }
    }
}

#[test]
fn a_file_grows_by_what_was_written_only() {
    let work = |file: &File| {
        let bytes: Vec<u8> = (0..11 * PAGE_SIZE).map(|at| (at / PAGE_SIZE + 1) as u8).collect();
        file.data().write(0, &bytes[..10 * PAGE_SIZE + 50]).unwrap();
        let _ = file.data().write_back();
    };
    at_every_change(work, |bytes| {
        for (at, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte as usize, at / PAGE_SIZE + 1);
        }
    });
}

#[test]
fn growing_from_within_a_block_shows_zeros() {
    let work = |file: &File| {
        let data = file.data();
        data.write(0, &[7; 2 * PAGE_SIZE]).unwrap();
        let _ = data.write_back();
        let _ = data.set_size(PAGE + 100);
        let _ = data.set_size(6 * PAGE);
        let _ = data.write_back();
        let _ = data.write(8 * PAGE + 5, &[8; 10]);
        let _ = data.write_back();
    };
    at_every_change(work, |bytes| {
        let Some(tail) = bytes.get(PAGE_SIZE + 100..) else { return };
        let is_whole = bytes.len() == 2 * PAGE_SIZE && tail.iter().all(|byte| *byte == 7);
        let is_cut = tail.iter().all(|byte| *byte == 0 || *byte == 8);
        assert!(is_whole || is_cut);
    });
}

#[test]
fn later_pages_do_not_come_before_earlier_ones() {
    let work = |file: &File| {
        let data = file.data();
        data.write(20 * PAGE, &[3; 100]).unwrap();
        data.write(0, &[1; PAGE_SIZE]).unwrap();
        data.write(10 * PAGE, &[2; PAGE_SIZE]).unwrap();
        let _ = data.write_back();
        data.write(30 * PAGE, &[3; 100]).unwrap();
        let _ = data.write_back();
    };
    at_every_change(work, |bytes| {
        for (page, stamp) in [(0, 1), (10, 2), (20, 3), (30, 3)] {
            assert!(bytes.get(page * PAGE_SIZE).is_none_or(|byte| *byte == stamp));
        }
    });
}
