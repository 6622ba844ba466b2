//! Random schedules of pipes, fifos and sockets:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle pipes::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A thread that sleeps for ever is a
//! failure.

use std::net::Shutdown;
use std::sync::Arc;

use shuttle::thread;
use vfscale::posix::{At, OFlags, OpenHow, PIPE_BUF, SocketType, WaitToken};
use vfscale::{Errno, File, FileType, Mode, Scaling, Task};
use vfscale_sync::model::{self, Schedules};

const SCHEDULES: usize = 3_000;
const MODE: Mode = Mode::from_bits_retain(0o600);

/// Runs a model under schedules that switch threads at any moment, and under schedules that run one
/// thread to completion before another continues.
fn check(model: impl Fn() + Send + Sync + 'static) {
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], model);
}

fn task(scaling: Scaling) -> Task {
    vfscale::memory().size(4 << 20).scaling(scaling).build().unwrap().task()
}

fn pipe() -> (File, File) {
    task(Scaling::default()).posix().pipe2(OFlags::empty()).unwrap()
}

/// Reads to the end.
fn drain(reader: &File) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buf = [0; 2];
    loop {
        match reader.read(&mut buf).unwrap() {
            0 => return all,
            n => all.extend_from_slice(&buf[..n]),
        }
    }
}

/// Two readers get every byte of two writers exactly once, and both see the end.
///
/// Race: Sleeping in a pipe.
///
/// A thread that finds nothing to read, or no room, enters a list under the pipe's lock before it
/// releases that, so no other thread can miss it. A bit of its own wakes it, so it takes no other
/// reason to wake up for this one. A thread that releases the lock while there is something to read
/// and readers sleep takes one reader off the list, and does likewise for room and writers. A
/// reader that was taken off and is interrupted at that moment releases the lock too, and so passes
/// the wakeup on.
#[test]
fn every_byte_is_read_once_and_everybody_sees_the_end() {
    check(|| {
        let (reader, writer) = pipe();
        let readers = [reader.clone(), reader].map(|end| thread::spawn(move || drain(&end)));
        let other = writer.clone();
        let writes = thread::spawn(move || {
            assert_eq!(other.write(b"abc").unwrap(), 3);
        });
        assert_eq!(writer.write(b"de").unwrap(), 2);
        drop(writer);
        writes.join().unwrap();
        let mut all: Vec<u8> = readers.into_iter().flat_map(|r| r.join().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, b"abcde");
    });
}

/// Two writers wait for room in a pipe of one page; a reader makes room, and closes.
///
/// Race: Sleeping in a pipe.
#[test]
fn writers_get_room_or_the_end() {
    check(|| {
        let (reader, writer) = pipe();
        let root = vfscale::Credentials::root();
        reader.set_pipe_size(1, &root).unwrap();
        writer.write(&[1; PIPE_BUF]).unwrap();
        let writers = [2_u8, 3].map(|value| {
            let writer = writer.clone();
            thread::spawn(move || writer.write(&[value; PIPE_BUF]).map_err(|e| e.errno()))
        });
        let mut page = [0; PIPE_BUF];
        assert_eq!(reader.read(&mut page).unwrap(), PIPE_BUF);
        assert_eq!(reader.read(&mut page).unwrap(), PIPE_BUF);
        assert!(page.iter().all(|byte| *byte == page[0]));
        drop(reader);
        let results = writers.map(|writer| writer.join().unwrap());
        // The writer whose page was read succeeded. The other may have succeeded, or got an error.
        let whole = results.iter().filter(|result| **result == Ok(PIPE_BUF)).count();
        let told = results.iter().filter(|result| **result == Err(Errno::PIPE)).count();
        assert!(whole >= 1 && whole + told == 2, "{results:?}");
    });
}

/// A wake-up that reaches an interrupted reader is passed on to the other.
///
/// Race: Sleeping in a pipe.
#[test]
fn an_interrupted_reader_passes_the_wake_up_on() {
    check(|| {
        let (reader, writer) = pipe();
        let token = WaitToken::new();
        let patient = {
            let reader = reader.clone();
            thread::spawn(move || reader.read(&mut [0]).unwrap())
        };
        let hasty = {
            let token = token.clone();
            thread::spawn(move || reader.read_interruptible(&mut [0], &token))
        };
        let cancels = thread::spawn(move || token.cancel());
        writer.write(b"x").unwrap();
        let hasty = hasty.join().unwrap().map_err(|e| e.errno());
        if hasty == Ok(1) {
            // This reader got the only byte; the other waits for the end.
            drop(writer);
            assert_eq!(patient.join().unwrap(), 0);
        } else {
            assert_eq!((hasty, patient.join().unwrap()), (Err(Errno::INTR), 1));
        }
        cancels.join().unwrap();
    });
}

/// The two ends of a fifo meet, however briefly one of them is open.
///
/// Race: The two ends of a fifo.
///
/// An opener waits until the other end has been opened since, by counting openings: a writer that
/// opens, writes and closes before the reader has woken up counts. An opener that is interrupted
/// subtracts itself under the lock.
#[test]
fn openers_of_a_fifo_never_miss_each_other() {
    check(|| {
        let task = Arc::new(task(Scaling::default()));
        task.posix().mknodat(At::Cwd, "/fifo", FileType::Fifo, MODE, 0).unwrap();
        let reads = {
            let task = task.clone();
            thread::spawn(move || drain(&task.posix().open("/fifo", OFlags::RDONLY, MODE).unwrap()))
        };
        let writer = task.posix().open("/fifo", OFlags::WRONLY, MODE).unwrap();
        let written = writer.write(b"ab").map_err(|e| e.errno());
        drop(writer);
        // The reader may have opened and, no longer waiting, closed before the write? It reads to
        // the end, so no.
        assert_eq!((written, reads.join().unwrap()), (Ok(2), b"ab".to_vec()));
    });
}

/// An interrupted opener is no partner: the other end waits until a real one opens.
///
/// Race: The two ends of a fifo.
#[test]
fn an_interrupted_opener_leaves_nothing_behind() {
    check(|| {
        let task = Arc::new(task(Scaling::default()));
        task.posix().mknodat(At::Cwd, "/fifo", FileType::Fifo, MODE, 0).unwrap();
        let token = WaitToken::new();
        let opens = {
            let (task, token) = (task.clone(), token.clone());
            thread::spawn(move || {
                let how = OpenHow::new(OFlags::RDONLY);
                task.posix().open_interruptible(At::Cwd, "/fifo", &how, &token).map(drop)
            })
        };
        let cancels = thread::spawn(move || token.cancel());
        let writes = {
            let task = task.clone();
            thread::spawn(move || {
                let writer = task.posix().open("/fifo", OFlags::WRONLY, MODE).unwrap();
                writer.write(b"x").map_err(|e| e.errno())
            })
        };
        let opened = opens.join().unwrap().map_err(|e| e.errno());
        cancels.join().unwrap();
        assert!(matches!(opened, Ok(()) | Err(Errno::INTR)), "{opened:?}");
        // This reader lets a writer that still waits continue.
        let reader = task.posix().open("/fifo", OFlags::RDONLY | OFlags::NONBLOCK, MODE).unwrap();
        assert!(matches!(writes.join().unwrap(), Ok(1) | Err(Errno::PIPE)));
        drop(reader);
        let alone = task.posix().open("/fifo", OFlags::WRONLY | OFlags::NONBLOCK, MODE);
        assert_eq!(alone.map(drop).map_err(|e| e.errno()), Err(Errno::NXIO));
    });
}

/// The first two pipes of a tree belong to one file system, and are closed concurrently; with and
/// without a root above them.
///
/// Race: Pseudo: first pipe / first pipe; ends of pipes and sockets / each other.
///
/// Race: The first pipes of a tree.
///
/// Two threads may both create the file system of pipes. One of the two is used, and the other
/// thread takes its own down before any thread has seen it.
#[test]
fn the_first_pipes_of_a_tree() {
    for scaling in [Scaling::default(), Scaling::before("pseudo").unwrap()] {
        check(move || {
            let task = Arc::new(task(scaling));
            let make = |task: Arc<Task>| {
                move || {
                    let (reader, writer) = task.posix().pipe2(OFlags::empty()).unwrap();
                    drop(writer);
                    let stat = reader.stat().unwrap();
                    (stat.dev, stat.ino)
                }
            };
            let other = thread::spawn(make(task.clone()));
            let (dev, ino) = make(task.clone())();
            let (other_dev, other_ino) = other.join().unwrap();
            assert_eq!(dev, other_dev);
            assert_ne!(ino, other_ino);
        });
    }
}

/// Two sockets that write to each other concurrently, and a third thread that shuts one direction
/// down.
///
/// Race: Pseudo: first pipe / first pipe; ends of pipes and sockets / each other.
#[test]
fn sockets_end_one_direction_at_a_time() {
    check(|| {
        let (one, other) = task(Scaling::default())
            .posix()
            .socketpair(SocketType::Stream, OFlags::empty())
            .unwrap();
        let reads = {
            let other = other.clone();
            thread::spawn(move || drain(&other))
        };
        let ends = {
            let one = one.clone();
            thread::spawn(move || one.shutdown(Shutdown::Write).unwrap())
        };
        let written = one.write(b"abc").map_err(|e| e.errno());
        assert!(matches!(written, Ok(3) | Err(Errno::PIPE)), "{written:?}");
        // The other direction remains open.
        assert_eq!(other.write(b"back").unwrap(), 4);
        let mut back = [0; 4];
        assert_eq!(one.read(&mut back).unwrap(), 4);
        ends.join().unwrap();
        assert_eq!(reads.join().unwrap().len(), written.unwrap_or(0));
    });
}

/// A socket is closed while its peer waits for room: the peer is woken, and gets an error.
///
/// Race: A writer that waits for room / close of its peer.
#[test]
fn a_writer_outlives_the_socket_that_it_writes_to() {
    check(|| {
        let (one, other) = task(Scaling::default())
            .posix()
            .socketpair(SocketType::Stream, OFlags::empty())
            .unwrap();
        let writes = thread::spawn(move || {
            let mut written = 0;
            let errno = loop {
                match one.write(&[1; 60 * PIPE_BUF]) {
                    Ok(n) => written += n,
                    Err(error) => break error.errno(),
                }
            };
            assert_eq!(errno, Errno::PIPE);
            (written, one.read(&mut [0]).map_err(|e| e.errno()))
        });
        let mut page = [0; PIPE_BUF];
        assert_eq!(other.read(&mut page).unwrap(), PIPE_BUF);
        drop(other);
        let (written, read) = writes.join().unwrap();
        // Data that was read was written; data written later was lost, if it was written before the
        // close.
        assert!(written >= PIPE_BUF);
        let lost = written > PIPE_BUF;
        assert_eq!(read, if lost { Err(Errno::CONNRESET) } else { Ok(0) });
    });
}

/// Messages between two sockets, of which one is closed after some reads. Each message is whole,
/// and a sender that waits for room is woken and gets an error.
///
/// Race: A sender of messages / close of its peer.
#[test]
fn a_sender_of_messages_outlives_its_peer() {
    check(|| {
        for kind in [SocketType::SeqPacket, SocketType::Datagram] {
            let (one, other) =
                task(Scaling::default()).posix().socketpair(kind, OFlags::empty()).unwrap();
            let sends = thread::spawn(move || {
                let mut sent = 0;
                loop {
                    match one.write(&[1; 150_000]) {
                        Ok(n) => sent += n,
                        Err(error) => break (sent / 150_000, error.errno()),
                    }
                }
            });
            let mut buf = [0; 4];
            let read = [(); 2].map(|()| other.read(&mut buf).unwrap());
            assert_eq!(read, [4, 4]);
            drop(other);
            let (sent, errno) = sends.join().unwrap();
            // The buffer holds no more than two messages.
            assert!((2..=4).contains(&sent), "{sent}");
            let told = match kind {
                SocketType::Datagram => Errno::CONNREFUSED,
                _ if sent > 2 => Errno::CONNRESET,
                _ => Errno::PIPE,
            };
            assert_eq!(errno, told, "{kind:?} {sent}");
        }
    });
}
