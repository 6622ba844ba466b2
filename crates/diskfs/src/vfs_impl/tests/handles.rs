//! Handles of files that are gone: their numbers lead to blocks that are still whole on the device.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vfscale_vfs::{FileHandle, OFlags};

use super::*;
use crate::format::inode::block_of;

/// Files in one directory, which is more than a group keeps inodes for.
const FILES: usize = 512;
/// Files whose nodes, when they come, push those of others out of memory.
const OTHERS: usize = 4096;
/// How often files come and go.
const ROUNDS: u64 = 12;

/// A volume that keeps as few inodes in memory as it can, with [`OTHERS`] that are not there yet.
fn small_table() -> Mounted {
    let mounted = made(64 * MIB);
    mounted.mkdir("/others");
    (0..OTHERS).for_each(|at| mounted.write(&format!("/others/{at}"), b""));
    let device = mounted.device.clone();
    drop(mounted.again());
    opened_with(device, DiskOptions { metadata_cache_bytes: 0, ..DiskOptions::default() })
}

impl Mounted {
    /// Everything is home and durable: the device has the inodes as they are now.
    fn go_home(&self) {
        self.remount(MountFlags::RDONLY).unwrap();
        self.remount(MountFlags::empty()).unwrap();
    }

    fn handle(&self, path: &str) -> FileHandle {
        self.task.name_to_handle(At::Cwd, path, AtFlags::empty()).unwrap()
    }

    fn open_handle(&self, handle: &FileHandle) -> Result<vfscale_vfs::File, Errno> {
        let root = self.task.options().read(true).open("/").unwrap();
        let opened = self.task.open_by_handle(&root, handle, OFlags::RDONLY);
        opened.map_err(|error| error.errno())
    }

    /// Forgets the nodes of files that are gone, in favour of others.
    fn forget_nodes(&self) {
        self.go_home();
        (0..OTHERS).for_each(|at| _ = self.stat(&format!("/others/{at}")));
    }
}

/// Made, written home, removed, and the blocks of their inodes given up and not written since: what
/// is on the device looks alive, generation and all, and leads to blocks that others have by now.
#[test]
fn a_handle_of_a_chunk_that_was_given_up_is_stale() {
    let mounted = small_table();
    mounted.mkdir("/d");
    let paths: Vec<_> = (0..FILES).map(|at| format!("/d/{at}")).collect();
    paths.iter().for_each(|path| mounted.write(path, &[1; 5000]));
    let handles: Vec<_> = paths.iter().map(|path| mounted.handle(path)).collect();
    mounted.go_home();
    let before = mounted.fs.volume().groups().totals().inodes;
    paths.iter().for_each(|path| mounted.unlink(path, AtFlags::empty()).unwrap());
    mounted.fs.settle().unwrap();
    let given_up = before - mounted.fs.volume().groups().totals().inodes;
    assert!(given_up >= 128, "{given_up}");
    mounted.forget_nodes();
    let ghosts = |handle: &&FileHandle| {
        let volume = mounted.fs.volume();
        volume
            .cache()
            .read(block_of(handle.ino), &crate::inode::incore::Node::expected(handle.ino))
            .is_ok()
    };
    assert!(handles.iter().filter(ghosts).count() >= 64, "the old blocks are still there");
    for handle in &handles {
        assert_eq!(mounted.open_handle(handle).err(), Some(Errno::STALE), "{handle:?}");
    }
    drop(mounted.again());
}

/// While one thread makes files, writes them home and removes them, others open the handles of what
/// was there at any time. What they open is what the handle was made of.
#[test]
fn handles_beside_files_that_come_and_go() {
    let mounted = &small_table();
    mounted.mkdir("/d");
    let (handles, is_over) = (&Mutex::new(Vec::new()), &AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let (mut at, mut opened) = (thread, 0);
                while !is_over.load(Ordering::Relaxed) || opened == 0 {
                    at = (at * 31 + 7) % 65_521;
                    let known = handles.lock().unwrap();
                    let Some((number, handle)) = known.iter().rev().nth(at % 1024).copied() else {
                        continue;
                    };
                    drop(known);
                    match mounted.open_handle(&handle) {
                        Err(errno) => assert_eq!(errno, Errno::STALE),
                        Ok(file) => {
                            let mut bytes = [0; 8];
                            assert_eq!(file.pread(&mut bytes, 0).unwrap(), 8);
                            assert_eq!(u64::from_le_bytes(bytes), number);
                            opened += 1;
                        }
                    }
                }
            });
        }
        let path = |number: u64| format!("/d/{number}");
        for round in 0..ROUNDS {
            let numbers = round * 300..(round + 1) * 300;
            for number in numbers.clone() {
                mounted.write(&path(number), &number.to_le_bytes());
                let handle = mounted.handle(&path(number));
                handles.lock().unwrap().push((number, handle));
            }
            let journal = mounted.fs.volume().journal().unwrap();
            journal.quiesce().unwrap();
            if round == ROUNDS - 1 {
                // Something can be opened in the end.
                break;
            }
            numbers.for_each(|number| mounted.unlink(&path(number), AtFlags::empty()).unwrap());
            mounted.fs.settle().unwrap();
            (0..200).for_each(|at| _ = mounted.stat(&format!("/others/{}", round * 200 + at)));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
