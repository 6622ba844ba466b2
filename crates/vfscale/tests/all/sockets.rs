//! Compares pairs of sockets with this kernel's: the same random calls give the same results, bytes
//! and errors. (Before Linux 6.16 the order of errors differed for datagrams that
//! are too long, and an unread empty packet counted as lost.)

use std::io::IoSlice;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use proptest::prelude::*;
use rustix::net::{self, AddressFamily, SocketFlags};
use vfscale::posix::{FallocateFlags, OFlags, SocketType, WaitToken, Whence};
use vfscale::{Errno, File, FileType, Mode, Task};

fn task() -> Task {
    vfscale::memory().size(1 << 20).build().unwrap().task()
}

fn pair_of(kind: SocketType, flags: OFlags) -> [File; 2] {
    let (one, other) = task().posix().socketpair(kind, flags).unwrap();
    [one, other]
}

fn pair(flags: OFlags) -> [File; 2] {
    pair_of(SocketType::Stream, flags)
}

fn their_pair(kind: SocketType) -> [OwnedFd; 2] {
    let kind = match kind {
        SocketType::Stream => net::SocketType::STREAM,
        SocketType::SeqPacket => net::SocketType::SEQPACKET,
        SocketType::Datagram => net::SocketType::DGRAM,
    };
    let (one, other) =
        net::socketpair(AddressFamily::UNIX, kind, SocketFlags::NONBLOCK, None).unwrap();
    [one, other]
}

#[derive(Clone, Debug)]
enum Op {
    Write { side: usize, len: usize },
    Read { side: usize, len: usize },
    Writev { side: usize, lens: [usize; 2] },
    Shutdown { side: usize, how: Shutdown },
    Close { side: usize },
    Misplaced { side: usize, call: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let side = || 0..2_usize;
    let how = prop::sample::select(&[Shutdown::Read, Shutdown::Write, Shutdown::Both][..]);
    let op = prop_oneof![
        8 => (side(), 0..3_000_usize).prop_map(|(side, len)| Op::Write { side, len }),
        1 => (side(), prop::sample::select(&[0, 212_960, 212_961][..]))
            .prop_map(|(side, len)| Op::Write { side, len }),
        1 => (side(), prop::sample::select(&[[0, 0], [0, 3], [70, 0], [5, 900]][..]))
            .prop_map(|(side, lens)| Op::Writev { side, lens }),
        8 => (side(), 0..6_000_usize).prop_map(|(side, len)| Op::Read { side, len }),
        1 => (side(), how).prop_map(|(side, how)| Op::Shutdown { side, how }),
        1 => side().prop_map(|side| Op::Close { side }),
        1 => (side(), 0..6_usize).prop_map(|(side, call)| Op::Misplaced { side, call }),
    ];
    // So few that neither side is ever full, except by the longest possible message.
    prop::collection::vec(op, 1..30)
}

/// The result of a call: bytes, or an error.
type Out = Result<Vec<u8>, i32>;

fn data(round: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (round * 31 + at * 7) as u8).collect()
}

fn ours(file: &File, round: usize, op: &Op) -> Out {
    let number = |n: usize| n.to_le_bytes().to_vec();
    let result = match op {
        Op::Write { len, .. } => file.write(&data(round, *len)).map(number),
        Op::Writev { lens, .. } => {
            let bufs = lens.map(|len| data(round, len));
            file.writev(&[IoSlice::new(&bufs[0]), IoSlice::new(&bufs[1])]).map(number)
        }
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

fn theirs(socket: &OwnedFd, round: usize, op: &Op) -> Out {
    let number = |n: usize| n.to_le_bytes().to_vec();
    let none = |()| Vec::new();
    let fd = socket.as_fd();
    let result = match op {
        Op::Write { len, .. } => rustix::io::write(fd, &data(round, *len)).map(number),
        Op::Writev { lens, .. } => {
            let bufs = lens.map(|len| data(round, len));
            rustix::io::writev(fd, &[IoSlice::new(&bufs[0]), IoSlice::new(&bufs[1])]).map(number)
        }
        Op::Read { len, .. } => {
            let mut buf = vec![0; *len];
            rustix::io::read(fd, &mut buf[..]).map(|n| buf[..n].to_vec())
        }
        Op::Shutdown { how, .. } => {
            let how = match how {
                Shutdown::Read => net::Shutdown::Read,
                Shutdown::Write => net::Shutdown::Write,
                Shutdown::Both => net::Shutdown::Both,
            };
            net::shutdown(fd, how).map(none)
        }
        Op::Close { .. } => Ok(Vec::new()),
        Op::Misplaced { call, .. } => {
            let seek = rustix::fs::SeekFrom::Start(0);
            match call {
                0 => rustix::io::pread(fd, &mut [0; 3], 0).map(number),
                1 => rustix::io::pwrite(fd, &[0; 3], 0).map(number),
                2 => rustix::fs::seek(fd, seek).map(|at| number(at as usize)),
                3 => rustix::fs::fsync(fd).map(none),
                4 => rustix::fs::ftruncate(fd, 1).map(none),
                _ => rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, 1).map(none),
            }
        }
    };
    result.map_err(Errno::raw_os_error)
}

proptest! {
    #[test]
    fn as_the_kernels(
        kind in prop::sample::select(
            &[SocketType::Stream, SocketType::SeqPacket, SocketType::Datagram][..]
        ),
        ops in ops(),
    ) {
        let mut files = pair_of(kind, OFlags::NONBLOCK).map(Some);
        let mut sockets = their_pair(kind).map(Some);
        for (round, op) in ops.iter().enumerate() {
            let (Op::Write { side, .. } | Op::Writev { side, .. } | Op::Read { side, .. }
                | Op::Shutdown { side, .. } | Op::Close { side }
                | Op::Misplaced { side, .. }) = op;
            // How full a stream is depends on how memory is counted.
            if matches!(op, Op::Write { len: 10_000.., .. }) && kind == SocketType::Stream {
                continue;
            }
            let (Some(file), Some(socket)) = (&files[*side], &sockets[*side]) else { continue };
            prop_assert_eq!(ours(file, round, op), theirs(socket, round, op), "{:?}", op);
            if let Op::Close { side } = op {
                (files[*side], sockets[*side]) = (None, None);
            }
        }
    }
}

#[test]
fn a_socket_reports_its_type() {
    let task = task();
    let (one, other) = task.posix().socketpair(SocketType::Stream, OFlags::NONBLOCK).unwrap();
    let (one_stat, other_stat) = (one.stat().unwrap(), other.stat().unwrap());
    assert_eq!(one_stat.file_type(), FileType::Socket);
    assert_eq!((one_stat.mode & 0o7777, one_stat.size, one_stat.nlink), (0o777, 0, 1));
    assert_eq!(one_stat.dev, other_stat.dev);
    assert_ne!(one_stat.ino, other_stat.ino);
    let path = task.posix().path_of(&one).unwrap();
    assert_eq!(path.to_str().unwrap(), format!("socket:[{}]", one_stat.ino));
    assert!(one.flags().contains(OFlags::RDWR | OFlags::NONBLOCK));
    assert_eq!(one.pipe_size().unwrap_err().errno(), Errno::BADF);
    assert_eq!(
        task.posix().socketpair(SocketType::Stream, OFlags::APPEND).unwrap_err().errno(),
        Errno::INVAL
    );
    let file = task.posix().open("/f", OFlags::CREATE | OFlags::RDWR, Mode::RUSR).unwrap();
    assert_eq!(file.shutdown(Shutdown::Both).unwrap_err().errno(), Errno::NOTSOCK);
    drop((one, other, file));
    task.remove_file("/f").unwrap();
}

/// Descriptors are allocated in pairs, in order, or not at all.
#[test]
fn descriptors_come_in_pairs() {
    let task = task();
    let (one, other) = task.posix().socketpair_fd(SocketType::Stream, OFlags::CLOEXEC).unwrap();
    assert_eq!((one.0, other.0), (0, 1));
    task.posix().file(one).unwrap().write(b"over").unwrap();
    let mut buf = [0; 8];
    assert_eq!(task.posix().file(other).unwrap().read(&mut buf).unwrap(), 4);
    task.posix().close(one).unwrap();
    assert_eq!(task.posix().file(other).unwrap().read(&mut buf).unwrap(), 0);
}

/// A duplicate holds a socket open: only the last close ends it.
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

/// The two kinds of messages differ in how a waiting peer learns of the end.
#[test]
fn a_receiver_that_waits_learns_of_the_end() {
    let read = |file: File| thread::spawn(move || file.read(&mut [0; 8]).map_err(|e| e.errno()));
    let [one, other] = pair_of(SocketType::SeqPacket, OFlags::empty());
    let reads = read(other.clone());
    drop(one);
    assert_eq!(reads.join().unwrap(), Ok(0));
    assert_eq!(other.write(b"x").unwrap_err().errno(), Errno::PIPE);
    // Any socket could send a datagram, so only shutting down the own end ends the wait.
    let [one, other] = pair_of(SocketType::Datagram, OFlags::empty());
    let reads = read(other.clone());
    drop(one);
    vfscale_harness::stays("the read waits", std::time::Duration::from_millis(20), || {
        !reads.is_finished()
    });
    other.shutdown(Shutdown::Read).unwrap();
    assert_eq!(reads.join().unwrap(), Ok(0));
    let token = WaitToken::new();
    let [_one, other] = pair_of(SocketType::Datagram, OFlags::empty());
    token.cancel();
    let read = other.read_interruptible(&mut [0], &token).unwrap_err();
    assert_eq!(read.errno(), Errno::INTR);
}

/// Of the unread packets that a close loses, Linux does not count a first one that is empty, but
/// does count a second one.
#[test]
fn an_unread_packet_is_lost_unless_it_is_first_and_empty() {
    for (unread, told) in
        [(&[0][..], Errno::PIPE), (&[0, 0], Errno::CONNRESET), (&[1], Errno::CONNRESET)]
    {
        let [one, other] = pair_of(SocketType::SeqPacket, OFlags::NONBLOCK);
        for len in unread {
            one.write(&data(0, *len)).unwrap();
        }
        drop(other);
        assert_eq!(one.write(b"x").unwrap_err().errno(), told, "{unread:?}");
    }
}

/// Messages are whole and in order, and none is lost, however often both sides wait for each other.
#[test]
fn messages_wait_for_room() {
    for kind in [SocketType::SeqPacket, SocketType::Datagram] {
        let [one, other] = pair_of(kind, OFlags::empty());
        let len = |n: usize| n * 37 % 9_000;
        let writes = thread::spawn(move || {
            for n in 0..2_000 {
                assert_eq!(one.write(&data(n, len(n))).unwrap(), len(n));
            }
            // Held until its messages are read, whatever a close would do.
            one
        });
        let mut buf = [0; 10_000];
        for n in 0..2_000 {
            let got = other.read(&mut buf).unwrap();
            assert_eq!(&buf[..got], data(n, len(n)), "{kind:?} {n}");
        }
        drop(writes.join().unwrap());
        // A reader that closes wakes the writer.
        let [one, other] = pair_of(kind, OFlags::empty());
        let writes = thread::spawn(move || {
            loop {
                if let Err(error) = one.write(&[1; 50_000]) {
                    return error.errno();
                }
            }
        });
        other.read(&mut buf).unwrap();
        drop(other);
        let errno = writes.join().unwrap();
        let told = [Errno::PIPE, Errno::CONNRESET, Errno::CONNREFUSED];
        assert!(told.contains(&errno), "{kind:?} {errno}");
    }
}

#[test]
fn a_waiting_thread_can_be_interrupted_or_shut_down() {
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
    // All of it is written once there is room, and not before.
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
