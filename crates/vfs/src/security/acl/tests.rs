use super::*;

const FULL: [(AclTag, u16); 6] = [
    (AclTag::UserObj, 7),
    (AclTag::User(10), 6),
    (AclTag::GroupObj, 5),
    (AclTag::Group(20), 3),
    (AclTag::Mask, 6),
    (AclTag::Other, 1),
];

const OWNER: u32 = 1;
const GROUP: u32 = 2;

fn full() -> Acl {
    Acl::new(FULL).unwrap()
}

fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn allowed(acl: &Acl, uid: u32, groups: &[u32]) -> u8 {
    (0..8)
        .filter(|&want| {
            let in_group = |group| groups.contains(&group);
            acl.permission(uid, 999, OWNER, GROUP, in_group, want).is_ok()
        })
        .fold(0, |all, want| all | want)
}

#[test]
fn the_xattr_form_is_byte_for_byte_the_known_one() {
    let bytes = [
        2, 0, 0, 0, // version
        1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, // owner
        2, 0, 6, 0, 10, 0, 0, 0, // user 10
        4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, // group
        8, 0, 3, 0, 20, 0, 0, 0, // group 20
        16, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, // mask
        32, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, // other
    ];
    assert_eq!(full().to_xattr(), bytes);
    assert_eq!(full().xattr_len(), bytes.len());
    assert_eq!(Acl::from_xattr(&bytes), Ok(Some(full())));
}

#[test]
fn values_that_mean_no_list() {
    assert_eq!(Acl::from_xattr(b""), Ok(None));
    assert_eq!(Acl::from_xattr(&value(&[])), Ok(None));
}

#[test]
fn values_that_can_not_be_read() {
    let good = value(&[(1, 7, 0), (4, 7, 0), (32, 7, 0)]);
    assert_eq!(Acl::from_xattr(&good).unwrap().unwrap().entries().len(), 3);
    for len in 1..good.len() {
        if len != 4 {
            let expected = Errno::INVAL;
            assert_eq!(Acl::from_xattr(&good[..len]), Err(expected), "length {len}");
        }
    }
    let mut other_version = good.clone();
    other_version[0] = 1;
    assert_eq!(UncheckedAcl::from_xattr(&other_version), Err(Errno::OPNOTSUPP));
    assert_eq!(UncheckedAcl::from_xattr(&other_version[..5]), Err(Errno::OPNOTSUPP));
    assert_eq!(UncheckedAcl::from_xattr(&value(&[(3, 7, 0)])), Err(Errno::INVAL));
    assert_eq!(UncheckedAcl::from_xattr(&value(&[(0, 7, 0)])), Err(Errno::INVAL));
    assert_eq!(UncheckedAcl::from_xattr(&vec![2; 65_537]), Err(Errno::TOOBIG));
}

#[test]
fn values_that_make_no_sense_are_readable_but_invalid() {
    let cases: [&[(u16, u16, u32)]; 12] = [
        &[(1, 8, 0), (4, 7, 0), (32, 7, 0)],
        &[(1, 7, 0), (4, 0x107, 0), (32, 7, 0)],
        &[(4, 7, 0), (1, 7, 0), (32, 7, 0)],
        &[(1, 7, 0), (1, 7, 0), (4, 7, 0), (32, 7, 0)],
        &[(1, 7, 0), (4, 7, 0)],
        &[(1, 7, 0), (32, 7, 0)],
        &[(1, 7, 0), (2, 7, 5), (4, 7, 0), (32, 7, 0)],
        &[(1, 7, 0), (4, 7, 0), (8, 7, 5), (32, 7, 0)],
        &[(1, 7, 0), (2, 7, u32::MAX), (4, 7, 0), (16, 7, 0), (32, 7, 0)],
        &[(1, 7, 0), (4, 7, 0), (8, 7, u32::MAX), (16, 7, 0), (32, 7, 0)],
        &[(1, 7, 0), (4, 7, 0), (2, 7, 5), (16, 7, 0), (32, 7, 0)],
        &[(1, 7, 0), (4, 7, 0), (32, 7, 0), (32, 7, 0)],
    ];
    for case in cases {
        let unchecked = UncheckedAcl::from_xattr(&value(case)).unwrap().unwrap();
        assert_eq!(unchecked.validate(), Err(Errno::INVAL), "{case:?}");
    }
}

#[test]
fn a_mask_without_names_and_repeated_names_are_valid() {
    let masked = [(1, 7, 0), (4, 7, 0), (16, 0, 0), (32, 7, 0)];
    assert!(Acl::from_xattr(&value(&masked)).unwrap().is_some());
    let twice = [(1, 7, 0), (2, 1, 9), (2, 2, 9), (4, 7, 0), (16, 7, 0), (32, 7, 0)];
    assert_eq!(allowed(&Acl::from_xattr(&value(&twice)).unwrap().unwrap(), 9, &[]), 1);
}

#[test]
fn the_first_fitting_entry_decides() {
    let acl = full();
    assert_eq!(allowed(&acl, OWNER, &[]), 7, "the mask does not bound the owner");
    assert_eq!(allowed(&acl, 10, &[20]), 6, "the user's entry comes before the group's");
    assert_eq!(allowed(&acl, 11, &[GROUP]), 4, "5 under the mask of 6");
    assert_eq!(allowed(&acl, 11, &[20]), 2, "3 under the mask of 6");
    assert_eq!(allowed(&acl, 11, &[]), 1, "the mask does not bound others");
    assert_eq!(allowed(&acl, 11, &[21]), 1);
    let fsgid = acl.permission(11, GROUP, OWNER, GROUP, |_| false, 4);
    assert_eq!(fsgid, Ok(()), "the task's own group counts");
}

#[test]
fn group_entries_do_not_add_up() {
    let acl = full();
    let both = |group| group == GROUP || group == 20;
    assert_eq!(acl.permission(11, 0, OWNER, GROUP, both, 4), Ok(()));
    assert_eq!(acl.permission(11, 0, OWNER, GROUP, both, 2), Ok(()));
    assert_eq!(acl.permission(11, 0, OWNER, GROUP, both, 6), Err(Errno::ACCESS));
    assert_eq!(acl.permission(11, 0, OWNER, GROUP, both, 1), Err(Errno::ACCESS));
}

#[test]
fn a_member_of_a_group_is_never_everybody_else() {
    let acl = Acl::new([(AclTag::UserObj, 7), (AclTag::GroupObj, 0), (AclTag::Other, 7)]).unwrap();
    assert_eq!(allowed(&acl, 11, &[GROUP]), 0);
    assert_eq!(allowed(&acl, 11, &[]), 7);
}

#[test]
fn an_empty_mask_is_skipped_like_linux_does() {
    let mut entries = FULL;
    entries[4].1 = 0;
    let acl = Acl::new(entries).unwrap();
    let file = Ownership { mode: acl.equiv_mode(0o100_000).mode, uid: OWNER, gid: GROUP };
    assert_eq!(file.mode, 0o100_701);
    assert_eq!(acl.permission(10, 0, OWNER, GROUP, |_| false, 1), Err(Errno::ACCESS));
    assert_eq!(permission(file, Some(&acl), 10, 0, |_| false, 1), Ok(()));
    assert_eq!(permission(file, Some(&acl), 10, 0, |group| group == GROUP, 1), Err(Errno::ACCESS));
}

#[test]
fn mode_and_list_agree_when_the_list_says_no_more() {
    for mode in 0..0o1000 {
        let acl = Acl::from_mode(mode);
        assert_eq!(
            acl.equiv_mode(0o102_777),
            EquivMode { mode: 0o102_000 | mode, needs_acl: false }
        );
        let file = Ownership { mode, uid: OWNER, gid: GROUP };
        for (uid, gid, shift) in [(OWNER, 0, 6), (11, GROUP, 3), (11, 0, 0)] {
            for want in 0..8 {
                let granted = (mode >> shift) as u8 & want == want;
                for acl in [None, Some(&acl)] {
                    let result = permission(file, acl, uid, gid, |_| false, want);
                    assert_eq!(result.is_ok(), granted, "{mode:o} {uid} {gid} {want}");
                }
            }
        }
    }
}

#[test]
fn the_mask_stands_in_the_group_bits() {
    assert_eq!(full().equiv_mode(0o104_000), EquivMode { mode: 0o104_761, needs_acl: true });
}

#[test]
fn chmod_sets_the_mask_or_else_the_group() {
    let changed = full().chmod(0o052);
    let perms = changed.entries().iter().map(|entry| entry.perm).collect::<Vec<_>>();
    assert_eq!(perms, [0, 6, 5, 3, 5, 2]);
    assert_eq!(Acl::from_mode(0o777).chmod(0o640), Acl::from_mode(0o640));
}

#[test]
fn a_default_list_and_the_mode_bound_each_other() {
    let (acl, mode) = full().create_masq(0o100_666);
    let perms = acl.entries().iter().map(|entry| entry.perm).collect::<Vec<_>>();
    assert_eq!(perms, [6, 6, 5, 3, 6, 0]);
    assert_eq!(mode, 0o100_660);
    let (acl, mode) = Acl::from_mode(0o750).create_masq(0o106_775);
    assert_eq!((acl, mode), (Acl::from_mode(0o750), 0o106_750));
}

#[test]
fn new_files_inherit_default_acls() {
    let default = full();
    let file = inherit(Some(&default), 0o100_666, 0o777);
    assert_eq!(file.mode, 0o100_660, "the umask does not count");
    assert_eq!(file.access, Some(default.create_masq(0o100_666).0));
    assert_eq!(file.default, None);
    let dir = inherit(Some(&default), 0o040_777, 0);
    assert_eq!(dir.default.as_ref(), Some(&default));
    let simple = Acl::from_mode(0o750);
    let dir = inherit(Some(&simple), 0o040_777, 0);
    assert_eq!((dir.mode, dir.access, dir.default), (0o040_750, None, Some(simple)));
    let link = inherit(Some(&default), 0o120_777, 0o777);
    assert_eq!((link.mode, link.access, link.default), (0o120_777, None, None));
    assert_eq!(inherit(None, 0o104_777, 0o7022).mode, 0o104_755);
}
