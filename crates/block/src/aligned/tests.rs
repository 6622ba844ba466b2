use super::*;

#[test]
fn a_buffer_is_aligned_and_has_its_length() {
    for len in [0, 1, 511, 4096, 4097, 70_000] {
        let mut buf = AlignedBuf::zeroed(len);
        assert_eq!(buf.len(), len);
        assert!(buf.as_ptr().addr().is_multiple_of(ALIGNMENT));
        assert!(buf.iter().all(|byte| *byte == 0));
        buf.fill(7);
        let copy = AlignedBuf::from(&*buf);
        assert_eq!(*copy, *buf);
        assert_eq!(*copy.clone(), *buf);
        assert!(copy.as_ptr().addr().is_multiple_of(ALIGNMENT));
    }
}
