//! Space that an image with branches gives back to its file system.

use vfscale::Pool;
use vfscale_harness::wait_until;

use crate::common::{image, read, within};
use crate::holes_common::{allocated, has_holes};

const MIB: u64 = 1 << 20;
/// Bytes of an image that no branch may have: protected and prepared storage, the logs.
const BESIDES: u64 = 16 * MIB;

fn fill(pool: &Pool, branch: &str) {
    within(pool, branch, |task| task.write("/big", vec![7; 40 << 20]).unwrap());
}

#[test]
fn a_deleted_branch_gives_its_space_back_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    if !has_holes(dir.path()) {
        return;
    }
    let path = image(dir.path(), |task| task.write("/small", "kept").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    for name in ["one", "other"] {
        pool.fork("main", name).unwrap();
        fill(&pool, name);
    }
    let full = allocated(&path);
    assert!(full > 80 * MIB, "{full}");
    let other = pool.open("other").unwrap();
    pool.delete("one").unwrap();
    // As others use the pool.
    wait_until("the space is back", || allocated(&path) <= full - 40 * MIB + BESIDES / 4);
    assert_eq!(other.task().metadata("/big").unwrap().len(), 40 * MIB);
    other.close().unwrap();
    pool.delete("other").unwrap();
    pool.close().unwrap();
    // Closing waits for it.
    let left = allocated(&path);
    assert!(left <= BESIDES, "{left}");
    let pool = vfscale::pool(&path).open().unwrap();
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    assert_eq!(read(&pool, "main", "/small").as_deref(), Some("kept"));
    pool.close().unwrap();
}

#[test]
fn files_removed_in_a_branch_give_their_space_back() {
    let dir = tempfile::tempdir().unwrap();
    if !has_holes(dir.path()) {
        return;
    }
    let path = image(dir.path(), |_| ());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    fill(&pool, "main");
    assert!(allocated(&path) > 40 * MIB);
    within(&pool, "main", |task| task.remove_file("/big").unwrap());
    // Closing the branch has discarded it.
    let left = allocated(&path);
    assert!(left <= BESIDES, "{left}");
    pool.close().unwrap();
}

#[test]
fn a_trim_gives_back_what_no_branch_has() {
    let dir = tempfile::tempdir().unwrap();
    if !has_holes(dir.path()) {
        return;
    }
    let path = image(dir.path(), |_| ());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let main = pool.branch("main").discard(false).open().unwrap();
    main.task().write("/big", vec![7; 40 << 20]).unwrap();
    main.sync().unwrap();
    main.task().remove_file("/big").unwrap();
    main.close().unwrap();
    assert!(allocated(&path) > 40 * MIB);
    let main = pool.open("main").unwrap();
    main.driver().volume().trim(vfscale_diskfs::TrimRange::ALL).unwrap();
    let bytes = pool.trim().unwrap();
    assert!(bytes >= 40 * MIB, "{bytes}");
    let left = allocated(&path);
    assert!(left <= BESIDES, "{left}");
    main.close().unwrap();
    pool.close().unwrap();
}
