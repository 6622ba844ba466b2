//! Compares pipes and fifos with this kernel's: the same random calls give the same results, bytes
//! and errors.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::pipe::PipeFlags;
use vfscale::posix::{At, FallocateFlags, OFlags, Whence};
use vfscale::{File, FileType, Mode, Task};

/// Lengths at limits.
const EDGES: [usize; 12] = [0, 1, 5, 100, 4000, 4095, 4096, 4097, 8192, 12_345, 65_536, 70_000];
/// Set by 64-bit kernels for every file.
const LARGEFILE: u32 = 0o100_000;
/// Maximum number of open files.
const HANDLES: usize = 8;
const MODE: Mode = Mode::from_bits_retain(0o600);

#[derive(Clone, Debug)]
enum Op {
    Pipe { direct: bool },
    Fifo { access: u32, direct: bool },
    Reopen { handle: usize, access: u32 },
    Dup { handle: usize },
    Close { handle: usize },
    Read { handle: usize, lens: Vec<usize> },
    Write { handle: usize, lens: Vec<usize> },
    SetDirect { handle: usize, on: bool },
    GetFlags { handle: usize },
    SetSize { handle: usize, bytes: u32 },
    GetSize { handle: usize },
    Stat { handle: usize },
    Misplaced { handle: usize, call: usize },
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Out {
    Number(u64),
    Bytes(Vec<u8>),
    Error(i32),
    /// There was no file for the call.
    Nothing,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let handle = || 0..HANDLES;
    let len = || prop_oneof![4 => prop::sample::select(&EDGES[..]), 1 => 0..10_000_usize];
    let lens =
        || prop_oneof![4 => len().prop_map(|n| vec![n]), 1 => prop::collection::vec(len(), 0..4)];
    let sizes =
        prop::sample::select(&[0, 1, 4096, 4097, 8192, 16_384, 65_536, 100_000, 1 << 20][..]);
    let op = prop_oneof![
        2 => prop::bool::weighted(0.2).prop_map(|direct| Op::Pipe { direct }),
        6 => (0..4_u32, prop::bool::weighted(0.1))
            .prop_map(|(access, direct)| Op::Fifo { access, direct }),
        2 => (handle(), 0..4_u32).prop_map(|(handle, access)| Op::Reopen { handle, access }),
        1 => handle().prop_map(|handle| Op::Dup { handle }),
        5 => handle().prop_map(|handle| Op::Close { handle }),
        16 => (handle(), lens()).prop_map(|(handle, lens)| Op::Read { handle, lens }),
        20 => (handle(), lens()).prop_map(|(handle, lens)| Op::Write { handle, lens }),
        2 => (handle(), any::<bool>()).prop_map(|(handle, on)| Op::SetDirect { handle, on }),
        1 => handle().prop_map(|handle| Op::GetFlags { handle }),
        2 => (handle(), sizes).prop_map(|(handle, bytes)| Op::SetSize { handle, bytes }),
        1 => handle().prop_map(|handle| Op::GetSize { handle }),
        1 => handle().prop_map(|handle| Op::Stat { handle }),
        1 => (handle(), 0..9_usize).prop_map(|(handle, call)| Op::Misplaced { handle, call }),
    ];
    prop::collection::vec(op, 1..120)
}

fn access(bits: u32) -> OFlags {
    OFlags::from_bits_retain(bits) | OFlags::NONBLOCK
}

/// Returns data whose bytes identify their position.
fn data(lens: &[usize], written: &mut u64) -> Vec<Vec<u8>> {
    let mut next = || {
        *written += 1;
        vfscale_sync::hash::fibonacci(*written).to_be_bytes()[0]
    };
    lens.iter().map(|len| (0..*len).map(|_| next()).collect()).collect()
}

/// Calls `read` with buffers of these lengths; returns the bytes read.
fn gathered(lens: &[usize], read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, i32>) -> Out {
    let mut memory: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
    let mut bufs: Vec<_> = memory.iter_mut().map(|buf| IoSliceMut::new(buf)).collect();
    match read(&mut bufs) {
        Ok(n) => Out::Bytes(memory.concat()[..n].to_vec()),
        Err(errno) => Out::Error(errno),
    }
}

fn number<T: Into<u64>>(result: Result<T, i32>) -> Out {
    result.map_or_else(Out::Error, |n| Out::Number(n.into()))
}

/// The open files of one side.
struct Handles<T>(Vec<Option<T>>);

impl<T> Handles<T> {
    fn new() -> Handles<T> {
        Handles((0..HANDLES).map(|_| None).collect())
    }

    /// Stores opened files in the first free slots; closes those for which there is none.
    fn keep(&mut self, opened: Result<Vec<T>, i32>) -> Out {
        match opened {
            Err(errno) => Out::Error(errno),
            Ok(all) => {
                let len = all.len() as u64;
                for new in all {
                    if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
                        *place = Some(new);
                    }
                }
                Out::Number(len)
            }
        }
    }

    fn with(&self, handle: usize, call: impl FnOnce(&T) -> Out) -> Out {
        self.0[handle].as_ref().map_or(Out::Nothing, call)
    }
}

struct Kernel {
    files: Handles<OwnedFd>,
    fifo: PathBuf,
    written: u64,
}

fn errno<T>(result: rustix::io::Result<T>) -> Result<T, i32> {
    result.map_err(|e| e.raw_os_error())
}

impl Kernel {
    fn open(path: &Path, flags: OFlags) -> Result<Vec<OwnedFd>, i32> {
        errno(rustix::fs::open(path, flags, MODE)).map(|fd| vec![fd])
    }

    fn call(&mut self, op: &Op) -> Out {
        match op {
            Op::Pipe { direct } => {
                let direct = if *direct { PipeFlags::DIRECT } else { PipeFlags::empty() };
                let made = errno(rustix::pipe::pipe_with(PipeFlags::NONBLOCK | direct));
                self.files.keep(made.map(|(reader, writer)| vec![reader, writer]))
            }
            Op::Fifo { access: bits, direct } => {
                let flags = access(*bits) | if *direct { OFlags::DIRECT } else { OFlags::empty() };
                self.files.keep(Kernel::open(&self.fifo, flags))
            }
            Op::Reopen { handle, access: bits } => {
                let Some(file) = &self.files.0[*handle] else { return Out::Nothing };
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                self.files.keep(Kernel::open(Path::new(&path), access(*bits)))
            }
            Op::Dup { handle } => {
                let Some(file) = &self.files.0[*handle] else { return Out::Nothing };
                let copy = file.try_clone().unwrap();
                self.files.keep(Ok(vec![copy]))
            }
            Op::Close { handle } => {
                self.files.0[*handle].take().map_or(Out::Nothing, |_| Out::Number(0))
            }
            Op::Read { handle, lens } => self
                .files
                .with(*handle, |file| gathered(lens, |bufs| errno(rustix::io::readv(file, bufs)))),
            Op::Write { handle, lens } => {
                let Some(file) = &self.files.0[*handle] else { return Out::Nothing };
                let data = data(lens, &mut self.written);
                let bufs: Vec<_> = data.iter().map(|buf| IoSlice::new(buf)).collect();
                number(errno(rustix::io::writev(file, &bufs)).map(|n| n as u64))
            }
            Op::Misplaced { handle, call } => {
                self.files.with(*handle, |file| misplaced_kernel(file, *call))
            }
            other => self.fcntl(other),
        }
    }

    fn fcntl(&self, op: &Op) -> Out {
        match op {
            Op::SetDirect { handle, on } => self.files.with(*handle, |file| {
                let direct = if *on { OFlags::DIRECT } else { OFlags::empty() };
                let set = rustix::fs::fcntl_setfl(file, OFlags::NONBLOCK | direct);
                number(errno(set).map(|()| 0_u64))
            }),
            Op::GetFlags { handle } => self.files.with(*handle, |file| {
                let flags = rustix::fs::fcntl_getfl(file).unwrap();
                Out::Number((flags.bits() & !LARGEFILE).into())
            }),
            Op::SetSize { handle, bytes } => self.files.with(*handle, |file| {
                let set = rustix::pipe::fcntl_setpipe_size(file, *bytes as usize);
                number(errno(set).map(|n| n as u64))
            }),
            Op::GetSize { handle } => self.files.with(*handle, |file| {
                number(errno(rustix::pipe::fcntl_getpipe_size(file)).map(|n| n as u64))
            }),
            Op::Stat { handle } => self.files.with(*handle, |file| {
                let stat = rustix::fs::fstat(file).unwrap();
                Out::Bytes(
                    format!(
                        "{:o} {} {} {} {}",
                        stat.st_mode, stat.st_nlink, stat.st_size, stat.st_blocks, stat.st_blksize
                    )
                    .into_bytes(),
                )
            }),
            _ => Out::Nothing,
        }
    }
}

/// Makes a call that does not apply to a pipe.
fn misplaced_kernel(file: &OwnedFd, which: usize) -> Out {
    let fd = file.as_fd();
    let mut buf = [0; 4];
    let unit = |result: rustix::io::Result<()>| number(errno(result).map(|()| 0_u64));
    match which {
        0 => number(errno(rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(1)))),
        1 => number(errno(rustix::io::pread(fd, &mut buf, 0)).map(|n| n as u64)),
        2 => number(errno(rustix::io::pwrite(fd, &buf, 0)).map(|n| n as u64)),
        3 => unit(rustix::fs::ftruncate(fd, 1)),
        4 => unit(rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, 1)),
        5 => unit(rustix::fs::fsync(fd)),
        6 => unit(rustix::fs::fdatasync(fd)),
        7 => number(errno(rustix::fs::seek(fd, rustix::fs::SeekFrom::Current(0)))),
        _ => number(errno(rustix::io::preadv(fd, &mut [], 0)).map(|n| n as u64)),
    }
}

struct Here {
    task: Task,
    files: Handles<File>,
    written: u64,
}

fn told<T>(result: vfscale::Result<T>) -> Result<T, i32> {
    result.map_err(|e| e.errno().raw_os_error())
}

impl Here {
    fn call(&mut self, op: &Op) -> Out {
        match op {
            Op::Pipe { direct } => {
                let direct = if *direct { OFlags::DIRECT } else { OFlags::empty() };
                let made = told(self.task.posix().pipe2(OFlags::NONBLOCK | direct));
                self.files.keep(made.map(|(reader, writer)| vec![reader, writer]))
            }
            Op::Fifo { access: bits, direct } => {
                let flags = access(*bits) | if *direct { OFlags::DIRECT } else { OFlags::empty() };
                let opened = told(self.task.posix().open("/fifo", flags, MODE));
                self.files.keep(opened.map(|file| vec![file]))
            }
            Op::Reopen { handle, access: bits } => {
                let Some(file) = &self.files.0[*handle] else { return Out::Nothing };
                let opened = told(self.task.posix().reopen(file, access(*bits)));
                self.files.keep(opened.map(|file| vec![file]))
            }
            Op::Dup { handle } => {
                let Some(file) = self.files.0[*handle].clone() else { return Out::Nothing };
                self.files.keep(Ok(vec![file]))
            }
            Op::Close { handle } => {
                self.files.0[*handle].take().map_or(Out::Nothing, |_| Out::Number(0))
            }
            Op::Read { handle, lens } => {
                self.files.with(*handle, |file| gathered(lens, |bufs| told(file.readv(bufs))))
            }
            Op::Write { handle, lens } => {
                let Some(file) = &self.files.0[*handle] else { return Out::Nothing };
                let data = data(lens, &mut self.written);
                let bufs: Vec<_> = data.iter().map(|buf| IoSlice::new(buf)).collect();
                number(told(file.writev(&bufs)).map(|n| n as u64))
            }
            Op::Misplaced { handle, call } => {
                self.files.with(*handle, |file| misplaced_here(file, *call))
            }
            other => self.fcntl(other),
        }
    }

    fn fcntl(&self, op: &Op) -> Out {
        let credentials = self.task.credentials();
        match op {
            Op::SetDirect { handle, on } => self.files.with(*handle, |file| {
                let direct = if *on { OFlags::DIRECT } else { OFlags::empty() };
                let set = file.set_flags(OFlags::NONBLOCK | direct, &credentials);
                number(told(set).map(|()| 0_u64))
            }),
            Op::GetFlags { handle } => {
                self.files.with(*handle, |file| Out::Number(file.flags().bits().into()))
            }
            Op::SetSize { handle, bytes } => self.files.with(*handle, |file| {
                number(told(file.set_pipe_size(*bytes, &credentials)).map(|n| n as u64))
            }),
            Op::GetSize { handle } => {
                self.files.with(*handle, |file| number(told(file.pipe_size()).map(|n| n as u64)))
            }
            Op::Stat { handle } => self.files.with(*handle, |file| {
                let stat = file.stat().unwrap();
                Out::Bytes(
                    format!(
                        "{:o} {} {} {} {}",
                        stat.mode, stat.nlink, stat.size, stat.blocks, stat.blksize
                    )
                    .into_bytes(),
                )
            }),
            _ => Out::Nothing,
        }
    }
}

fn misplaced_here(file: &File, which: usize) -> Out {
    let mut buf = [0; 4];
    let unit = |result: vfscale::Result<()>| number(told(result).map(|()| 0_u64));
    match which {
        0 => number(told(file.seek(Whence::Set(1)))),
        1 => number(told(file.pread(&mut buf, 0)).map(|n| n as u64)),
        2 => number(told(file.pwrite(&buf, 0)).map(|n| n as u64)),
        3 => unit(file.truncate(1)),
        4 => unit(file.fallocate(FallocateFlags::empty(), 0, 1)),
        5 => unit(file.sync_all()),
        6 => unit(file.sync_data()),
        7 => number(told(file.seek(Whence::Current(0)))),
        _ => number(told(file.preadv(&mut [], 0)).map(|n| n as u64)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pipes_and_fifos_are_as_in_linux(ops in ops()) {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, MODE, 0).unwrap();
        let task = vfscale::memory().size(1 << 20).build().unwrap().task();
        task.posix().mknodat(At::Cwd, "/fifo", FileType::Fifo, MODE, 0).unwrap();
        let mut kernel = Kernel { files: Handles::new(), fifo, written: 0 };
        let mut here = Here { task, files: Handles::new(), written: 0 };
        for (at, op) in ops.iter().enumerate() {
            let expected = kernel.call(op);
            let got = here.call(op);
            prop_assert_eq!(got, expected, "call {}: {:?}", at, op);
        }
    }
}
