//! Blocks of metadata that can't be read while the volume is in use: what they hold can't be had,
//! and the rest of the volume goes on. When the device is well again, everything is there.

use std::collections::BTreeSet;

use vfscale_testkit::Fault as DeviceFault;
use vfscale_vfs::OFlags;

use super::*;
use crate::base::shared_limit::SharedCache;
use crate::format::dir::DIR_MAGIC;
use crate::format::inode::{CHUNK_BLOCKS, INODE_MAGIC, block_of, chunk_of};
use crate::format::{BLOCK_BYTES, Block, Magic, byte_of_block};

/// Makes reads of a block of a device fail.
pub(super) fn lose(device: &FaultyDevice<Arc<MemoryDevice>>, address: u64) {
    let at = byte_of_block(address);
    let fault = DeviceFault::on(Operation::Read).within(at..at + BLOCK_BYTES as u64);
    device.arm(fault.fail(OsError::IO));
}

/// A volume on a device with unreadable blocks, with the smallest cache.
pub(super) struct Unreadable {
    pub(super) device: Arc<FaultyDevice<Arc<MemoryDevice>>>,
    pub(super) fs: Arc<DiskFs>,
    vfs: Vfs,
    pub(super) task: Task,
}

impl Unreadable {
    pub(super) fn open(device: Arc<MemoryDevice>) -> Self {
        Self::with_heat(device, 0)
    }

    fn with_heat(device: Arc<MemoryDevice>, dir_heat: u32) -> Self {
        Self::on(Arc::new(FaultyDevice::new(device)), dir_heat)
    }

    /// Opens the volume on a device of which blocks may be unreadable already.
    pub(super) fn on(device: Arc<FaultyDevice<Arc<MemoryDevice>>>, dir_heat: u32) -> Self {
        let options = Settings {
            dir_heat,
            sync_interval: None,
            metadata_cache_bytes: 64 << 10,
            ..Settings::default()
        };
        let fs = DiskFs::open(device.clone(), options).unwrap();
        let vfs = Vfs::new(fs.clone()).unwrap();
        let task = vfs.task();
        Self { device, fs, vfs, task }
    }

    /// Makes reads of a block fail.
    pub(super) fn lose(&self, address: u64) {
        lose(&self.device, address);
    }

    /// Makes everything durable, and checks that the volume has not stopped.
    pub(super) fn sync(&self, about: &str) {
        self.task.posix().sync();
        let why = self.fs.volume().failure();
        assert!(why.is_none(), "{about}: {why:?}");
    }

    /// Drops all that can be read again.
    pub(super) fn drop_cached(&self) {
        self.task.posix().drop_cached(At::Cwd, "/").unwrap();
        self.fs.table.drop_unused(usize::MAX);
        self.fs.volume().cache().drop_unused(usize::MAX);
    }

    /// Closes the volume, which tells an error if data could not be written. Returns its device.
    pub(super) fn close(self, has_lost: bool) -> Arc<FaultyDevice<Arc<MemoryDevice>>> {
        let Self { device, fs, vfs, task } = self;
        drop((task, vfs));
        assert_eq!(fs.close().is_err(), has_lost);
        device
    }

    /// Closes the volume like [`close`](Self::close), and opens it on the well device.
    pub(super) fn again(self, has_lost: bool) -> Mounted {
        self.device.disarm();
        let device = Arc::clone(self.close(has_lost).inner());
        check_clean(Arc::clone(&device));
        opened(device)
    }
}

/// Creates a volume with a large log, so many names are delayed.
pub(super) fn made(bytes: u64) -> Mounted {
    let device = MemoryDevice::new(bytes).unwrap();
    let log_blocks = Some(1000);
    mkfs::format(&device, &MkfsOptions { log_blocks, ..MkfsOptions::default() }).unwrap();
    opened(Arc::new(device))
}

/// Returns the addresses of the blocks with one of these magics and owners, in order.
fn blocks_of(device: &dyn Device, magics: &[Magic], is_owner: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut found = Vec::new();
    for address in 0..device.size() / BLOCK_BYTES as u64 {
        let mut block = Block::zeroed();
        device.read_at(byte_of_block(address), block.bytes_mut()).unwrap();
        let header = block.header();
        if magics.contains(&header.magic)
            && header.address.get() == address
            && is_owner(header.owner.get())
        {
            found.push(address);
        }
    }
    found
}

/// Number of names in the directory.
const NAMES: usize = 600;

fn name(number: usize) -> String {
    format!("/d/name-{number:04}-{}", "x".repeat(number % 40))
}

/// A call that delays a name has in memory all that the fold will need, or does not delay it: a
/// block of a directory that can't be read fails calls of this directory, and none of others.
#[test]
fn an_unreadable_block_of_a_directory_fails_calls_of_the_directory_only() {
    let mounted = made(32 * MIB);
    mounted.mkdir("/d");
    mounted.mkdir("/other");
    (0..NAMES).for_each(|number| mounted.write(&name(number), b""));
    let ino = mounted.stat("/d").ino;
    let mounted = mounted.again();
    let image = mounted.copy();
    let blocks = blocks_of(&*image, &[DIR_MAGIC], |owner| owner == ino);
    assert!(blocks.len() > 10, "{blocks:?}");
    for lost in blocks {
        let volume = Unreadable::open(copy_of(&*image));
        volume.lose(lost);
        let (mut left, mut removed) = (BTreeSet::new(), 0);
        // In an order in which leaves shrink side by side.
        for (step, number) in (0..NAMES).map(|at| (at, at * 7 % NAMES)) {
            match volume.task.remove_file(name(number)) {
                Ok(()) => removed += 1,
                Err(error) => {
                    assert_eq!(error.errno(), Errno::IO, "block {lost}, name {number}");
                    left.insert(number);
                }
            }
            if step % 100 == 99 {
                let other = format!("/other/{step}");
                volume.task.write(&other, b"goes on").unwrap();
                volume.sync(&format!("block {lost} of the directory, after {step} names"));
            }
        }
        assert!(removed == 0 || left.len() < NAMES / 2, "block {lost}: {} are left", left.len());
        let mounted = volume.again(false);
        let names: Vec<_> = left.iter().map(|number| name(*number)[3..].to_owned()).collect();
        let mut found = mounted.names("/d");
        found.sort_unstable();
        assert_eq!(found, names, "block {lost}");
        assert_eq!(mounted.names("/other").len(), NAMES / 100);
        left.iter().for_each(|number| mounted.task.remove_file(name(*number)).unwrap());
        mounted.again();
    }
}

/// The block of an inode stays in memory from a change on until it is written, so the call that
/// changes the inode is the one that finds it unreadable.
#[test]
fn an_unreadable_block_of_inodes_fails_calls_of_its_inodes_only() {
    const FILES: usize = 400;
    let mounted = made(32 * MIB);
    mounted.mkdir("/d");
    let file = |number: usize| format!("/d/{number}");
    (0..FILES).for_each(|number| mounted.write(&file(number), b"old"));
    let inos: Vec<_> = (0..FILES).map(|number| mounted.stat(&file(number)).ino).collect();
    let dir = mounted.stat("/d").ino;
    let mounted = mounted.again();
    let image = mounted.copy();
    let blocks = blocks_of(&*image, &[INODE_MAGIC], |_| true);
    let all: BTreeSet<_> = inos.iter().map(|ino| block_of(*ino)).collect();
    let of_files = blocks.iter().filter(|block| {
        // The free inodes of the last chunk, too.
        all.iter().any(|of| chunk_of(*of) == chunk_of(**block)) && block_of(dir) != **block
    });
    let mut tried = 0;
    for &lost in of_files.filter(|block| chunk_of(**block) != chunk_of(block_of(dir))) {
        tried += 1;
        let volume = Unreadable::open(copy_of(&*image));
        let inside = (0..FILES).find(|number| block_of(inos[*number]) == lost);
        // The inode is in memory when its block is not any more, and can't be read.
        let open = inside.map(|number| {
            let file = volume.task.posix().open(file(number), OFlags::RDWR, Mode::empty());
            file.unwrap()
        });
        volume.drop_cached();
        volume.lose(lost);
        let about = format!("block {lost} of inodes");
        let written = open.as_ref().map(|file| {
            let all = file.pwrite(b"new", 0).and_then(|_| file.sync_all());
            all.map_err(|error| error.errno())
        });
        assert!(matches!(written, None | Some(Ok(()) | Err(Errno::IO))), "{about}: {written:?}");
        // Other inodes are changed and made, more than the log has room for.
        for round in 0..6 {
            for number in (0..FILES).filter(|number| block_of(inos[*number]) != lost) {
                let mode = Mode::from(0o600 + round);
                volume.task.set_permissions(file(number), mode).expect(&about);
            }
            for number in 0..100 {
                volume.task.write(format!("/new-{round}-{number}"), b"n").expect(&about);
            }
            volume.sync(&about);
            volume.fs.volume().journal().unwrap().quiesce().expect(&about);
        }
        drop(open);
        let mounted = volume.again(matches!(written, Some(Err(_))));
        for (number, ino) in inos.iter().enumerate() {
            let content = mounted.read(&file(number));
            let is_new = Some(number) == inside && written == Some(Ok(()));
            assert_eq!(content, if is_new { b"new" } else { b"old" }, "{about}, {number}");
            let mode = if block_of(*ino) == lost { 0o644 } else { 0o605 };
            assert!(block_of(*ino) == lost || mounted.stat(&file(number)).mode & 0o777 == mode);
        }
    }
    assert!(tried as u64 > CHUNK_BLOCKS, "{tried}");
}

/// The push that ends a context reads no block of a directory, and none of inodes: whatever has
/// happened to the names, and whatever the cache has let go. Threads of chance, in the order of a
/// fixed seed: leaves are split, merged and evened, at all levels and at both ends.
#[test]
fn a_fold_reads_no_block_of_its_directory() {
    let mounted = made(64 * MIB);
    mounted.mkdir("/d");
    let ino = mounted.stat("/d").ino;
    let Mounted { device, .. } = mounted.again();
    let volume = Unreadable::open(device);
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    let (mut there, mut made) = (BTreeSet::new(), 0);
    let mut delayed = 0;
    for round in 0..60 {
        // The directory grows, is emptied in part, and then wholly.
        let is_growing = round % 30 < 12;
        for _ in 0..120 {
            if is_growing || (round % 30 < 22 && next(3) == 0) {
                volume.task.write(name(made), b"").unwrap();
                there.insert(made);
                made += 1;
            } else if let Some(number) = there.iter().nth(next(there.len().max(1))).copied() {
                there.remove(&number);
                volume.task.remove_file(name(number)).unwrap();
            }
        }
        let dir = volume.fs.table.get(volume.fs.volume(), ino).unwrap().unwrap();
        let locked = dir.read();
        delayed += dir.delayed_names().map_or(0, |names| names.all().len());
        drop(locked);
        drop(dir);
        volume.drop_cached();
        let device = &**volume.device.inner();
        let blocks = blocks_of(device, &[DIR_MAGIC, INODE_MAGIC], |_| true);
        blocks.into_iter().for_each(|lost| volume.lose(lost));
        volume.sync(&format!("round {round}"));
        volume.device.disarm();
    }
    assert!(delayed > 20, "{delayed}");
    let mounted = volume.again(false);
    assert_eq!(mounted.names("/d").len(), there.len());
}

/// A read of a push that fails, of the tree of free space, is tried again.
#[test]
fn a_read_of_a_push_that_fails_once_is_tried_again() {
    const ROUNDS: usize = 80;
    let mounted = made(64 * MIB);
    mounted.mkdir("/d");
    (0..20).for_each(|number| mounted.write(&format!("/{number}"), b""));
    let Mounted { device, .. } = mounted.again();
    let volume = Unreadable::open(device);
    for round in 0..ROUNDS {
        for number in 0..20 {
            let mode = Mode::from(0o600 + round as u32 % 2);
            volume.task.set_permissions(format!("/{number}"), mode).unwrap();
        }
        (0..4).for_each(|at| volume.task.hard_link("/0", name(round * 4 + at)).unwrap());
        volume.drop_cached();
        volume.device.arm(DeviceFault::on(Operation::Read).nth(1).fail(OsError::IO));
        volume.sync(&format!("round {round}"));
        volume.device.disarm();
        volume.fs.volume().journal().unwrap().quiesce().unwrap();
    }
    assert!(volume.device.fired() > 0);
    assert_eq!(volume.again(false).names("/d").len(), 4 * ROUNDS);
}

/// The push reads nothing for inodes that came or went, either.
#[test]
fn the_bits_of_inodes_are_written_without_reading() {
    let mounted = made(64 * MIB);
    (0..100).for_each(|number| mounted.write(&format!("/{number}"), b""));
    let Mounted { device, .. } = mounted.again();
    let volume = Unreadable::with_heat(device, u32::MAX);
    for round in 0..10 {
        // More than so few items that the next changes are not delayed.
        (0..40).for_each(|number| {
            volume.task.write(format!("/{round}-{number}"), b"").unwrap();
        });
        (0..10).for_each(|n| volume.task.remove_file(format!("/{}", round * 10 + n)).unwrap());
        let delayed = volume.fs.volume().groups().delayed().log_bytes();
        assert!(round == 0 || delayed > 0, "nothing is delayed in round {round}");
        volume.drop_cached();
        volume.device.arm(DeviceFault::on(Operation::Read).fail(OsError::IO));
        volume.sync(&format!("round {round}"));
        volume.device.disarm();
    }
    assert_eq!(volume.again(false).names("/").len(), 400);
}

/// A volume whose log has failed shows what it had, from memory where the device has an older
/// state. It finds no damage, and no name is missing that was durable.
#[test]
fn a_stopped_volume_finds_no_damage() {
    let mounted = made(32 * MIB);
    mounted.mkdir("/d");
    (0..NAMES).for_each(|number| mounted.write(&name(number), b"kept"));
    let Mounted { device, .. } = mounted.again();
    let image = copy_of(&*device);
    for heat in [0, u32::MAX] {
        let volume = Unreadable::with_heat(copy_of(&*image), heat);
        for number in (0..NAMES).filter(|number| number % 3 > 0 && *number < 400) {
            volume.task.remove_file(name(number)).unwrap();
        }
        (NAMES..NAMES + 300).for_each(|number| volume.task.write(name(number), b"new").unwrap());
        volume.device.arm(DeviceFault::on(Operation::Write).fail(OsError::IO));
        let root = volume.task.posix().open("/", OFlags::RDONLY, Mode::empty()).unwrap();
        assert_eq!(root.sync_fs().unwrap_err().errno(), Errno::IO);
        volume.device.disarm();
        let mut found = 0;
        for _ in 0..3 {
            volume.drop_cached();
            for number in (0..NAMES).filter(|number| number % 3 == 0 || *number >= 400) {
                match volume.task.read(name(number)) {
                    Ok(bytes) => {
                        assert_eq!(bytes, b"kept");
                        found += 1;
                    }
                    Err(error) => assert_eq!(error.errno(), Errno::IO, "name {number}"),
                }
            }
        }
        assert!(found > 3 * NAMES / 3, "{found} were found with a heat of {heat}");
        let changed = volume.task.write("/other", b"").unwrap_err();
        assert_eq!(changed.errno(), Errno::IO);
    }
}
