//! Pairs of sockets, beside those of the kernel this runs on: the same calls, chosen at random, give the same
//! results, bytes and errors.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;

use proptest::prelude::*;
use vfscale::{
    AtFlags, Errno, FallocateFlags, File, FileType, Mode, OFlags, Task, WaitToken, Whence,
};

fn task() -> Task {
    vfscale::memory().size(1 << 20).build().unwrap().task()
}

fn pair(flags: OFlags) -> [File; 2] {
    let (one, other) = task().socketpair(flags).unwrap();
    [one, other]
}

#[derive(Clone, Debug)]
enum Op {
    Write { side: usize, len: usize },
    Read { side: usize, len: usize },
    Shutdown { side: usize, how: Shutdown },
    Close { side: usize },
    Misplaced { side: usize, call: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let side = || 0..2_usize;
    let how = prop::sample::select(&[Shutdown::Read, Shutdown::Write, Shutdown::Both][..]);
    let op = prop_oneof![
        8 => (side(), 1..5_000_usize).prop_map(|(side, len)| Op::Write { side, len }),
        8 => (side(), 0..6_000_usize).prop_map(|(side, len)| Op::Read { side, len }),
        1 => (side(), how).prop_map(|(side, how)| Op::Shutdown { side, how }),
        1 => side().prop_map(|side| Op::Close { side }),
        1 => (side(), 0..6_usize).prop_map(|(side, call)| Op::Misplaced { side, call }),
    ];
    // So few that neither side is ever full, which depends on how memory is counted.
    prop::collection::vec(op, 1..30)
}

/// What a call gave: bytes, or an error.
type Out = Result<Vec<u8>, i32>;

fn data(round: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (round * 31 + at * 7) as u8).collect()
}

fn ours(file: &File, round: usize, op: &Op) -> Out {
    let number = |n: usize| n.to_le_bytes().to_vec();
    let result = match op {
        Op::Write { len, .. } => file.write(&data(round, *len)).map(number),
        Op::Read { len, .. } => {
            let mut buf = vec![0; *len];
            file.read(&mut buf).map(|n| buf[..n].to_vec())
        }
        Op::Shutdown { how, .. } => file.shutdown(*how).map(|()| Vec::new()),
        Op::Close { .. } => Ok(Vec::new()),
        Op::Misplaced { call, .. } => match call {
            0 => file.pread(&mut [0; 3], 0).map(number),
            1 => file.pwrite(&[0; 3], 0).map(number),
            2 => file.seek(Whence::Set(0)).map(|at| number(at as usize)),
            3 => file.sync_all().map(|()| Vec::new()),
            4 => file.truncate(1).map(|()| Vec::new()),
            _ => file.fallocate(FallocateFlags::empty(), 0, 1).map(|()| Vec::new()),
        },
    };
    result.map_err(|error| error.errno().raw_os_error())
}

fn theirs(mut socket: &UnixStream, round: usize, op: &Op) -> Out {
    let number = |n: usize| n.to_le_bytes().to_vec();
    let none = |_| Vec::new();
    let result = match op {
        Op::Write { len, .. } => socket.write(&data(round, *len)).map(number),
        Op::Read { len, .. } => {
            let mut buf = vec![0; *len];
            socket.read(&mut buf).map(|n| buf[..n].to_vec())
        }
        Op::Shutdown { how, .. } => socket.shutdown(*how).map(none),
        Op::Close { .. } => Ok(Vec::new()),
        Op::Misplaced { call, .. } => {
            let fd = socket.as_fd();
            let seek = rustix::fs::SeekFrom::Start(0);
            let result = match call {
                0 => rustix::io::pread(fd, &mut [0; 3], 0).map(number),
                1 => rustix::io::pwrite(fd, &[0; 3], 0).map(number),
                2 => rustix::fs::seek(fd, seek).map(|at| number(at as usize)),
                3 => rustix::fs::fsync(fd).map(none),
                4 => rustix::fs::ftruncate(fd, 1).map(none),
                _ => rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, 1).map(none),
            };
            result.map_err(Into::into)
        }
    };
    result.map_err(|error| error.raw_os_error().unwrap())
}

proptest! {
    #[test]
    fn as_the_kernels(ops in ops()) {
        let mut files = pair(OFlags::NONBLOCK).map(Some);
        let (one, other) = UnixStream::pair().unwrap();
        let mut sockets = [one, other].map(|socket| {
            socket.set_nonblocking(true).unwrap();
            Some(socket)
        });
        for (round, op) in ops.iter().enumerate() {
            let (Op::Write { side, .. } | Op::Read { side, .. } | Op::Shutdown { side, .. }
                | Op::Close { side } | Op::Misplaced { side, .. }) = op;
            let (Some(file), Some(socket)) = (&files[*side], &sockets[*side]) else { continue };
            prop_assert_eq!(ours(file, round, op), theirs(socket, round, op), "{:?}", op);
            if let Op::Close { side } = op {
                (files[*side], sockets[*side]) = (None, None);
            }
        }
    }
}

#[test]
fn a_socket_tells_what_it_is() {
    let task = task();
    let (one, other) = task.socketpair(OFlags::NONBLOCK).unwrap();
    let (one_stat, other_stat) = (one.stat().unwrap(), other.stat().unwrap());
    assert_eq!(one_stat.file_type(), FileType::Socket);
    assert_eq!((one_stat.mode & 0o7777, one_stat.size, one_stat.nlink), (0o777, 0, 1));
    assert_eq!(one_stat.dev, other_stat.dev);
    assert_ne!(one_stat.ino, other_stat.ino);
    let path = task.path_of(&one).unwrap();
    assert_eq!(path.to_str().unwrap(), format!("socket:[{}]", one_stat.ino));
    assert!(one.flags().contains(OFlags::RDWR | OFlags::NONBLOCK));
    assert_eq!(one.pipe_size().unwrap_err().errno(), Errno::BADF);
    assert_eq!(task.socketpair(OFlags::APPEND).unwrap_err().errno(), Errno::INVAL);
    let file = task.open("/f", OFlags::CREATE | OFlags::RDWR, Mode::RUSR).unwrap();
    assert_eq!(file.shutdown(Shutdown::Both).unwrap_err().errno(), Errno::NOTSOCK);
    drop((one, other, file));
    task.unlink(vfscale::At::Cwd, "/f", AtFlags::empty()).unwrap();
}

/// Descriptors are given in order, or none.
#[test]
fn descriptors_come_in_pairs() {
    let task = task();
    let (one, other) = task.socketpair_fd(OFlags::CLOEXEC).unwrap();
    assert_eq!((one.0, other.0), (0, 1));
    task.file(one).unwrap().write(b"over").unwrap();
    let mut buf = [0; 8];
    assert_eq!(task.file(other).unwrap().read(&mut buf).unwrap(), 4);
    task.close(one).unwrap();
    assert_eq!(task.file(other).unwrap().read(&mut buf).unwrap(), 0);
}

/// A duplicate keeps a socket open: only the last close ends it.
#[test]
fn the_last_close_wakes_the_peer() {
    let [one, other] = pair(OFlags::empty());
    let duplicate = one.clone();
    let reads = thread::spawn(move || other.read(&mut [0; 8]).unwrap());
    drop(one);
    duplicate.write(b"still").unwrap();
    assert_eq!(reads.join().unwrap(), 5);
    let [one, other] = pair(OFlags::empty());
    let reads = thread::spawn(move || other.read(&mut [0; 8]).unwrap());
    drop(one);
    assert_eq!(reads.join().unwrap(), 0);
}

#[test]
fn whoever_waits_can_be_interrupted_or_shut_down() {
    let [one, _other] = pair(OFlags::empty());
    let token = WaitToken::new();
    token.cancel();
    let read = one.read_interruptible(&mut [0], &token).unwrap_err();
    assert_eq!(read.errno(), Errno::INTR);
    let waits = {
        let one = one.clone();
        thread::spawn(move || one.read(&mut [0]).unwrap())
    };
    one.shutdown(Shutdown::Read).unwrap();
    assert_eq!(waits.join().unwrap(), 0);
    // The whole of it is written when there is room, and not before.
    let [one, other] = pair(OFlags::empty());
    let writes = thread::spawn(move || one.write(&vec![7; 1 << 20]).unwrap());
    let mut all = Vec::new();
    let mut buf = [0; 10_000];
    while all.len() < 1 << 20 {
        let n = other.read(&mut buf).unwrap();
        all.extend_from_slice(&buf[..n]);
    }
    assert_eq!(writes.join().unwrap(), 1 << 20);
    assert!(all.iter().all(|byte| *byte == 7));
}
