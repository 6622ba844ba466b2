use super::*;

const NONE: XattrFlags = XattrFlags::empty();
const CREATE: XattrFlags = XattrFlags::CREATE;
const REPLACE: XattrFlags = XattrFlags::REPLACE;

const FILE: u32 = 0o100_644;
const DIR: u32 = 0o040_755;
const STICKY: u32 = 0o041_777;
const LINK: u32 = 0o120_777;
const FIFO: u32 = 0o010_644;

fn name(bytes: &str) -> XattrName<'_> {
    XattrName::new(bytes.as_bytes()).unwrap()
}

fn long(prefix: &str, len: usize) -> String {
    let mut name = prefix.to_owned();
    name.extend(std::iter::repeat_n('x', len - prefix.len()));
    name
}

fn stranger(mode: u32) -> XattrSubject {
    XattrSubject { mode, owner: false, caps: Capabilities::empty() }
}

fn owner(mode: u32) -> XattrSubject {
    XattrSubject { owner: true, ..stranger(mode) }
}

fn may(attr: &str, op: XattrOp<'_>, subject: &XattrSubject) -> Result<Access, Errno> {
    xattr_permission(name(attr), op, subject)
}

const SET: XattrOp<'_> = XattrOp::Set(b"value");

#[test]
fn lengths_of_names() {
    assert_eq!(XattrName::new(b""), Err(Errno::RANGE));
    assert!(XattrName::new(long("user.", 255).as_bytes()).is_ok());
    assert_eq!(XattrName::new(long("user.", 256).as_bytes()), Err(Errno::RANGE));
    assert_eq!(XattrName::new(b"user.a\0b"), Err(Errno::INVAL));
}

#[test]
fn namespaces() {
    let cases = [
        ("user.a", Ok(XattrNamespace::User)),
        ("user.a.b", Ok(XattrNamespace::User)),
        ("user..", Ok(XattrNamespace::User)),
        ("trusted.a", Ok(XattrNamespace::Trusted)),
        ("security.a", Ok(XattrNamespace::Security)),
        ("system.posix_acl_access", Ok(XattrNamespace::AclAccess)),
        ("system.posix_acl_default", Ok(XattrNamespace::AclDefault)),
        ("user.", Err(Errno::INVAL)),
        ("trusted.", Err(Errno::INVAL)),
        ("security.", Err(Errno::INVAL)),
        ("system.", Err(Errno::OPNOTSUPP)),
        ("system.posix_acl_accessx", Err(Errno::OPNOTSUPP)),
        ("system.posix_acl", Err(Errno::OPNOTSUPP)),
        ("user", Err(Errno::OPNOTSUPP)),
        ("users.a", Err(Errno::OPNOTSUPP)),
        ("User.a", Err(Errno::OPNOTSUPP)),
        (".user.a", Err(Errno::OPNOTSUPP)),
        ("a", Err(Errno::OPNOTSUPP)),
    ];
    for (attr, expected) in cases {
        assert_eq!(name(attr).supported(), expected, "{attr}");
    }
}

#[test]
fn user_attributes_are_for_files_and_directories() {
    for mode in [FILE, DIR, STICKY] {
        assert_eq!(may("user.a", XattrOp::Get, &stranger(mode)), Ok(Access::READ));
        assert_eq!(may("user.a", SET, &owner(mode)), Ok(Access::WRITE));
        assert_eq!(may("user.a", XattrOp::Remove, &owner(mode)), Ok(Access::WRITE));
    }
    for mode in [LINK, FIFO] {
        assert_eq!(may("user.a", XattrOp::Get, &owner(mode)), Err(Errno::NODATA));
        assert_eq!(may("user.a", SET, &owner(mode)), Err(Errno::PERM));
        assert_eq!(may("user.a", XattrOp::Remove, &owner(mode)), Err(Errno::PERM));
    }
    assert_eq!(may("user.a", SET, &stranger(DIR)), Ok(Access::WRITE));
    assert_eq!(may("user.a", SET, &stranger(STICKY)), Err(Errno::PERM));
    assert_eq!(may("user.a", XattrOp::Remove, &stranger(STICKY)), Err(Errno::PERM));
    assert_eq!(may("user.a", SET, &stranger(FILE | S_ISVTX)), Ok(Access::WRITE));
}

#[test]
fn trusted_attributes_are_for_the_administrator() {
    let admin = XattrSubject { caps: Capabilities::SYS_ADMIN, ..stranger(LINK) };
    for op in [XattrOp::Get, SET, XattrOp::Remove] {
        assert_eq!(may("trusted.a", op, &admin), Ok(Access::empty()));
    }
    assert_eq!(may("trusted.a", XattrOp::Get, &owner(FILE)), Err(Errno::NODATA));
    assert_eq!(may("trusted.a", SET, &owner(FILE)), Err(Errno::PERM));
    assert_eq!(may("trusted.a", XattrOp::Remove, &owner(FILE)), Err(Errno::PERM));
}

#[test]
fn security_attributes_are_readable() {
    let admin = XattrSubject { caps: Capabilities::SYS_ADMIN, ..stranger(FILE) };
    assert_eq!(may("security.a", XattrOp::Get, &stranger(FILE)), Ok(Access::empty()));
    assert_eq!(may("security.a", SET, &owner(FILE)), Err(Errno::PERM));
    assert_eq!(may("security.a", XattrOp::Remove, &owner(FILE)), Err(Errno::PERM));
    assert_eq!(may("security.a", SET, &admin), Ok(Access::empty()));
}

#[test]
fn file_capabilities_take_their_own_privilege_and_form() {
    let setfcap = XattrSubject { caps: Capabilities::SETFCAP, ..stranger(FILE) };
    let admin = XattrSubject { caps: Capabilities::SYS_ADMIN, ..stranger(FILE) };
    let mut version_2 = [0; 20];
    version_2[3] = 2;
    let mut version_3 = [0; 24];
    version_3[..4].copy_from_slice(&[1, 0, 0, 3]);
    for good in [&version_2[..], &version_3, b""] {
        assert_eq!(may("security.capability", XattrOp::Set(good), &setfcap), Ok(Access::empty()));
        assert_eq!(may("security.capability", XattrOp::Set(good), &admin), Err(Errno::PERM));
    }
    let mut nobody = version_3;
    nobody[20..].fill(0xff);
    let mut version_1 = [0; 12];
    version_1[3] = 1;
    for bad in [&version_2[..19], &version_3[..20], &version_1, &nobody, b"x", b"\0\0\0\x02"] {
        let result = may("security.capability", XattrOp::Set(bad), &setfcap);
        assert_eq!(result, Err(Errno::INVAL), "{bad:?}");
    }
    assert_eq!(may("security.capability", XattrOp::Remove, &admin), Err(Errno::PERM));
    assert_eq!(may("security.capability", XattrOp::Remove, &setfcap), Ok(Access::empty()));
    assert_eq!(may("security.capability", XattrOp::Get, &stranger(FILE)), Ok(Access::empty()));
}

#[test]
fn access_control_lists_belong_to_the_owner() {
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    for attr in [access, default] {
        assert_eq!(may(attr, XattrOp::Get, &stranger(DIR)), Ok(Access::empty()));
        assert_eq!(may(attr, SET, &stranger(DIR)), Err(Errno::PERM));
        assert_eq!(may(attr, XattrOp::Remove, &stranger(DIR)), Err(Errno::PERM));
        assert_eq!(may(attr, SET, &owner(DIR)), Ok(Access::empty()));
        for op in [XattrOp::Get, SET, XattrOp::Remove] {
            assert_eq!(may(attr, op, &owner(LINK)), Err(Errno::OPNOTSUPP));
        }
    }
    assert_eq!(may(default, SET, &owner(FILE)), Err(Errno::ACCESS));
    assert_eq!(may(default, XattrOp::Set(b""), &stranger(FILE)), Ok(Access::empty()));
    assert_eq!(may(default, XattrOp::Set(b"\x02\0\0\0"), &stranger(FILE)), Ok(Access::empty()));
    assert_eq!(may(default, XattrOp::Remove, &stranger(FILE)), Ok(Access::empty()));
}

#[test]
fn unknown_names_need_the_access_before_they_are_refused() {
    assert_eq!(may("bogus.a", XattrOp::Get, &stranger(LINK)), Ok(Access::READ));
    assert_eq!(may("bogus.a", SET, &stranger(LINK)), Ok(Access::WRITE));
    assert_eq!(may("system.a", SET, &stranger(LINK)), Ok(Access::empty()));
}

#[test]
fn create_and_replace() {
    let mut set = XattrSet::new();
    let a = name("user.a");
    assert_eq!(set.get(a), Err(Errno::NODATA));
    assert_eq!(set.remove(a), Err(Errno::NODATA));
    assert_eq!(set.set(a, b"1", REPLACE), Err(Errno::NODATA));
    assert_eq!(set.set(a, b"1", CREATE | REPLACE), Err(Errno::NODATA));
    assert!(set.is_empty());
    assert_eq!(set.set(a, b"1", CREATE), Ok(()));
    assert_eq!(set.set(a, b"2", CREATE), Err(Errno::EXIST));
    assert_eq!(set.set(a, b"2", CREATE | REPLACE), Err(Errno::EXIST));
    assert_eq!(set.get(a), Ok(&b"1"[..]));
    assert_eq!(set.set(a, b"", REPLACE), Ok(()));
    assert_eq!(set.get(a), Ok(&b""[..]));
    assert_eq!(set.set(a, b"3", NONE), Ok(()));
    assert_eq!((set.get(a), set.len()), (Ok(&b"3"[..]), 1));
    let unknown = XattrFlags::from_bits_retain(4);
    assert_eq!(set.set(a, b"4", unknown), Err(Errno::INVAL));
    assert_eq!(set.set_cost(a, b"4", unknown | CREATE), Err(Errno::INVAL));
}

#[test]
fn limits_of_values() {
    let mut set = XattrSet::new();
    let value = vec![7; 65_537];
    assert_eq!(set.set(name("user.a"), &value, NONE), Err(Errno::TOOBIG));
    assert_eq!(set.set(name("user."), &value, NONE), Err(Errno::TOOBIG));
    assert_eq!(set.set_cost(name("user.a"), &value, NONE), Err(Errno::TOOBIG));
    assert_eq!(set.set(name("user.a"), &value[1..], NONE), Ok(()));
    assert_eq!(set.get(name("user.a")).map(<[u8]>::len), Ok(65_536));
}

#[test]
fn names_that_are_not_kept_here() {
    let mut set = XattrSet::new();
    let cases = [
        ("user.", Errno::INVAL),
        ("bogus.a", Errno::OPNOTSUPP),
        ("system.a", Errno::OPNOTSUPP),
        ("system.posix_acl_access", Errno::OPNOTSUPP),
        ("system.posix_acl_default", Errno::OPNOTSUPP),
    ];
    for (attr, errno) in cases {
        assert_eq!(set.set(name(attr), b"", NONE), Err(errno), "{attr}");
        assert_eq!(set.get(name(attr)), Err(errno), "{attr}");
        assert_eq!(set.remove(name(attr)), Err(errno), "{attr}");
    }
    assert_eq!(set, XattrSet::default());
}

#[test]
fn lists_are_sorted_and_hide_what_is_trusted() {
    let mut set = XattrSet::new();
    for attr in ["user.b", "trusted.t", "user.a", "security.s"] {
        set.set(name(attr), b"", NONE).unwrap();
    }
    let acls = AclNames { access: true, default: true };
    let list = set.list(acls, Capabilities::SYS_ADMIN).unwrap();
    let all = "system.posix_acl_access\0system.posix_acl_default\0\
               security.s\0trusted.t\0user.a\0user.b\0";
    assert_eq!(str::from_utf8(&list), Ok(all));
    let list = set.list(AclNames::default(), Capabilities::empty()).unwrap();
    assert_eq!(str::from_utf8(&list), Ok("security.s\0user.a\0user.b\0"));
    assert_eq!(XattrSet::new().list(AclNames::default(), Capabilities::empty()), Ok(vec![]));
}

#[test]
fn names_beyond_a_list_of_64_kib_are_refused() {
    let mut set = XattrSet::new();
    // 255 names of 255 bytes and a zero byte each, and what the lists have beside them.
    let acls = AclNames { access: true, default: true };
    let rest = 256 - POSIX_ACL_ACCESS.len() - 1 - POSIX_ACL_DEFAULT.len() - 1;
    let attrs: Vec<String> = (0..255).map(|i| long(&format!("user.{i:03}"), 255)).collect();
    for attr in &attrs {
        set.set(name(attr), b"", NONE).unwrap();
    }
    let (fits, too_long) = (long("user.f", rest - 1), long("user.f", rest));
    for _ in 0..2 {
        assert_eq!(set.set(name(&too_long), b"", NONE), Err(Errno::NOSPC));
        assert_eq!(set.set_cost(name(&too_long), b"", CREATE), Err(Errno::NOSPC));
        assert_eq!(set.set(name(&too_long), b"", REPLACE), Err(Errno::NODATA));
        assert_eq!(set.set(name(&fits), b"", NONE), Ok(()));
        assert_eq!(set.list(acls, Capabilities::empty()).map(|list| list.len()), Ok(65_536));
        assert_eq!(set.set(name("user.g"), b"", NONE), Err(Errno::NOSPC));
        assert_eq!(set.set(name("trusted.g"), b"", NONE), Err(Errno::NOSPC));
        assert_eq!(set.set(name(&attrs[7]), b"other", NONE), Ok(()));
        assert_eq!(set.set(name(&attrs[7]), b"", CREATE), Err(Errno::EXIST));
        set.remove(name(&fits)).unwrap();
    }
}

#[test]
fn copying_out() {
    let mut buf = [9; 4];
    assert_eq!(copy_out(b"abcde", &mut []), Ok(5));
    assert_eq!(copy_out(b"abcde", &mut buf), Err(Errno::RANGE));
    assert_eq!(buf, [9; 4]);
    assert_eq!(copy_out(b"abc", &mut buf), Ok(3));
    assert_eq!(&buf, b"abc\x09");
    assert_eq!(copy_out(b"", &mut buf), Ok(0));
}

mod model {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Set(String, Vec<u8>, u32),
        Remove(String),
    }

    fn attr() -> impl Strategy<Value = String> {
        "(user|trusted|security)\\.[ab]{1,3}"
    }

    fn step() -> impl Strategy<Value = Step> {
        let value = prop::collection::vec(any::<u8>(), 0..20);
        prop_oneof![
            3 => (attr(), value, 0u32..4).prop_map(|(a, v, f)| Step::Set(a, v, f)),
            1 => attr().prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_map_and_never_drifts(steps in prop::collection::vec(step(), 0..80)) {
            let mut set = XattrSet::new();
            let mut map = BTreeMap::<String, Vec<u8>>::new();
            let mut charged = 0i64;
            for step in steps {
                match step {
                    Step::Set(attr, value, flags) => {
                        let there = map.contains_key(&attr);
                        let expected = match flags {
                            1 | 3 if there => Err(Errno::EXIST),
                            2 | 3 if !there => Err(Errno::NODATA),
                            _ => Ok(()),
                        };
                        let flags = XattrFlags::from_bits_retain(flags);
                        let cost = set.set_cost(name(&attr), &value, flags);
                        prop_assert_eq!(cost.map(drop), expected);
                        prop_assert_eq!(set.set(name(&attr), &value, flags), expected);
                        if let Ok(cost) = cost {
                            charged += cost;
                            map.insert(attr, value);
                        }
                    }
                    Step::Remove(attr) => {
                        let removed = set.remove(name(&attr));
                        prop_assert_eq!(removed.is_ok(), map.remove(&attr).is_some());
                        charged -= removed.unwrap_or(0) as i64;
                    }
                }
                prop_assert_eq!(set.bytes() as i64, charged);
                prop_assert!(set.names().eq(map.keys().map(String::as_bytes)));
            }
            for (attr, value) in &map {
                prop_assert_eq!(set.get(name(attr)), Ok(&value[..]));
            }
            prop_assert_eq!(charged == 0, map.is_empty());
        }
    }
}
