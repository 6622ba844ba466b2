use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::types::{Capabilities, XattrFlags};
use crate::objects::inode::InodeExtra;
use crate::security::xattr::{AclNames, XattrName};

#[test]
fn stored_attributes_are_all_there_though_no_list_has_them() {
    let name = |n| format!("user.{n:0>250}").into_bytes().into();
    let pairs: Vec<_> = (0..300).map(|n| (name(n), [7].into())).collect();
    let guard = rcu::pin();
    let extra = InodeExtra::stored(&pairs);
    let name = |n: usize| XattrName::new(&pairs[n].0).unwrap();
    let set = extra.xattrs(&guard).unwrap();
    assert_eq!((set.len(), set.get(name(299))), (300, Ok(&[7][..])));
    let listed = set.list(AclNames::default(), Capabilities::empty());
    assert_eq!(listed, Err(Errno::TOOBIG));
    let changed = extra.change_xattrs(&guard, |set| {
        let none = XattrFlags::empty();
        assert_eq!(set.set(XattrName::new(b"user.x").unwrap(), b"", none), Err(Errno::NOSPC));
        set.set(name(0), b"replaced", none)?;
        set.remove(name(1))
    });
    assert!(changed.unwrap().is_some());
    let set = extra.xattrs(&guard).unwrap();
    assert_eq!((set.len(), set.get(name(0))), (299, Ok(&b"replaced"[..])));
}
