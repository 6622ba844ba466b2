//! Tests of parsing requests and building replies.

#![allow(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]

use std::ffi::OsStr;

use proptest::prelude::*;
use vfscale::posix::SetTime;
use vfscale::{Errno, FileType, Timestamp};

use super::reply::{Dirent, Reply};
use super::request::{Dialect, Operation, Request};
use super::*;

/// Returns a message with this body and extension.
fn message(opcode: u32, body: &[u8], extension: &[u8]) -> Vec<u8> {
    let mut m = Vec::new();
    m.extend(((IN_HEADER + body.len() + extension.len()) as u32).to_ne_bytes());
    m.extend(opcode.to_ne_bytes());
    m.extend(77_u64.to_ne_bytes());
    m.extend(5_u64.to_ne_bytes());
    for n in [1000_u32, 100, 4242] {
        m.extend(n.to_ne_bytes());
    }
    m.extend(((extension.len() / 8) as u16).to_ne_bytes());
    m.extend(0_u16.to_ne_bytes());
    m.extend(body);
    m.extend(extension);
    m
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

const DIALECT: Dialect = Dialect { setxattr_ext: true };

#[test]
fn header_and_name_are_read() {
    let m = message(opcode::LOOKUP, b"name\0", b"");
    let request = Request::parse(&m, DIALECT).unwrap();
    assert_eq!((request.header.unique, request.header.node), (77, 5));
    assert_eq!((request.header.uid, request.header.gid, request.header.pid), (1000, 100, 4242));
    assert_eq!(request.group, None);
    assert!(matches!(request.operation, Operation::Lookup { name } if name == "name"));
}

#[test]
fn syncfs_has_a_body_that_says_nothing() {
    let m = message(opcode::SYNCFS, &words(&[0, 0]), b"");
    assert!(matches!(Request::parse(&m, DIALECT).unwrap().operation, Operation::SyncFs));
    assert!(Request::parse(&message(opcode::SYNCFS, &words(&[0]), b""), DIALECT).is_err());
}

#[test]
fn group_of_the_directory_is_read_from_the_extension() {
    let mut body = words(&[0o644, 0o22]);
    body.extend(b"d\0");
    let m = message(opcode::MKDIR, &body, &words(&[16, EXT_GROUPS, 1, 250]));
    let request = Request::parse(&m, DIALECT).unwrap();
    assert_eq!(request.group, Some(250));
    assert!(matches!(request.operation, Operation::MkDir { mode: 0o644, umask: 0o22, .. }));
    let m = message(opcode::MKDIR, &body, &words(&[16, EXT_GROUPS, 0, 0]));
    assert_eq!(Request::parse(&m, DIALECT).unwrap().group, None);
}

/// The pieces that the kernel writes over io_uring.
#[test]
fn messages_in_pieces_are_read() {
    let mut value = words(&[3, 1, SETXATTR_ACL_KILL_SGID, 0]);
    value.extend(b"user.a\0xyz");
    let mut write = words(&[7, 0, 4096, 0, 3, 0, 0, 0, 0, 0]);
    write.extend(b"xyz");
    let mut made = words(&[0o644, 0o22]);
    made.extend(b"d\0");
    let group = words(&[16, EXT_GROUPS, 1, 250]);
    let cases: [(u32, &[u8], &[u8], usize); 6] = [
        (opcode::LOOKUP, b"name\0", b"", 0),
        (opcode::SYMLINK, b"name\0target\0", b"", 0),
        (opcode::SETXATTR, &value, b"", 16),
        (opcode::WRITE, &write, b"", 40),
        (opcode::MKDIR, &made, &group, 8),
        (opcode::GETATTR, &words(&[0, 0, 0, 0]), b"", 16),
    ];
    for (number, body, extension, first) in cases {
        let whole = message(number, body, extension);
        let (head, rest) = whole.split_at(IN_HEADER);
        let (first, others) = rest.split_at(first);
        let pieces = Request::parse_pieces(head, first, others, DIALECT).unwrap();
        let expected = Request::parse(&whole, DIALECT).unwrap();
        assert_eq!(format!("{pieces:?}"), format!("{expected:?}"));
        // A field does not extend over both pieces, and none is missing.
        assert!(Request::parse_pieces(head, first, &[], DIALECT).is_err() || others.is_empty());
    }
}

#[test]
fn replies_with_a_fixed_place_do_not_grow() {
    let mut reply = Reply::fixed(64);
    let place = reply.room_address();
    for _ in 0..3 {
        reply.clear();
        reply.put(&[7; 64]);
        assert_eq!(reply.payload(), [7; 64]);
        assert_eq!(reply.room_address(), place);
    }
    reply.clear();
    let put = |reply: &mut Reply| reply.put(&[7; 65]);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| put(&mut reply))).is_err());
    assert_eq!(reply.payload(), []);
    assert_eq!(reply.room_address(), place);
}

#[test]
fn set_attributes_follow_the_mask() {
    let mut body = words(&[
        (AttrMask::MODE | AttrMask::MTIME | AttrMask::ATIME | AttrMask::ATIME_NOW).bits(),
        0,
    ]);
    for n in [9_u64, 8, 7, 6, (-5_i64).cast_unsigned(), 4] {
        body.extend(n.to_ne_bytes());
    }
    body.extend(words(&[1, 2, 3, 0o100_640, 0, 11, 12, 0]));
    let m = message(opcode::SETATTR, &body, b"");
    let Operation::SetAttr(set) = Request::parse(&m, DIALECT).unwrap().operation else {
        panic!("not SETATTR");
    };
    assert_eq!(
        (set.mode, set.uid, set.gid, set.size, set.fh),
        (Some(0o640), None, None, None, None)
    );
    assert_eq!(set.times, [SetTime::Now, SetTime::At(Timestamp::new(-5, 2))]);
    assert!(!set.kill_priv);
    assert_eq!(set.ctime, None);
    let with_ctime = AttrMask::CTIME | AttrMask::KILL_SUIDGID;
    body[..4].copy_from_slice(&with_ctime.bits().to_ne_bytes());
    let m = message(opcode::SETATTR, &body, b"");
    let Operation::SetAttr(set) = Request::parse(&m, DIALECT).unwrap().operation else {
        panic!("not SETATTR");
    };
    assert_eq!((set.mode, set.times), (None, [SetTime::Omit; 2]));
    assert_eq!((set.ctime, set.kill_priv), (Some(Timestamp::new(4, 3)), true));
}

#[test]
fn attribute_value_is_read_in_both_dialects() {
    let mut long = words(&[3, 1, SETXATTR_ACL_KILL_SGID, 0]);
    long.extend(b"user.a\0xyz");
    let m = message(opcode::SETXATTR, &long, b"");
    let Operation::SetXattr { name, value, flags, kill_sgid } =
        Request::parse(&m, DIALECT).unwrap().operation
    else {
        panic!("not SETXATTR");
    };
    assert_eq!((name, value, flags, kill_sgid), (OsStr::new("user.a"), &b"xyz"[..], 1, true));
    let mut short = words(&[3, 1]);
    short.extend(b"user.a\0xyz");
    let m = message(opcode::SETXATTR, &short, b"");
    let request = Request::parse(&m, Dialect { setxattr_ext: false }).unwrap();
    assert!(matches!(
        request.operation,
        Operation::SetXattr { value: b"xyz", kill_sgid: false, .. }
    ));
}

#[test]
fn forgets_are_listed() {
    let mut body = words(&[2, 0]);
    for n in [10_u64, 1, 11, 3] {
        body.extend(n.to_ne_bytes());
    }
    let m = message(opcode::BATCH_FORGET, &body, b"");
    let Operation::BatchForget(forgets) = Request::parse(&m, DIALECT).unwrap().operation else {
        panic!("not BATCH_FORGET");
    };
    assert_eq!(forgets.collect::<Vec<_>>(), [(10, 1), (11, 3)]);
}

#[test]
fn ioctl_carries_its_bytes() {
    let mut body = words(&[0, 0, 1, 0xe702, 7, 7, 8, 8]);
    body.extend(9_u64.to_ne_bytes());
    let m = message(opcode::IOCTL, &body, b"");
    let request = Request::parse(&m, DIALECT).unwrap();
    let Operation::Ioctl { command, data, room: 8 } = request.operation else {
        panic!("not IOCTL");
    };
    assert_eq!((u64::from(command), data), (crate::control::SYNC, &9_u64.to_ne_bytes()[..]));
    body.pop();
    assert!(Request::parse(&message(opcode::IOCTL, &body, b""), DIALECT).is_err());
}

#[test]
fn a_trim_is_that_of_linux() {
    assert_eq!(crate::control::TRIM, 0xc018_5879, "FITRIM");
    let mut fields = Vec::new();
    [4096_u64, 1 << 40, 7].iter().for_each(|field| fields.extend(field.to_ne_bytes()));
    let range = vfscale::posix::FstrimRange { start: 4096, len: 1 << 40, minlen: 7 };
    assert_eq!(crate::control::trim_range(&fields), Ok(range));
    fields.pop();
    assert_eq!(crate::control::trim_range(&fields), Err(vfscale::Errno::INVAL));
}

#[test]
fn short_messages_are_malformed_not_misread() {
    let mut body = words(&[u32::MAX, 0]);
    body.extend(10_u64.to_ne_bytes());
    let m = message(opcode::BATCH_FORGET, &body, b"");
    assert!(Request::parse(&m, DIALECT).is_err());
    let m = message(opcode::LOOKUP, b"no end", b"");
    let header = Request::parse(&m, DIALECT).unwrap_err().unwrap();
    assert_eq!(header.unique, 77);
    assert!(Request::parse(&m[..30], DIALECT).unwrap_err().is_none());
}

#[test]
fn operations_of_the_future_are_unknown() {
    for code in [0, 7, 48, 49, 54, 4096, u32::MAX] {
        let m = message(code, b"", b"");
        let request = Request::parse(&m, DIALECT).unwrap();
        assert!(matches!(request.operation, Operation::Unknown), "{code}");
    }
}

#[test]
fn device_numbers_survive() {
    for (major, minor) in [(0, 0), (8, 1), (259, 300), (4095, 0xf_ffff), (1, 255), (1, 256)] {
        let dev = rustix::fs::makedev(major, minor);
        assert_eq!(decode_dev(encode_dev(dev)), dev, "{major}:{minor}");
    }
    assert_eq!(encode_dev(rustix::fs::makedev(8, 257)), 0x0010_0801);
}

#[test]
fn errors_have_no_payload() {
    let mut reply = Reply::new();
    reply.put(&[1; 100]);
    let sent = reply.finish_with(9, Err(Errno::NOENT)).to_vec();
    assert_eq!(sent.len(), OUT_HEADER);
    assert_eq!(sent[4..8], (-2_i32).to_ne_bytes());
    assert_eq!(sent[8..16], 9_u64.to_ne_bytes());
}

#[test]
fn names_fill_a_listing_up_to_its_size() {
    let mut reply = Reply::new();
    let d = Dirent { ino: 3, next: 4, kind: FileType::Directory, name: OsStr::new("abc") };
    assert!(reply.dirent(64, &d));
    assert!(reply.dirent(64, &d));
    assert!(!reply.dirent(64, &d));
    assert_eq!(reply.payload_len(), 64);
    let sent = reply.finish_with(1, Ok(())).to_vec();
    assert_eq!(sent.len(), OUT_HEADER + 64);
    assert_eq!(sent[OUT_HEADER + 20..OUT_HEADER + 24], 4_u32.to_ne_bytes());
    assert_eq!(&sent[OUT_HEADER + 24..OUT_HEADER + 32], b"abc\0\0\0\0\0");
}

#[test]
fn a_reply_is_clean_after_a_larger_one() {
    let mut reply = Reply::new();
    reply.put(&[0xff; 10_000]);
    reply.clear();
    let d = Dirent { ino: 1, next: 2, kind: FileType::RegularFile, name: OsStr::new("x") };
    reply.direntplus(4096, &d).unwrap();
    let sent = reply.finish_with(1, Ok(())).to_vec();
    assert_eq!(sent.len(), OUT_HEADER + 160);
    assert!(sent[OUT_HEADER..OUT_HEADER + 128].iter().all(|&b| b == 0));
    assert!(sent[OUT_HEADER + 153..].iter().all(|&b| b == 0));
}

proptest! {
    /// Parsing neither panics nor reads beyond the message, whatever its bytes.
    #[test]
    fn any_bytes_are_taken_apart(
        code in 0_u32..60, body in prop::collection::vec(any::<u8>(), 0..200), ext in 0_usize..4,
        setxattr_ext in any::<bool>(),
    ) {
        let m = message(code, &body, &vec![0; ext * 8]);
        let _ = Request::parse(&m, Dialect { setxattr_ext });
        let _ = Request::parse(&body, Dialect { setxattr_ext });
    }
}
