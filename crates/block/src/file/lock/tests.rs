use std::fs::OpenOptions;

use vfscale_harness::wait_until;

use super::*;

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn someone() -> Holder {
    let since = UNIX_EPOCH + Duration::from_secs(1_795_320_845);
    Holder { pid: 4_000_000_000, program: "vfscale".into(), host: "barn".into(), since }
}

#[test]
fn names_are_told_by_where_locks_lie() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let (ours, theirs) = (open(&path), open(&path));
    assert_eq!(holder(&theirs), None);
    // Adjacent locks, for values of all ones and all zeros, are one lock to the kernel.
    let extreme = Holder { pid: u32::MAX, since: UNIX_EPOCH, ..someone() };
    for told in [someone(), extreme] {
        publish(&ours, &told).unwrap();
        assert_eq!(holder(&theirs), Some(told));
        assert_eq!(holder(&ours), None, "a file's own locks are not reported");
        unlock(&ours);
        assert_eq!(holder(&theirs), None);
    }
}

#[test]
fn names_are_cut_where_they_can_be() {
    let long = Holder { program: "ü".repeat(40), host: "h".repeat(300), ..someone() };
    let told = decode(&encode(&long)).unwrap();
    assert_eq!((told.program, told.host), ("ü".repeat(32), "h".repeat(64)));
    let odd = Holder { program: format!("x{}", "ü".repeat(40)), ..someone() };
    assert_eq!(decode(&encode(&odd)).unwrap().program.len(), 63);
}

#[test]
fn half_a_name_is_no_name() {
    let name = encode(&someone());
    for end in 0..name.len() {
        assert_ne!(seal(&name[..end]), seal(&name));
        // Any bytes are decoded without a panic.
        let _ = decode(&name[..end]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let (ours, theirs) = (open(&path), open(&path));
    publish(&ours, &someone()).unwrap();
    // One window is removed: that of the pid.
    let first = ofd_lock_of_others(&theirs, NAMES, LANE_BYTES * i64::from(LANES)).unwrap().unwrap();
    let lane = u32::try_from((first - NAMES) / LANE_BYTES).unwrap();
    ofd_lock(&ours, LockKind::None, window(lane, 1), WINDOW_BYTES).unwrap();
    assert_eq!(holder(&theirs), None);
}

#[test]
fn readers_share_and_keep_their_names_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let files: Vec<_> = (0..4).map(|_| open(&path)).collect();
    for file in &files[..3] {
        assert!(lock(file, LockKind::Shared).unwrap().is_ok());
    }
    let Err(HeldBy { holder: Some(found), .. }) = lock(&files[3], LockKind::Exclusive).unwrap()
    else {
        panic!("a reader did not exclude a writer, or had no name");
    };
    assert_eq!(found.pid, std::process::id());
    files[..3].iter().for_each(unlock);
    assert!(lock(&files[3], LockKind::Exclusive).unwrap().is_ok());
    let Err(HeldBy { holder: Some(_), .. }) = lock(&files[0], LockKind::Shared).unwrap() else {
        panic!("a writer did not exclude a reader, or had no name");
    };
}

#[test]
fn a_lock_conflicts_with_a_holder_without_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let (ours, theirs) = (open(&path), open(&path));
    ofd_lock(&theirs, LockKind::Exclusive, 0, 0).unwrap();
    assert!(matches!(lock(&ours, LockKind::Exclusive).unwrap(), Err(HeldBy { holder: None, .. })));
}

/// The kernel closes the files of a process that was killed a moment after it is gone.
#[test]
fn the_lock_of_a_process_that_has_ended_is_awaited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let is_awaited = |holder: &Holder| {
        let (ours, theirs) = (open(&path), open(&path));
        ofd_lock(&theirs, LockKind::Exclusive, LOCK, 1).unwrap();
        publish(&theirs, holder).unwrap();
        let closing = thread::spawn(move || {
            vfscale_harness::pause(Duration::from_millis(100));
            drop(theirs);
        });
        assert!(look(&open(&path)).unwrap().is_ok());
        assert!(lock(&ours, LockKind::Exclusive).unwrap().is_ok());
        closing.join().unwrap();
    };
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let holder = Holder { pid: child.id(), ..Holder::this_process() };
    wait_until("the end of a child", || holder.has_ended());
    is_awaited(&holder);
    child.wait().unwrap();
    is_awaited(&holder);
    assert!(!Holder::this_process().has_ended());
}
