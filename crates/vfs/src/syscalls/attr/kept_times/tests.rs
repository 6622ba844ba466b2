use std::sync::Arc;

use rustix::io::Errno;

use crate::base::types::{AtFlags, OFlags, SetTime, Timestamp};
use crate::mount::namespace::Vfs;
use crate::names_only_tests::NamesOnly;
use crate::security::cred::Credentials;
use crate::task::task_struct::At;

#[test]
fn times_are_those_that_the_caller_keeps() {
    let root = Vfs::new(Arc::new(NamesOnly::default())).unwrap().task();
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::APPEND;
    let file = root.posix().open("/f", flags, 0o666).unwrap();
    let times = || {
        let stat = file.stat().unwrap();
        (stat.atime, stat.mtime, stat.ctime)
    };
    let created = times();
    let at = |seconds| Timestamp::new(seconds, 5);
    let set = [SetTime::Omit, SetTime::At(at(10))];
    root.posix().set_kept_times(&file, set, at(20)).unwrap();
    assert_eq!(times(), (created.0, at(10), at(20)));
    root.posix().fchmodat(At::File(&file), "", 0o600, AtFlags::EMPTY_PATH).unwrap();
    let (_, mtime, ctime) = times();
    assert!(mtime == at(10) && ctime >= created.2, "{mtime:?} {ctime:?}");

    let user = root.with_credentials(Credentials::user(1000, 1000));
    let refused = user.posix().set_kept_times(&file, set, at(20)).unwrap_err();
    assert_eq!(refused.errno(), Errno::PERM);
    let refused = user.posix().pwrite_unstamped(&file, b"data", 0).unwrap_err();
    assert_eq!(refused.errno(), Errno::PERM);
    let reader = root.posix().reopen(&file, OFlags::RDONLY).unwrap();
    let refused = root.posix().pwrite_unstamped(&reader, b"data", 0).unwrap_err();
    assert_eq!(refused.errno(), Errno::BADF);
    assert_eq!(times(), (created.0, mtime, ctime));
}
