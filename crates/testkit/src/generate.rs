//! Random sequences: a short optional set-up, and calls that mostly have an effect.
//!
//! Proptest shrinks towards the first alternative, so the simplest one is first.

use std::collections::VecDeque;
use std::str::FromStr;

use proptest::prelude::prop::strategy::{Union, ValueTree};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::calls::op::{
    CWD, Data, FS_APPEND, FS_COMPRESSED, FS_GUARDS, FS_IMMUTABLE, FS_INHERITS_PROJECT, FS_NOATIME,
    FS_NODUMP, LockKind, LockRange, Op, Probe, Seek, Step,
};
use crate::calls::users::USERS;
use crate::world::TASKS;

pub mod compounds;
pub mod pools;

use pools::*;

/// The files that a sequence is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// Files of every type, by many names.
    #[default]
    Files,
    /// Pipes and one fifo. Their states show only in many calls on few of them.
    Pipes,
    /// The locks of one file, which several open files of each task have.
    Locks,
}

impl FromStr for Focus {
    type Err = String;

    fn from_str(text: &str) -> Result<Focus, String> {
        match text {
            "files" => Ok(Focus::Files),
            "pipes" => Ok(Focus::Pipes),
            "locks" => Ok(Focus::Locks),
            _ => Err(format!("`{text}`: write files, pipes or locks")),
        }
    }
}

/// Shape of sequences.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Maximum number of calls after the set-up.
    pub steps_max: usize,
    /// The files that they are about.
    pub focus: Focus,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { steps_max: 300, focus: Focus::Files }
    }
}

/// A sequence, with proptest's state to simplify each of its steps.
pub struct Candidate {
    /// The steps.
    pub steps: Vec<Step>,
    /// The value tree of each step; set-up steps are already as simple as possible.
    pub trees: Vec<Option<Box<dyn ValueTree<Value = Step>>>>,
}

/// Maximum number of binds of shared mounts and of copies of the tree in a sequence. Each can
/// double the number of mounts, and more would occupy the kernel for minutes.
const DOUBLINGS_MAX: u32 = 10;

/// Number of calls after which a sequence takes the flags back that it has set: most calls on an
/// immutable file fail.
const GUARDED_CALLS: usize = 6;

/// Returns the step that takes flags back if `step` makes a file immutable or append-only.
fn taken_back(step: &Step) -> Option<Step> {
    match step.op {
        Op::SetInodeFlags { fd, flags } if flags & FS_GUARDS != 0 => {
            Some(Step { op: Op::SetInodeFlags { fd, flags: 0 }, probe: None, ..*step })
        }
        _ => None,
    }
}

/// Generator of sequences.
pub struct Sequences {
    step: BoxedStrategy<Step>,
    /// Strategy of calls that mostly change mounts.
    mounting: BoxedStrategy<Step>,
    shape: Shape,
}

impl Sequences {
    /// Creates a generator for sequences of the given shape.
    pub fn new(shape: Shape) -> Sequences {
        let usual = match shape.focus {
            Focus::Files => op(),
            Focus::Pipes => pipe_op(),
            Focus::Locks => lock_op(),
        };
        let step_of = |op| step(op).boxed();
        let mounting = if shape.focus == Focus::Files { mounting_op() } else { usual.clone() };
        Sequences { step: step_of(usual), mounting: step_of(mounting), shape }
    }

    /// Generates the sequence with this number among the sequences of `seed`.
    pub fn get(&self, seed: u64, number: u64) -> Candidate {
        let mut bytes = [0u8; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        // One sequence in five omits some of the set-up.
        let whole = rng.random_bool(0.8);
        let set_up = match self.shape.focus {
            Focus::Files => set_up(),
            Focus::Pipes => pipe_set_up(),
            Focus::Locks => lock_set_up(),
        };
        let mut steps: Vec<_> = set_up.into_iter().map(tame).collect();
        steps.retain(|_| whole || rng.random_bool(0.7));
        let mut trees: Vec<_> = steps.iter().map(|_| None).collect();
        let kind = if rng.random_bool(0.25) { &self.mounting } else { &self.step };
        let count = rng.random_range(1..=self.shape.steps_max);
        let config = Config { failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, rng);
        let mut doublings = 0;
        let mut due = VecDeque::new();
        for number in 0..count {
            while let Some((_, step)) = due.pop_front_if(|(at, _)| *at <= number) {
                steps.push(step);
                trees.push(None);
            }
            // None of the strategies filters, so none can run out of attempts.
            let Ok(tree) = kind.new_tree(&mut runner) else { continue };
            let step = tame(tree.current());
            doublings += u32::from(matches!(step.op, Op::Bind { .. } | Op::Unshare { .. }));
            if doublings <= DOUBLINGS_MAX {
                due.extend(taken_back(&step).map(|step| (number + GUARDED_CALLS, step)));
                steps.push(step);
                trees.push(Some(tree));
            }
        }
        Candidate { steps, trees }
    }
}

/// Removes the sticky bit from directory modes, if the kernel does not follow foreign links in
/// sticky directories (the sysctl `protected_symlinks`). vfscale has no sysctls, and follows them.
pub(crate) fn tame(mut step: Step) -> Step {
    if let Op::Mkdir { mode, .. } | Op::Chmod { mode, .. } = &mut step.op
        && crate::world::sys::sysctl("protected_symlinks")
    {
        *mode &= !0o1000;
    }
    step
}

/// `u::rwx,u:1001:rw-,g::r-x,m::rwx,o::r--`, encoded as an attribute value.
const DEFAULT_ACL: &[u8] = b"\x02\0\0\0\
    \x01\0\x07\0\xff\xff\xff\xff\
    \x02\0\x06\0\xe9\x03\0\0\
    \x04\0\x05\0\xff\xff\xff\xff\
    \x10\0\x07\0\xff\xff\xff\xff\
    \x20\0\x04\0\xff\xff\xff\xff";

/// Returns the set-up: a small tree, a user for each task, and a few descriptors, the first of a
/// directory.
fn set_up() -> Vec<Step> {
    let by = |task, op| Step { task, op, probe: None };
    let root = |op| by(0, op);
    let mkdir = |path: &str, mode| root(Op::Mkdir { at: CWD, path: path.into(), mode });
    let chmod = |path: &str, mode| root(Op::Chmod { at: CWD, path: path.into(), mode, flags: 0 });
    let open = |task, path: &str, flags: i32, mode| {
        let flags = (flags | libc::O_NONBLOCK) as u32;
        by(task, Op::Open { at: CWD, path: path.into(), flags, mode })
    };
    let create = |task, path: &str, mode| open(task, path, libc::O_RDWR | libc::O_CREAT, mode);
    let symlink = |target: &str, path: &str| {
        root(Op::Symlink { target: target.into(), at: CWD, path: path.into() })
    };
    let xattr = |path: &str, name: &str, value: &[u8]| {
        let (path, name, value) = (path.into(), name.into(), value.to_vec());
        root(Op::Setxattr { at: CWD, path, name, value, how: 0, flags: 0 })
    };
    let write = |task, fd, seed, len| by(task, Op::Write { fd, data: Data::Run { seed, len } });
    vec![
        root(Op::Chmod { at: CWD, path: "/".into(), mode: 0o777, flags: 0 }),
        mkdir("d", 0o777),
        mkdir("e", 0o1777),
        mkdir("d/e", 0o2777),
        mkdir("e/d", 0o777),
        by(1, Op::SetUser { user: 1 }),
        by(2, Op::SetUser { user: 2 }),
        open(0, "/", libc::O_RDONLY, 0),
        open(1, "d", libc::O_RDONLY | libc::O_DIRECTORY, 0),
        open(2, "e", libc::O_RDONLY | libc::O_DIRECTORY, 0),
        create(0, "f", 0o666),
        create(1, "d/g", 0o664),
        create(2, "e/g", 0o600),
        symlink("d", "s"),
        symlink("../f", "d/t"),
        symlink("d/g", "t"),
        write(0, 1, 7, 5000),
        write(1, 1, 9, 100),
        create(1, "d/e/f", 0o6755),
        create(2, "d/f", 0o666),
        root(Op::Mount { path: "/e/d".into(), flags: 0 }),
        chmod("e/d", 0o777),
        create(2, "e/d/f", 0o644),
        xattr("f", "user.a", b"f"),
        xattr("d", "user.a", b"d"),
        xattr("d/g", "trusted.a", b"g"),
        xattr("d", "system.posix_acl_default", DEFAULT_ACL),
        by(1, Op::Chdir { path: "d".into() }),
    ]
}

/// The fifo of sequences on pipes.
const FIFO: &str = "/p";

/// Returns the set-up of a sequence on pipes: a fifo that every user may open, and two users.
fn pipe_set_up() -> Vec<Step> {
    let fifo = Op::Mknod { at: CWD, path: FIFO.into(), mode: libc::S_IFIFO | 0o666, rdev: 0 };
    let user = |user| (user, Op::SetUser { user });
    let steps = [(0, fifo), user(1), user(2)];
    steps.map(|(task, op)| Step { task, op, probe: None }).to_vec()
}

/// Returns the set-up of a sequence on locks: several open files of one file in each task.
fn lock_set_up() -> Vec<Step> {
    let flags = (libc::O_RDWR | libc::O_CREAT) as u32;
    let open = || Op::Open { at: CWD, path: "/f".into(), flags, mode: 0o666 };
    let files = (0..TASKS * 4).map(|n| Step { task: n / 4, op: open(), probe: None });
    files.collect()
}

/// Returns the strategy of a call, given those of its arguments.
macro_rules! call {
    ($call:ident { $($arg:ident: $values:expr),* }) => {
        ($($values,)*).prop_map(|($($arg,)*)| Op::$call { $($arg),* }).boxed()
    };
}

/// Returns the strategy of a call on the attributes of a file, given those of its other arguments.
macro_rules! call_on_source {
    ($call:ident { $($arg:ident: $values:expr),* }) => {
        (source(), $($values,)*)
            .prop_map(|((at, path, flags), $($arg,)*)| Op::$call { at, path, flags, $($arg),* })
            .boxed()
    };
}

fn step(op: BoxedStrategy<Op>) -> impl Strategy<Value = Step> {
    let task = prop_oneof![5 => 0..1usize, 6 => 1..TASKS];
    let probe = prop_oneof![
        197 => Just(None),
        2 => Just(Some(Probe::Past)),
        1 => Just(Some(Probe::Future)),
    ];
    (task, op, probe).prop_map(|(task, op, probe)| Step { task, op, probe })
}

/// Returns the strategy of a call.
pub fn op() -> BoxedStrategy<Op> {
    Union::new_weighted(vec![
        (34, open_calls()),
        (30, data_calls()),
        (10, data_more()),
        (30, name_calls()),
        (24, attribute_calls()),
        (8, xattr_calls()),
        (12, task_calls()),
        (5, mount_calls()),
        (6, lock_calls()),
        (4, flag_calls()),
    ])
    .boxed()
}

/// Returns the strategy of a call that mostly concerns mounts.
fn mounting_op() -> BoxedStrategy<Op> {
    Union::new_weighted(vec![
        (12, mount_calls()),
        (2, name_calls()),
        (2, task_calls()),
        (2, open_calls()),
        (1, attribute_calls()),
        (1, call!(Unshare { into: 0..TASKS })),
    ])
    .boxed()
}

/// Returns the strategy of a call on pipes and the fifo.
fn pipe_op() -> BoxedStrategy<Op> {
    let fd = || 0i32..6;
    let flags = |access: std::ops::Range<u32>, direct| {
        (access, prop::bool::weighted(direct)).prop_map(|(access, direct)| {
            let direct = if direct { libc::O_DIRECT } else { 0 };
            access | (direct | libc::O_NONBLOCK) as u32
        })
    };
    let open = call!(Open {
        at: Just(CWD),
        path: Just(FIFO.into()),
        flags: flags(0..4, 0.1),
        mode: Just(0)
    });
    let lens = prop::collection::vec(pipe_length(), 0..4);
    let parts = prop::collection::vec(pipe_data(), 0..4);
    let stat = call!(Stat {
        at: fd(),
        path: Just(Default::default()),
        flags: Just(libc::AT_EMPTY_PATH as u32)
    });
    Union::new_weighted(vec![
        (4, call!(Pipe { flags: flags(0..1, 0.2) })),
        (6, open),
        (2, call!(Reopen { fd: fd(), flags: flags(0..4, 0.0) })),
        (1, call!(Dup { fd: fd() })),
        (1, call!(Fork { into: 0..TASKS })),
        (7, call!(Close { fd: 0i32..10 })),
        (13, call!(Read { fd: fd(), len: pipe_length() })),
        (3, call!(Readv { fd: fd(), lens: lens, off: Just(None) })),
        (16, call!(Write { fd: fd(), data: pipe_data() })),
        (4, call!(Writev { fd: fd(), parts: parts, off: Just(None) })),
        (2, call!(SetFlags { fd: fd(), flags: flags(0..1, 0.5) })),
        (1, call!(GetFlags { fd: fd() })),
        (2, call!(SetPipeSize { fd: fd(), bytes: pipe_size() })),
        (1, call!(PipeSize { fd: fd() })),
        (1, stat),
        (1, misplaced_call()),
    ])
    .boxed()
}

/// Returns the strategy of a call on the locks of a file.
fn lock_op() -> BoxedStrategy<Op> {
    let open =
        call!(Open { at: Just(CWD), path: Just("/f".into()), flags: 0u32..3, mode: Just(0) });
    Union::new_weighted(vec![
        (40, lock_calls()),
        (1, open),
        (1, call!(Dup { fd: fd() })),
        (1, call!(Close { fd: fd() })),
        (1, call!(Fork { into: 0..TASKS })),
    ])
    .boxed()
}

/// Returns the strategy of a call that does not apply to a pipe.
fn misplaced_call() -> BoxedStrategy<Op> {
    let fd = || 0i32..6;
    let data = Data::Run { seed: 0, len: 4 };
    prop_oneof![
        call!(Lseek { fd: fd(), whence: Just(Seek::Set), off: 0i64..2 }),
        call!(Lseek { fd: fd(), whence: Just(Seek::Cur), off: 0i64..2 }),
        call!(Pread { fd: fd(), len: Just(4), off: Just(0) }),
        call!(Pwrite { fd: fd(), data: Just(data), off: Just(0) }),
        call!(Readv { fd: fd(), lens: Just(Vec::new()), off: Just(Some(0)) }),
        call!(Ftruncate { fd: fd(), len: Just(1) }),
        call!(Fallocate { fd: fd(), mode: Just(0), off: Just(0), len: Just(1) }),
        call!(Fsync { fd: fd(), data_only: any::<bool>() }),
    ]
    .boxed()
}

fn open_calls() -> BoxedStrategy<Op> {
    let openat =
        call!(Open { at: at(), path: path(Kind::File), flags: open_flags(), mode: mode() });
    let opendir = (at(), path(Kind::Dir), prop_oneof![Just(0), Just(libc::O_PATH as u32)])
        .prop_map(|(at, path, flags)| {
            let flags = flags | (libc::O_DIRECTORY | libc::O_RDONLY) as u32;
            Op::Open { at, path, flags, mode: 0 }
        });
    let open_any =
        call!(Open { at: at(), path: path(Kind::Any), flags: open_flags(), mode: mode() });
    let openat2 = (at(), path(Kind::Any), open_flags(), mode(), resolve(), any::<bool>()).prop_map(
        |(at, path, flags, mode, resolve, keep)| {
            let creates = flags as i32 & libc::O_CREAT != 0
                || flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
            let mode = if creates { mode & 0o7777 } else { 0 };
            // Two flag sets in three are valid, so the walk is reached.
            let flags = if keep { flags } else { flags & !(libc::O_DIRECT as u32) };
            Op::Openat2 { at, path, flags: flags.into(), mode: mode.into(), resolve }
        },
    );
    let odd_openat2 = (at(), path(Kind::File), open_flags(), mode(), odd_resolve(), any::<u8>())
        .prop_map(|(at, path, flags, mode, resolve, bit)| {
            let bit = if bit < 128 { 1u64 << (bit % 64) } else { 0 };
            let nonblock = libc::O_NONBLOCK as u64;
            let flags = (u64::from(flags) ^ bit) | nonblock;
            Op::Openat2 { at, path, flags, mode: mode.into(), resolve }
        });
    let reopen_flags = prop_oneof![
        Just(libc::O_RDWR),
        Just(libc::O_RDONLY),
        Just(libc::O_WRONLY | libc::O_TRUNC),
        Just(libc::O_RDONLY | libc::O_DIRECTORY),
        Just(libc::O_RDWR | libc::O_APPEND),
        Just(libc::O_PATH),
    ];
    let reopen = (fd(), reopen_flags).prop_map(|(fd, flags)| {
        let wait = if flags == libc::O_PATH { 0 } else { libc::O_NONBLOCK };
        Op::Reopen { fd, flags: (flags | wait) as u32 }
    });
    Union::new_weighted(vec![
        (10, openat),
        (4, opendir.boxed()),
        (4, open_any),
        (5, openat2.boxed()),
        (1, odd_openat2.boxed()),
        (2, reopen.boxed()),
        (4, call!(Close { fd: fd() })),
    ])
    .boxed()
}

fn data_calls() -> BoxedStrategy<Op> {
    let vec_lens = prop::collection::vec(length(), 0..4);
    let parts = prop::collection::vec(data(), 0..4);
    let vec_off = || prop::option::of(offset());
    Union::new_weighted(vec![
        (6, call!(Write { fd: fd(), data: data() })),
        (5, call!(Read { fd: fd(), len: length() })),
        (5, call!(Pwrite { fd: fd(), data: data(), off: offset() })),
        (4, call!(Pread { fd: fd(), len: length(), off: offset() })),
        (2, call!(Readv { fd: fd(), lens: vec_lens, off: vec_off() })),
        (2, call!(Writev { fd: fd(), parts: parts, off: vec_off() })),
        (6, lseek().boxed()),
        (6, call!(ReadDir { fd: dir_fd() })),
    ])
    .boxed()
}

fn lseek() -> impl Strategy<Value = Op> {
    let whence = prop_oneof![
        Just(Seek::Set),
        Just(Seek::Cur),
        Just(Seek::End),
        Just(Seek::Data),
        Just(Seek::Hole)
    ];
    let off = prop_oneof![3 => offset().prop_map(|off| off as i64), 1 => -9000i64..10];
    call!(Lseek { fd: fd(), whence: whence, off: off })
}

fn data_more() -> BoxedStrategy<Op> {
    let fallocate_len = prop_oneof![20 => 0u64..70_000, 1 => Just(1u64 << 41), 1 => Just(u64::MAX)];
    let copy_off = || prop::option::of(offset());
    Union::new_weighted(vec![
        (4, call!(Ftruncate { fd: fd(), len: file_size() })),
        (3, call!(Truncate { path: path(Kind::File), len: file_size() })),
        (4, call!(Fallocate { fd: fd(), mode: falloc_mode(), off: offset(), len: fallocate_len })),
        (
            4,
            call!(CopyRange {
                from: fd(),
                off_in: copy_off(),
                to: fd(),
                off_out: copy_off(),
                len: 0u64..30_000
            }),
        ),
        (2, call!(Fsync { fd: fd(), data_only: any::<bool>() })),
    ])
    .boxed()
}

fn name_calls() -> BoxedStrategy<Op> {
    let mkdir = call!(Mkdir { at: at(), path: new_path(Kind::Dir), mode: mode() });
    let mknod =
        call!(Mknod { at: at(), path: new_path(Kind::File), mode: node_mode(), rdev: device() });
    let unlink = (at(), path(Kind::File)).prop_map(|(at, path)| Op::Unlink { at, path, flags: 0 });
    let rmdir = (at(), path(Kind::Dir)).prop_map(|(at, path)| {
        let flags = libc::AT_REMOVEDIR as u32;
        Op::Unlink { at, path, flags }
    });
    let unlink_any = call!(Unlink {
        at: at(),
        path: path(Kind::Any),
        flags: prop_oneof![Just(0u32), Just(0x200), Just(0x100)]
    });
    let file = path(Kind::File).prop_map(|path| (CWD, path, 0));
    let from = prop_oneof![6 => file, 4 => source()];
    let link = (from, at(), new_path(Kind::File)).prop_map(|((at, path, flags), to_at, to)| {
        // This call needs a flag to follow links.
        let flags = if flags & 0x100 != 0 { flags & !0x100 | 0x400 } else { flags };
        Op::Link { at, path, to_at, to, flags }
    });
    let symlink = call!(Symlink { target: path(Kind::Any), at: at(), path: new_path(Kind::Link) });
    let readlink = call!(Readlink { at: at(), path: path(Kind::Link) });
    let flags = || prop_oneof![20 => Just(0u32), 3 => Just(1), 4 => Just(2), 3 => Just(4), 1 => select(vec![3u32, 5, 6, 8, 9, 16])];
    let renames = |from, to| {
        call!(Rename {
            at: at(),
            path: path(from),
            to_at: at(),
            to: prop_oneof![path(to), new_path(to)],
            flags: flags()
        })
    };
    Union::new_weighted(vec![
        (5, mkdir),
        (4, mknod),
        (3, unlink.boxed()),
        (2, rmdir.boxed()),
        (2, unlink_any),
        (4, link.boxed()),
        (4, symlink),
        (3, readlink),
        (3, renames(Kind::File, Kind::File)),
        (3, renames(Kind::Dir, Kind::Dir)),
        (3, renames(Kind::Any, Kind::Any)),
    ])
    .boxed()
}

fn attribute_calls() -> BoxedStrategy<Op> {
    let access = (source(), 0u32..9, prop_oneof![Just(0u32), Just(0x200)]).prop_map(
        |((at, path, flags), mode, more)| Op::Access { at, path, mode, flags: flags | more },
    );
    let statfs = prop_oneof![
        path(Kind::Any).prop_map(|path| Op::Statfs { at: CWD, path }),
        (-1i32..6).prop_map(|at| Op::Statfs { at, path: Default::default() }),
    ];
    let save = (source(), 0usize..2).prop_map(|((at, path, flags), slot)| {
        let flags = if flags & 0x100 != 0 { flags & !0x100 | 0x400 } else { flags & !1 };
        Op::SaveHandle { at, path, flags, slot }
    });
    let mount = dir_fd().prop_map(|fd| fd.max(-1));
    let open_handle = (mount, 0usize..2, open_flags()).prop_map(|(mount, slot, flags)| {
        let creates = (libc::O_CREAT | libc::O_TMPFILE | libc::O_EXCL) as u32;
        let keep = flags & !(creates & !(libc::O_DIRECTORY as u32));
        Op::OpenHandle { mount, slot, flags: keep }
    });
    Union::new_weighted(vec![
        (6, call_on_source!(Stat {})),
        (5, access.boxed()),
        (5, call_on_source!(Chmod { mode: mode() })),
        (5, call_on_source!(Chown { uid: id(), gid: id() })),
        (6, call_on_source!(Utimens { atime: time(), mtime: time() })),
        (1, statfs.boxed()),
        (2, save.boxed()),
        (2, open_handle.boxed()),
    ])
    .boxed()
}

fn xattr_calls() -> BoxedStrategy<Op> {
    let how = prop_oneof![8 => Just(0u32), 3 => 0u32..5];
    let set = call_on_source!(Setxattr { name: xattr_name(), value: xattr_value(), how: how });
    Union::new_weighted(vec![
        (4, set),
        (4, call_on_source!(Setxattr { name: acl_name(), value: acl(), how: Just(0) })),
        (3, call_on_source!(Getxattr { name: xattr_name() })),
        (2, call_on_source!(Listxattr {})),
        (2, call_on_source!(Removexattr { name: xattr_name() })),
    ])
    .boxed()
}

/// Returns the strategy of a call on the flags of an inode. A volume has flags that tmpfs lacks
/// (`SYNC`, `DIRSYNC`), which are left out.
fn flag_calls() -> BoxedStrategy<Op> {
    let guards = vec![FS_IMMUTABLE, FS_APPEND, FS_IMMUTABLE | FS_APPEND, FS_APPEND | FS_NODUMP];
    let flags = prop_oneof![
        6 => Just(0),
        3 => select(vec![FS_NODUMP, FS_NOATIME, FS_NODUMP | FS_NOATIME]),
        4 => select(guards),
        1 => select(vec![FS_COMPRESSED, FS_COMPRESSED | FS_NODUMP, FS_INHERITS_PROJECT]),
    ];
    let file = || prop_oneof![fd(), dir_fd()];
    Union::new_weighted(vec![
        (2, call!(SetInodeFlags { fd: file(), flags: flags })),
        (1, call!(GetInodeFlags { fd: file() })),
    ])
    .boxed()
}

fn task_calls() -> BoxedStrategy<Op> {
    let setfl = (fd(), any::<[bool; 3]>()).prop_map(|(fd, [append, noatime, more])| {
        let flag = |on: bool, bit: i32| if on { bit as u32 } else { 0 };
        let flags = flag(append, libc::O_APPEND) | flag(noatime, libc::O_NOATIME);
        let more = flag(more, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC);
        Op::SetFlags { fd, flags: flags | more | libc::O_NONBLOCK as u32 }
    });
    let dup_to = || prop_oneof![8 => 0i32..8, 1 => Just(-1), 1 => Just(20)];
    let dup3_flags = prop_oneof![Just(0u32), Just(libc::O_CLOEXEC as u32), Just(4u32)];
    Union::new_weighted(vec![
        (4, call!(Chdir { path: path(Kind::Dir) })),
        (3, call!(Fchdir { fd: dir_fd() })),
        (1, call!(Chroot { path: path(Kind::Dir) })),
        (3, Just(Op::Getcwd {}).boxed()),
        (3, call!(PathOf { fd: fd() })),
        (2, call!(Umask { mode: umask() })),
        (
            4,
            prop_oneof![1 => Just(0), 2 => 0..USERS.len()]
                .prop_map(|user| Op::SetUser { user })
                .boxed(),
        ),
        (1, call!(Fork { into: 0..TASKS })),
        (2, call!(Dup { fd: fd() })),
        (2, call!(Dup2 { fd: fd(), to: dup_to() })),
        (1, call!(Dup3 { fd: fd(), to: dup_to(), flags: dup3_flags })),
        (1, call!(DupFrom { fd: fd(), min: dup_to(), cloexec: any::<bool>() })),
        (1, call!(GetCloexec { fd: fd() })),
        (1, call!(SetCloexec { fd: fd(), on: any::<bool>() })),
        (2, call!(GetFlags { fd: fd() })),
        (2, setfl.boxed()),
    ])
    .boxed()
}

fn mount_calls() -> BoxedStrategy<Op> {
    let bind =
        call!(Bind { source: mount_point(), target: mount_point(), recursive: any::<bool>() });
    let bind_file = (path(Kind::File), path(Kind::File)).prop_map(|(source, target)| Op::Bind {
        source,
        target,
        recursive: false,
    });
    let move_mount = call!(MoveMount { source: mount_point(), target: mount_point() });
    let kinds = select(vec![libc::MS_SHARED, libc::MS_SHARED, libc::MS_SLAVE, libc::MS_PRIVATE])
        .prop_map(|kind| kind as u32);
    let kinds = prop_oneof![8 => kinds, 1 => Just(libc::MS_UNBINDABLE as u32)];
    let place = prop_oneof![3 => mount_point(), 1 => Just("/".into())];
    let sharing = (place, kinds, any::<bool>()).prop_map(|(path, flags, recursive)| {
        let flags = if recursive { flags | libc::MS_REC as u32 } else { flags };
        Op::SetPropagation { path, flags }
    });
    let umount_flags = prop_oneof![4 => Just(0u32), 4 => Just(2), 1 => Just(8), 1 => 0u32..18];
    let umount = call!(Umount { path: mount_point(), flags: umount_flags });
    Union::new_weighted(vec![
        (4, call!(Mount { path: mount_point(), flags: mount_flags() })),
        (4, bind),
        (1, bind_file.boxed()),
        (2, move_mount),
        (6, umount),
        (5, sharing.boxed()),
        (1, Just(Op::Mounts {}).boxed()),
        (2, call!(Remount { path: mount_point(), flags: mount_flags() })),
        (3, call!(RemountBind { path: mount_point(), flags: mount_flags() })),
    ])
    .boxed()
}

fn lock_calls() -> BoxedStrategy<Op> {
    let kind = || prop_oneof![Just(LockKind::Read), Just(LockKind::Write), Just(LockKind::Unlock)];
    let asked = || prop_oneof![Just(LockKind::Read), Just(LockKind::Write)];
    let start = prop_oneof![6 => 0i64..30, 1 => Just(i64::MAX - 5), 1 => -3i64..0];
    let len = prop_oneof![6 => 0i64..20, 1 => -20i64..0, 1 => Just(i64::MAX)];
    let range = (start, len).prop_map(|(start, len)| LockRange { start, len }).boxed();
    Union::new_weighted(vec![
        (3, call!(Flock { fd: fd(), kind: kind() })),
        (5, call!(Lock { fd: fd(), ofd: any::<bool>(), kind: kind(), range: range.clone() })),
        (3, call!(GetLock { fd: fd(), ofd: any::<bool>(), kind: asked(), range: range })),
    ])
    .boxed()
}
