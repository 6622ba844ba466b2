//! Times that a caller keeps itself.

use vfscale_vfs::{OFlags, SetTime, Timestamp};

use super::*;

#[test]
fn kept_times_are_stored_and_outlive_the_data_that_are_written_back_later() {
    let mounted = made(16 * MIB);
    let sys = mounted.task.posix();
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::APPEND;
    let file = sys.open("/f", flags, 0o644).unwrap();
    file.pwrite(b"begin", 0).unwrap();
    let at = |seconds| Timestamp::new(seconds, 5);
    let set = [SetTime::At(at(1)), SetTime::At(at(2))];
    sys.set_kept_times(&file, set, at(3)).unwrap();
    let large: Vec<u8> = (0..3 * MIB as u32).map(|at| (at / 7) as u8).collect();
    // At its offset, although the file appends.
    assert_eq!(sys.pwrite_unstamped(&file, &large, 3).unwrap(), large.len());
    let times = |mounted: &Mounted| {
        let stat = mounted.stat("/f");
        [stat.atime, stat.mtime, stat.ctime]
    };
    assert_eq!(times(&mounted), [at(1), at(2), at(3)]);
    drop(file);
    let mounted = mounted.again();
    assert_eq!(times(&mounted), [at(1), at(2), at(3)]);
    let data = mounted.read("/f");
    assert_eq!((&data[..3], data.len()), (&b"beg"[..], large.len() + 3));
    assert!(data[3..] == large);
}
