//! Pipes, fifos and memory files: what blocks, what ends the wait, their names, and their lifetime.

use std::fmt::Debug;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use vfscale::posix::{
    At, AtFlags, FallocateFlags, LockKind, LockRange, MemfdFlags, OFlags, OpenHow, PIPE_BUF,
    WaitToken, Whence,
};
use vfscale::{Credentials, Errno, File, FileType, Mode, Scaling, Task, Vfs};
use vfscale_sync::rcu;

const MODE: Mode = Mode::from_bits_retain(0o600);
/// Long enough for a thread to fall asleep.
const A_WHILE: Duration = Duration::from_millis(30);

fn vfs() -> Vfs {
    vfscale::memory().size(16 << 20).build().unwrap()
}

fn task() -> Task {
    vfs().task()
}

fn errno<T: Debug>(result: vfscale::Result<T>) -> Errno {
    result.unwrap_err().errno()
}

fn pipe(task: &Task) -> (File, File) {
    task.posix().pipe2(OFlags::empty()).unwrap()
}

/// Runs `blocks` on another thread; checks that it blocks until `ends` is called.
fn blocked<T: Send>(blocks: impl FnOnce() -> T + Send, ends: impl FnOnce()) -> T {
    let (done, when) = mpsc::channel();
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let result = blocks();
            done.send(()).unwrap();
            result
        });
        assert!(when.recv_timeout(A_WHILE).is_err(), "it did not block");
        ends();
        when.recv_timeout(Duration::from_secs(20)).unwrap();
        thread.join().unwrap()
    })
}

#[test]
fn a_reader_waits_for_data_and_for_the_end() {
    let (reader, writer) = pipe(&task());
    let mut buf = [0; 10];
    let n = blocked(|| reader.read(&mut buf), || assert_eq!(writer.write(b"data").unwrap(), 4));
    assert_eq!(&buf[..n.unwrap()], b"data");
    assert_eq!(blocked(|| reader.read(&mut buf), || drop(writer)).unwrap(), 0);
    assert_eq!(reader.read(&mut buf).unwrap(), 0);
}

#[test]
fn a_writer_waits_for_room_and_is_told_of_the_end() {
    let (reader, writer) = pipe(&task());
    let size = reader.pipe_size().unwrap();
    assert_eq!((size, writer.pipe_size().unwrap()), (65_536, 65_536));
    let user = Credentials::user(1000, 1000);
    assert_eq!(errno(reader.set_pipe_size((1 << 20) + 1, &user)), Errno::PERM);
    assert_eq!(errno(reader.set_pipe_size((1 << 31) + 1, &user)), Errno::INVAL);
    let data = vec![7; size + 5000];
    let mut got = vec![0; size];
    let written = blocked(
        || writer.write(&data),
        || {
            assert_eq!(reader.read(&mut got).unwrap(), size);
        },
    );
    assert_eq!(written.unwrap(), data.len());
    // Two pages hold the remaining 5000 bytes. A write in progress returns how many bytes were
    // written.
    let begun = blocked(|| writer.write(&data[..size]), || drop(reader));
    assert_eq!(begun.unwrap(), size - 2 * PIPE_BUF);
    assert_eq!(errno(writer.write(b"x")), Errno::PIPE);
    assert_eq!(writer.write(b"").unwrap(), 0);
}

/// Like Linux, without the signal.
#[test]
fn writing_without_a_reader_is_an_error_and_no_signal() {
    let (reader, writer) = pipe(&task());
    drop(reader);
    assert_eq!(errno(writer.write(b"x")), Errno::PIPE);
}

#[test]
fn many_readers_are_woken_one_by_one_and_all_at_the_end() {
    let (reader, writer) = pipe(&task());
    let (got, all) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..8 {
            let (reader, got) = (reader.clone(), got.clone());
            scope.spawn(move || {
                let mut buf = [0; 1];
                while reader.read(&mut buf).unwrap() == 1 {
                    got.send(buf[0]).unwrap();
                }
            });
        }
        vfscale_harness::pause(A_WHILE);
        let bytes: Vec<u8> = (0..200).collect();
        bytes.chunks(3).for_each(|chunk| assert_eq!(writer.write(chunk).unwrap(), chunk.len()));
        drop(writer);
    });
    drop(got);
    let mut seen: Vec<u8> = all.iter().collect();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(0..200));
}

/// Writes of up to `PIPE_BUF` bytes are never interleaved, whatever lengths the reader reads.
#[test]
fn short_writes_are_whole() {
    let (reader, writer) = pipe(&task());
    thread::scope(|scope| {
        for value in 1..=4_u8 {
            let writer = writer.clone();
            scope.spawn(move || {
                for n in 0..300_usize {
                    let len = 1 + n * 13 % 4000;
                    let mut record = vec![value; len + 2];
                    record[..2].copy_from_slice(&(len as u16).to_le_bytes());
                    assert_eq!(writer.write(&record).unwrap(), record.len());
                }
            });
        }
        drop(writer);
        let mut stream = Vec::new();
        let mut buf = [0; 777];
        loop {
            match reader.read(&mut buf).unwrap() {
                0 => break,
                n => stream.extend_from_slice(&buf[..n]),
            }
        }
        let mut records = 0;
        let mut rest = &stream[..];
        while let [low, high, after @ ..] = rest {
            let (record, others) = after.split_at(usize::from(u16::from_le_bytes([*low, *high])));
            assert!(record.iter().all(|byte| *byte == record[0]));
            records += 1;
            rest = others;
        }
        assert_eq!(records, 1200);
    });
}

#[test]
fn a_token_interrupts_reads_writes_and_openings() {
    let task = task();
    task.posix().mknodat(At::Cwd, "/fifo", FileType::Fifo, MODE, 0).unwrap();
    let (reader, writer) = pipe(&task);
    let token = WaitToken::new();
    let read = blocked(|| reader.read_interruptible(&mut [0], &token), || token.cancel());
    assert_eq!(errno(read), Errno::INTR);
    // Available data is not waited for.
    writer.write(b"x").unwrap();
    assert_eq!(reader.read_interruptible(&mut [0], &token).unwrap(), 1);
    assert_eq!(errno(reader.read_interruptible(&mut [0], &token)), Errno::INTR);
    let token = WaitToken::new();
    let data = vec![0; 100_000];
    let written = blocked(|| writer.write_interruptible(&data, &token), || token.cancel());
    assert_eq!(written.unwrap(), 65_536);
    assert_eq!(errno(writer.write_interruptible(&data, &token)), Errno::INTR);
    for flags in [OFlags::RDONLY, OFlags::WRONLY] {
        let token = WaitToken::new();
        let open =
            || task.posix().open_interruptible(At::Cwd, "/fifo", &OpenHow::new(flags), &token);
        assert_eq!(errno(blocked(open, || token.cancel())), Errno::INTR);
    }
    // Interrupted openers do not count as partners.
    let nonblock = OFlags::WRONLY | OFlags::NONBLOCK;
    assert_eq!(errno(task.posix().open("/fifo", nonblock, MODE)), Errno::NXIO);
    let file = task.posix().open("/fifo", OFlags::RDONLY | OFlags::NONBLOCK, MODE).unwrap();
    assert_eq!(file.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_ends_of_a_fifo_wait_for_each_other() {
    let task = task();
    task.posix().mknodat(At::Cwd, "/fifo", FileType::Fifo, MODE, 0).unwrap();
    let open = |flags| task.posix().open("/fifo", flags, MODE).unwrap();
    let mut writer = None;
    let reader = blocked(|| open(OFlags::RDONLY), || writer = Some(open(OFlags::WRONLY)));
    let writer = writer.unwrap();
    writer.write(b"one").unwrap();
    let mut buf = [0; 8];
    assert_eq!(reader.read(&mut buf).unwrap(), 3);
    drop(reader);
    assert_eq!(errno(writer.write(b"x")), Errno::PIPE);
    drop(writer);
    // A writer that opens and closes while a reader is waking up has counted as its partner.
    let reader = blocked(
        || open(OFlags::RDONLY),
        || {
            let writer = open(OFlags::WRONLY);
            writer.write(b"gone").unwrap();
        },
    );
    assert_eq!(reader.read(&mut buf).unwrap(), 4);
    assert_eq!(reader.read(&mut buf).unwrap(), 0);
    drop(reader);
    // An opening for both ends does not wait, and unread data is lost with the last file.
    let both = open(OFlags::RDWR);
    both.write(b"lost").unwrap();
    drop(both);
    let reader = open(OFlags::RDONLY | OFlags::NONBLOCK);
    assert_eq!(reader.read(&mut buf).unwrap(), 0);
}

/// A fifo opened for writing does not prevent its file system from becoming read-only. It can still
/// be written to then; its times do not change.
#[test]
fn a_fifo_on_a_file_system_that_is_read_only() {
    let task = task();
    task.posix().mknodat(At::Cwd, "/fifo", FileType::Fifo, MODE, 0).unwrap();
    let both = task.posix().open("/fifo", OFlags::RDWR, MODE).unwrap();
    let before = both.stat().unwrap();
    vfscale_harness::pause(A_WHILE);
    both.write(b"x").unwrap();
    let after = both.stat().unwrap();
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    task.posix().remount("/", vfscale::posix::MountFlags::RDONLY).unwrap();
    vfscale_harness::pause(A_WHILE);
    both.write(b"x").unwrap();
    assert_eq!(both.stat().unwrap().mtime, after.mtime);
    drop(both);
    task.posix().open("/fifo", OFlags::RDWR, MODE).unwrap();
}

#[test]
fn pipes_are_told_by_stat_and_path() {
    let vfs = vfs();
    let task = vfs.task();
    let [(reader, writer), (other, _)] = [pipe(&task), pipe(&task)];
    let stat = reader.stat().unwrap();
    assert_eq!(stat, writer.stat().unwrap());
    assert_eq!((stat.mode, stat.nlink, stat.size, stat.uid), (0o010_600, 1, 0, 0));
    assert_ne!(stat.ino, other.stat().unwrap().ino);
    assert_ne!(stat.dev, task.metadata("/").unwrap().dev);
    assert_eq!(reader.statfs().unwrap().magic, 0x5049_5045);
    let name = format!("pipe:[{}]", stat.ino);
    assert_eq!(task.posix().path_of(&reader).unwrap().to_str(), Some(name.as_str()));
    assert_eq!(reader.flags(), OFlags::RDONLY);
    assert_eq!(writer.flags(), OFlags::WRONLY);
    vfscale_harness::pause(A_WHILE);
    writer.write(b"x").unwrap();
    reader.read(&mut [0]).unwrap();
    assert_eq!(reader.stat().unwrap(), stat, "use leaves the times of a pipe alone");
    assert!(format!("{reader:?}").contains(&stat.ino.to_string()));
}

/// Calls that do not apply to a pipe fail as in Linux.
#[test]
fn pipes_are_no_directories_and_have_no_names() {
    let task = task();
    let (reader, writer) = pipe(&task);
    assert_eq!(errno(writer.read(&mut [0])), Errno::BADF);
    assert_eq!(errno(reader.write(&[0])), Errno::BADF);
    assert_eq!(errno(reader.seek(Whence::Set(0))), Errno::SPIPE);
    assert_eq!(errno(reader.pread(&mut [0], 0)), Errno::SPIPE);
    assert_eq!(errno(reader.fallocate(FallocateFlags::empty(), 0, 1)), Errno::BADF);
    assert_eq!(errno(task.posix().fchdir(&reader)), Errno::NOTDIR);
    assert_eq!(
        errno(task.posix().fstatat(At::File(&reader), "..", AtFlags::empty())),
        Errno::NOTDIR
    );
    assert_eq!(
        errno(reader.read_dir_at(0, |_| std::ops::ControlFlow::Continue(()))),
        Errno::NOTDIR
    );
    let handle = task.posix().name_to_handle_at(At::File(&reader), "", AtFlags::EMPTY_PATH);
    assert_eq!(errno(handle), Errno::OPNOTSUPP);
    let link = task.posix().linkat(At::File(&reader), "", At::Cwd, "/name", AtFlags::EMPTY_PATH);
    assert_eq!(errno(link), Errno::XDEV);
    assert_eq!(errno(reader.copy_range(None, &writer, None, 1)), Errno::INVAL);
    assert!(task.posix().fstatat(At::File(&reader), "", AtFlags::EMPTY_PATH).is_ok());
    assert_eq!(errno(task.posix().pipe2(OFlags::APPEND)), Errno::INVAL);
    let token = WaitToken::new();
    reader.flock(Some(LockKind::Exclusive), None).unwrap();
    assert_eq!(
        errno(reader.ofd_lock(Some(LockKind::Exclusive), LockRange::WHOLE, None)),
        Errno::BADF
    );
    assert_eq!(
        task.posix()
            .open("/", OFlags::RDONLY, MODE)
            .unwrap()
            .read_interruptible(&mut [0], &token)
            .map_err(|e| e.errno()),
        Err(Errno::ISDIR)
    );
}

#[test]
fn descriptors_of_pipes_and_files_of_memory() {
    let task = task();
    let (reader, writer) = task.posix().pipe2_fd(OFlags::CLOEXEC | OFlags::NONBLOCK).unwrap();
    assert_eq!((reader.0, writer.0), (0, 1));
    let memory = task.posix().memfd_create_fd("name", MemfdFlags::empty()).unwrap();
    assert_eq!(errno(task.posix().read(reader, &mut [0])), Errno::AGAIN);
    assert_eq!(task.posix().write(writer, b"x").unwrap(), 1);
    let copy = task.posix().dup(writer).unwrap();
    task.posix().close(writer).unwrap();
    assert_eq!(task.posix().read(reader, &mut [0]).unwrap(), 1);
    assert_eq!(errno(task.posix().read(reader, &mut [0])), Errno::AGAIN);
    // A forked task holds the other end, too.
    let child = task.fork();
    task.posix().close(copy).unwrap();
    assert_eq!(errno(task.posix().read(reader, &mut [0])), Errno::AGAIN);
    drop(child);
    assert_eq!(task.posix().read(reader, &mut [0]).unwrap(), 0);
    task.posix().exec();
    assert_eq!(task.posix().descriptor_list(), [memory]);
}

#[test]
fn files_of_memory_have_no_name_and_end_with_their_last_file() {
    let vfs = vfs();
    let task = vfs.task();
    let file = task.posix().memfd_create("scratch", MemfdFlags::CLOEXEC).unwrap();
    let path = task.posix().path_of(&file).unwrap();
    assert_eq!(path.to_str(), Some("/memfd:scratch (deleted)"));
    let stat = file.stat().unwrap();
    assert_eq!((stat.mode, stat.nlink, stat.size), (0o100_777, 0, 0));
    file.write_all(b"hello").unwrap();
    let again = task.posix().reopen(&file, OFlags::RDONLY).unwrap();
    let mut buf = [0; 8];
    assert_eq!(again.read(&mut buf).unwrap(), 5);
    assert_eq!(errno(again.write(b"x")), Errno::BADF);
    file.truncate(1 << 20).unwrap();
    assert_eq!(file.seek(Whence::Hole(0)).unwrap(), 4096);
    let link = task.posix().linkat(At::File(&file), "", At::Cwd, "/name", AtFlags::EMPTY_PATH);
    assert_eq!(errno(link), Errno::XDEV);
    // The memory is counted, and freed.
    let free = |file: &File| file.statfs().unwrap().blocks_free;
    let other = task.posix().memfd_create("", MemfdFlags::empty()).unwrap();
    drop((file, again));
    rcu::synchronize();
    let all = free(&other);
    other.write_all(&[1; 1 << 20]).unwrap();
    assert!((256..300).contains(&(all - free(&other))));
    let full = other.fallocate(FallocateFlags::empty(), 0, 32 << 20);
    assert_eq!(errno(full), Errno::NOSPC);
    other.truncate(0).unwrap();
    rcu::synchronize();
    assert_eq!(free(&other), all);
    assert_eq!(
        errno(task.posix().memfd_create("x".repeat(250), MemfdFlags::empty())),
        Errno::INVAL
    );
    assert_eq!(errno(task.posix().memfd_create("", MemfdFlags::HUGETLB)), Errno::INVAL);
}

/// Ends of pipes outlive the task and the tree in which they were created.
#[test]
fn pipes_outlive_their_tree() {
    for scaling in [Scaling::default(), Scaling::before("pseudo").unwrap(), Scaling::kernel_2_6()] {
        let vfs = vfscale::memory().size(1 << 20).scaling(scaling).build().unwrap();
        let task = vfs.task();
        let (reader, writer) = pipe(&task);
        let memory = task.posix().memfd_create("m", MemfdFlags::empty()).unwrap();
        let many: Vec<_> = (0..200).map(|_| pipe(&task)).collect();
        drop((task, vfs));
        writer.write(b"x").unwrap();
        memory.write_all(b"x").unwrap();
        drop((writer, many));
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), 1);
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), 0);
    }
}
