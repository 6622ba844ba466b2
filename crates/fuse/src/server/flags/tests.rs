//! Tests of requests about inode flags.

#![allow(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]

use super::*;

/// Returns the bytes of a `struct fsxattr`.
fn fsxattr(words: FsXattr) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn commands_have_the_numbers_of_linux() {
    let numbers = [GETFLAGS, SETFLAGS, GETFLAGS_32, SETFLAGS_32, FSGETXATTR, FSSETXATTR];
    let linux = [0x8008_6601, 0x4008_6602, 0x8004_6601, 0x4004_6602, 0x801c_581f, 0x401c_5820_u32];
    assert_eq!(numbers, linux.map(Opcode::from));
    assert!(linux.map(changes) == [false, true, false, true, false, true]);
    assert!(!changes(0));
}

#[test]
fn words_are_taken_as_flags() {
    let (none, both) = (InodeFlags::empty(), InodeFlags::IMMUTABLE | InodeFlags::DIRSYNC);
    let word = |bits: u64| requested(Form::Word, &bits.to_ne_bytes(), none);
    assert_eq!(word(both.bits().into()), Ok(both));
    assert_eq!(requested(Form::Word, &0x10_u32.to_ne_bytes(), both), Ok(InodeFlags::IMMUTABLE));
    // `FS_COMPR_FL`.
    assert_eq!(word(0x4), Err(Errno::OPNOTSUPP));
    assert_eq!(requested(Form::Word, &[1, 2, 3], none), Err(Errno::INVAL));
}

#[test]
fn structures_are_taken_as_flags() {
    let set = |words| requested(Form::FsXattr, &fsxattr(words), InodeFlags::DIRSYNC);
    let all = InodeFlags::all();
    assert_eq!(set([to_fsx(all), 0, 7, 0, 0, 0, 0]), Ok(all));
    // The structure can't express `DIRSYNC`, which stays.
    assert_eq!(set([0; 7]), Ok(InodeFlags::DIRSYNC));
    for words in [[0x8000, 0, 0, 0, 0, 0, 0], [0, 4096, 0, 0, 0, 0, 0], [0, 0, 0, 5, 0, 0, 0]] {
        assert_eq!(set(words), Err(Errno::OPNOTSUPP), "{words:?}");
    }
    assert_eq!(set([0, 0, 0, 0, 4096, 0, 0]), Err(Errno::OPNOTSUPP));
    assert_eq!(requested(Form::FsXattr, &[], all), Err(Errno::INVAL));
}

#[test]
fn flags_decide_who_may_open() {
    let (none, append) = (InodeFlags::empty(), InodeFlags::APPEND);
    assert_eq!((may_open(none, false), may_open(append, true)), (Ok(()), Ok(())));
    assert_eq!(may_open(append, false), Err(Errno::PERM));
    assert_eq!(may_open(InodeFlags::IMMUTABLE, true), Err(Errno::PERM));
}
