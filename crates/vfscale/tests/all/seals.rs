//! Compares seals of memory files with the kernel's: the same random calls give the same results,
//! bytes and errors.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use vfscale::posix::{At, AtFlags, FallocateFlags, MemfdFlags, OFlags, SealFlags};
use vfscale::{Errno, File, Mode, Task};

#[derive(Clone, Debug)]
enum Op {
    Seal(u32),
    Seals,
    Write {
        offset: u64,
        len: usize,
    },
    Truncate {
        size: u64,
    },
    Fallocate {
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    },
    Chmod(u32),
    /// Seals the file through a description opened for reading.
    SealReading,
    /// Truncates the file by opening it once more.
    Reopen,
    Size,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let seals = prop_oneof![
        6 => prop::sample::select(&[2_u32, 4, 8, 16, 32][..]),
        1 => 0..64_u32,
        1 => Just(64_u32),
    ];
    let modes = [
        FallocateFlags::empty(),
        FallocateFlags::KEEP_SIZE,
        FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE),
    ];
    let op = prop_oneof![
        2 => seals.prop_map(Op::Seal),
        1 => Just(Op::Seals),
        4 => (0..20_000_u64, 0..12_000_usize).prop_map(|(offset, len)| Op::Write { offset, len }),
        2 => (0..30_000_u64).prop_map(|size| Op::Truncate { size }),
        2 => (prop::sample::select(modes.to_vec()), 0..20_000_u64, 1..20_000_u64)
            .prop_map(|(mode, offset, len)| Op::Fallocate { mode, offset, len }),
        1 => prop::sample::select(&[0o777, 0o666, 0o600, 0o711][..]).prop_map(Op::Chmod),
        1 => Just(Op::SealReading),
        1 => Just(Op::Reopen),
        1 => Just(Op::Size),
    ];
    prop::collection::vec(op, 1..30)
}

type Out = Result<u64, Errno>;

fn ours(task: &Task, file: &File, op: &Op) -> Out {
    let none = |()| 0;
    let result = match *op {
        Op::Seal(seals) => file.add_seals(SealFlags::from_bits_retain(seals)).map(none),
        Op::Seals => file.seals().map(|seals| seals.bits().into()),
        Op::Write { offset, len } => file.pwrite(&vec![7; len], offset).map(|n| n as u64),
        Op::Truncate { size } => file.truncate(size).map(none),
        Op::Fallocate { mode, offset, len } => file.fallocate(mode, offset, len).map(none),
        Op::Chmod(mode) => {
            let mode = Mode::from_bits_retain(mode);
            task.posix().fchmodat(At::File(file), "", mode, AtFlags::EMPTY_PATH).map(none)
        }
        Op::SealReading => task
            .posix()
            .reopen(file, OFlags::RDONLY)
            .and_then(|file| file.add_seals(SealFlags::SHRINK))
            .map(none),
        Op::Reopen => task.posix().reopen(file, OFlags::RDWR | OFlags::TRUNC).map(|_| 0),
        Op::Size => file.stat().map(|stat| stat.size),
    };
    result.map_err(|error| error.errno())
}

fn theirs(fd: &OwnedFd, op: &Op) -> Out {
    use rustix::fs;
    use std::os::fd::AsRawFd;
    let none = |()| 0;
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match *op {
        Op::Seal(seals) => fs::fcntl_add_seals(fd, SealFlags::from_bits_retain(seals)).map(none),
        Op::Seals => fs::fcntl_get_seals(fd).map(|seals| seals.bits().into()),
        Op::Write { offset, len } => {
            rustix::io::pwrite(fd, &vec![7; len], offset).map(|n| n as u64)
        }
        Op::Truncate { size } => fs::ftruncate(fd, size).map(none),
        Op::Fallocate { mode, offset, len } => fs::fallocate(fd, mode, offset, len).map(none),
        Op::Chmod(mode) => fs::fchmod(fd, Mode::from_bits_retain(mode)).map(none),
        Op::SealReading => {
            let reading = fs::open(link, OFlags::RDONLY, Mode::empty())?;
            fs::fcntl_add_seals(&reading, SealFlags::SHRINK).map(none)
        }
        Op::Reopen => fs::open(link, OFlags::RDWR | OFlags::TRUNC, Mode::empty()).map(|_| 0),
        Op::Size => fs::fstat(fd).map(|stat| stat.st_size as u64),
    }
}

/// Returns the contents of both files, which should be equal.
fn contents(file: &File, fd: &OwnedFd) -> (Vec<u8>, Vec<u8>) {
    let (mut ours, mut theirs) = (vec![0; 40_000], vec![0; 40_000]);
    let n = file.pread(&mut ours, 0).unwrap();
    ours.truncate(n);
    let n = rustix::io::pread(fd, &mut theirs[..], 0).unwrap();
    theirs.truncate(n);
    (ours, theirs)
}

const FLAGS: [MemfdFlags; 6] = [
    MemfdFlags::ALLOW_SEALING,
    MemfdFlags::ALLOW_SEALING,
    MemfdFlags::empty(),
    MemfdFlags::EXEC,
    MemfdFlags::NOEXEC_SEAL,
    MemfdFlags::EXEC.union(MemfdFlags::NOEXEC_SEAL),
];

proptest! {
    #[test]
    fn as_the_kernels(flags in prop::sample::select(FLAGS.to_vec()), ops in ops()) {
        let task = vfscale::memory().size(1 << 20).build().unwrap().task();
        let made = rustix::fs::memfd_create("m", flags);
        let file = task.posix().memfd_create("m", flags);
        let (file, fd) = match (file, made) {
            (Ok(file), Ok(fd)) => (file, fd),
            (file, fd) => {
                prop_assert_eq!(file.map(drop).map_err(|e| e.errno()), fd.map(drop));
                return Ok(());
            }
        };
        let mode = rustix::fs::fstat(&fd).unwrap().st_mode;
        prop_assert_eq!(file.stat().unwrap().mode, mode);
        for op in &ops {
            prop_assert_eq!(ours(&task, &file, op), theirs(&fd, op), "{:?}", op);
        }
        let (ours, theirs) = contents(&file, &fd);
        prop_assert!(ours == theirs);
    }
}

#[test]
fn other_files_have_no_seals() {
    let task = vfscale::memory().size(1 << 20).build().unwrap().task();
    let errno = |result: vfscale::Result<()>| result.map_err(|error| error.errno());
    let file = task.posix().open("/f", OFlags::CREATE | OFlags::RDWR, Mode::RUSR).unwrap();
    assert_eq!(errno(file.seals().map(drop)), Err(Errno::INVAL));
    assert_eq!(errno(file.add_seals(SealFlags::GROW)), Err(Errno::INVAL));
    let (reader, writer) = task.posix().pipe2(OFlags::empty()).unwrap();
    assert_eq!(errno(writer.add_seals(SealFlags::GROW)), Err(Errno::INVAL));
    assert_eq!(errno(reader.add_seals(SealFlags::GROW)), Err(Errno::PERM));
    let place = task.posix().open("/f", OFlags::PATH, Mode::empty()).unwrap();
    assert_eq!(errno(place.seals().map(drop)), Err(Errno::BADF));
}

/// Writers race with sealing: after the seal is set, the contents do not change.
#[test]
fn nothing_is_written_behind_a_seal() {
    for _ in 0..50 {
        let task = vfscale::memory().size(1 << 20).build().unwrap().task();
        let file = task.posix().memfd_create("m", MemfdFlags::ALLOW_SEALING).unwrap();
        file.write(&[0; 4096]).unwrap();
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 1..=u8::MAX {
                    begun.store(true, Ordering::Release);
                    if let Err(error) = file.pwrite(&[n; 4096], 0) {
                        assert_eq!(error.errno(), Errno::PERM);
                        return;
                    }
                }
            });
            while !begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            file.add_seals(SealFlags::WRITE).unwrap();
            let read = || {
                let mut data = [0; 4096];
                file.pread(&mut data, 0).unwrap();
                data
            };
            let sealed = read();
            assert!(sealed.iter().all(|byte| *byte == sealed[0]));
            writer.join().unwrap();
            assert_eq!(read(), sealed);
        });
    }
}
