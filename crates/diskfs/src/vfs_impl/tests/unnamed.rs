//! Files that never had a name, and what their syncs are worth once they have one.

use vfscale_vfs::{File, OFlags};

use super::*;

const OLD: &[u8] = &[b'o'; 9000];
const NEW: &[u8] = &[b'n'; 9000];

/// Returns a volume on which only the test makes anything durable, and its device.
fn quiet() -> (Arc<FaultyDevice<Arc<MemoryDevice>>>, Arc<DiskFs>, Vfs) {
    let device = Arc::new(FaultyDevice::new(made(16 * MIB).again().device));
    let options = DiskOptions { sync_interval: None, ..DiskOptions::default() };
    let fs = DiskFs::open(device.clone(), options).unwrap();
    let vfs = Vfs::new(fs.clone()).unwrap();
    (device, fs, vfs)
}

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

/// Opens the state that a crash would leave now.
fn left(device: &FaultyDevice<Arc<MemoryDevice>>) -> Mounted {
    let copy = MemoryDevice::new(device.size()).unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.inner().read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    opened(Arc::new(copy))
}

/// The name is durable with the data, though nothing was flushed for them.
#[test]
fn a_sync_before_the_first_name_writes_and_flushes_nothing() {
    let (device, _fs, vfs) = quiet();
    let task = vfs.task();
    task.write("/other", OLD).unwrap();
    sync_root(&task);
    let file = unnamed(&task);
    let flushes = || device.calls(Operation::Flush);
    let (before, writes) = (flushes(), device.calls(Operation::Write));
    for bytes in [OLD, NEW] {
        file.pwrite(bytes, 0).unwrap();
        file.sync_all().unwrap();
    }
    assert!(device.calls(Operation::Write) > writes, "the data were written");
    assert_eq!(flushes(), before);
    give_name(&task, &file);
    sync_root(&task);
    assert!(flushes() > before);
    assert_eq!(left(&device).read("/name"), NEW);
}

#[test]
fn a_sync_after_the_first_name_is_one_of_any_file() {
    let (device, _fs, vfs) = quiet();
    let task = vfs.task();
    let file = unnamed(&task);
    file.pwrite(OLD, 0).unwrap();
    file.sync_all().unwrap();
    give_name(&task, &file);
    file.sync_all().unwrap();
    assert_eq!(left(&device).read("/name"), OLD);
    file.pwrite(NEW, 0).unwrap();
    file.set_len(8000).unwrap();
    file.sync_data().unwrap();
    assert_eq!(left(&device).read("/name"), &NEW[..8000]);
}

/// After a crash, a file whose removal is not durable has its name again.
#[test]
fn a_sync_of_a_removed_file_makes_it_durable() {
    let (device, _fs, vfs) = quiet();
    let task = vfs.task();
    let file = unnamed(&task);
    give_name(&task, &file);
    sync_root(&task);
    file.pwrite(NEW, 0).unwrap();
    file.sync_all().unwrap();
    // A sync that has written nothing since makes nothing durable, the removal included.
    task.remove_file("/name").unwrap();
    file.pwrite(OLD, 0).unwrap();
    let before = device.calls(Operation::Flush);
    file.sync_all().unwrap();
    assert!(device.calls(Operation::Flush) > before);
    assert!(left(&device).names("/").is_empty());
}

#[test]
fn a_sync_fails_where_nothing_becomes_durable() {
    let (device, fs, vfs) = quiet();
    let task = vfs.task();
    let file = unnamed(&task);
    device.arm(vfscale_block::Fault::on(Operation::Write).fail(OsError::IO));
    fs.volume().sync().unwrap_err();
    device.disarm();
    assert_eq!(file.sync_all().unwrap_err().errno(), Errno::IO);
}
