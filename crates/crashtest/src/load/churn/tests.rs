use vfscale_block::MemoryDevice;

use super::*;

fn promises() -> Promises<MemoryDevice> {
    let device = MemoryDevice::new(1 << 20).unwrap();
    Promises::new(Arc::new(RecordingDevice::new(device)))
}

#[test]
fn churn_judges_by_the_last_mark_before_a_crash() {
    let promises = promises();
    promises.say("/a", Promise::Holds(1, 100));
    promises.say("/b", Promise::Holds(2, 5));
    promises.say("/a", Promise::MayBeGone(1, 100));
    promises.say("/a", Promise::Gone);
    let a = |marks| promises.after(marks).get("/a").copied();
    assert_eq!([a(0), a(1), a(2)], [None, Some(Promise::Holds(1, 100)), a(1)]);
    assert_eq!([a(3), a(4)], [Some(Promise::MayBeGone(1, 100)), Some(Promise::Gone)]);
    assert_eq!(promises.after(4).len(), 2);
}

#[test]
fn files_are_judged() {
    let promises = promises();
    let vfs = vfscale::memory().size(1 << 20).build().unwrap();
    let task = vfs.task();
    for (name, promise) in [("/there", Promise::Holds(1, 50)), ("/gone", Promise::Gone)] {
        promises.say(name, promise);
    }
    promises.say("/maybe", Promise::MayBeGone(2, 20));
    let judge = || promises.judge(&task, 3);
    assert_eq!(judge(), Err("/there: is missing".into()));
    task.write("/there", pattern::bytes(1, 0, 40)).unwrap();
    assert_eq!(judge(), Err("/there: has 40 bytes instead of 50 or more".into()));
    task.write("/there", pattern::bytes(1, 0, 60)).unwrap();
    assert_eq!(judge(), Ok(()));
    task.write("/maybe", [pattern::bytes(2, 0, 16), pattern::bytes(3, 16, 16)].concat()).unwrap();
    let why = judge().unwrap_err();
    assert_eq!(why, "/maybe: bytes of write 3 at 16 at 16 instead of bytes of write 2");
    task.write("/maybe", pattern::bytes(2, 0, 32)).unwrap();
    assert_eq!(judge(), Ok(()));
    task.write("/gone", "x").unwrap();
    assert_eq!(judge(), Err("/gone: is back".into()));
}
