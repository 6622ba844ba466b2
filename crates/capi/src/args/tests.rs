use std::ptr;

use super::*;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grown {
    old: u64,
    new: u64,
}

// SAFETY: it consists of integers.
unsafe impl Plain for Grown {}

fn errno<T>(result: Result<T, Failure>) -> Errno {
    match result {
        Err(Failure::Border(errno, _)) => errno,
        _ => panic!("no failure of the border"),
    }
}

#[test]
fn options_grow_in_both_directions() {
    let bytes = [1_u64, 2, 0, 3];
    // SAFETY: the array has as many bytes as the sizes say.
    let read = |size| unsafe { options(bytes.as_ptr().cast::<Grown>(), size) };
    assert_eq!(read(8).ok(), Some(Grown { old: 1, new: 0 }), "an older caller");
    assert_eq!(read(16).ok(), Some(Grown { old: 1, new: 2 }));
    assert_eq!(read(24).ok(), Some(Grown { old: 1, new: 2 }), "a newer caller, with the default");
    assert_eq!(errno(read(32)), Errno::TOOBIG, "a newer caller with a value");
    assert_eq!(errno(read(0)), Errno::INVAL);
    assert_eq!(errno(read(OPTIONS_MAX + 1)), Errno::INVAL);
    // SAFETY: a null pointer is allowed.
    let none = unsafe { options::<Grown>(ptr::null(), 16) };
    assert_eq!(none.ok(), Some(Grown { old: 0, new: 0 }));
}

#[test]
fn null_and_impossible_pointers_are_refused() {
    // SAFETY: null pointers, lengths of 0, and lengths that are refused before anything is read.
    unsafe {
        assert_eq!(errno(path(ptr::null())), Errno::FAULT);
        assert_eq!(errno(buffer(ptr::null_mut(), 1)), Errno::FAULT);
        assert!(buffer(ptr::null_mut(), 0).is_ok_and(|buffer| buffer.is_empty()));
        let mut byte = 0_u64;
        assert_eq!(errno(buffer((&raw mut byte).cast(), usize::MAX)), Errno::FAULT);
        assert_eq!(errno(place(ptr::null_mut::<u64>())), Errno::FAULT);
        let odd = (&raw mut byte).cast::<u8>().wrapping_add(1).cast::<u64>();
        assert_eq!(errno(place(odd)), Errno::FAULT);
        assert_eq!(errno(room(ptr::null_mut::<u64>(), 1)), Errno::FAULT);
        assert_eq!(errno(room(odd, 1)), Errno::FAULT);
        assert_eq!(errno(room(&raw mut byte, usize::MAX / 8)), Errno::FAULT);
        assert_eq!(errno(vectors(ptr::null(), -1)), Errno::INVAL);
        assert_eq!(errno(vectors(ptr::null(), 1025)), Errno::INVAL);
    }
}

#[test]
fn a_short_buffer_is_an_error_and_an_empty_one_a_question() {
    let mut bytes = [0; 3];
    assert_eq!(fill(&mut bytes, b"abc").ok(), Some(3));
    assert_eq!(&bytes, b"abc");
    assert_eq!(errno(fill(&mut bytes, b"abcd")), Errno::RANGE);
    assert_eq!(fill(&mut [], b"abcd").ok(), Some(4));
}

#[test]
fn a_list_is_stored_as_far_as_there_is_room() {
    let mut places = [0_u32; 3];
    // SAFETY: the array has as many places as the lengths say.
    let mut fill = |max, list: &[u32]| unsafe {
        room(places.as_mut_ptr(), max).map(|room| room.fill(list.iter().copied())).ok()
    };
    assert_eq!(fill(2, &[1, 2, 3]), Some(3));
    assert_eq!(fill(0, &[9, 9]), Some(2));
    assert_eq!(places, [1, 2, 0]);
}
