//! The small pools of arguments, including unusual ones.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;

use crate::calls::op::{CWD, Data, PathArg, Time};

/// The likely type of a path's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Dir,
    File,
    Link,
    Any,
}

fn last_name(kind: Kind) -> BoxedStrategy<&'static str> {
    let dirs = select(vec!["d", "e"]);
    let files = select(vec!["f", "g", "f", "g", "h"]);
    let links = select(vec!["s", "t"]);
    let dots = select(vec![".", ".."]);
    let weights = match kind {
        Kind::Dir => [30, 3, 4, 3],
        Kind::File => [3, 30, 6, 1],
        Kind::Link => [2, 4, 30, 1],
        Kind::Any => [14, 14, 10, 2],
    };
    Union::new_weighted(vec![
        (weights[0], dirs.boxed()),
        (weights[1], files.boxed()),
        (weights[2], links.boxed()),
        (weights[3], dots.boxed()),
    ])
    .boxed()
}

fn middle_name() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        30 => Just("d"),
        20 => Just("e"),
        8 => Just("s"),
        4 => Just("t"),
        9 => Just(".."),
        4 => Just("."),
        1 => Just(""),
        1 => Just("f"),
    ]
}

/// Generates paths of up to five names, and seldom others: empty, too long, not UTF-8.
pub fn path(kind: Kind) -> BoxedStrategy<PathArg> {
    let trailing = prop_oneof![
        88 => Just(""), 6 => Just("/"), 2 => Just("/."), 2 => Just("/.."), 1 => Just("//"),
    ];
    let depth = prop_oneof![10 => 0usize..1, 7 => 1usize..2, 3 => 2usize..3, 1 => 3usize..5];
    let middles = depth.prop_flat_map(|n| prop::collection::vec(middle_name(), n));
    let normal = (prop::bool::weighted(0.25), middles, last_name(kind), trailing).prop_map(
        |(absolute, middles, last, trailing)| {
            let mut path = String::from(if absolute { "/" } else { "" });
            for name in middles {
                path.push_str(name);
                path.push('/');
            }
            path.push_str(last);
            path.push_str(trailing);
            PathArg(path.into_bytes())
        },
    );
    let likely = select(likely(kind)).prop_map(PathArg::from);
    let weighted = vec![(40, likely.boxed()), (55, normal.boxed()), (5, odd_path())];
    Union::new_weighted(weighted).boxed()
}

/// Returns paths that the set-up made.
fn likely(kind: Kind) -> Vec<&'static str> {
    let dirs = ["d", "e", "/d", "/e", "/d/e", "e/d", "/e/d"];
    let files = ["f", "/f", "d/g", "/d/g", "/e/g", "g", "/d/e/f", "/d/f", "/e/d/f"];
    let links = ["s", "t", "/s", "/t", "d/t", "/d/t"];
    match kind {
        Kind::Dir => dirs.to_vec(),
        Kind::File => files.to_vec(),
        Kind::Link => links.to_vec(),
        Kind::Any => [&dirs[..], &files[..], &links[..]].concat(),
    }
}

/// Generates paths that mostly do not exist yet, in a directory that mostly exists.
pub fn new_path(kind: Kind) -> BoxedStrategy<PathArg> {
    let dir = select(vec!["", "/", "d/", "e/", "/d/", "/e/d/", "s/", "../"]);
    let name = select(vec!["h", "h", "f", "g", "e", "d", "s", "t", "i", "i"]);
    let fresh = (dir, name).prop_map(|(dir, name)| PathArg::from(&*format!("{dir}{name}")));
    Union::new_weighted(vec![(6, fresh.boxed()), (4, path(kind))]).boxed()
}

/// Generates directories that are likely mount points.
pub fn mount_point() -> BoxedStrategy<PathArg> {
    let likely = select(vec!["/e/d", "/d", "/e", "/d/e", "e", "d"]).prop_map(PathArg::from);
    Union::new_weighted(vec![(7, likely.boxed()), (3, path(Kind::Dir))]).boxed()
}

fn odd_path() -> BoxedStrategy<PathArg> {
    let long = |n: usize| "l".repeat(n);
    select(vec![
        PathArg::from("/"),
        PathArg::from("."),
        PathArg::from(".."),
        PathArg::from(""),
        PathArg::from("//d/../"),
        PathArg::from("/../d"),
        PathArg(b"\xff\xfe\x80".to_vec()),
        PathArg(long(255).into_bytes()),
        PathArg(long(256).into_bytes()),
        PathArg(format!("d/{}", long(255)).into_bytes()),
        PathArg(format!("{}/f", long(256)).into_bytes()),
        PathArg(format!("{}f", "./".repeat(2046)).into_bytes()),
        PathArg(format!("{}f", "./".repeat(2047)).into_bytes()),
        PathArg(format!("{}f", "./".repeat(2048)).into_bytes()),
        PathArg("/".repeat(5000).into_bytes()),
    ])
    .boxed()
}

/// Generates the directory descriptor of a path.
pub fn at() -> impl Strategy<Value = i32> {
    prop_oneof![80 => Just(CWD), 15 => Just(0), 5 => 0i32..6, 1 => Just(-1), 1 => prop_oneof![Just(77), Just(-99)]]
}

/// Generates a descriptor, mostly one of the lowest.
pub fn fd() -> impl Strategy<Value = i32> {
    prop_oneof![
        36 => 1i32..4,
        10 => 4i32..7,
        8 => Just(0),
        1 => select(vec![-1, 77, i32::MAX, CWD]),
    ]
}

/// Generates a descriptor, mostly of a directory.
pub fn dir_fd() -> impl Strategy<Value = i32> {
    prop_oneof![6 => Just(0), 4 => fd()]
}

/// Generates the file of a call on attributes: a path, or a descriptor with the empty path.
pub fn source() -> BoxedStrategy<(i32, PathArg, u32)> {
    let nofollow = libc::AT_SYMLINK_NOFOLLOW as u32;
    let empty = libc::AT_EMPTY_PATH as u32;
    let by_path = (at(), path(Kind::Any), prop_oneof![7 => Just(0), 3 => Just(nofollow)]);
    let by_fd = (at(), prop_oneof![4 => 0i32..3, 2 => 3i32..7], prop::bool::weighted(0.05))
        .prop_map(move |(at, fd, other)| (if other { at } else { fd }, PathArg::default(), empty));
    let odd =
        (at(), path(Kind::Any), select(vec![empty, empty | nofollow, 0x400, 0x800, 1, 0x8000]));
    Union::new_weighted(vec![(78, by_path.boxed()), (20, by_fd.boxed()), (2, odd.boxed())]).boxed()
}

/// Generates permission bits, and now and then invalid bits.
pub fn mode() -> BoxedStrategy<u32> {
    let common = select(vec![
        0o777u32, 0o755, 0o700, 0o666, 0o644, 0o600, 0o000, 0o070, 0o007, 0o770, 0o1777, 0o2777,
        0o4777, 0o6777, 0o2755, 0o4755, 0o6755, 0o2770, 0o2767, 0o2747, 0o4600,
    ]);
    Union::new_weighted(vec![
        (80, common.boxed()),
        (18, (0u32..0o10000).boxed()),
        (2, any::<u32>().boxed()),
    ])
    .boxed()
}

/// Generates `O_*` bits. They always contain `O_NONBLOCK`, except with `O_PATH`, so nothing blocks.
pub fn open_flags() -> BoxedStrategy<u32> {
    let access = prop_oneof![
        40 => Just(libc::O_RDWR), 30 => Just(libc::O_RDONLY), 25 => Just(libc::O_WRONLY), 2 => Just(3),
    ];
    let flag = |bits: i32, percent: u32| {
        prop_oneof![100 - percent => Just(0), percent => Just(bits)].boxed()
    };
    let first = (
        flag(libc::O_CREAT, 50),
        flag(libc::O_EXCL, 8),
        flag(libc::O_TRUNC, 10),
        flag(libc::O_APPEND, 10),
        flag(libc::O_DIRECTORY, 5),
        flag(libc::O_NOFOLLOW, 8),
    );
    let second = (
        flag(libc::O_TMPFILE, 4),
        flag(libc::O_PATH, 6),
        flag(libc::O_NOATIME, 4),
        flag(libc::O_CLOEXEC, 3),
        flag(libc::O_SYNC, 1),
        flag(libc::O_DIRECT, 1),
    );
    (access, first, second, prop::bool::weighted(0.1))
        .prop_map(|(access, a, b, nonblock)| {
            let flags = access | a.0 | a.1 | a.2 | a.3 | a.4 | a.5;
            let flags = flags | b.0 | b.1 | b.2 | b.3 | b.4 | b.5;
            let path_only = flags & libc::O_PATH != 0;
            let wait = if path_only && !nonblock { 0 } else { libc::O_NONBLOCK };
            (flags | wait) as u32
        })
        .boxed()
}

/// Generates `RESOLVE_*` bits without `RESOLVE_CACHED`, whose result depends on the cache.
pub fn resolve() -> BoxedStrategy<u64> {
    prop_oneof![
        8 => Just(0u64), 3 => Just(8), 3 => Just(16), 2 => Just(4), 2 => Just(1), 1 => 0u64..32,
    ]
    .boxed()
}

/// Generates `RESOLVE_*` bits, including unknown ones.
pub fn odd_resolve() -> BoxedStrategy<u64> {
    prop_oneof![Just(0u64), Just(64), Just(24), Just(1 << 40)].boxed()
}

/// Generates data to write, up to some pages.
pub fn data() -> BoxedStrategy<Data> {
    (any::<u8>(), length()).prop_map(|(seed, len)| Data::Run { seed, len }).boxed()
}

/// Generates lengths around special sizes.
pub fn length() -> BoxedStrategy<u32> {
    prop_oneof![
        6 => 0u32..200,
        3 => select(vec![0u32, 1, 4095, 4096, 4097, 8192]),
        2 => 0u32..13_000,
    ]
    .boxed()
}

/// Generates lengths around those of a pipe's buffers and of a whole pipe.
pub fn pipe_length() -> BoxedStrategy<u32> {
    let edges = [0, 1, 5, 100, 4000, 4095, 4096, 4097, 8192, 12_345, 65_536, 70_000];
    prop_oneof![4 => select(edges.to_vec()), 1 => 0u32..10_000].boxed()
}

/// Generates data for a pipe, whose bytes identify their position.
pub fn pipe_data() -> BoxedStrategy<Data> {
    (any::<u32>(), pipe_length()).prop_map(|(tag, len)| Data::Tagged { tag, at: 0, len }).boxed()
}

/// Generates capacities of pipes.
pub fn pipe_size() -> BoxedStrategy<u32> {
    select(vec![0u32, 1, 4096, 4097, 8192, 16_384, 65_536, 100_000, 1 << 20]).boxed()
}

/// Generates offsets: small ones, around pages, and up to the end of 64 bits.
pub fn offset() -> BoxedStrategy<u64> {
    let far = select(vec![
        (1u64 << 32) - 3,
        (1 << 40) + 5,
        1 << 62,
        i64::MAX as u64 - 4096,
        i64::MAX as u64 - 10,
        i64::MAX as u64,
        1 << 63,
        u64::MAX - 5,
        u64::MAX,
    ]);
    prop_oneof![
        6 => 0u64..300,
        4 => select(vec![0u64, 4095, 4096, 4097, 8191, 8192, 12_288, 65_536]),
        4 => 0u64..40_000,
        1 => far,
    ]
    .boxed()
}

/// Generates sizes for truncation and extension.
pub fn file_size() -> BoxedStrategy<u64> {
    prop_oneof![5 => 0u64..300, 5 => 0u64..30_000, 2 => offset()].boxed()
}

/// Generates modes of `fallocate`, valid ones first. tmpfs has no `ZERO_RANGE`; the oracle emulates
/// it.
pub fn falloc_mode() -> BoxedStrategy<u32> {
    prop_oneof![
        5 => Just(0u32), 4 => Just(1), 5 => Just(3), 3 => Just(16), 2 => Just(17), 2 => 0u32..128,
    ]
    .boxed()
}

/// Generates the mode of a node, with its type.
pub fn node_mode() -> BoxedStrategy<u32> {
    let kind = select(vec![
        libc::S_IFREG,
        0,
        libc::S_IFIFO,
        libc::S_IFSOCK,
        libc::S_IFCHR,
        libc::S_IFBLK,
        libc::S_IFDIR,
        libc::S_IFLNK,
        0o110_000,
    ]);
    (kind, mode()).prop_map(|(kind, mode)| kind | mode & 0o7777).boxed()
}

/// Generates device numbers that no driver serves; zero is overlayfs's whiteout.
pub fn device() -> BoxedStrategy<u64> {
    select(vec![libc::makedev(511, 7), libc::makedev(300, 70_000), 0]).boxed()
}

/// Generates an owner or a group.
pub fn id() -> BoxedStrategy<Option<u32>> {
    select(vec![None, Some(0), Some(1000), Some(1001), Some(100), Some(u32::MAX - 1)]).boxed()
}

/// Generates a time. Explicit times are far from the present, so they can be distinguished from it.
pub fn time() -> BoxedStrategy<Time> {
    select(vec![
        Time::At(1_000_000_000, 123_456_789),
        Time::At(5_000_000_000, 1),
        Time::At(-1, 999_999_999),
        Time::At(0, 0),
        Time::Now,
        Time::Now,
        Time::Omit,
    ])
    .boxed()
}

/// Generates the options of a mount.
pub fn mount_flags() -> BoxedStrategy<u32> {
    // `ro`, `nosuid`, `nodev`, `noexec`, `nosymfollow`, `noatime`, `nodiratime`, `strictatime`.
    select(vec![0u32, 0, 1, 1, 2, 4, 8, 256, 1024, 1025, 2048, 1 << 24, 1 | 8, 2048 | 1 << 24])
        .boxed()
}

/// Generates umasks.
pub fn umask() -> BoxedStrategy<u32> {
    select(vec![0u32, 0o022, 0o077, 0o777, 0o027, 0o7777]).boxed()
}

/// Generates attribute names, of every name space and of none.
pub fn xattr_name() -> BoxedStrategy<PathArg> {
    let odd = select(vec![
        PathArg::from("user."),
        PathArg::from("trusted."),
        PathArg::from("security."),
        PathArg::from("system.x"),
        PathArg::from("nodot"),
        PathArg::from(""),
        PathArg::from("other.a"),
        PathArg(format!("user.{}", "n".repeat(250)).into_bytes()),
        PathArg(format!("user.{}", "n".repeat(251)).into_bytes()),
    ]);
    let usual = select(vec![
        PathArg::from("user.a"),
        PathArg::from("user.a"),
        PathArg::from("user.a"),
        PathArg::from("user.b"),
        PathArg::from("trusted.a"),
        PathArg::from("security.a"),
        PathArg::from("security.capability"),
    ]);
    prop_oneof![14 => usual, 4 => acl_name(), 2 => odd].boxed()
}

/// Generates the names of the two ACLs.
pub fn acl_name() -> BoxedStrategy<PathArg> {
    let names = ["system.posix_acl_access", "system.posix_acl_default"];
    select(names.map(PathArg::from).to_vec()).boxed()
}

/// A file capability attribute: version 2, effective, `CAP_NET_RAW`.
const FILE_CAPS: &[u8] = &[1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Generates attribute values, seldom too large.
pub fn xattr_value() -> BoxedStrategy<Vec<u8>> {
    prop_oneof![
        4 => Just(b"x".to_vec()),
        2 => Just(Vec::new()),
        2 => (0usize..400).prop_map(|n| vec![b'v'; n]),
        1 => select(vec![vec![1; 65_536], vec![1; 65_537]]),
        2 => acl(),
        1 => Just(FILE_CAPS.to_vec()),
    ]
    .boxed()
}

/// Generates an ACL as an attribute value, mostly a valid one.
pub fn acl() -> BoxedStrategy<Vec<u8>> {
    let perm = || 0u16..8;
    let users = proptest::sample::subsequence(vec![1000u32, 1001], 0..=2);
    let groups = proptest::sample::subsequence(vec![100u32, 1000, 1001], 0..=3);
    let perms = [(); 9].map(|()| perm());
    let flaw = prop_oneof![12 => Just(0u8), 1 => 1u8..9];
    (users, groups, perms, prop::bool::weighted(0.5), flaw)
        .prop_map(|(users, groups, perms, mask, flaw)| {
            let mut entries = vec![(1u16, perms[0], u32::MAX)];
            entries.extend(users.iter().zip(&perms[1..]).map(|(id, p)| (2, *p, *id)));
            entries.push((4, perms[3], u32::MAX));
            entries.extend(groups.iter().zip(&perms[4..]).map(|(id, p)| (8, *p, *id)));
            let named = !users.is_empty() || !groups.is_empty();
            if named || mask {
                entries.push((0x10, perms[7], u32::MAX));
            }
            entries.push((0x20, perms[8], u32::MAX));
            encode_acl(entries, flaw)
        })
        .boxed()
}

/// Encodes the entries, with a mistake if `flaw` is not 0.
fn encode_acl(mut entries: Vec<(u16, u16, u32)>, flaw: u8) -> Vec<u8> {
    match flaw {
        1 => entries.reverse(),
        2 => entries.push((0x20, 4, u32::MAX)),
        3 => drop(entries.remove(0)),
        4 => entries[0].1 = 9,
        5 => entries.clear(),
        8 => entries.retain(|(tag, ..)| *tag != 0x10),
        _ => {}
    }
    let version: u32 = if flaw == 6 { 1 } else { 2 };
    let mut bytes = version.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    if flaw == 7 {
        bytes.truncate(bytes.len() - 3);
    }
    bytes
}
