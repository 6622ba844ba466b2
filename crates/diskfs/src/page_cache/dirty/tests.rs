use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::super::cache::PageCache;
use super::*;

#[test]
fn each_dirty_file_is_there_once() {
    let pages = FilePages::new(&PageCache::new(64 << 12, 1), 0);
    let files = DirtyFiles::new(2);
    files.add(&pages, || 1);
    files.add(&pages, || 2);
    let taken = |taken: Option<Taken<'_, u32>>| taken.map(|file| *file);
    assert_eq!((taken(files.take()), taken(files.take()), files.is_empty()), (Some(1), None, true));
    pages.clear_queued();
    let mark = files.mark();
    files.add(&pages, || 3);
    assert_eq!((taken(files.take_before(&mark)), files.is_empty()), (None, false));
    assert_eq!(taken(files.take_before(&files.mark())), Some(3));
}

#[test]
fn a_file_that_was_put_back_keeps_its_place() {
    let files = DirtyFiles::new(1);
    (1..=3).for_each(|file| files.push(file));
    let mark = files.mark();
    files.push(4);
    let taken: Vec<_> = (0..3).map_while(|_| files.take()).collect();
    // Out of order, and the second one is still being written.
    let [first, second, third]: [Taken<'_, u32>; 3] = taken.try_into().unwrap();
    third.put_back();
    first.put_back();
    assert!(!files.is_written());
    let next = || files.take_before(&mark).map(|file| *file);
    assert_eq!((next(), next(), next()), (Some(1), Some(3), None));
    drop(second);
    assert!(files.wait(&mark) && !files.is_written());
    let mut written = Vec::new();
    files.write_all(|file| written.push(*file));
    assert_eq!((written, files.is_written()), (vec![4], true));
}

#[test]
fn a_flush_of_all_files_waits_for_those_put_back() {
    let files = DirtyFiles::new(1);
    files.push(1);
    files.push(2);
    let first = files.take().unwrap();
    let mut written = Vec::new();
    let (reached, is_reached) = mpsc::channel();
    thread::scope(|scope| {
        let (files, written) = (&files, &mut written);
        scope.spawn(move || {
            files.write_all(|file| {
                written.push(*file);
                reached.send(()).unwrap();
            });
        });
        // The thread has its mark, and waits soon.
        is_reached.recv().unwrap();
        vfscale_harness::pause(Duration::from_millis(20));
        first.put_back();
    });
    assert_eq!(written, [2, 1]);
}
