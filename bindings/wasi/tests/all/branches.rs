//! A branch for each guest.

use std::sync::Arc;

use vfscale_wasi::{Access, Filesystem};

use crate::puppet::{CREAT, Puppet, READ, TRUNC, WRITE};
use crate::trees::pool;

#[test]
fn guests_on_branches_see_the_base_and_not_each_other() {
    let pool = pool();
    let base = pool.open("main").unwrap();
    base.task().write("/base", "common").unwrap();
    let mut guests = Vec::new();
    for n in 0..4 {
        let name = format!("guest {n}");
        pool.fork("main", &name).unwrap();
        let branch = pool.open(&name).unwrap();
        let mut files = Filesystem::new();
        files.preopen(Arc::new(branch.task()), "/", "/", Access::ReadWrite).unwrap();
        let host = if n % 2 == 0 { Puppet::module } else { Puppet::component };
        guests.push((branch, host(files)));
    }
    for (n, (_, guest)) in guests.iter_mut().enumerate() {
        let fd = guest.open("base", 0, READ).unwrap();
        assert_eq!(guest.read(fd, 100).unwrap(), b"common");
        let fd = guest.open("base", TRUNC, WRITE).unwrap();
        assert_eq!(guest.write(fd, format!("of {n}").as_bytes()), 0);
        guest.open(&format!("only {n}"), CREAT, WRITE).unwrap();
    }
    for (n, (branch, guest)) in guests.into_iter().enumerate() {
        let task = branch.task();
        assert_eq!(task.read("/base").unwrap(), format!("of {n}").as_bytes());
        assert_eq!(task.read_dir("/").unwrap().count(), 2);
        drop((guest, task));
        branch.close().unwrap();
        let changed = pool.diff("main", &format!("guest {n}")).unwrap();
        let changed: Vec<_> = changed.into_iter().map(|difference| difference.path).collect();
        for path in ["/base".into(), format!("/only {n}")] {
            assert!(changed.contains(&path.clone().into()), "{path} in {changed:?}");
        }
    }
    assert_eq!(base.task().read("/base").unwrap(), b"common");
}
