//! The space that images take on their file system, for tests of what is given back.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FallocateFlags;

/// Returns the bytes that an image takes, as `du` counts them.
pub(crate) fn allocated(image: &Path) -> u64 {
    fs::metadata(image).unwrap().blocks() * 512
}

/// Returns whether a hole of a block gives its space back, as on every common file system.
pub(crate) fn has_holes(dir: &Path) -> bool {
    let path = dir.join("holes");
    fs::write(&path, [1; 64 << 10]).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    let (before, how) = (allocated(&path), FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
    let has_holes = rustix::fs::fallocate(&file, how, 4096, 4096).is_ok();
    let has_holes = has_holes && allocated(&path) < before;
    if !has_holes {
        println!("SKIPPED: no holes in files here");
    }
    has_holes
}
