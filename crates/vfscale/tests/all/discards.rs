//! Space that a volume gives back to the file system of its image.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use vfscale::posix::{At, FstrimRange};
use vfscale::{Errno, Volume};
use vfscale_diskfs::BLOCK_BYTES;

use crate::holes_common::{allocated, has_holes};

const FILES: usize = 2_000;
const ALL: FstrimRange = FstrimRange { start: 0, len: u64::MAX, minlen: 0 };

/// Returns the bytes of all files and inodes, and of the log.
fn live(volume: &Volume) -> u64 {
    let statfs = volume.task().posix().statfs(At::Cwd, "/").unwrap();
    let log = volume.driver().volume().superblock().log().blocks();
    (statfs.blocks - statfs.blocks_free + log) * BLOCK_BYTES as u64
}

fn is_given_back(volume: &Volume, image: &Path) -> bool {
    allocated(image) * 10 <= live(volume) * 12
}

fn name(n: usize) -> String {
    format!("/d{}/f{n}", n % 20)
}

fn contents(n: usize) -> Vec<u8> {
    vec![n as u8 | 1; BLOCK_BYTES * (1 + n % 16)]
}

fn is_kept(n: &usize) -> bool {
    n.is_multiple_of(10)
}

/// Creates an image, fills it with files, and removes nine of ten.
fn nine_of_ten_removed(image: &Path, discard: Option<bool>) -> Volume {
    let interval = Some(Duration::from_millis(50));
    let mut builder = vfscale::volume(image).create(256 << 20).sync_interval(interval);
    if let Some(discard) = discard {
        builder = builder.discard(discard);
    }
    let volume = builder.open().unwrap();
    let how = volume.driver().volume().device().discards().unwrap();
    assert!(how.is_thin && how.granularity == 4096, "{how:?}");
    let task = volume.task();
    (0..20).for_each(|dir| task.create_dir(format!("/d{dir}")).unwrap());
    (0..FILES).for_each(|n| task.write(name(n), contents(n)).unwrap());
    volume.sync().unwrap();
    assert!(allocated(image) > 60 << 20, "{}", allocated(image));
    (0..FILES).filter(|n| !is_kept(n)).for_each(|n| task.remove_file(name(n)).unwrap());
    drop(task);
    volume
}

fn check_rest(volume: &Volume) {
    let task = volume.task();
    for n in (0..FILES).filter(is_kept) {
        assert_eq!(task.read(name(n)).unwrap(), contents(n), "{n}");
    }
}

/// Fails if freed blocks are not discarded, or only some sizes of runs.
#[test]
fn an_image_gives_back_what_removed_files_had() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    if !has_holes(dir.path()) {
        return;
    }
    let volume = nine_of_ten_removed(&image, None);
    vfscale_harness::wait_until("the image is small", || is_given_back(&volume, &image));
    volume.close().unwrap();
    let volume = vfscale::volume(&image).open().unwrap();
    assert!(is_given_back(&volume, &image));
    check_rest(&volume);
    volume.close().unwrap();
}

#[test]
fn the_end_of_a_volume_gives_back_what_was_freed_last() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    if !has_holes(dir.path()) {
        return;
    }
    let volume = nine_of_ten_removed(&image, None);
    volume.close().unwrap();
    let volume = vfscale::volume(&image).open().unwrap();
    assert!(is_given_back(&volume, &image), "{} {}", allocated(&image), live(&volume));
    check_rest(&volume);
    volume.close().unwrap();
}

#[test]
fn a_trim_gives_back_what_was_not_discarded() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    if !has_holes(dir.path()) {
        return;
    }
    let volume = nine_of_ten_removed(&image, Some(false));
    volume.close().unwrap();
    let volume = vfscale::volume(&image).discard(false).open().unwrap();
    assert!(!is_given_back(&volume, &image) && allocated(&image) > 60 << 20);
    let (task, before) = (volume.task(), live(&volume));
    let trim = |range| task.posix().trim_fs(At::Cwd, "/d1", range).map_err(Errno::from);
    let size = volume.driver().volume().geometry().bytes();
    assert_eq!(trim(FstrimRange { start: size, ..ALL }), Err(Errno::INVAL));
    assert_eq!(trim(FstrimRange { len: 4095, ..ALL }), Err(Errno::INVAL));
    assert_eq!(trim(FstrimRange { minlen: 1 << 40, ..ALL }), Ok(0));
    let trimmed = trim(ALL).unwrap();
    assert!(trimmed > 150 << 20 && trimmed < 256 << 20, "{trimmed}");
    assert!(is_given_back(&volume, &image), "{} {}", allocated(&image), live(&volume));
    assert_eq!(live(&volume), before);
    check_rest(&volume);
    drop(task);
    volume.close().unwrap();
}

/// The owner of such an image has reserved its space.
#[test]
fn an_allocated_image_stays_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    vfscale::volume(&image).create(64 << 20).open().unwrap().close().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 64 << 20).is_err() {
        println!("SKIPPED: no space can be allocated here");
        return;
    }
    let before = allocated(&image);
    let volume = vfscale::volume(&image).open().unwrap();
    let task = volume.task();
    task.write("/file", vec![7; 10 << 20]).unwrap();
    volume.sync().unwrap();
    task.remove_file("/file").unwrap();
    drop(task);
    volume.close().unwrap();
    assert!(allocated(&image) >= before, "{} {before}", allocated(&image));
}

#[test]
fn a_file_system_in_memory_has_nothing_to_trim() {
    let task = vfscale::memory().build().unwrap().task();
    let trimmed = task.posix().trim_fs(At::Cwd, "/", ALL).map_err(Errno::from);
    assert_eq!(trimmed, Err(Errno::OPNOTSUPP));
}
