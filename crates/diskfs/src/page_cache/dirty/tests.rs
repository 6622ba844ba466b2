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
fn a_flush_of_all_files_waits_for_those_that_others_have_taken() {
    let files = DirtyFiles::new(1);
    files.push(1);
    files.push(2);
    let first = files.take().unwrap();
    let mut written = Vec::new();
    thread::scope(|scope| {
        let (files, written) = (&files, &mut written);
        let flush = scope.spawn(move || files.write_all(|file| written.push(*file)));
        vfscale_harness::pause(Duration::from_millis(20));
        let is_early = flush.is_finished();
        drop(first);
        assert!(!is_early, "the flush did not wait");
    });
    assert_eq!((written, files.is_written()), (vec![2], true));
}
