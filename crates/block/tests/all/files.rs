//! Image files and block devices of the system. Tests that this machine can't run print that they
//! are skipped.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use vfscale_block::{AlignedBuf, Device, Error, FileDevice, FileOptions, Operation, OsError};
use vfscale_sync::page::{PAGE_SIZE, Page, PageBox, read_pages};

const MIB: u64 = 1 << 20;

pub(crate) fn skip(reason: &str) {
    println!("######## SKIPPED: {reason}");
}

/// Runs a command of the system, and returns its output; `None` if the command does not exist or
/// fails.
pub(crate) fn system(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_string();
    output.status.success().then_some(text)
}

/// A loop device, which is detached when it is dropped.
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    pub(crate) fn over(image: &Path, block_size: &str) -> Option<Self> {
        let image = image.to_str()?;
        let arguments = ["--find", "--show", "--sector-size", block_size, image];
        system("losetup", &arguments).map(|path| Self(path.into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        system("losetup", &["--detach", self.0.to_str().unwrap()]);
    }
}

/// A small file system in memory, which is unmounted when it is dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let path = folder.path().to_str()?.to_string();
        system("mount", &["-t", "tmpfs", "-o", &size, "vfscale-test", &path])?;
        Some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A loop device that has just been detached may use it for a moment longer.
        system("umount", &["--lazy", self.0.path().to_str().unwrap()]);
    }
}

fn batch(device: &FileDevice, count: u64) -> Vec<u8> {
    let unit = u64::from(device.block_size());
    let blocks: Vec<_> =
        (0..count).map(|i| AlignedBuf::from(vec![i as u8 + 1; unit as usize].as_slice())).collect();
    let writes: Vec<_> = blocks.iter().zip(0..).map(|(b, i)| (2 * i * unit, &**b)).collect();
    device.write_many(&writes).unwrap();
    let mut buf = vec![0; (2 * count * unit) as usize];
    device.read_at(0, &mut buf).unwrap();
    buf.chunks(unit as usize).step_by(2).map(|block| block[unit as usize / 2]).collect()
}

#[test]
fn batches_go_through_io_uring() {
    let folder = tempfile::tempdir().unwrap();
    let device = FileDevice::create(folder.path().join("image"), 4 * MIB).unwrap();
    let expected: Vec<_> = (1..=200).collect();
    assert_eq!(batch(&device, 200), expected, "three times as many as a ring has room for");
    if device.ring_batches() == 0 {
        let methods = device.describe();
        assert!(methods.contains("no io_uring"), "{methods}");
        skip(&format!("io_uring: {methods}"));
        return;
    }
    assert!(device.describe().ends_with("batches by io_uring"), "{}", device.describe());
    let mut bufs = vec![AlignedBuf::zeroed(1000); 100];
    let mut reads: Vec<_> = bufs.iter_mut().zip(0..).map(|(b, i)| (i * 700, &mut **b)).collect();
    device.read_many(&mut reads).unwrap();
    assert_eq!(device.ring_batches(), 2);
    for (buf, i) in bufs.iter().zip(0_u64..) {
        let mut alone = [0; 1000];
        device.read_at(i * 700, &mut alone).unwrap();
        assert_eq!(alone, **buf);
    }
}

#[test]
fn pages_go_in_requests_of_a_megabyte() {
    let folder = tempfile::tempdir().unwrap();
    let device = FileDevice::create(folder.path().join("image"), 4 * MIB).unwrap();
    let bytes: Vec<u8> = (0..900 * PAGE_SIZE).map(|at| (at / PAGE_SIZE) as u8 ^ at as u8).collect();
    let pages = Page::many_with(900, 0, &bytes);
    device.write_pages(4096, &pages).unwrap();
    let mut found = vec![0; bytes.len()];
    device.read_at(4096, &mut found).unwrap();
    assert!(found == bytes);
    let copy = Page::many_unfilled(900);
    device.read_pages(4096, &copy).unwrap();
    let mut found = vec![0; bytes.len()];
    assert_eq!(read_pages(copy.iter().map(|page| &**page), 0, &mut found), bytes.len());
    assert!(found == bytes);
    let methods = device.describe();
    if methods.contains("direct I/O,") && !methods.contains("no io_uring") {
        assert_eq!(device.ring_batches(), 2, "{methods}");
        // One request needs no ring.
        device.write_pages(0, &pages[..256]).unwrap();
        assert_eq!(device.ring_batches(), 2);
    } else {
        skip(&format!("direct I/O by io_uring: {methods}"));
    }
}

#[test]
fn without_io_uring_batches_go_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let options = FileOptions::new().io_uring(false);
    let device = options.create(folder.path().join("image"), MIB).unwrap();
    assert_eq!(batch(&device, 100), (1..=100).collect::<Vec<_>>());
    assert_eq!(device.ring_batches(), 0);
    assert!(device.describe().ends_with("pread and pwrite"), "{}", device.describe());
}

#[test]
fn the_ways_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    drop(FileDevice::create(&path, MIB).unwrap());
    let buffered = FileOptions::new().direct(false).open(&path).unwrap();
    assert!(buffered.describe().contains("buffered I/O (as requested)"), "{}", buffered.describe());
    assert!(format!("{buffered:?}").contains("buffered I/O (as requested)"));
    drop(buffered);
    let device = FileDevice::open(&path).unwrap();
    if device.describe().contains("direct I/O,") {
        assert!([512, 4096].contains(&device.block_size()));
    } else {
        skip(&format!("direct I/O: {}", device.describe()));
    }
    let Ok(shared) = tempfile::tempdir_in("/dev/shm") else { return skip("no /dev/shm") };
    let device = FileDevice::create(shared.path().join("image"), MIB).unwrap();
    assert!(device.describe().contains("no direct I/O here"), "{}", device.describe());
}

#[test]
fn direct_and_buffered_images_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let device = FileDevice::create(&path, MIB).unwrap();
    let block_size = device.block_size();
    // At an odd address, and larger than the largest copy.
    let bytes: Vec<_> = (0..MIB as usize).map(|i| (i / 512) as u8 ^ i as u8).collect();
    let memory = [&[0; 3], bytes.as_slice()].concat();
    device.write_at(0, &memory[3..]).unwrap();
    device.flush().unwrap();
    drop(device);
    let buffered = FileOptions::new().direct(false).open(&path).unwrap();
    assert_eq!(buffered.block_size(), block_size);
    let mut found = vec![0; MIB as usize];
    buffered.read_at(0, &mut found).unwrap();
    assert!(found == bytes);
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn an_image_is_made_once_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let error = FileDevice::create(&path, MIB + 100).unwrap_err();
    assert!(matches!(error, Error::Misaligned { .. }), "{error}");
    assert!(!path.exists(), "a failed creation leaves no file");
    assert!(FileDevice::create(&path, u64::MAX / 8192 * 4096).is_err());
    assert!(!path.exists());
    drop(FileDevice::create(&path, MIB).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB);
    let error = FileDevice::create(&path, MIB).unwrap_err();
    assert_eq!(error.os().unwrap().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::metadata(&path).unwrap().len(), MIB, "the image is unchanged");
    let missing = folder.path().join("missing");
    let error = FileDevice::create(missing.join("x"), MIB).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: open: No such file", missing.display())), "{error}");
    let error =
        FileOptions::new().read_only(true).create(folder.path().join("x"), MIB).unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
}

#[test]
fn a_device_refuses_a_path_that_is_no_image() {
    let folder = tempfile::tempdir().unwrap();
    let error = FileDevice::open(folder.path().join("absent")).unwrap_err();
    assert_eq!(error.os().unwrap().kind(), std::io::ErrorKind::NotFound);
    assert!(error.to_string().contains("absent"), "{error}");
    let error = FileOptions::new().read_only(true).open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(FileDevice::open(folder.path()).is_err());
    assert!(FileDevice::open("/dev/null").is_err());
    let pipe = folder.path().join("pipe");
    if system("mkfifo", &[pipe.to_str().unwrap()]).is_none() {
        return skip("no mkfifo");
    }
    // Opening a pipe in blocking mode would wait for a writer.
    assert!(matches!(FileDevice::open(&pipe), Err(Error::Unsupported { .. })));
    assert!(FileOptions::new().read_only(true).open(&pipe).is_err());
}

#[test]
fn a_reader_changes_nothing_of_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    drop(FileDevice::create(&path, MIB).unwrap());
    let device = FileOptions::new().read_only(true).open(&path).unwrap();
    let read_only = |result| assert!(matches!(result, Err(Error::ReadOnly { .. })), "{result:?}");
    read_only(device.write_at(0, &[1; 4096]));
    read_only(device.write_many(&[(0, &[1; 4096])]));
    read_only(device.discard(0, 4096));
    read_only(device.set_size(2 * MIB));
    device.flush().unwrap();
    assert!(device.describe().contains("read-only"));
}

#[test]
fn an_image_that_shrinks_under_the_device_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    for options in [FileOptions::new(), FileOptions::new().io_uring(false)] {
        let device = options.create(&path, MIB).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(MIB / 2).unwrap();
        let mut bufs = vec![vec![0; 4096]; 10];
        let start = MIB / 2 - 3 * 4096;
        let mut reads: Vec<_> =
            bufs.iter_mut().zip(0..).map(|(b, i)| (start + i * 4096, &mut **b)).collect();
        let error = device.read_many(&mut reads).unwrap_err();
        assert_eq!(error.os(), Some(OsError::IO), "{error}");
        let Error::Io { offset, operation, .. } = error else { panic!("{error}") };
        assert!(offset >= MIB / 2 && operation == Operation::Read);
        assert_eq!(device.read_at(MIB - 4096, &mut bufs[0]).unwrap_err().os(), Some(OsError::IO));
        device.read_at(0, &mut bufs[0]).unwrap();
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn bytes_behind_the_last_block_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    fs::write(&path, vec![1; 10_000]).unwrap();
    let device = FileDevice::open(&path).unwrap();
    let unit = u64::from(device.block_size());
    assert_eq!(device.size(), 10_000 / unit * unit);
    let mut all = vec![0; device.size() as usize];
    device.read_at(0, &mut all).unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let empty = FileDevice::open(folder.path().join("empty")).unwrap();
    assert_eq!(empty.size(), 0);
    assert!(empty.read_at(0, &mut [0]).is_err());
}

#[test]
fn a_full_file_system_is_told() {
    let Some(small) = Small::new("256k") else { return skip("mount -t tmpfs is not permitted") };
    let device = FileDevice::create(small.0.path().join("image"), MIB).unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    let error = device.write_at(4096, &vec![1; MIB as usize / 2]).unwrap_err();
    assert_eq!(error.os(), Some(OsError::NO_SPACE), "{error}");
    let part = vec![1; 8192];
    let writes: Vec<_> = (0..100).map(|i| (4096 + i * 8192, part.as_slice())).collect();
    let error = device.write_many(&writes).unwrap_err();
    assert_eq!(error.os(), Some(OsError::NO_SPACE), "{error}");
}

/// The image under the loop device is on a file system that becomes full: the page cache has
/// already accepted the writes, and only the flush can report the failure.
#[test]
fn a_failed_flush_stays_failed() {
    let Some(small) = Small::new("1m") else { return skip("mount -t tmpfs is not permitted") };
    let image = small.0.path().join("image");
    drop(FileDevice::create(&image, 8 * MIB).unwrap());
    let Some(disk) = Loop::over(&image, "512") else { return skip("no loop devices") };
    let device = FileOptions::new().direct(false).open(&disk.0).unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    device.write_at(0, &vec![1; 4 * MIB as usize]).unwrap();
    let first = device.flush().unwrap_err();
    assert!(matches!(first, Error::Io { operation: Operation::Flush, .. }), "{first}");
    assert_eq!(device.flush(), Err(first));
}

/// An image whose space is allocated is meant to keep it.
#[test]
fn reserved_ranges_are_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let device = FileDevice::create(&path, 64 * MIB).unwrap();
    let used = || std::fs::metadata(&path).unwrap().blocks() * 512;
    device.write_at(2 * MIB, &[7; 4096]).unwrap();
    device.reserve_ranges(&[MIB..3 * MIB, 8 * MIB..9 * MIB]).unwrap();
    let mut block = [1; 4096];
    for (at, byte) in [(MIB, 0), (2 * MIB, 7), (8 * MIB, 0)] {
        device.read_at(at, &mut block).unwrap();
        assert_eq!(block, [byte; 4096], "{at}");
    }
    if used() > 4096 {
        assert!((3 * MIB..5 * MIB).contains(&used()), "{}", used());
    }
    let outside = device.reserve_ranges(&[0..MIB, 63 * MIB..65 * MIB]);
    assert!(matches!(outside, Err(Error::OutOfRange { .. })), "{outside:?}");
}

#[test]
fn sparse_images_are_thin() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let device = FileDevice::create(&image, MIB).unwrap();
    let how = device.discards().unwrap();
    assert!(how.is_thin && how.granularity == 4096, "{how:?}");
    device.write_at(0, &vec![1; MIB as usize]).unwrap();
    device.flush().unwrap();
    assert_eq!(device.discards(), Some(how), "it was sparse at first");
    drop(device);
    let device = FileDevice::open(&image).unwrap();
    assert!(!device.discards().unwrap().is_thin);
    device.release();
    assert_eq!(device.discards(), None);
    drop(device);
    let device = FileOptions::new().read_only(true).open(&image).unwrap();
    assert_eq!(device.discards(), None);
}

/// Ranges that were never written are holes; file systems without holes call all of it data.
#[test]
fn holes_of_images_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let device = FileDevice::create(folder.path().join("image"), 64 * MIB).unwrap();
    device.write_at(20 * MIB, &[1; 4096]).unwrap();
    let mut at = 0;
    let mut data = Vec::new();
    while let Some(range) = device.data_from(at) {
        assert!(at <= range.start && range.start < range.end && range.end <= 64 * MIB);
        at = range.end;
        data.push(range);
    }
    let has = |at| data.iter().any(|range| range.contains(&at));
    assert!(has(20 * MIB) && has(20 * MIB + 4095), "{data:?}");
    let whole = 0..64 * MIB;
    if data != std::slice::from_ref(&whole) {
        assert!(!has(0) && !has(21 * MIB) && !has(64 * MIB - 1), "{data:?}");
        assert_eq!(device.data_from(20 * MIB + 8).unwrap().start, 20 * MIB + 8);
    }
    assert_eq!(device.data_from(64 * MIB), None);
}

#[test]
fn block_devices() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    drop(FileDevice::create(&image, 8 * MIB).unwrap());
    for block_size in ["512", "4096"] {
        let Some(disk) = Loop::over(&image, block_size) else { return skip("no loop devices") };
        let device = FileDevice::open(&disk.0).unwrap();
        assert_eq!((device.size(), device.block_size().to_string()), (8 * MIB, block_size.into()));
        assert!(device.describe().contains("block device, "), "{}", device.describe());
        assert!(device.describe().contains("direct I/O,"), "{}", device.describe());
        assert_eq!(batch(&device, 150), (1..=150).collect::<Vec<_>>());
        let mut odd = [0; 1001];
        device.read_at(device.size() - 1001, &mut odd).unwrap();
        device.discard(0, MIB).unwrap();
        device.flush().unwrap();
        assert!(device.discards().is_none_or(|how| !how.is_thin && how.granularity >= 4096));
        assert!(matches!(device.set_size(16 * MIB), Err(Error::Unsupported { .. })));
        // The underlying disk grows, and the device with it.
        OpenOptions::new().write(true).open(&image).unwrap().set_len(16 * MIB).unwrap();
        system("losetup", &["--set-capacity", disk.0.to_str().unwrap()]).unwrap();
        assert_eq!(device.size(), 8 * MIB);
        device.set_size(16 * MIB).unwrap();
        device.write_at(16 * MIB - 4096, &[7; 4096]).unwrap();
        drop(device);
        OpenOptions::new().write(true).open(&image).unwrap().set_len(8 * MIB).unwrap();
    }
}

/// Opens a device by `attempt`. A process that another test starts holds all open files until it
/// executes another program, this device or the former one of its number among them.
pub(crate) fn in_the_end<T, E>(attempt: impl Fn() -> Result<T, E>) -> T {
    let mut attempts = (0..200).map(|_| {
        vfscale_harness::pause(Duration::from_millis(5));
        attempt()
    });
    attempts.find_map(Result::ok).unwrap()
}

#[test]
fn a_block_device_is_claimed_from_the_system() {
    const O_EXCL: i32 = 0o200;
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    drop(FileDevice::create(&image, MIB).unwrap());
    let Some(disk) = Loop::over(&image, "512") else { return skip("no loop devices") };
    let claim = || OpenOptions::new().read(true).custom_flags(O_EXCL).open(&disk.0);
    let open = || in_the_end(|| FileDevice::open(&disk.0));
    let device = open();
    assert_eq!(claim().unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    let Err(Error::Locked { holder: Some(holder), .. }) = FileDevice::open(&disk.0) else {
        panic!("opened twice, or without a holder");
    };
    assert_eq!(holder.pid, std::process::id());
    device.release();
    let claimed = in_the_end(claim);
    let error = FileDevice::open(&disk.0).unwrap_err();
    assert!(matches!(error, Error::Locked { holder: None, .. }), "{error}");
    drop(claimed);
    for _ in 0..20 {
        batch(&open(), 100);
    }
}

/// Pages, each full of a number of its own.
fn numbered(pages: usize) -> Arc<Vec<PageBox>> {
    let bytes: Vec<u8> = (0..pages * PAGE_SIZE).map(|at| (at / PAGE_SIZE % 251) as u8).collect();
    Arc::new(Page::many_with(pages, 0, &bytes))
}

#[test]
fn writes_of_pages_are_in_flight_together() {
    let folder = tempfile::tempdir().unwrap();
    for direct in [true, false] {
        let path = folder.path().join(format!("image {direct}"));
        drop(FileDevice::create(&path, 16 * MIB).unwrap());
        let device = FileOptions::new().direct(direct).open(&path).unwrap();
        let pages = numbered(1000);
        let (first, second) = (
            device.begin_write_pages(0, &pages),
            device.begin_write_pages(1000 * PAGE_SIZE as u64, &pages),
        );
        // Dropping one waits for it, and it is written as well.
        drop(device.begin_write_pages(2000 * PAGE_SIZE as u64, &pages));
        second.wait().unwrap();
        first.wait().unwrap();
        assert_eq!(Arc::strong_count(&pages), 1, "the device still shares the pages");
        let mut bytes = vec![0; 3000 * PAGE_SIZE];
        device.read_at(0, &mut bytes).unwrap();
        for (n, page) in bytes.chunks(PAGE_SIZE).enumerate() {
            assert!(page.iter().all(|byte| usize::from(*byte) == n % 1000 % 251), "page {n}");
        }
        // Outside of the device nothing is written.
        let outside = device.begin_write_pages(16 * MIB - PAGE_SIZE as u64, &pages);
        assert!(matches!(outside.wait(), Err(Error::OutOfRange { .. })));
    }
}
