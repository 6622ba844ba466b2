//! The memory that a guest with a tree of 64 MiB can get if it takes all it is allowed to. A test
//! process of its own, because it measures the memory of the whole process.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test")]

mod memory_common;

use vfscale::posix::{LockKind, LockRange, OFlags, SocketType};
use vfscale::{Credentials, Errno, Mode, Task};

use memory_common::resident;

const MODE: Mode = Mode::from_bits_retain(0o666);
const SIZE: usize = 64 << 20;

/// Creates up to `most` objects and holds them; prints their number and their memory.
fn grab<T>(
    what: &str,
    most: usize,
    refusals: &[Errno],
    mut make: impl FnMut(usize) -> vfscale::Result<T>,
) -> Vec<T> {
    let before = resident();
    let mut held = Vec::with_capacity(most.min(1 << 16));
    while held.len() < most {
        match make(held.len()) {
            Ok(one) => held.push(one),
            Err(error) => {
                assert!(refusals.contains(&error.errno()), "{what}: {error}");
                break;
            }
        }
    }
    let took = resident().saturating_sub(before);
    println!("{} {what}: {} KiB", held.len(), took >> 10);
    assert!(held.len() < most, "no limit of {what}");
    assert!(took <= SIZE / 2, "{} {what} take {took} bytes", held.len());
    held
}

fn all_that_there_is(guest: &Task) {
    let files = grab("open files", 500_000, &[Errno::NFILE], |_| {
        guest.posix().open("file", OFlags::RDONLY, MODE)
    });
    drop(files);
    let page = [7; 4096];
    let pipes = grab("full pipes", 20_000, &[Errno::NFILE], |_| {
        let (reader, writer) = guest.posix().pipe2(OFlags::NONBLOCK)?;
        while writer.write(&page).is_ok() {}
        Ok((reader, writer))
    });
    drop(pipes);
    let refusals = [Errno::NFILE, Errno::NOBUFS];
    for kind in [SocketType::Stream, SocketType::Datagram] {
        let sockets = grab("full pairs of sockets", 20_000, &refusals, |_| {
            let (one, other) = guest.posix().socketpair(kind, OFlags::NONBLOCK)?;
            one.write(&page)?;
            while one.write(&page).is_ok() {}
            Ok((one, other))
        });
        drop(sockets);
    }
    let files: Vec<_> = (0..20)
        .map(|n| guest.posix().open(format!("{n}"), OFlags::CREATE | OFlags::RDWR, MODE).unwrap())
        .collect();
    grab("records", 5_200_000, &[Errno::NOLCK], |n| {
        let byte = LockRange::new(n as u64 * 2, n as u64 * 2).unwrap();
        guest.posix().posix_lock(&files[n % files.len()], Some(LockKind::Exclusive), byte, None)
    });
    for file in &files {
        guest.posix().posix_lock(file, None, LockRange::WHOLE, None).unwrap();
    }
}

#[test]
fn a_guest_takes_no_more_than_the_size_of_his_tree() {
    let vfs = vfscale::memory().size(SIZE as u64).mode(Mode::from(0o777)).build().unwrap();
    let guest = vfs.task_as(Credentials::user(1000, 1000));
    guest.write("file", "").unwrap();
    let before = resident();
    for round in 0..3 {
        all_that_there_is(&guest);
        vfscale_sync::rcu::synchronize();
        println!("round {round}: {} KiB more than before", resident().saturating_sub(before) >> 10);
        assert!(resident().saturating_sub(before) <= SIZE);
        assert_eq!((vfs.usage().pipe_pages, vfs.usage().locks), (0, 0));
        assert_eq!(vfs.usage().socket_bytes, 0);
        assert_eq!(vfs.counts().open_files, 0);
    }
}
