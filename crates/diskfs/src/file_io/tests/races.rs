//! Several threads on one file: nobody sees a page that was never there.

use std::sync::atomic::AtomicBool as Flag;
use std::thread;

use vfscale_sync::random::Random;

use super::*;

/// Pages are written as a whole with a number over and over again: a reader must find one number,
/// or zeros.
fn stamp_of(page: &[u8]) -> u64 {
    let stamp = u64::from_le_bytes(page[..8].try_into().unwrap());
    for word in page.chunks_exact(8) {
        assert_eq!(word, stamp.to_le_bytes(), "a page of two writes");
    }
    stamp
}

fn page_with(stamp: u64) -> Vec<u8> {
    stamp.to_le_bytes().repeat(PAGE_SIZE / 8)
}

const PAGES: u64 = 64;
const ROUNDS: u64 = 3000;

/// Writes, cuts and punches; what a page then holds stands in `pages`.
fn change(file: &File, pages: &StdMutex<Vec<u64>>) {
    let mut random = Random::new(1);
    for stamp in 1..ROUNDS {
        let at = random.below(PAGES);
        // In place of the inode's lock.
        let mut model = pages.lock().unwrap();
        match random.below(20) {
            0 => {
                file.data().set_size(at * PAGE).unwrap();
                model.iter_mut().skip(at as usize).for_each(|stamp| *stamp = 0);
            }
            1 => {
                file.data().punch(at * PAGE, 3 * PAGE).unwrap();
                model.iter_mut().skip(at as usize).take(3).for_each(|stamp| *stamp = 0);
            }
            2 => file.data().allocate(at * PAGE, PAGE, true).unwrap(),
            _ => {
                file.data().write(at * PAGE, &page_with(stamp)).unwrap();
                model[at as usize] = stamp;
            }
        }
    }
}

#[test]
fn readers_writers_and_write_back_do_not_disturb_each_other() {
    let cache = PageCache::new(24 * PAGE, 2);
    let disk = Disk::new(3 * PAGES);
    disk.state.lock().unwrap().claim_max = 3;
    let file = disk.open(&cache);
    let pages = StdMutex::new(vec![0; PAGES as usize]);
    let is_over = Flag::new(false);
    let goes_on = || !is_over.load(Ordering::Relaxed);
    let read = |seed: u64| {
        let mut random = Random::new(seed);
        let mut bytes = [0; 4 * PAGE_SIZE];
        while goes_on() {
            let at = random.below(PAGES);
            let read = file.data().read(at * PAGE, &mut bytes).unwrap();
            bytes[..read].chunks_exact(PAGE_SIZE).for_each(|page| {
                assert!(stamp_of(page) < ROUNDS);
            });
        }
    };
    // With the writer held off a page holds exactly what was written last.
    let compare = || {
        let mut random = Random::new(99);
        let mut page = [0; PAGE_SIZE];
        while goes_on() {
            let at = random.below(PAGES);
            let model = pages.lock().unwrap();
            let read = file.data().read(at * PAGE, &mut page).unwrap();
            assert_eq!(if read == 0 { 0 } else { stamp_of(&page) }, model[at as usize]);
            drop(model);
            thread::yield_now();
        }
    };
    let write_back = || {
        while goes_on() {
            file.data().write_back().unwrap();
            cache.reclaim(5);
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| read(5));
        scope.spawn(|| read(6));
        scope.spawn(compare);
        scope.spawn(write_back);
        change(&file, &pages);
        is_over.store(true, Ordering::Relaxed);
    });
    check_counts(&file, &cache);
    file.data().write_back().unwrap();
    let bytes = contents(&disk.open(&cache));
    let model = pages.lock().unwrap();
    for (page, stamp) in bytes.chunks_exact(PAGE_SIZE).zip(&*model) {
        assert_eq!(stamp_of(page), *stamp);
    }
}

/// Writes over dirty pages share them with readers, and a reader still sees none in part.
#[test]
fn readers_see_all_or_nothing_of_a_write_over_dirty_pages() {
    let cache = PageCache::new(1 << 20, 2);
    let file = Disk::new(100).open(&cache);
    file.data().write(0, &page_with(0).repeat(2)).unwrap();
    let is_over = Flag::new(false);
    let read = || {
        let mut bytes = [0; 2 * PAGE_SIZE];
        let mut stamp = 0;
        while !is_over.load(Ordering::Relaxed) {
            assert_eq!(file.data().read(0, &mut bytes).unwrap(), bytes.len());
            let found = stamp_of(&bytes);
            assert!(found >= stamp, "an older write reappears");
            stamp = found;
        }
    };
    thread::scope(|scope| {
        scope.spawn(read);
        scope.spawn(read);
        for stamp in 1..20_000 {
            let written = file.pages.read().overwrite(0, 0, &page_with(stamp).repeat(2));
            assert!(written, "the pages are dirty");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    check_counts(&file, &cache);
    assert_eq!(stamp_of(&contents(&file)), 19_999);
}

fn copied(device: &MemoryDevice) -> MemoryDevice {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let copy = MemoryDevice::new(device.size()).unwrap();
    copy.write_at(0, &bytes).unwrap();
    copy
}

#[test]
fn appending_beside_write_back_loses_nothing() {
    let cache = PageCache::new(1 << 20, 2);
    let disk = Disk::new(200);
    let file = disk.open(&cache);
    let is_over = Flag::new(false);
    let record = |number: u64| [(number % 200 + 1) as u8; 100];
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                file.data().write_back().unwrap();
                // A crash would leave a prefix of the writes.
                let state = disk.state.lock().unwrap().clone();
                let (device, hook) = (copied(&disk.device), StdMutex::new(None));
                let copy = Disk { device, state: StdMutex::new(state), hook };
                let bytes = contents(&Arc::new(copy).open(&PageCache::new(0, 1)));
                for (at, byte) in bytes.iter().enumerate() {
                    assert_eq!(*byte, record(at as u64 / 100)[0]);
                }
            }
        });
        for number in 0..6000 {
            file.data().write(number * 100, &record(number)).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    file.data().write_back().unwrap();
    let bytes = contents(&disk.open(&cache));
    assert_eq!(bytes.len(), 600_000);
    for (number, found) in bytes.chunks_exact(100).enumerate() {
        assert_eq!(found, record(number as u64));
    }
}
