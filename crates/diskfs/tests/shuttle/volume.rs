//! Random schedules of whole volumes: concurrent write-back, truncation and reads of the data of a
//! file; files that one thread makes durable while another writes them back; commits while the
//! volume is frozen or shut down; times that several threads change: `RUSTFLAGS="--cfg shuttle"
//! cargo test --release -p vfscale-diskfs --test shuttle volume::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::sync::{Arc, OnceLock};

use shuttle::thread;
use vfscale_block::Device;
use vfscale_diskfs::internals::{Files, Node, NodeTable, TxReservation};
use vfscale_diskfs::{Fault, InodeCore, Settings, Volume, check};
use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::model::{self, Schedules};
use vfscale_testkit::FaultyDevice;
use vfscale_vfs::driver::FileSystem;
use vfscale_vfs::types::{FallocateFlags, SetTime, Timestamp};
use vfscale_vfs::{At, AtFlags, File, FileHandle, OFlags, OpenOptions, Task};

use crate::volumes::{
    BYTES, PAGE, SIZE, assert_no_writes, copy_of, device, failure, memory, mounted, one_list,
    schedules,
};

const REGULAR: u32 = 0o100_644;
/// The most that a transaction needs which makes or changes an inode.
const SMALL: TxReservation = TxReservation { log_blocks: 60, space: 8, from_pool: false };
/// The size of the file after truncation.
const REST: usize = 100;

fn open(device: Arc<dyn Device>) -> Arc<Volume> {
    Arc::new(Volume::open(device, Settings::default()).unwrap())
}

/// Returns the settings of files that nothing writes back by itself.
fn file_settings() -> Settings {
    Settings { data_cache_bytes: 1 << 20, sync_interval: None, ..Settings::default() }
}

/// Asserts that nothing is wrong with the volume except for names: the files of these tests have
/// none.
fn assert_whole(device: Arc<dyn Device>) {
    let report = check::check(device, &check::Options::default(), &mut ()).unwrap();
    let found = report.findings.iter().find(|found| ![1020, 1021].contains(&found.number()));
    assert!(found.is_none(), "{found:?}");
}

/// Creates an inode, and returns the sequence number of its commit.
fn create(volume: &Volume, nodes: &NodeTable) -> Result<(Arc<Node>, u64), Fault> {
    let mut tx = volume.begin(SMALL)?;
    let node_of = |ino| nodes.claim(ino, volume.cache());
    let (node, generation) = tx.new_node(8, false, node_of)?;
    let guard = node.lock();
    tx.set_core(&node, InodeCore { nlink: 1, ..InodeCore::new(REGULAR, generation, 5) });
    let sequence = tx.commit()?;
    drop(guard);
    Ok((node, sequence))
}

/// Asserts that a reader may see these bytes of a file of `new` bytes that is truncated to [`REST`]
/// and extended again: each byte behind `REST` is zero or `new`, and each byte before it is `new`.
fn assert_seen(bytes: &[u8], new: u8) {
    assert!(bytes.len() <= SIZE);
    for (at, byte) in bytes.iter().enumerate() {
        let zero_too = at >= REST;
        assert!(*byte == new || zero_too && *byte == 0, "byte {at} is {byte}");
    }
}

/// A file is as its last change left it, in memory and on the disk, whenever its data are written
/// back; readers see its old or its new contents, and never older bytes of the disk.
///
/// Race: Writing a file's data back against truncating it.
///
/// A page that is on its way to the disk gets its blocks when it has arrived. If the file were
/// truncated in between, blocks would be mapped behind its end, and their contents would be read
/// when it grows again. Both threads hold the file's write-back lock, for one batch at a time;
/// readers continue. Fails if a truncation does not take the lock.
#[test]
fn write_back_against_truncate_against_read() {
    schedules(|| {
        let device = device();
        let volume = open(device.clone());
        let files = Files::new(volume.clone(), &file_settings());
        let nodes = NodeTable::new(10);
        let (node, _) = create(&volume, &nodes).unwrap();
        // One page has a block, the other one will get one.
        files.file(&node).write(0, &[b'a'; PAGE]).unwrap();
        files.sync(&node, false).unwrap();
        files.file(&node).write(0, &[b'b'; SIZE]).unwrap();
        let with = |work: fn(&Files, &Arc<Node>)| {
            model::spawn((files.clone(), node.clone()), move |(files, node)| work(&files, &node))
        };
        let threads = [
            with(|files, node| files.sync(node, true).unwrap()),
            with(|files, _| files.write_back_all().unwrap()),
            with(|files, node| {
                for _ in 0..2 {
                    let mut bytes = vec![1; SIZE];
                    let len = files.file(node).read(0, &mut bytes).unwrap();
                    assert_seen(&bytes[..len], b'b');
                }
            }),
        ];
        files.file(&node).set_size(REST as u64).unwrap();
        files.file(&node).set_size(SIZE as u64).unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let expected = [&[b'b'; REST][..], &[0; SIZE - REST]].concat();
        let mut bytes = vec![1; SIZE];
        assert_eq!(files.file(&node).read(0, &mut bytes).unwrap(), SIZE);
        assert!(bytes == expected);
        files.sync(&node, false).unwrap();
        let ino = node.ino();
        // A crash at this point leaves the same state.
        files.stop();
        drop((node, nodes, files, volume));
        assert_whole(device.clone());
        let volume = open(device);
        let files = Files::new(volume.clone(), &file_settings());
        let node = NodeTable::new(10).get(&volume, ino).unwrap().unwrap();
        bytes.fill(1);
        assert_eq!(files.file(&node).read(0, &mut bytes).unwrap(), SIZE);
        assert!(bytes == expected);
        files.stop();
    });
}

/// Starts two threads that create inodes and force the log, and return the inodes that became
/// durable.
fn commits(volume: &Arc<Volume>) -> [thread::JoinHandle<Vec<u64>>; 2] {
    let nodes = Arc::new(NodeTable::new(10));
    [0, 1].map(|_| {
        model::spawn((volume.clone(), nodes.clone()), move |(volume, nodes)| {
            let mut durable = Vec::new();
            for _ in 0..2 {
                let Ok((node, sequence)) = create(&volume, &nodes) else { break };
                if volume.force(sequence).is_ok() {
                    durable.push(node.ino());
                }
            }
            durable
        })
    })
}

/// Asserts, as after a crash, that all inodes that were durable exist, and that nothing is wrong
/// with the volume.
fn assert_durable(device: Arc<dyn Device>, durable: Vec<u64>) {
    assert_whole(device.clone());
    let volume = open(device);
    let nodes = NodeTable::new(10);
    for ino in durable {
        assert!(nodes.get(&volume, ino).unwrap().is_some_and(|node| node.core().nlink == 1));
    }
}

/// A sync makes all earlier writes durable, whichever thread writes them back: here a background
/// writer does so concurrently, and another thread makes files dirty again before their write-back.
///
/// Race: A sync against other threads that write back.
///
/// The background writer, writers that are short of memory, and syncing threads take files off the
/// lists of dirty files. If a thread took a whole list, or if its files were not recorded, a
/// concurrent `sync` would find nothing and return before these files are written; a remount would
/// seal the volume, and the files would be refused. So each thread takes one file at a time, the
/// list records its number until it is written, and a sync waits for the numbers below those of its
/// beginning. One thread writes, one writes back and one syncs; fails without the waiting.
///
/// A sealed volume is not written, and no page is dropped for that reason: it stays dirty.
#[test]
fn sync_against_write_back_against_write() {
    schedules(|| {
        let device = device();
        let volume = open(device.clone());
        let files = Files::new(volume.clone(), &file_settings());
        let nodes = NodeTable::new(10);
        let made = [(); 3].map(|()| create(&volume, &nodes).unwrap().0);
        made.iter()
            .for_each(|node| assert_eq!(files.file(node).write(0, &[b'a'; SIZE]).unwrap(), SIZE));
        let with = |work: fn(&Files, &[Arc<Node>; 3])| {
            model::spawn((files.clone(), made.clone()), move |(files, made)| work(&files, &made))
        };
        let threads = [
            with(|files, _| files.write_back_all().unwrap()),
            with(|files, made| {
                for node in &made[1..] {
                    assert_eq!(files.file(node).write(0, &[b'b'; SIZE]).unwrap(), SIZE);
                }
            }),
        ];
        assert_eq!(files.file(&made[0]).write(0, &[b'c'; PAGE]).unwrap(), PAGE);
        files.sync_all().unwrap();
        let left = copy_of(&device);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        files.stop();
        let volume = open(left);
        let (left, nodes) = (Files::new(volume.clone(), &file_settings()), NodeTable::new(10));
        for (number, node) in made.iter().enumerate() {
            let node = nodes.get(&volume, node.ino()).unwrap().unwrap();
            let mut bytes = vec![1; SIZE];
            assert_eq!(left.file(&node).read(0, &mut bytes).unwrap(), SIZE);
            let first: &[u8] = if number == 0 { b"c" } else { b"ab" };
            assert!(bytes[..PAGE].iter().all(|byte| first.contains(byte)), "{number}");
            assert!(bytes[PAGE..].iter().all(|byte| b"ab".contains(byte)), "{number}");
        }
        left.stop();
    });
}

/// Nothing is written while a volume is frozen; commits during that time continue after the thaw.
///
/// Race: A freeze against transactions that move between CPUs.
#[test]
fn commit_against_freeze() {
    schedules(|| {
        let device = Arc::new(FaultyDevice::new(device()));
        let volume = open(device.clone());
        let commits = commits(&volume);
        let journal = volume.journal().unwrap();
        journal.freeze().unwrap();
        assert_no_writes(&device, || ());
        journal.thaw();
        let durable: Vec<u64> = commits.into_iter().flat_map(|made| made.join().unwrap()).collect();
        assert_eq!(durable.len(), 4);
        drop(volume);
        assert_durable(device, durable);
    });
}

/// When a volume is sealed, all commits are written back: no changes are left to replay. Later
/// commits are refused until the seal ends.
///
/// Race: A remount to read-only against transactions.
///
/// Once the superblock is read-only no call changes anything any more, but threads of the volume
/// itself may: they write times back, and free inodes that have lost their last user. So the volume
/// is sealed as well. It frees what it can and writes all data back. Then it freezes the journal,
/// which waits until no transaction is active and writes all items back; sets the mark of a sealed
/// volume; and thaws the journal. A transaction checks the mark after it has passed the gate. If it
/// passed before the freeze, the freeze has waited for it; if it passed after the thaw, it sees the
/// mark, because it has read that the gate was open again. It is refused, and nothing ever sleeps
/// until the volume can be written again. Inodes that could not be freed are set aside until then;
/// a thread that sets one aside checks the mark under the lock under which such inodes are taken
/// out again.
#[test]
fn commit_against_seal() {
    schedules(|| {
        let disk = device();
        let device = Arc::new(FaultyDevice::new(disk.clone()));
        let volume = open(device.clone());
        let commits = commits(&volume);
        volume.seal().unwrap();
        assert_no_writes(&device, || {
            let sealed = Settings { read_only: true, ..Settings::default() };
            drop(Volume::open(copy_of(&disk), sealed).unwrap());
        });
        volume.unseal();
        let durable: Vec<u64> = commits.into_iter().flat_map(|made| made.join().unwrap()).collect();
        let nodes = NodeTable::new(10);
        create(&volume, &nodes).unwrap();
        drop((volume, nodes));
        assert_durable(device, durable);
    });
}

/// A commit during a shutdown fails, or its changes are durable.
///
/// Race: A shutdown against everything that waits.
#[test]
fn commit_against_shutdown() {
    schedules(|| {
        let device = device();
        let volume = open(device.clone());
        let commits = commits(&volume);
        thread::yield_now();
        volume.shut_down(failure());
        let durable = commits.into_iter().flat_map(|made| made.join().unwrap()).collect();
        assert!(volume.begin(TxReservation { log_blocks: 1, space: 0, from_pool: true }).is_err());
        drop(volume);
        assert_durable(device, durable);
    });
}

/// Returns a volume with a file "/f" of which no memory holds a part, and the file's number and
/// generation.
fn with_file() -> (Arc<dyn Device>, u64, u32) {
    static MADE: OnceLock<(Vec<u8>, u64, u32)> = OnceLock::new();
    let make = || {
        let device = device();
        let (fs, vfs) = mounted(device.clone(), one_list());
        let task = vfs.task();
        let file = task.open_with("/f", &OpenOptions::new().write(true).create(true)).unwrap();
        file.pwrite(&[b'a'; PAGE], 0).unwrap();
        let handle = task.posix().name_to_handle_at(At::Cwd, "/f", AtFlags::empty()).unwrap();
        drop((file, task, vfs));
        fs.close().unwrap();
        let mut bytes = vec![0; BYTES];
        device.read_at(0, &mut bytes).unwrap();
        (bytes, handle.ino, handle.generation)
    };
    let (bytes, ino, generation) = MADE.get_or_init(make);
    (Arc::new(memory(bytes)), *ino, *generation)
}

/// Creates files, one of them without a name, writes to them and reads them.
fn make_files(task: &Task) {
    for name in ["/", "/1", "/2"] {
        let mut options = OpenOptions::new().read(true).write(true);
        options =
            if name == "/" { options.custom_flags(OFlags::TMPFILE) } else { options.create(true) };
        let file = task.open_with(name, &options.mode(0o640)).unwrap();
        file.pwrite(&[b'b'; SIZE], 0).unwrap();
        thread::yield_now();
        let stat = file.stat().unwrap();
        let links = u32::from(name != "/");
        assert_eq!((stat.mode & 0o777, stat.nlink, stat.size), (0o640, links, SIZE as u64));
        let mut bytes = [0; SIZE];
        assert_eq!(file.pread(&mut bytes, 0).unwrap(), SIZE);
        assert!(bytes.iter().all(|byte| *byte == b'b'));
    }
}

/// A file is opened by its handle while it is removed and its number is reused: the handle opens
/// that file or none, and the new file is as it was created.
///
/// Race: Number of an inode: freed / used again / from a handle.
///
/// Race: An inode number that is freed against its next users.
///
/// A number is available from the commit that frees it, and each number has one node. So a thread
/// that freed an inode must not look at its node afterwards. Three places did:
///
/// * The data in memory were dropped after the commit: a file that was created immediately with
///   that number lost what was written to it. Now they are dropped before the commit, with times
///   and errors.
///
/// * Each inode of a batch that was freed in one transaction was checked once more, whether it
///   still had to be freed. A nameless file that was created and in use by then looked like it, and
///   was truncated and freed. Now freed inodes leave the batch.
///
/// * The thread that stores times discarded those of an inode that had been free when it looked.
///   Now it discards them under the lock of the core, if the inode is still free.
///
/// A handle is the third party. Its node was found alive; then its attributes were read, which may
/// take as long as a disk; and then the VFS's inode was made from the node as it was by then, free
/// or another file. Every later lookup found that inode, including the creator of the new file. The
/// node is now compared with the handle once more when no other thread can create an inode of that
/// number (`SuperBlock::try_iget`); from then on the inode exists, and no thread frees the number.
/// This also holds for the parent of a directory that is found by number.
///
/// Seam: inode number / the next inode of that number; parties: a thread that frees, one that
/// creates, one with a handle.
#[test]
fn handle_against_inactivation_against_creation() {
    // The volume is made in a run of its own, once for all schedules.
    model::check(&[Schedules::Turns(1)], || drop(with_file()));
    schedules(|| {
        let (device, ino, generation) = with_file();
        let (fs, vfs) = mounted(device, one_list());
        let task = vfs.task();
        let opener = model::spawn(vfs.task(), move |task| {
            let root = task.open_with("/", &OpenOptions::new().read(true)).unwrap();
            let dev = task.posix().name_to_handle_at(At::Cwd, "/", AtFlags::empty()).unwrap().dev;
            let handle = FileHandle { dev, ino, generation };
            let Ok(file) = task.posix().open_by_handle_at(&root, &handle, OFlags::RDONLY) else {
                return;
            };
            let mut bytes = [0; SIZE];
            assert_eq!(file.pread(&mut bytes, 0).unwrap(), PAGE);
            assert!(bytes[..PAGE].iter().all(|byte| *byte == b'a'));
        });
        task.remove_file("/f").unwrap();
        fs.reclaim();
        make_files(&task);
        opener.join().unwrap();
        drop((task, vfs));
        fs.close().unwrap();
    });
}

/// Two writers get the space of a file that was removed before they began, whichever thread frees
/// it and whichever thread makes that durable: a writer, the inactivator, or a thread that syncs.
///
/// Race: A call that lacks space against space that becomes free.
///
/// Freed blocks can be used once the freeing transaction is durable, and a background thread frees
/// a nameless file some time after its last user. A call that lacks space waits for both and
/// continues. It waits with nothing held, since a commit and the freeing thread may need what a
/// call has locked (`SuperBlock::with_space`). Write-back, which holds `i_writeback`, waits for the
/// log alone, since the freeing thread waits for `i_writeback` of the files that it frees. Space is
/// never out of sight on its way: a file leaves the queue after its last transaction has counted as
/// pending, and blocks become available before they stop counting. So a call that finds nothing
/// pending finds the free space; it tries once more before it reports `ENOSPC`, since other calls
/// may have waited for that space. A call that finds something pending tries again afterwards, and
/// again if others were quicker, sixteen times.
///
/// In memory, freed pages may be read until a grace period ends, and deferred work returns the
/// space that is withheld until then. The freeing thread hands that work over immediately: it might
/// sleep for ever while others wait.
#[test]
fn writers_against_inactivation_against_sync() {
    schedules(|| {
        let (fs, vfs) = mounted(device(), one_list());
        let task = vfs.task();
        let available = task.posix().statfs(At::Cwd, "/").unwrap().blocks_available;
        let most = (available - 100) * PAGE as u64;
        let allocate = |task: &Task, path: &str, bytes: u64| {
            let file = task.open_with(path, &OpenOptions::new().write(true).create(true)).unwrap();
            file.fallocate(FallocateFlags::empty(), 0, bytes)
        };
        allocate(&task, "/f", most).unwrap();
        let syncer = model::spawn(fs.clone(), move |fs| fs.sync_fs().unwrap());
        task.remove_file("/f").unwrap();
        let writers = [0, 1].map(|n| {
            model::spawn(vfs.task(), move |task| {
                allocate(&task, &format!("/{n}"), most / 2).unwrap()
            })
        });
        writers.into_iter().chain([syncer]).for_each(|thread| thread.join().unwrap());
        drop((task, vfs));
        fs.close().unwrap();
    });
}

/// Runs threads that read, write and change one file: the volume stores the times that the last of
/// them left in memory.
fn times_are_stored(change: fn(&Task)) {
    schedules(move || {
        let device = device();
        let (fs, vfs) = mounted(device.clone(), one_list());
        let file = vfs
            .task()
            .open_with("/f", &OpenOptions::new().read(true).write(true).create(true))
            .unwrap();
        file.pwrite(b"a", 0).unwrap();
        let file = Arc::new(file);
        let with = |work: fn(&File)| model::spawn(file.clone(), move |file| work(&file));
        let reader = with(|file| assert_eq!(file.pread(&mut [0], 0).unwrap(), 1));
        let writer = with(|file| assert_eq!(file.pwrite(b"b", 0).unwrap(), 1));
        change(&vfs.task());
        [reader, writer].into_iter().for_each(|thread| thread.join().unwrap());
        let times = |file: &File| {
            let stat = file.stat().unwrap();
            (stat.atime, stat.mtime, stat.ctime)
        };
        let shown = times(&file);
        fs.sync_fs().unwrap();
        let copy = copy_of(&device);
        drop((file, vfs));
        fs.close().unwrap();
        let (fs, vfs) = mounted(copy, one_list());
        let file = vfs.task().open_with("/f", &OpenOptions::new().read(true)).unwrap();
        assert_eq!(times(&file), shown);
        drop((file, vfs));
        fs.close().unwrap();
    });
}

/// Race: Lazy times against a change of the same inode.
///
/// Reads and writes of a file on a volume change its times in memory, and the driver copies them
/// for a later transaction. It used to read the times of the VFS inode, and store them in its own
/// inode a moment later. In between another thread could change the inode: a rename or a link
/// committed a newer `ctime`, `utimens` an `mtime`, and the copy put the old one back, on the disk
/// too. A walk that followed a symbolic link even copied the times of a removed link to the next
/// inode with its number. Now the driver reads and stores under one lock, each change is followed
/// by a copy of its own, and the generation shows that a number belongs to another inode
/// (`crates/diskfs/src/inode/incore.rs`). Tests, under chosen schedules with a reader, a writer and
/// a thread that changes the inode: The models have a reader, a writer and a thread that changes
/// the inode; all of them failed before.
#[test]
fn times_of_a_link_against_a_write_and_a_read() {
    times_are_stored(|task| task.hard_link("/f", "/g").unwrap());
}

/// Race: Lazy times against a change of the same inode.
#[test]
fn times_set_by_hand_against_a_write_and_a_read() {
    times_are_stored(|task| {
        let times = [SetTime::Omit, SetTime::At(Timestamp(5))];
        task.posix().utimensat(At::Cwd, "/f", times, AtFlags::empty()).unwrap();
    });
}

/// A thread that has the number of an inode, as from a file handle, changes it as soon as it is
/// published, while a third one forces the log.
///
/// Race: A commit that creates an inode against a change of it.
///
/// The creator has published the inode and not committed yet. If it did not hold the inode locked
/// until the commit has returned, as each caller of `DiskFs::new_node` does, the change could be
/// committed first, and the log would retain the older state.
#[test]
fn an_inode_that_is_changed_before_its_creation_is_committed() {
    const CHANGED: u32 = 0o100_600;
    schedules(|| {
        let device = device();
        let volume = open(device.clone());
        let nodes = Arc::new(NodeTable::new(10));
        let made = Arc::new(AtomicU64::new(0));
        let creator = model::spawn(
            (volume.clone(), nodes.clone(), made.clone()),
            move |(volume, nodes, made)| {
                let mut tx = volume.begin(SMALL).unwrap();
                let node_of = |ino| nodes.claim(ino, volume.cache());
                let (node, generation) = tx.new_node(8, false, node_of).unwrap();
                let core = InodeCore { nlink: 1, ..InodeCore::new(REGULAR, generation, 5) };
                tx.set_core(&node, core);
                made.store(node.ino(), Ordering::SeqCst);
                let created = node.lock();
                tx.commit().unwrap();
                drop(created);
                node
            },
        );
        let changer = model::spawn(
            (volume.clone(), nodes.clone(), made.clone()),
            move |(volume, nodes, made)| {
                for _ in 0..5 {
                    let ino = made.load(Ordering::SeqCst);
                    let node = (ino > 0).then(|| nodes.claim(ino, volume.cache()));
                    let Some(node) = node else {
                        thread::yield_now();
                        continue;
                    };
                    let mut tx = volume.begin(SMALL).unwrap();
                    let locked = node.lock();
                    let core = node.stored();
                    if !core.is_free() {
                        tx.set_core(&node, InodeCore { mode: CHANGED, ..(*core).clone() });
                        tx.commit().unwrap();
                        return true;
                    }
                    drop(locked);
                }
                false
            },
        );
        volume.sync().unwrap();
        let node = creator.join().unwrap();
        let mode = if changer.join().unwrap() { CHANGED } else { REGULAR };
        assert_eq!(node.stored().mode, mode);
        volume.sync().unwrap();
        let left = copy_of(&device);
        let ino = node.ino();
        drop((node, nodes, volume));
        assert_whole(left.clone());
        let node = NodeTable::new(10).get(&open(left), ino).unwrap().unwrap();
        assert_eq!(node.stored().mode, mode);
    });
}

/// A walk follows a symbolic link, without a reference to it, while the link is removed and its
/// number is reused: the new link has its own times.
///
/// Race: Lazy times against a change of the same inode.
#[test]
fn times_of_a_link_that_is_followed_while_its_number_is_used_again() {
    let links = |task: &Task| {
        task.symlink("/", "/l").unwrap();
        // Then following the link updates its access time.
        let times = [SetTime::At(Timestamp(5)), SetTime::Omit];
        task.posix().utimensat(At::Cwd, "/l", times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    schedules(move || {
        let device = device();
        let (fs, vfs) = mounted(device.clone(), one_list());
        let task = vfs.task();
        links(&task);
        let walkers = [0, 1].map(|_| {
            model::spawn(vfs.task(), move |task| (0..5).for_each(|_| drop(task.metadata("/l"))))
        });
        for _ in 0..5 {
            task.remove_file("/l").unwrap();
            fs.reclaim();
            links(&task);
        }
        for walker in walkers {
            walker.join().unwrap();
        }
        let times = |task: &Task| {
            let stat = task.symlink_metadata("/l").unwrap();
            (stat.atime, stat.mtime, stat.ctime)
        };
        let shown = times(&task);
        fs.sync_fs().unwrap();
        let copy = copy_of(&device);
        drop((task, vfs));
        fs.close().unwrap();
        let (fs, vfs) = mounted(copy, one_list());
        let task = vfs.task();
        assert_eq!(times(&task), shown);
        drop((task, vfs));
        fs.close().unwrap();
    });
}
