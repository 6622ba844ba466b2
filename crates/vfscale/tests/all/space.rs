//! Freed space can be used again although readers hold its memory for a while: a call that needs
//! space waits for them before it fails with `ENOSPC`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vfscale::posix::{At, AtFlags, OFlags, XattrFlags};
use vfscale::{Errno, Mode, OpenOptions, Task};
use vfscale_sync::rcu;

const MODE: Mode = Mode::from_bits_retain(0o755);
const SIZE: u64 = 12 << 20;
const ROUNDS: u32 = 4;

/// Runs `body` on a file system of [`SIZE`] bytes while a reader holds memory for 20 milliseconds
/// at a time.
fn with_a_reader(body: impl FnOnce(&Task)) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _guard = rcu::pin();
                vfscale_harness::pause(Duration::from_millis(20));
            }
        });
        let _stop = Stop(&stop);
        body(&vfscale::memory().size(SIZE).build().unwrap().task());
    });
}

/// Creates objects until there is no space left, removes them, and creates as many again, several
/// times.
fn fill_repeatedly(
    task: &Task,
    make: impl Fn(u32) -> vfscale::Result<()>,
    remove: impl Fn(u32) -> vfscale::Result<()>,
) {
    let used = || {
        let statfs = task.posix().statfs(At::Cwd, "/").unwrap();
        (statfs.blocks - statfs.blocks_free) * u64::from(statfs.block_size)
    };
    let before = used();
    let mut count = 0;
    let error = loop {
        match make(count) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), Errno::NOSPC);
    assert!(used() > SIZE * 9 / 10 && count > 50, "{count} fill {} bytes", used());
    for round in 0..ROUNDS {
        (0..count).for_each(|n| remove(n).unwrap());
        assert!(used() <= before + 4096);
        for n in 0..count {
            make(n).unwrap_or_else(|error| panic!("round {round}, {n} of {count}: {error}"));
        }
    }
}

fn unlink(task: &Task, path: String) -> vfscale::Result<()> {
    task.remove_file(path)
}

#[test]
fn files_and_directories() {
    with_a_reader(|task| {
        fill_repeatedly(
            task,
            |n| task.posix().open(format!("/f{n}"), OFlags::CREATE | OFlags::EXCL, MODE).map(drop),
            |n| unlink(task, format!("/f{n}")),
        );
    });
    with_a_reader(|task| {
        fill_repeatedly(
            task,
            |n| task.create_dir(format!("/d{n}")),
            |n| task.remove_dir(format!("/d{n}")),
        );
    });
}

#[test]
fn symbolic_links_and_other_names() {
    let target = "t".repeat(2000);
    with_a_reader(|task| {
        fill_repeatedly(
            task,
            |n| task.symlink(&target, format!("/s{n}")),
            |n| unlink(task, format!("/s{n}")),
        );
    });
    with_a_reader(|task| {
        drop(task.posix().open("/f", OFlags::CREATE, MODE).unwrap());
        fill_repeatedly(
            task,
            |n| task.hard_link("/f", format!("/l{n}")),
            |n| unlink(task, format!("/l{n}")),
        );
    });
}

/// Names that become long, and short again.
#[test]
fn longer_names() {
    const FILES: u32 = 16_300;
    with_a_reader(|task| {
        for n in 0..FILES {
            drop(task.posix().open(format!("/{n}"), OFlags::CREATE, MODE).unwrap());
        }
        let long = |n| format!("/{n:0250}");
        let rename = |from: String, to: String| task.rename(from, to);
        let grow = |n| if n < FILES { rename(format!("/{n}"), long(n)) } else { panic!("no end") };
        fill_repeatedly(task, grow, |n| rename(long(n), format!("/{n}")));
    });
}

#[test]
fn extended_attributes() {
    let value = vec![7; 30_000];
    with_a_reader(|task| {
        for n in 0..1000 {
            drop(task.posix().open(format!("/{n}"), OFlags::CREATE, MODE).unwrap());
        }
        let set = |n| {
            let path = format!("/{n}");
            let how = XattrFlags::empty();
            task.posix().setxattrat(At::Cwd, path, "user.a", &value, how, AtFlags::empty())
        };
        let remove =
            |n| task.posix().removexattrat(At::Cwd, format!("/{n}"), "user.a", AtFlags::empty());
        // The memory that an inode retains for attributes is not freed with them, so it is
        // allocated before.
        (0..1000).for_each(|n| {
            task.posix()
                .setxattrat(
                    At::Cwd,
                    format!("/{n}"),
                    "user.a",
                    &[],
                    XattrFlags::empty(),
                    AtFlags::empty(),
                )
                .and_then(|()| remove(n))
                .unwrap();
        });
        fill_repeatedly(task, set, remove);
    });
}

/// The space that one thread needs was just freed by another, and may be withheld, or in a batch of
/// another CPU. A write is complete nevertheless.
#[test]
fn eight_threads_write_what_they_remove() {
    const THREADS: u64 = 8;
    const BYTES: u64 = 64 << 20;
    let vfs = vfscale::memory().size(BYTES).build().unwrap();
    let data = vec![7; (BYTES * 7 / 8 / THREADS) as usize];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (vfs, data) = (&vfs, &data);
            scope.spawn(move || {
                let task = vfs.task();
                let path = format!("/{thread}");
                for _ in 0..4 * ROUNDS {
                    let file = task
                        .open_with(&path, &OpenOptions::new().write(true).create(true))
                        .unwrap();
                    assert_eq!(file.write(data).unwrap(), data.len());
                    file.truncate(0).unwrap();
                    assert_eq!(file.pwrite(data, 0).unwrap(), data.len());
                    drop(file);
                    unlink(&task, path.clone()).unwrap();
                }
            });
        }
    });
}
