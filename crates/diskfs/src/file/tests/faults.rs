//! Devices that fail.

use super::*;

#[test]
fn what_can_t_be_written_is_dropped_and_told() {
    let cache = PageCache::new(1 << 20, 1);
    let file = Disk::new(100).open(&cache);
    let data = file.data();
    data.write(&file, 0, &[1; 10 * PAGE_SIZE]).unwrap();
    data.write_back(&file).unwrap();
    data.write(&file, 2 * PAGE, &[2; PAGE_SIZE]).unwrap();
    data.write(&file, 12 * PAGE, &[2; PAGE_SIZE]).unwrap();
    file.disk.state.lock().unwrap().writes_left = 0;
    data.write_back(&file).unwrap_err();
    file.disk.state.lock().unwrap().writes_left = u64::MAX;
    assert!(!file.write_errors.is_told());
    check_counts(&file, &cache);
    // What was there is there; where nothing was is a hole.
    let mut expected = vec![0; 13 * PAGE_SIZE];
    expected[..10 * PAGE_SIZE].fill(1);
    assert_eq!(contents(&file), expected);
    assert_eq!(file.disk.free_blocks(), 90);
    data.write_back(&file).unwrap();
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
        data.write(&file, 0, b"in the inode").unwrap();
        let mut failed = data.write_back(&file).is_err();
        data.write(&file, PAGE, &[1; 6 * PAGE_SIZE]).unwrap();
        failed |= data.write_back(&file).is_err();
        failed |= data.allocate(&file, 9 * PAGE, PAGE, false).is_err();
        failed |= data.punch(&file, 2 * PAGE, PAGE).is_err();
        failed |= data.set_size(&file, 3 * PAGE).is_err();
        let left = std::mem::replace(&mut disk.state.lock().unwrap().changes_left, u64::MAX);
        assert!(failed || left > 0 || changes == 8, "{changes}");
        check_counts(&file, &cache);
        let bytes = contents(&file);
        assert!(!bytes.contains(&POISON));
        data.write_back(&file).unwrap();
        assert_eq!(contents(&disk.open(&cache)), bytes);
        data.set_size(&file, 0).unwrap();
        assert_eq!(disk.free_blocks(), 60);
    }
}

#[test]
fn what_can_t_be_read_fails_the_call() {
    let cache = PageCache::new(1 << 20, 1);
    let file = Disk::new(100).open(&cache);
    file.data().write(&file, 0, &[1; 10 * PAGE_SIZE]).unwrap();
    file.data().write_back(&file).unwrap();
    let file = file.disk.open(&cache);
    let mut bytes = [0; 100];
    file.disk.state.lock().unwrap().reads_left = 0;
    file.data().read(&file, 0, &mut bytes).unwrap_err();
    // Nor can a part of a page be written then; a whole page can.
    file.data().write(&file, 5, b"x").unwrap_err();
    assert_eq!(file.data().write(&file, PAGE, &[2; PAGE_SIZE]).unwrap(), PAGE_SIZE);
    file.disk.state.lock().unwrap().reads_left = 1;
    assert_eq!(file.data().read(&file, 0, &mut bytes).unwrap(), 100);
    assert_eq!(bytes, [1; 100]);
    // Up to what can't be read.
    let mut bytes = vec![0; 10 * PAGE_SIZE];
    assert_eq!(file.data().read(&file, 0, &mut bytes).unwrap(), 2 * PAGE_SIZE);
}
