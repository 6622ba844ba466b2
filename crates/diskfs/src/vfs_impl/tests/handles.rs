//! Handles of removed files, whose numbers lead to blocks that are still intact on the device.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vfscale_vfs::{FileHandle, OFlags, OpenOptions};

use super::*;
use crate::format::inode::block_of;

/// The number of files in one directory: more than the inodes that a group retains.
const FILES: usize = 512;
/// The number of other files, whose nodes displace the nodes of the first ones from memory.
const OTHERS: usize = 4096;
/// The number of rounds of creation and removal.
const ROUNDS: u64 = 12;

/// Returns a volume that holds as few inodes in memory as possible, with [`OTHERS`] files whose
/// nodes are not in memory.
fn small_table() -> Mounted {
    let mounted = made(64 * MIB);
    mounted.mkdir("/others");
    (0..OTHERS).for_each(|at| mounted.write(&format!("/others/{at}"), b""));
    let device = mounted.device.clone();
    drop(mounted.again());
    opened_with(device, Settings { metadata_cache_bytes: 0, ..Settings::default() })
}

impl Mounted {
    /// Writes everything back and makes it durable: the device then has the current inodes.
    fn go_home(&self) {
        self.remount(MountFlags::RDONLY).unwrap();
        self.remount(MountFlags::empty()).unwrap();
    }

    fn handle(&self, path: &str) -> FileHandle {
        self.task.posix().name_to_handle_at(At::Cwd, path, AtFlags::empty()).unwrap()
    }

    fn open_handle(&self, handle: &FileHandle) -> Result<vfscale_vfs::File, Errno> {
        let root = self.task.open_with("/", &OpenOptions::new().read(true)).unwrap();
        let opened = self.task.posix().open_by_handle_at(&root, handle, OFlags::RDONLY);
        opened.map_err(|error| error.errno())
    }

    /// Drops the nodes of removed files from memory, in favour of others.
    fn forget_nodes(&self) {
        self.go_home();
        (0..OTHERS).for_each(|at| _ = self.stat(&format!("/others/{at}")));
    }
}

/// Files are created, written back and removed, and the blocks of their inodes are freed and not
/// written since: the inodes on the device look valid, including their generation, and lead to
/// blocks that other files own by now.
///
/// Race: A number from a handle against a chunk of inodes that is given up.
///
/// Blocks of inodes that a group has given up stay on the device unchanged, with inodes that look
/// alive and extents that belong to other files by now. So a number that no name vouches for is
/// believed only after a lookup in its group's tree of chunks, with the group locked and the number
/// marked as being read. A thread that frees the inode, or creates one of that number, waits for
/// the mark, and no thread waits for it with a group locked. This also holds for the parent of a
/// directory that is found by number, which may have moved since.
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

/// While one thread creates files, writes them back and removes them, other threads open the
/// handles of files of any time. A handle that opens leads to the file it was made of.
///
/// Race: A number from a handle against a chunk of inodes that is given up.
/// Race: Number from a handle / chunk of inodes given up, created again.
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
                // After the last round, some files can be opened.
                break;
            }
            numbers.for_each(|number| mounted.unlink(&path(number), AtFlags::empty()).unwrap());
            mounted.fs.settle().unwrap();
            (0..200).for_each(|at| _ = mounted.stat(&format!("/others/{}", round * 200 + at)));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
