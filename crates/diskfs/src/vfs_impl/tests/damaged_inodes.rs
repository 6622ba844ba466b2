//! Damaged records in blocks of inodes of a mounted volume: each costs its inode, and the volume
//! goes on.

use std::collections::BTreeMap;

use vfscale_testkit::Fault as DeviceFault;
use vfscale_vfs::OFlags;

use super::unreadable::{Unreadable, made};
use super::*;
use crate::format::inode::{block_of, records_mut, slot_of};
use crate::format::{BLOCK_BYTES, byte_of_block};
use crate::volume::copies::read_block;

const FILES: usize = 100;

fn file(number: usize) -> String {
    format!("/d/{number}")
}

/// Returns a device with files, and the numbers of their inodes.
fn with_files() -> (Arc<MemoryDevice>, Vec<u64>) {
    let mounted = made(32 * MIB);
    mounted.mkdir("/d");
    (0..FILES).for_each(|number| mounted.write(&file(number), b"old"));
    let inos = (0..FILES).map(|number| mounted.stat(&file(number)).ino).collect();
    (mounted.again().copy(), inos)
}

/// Changes the bytes of a record on the device.
fn edit(device: &dyn Device, ino: u64, edit: impl FnOnce(&mut [u8])) {
    let address = block_of(ino);
    let mut block = read_block(device, address).unwrap();
    edit(&mut records_mut(&mut block)[slot_of(ino)].0);
    device.write_at(byte_of_block(address), block.bytes()).unwrap();
}

fn errno<T>(result: vfscale_vfs::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// The other inodes of the block can be read. They can't be changed, since that would write the
/// wrong record as well, which a later read might find right.
#[test]
fn a_damaged_record_costs_one_inode() {
    const WRONG: usize = 50;
    let (image, inos) = with_files();
    let beside = |number: &usize| block_of(inos[*number]) == block_of(inos[WRONG]);
    assert_eq!((0..FILES).filter(beside).count(), 8);
    // One bit of the owner, and the mode, which makes it look like one of a free inode.
    let damages: [fn(&mut [u8]); 2] = [|record| record[8] ^= 4, |record| record[..2].fill(0)];
    for damage in damages {
        let device = copy_of(&*image);
        let right = read_block(&*device, block_of(inos[WRONG])).unwrap();
        edit(&*device, inos[WRONG], damage);
        let volume = Unreadable::open(Arc::clone(&device));
        for round in 0..3 {
            for number in 0..FILES {
                let wanted = (number == WRONG).then_some(Errno::UCLEAN);
                assert_eq!(errno(volume.task.symlink_metadata(file(number))), wanted, "{number}");
                let read = volume.task.read(file(number)).ok();
                let wanted: &[u8] = if round > 0 && !beside(&number) { b"new" } else { b"old" };
                assert!(number == WRONG || read.as_deref() == Some(wanted), "{number}: {read:?}");
                let mode = Mode::from(0o600 + round);
                let changed = volume.task.set_permissions(file(number), mode);
                let wanted = beside(&number).then_some(Errno::UCLEAN);
                assert_eq!(errno(changed), wanted, "{number}");
                let written = volume.task.write(file(number), b"new");
                assert!(beside(&number) || written.is_ok(), "{number}");
                volume.task.write(format!("/new-{round}-{number}"), b"n").unwrap();
            }
            assert_eq!(volume.task.read_dir("/d").unwrap().count(), FILES);
            volume.sync("a wrong record");
            volume.fs.volume().journal().unwrap().quiesce().unwrap();
            volume.drop_cached();
        }
        // The right bytes again.
        device.write_at(byte_of_block(block_of(inos[WRONG])), right.bytes()).unwrap();
        let mounted = volume.again(true);
        for number in 0..FILES {
            let (contents, mode) = (mounted.read(&file(number)), mounted.stat(&file(number)).mode);
            let wanted = if beside(&number) { (&b"old"[..], 0o644) } else { (&b"new"[..], 0o602) };
            assert_eq!((&contents[..], mode & 0o777), wanted, "{number}");
        }
    }
}

/// A byte that is wrong only while the block is read takes nothing from the device, whatever is
/// changed in the block afterwards.
#[test]
fn a_record_that_is_read_wrong_once_is_there_later() {
    let (image, inos) = with_files();
    let mut blocks = BTreeMap::<u64, Vec<usize>>::new();
    (0..FILES).for_each(|number| blocks.entry(block_of(inos[number])).or_default().push(number));
    let mut refused = 0;
    for reads in 1..=3 {
        for files in blocks.values().filter(|files| files.len() == 8) {
            let (wrong, beside) = (files[2], files[5]);
            let volume = Unreadable::open(copy_of(&*image));
            let at = byte_of_block(block_of(inos[wrong]));
            let record = at + 48 + 504 * slot_of(inos[wrong]) as u64;
            for nth in 1..=reads {
                let fault = DeviceFault::on(Operation::Read).within(at..at + BLOCK_BYTES as u64);
                volume.device.arm(fault.nth(nth).flip(record + 100, 1));
            }
            let open = volume.task.posix().open(file(beside), OFlags::RDWR, Mode::empty()).unwrap();
            let mode = Mode::from(0o600);
            refused += usize::from(volume.task.set_permissions(file(beside), mode).is_err());
            volume.device.disarm();
            volume.task.set_permissions(file(beside), mode).unwrap();
            open.pwrite(b"new", 0).unwrap();
            open.sync_all().unwrap();
            drop(open);
            let mounted = volume.again(false);
            files.iter().for_each(|number| {
                let wanted: &[u8] = if *number == beside { b"new" } else { b"old" };
                assert_eq!(mounted.read(&file(*number)), wanted, "{number}");
            });
        }
    }
    assert!(refused > 0);
}

/// The log of a volume that was not closed changes an inode beside a wrong record: the volume opens
/// with the change, and the wrong record costs its inode.
#[test]
fn a_log_about_inodes_beside_a_damaged_record_is_replayed() {
    let (image, inos) = with_files();
    // The second inode of its block is wrong, and the sixth one is changed.
    let wrong = (FILES / 2..FILES).find(|number| slot_of(inos[*number]) == 1).unwrap();
    let block = block_of(inos[wrong]);
    let number = |slot| {
        let is_it =
            |number: &usize| block_of(inos[*number]) == block && slot_of(inos[*number]) == slot;
        (0..FILES).find(is_it).unwrap()
    };
    let (beside, changed) = (number(2), number(5));
    let mounted = opened(copy_of(&*image));
    mounted.task.set_permissions(file(changed), Mode::from(0o600)).unwrap();
    mounted.fs.sync_fs().unwrap();
    let device = mounted.copy();
    edit(&*device, inos[wrong], |record| record[8] ^= 4);
    let volume = Unreadable::open(Arc::clone(&device));
    assert_eq!(errno(volume.task.symlink_metadata(file(wrong))), Some(Errno::UCLEAN));
    assert_eq!(volume.task.read(file(beside)).unwrap(), b"old");
    let mode = |task: &Task| task.symlink_metadata(file(changed)).unwrap().mode & 0o777;
    assert_eq!(mode(&volume.task), 0o600);
    volume.task.write("/d/new", b"new").unwrap();
    volume.sync("a wrong record at an opening");
    // The wrong bytes are as they were.
    edit(&*device, inos[wrong], |record| record[8] ^= 4);
    // The time of a read beside it was not written.
    let mounted = volume.again(true);
    assert_eq!((mounted.read(&file(wrong)), mode(&mounted.task)), (b"old".to_vec(), 0o600));
    assert_eq!(mounted.read("/d/new"), b"new");
}
