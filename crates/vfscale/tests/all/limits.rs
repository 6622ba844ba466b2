//! All memory of a tree other than file data is bounded. Each kind of object is created until the
//! error, freed, and created again, by several threads, too.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use vfscale::posix::{
    At, Fd, FileList, LockKind, LockRange, MemfdFlags, MountFlags, OFlags, SocketType, UmountFlags,
    WaitToken,
};
use vfscale::{Credentials, Errno, File, Limits, MemFs, Mode, Scaling, Task, Vfs};
use vfscale_sync::rcu;
use vfscale_sync::reclaim::{self, Work};

const MODE: Mode = Mode::from_bits_retain(0o644);
const SIZE: u64 = 64 << 20;
/// Long enough for a thread to fall asleep.
const A_WHILE: Duration = Duration::from_millis(30);

fn vfs(limits: Limits) -> Vfs {
    vfscale::memory().size(SIZE).limits(limits).build().unwrap()
}

fn limits() -> Limits {
    Limits::for_size(SIZE)
}

fn errno<T: Debug>(result: vfscale::Result<T>) -> Errno {
    result.unwrap_err().errno()
}

/// Creates objects until that fails; returns them and the error.
fn fill<T: Debug>(mut make: impl FnMut(usize) -> vfscale::Result<T>) -> (Vec<T>, Errno) {
    let mut made = Vec::new();
    loop {
        match make(made.len()) {
            Ok(one) => made.push(one),
            Err(error) => return (made, error.errno()),
        }
    }
}

fn create(task: &Task, path: impl AsRef<std::path::Path>) -> File {
    task.posix().open(path, OFlags::CREATE | OFlags::RDWR, MODE).unwrap()
}

#[test]
fn open_files_are_limited_by_enfile_and_returned() {
    for open in [1, 33, 1000] {
        let vfs = vfs(limits().open_files(open));
        let task = vfs.task();
        task.write("file", "").unwrap();
        for _ in 0..3 {
            let (files, error) = fill(|_| task.posix().open("file", OFlags::RDONLY, MODE));
            assert_eq!((files.len() as u64, error), (open, Errno::NFILE));
            // Other calls that open files fail as well, and an attempt creates nothing.
            let tries = [
                errno(task.posix().open("new", OFlags::CREATE | OFlags::WRONLY, MODE)),
                errno(task.posix().open(
                    "new",
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY,
                    MODE,
                )),
                errno(task.posix().open("/", OFlags::PATH, MODE)),
                errno(task.posix().open("/", OFlags::TMPFILE | OFlags::WRONLY, MODE)),
                errno(task.posix().pipe2(OFlags::empty())),
                errno(task.posix().socketpair(SocketType::Stream, OFlags::empty())),
                errno(task.posix().memfd_create("m", MemfdFlags::empty())),
                errno(task.posix().reopen(&files[0], OFlags::RDONLY)),
                errno(task.read_dir("/")),
            ];
            assert!(tries.iter().all(|error| *error == Errno::NFILE), "{tries:?}");
            assert!(!task.exists("new").unwrap());
            // More descriptors are not more open files.
            drop((files[0].clone(), task.posix().install(files[0].clone()).unwrap()));
            task.posix().close_all();
        }
        assert_eq!(task.read_dir("/").unwrap().count(), 1);
        assert_eq!(vfs.counts().open_files, 0);
    }
}

#[test]
fn files_of_all_file_systems_of_a_tree_count_together() {
    let vfs = vfs(limits().open_files(500));
    let task = vfs.task();
    for n in 0..3 {
        task.create_dir(format!("{n}")).unwrap();
        let fs = vfscale::MemFs::builder().size(1 << 20).build();
        task.posix().mount(fs, format!("{n}"), vfscale::posix::MountFlags::empty()).unwrap();
        task.write(format!("{n}/file"), "").unwrap();
    }
    let other = task.posix().unshare_mounts().unwrap();
    for round in 0..6 {
        // Lists of other file systems reserve units for future files; these are taken back.
        let task = if round % 2 == 0 { &task } else { &other };
        let path = format!("/{}/file", round % 3);
        let (files, error) = fill(|_| task.posix().open(&path, OFlags::RDONLY, MODE));
        assert_eq!((files.len(), error), (500, Errno::NFILE), "round {round}");
        drop(files);
        let (pipes, error) = fill(|_| task.posix().pipe2(OFlags::empty()));
        assert_eq!((pipes.len(), error), (250, Errno::NFILE), "round {round}");
    }
}

/// Race: Each list takes units into reserve, also those for the second end of another CPU's pipe.
#[test]
fn calls_of_two_cpus_never_lack_the_open_files_that_both_leave() {
    let vfs = vfs(limits().open_files(8));
    vfs.task().write("/file", "").unwrap();
    thread::scope(|scope| {
        for cpu in 0..2 {
            let task = vfs.task();
            scope.spawn(move || {
                let _cpu = vfscale_sync::cpu::pretend(cpu);
                let opened = task.posix().open("/file", OFlags::RDONLY, MODE).unwrap();
                for round in 0..20_000 {
                    let pipe = task.posix().pipe2(OFlags::empty()).map(drop);
                    let pair =
                        task.posix().socketpair(SocketType::Stream, OFlags::empty()).map(drop);
                    let file = task.posix().open("/file", OFlags::RDONLY, MODE).map(drop);
                    let again = task.posix().reopen(&opened, OFlags::RDONLY).map(drop);
                    for made in [pipe, pair, file, again] {
                        made.unwrap_or_else(|error| panic!("round {round}: {error}"));
                    }
                }
            });
        }
    });
}

#[test]
fn a_file_on_a_private_list_counts_until_it_is_closed() {
    let vfs = vfs(limits().open_files(200));
    let task = vfs.task();
    task.write("file", "").unwrap();
    for _ in 0..3 {
        let list = FileList::new();
        let open = || task.posix().open("file", OFlags::RDWR, MODE);
        let (mut files, _) = fill(|_| open().inspect(|file| assert!(list.adopt(file))));
        assert_eq!(files.len(), 200);
        files.truncate(150);
        let (more, error) = fill(|_| open());
        assert_eq!((more.len(), error), (50, Errno::NFILE));
    }
}

/// Race: The last open file of a tree.
#[test]
fn threads_open_files_beside_each_other_up_to_the_limit() {
    const LIMIT: u64 = 400;
    let vfs = vfs(limits().open_files(LIMIT));
    vfs.task().write("file", "").unwrap();
    let (open, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for n in 0..4 {
            let (task, open, refused) = (vfs.task(), &open, &refused);
            scope.spawn(move || {
                for round in 0..200 {
                    let mut files = Vec::new();
                    for _ in 0..(20 + (round * 7 + n * 31) % 180) {
                        match task.posix().open("file", OFlags::RDONLY, MODE) {
                            Ok(file) => {
                                files.push(file);
                                let now = open.fetch_add(1, Ordering::SeqCst) + 1;
                                assert!(now <= LIMIT, "{now} files");
                            }
                            Err(error) => {
                                assert_eq!(error.errno(), Errno::NFILE);
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                    open.fetch_sub(files.len() as u64, Ordering::SeqCst);
                }
            });
        }
    });
    let task = vfs.task();
    let (files, _) = fill(|_| task.posix().open("file", OFlags::RDONLY, MODE));
    assert_eq!(files.len() as u64, LIMIT, "all units were returned; {refused:?} were refused");
}

#[test]
fn descriptors_of_a_task_end_with_emfile() {
    for max in [0, 3, 64, 65, 200] {
        let vfs = vfs(limits().descriptors(max));
        let task = vfs.task();
        let file = create(&task, "file");
        let (fds, error) = fill(|_| task.posix().install(file.clone()));
        assert_eq!((fds.len(), error), (max, Errno::MFILE));
        let Some(first) = fds.first().copied() else { continue };
        assert_eq!(errno(task.posix().dup(first)), Errno::MFILE);
        assert_eq!(errno(task.posix().pipe2_fd(OFlags::empty())), Errno::MFILE);
        assert_eq!(errno(task.posix().dup_from(first, Fd(max as i32), false)), Errno::INVAL);
        assert_eq!(errno(task.posix().dup2(first, Fd(max as i32))), Errno::BADF);
        let child = task.fork();
        assert_eq!(
            (child.posix().descriptors_max(), child.posix().descriptor_list().len()),
            (max, max)
        );
        task.posix().close(first).unwrap();
        assert_eq!(task.posix().install(file.clone()).unwrap(), first);

        // Open descriptors remain when the limit is lowered; only a privileged task may raise it.
        task.posix().set_descriptors_max(1).unwrap();
        assert_eq!(task.posix().descriptor_list().len(), max);
        assert_eq!(task.fork().posix().descriptor_list().len(), max);
        task.set_credentials(Credentials::user(1, 1));
        assert_eq!(errno(task.posix().set_descriptors_max(2)), Errno::PERM);
        assert_eq!(task.posix().descriptors_max(), 1);
        task.posix().close_all();
        assert_eq!(task.posix().install(file.clone()).unwrap(), Fd(0));
        assert_eq!(errno(task.posix().install(file)), Errno::MFILE);
        assert_eq!(
            errno(task.posix().set_descriptors_max(vfscale::posix::OPEN_MAX + 1)),
            Errno::INVAL
        );
    }
}

#[test]
fn pipes_get_one_page_beyond_the_soft_limit_and_none_beyond_the_hard_one() {
    let vfs = vfs(limits().pipe_pages(100, 110));
    let task = vfs.task();
    for _ in 0..3 {
        let (pipes, error) = fill(|_| task.posix().pipe2(OFlags::NONBLOCK));
        // Six pipes of sixteen pages each, then ten beyond the soft limit, and four for the rest.
        assert_eq!((pipes.len(), error), (6 + 10 + 4, Errno::NFILE));
        let sizes: Vec<_> = pipes.iter().map(|(reader, _)| reader.pipe_size().unwrap()).collect();
        assert!(sizes[..6].iter().all(|size| *size == 16 << 12));
        assert!(sizes[6..].iter().all(|size| *size == 1 << 12));
        // A pipe holds as many bytes as its size.
        for ((reader, writer), size) in pipes.iter().zip(&sizes) {
            assert_eq!(writer.write(&vec![7; 1 << 20]).unwrap(), *size);
            assert_eq!(reader.read(&mut vec![0; 1 << 20]).unwrap(), *size);
        }
        let root = Credentials::root();
        assert_eq!(errno(pipes[19].0.set_pipe_size(8192, &root)), Errno::PERM);
        assert_eq!(pipes[0].0.set_pipe_size(4096, &root).unwrap(), 4096);
        assert_eq!(pipes[19].0.set_pipe_size(8 << 12, &root).unwrap(), 8 << 12);
        assert_eq!(vfs.usage().pipe_pages, 100 + 10 - 15 + 7);
        drop(pipes);
        assert_eq!(vfs.usage().pipe_pages, 0);
    }
}

#[test]
fn fifos_count_while_an_end_is_open() {
    let vfs = vfs(limits().pipe_pages(20, 22));
    let task = vfs.task();
    let open = |n: usize| task.posix().open(format!("fifo{n}"), OFlags::RDWR, MODE);
    (0..8).for_each(|n| {
        task.posix()
            .mknodat(At::Cwd, format!("fifo{n}"), vfscale::FileType::Fifo, MODE, 0)
            .unwrap();
    });
    for _ in 0..3 {
        let (fifos, error) = fill(open);
        assert_eq!((fifos.len(), error), (1 + 2 + 4, Errno::NFILE));
        assert!(open(0).is_ok(), "another open file of one that has its pages");
        assert_eq!(vfs.usage().pipe_pages, 22);
        drop(fifos);
        assert_eq!(vfs.usage().pipe_pages, 0);
    }
}

#[test]
fn a_pipe_that_can_not_be_opened_takes_nothing() {
    let vfs = vfs(limits().open_files(33));
    let task = vfs.task();
    task.posix().mknodat(At::Cwd, "fifo", vfscale::FileType::Fifo, MODE, 0).unwrap();
    let held = create(&task, "file");
    let (files, _) = fill(|_| task.posix().open("file", OFlags::RDONLY, MODE));
    assert_eq!(errno(task.posix().open("fifo", OFlags::RDWR, MODE)), Errno::NFILE);
    drop(files);
    // Room for one end only.
    let pipes: Vec<_> = (0..15).map(|_| task.posix().pipe2(OFlags::empty()).unwrap()).collect();
    let last = task.posix().open("file", OFlags::RDONLY, MODE).unwrap();
    for _ in 0..100 {
        assert_eq!(errno(task.posix().pipe2(OFlags::empty())), Errno::NFILE);
        assert_eq!(
            errno(task.posix().socketpair(SocketType::Stream, OFlags::empty())),
            Errno::NFILE
        );
    }
    drop((pipes, held, last));
    vfscale_sync::rcu::synchronize();
    assert_eq!((vfs.usage().pipe_pages, vfs.counts().open_files), (0, 0));
}

/// Writes into pairs of sockets until none accepts more; returns the number of bytes in all of
/// them.
fn flood(pairs: &[(File, File)], kind: SocketType) -> usize {
    let message = vec![1; if kind == SocketType::Stream { 1 << 20 } else { 3000 }];
    let mut bytes = 0;
    for (end, _) in pairs {
        let (writes, error) = fill(|_| end.write(&message));
        assert!(matches!(error, Errno::AGAIN | Errno::NOBUFS), "{error:?}");
        bytes += writes.iter().sum::<usize>();
    }
    bytes
}

#[test]
fn sockets_hold_as_much_as_there_is_for_all() {
    const BYTES: u64 = 1 << 20;
    for kind in [SocketType::Stream, SocketType::SeqPacket, SocketType::Datagram] {
        let vfs = vfs(limits().socket_bytes(BYTES));
        let task = vfs.task();
        for _ in 0..3 {
            let pair = |_| task.posix().socketpair(kind, OFlags::NONBLOCK).unwrap();
            let pairs: Vec<_> = (0..20).map(pair).collect();
            let held = flood(&pairs, kind) as u64;
            assert!((BYTES / 2..=BYTES).contains(&held), "{kind:?}: {held} bytes");
            assert!(vfs.usage().socket_bytes <= BYTES);
            // A socket without data in its queue could wait for ever.
            assert_eq!(errno(pairs[19].0.write(&[0; 4096])), Errno::NOBUFS);
            // After a read, the same amount can be written again, and nothing is lost.
            let mut buf = vec![0; 8192];
            assert!(pairs[0].1.read(&mut buf).unwrap() > 0);
            assert!(pairs[0].0.write(&[0; 100]).unwrap() == 100);
            drop(pairs);
            assert_eq!(vfs.usage().socket_bytes, 0, "{kind:?}");
        }
    }
}

/// Race: Writers to sockets when there is no memory for their messages.
///
/// A writer finds that all sockets together hold as much as they may. If its own socket holds
/// something, the socket's reader will return that, and the writer sleeps until then. It sets
/// `starved` under the lock of the pair; a reader clears that under this lock and wakes it. Memory
/// that other sockets return wakes no writer, and need not: the socket's own reader will. If the
/// socket is empty, no reader would wake the writer, so it fails (`ENOBUFS`) instead of sleeping. A
/// direction of a stream retains the buffer that its reader has emptied, so a woken writer has
/// memory even if other sockets have taken the rest.
#[test]
fn a_writer_without_memory_waits_for_its_reader() {
    for kind in [SocketType::Stream, SocketType::SeqPacket, SocketType::Datagram] {
        let vfs = vfs(limits().socket_bytes(6 << 12));
        let task = vfs.task();
        let (writer, reader) = task.posix().socketpair(kind, OFlags::empty()).unwrap();
        const PIECES: usize = 200;
        let written = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..PIECES {
                    assert_eq!(writer.write(&vec![n as u8; 3000]).unwrap(), 3000);
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
            vfscale_harness::pause(A_WHILE);
            assert!(written.load(Ordering::SeqCst) < 10, "{kind:?}: it does not wait");
            for n in 0..PIECES {
                let mut buf = vec![0; 3000];
                let mut at = 0;
                while at < buf.len() {
                    at += reader.read(&mut buf[at..]).unwrap();
                }
                assert!(buf.iter().all(|byte| *byte == n as u8));
            }
        });
        drop((writer, reader));
        assert_eq!(vfs.usage().socket_bytes, 0);
    }
}

/// Race: Writers to sockets when there is no memory for their messages.
#[test]
fn threads_send_beside_each_other_with_too_little_memory() {
    let vfs = vfs(limits().socket_bytes(20 << 12));
    for kind in [SocketType::Stream, SocketType::Datagram] {
        thread::scope(|scope| {
            for _ in 0..3 {
                let task = vfs.task();
                let (writer, reader) = task.posix().socketpair(kind, OFlags::empty()).unwrap();
                scope.spawn(move || {
                    let mut sent = 0;
                    while sent < 500_000 {
                        match writer.write(&[3; 2000]) {
                            Ok(n) => sent += n,
                            Err(error) => {
                                assert_eq!(error.errno(), Errno::NOBUFS);
                                thread::yield_now();
                            }
                        }
                    }
                });
                scope.spawn(move || {
                    let (mut got, mut buf) = (0, [0; 2000]);
                    while got < 500_000 {
                        got += reader.read(&mut buf).unwrap();
                    }
                });
            }
        });
        assert_eq!(vfs.usage().socket_bytes, 0);
    }
}

#[test]
fn locks_end_with_enolck() {
    let vfs = vfs(limits().locks(100));
    let task = vfs.task();
    let files: Vec<_> = (0..4).map(|n| create(&task, format!("{n}"))).collect();
    let byte = |n: usize| LockRange::new(n as u64 * 2, n as u64 * 2).unwrap();
    let lock =
        |n: usize| task.posix().posix_lock(&files[n % 3], Some(LockKind::Exclusive), byte(n), None);
    for _ in 0..3 {
        let (records, error) = fill(lock);
        assert_eq!((records.len(), error), (100, Errno::NOLCK));
        assert_eq!(vfs.usage().locks, 100);
        assert_eq!(errno(files[3].flock(Some(LockKind::Shared), None)), Errno::NOLCK);
        let ofd = files[3].ofd_lock(Some(LockKind::Shared), byte(0), None);
        assert_eq!(errno(ofd), Errno::NOLCK);
        assert_eq!(
            errno(vfs.task().posix().posix_lock(&files[3], Some(LockKind::Shared), byte(0), None)),
            Errno::NOLCK
        );
        // Held locks can be released and converted.
        task.posix().posix_lock(&files[0], None, byte(0), None).unwrap();
        files[3].flock(Some(LockKind::Shared), None).unwrap();
        files[3].flock(Some(LockKind::Exclusive), None).unwrap();
        files[3].flock(None, None).unwrap();
        // A waiting request becomes the lock without another unit.
        let other = vfs.task();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let token = WaitToken::new();
                other.posix().posix_lock(&files[1], Some(LockKind::Shared), byte(1), Some(&token))
            });
            while vfs.usage().locks < 100 {
                thread::yield_now();
            }
            task.posix().posix_lock(&files[1], None, LockRange::WHOLE, None).unwrap();
            waits.join().unwrap().unwrap();
        });
        for file in &files {
            task.posix().posix_lock(file, None, LockRange::WHOLE, None).unwrap();
        }
        drop(other);
        assert_eq!(vfs.usage().locks, 0);
    }
    lock(0).unwrap();
    files[2].flock(Some(LockKind::Shared), None).unwrap();
    drop(files);
    drop(task);
    assert_eq!(vfs.usage().locks, 0);
}

#[test]
fn threads_lock_concurrently_up_to_the_limit() {
    let vfs = vfs(limits().locks(64));
    thread::scope(|scope| {
        for n in 0..4 {
            let task = vfs.task();
            scope.spawn(move || {
                let file = create(&task, format!("{n}"));
                for round in 0..300 {
                    let wanted = 1 + (round * 5 + n * 3) % 40;
                    for at in 0..wanted {
                        let range = LockRange::new(at * 2, at * 2).unwrap();
                        match file.ofd_lock(Some(LockKind::Exclusive), range, None) {
                            Ok(()) => {}
                            Err(error) => assert_eq!(error.errno(), Errno::NOLCK),
                        }
                    }
                    file.ofd_lock(None, LockRange::WHOLE, None).unwrap();
                }
            });
        }
    });
    assert_eq!(vfs.usage().locks, 0);
}

#[test]
fn files_without_a_name_count_in_the_size_of_the_tree() {
    let vfs = vfscale::memory().size(4 << 20).memory_files(1 << 20).build().unwrap();
    let task = vfs.task();
    let used = || {
        let statfs = task.posix().statfs(At::Cwd, "/").unwrap();
        (statfs.blocks - statfs.blocks_free) * u64::from(statfs.block_size)
    };
    let before = used();
    for _ in 0..3 {
        let nameless = |n: usize| {
            let file = if n.is_multiple_of(2) {
                task.posix().open("/", OFlags::TMPFILE | OFlags::RDWR, MODE)?
            } else {
                let file = task.posix().open("f", OFlags::CREATE | OFlags::RDWR, MODE)?;
                task.remove_file("f")?;
                file
            };
            file.write_all(&[1; 100 << 10]).map(|()| file)
        };
        let (files, error) = fill(nameless);
        assert_eq!(error, Errno::NOSPC);
        assert!(files.len() < 42 && used() <= 4 << 20, "{} files", files.len());
        let (memory, error) = fill(|_| {
            let file = task.posix().memfd_create("m", MemfdFlags::empty())?;
            file.write_all(&[1; 100 << 10]).map(|()| file)
        });
        assert_eq!(error, Errno::NOSPC);
        assert!(memory.len() < 11, "{} files of memory", memory.len());
        drop((files, memory));
        vfscale_sync::rcu::synchronize();
        assert!(used() <= before + 8192, "{} bytes, {before} before", used());
    }
}

#[test]
fn the_same_with_one_slot_for_all() {
    let limits = limits().open_files(100).pipe_pages(40, 44).locks(10);
    let scaling = Scaling::kernel_2_6();
    let builder = vfscale::memory().size(SIZE).scaling(scaling);
    let vfs = builder.limits(limits).build().unwrap();
    assert_eq!(vfs.limits(), limits);
    let task = vfs.task();
    let file = create(&task, "file");
    for _ in 0..3 {
        let (files, error) = fill(|_| task.posix().open("file", OFlags::RDONLY, MODE));
        assert_eq!((files.len(), error), (99, Errno::NFILE));
        drop(files);
        let (pipes, error) = fill(|_| task.posix().pipe2(OFlags::empty()));
        assert_eq!((pipes.len(), error), (2 + 4 + 8, Errno::NFILE));
        let byte = |n: usize| LockRange::new(n as u64 * 2, n as u64 * 2).unwrap();
        let kind = Some(LockKind::Shared);
        let (locks, error) = fill(|n| task.posix().posix_lock(&file, kind, byte(n), None));
        assert_eq!((locks.len(), error), (10, Errno::NOLCK));
        task.posix().posix_lock(&file, None, LockRange::WHOLE, None).unwrap();
    }
}

/// A job that occupies the reclaim thread until its flag is set.
struct Busy(Arc<AtomicBool>);

impl Work for Busy {
    fn step(&mut self) -> bool {
        vfscale_harness::pause(Duration::from_millis(1));
        !self.0.load(Ordering::Relaxed)
    }
}

/// The open-file lists of ended file systems reserve units for future files. Other file systems get
/// these units even before the superblocks have been taken down.
#[test]
fn open_files_of_ended_file_systems_are_returned_immediately() {
    let task = vfs(limits().open_files(64)).task();
    task.posix().mkdirat(At::Cwd, "/m", Mode::RWXU).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    assert!(reclaim::submit(u64::MAX, Box::new(Busy(Arc::clone(&is_over)))).is_ok());
    for _ in 0..200 {
        task.posix()
            .mount(MemFs::builder().size(1 << 20).build(), "/m", MountFlags::empty())
            .unwrap();
        // The last user ends after the unmount, which would otherwise wait for the end.
        let file = create(&task, "/m/file");
        task.posix().umount("/m", UmountFlags::DETACH).unwrap();
        drop(file);
        // At most three grace periods pass until the superblock ends.
        (0..3).for_each(|_| rcu::synchronize());
    }
    is_over.store(true, Ordering::Relaxed);
}

/// Fills a file with attributes until that fails, and gives it access control lists.
fn fill_with_attributes(task: &Task) -> usize {
    let entries = [
        (1_u16, 7_u16, u32::MAX),
        (2, 6, 7),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 5, u32::MAX),
    ];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        acl.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    task.create_dir("/d").unwrap();
    let (made, error) = fill(|n| task.set_xattr("/d", format!("user.{n:0>250}"), b""));
    assert_eq!(error, Errno::NOSPC);
    let (short, error) = fill(|n| task.set_xattr("/d", format!("user.{n}"), b""));
    assert_eq!(error, Errno::NOSPC);
    task.set_xattr("/d", "system.posix_acl_access", &acl).unwrap();
    task.set_xattr("/d", "system.posix_acl_default", &acl).unwrap();
    task.set_xattr("/d", format!("user.{:0>250}", 0), b"replaced").unwrap();
    made.len() + short.len() + 2
}

#[test]
fn a_file_has_no_more_attributes_than_a_list_shows() {
    let vfs = vfs(limits());
    let task = vfs.task();
    let made = fill_with_attributes(&task);
    assert!(made > 255);
    assert_eq!(task.list_xattrs("/d").unwrap().len(), made);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    let volume = vfscale::volume(&path).create(SIZE).open().unwrap();
    let made = fill_with_attributes(&volume.task());
    assert_eq!(volume.task().list_xattrs("/d").unwrap().len(), made);
    volume.close().unwrap();
    let volume = vfscale::volume(&path).open().unwrap();
    assert_eq!(volume.task().list_xattrs("/d").unwrap().len(), made);
    volume.close().unwrap();
}
