use super::*;

/// Returns the name that is stored at an address.
fn stored(at: *const u8) -> Vec<u8> {
    // SAFETY: names in these tests have a length byte, and that many bytes after it.
    unsafe { std::slice::from_raw_parts(at.add(1), usize::from(*at)) }.to_vec()
}

fn inline(name: &[u8]) -> Box<InlineName> {
    let mut inline = Box::new(InlineName::uninit());
    assert!(inline.set(name));
    inline
}

#[test]
fn the_first_rename_between_short_names_needs_no_other_memory() {
    for (first, second) in [(1, 1), (31, 31), (7, 31), (31, 2)] {
        let (first, second) = (vec![b'a'; first], vec![b'b'; second]);
        let inline = inline(&first);
        let begin = inline.bytes();
        let renamed = inline.second(begin, &second).unwrap();
        assert!(inline.contains(begin) && inline.contains(renamed));
        assert_eq!((stored(begin), stored(renamed)), (first.clone(), second));
        // Readers of the second name may still be there.
        assert_eq!(inline.second(renamed, &first), None);
    }
}

#[test]
fn a_name_that_fills_more_than_a_half_leaves_no_room() {
    let (short, long) = (vec![b'a'; HALF - 1], vec![b'b'; HALF]);
    let inline_long = inline(&long);
    assert_eq!(inline_long.second(inline_long.bytes(), &short), None);
    assert_eq!(stored(inline_long.bytes()), long);
    let inline_short = inline(&short);
    assert_eq!(inline_short.second(inline_short.bytes(), &long), None);
    let outside = [3, b'x', b'y', b'z', 0, 0, 0, 0];
    assert!(!inline_short.contains(outside.as_ptr()));
    assert_eq!(inline_short.second(outside.as_ptr(), b"y"), None);
}

#[test]
fn a_name_that_is_too_long_is_not_stored() {
    let mut inline = InlineName::uninit();
    assert!(!inline.set(&[b'a'; INLINE_MAX + 1]));
    assert!(inline.set(&[b'a'; INLINE_MAX]));
    assert_eq!(stored(inline.bytes()).len(), INLINE_MAX);
}
