use super::*;

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
