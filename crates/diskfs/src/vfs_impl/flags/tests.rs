use super::*;
use crate::inode::core::{TYPE_DIRECTORY, TYPE_LINK, TYPE_REGULAR};

/// A damaged record of a symbolic link: no call can clear the flags of one, so it is not guarded.
#[test]
fn flags_guard_only_files_and_directories() {
    let bits = in_record(0, InodeFlags::IMMUTABLE | InodeFlags::APPEND | InodeFlags::NODUMP);
    let flags = |mode| flags_of(&InodeCore { flags: bits, ..InodeCore::new(mode, 1, 0) });
    assert_eq!(flags(TYPE_LINK | 0o777), InodeFlags::NODUMP);
    assert_eq!(
        (flags(TYPE_REGULAR | 0o644), flags(TYPE_DIRECTORY | 0o755)),
        (of_record(bits), of_record(bits))
    );
}

#[test]
fn every_flag_has_its_own_bit() {
    let mut seen = 0;
    for flag in InodeFlags::all() {
        let bits = in_record(0, flag);
        assert_eq!((bits.count_ones(), bits & seen, of_record(bits)), (1, 0, flag), "{flag:?}");
        seen |= bits;
    }
    assert_eq!(seen, 0x3f);
    assert_eq!(of_record(seen), InodeFlags::all());
}

#[test]
fn bits_without_a_meaning_stay() {
    let before = 0xffc0 | FLAG_APPEND;
    assert_eq!(in_record(before, InodeFlags::NODUMP), 0xffc0 | FLAG_NODUMP);
    assert_eq!(in_record(before, InodeFlags::empty()), 0xffc0);
    assert_eq!(of_record(before), InodeFlags::APPEND);
}
