//! File data through a mount: shared between processes, mapped, executed, with holes, copied.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::common::{self, BOTH, Kid, TestMount, drop_caches};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

pub const APPENDS: usize = 400;

/// The part of the helper processes of these tests.
#[test]
fn helper() {
    let Some((role, argument)) = common::role() else { return };
    let path = Path::new(&argument);
    match role.as_str() {
        "append" => {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            let line = format!("{:>15}\n", std::process::id());
            for _ in 0..APPENDS {
                file.write_all(line.as_bytes()).unwrap();
            }
        }
        "map" => share_map(path),
        other => panic!("{other}"),
    }
}

/// Maps a page, waits for a 1 in it, and answers with a 2.
fn share_map(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let map = Map::new(&file, 8192);
    map.store(4096, 1);
    vfscale_harness::wait_until("the other process's byte", || map.load(0) == 2);
    map.store(4097, 3);
    map.sync().unwrap();
}

/// A shared mapping.
pub(crate) struct Map(*mut u8, usize);

impl Map {
    pub(crate) fn new(file: &File, len: usize) -> Map {
        // SAFETY: creates a new mapping at an address of the kernel's choice; unmapped when
        // dropped.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(file),
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        Map(at.cast(), len)
    }

    fn byte(&self, offset: usize) -> &std::sync::atomic::AtomicU8 {
        assert!(offset < self.1);
        // SAFETY: inside the mapping, which exists as long as `self`; other processes access it
        // atomically.
        unsafe { std::sync::atomic::AtomicU8::from_ptr(self.0.add(offset)) }
    }

    pub(crate) fn load(&self, offset: usize) -> u8 {
        self.byte(offset).load(std::sync::atomic::Ordering::SeqCst)
    }

    pub(crate) fn store(&self, offset: usize, value: u8) {
        self.byte(offset).store(value, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Map {
    /// Calls `msync(2)`.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        // SAFETY: the whole mapping, which exists as long as `self`.
        match unsafe { libc::msync(self.0.cast(), self.1, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no longer used.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

#[test]
fn two_processes_append_without_loss() {
    for m in TestMount::both() {
        let path = m.path("log");
        File::create(&path).unwrap();
        let kids = [0, 1].map(|_| Kid::start(common::helper("data", "append", &path)));
        kids.into_iter().for_each(Kid::finish);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.len(), 2 * APPENDS * 16);
        let mut counts = std::collections::BTreeMap::new();
        for line in text.lines() {
            *counts.entry(line.trim().parse::<u32>().unwrap()).or_insert(0) += 1;
        }
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [APPENDS, APPENDS]);
    }
}

#[test]
fn shared_maps_are_shared_and_durable() {
    for m in TestMount::both() {
        let path = m.path("map");
        let file = File::create(&path).unwrap();
        file.set_len(8192).unwrap();
        let kid = Kid::start(common::helper("data", "map", &path));
        // This process serves the mount, so it uses only plain reads and writes. A page fault could
        // wait for a thread that waits for the address space.
        let mut byte = [0];
        vfscale_harness::wait_until("the mapped byte", || {
            File::open(&path).unwrap().read_exact_at(&mut byte, 4096).unwrap();
            byte[0] == 1
        });
        file.write_all_at(&[2], 0).unwrap();
        kid.finish();
        drop(file);
        drop_caches();
        let data = fs::read(&path).unwrap();
        assert_eq!((data[0], data[4096], data[4097]), (2, 1, 3));
        assert_eq!(data.iter().filter(|&&b| b != 0).count(), 3);
    }
}

#[test]
fn programs_run_from_the_mount() {
    for m in TestMount::both() {
        let program = m.path("true");
        fs::copy("/bin/true", &program).unwrap();
        assert!(Command::new(&program).status().unwrap().success());
        let script = m.path("script");
        fs::write(&script, "#!/bin/sh\nexit 42\n").unwrap();
        assert!(Command::new(&script).status().is_err(), "not executable yet");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(Command::new(&script).status().unwrap().code(), Some(42));
    }
}

#[test]
fn unlinked_files_live_while_open() {
    for m in TestMount::both() {
        let path = m.path("f");
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"before").unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(b" and after").unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        drop_caches();
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before and after");
        let meta = file.metadata().unwrap();
        assert_eq!((meta.nlink(), meta.len(), meta.mode() & 0o777), (0, 16, 0o600));
        fs::write(&path, "another").unwrap();
        file.set_len(3).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
        // Directories too.
        fs::create_dir(m.path("d")).unwrap();
        let dir = File::open(m.path("d")).unwrap();
        fs::remove_dir(m.path("d")).unwrap();
        assert_eq!(dir.metadata().unwrap().nlink(), 0);
    }
}

#[test]
fn a_handle_retains_the_rights_it_was_opened_with() {
    for m in TestMount::both() {
        let path = m.path("f");
        let options = |o: &mut OpenOptions| o.write(true).create_new(true).mode(0o400).clone();
        let mut file = options(&mut OpenOptions::new()).open(&path).unwrap();
        file.write_all(b"read-only, but opened for writing").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o400);
        file.set_len(9).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "read-only");
    }
}

#[test]
fn large_files_are_read_as_written() {
    for m in TestMount::both() {
        let path = m.path("big");
        // The content identifies the offset of every eight bytes.
        let data: Vec<u8> = (0..3_000_000_u64).flat_map(u64::to_le_bytes).collect();
        fs::write(&path, &data).unwrap();
        assert!(fs::read(&path).unwrap() == data, "from the cache");
        drop_caches();
        assert!(fs::read(&path).unwrap() == data, "from the server");
        let file = OpenOptions::new().write(true).read(true).open(&path).unwrap();
        file.write_all_at(b"odd", 1_234_567).unwrap();
        drop_caches();
        let mut around = [0; 5];
        file.read_exact_at(&mut around, 1_234_566).unwrap();
        assert_eq!((&around[1..4], around[0]), (&b"odd"[..], data[1_234_566]));
        let truncated = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        assert_eq!(truncated.metadata().unwrap().len(), 0);
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
}

#[test]
fn direct_io_reads_what_is_written_either_way() {
    for m in TestMount::both() {
        let path = m.path("f");
        fs::write(&path, vec![1; 16384]).unwrap();
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path)
            .unwrap();
        let mut buf = Aligned([0; 4096]);
        direct.read_exact_at(&mut buf.0, 4096).unwrap();
        assert!(buf.0.iter().all(|&b| b == 1));
        direct.write_all_at(&Aligned([2; 4096]).0, 8192).unwrap();
        let data = fs::read(&path).unwrap();
        assert!(data[8192..12288].iter().all(|&b| b == 2));
        assert!(data[12288..].iter().all(|&b| b == 1));
    }
}

#[repr(align(4096))]
struct Aligned([u8; 4096]);

/// Some pages of a direct write fit: Linux would report a short reply to it as `EIO`.
#[test]
fn direct_writes_that_do_not_fit_are_told_enospc() {
    for sharing in BOTH {
        let Some(m) = TestMount::of(common::memory(8 << 20), sharing, |b| b) else { return };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(libc::O_DIRECT)
            .open(m.path("f"))
            .unwrap();
        let pages: Vec<_> = (0..64).map(|_| Aligned([3; 4096])).collect();
        let bytes: Vec<_> = pages.iter().map(|page| std::io::IoSlice::new(&page.0)).collect();
        let mut at = 4096;
        // An odd start: the space is hardly a multiple of the length of the writes.
        file.write_all_at(&pages[0].0, 0).unwrap();
        let error = loop {
            match rustix::io::pwritev(&file, &bytes, at) {
                Ok(0) => panic!("nothing was written"),
                Ok(count) => at += count as u64,
                Err(error) => break error,
            }
            assert!(at < 16 << 20, "{sharing:?}: not full");
        };
        assert_eq!(error, Errno::NOSPC, "{sharing:?} at {at}");
        assert!(at > 6 << 20, "{sharing:?}: full at {at}");
    }
}

#[test]
fn holes_are_found_punched_and_filled() {
    for m in TestMount::both() {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(m.path("f")).unwrap();
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        let seek = |from| rustix::fs::seek(&file, from);
        assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(1 << 20));
        assert_eq!(seek(rustix::fs::SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4096));
        assert_eq!(seek(rustix::fs::SeekFrom::Data(2 << 20)), Err(Errno::NXIO));
        assert!(file.metadata().unwrap().blocks() <= 16);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), 2 << 20);
        assert!(meta.blocks() * 512 >= 2 << 20);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 0, 2 << 20).unwrap();
        let mut byte = [9];
        file.read_exact_at(&mut byte, 1 << 20).unwrap();
        assert_eq!(byte, [0]);
        assert!(file.metadata().unwrap().blocks() <= 16);
        let odd = FallocateFlags::COLLAPSE_RANGE;
        assert_eq!(rustix::fs::fallocate(&file, odd, 0, 4096), Err(Errno::OPNOTSUPP));
    }
}

#[test]
fn ranges_are_copied_by_the_server() {
    for m in TestMount::both() {
        let data: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(m.path("from"), &data).unwrap();
        let (from, to) = (File::open(m.path("from")).unwrap(), File::create(m.path("to")).unwrap());
        let before = m.mounted().stats().requests;
        let (mut source, mut target) = (1000, 7);
        let mut left = 1_900_000;
        while left > 0 {
            let n =
                rustix::fs::copy_file_range(&from, Some(&mut source), &to, Some(&mut target), left)
                    .unwrap();
            assert!(n > 0);
            left -= n;
        }
        let requests = m.mounted().stats().requests - before;
        assert!(requests < 30, "{requests} requests: the data went through the kernel");
        let copy = fs::read(m.path("to")).unwrap();
        assert_eq!(copy.len(), 1_900_007);
        assert!(copy[7..] == data[1000..1_901_000]);
    }
}

/// Copies all of `from` to `to`, and returns the most that one call has copied.
fn copy_all(from: &File, to: &File) -> u64 {
    let len = from.metadata().unwrap().len();
    let (mut source, mut target, mut most) = (0, 0, 0);
    while source < len {
        let before = source;
        let left = usize::try_from(len - source).unwrap();
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), left);
        assert!(copied.unwrap() > 0, "at {before}");
        most = most.max(source - before);
    }
    most
}

/// One request occupies a worker, and can't be interrupted.
#[test]
fn a_copy_is_short_and_copies_holes_as_holes() {
    const LEN: u64 = 1 << 30;
    const AT: u64 = 300 << 20;
    for on_volume in [false, true] {
        for sharing in BOTH {
            let place = tempfile::tempdir().unwrap();
            let (uid, gid) = common::owner();
            let volume = on_volume.then(|| {
                let volume = vfscale::volume(place.path().join("image")).create(256 << 20);
                volume.owner(uid, gid).open().unwrap()
            });
            let vfs =
                volume.as_ref().map_or_else(|| common::memory(256 << 20), |v| v.vfs().clone());
            let Some(m) = TestMount::of(vfs, sharing, |b| b) else { return };
            let new = |name: &str| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).open(m.path(name)).unwrap()
            };
            let (from, to) = (new("from"), new("to"));
            from.write_all_at(&vec![1; 20 << 20], AT).unwrap();
            from.set_len(LEN).unwrap();
            // In a hole of the source, across the border of its data, and behind it.
            for at in [5000, AT - 100, 600 << 20] {
                to.write_all_at(&[2; 10_000], at).unwrap();
            }
            assert!(copy_all(&from, &to) <= 72 << 20, "{sharing:?}");
            let meta = to.metadata().unwrap();
            assert_eq!(meta.len(), LEN);
            assert!(meta.blocks() * 512 <= 21 << 20, "{sharing:?}: {} blocks", meta.blocks());
            drop_caches();
            let read = |at: u64, len: usize| {
                let mut bytes = vec![9; len];
                to.read_exact_at(&mut bytes, at).unwrap();
                bytes
            };
            for at in [0, AT - 8192, 600 << 20, LEN - 8192] {
                assert!(read(at, 8192) == [0; 8192], "{sharing:?} at {at}");
            }
            assert!(read(AT, 20 << 20).iter().all(|byte| *byte == 1), "{sharing:?}");
            assert_eq!(read(AT + (20 << 20), 100), [0; 100]);
            // Data alone are copied in steps, too.
            let dense = new("dense");
            dense.write_all_at(&vec![3; 40 << 20], 0).unwrap();
            assert!(copy_all(&dense, &to) <= 8 << 20, "{sharing:?}");
            drop((from, to, dense, m));
            volume.map(vfscale::Volume::close).transpose().unwrap();
        }
    }
}

/// How a reader requests that its access does not update the access time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Quiet {
    No,
    Opened,
    Set,
}

fn open_quiet(path: &Path, quiet: Quiet) -> std::os::fd::OwnedFd {
    let noatime = if quiet == Quiet::Opened { OFlags::NOATIME } else { OFlags::empty() };
    let fd = rustix::fs::open(path, OFlags::RDONLY | noatime, Mode::empty()).unwrap();
    if quiet == Quiet::Set {
        let flags = rustix::fs::fcntl_getfl(&fd).unwrap();
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NOATIME).unwrap();
    }
    fd
}

#[test]
fn reads_update_the_access_time_unless_they_must_not() {
    for sharing in BOTH {
        let Some(m) = TestMount::new(sharing) else { return };
        // Updates the access time on each access. The kernel caches nothing yet of files created
        // through the library.
        let task = m.vfs.task();
        task.posix().remount("/", vfscale::posix::MountFlags::STRICTATIME).unwrap();
        for quiet in [Quiet::No, Quiet::Opened, Quiet::Set] {
            let (file, dir) = (format!("file-{quiet:?}"), format!("dir-{quiet:?}"));
            task.write(&file, "some bytes").unwrap();
            task.create_dir_all(format!("{dir}/below")).unwrap();
            // Only the owner may leave the access time alone.
            let (uid, gid) = common::owner();
            for name in [&file, &dir] {
                task.chown(name, Some(uid), Some(gid)).unwrap();
            }
            let times = || [&file, &dir].map(|name| task.metadata(name).unwrap().atime);
            let before = times();
            vfscale_harness::pause(std::time::Duration::from_millis(5));
            let mut text = String::new();
            let mut opened = File::from(open_quiet(&m.path(&file), quiet));
            assert_eq!(opened.read_to_string(&mut text).unwrap(), 10);
            let names = rustix::fs::Dir::new(open_quiet(&m.path(&dir), quiet)).unwrap();
            assert_eq!(names.map(Result::unwrap).count(), 3);
            let kept = times().iter().zip(&before).filter(|(now, before)| now == before).count();
            let expected = if quiet == Quiet::No { 0 } else { 2 };
            assert_eq!(kept, expected, "{sharing:?} {quiet:?}");
        }
    }
}
