//! Write-back within a transaction of the caller.

use super::*;

const NEW: &[u8] = &[7; 2 * PAGE_SIZE + 100];

/// Returns a file with `bytes` that were never written back, and its cache.
fn new_file(bytes: &[u8]) -> (File, Arc<PageCache>) {
    let cache = PageCache::new(1 << 20, 1);
    let file = Disk::new(100).open(&cache);
    file.data().write(0, bytes).unwrap();
    (file, cache)
}

/// Makes the change, as a transaction of the caller would.
fn commit(file: &File, change: Change<'_>) -> Result<Option<()>, Fault> {
    (&file).change(change).map(Some)
}

#[test]
fn a_new_file_is_written_with_the_change_of_the_caller() {
    for bytes in [NEW, b"in the inode"] {
        let (file, cache) = new_file(bytes);
        let mut changes = 0;
        let within = file.data().write_back_within(|change| {
            changes += 1;
            commit(&file, change)
        });
        assert_eq!((within.unwrap().unwrap(), changes), (Some(()), 1));
        assert!(!file.data().is_dirty());
        check_counts(&file, &cache);
        assert_eq!(contents(&file.disk.open(&cache)), bytes);
    }
}

#[test]
fn a_change_that_was_not_made_leaves_the_file_dirty() {
    for bytes in [NEW, b"in the inode"] {
        for result in [Ok(None), Err(Fault::NoSpace)] {
            let (file, cache) = new_file(bytes);
            let within = file.data().write_back_within(|change| {
                if let Change::Insert(extent, _) = change {
                    (&file).give_back(extent.run(), false);
                }
                result.clone() as Result<Option<()>, Fault>
            });
            assert_eq!(within.unwrap().is_err(), result.is_err());
            assert_eq!((file.disk_size(), file.disk.free_blocks()), (0, 100));
            check_counts(&file, &cache);
            file.data().write_back().unwrap();
            assert_eq!(contents(&file.disk.open(&cache)), bytes);
        }
    }
}

/// Everything else than one write and one change of a file without blocks is left to the usual
/// write-back, as it was.
#[test]
fn other_files_are_not_written_with_the_change_of_the_caller() {
    let prepare: [fn(&File); 6] = [
        |file| file.data().write_back().map(drop).unwrap(),
        |file| {
            file.data().write_back().unwrap();
            file.data().write(0, b"rewritten").unwrap();
        },
        |file| file.data().write(5 * PAGE, b"behind a hole").map(drop).unwrap(),
        |file| file.disk.state.lock().unwrap().claim_max = 1,
        |file| file.disk.state.lock().unwrap().is_sealed = true,
        |file| file.disk.state.lock().unwrap().writes_left = 0,
    ];
    for (at, prepare) in prepare.iter().enumerate() {
        let (file, cache) = new_file(NEW);
        prepare(&file);
        let before = (file.disk_size(), file.disk.free_blocks());
        assert!(file.data().write_back_within(|change| commit(&file, change)).is_none(), "{at}");
        assert_eq!((file.disk_size(), file.disk.free_blocks()), before, "{at}");
        check_counts(&file, &cache);
        let bytes = contents(&file);
        {
            let mut state = file.disk.state.lock().unwrap();
            (state.is_sealed, state.writes_left) = (false, u64::MAX);
        }
        file.data().write_back().unwrap();
        assert_eq!(contents(&file.disk.open(&cache)), bytes, "{at}");
    }
}
