use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use vfscale_sync::rcu;
use vfscale_vfs::{
    At, AtFlags, File, Mode, MountFlags, OFlags, RenameFlags, Task, UmountFlags, Vfs, Whence,
    XattrFlags,
};

use super::*;

const MIB: u64 = 1 << 20;
const RW: Mode = Mode::from_bits_retain(0o644);

fn mounted(builder: MemFsBuilder) -> (Arc<MemFs>, Task) {
    let fs = builder.build();
    let task = Vfs::new(fs.clone()).unwrap().task();
    (fs, task)
}

fn of_size(bytes: u64) -> (Arc<MemFs>, Task) {
    mounted(MemFs::builder().size(bytes))
}

fn create(task: &Task, path: &str) -> vfscale_vfs::Result<File> {
    task.posix().open(path, OFlags::RDWR | OFlags::CREATE, RW)
}

fn unlink(task: &Task, path: &str) {
    task.remove_file(path).unwrap();
}

fn statfs(task: &Task) -> StatFs {
    task.posix().statfs(At::Cwd, "/").unwrap()
}

fn blocks(file: &File) -> u64 {
    file.stat().unwrap().blocks
}

fn errno<T>(result: vfscale_vfs::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

#[test]
fn an_empty_file_of_any_size_has_no_data() {
    let (fs, task) = of_size(MIB);
    let file = create(&task, "/a").unwrap();
    let used = fs.used_bytes();
    file.truncate(1 << 62).unwrap();
    let mut buf = [0xff; 3];
    assert_eq!(file.pread(&mut buf, 1 << 61).unwrap(), 3);
    assert_eq!(buf, [0; 3]);
    assert_eq!((fs.used_bytes(), blocks(&file)), (used, 0));
    assert_eq!(errno(file.seek(Whence::Data(0))), Some(Errno::NXIO));
    assert_eq!(file.seek(Whence::Hole(5)).unwrap(), 5);
    assert_eq!(errno(file.seek(Whence::Hole(1 << 62))), Some(Errno::NXIO));
}

#[test]
fn a_write_that_finds_some_room_is_short() {
    let (fs, task) = of_size(MIB);
    let file = create(&task, "/a").unwrap();
    let data: Vec<u8> = (0..2 * MIB).map(|n| n as u8).collect();
    let n = file.pwrite(&data, 0).unwrap();
    assert!((900_000..MIB as usize).contains(&n), "{n}");
    assert_eq!(file.stat().unwrap().size, n as u64);
    assert_eq!(errno(file.pwrite(b"x", n as u64)), Some(Errno::NOSPC));
    assert_eq!(errno(create(&task, "/b")).or(Some(Errno::NOSPC)), Some(Errno::NOSPC));
    let mut back = vec![0; n + 1];
    assert_eq!(file.pread(&mut back, 0).unwrap(), n);
    assert_eq!(back[..n], data[..n]);
    assert_eq!(file.stat().unwrap().size, n as u64, "a failure changes nothing");
    let free = statfs(&task).blocks_free;
    assert!(free <= 1, "{free} blocks are free");
    file.truncate(0).unwrap();
    assert!(fs.used_bytes() < 4096);
    assert_eq!(file.pwrite(&data[..n], 0).unwrap(), n);
}

#[test]
fn calls_without_space_fail_and_charge_nothing() {
    let (fs, task) = of_size(64 << 10);
    let file = create(&task, "/file").unwrap();
    let mut made = 0;
    while errno(create(&task, &format!("/{made}"))).is_none() {
        made += 1;
    }
    assert!(made > 100);
    let used = fs.used_bytes();
    assert!(used > (64 << 10) - 512);
    let long = format!("/{}", "l".repeat(255));
    let none = AtFlags::empty();
    let full = [
        errno(create(&task, "/another")),
        errno(task.create_dir("/dir")),
        errno(task.symlink("target".repeat(100), "/link")),
        errno(task.posix().linkat(At::Cwd, "/file", At::Cwd, "/name", none)),
        errno(task.rename("/file", &long)),
        errno(task.posix().setxattrat(
            At::Cwd,
            "/file",
            "user.a",
            &[0; 1000],
            XattrFlags::empty(),
            none,
        )),
        errno(file.write(b"x")),
        errno(file.fallocate(FallocateFlags::empty(), 0, 4096)),
        errno(file.fallocate(FallocateFlags::ZERO_RANGE, 0, 4096)),
    ];
    assert_eq!(full, [Some(Errno::NOSPC); 9]);
    // A file that was about to get attributes may retain the space for their header.
    assert!(fs.used_bytes() - used <= 1024);
    // Names can always be exchanged, renamed to names of their length, and removed.
    task.rename("/file", "/fil2").unwrap();
    task.posix().renameat2(At::Cwd, "/fil2", At::Cwd, "/0", RenameFlags::EXCHANGE).unwrap();
    unlink(&task, "/0");
    drop(file);
    create(&task, "/0").unwrap();
}

#[test]
fn the_end_of_the_mount_gives_everything_back() {
    let (_, task) = of_size(MIB);
    task.create_dir("/mnt").unwrap();
    let fs = MemFs::builder().size(MIB).build();
    task.posix().mount(fs.clone(), "/mnt", MountFlags::empty()).unwrap();
    assert_eq!(errno(task.posix().mount(fs.clone(), "/", MountFlags::empty())), Some(Errno::BUSY));
    task.create_dir("/mnt/dir").unwrap();
    for n in 0..100 {
        let path = format!("/mnt/dir/{}", "n".repeat(n + 1));
        create(&task, &path).unwrap().write(&[1; 5_000]).unwrap();
    }
    assert!(fs.used_bytes() > 800_000);
    task.posix().umount("/mnt", UmountFlags::empty()).unwrap();
    rcu::synchronize();
    assert_eq!(fs.used_bytes(), 0);
}

#[test]
fn statfs_tells_the_truth() {
    let (fs, task) = of_size(8 * MIB);
    let empty = statfs(&task);
    assert_eq!((empty.block_size, empty.blocks, empty.name_max), (4096, 2048, 255));
    assert_eq!(empty.blocks_free, (8 * MIB - fs.used_bytes()) / 4096);
    assert!(empty.blocks_available < empty.blocks_free, "nodes lead to the pages");
    let file = create(&task, "/file").unwrap();
    file.write(&[1; 100 * 4096]).unwrap();
    let after = statfs(&task);
    assert!((100..=102).contains(&(empty.blocks_free - after.blocks_free)));
    // As many files as reported can be created.
    let promised = after.files_free;
    (0..promised).for_each(|n| drop(create(&task, &format!("/{n}")).unwrap()));
    assert_eq!(errno(create(&task, "/more")), Some(Errno::NOSPC));
    assert_eq!(statfs(&task).files_free, 0);
}

/// Checks that one file can use all the space reported as available, and hardly more: reserved, and
/// also written byte by byte.
fn assert_available_can_be_had(task: &Task) {
    let promised = statfs(task).blocks_available;
    let file = create(task, "/promised").unwrap();
    for extra in [0, 2] {
        let len = (promised + extra) * PAGE;
        let done = if len == 0 { Ok(()) } else { file.fallocate(FallocateFlags::empty(), 0, len) };
        assert_eq!(errno(done), (extra > 0).then_some(Errno::NOSPC), "{promised} + {extra}");
        assert!(statfs(task).blocks_available <= 1);
    }
    file.truncate(0).unwrap();
    if promised <= MIB * 64 / PAGE {
        let buf = vec![1; 1 << 18];
        let mut left = promised * PAGE;
        while left > 0 {
            let len = buf.len().min(left as usize);
            file.write_all(&buf[..len]).unwrap();
            left -= len as u64;
        }
    }
    drop(file);
    unlink(task, "/promised");
}

#[test]
fn one_file_can_have_all_available_space() {
    let odd = [10_000, 64 << 10, 300_001, MIB, 7 * MIB + 4097, 64 * MIB + 1, 100 * MIB, 1 << 30];
    for size in odd {
        let (fs, task) = of_size(size);
        assert_available_can_be_had(&task);
        // Programs that check the available space before they write leave half a megabyte.
        if size > MIB {
            let len = statfs(&task).blocks_available * PAGE - (512 << 10);
            let file = create(&task, "/all").unwrap();
            file.fallocate(FallocateFlags::empty(), 0, len).unwrap();
        }
        assert!(fs.used_bytes() <= size);
    }
}

#[test]
fn the_space_left_by_many_small_files_is_available() {
    let (_, task) = of_size(4 * MIB);
    let mut made = 0;
    loop {
        assert_available_can_be_had(&task);
        let before = statfs(&task).blocks_available;
        for n in 0..97 {
            let Ok(file) = create(&task, &format!("/{made}-{n}")) else { break };
            // Files of one page, of several, and of none.
            let bytes = [1, 5000, 0, 4096, 20_000][n % 5];
            let _ = file.write(&vec![1; bytes]);
        }
        made += 1;
        if statfs(&task).blocks_available == 0 {
            break;
        }
        assert!(statfs(&task).blocks_available < before, "{made}");
    }
    assert!(made > 3);
}

#[test]
fn inodes_can_be_limited() {
    let (_, task) = mounted(MemFs::builder().size(MIB).inodes(3));
    assert_eq!((statfs(&task).files, statfs(&task).files_free), (3, 2));
    create(&task, "/a").unwrap();
    create(&task, "/b").unwrap();
    assert_eq!(errno(create(&task, "/c")), Some(Errno::NOSPC));
    // A name is not an inode.
    task.hard_link("/a", "/c").unwrap();
    unlink(&task, "/a");
    assert_eq!(errno(create(&task, "/a")), Some(Errno::NOSPC));
    unlink(&task, "/c");
    assert_eq!(statfs(&task).files_free, 1);
    create(&task, "/a").unwrap();
}

#[test]
fn the_root_is_as_asked_for() {
    let root = |builder: MemFsBuilder| {
        let stat = mounted(builder.size(MIB)).1.metadata("/").unwrap();
        (stat.mode, stat.uid, stat.gid, stat.nlink, stat.ino)
    };
    assert_eq!(root(MemFs::builder()), (0o040_755, 0, 0, 2, 1));
    assert_eq!(root(MemFs::builder().mode(0o1777).owner(7, 8)), (0o041_777, 7, 8, 2, 1));
}

#[test]
fn a_size_without_room_for_a_root_is_no_file_system() {
    assert_eq!(Vfs::new(MemFs::builder().size(100).build()).err(), Some(Errno::NOSPC));
    assert_eq!(Vfs::new(MemFs::builder().inodes(0).build()).err(), Some(Errno::NOSPC));
}

#[test]
fn without_options_it_may_take_half_of_the_memory() {
    let fs = MemFs::builder().build();
    assert_eq!(fs.size_bytes(), machine::memory_bytes() / 2);
    assert!(fs.size_bytes() > 8 * MIB);
}

/// A file that fills most of a small file system is repeatedly written, and removed, truncated,
/// punched or replaced before the next round: space whose memory is still being read must not count
/// as used.
#[test]
fn a_full_file_system_can_be_filled_again_immediately() {
    let (fs, task) = of_size(24 * MIB);
    let data = vec![1; 22 * MIB as usize];
    let file = create(&task, "/kept").unwrap();
    for round in 0..12 {
        let written = (0..).try_fold(0, |done, _| match file.pwrite(&data[done..], done as u64) {
            Ok(n) if done + n == data.len() => Err(None),
            Ok(n) => Ok(done + n),
            Err(error) => Err(Some(error)),
        });
        assert!(matches!(written, Err(None)), "round {round}: {written:?}, {fs:?}");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match round % 3 {
            0 => file.truncate(10).unwrap(),
            1 => file.fallocate(punch, 0, 30 * MIB).unwrap(),
            _ => {
                let size = file.stat().unwrap().size;
                file.truncate(0).unwrap();
                file.fallocate(FallocateFlags::empty(), 0, size).unwrap();
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Create(u8),
    Write(u8, u32, u16),
    Truncate(u8, u32),
    Allocate(u8, u32, u16, u8),
    Link(u8, u8),
    Rename(u8, u8, bool),
    Unlink(u8),
    Xattr(u8, u16),
    Unxattr(u8),
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..6u8;
    prop_oneof![
        name.clone().prop_map(Op::Create),
        (name.clone(), 0..200_000u32, any::<u16>()).prop_map(|(n, o, l)| Op::Write(n, o, l)),
        (name.clone(), 0..200_000u32).prop_map(|(n, s)| Op::Truncate(n, s)),
        (name.clone(), 0..200_000u32, 1..u16::MAX, 0..4u8)
            .prop_map(|(n, o, l, m)| Op::Allocate(n, o, l, m)),
        (name.clone(), name.clone()).prop_map(|(a, b)| Op::Link(a, b)),
        (name.clone(), name.clone(), any::<bool>()).prop_map(|(a, b, x)| Op::Rename(a, b, x)),
        name.clone().prop_map(Op::Unlink),
        (name.clone(), 1..2_000u16).prop_map(|(n, l)| Op::Xattr(n, l)),
        name.prop_map(Op::Unxattr),
    ]
}

/// Returns names of different lengths, some of which don't fit into a dentry.
fn path(name: u8) -> String {
    format!("/{}", "n".repeat(1 + 50 * usize::from(name)))
}

/// Makes the call `op`, which may fail for lack of space or of the file.
fn apply(task: &Task, op: &Op) -> vfscale_vfs::Result<()> {
    let none = AtFlags::empty();
    let open = |name| task.posix().open(path(name), OFlags::RDWR, RW);
    match *op {
        Op::Create(name) => create(task, &path(name)).map(drop),
        Op::Write(name, offset, len) => {
            open(name)?.pwrite(&vec![1; usize::from(len)], offset.into()).map(drop)
        }
        Op::Truncate(name, size) => task.posix().truncate(path(name), size.into()),
        Op::Allocate(name, offset, len, mode) => {
            let mode = match mode {
                0 => FallocateFlags::empty(),
                1 => FallocateFlags::KEEP_SIZE,
                2 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                _ => FallocateFlags::ZERO_RANGE,
            };
            open(name)?.fallocate(mode, offset.into(), len.into())
        }
        Op::Link(old, new) => task.posix().linkat(At::Cwd, path(old), At::Cwd, path(new), none),
        Op::Rename(old, new, exchange) => {
            let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
            task.posix().renameat2(At::Cwd, path(old), At::Cwd, path(new), flags)
        }
        Op::Unlink(name) => task.posix().unlinkat(At::Cwd, path(name), none),
        Op::Xattr(name, len) => {
            let value = vec![1; usize::from(len)];
            task.posix().setxattrat(
                At::Cwd,
                path(name),
                "user.x",
                &value,
                XattrFlags::empty(),
                none,
            )
        }
        Op::Unxattr(name) => task.posix().removexattrat(At::Cwd, path(name), "user.x", none),
    }
}

proptest! {
    /// After any calls, with enough space or too little: when everything is removed, nothing is
    /// charged.
    #[test]
    fn the_account_is_exact(ops in prop::collection::vec(op(), 1..80), plenty in any::<bool>()) {
        let (fs, task) = of_size(if plenty { 64 * MIB } else { 150_000 });
        let used = fs.used_bytes();
        for op in &ops {
            if let Err(error) = apply(&task, op) {
                let expected = [Errno::NOSPC, Errno::NOENT, Errno::EXIST, Errno::NODATA];
                prop_assert!(expected.contains(&error.errno()), "{op:?}: {error}");
                prop_assert!(!plenty || error.errno() != Errno::NOSPC, "{op:?}: {error}");
            }
            prop_assert!(fs.used_bytes() <= fs.size_bytes());
        }
        for name in 0..6 {
            let _ = task.remove_file(path(name));
        }
        prop_assert_eq!(fs.used_bytes(), used);
        let free = statfs(&task);
        prop_assert_eq!(free.blocks_free, (fs.size_bytes() - used) / PAGE);
    }
}

/// One thread appends records and truncates the file occasionally. Readers at any offset find whole
/// records or zeros, and never bytes beyond the size.
#[test]
fn readers_see_records_or_zeros_while_the_file_is_cut() {
    const RECORD: u64 = 1_000;
    let (fs, task) = of_size(64 * MIB);
    let used = fs.used_bytes();
    let file = create(&task, "/log").unwrap();
    let done = AtomicBool::new(false);
    let byte = |at: u64| (at % 199) as u8 + 1;
    std::thread::scope(|scope| {
        for reader in 0..2u64 {
            let (file, done) = (file.clone(), &done);
            scope.spawn(move || {
                let mut buf = vec![0; 10_000];
                let mut at = reader;
                while !done.load(Ordering::Relaxed) {
                    at = (at * 1_103_515_245 + 12_345) % (400 * RECORD);
                    let n = file.pread(&mut buf, at).unwrap();
                    for (at, &got) in (at..).zip(&buf[..n]) {
                        assert!(got == 0 || got == byte(at), "{got} at {at}");
                    }
                }
            });
        }
        for round in 0..4_000u64 {
            let at = file.stat().unwrap().size;
            let record: Vec<u8> = (at..at + RECORD).map(byte).collect();
            assert_eq!(file.pwrite(&record, at).unwrap() as u64, RECORD);
            if round % 37 == 36 {
                file.truncate(at / 3).unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    drop(file);
    unlink(&task, "/log");
    assert_eq!(fs.used_bytes(), used);
}

/// Threads fill a small file system together and empty it again: the used space is exact in the
/// end.
#[test]
fn space_is_exact_when_threads_compete_for_it() {
    let (fs, task) = of_size(2 * MIB);
    let used = fs.used_bytes();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (task, fs) = (task.fork(), &fs);
            scope.spawn(move || {
                for round in 0..300 {
                    let path = format!("/{thread}-{}", round % 5);
                    if let Ok(file) = create(&task, &path) {
                        let _ = file.pwrite(&vec![1; 100_000 + 1_000 * round], 0);
                        let _ = file.truncate(50_000);
                        assert!(fs.used_bytes() <= fs.size_bytes());
                    }
                    if round % 5 > 1 {
                        unlink_if_there(&task, &path);
                    }
                }
                (0..5).for_each(|n| unlink_if_there(&task, &format!("/{thread}-{n}")));
            });
        }
    });
    rcu::synchronize();
    assert_eq!(fs.used_bytes(), used);
}

fn unlink_if_there(task: &Task, path: &str) {
    let gone = errno(task.remove_file(path));
    assert!(gone.is_none_or(|errno| errno == Errno::NOENT));
}
