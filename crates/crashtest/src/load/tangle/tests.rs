use vfscale_block::MemoryDevice;

use super::*;

fn device() -> Arc<RecordingDevice<MemoryDevice>> {
    Arc::new(RecordingDevice::new(MemoryDevice::new(1 << 20).unwrap()))
}

/// Returns a tangle, and a memory file system on which its threads have run.
fn ran(planted: Option<CallFault>) -> (Tangle<MemoryDevice>, Vfs) {
    let tangle = Tangle::new(device(), (2, 40), &mut Random::new(7)).unwrap().with(planted);
    let vfs = vfscale::memory().size(64 << 20).build().unwrap();
    tangle.prepare(&vfs.task()).unwrap();
    for thread in 0..2 {
        tangle.run(&vfs, thread).unwrap();
    }
    (tangle, vfs)
}

#[test]
fn tangle_judges_by_the_last_promise_before_a_crash() {
    let (tangle, vfs) = ran(None);
    let marks = tangle.device.marks().len();
    assert_eq!(tangle.judge(&vfs.task(), marks), Ok(()));
    assert_eq!(marks, 1 + tangle.calls());
    // A script ends with a sync, so its last tree is not a tree of any earlier time.
    let why = tangle.judge(&vfs.task(), 3).unwrap_err();
    assert!(why.starts_with("/own0, after 2 calls: "), "{why}");
    // Nothing is guaranteed before the directories are durable.
    let empty = vfscale::memory().size(1 << 20).build().unwrap();
    assert_eq!(tangle.judge(&empty.task(), 0), Ok(()));
    assert!(tangle.judge(&empty.task(), 1).is_err());
}

#[test]
fn kinds_are_told_apart() {
    let (tangle, _) = ran(None);
    let history = &tangle.own[0].history;
    let tree = &history.trees[setup().len()];
    let rename = |old: &str, new: &str, flags: RenameFlags| {
        class(&Compound::rename(old, new, flags.bits()), tree)
    };
    let (plain, exchange) = (RenameFlags::empty(), RenameFlags::EXCHANGE);
    assert_eq!(rename("/d/f", "/d/n", plain), Some(Class::Rename));
    assert_eq!(rename("/d/f", "/d/s", plain), Some(Class::RenameOver));
    // Two links of one file: the rename has no effect.
    assert_eq!(rename("/e/g", "/d/h", plain), None);
    assert_eq!(rename("/e/empty", "/d/n", plain), Some(Class::RenameDir));
    assert_eq!(rename("/d/f", "/e/empty", exchange), Some(Class::Exchange));
    assert_eq!([rename("/d/f", "/d/n", exchange), rename("/d/n", "/d/f", plain)], [None, None]);
}
