//! Files that never had a name, and what their syncs are worth once they have one.

use vfscale_vfs::{File, OFlags};

use super::*;

const OLD: &[u8] = &[b'o'; 9000];
const NEW: &[u8] = &[b'n'; 9000];

fn unnamed(task: &Task) -> File {
    task.posix().open("/", OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o600)).unwrap()
}

fn give_name(task: &Task, file: &File) {
    let empty = AtFlags::EMPTY_PATH;
    task.posix().linkat(At::File(file), "", At::Cwd, "/name", empty).unwrap();
}

fn sync_root(task: &Task) {
    task.open("/").unwrap().sync_all().unwrap();
}

/// The name is durable with the data, though nothing was flushed for them.
#[test]
fn a_sync_before_the_first_name_writes_data_and_flushes_nothing() {
    let volume = FaultyVolume::new(None);
    let FaultyVolume { device, task, .. } = &volume;
    task.write("/other", OLD).unwrap();
    sync_root(task);
    let file = unnamed(task);
    let flushes = || device.calls(Operation::Flush);
    let (before, writes) = (flushes(), device.calls(Operation::Write));
    for bytes in [OLD, NEW] {
        file.pwrite(bytes, 0).unwrap();
        file.sync_all().unwrap();
    }
    assert!(device.calls(Operation::Write) > writes, "the data were written");
    assert_eq!(flushes(), before);
    give_name(task, &file);
    sync_root(task);
    assert!(flushes() > before);
    assert_eq!(volume.left().read("/name"), NEW);
}

#[test]
fn a_sync_after_the_first_name_is_one_of_any_file() {
    let volume = FaultyVolume::new(None);
    let task = &volume.task;
    let file = unnamed(task);
    file.pwrite(OLD, 0).unwrap();
    file.sync_all().unwrap();
    give_name(task, &file);
    file.sync_all().unwrap();
    assert_eq!(volume.left().read("/name"), OLD);
    file.pwrite(NEW, 0).unwrap();
    file.set_len(8000).unwrap();
    file.sync_data().unwrap();
    assert_eq!(volume.left().read("/name"), &NEW[..8000]);
}

/// After a crash, a file whose removal is not durable has its name again.
#[test]
fn a_sync_of_a_removed_file_makes_it_durable() {
    let volume = FaultyVolume::new(None);
    let FaultyVolume { device, task, .. } = &volume;
    let file = unnamed(task);
    give_name(task, &file);
    sync_root(task);
    file.pwrite(NEW, 0).unwrap();
    file.sync_all().unwrap();
    task.remove_file("/name").unwrap();
    file.pwrite(OLD, 0).unwrap();
    let before = device.calls(Operation::Flush);
    file.sync_all().unwrap();
    assert!(device.calls(Operation::Flush) > before);
    assert!(volume.left().names("/").is_empty());
}

#[test]
fn a_sync_fails_where_nothing_becomes_durable() {
    let FaultyVolume { device, fs, task, .. } = &FaultyVolume::new(None);
    let file = unnamed(task);
    device.arm(vfscale_testkit::Fault::on(Operation::Write).fail(OsError::IO));
    fs.volume().sync().unwrap_err();
    device.disarm();
    assert_eq!(file.sync_all().unwrap_err().errno(), Errno::IO);
}
