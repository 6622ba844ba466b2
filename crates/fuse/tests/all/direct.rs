//! Direct writes beside the page cache: sequential, asynchronous, larger than one request.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{BOTH, TestMount, drop_caches, skipped};

const PAGE: usize = 4096;
/// Pages of the file that is written asynchronously.
const PAGES: usize = 32;

#[derive(Clone, Copy)]
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// `struct iocb`: a request of asynchronous I/O.
#[derive(Default)]
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_fd: u32,
}

/// `struct io_event`: the end of a request.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct IoEvent {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

/// A context of asynchronous I/O.
struct Aio(libc::c_ulong);

impl Aio {
    /// Returns `None`, and reports it visibly, where the kernel has no asynchronous I/O.
    fn new() -> Option<Aio> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes the identifier of the new context, which outlives it.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, PAGES, &raw mut context) };
        if made != 0 {
            skipped(&format!("no asynchronous I/O: {}", std::io::Error::last_os_error()));
            return None;
        }
        Some(Aio(context))
    }

    /// Writes one page after the other, all at once, and waits for them.
    fn write(&self, file: &File, pages: &[Page; PAGES]) {
        const WRITE: u16 = 1;
        let mut requests: Vec<Iocb> = pages
            .iter()
            .enumerate()
            .map(|(i, page)| Iocb {
                opcode: WRITE,
                fd: file.as_raw_fd().cast_unsigned(),
                buf: page.0.as_ptr() as u64,
                len: PAGE as u64,
                offset: (i * PAGE) as i64,
                ..Iocb::default()
            })
            .collect();
        let list: Vec<*mut Iocb> = requests.iter_mut().map(std::ptr::from_mut).collect();
        // SAFETY: requests and pages outlive the wait for all of them below.
        let sent = unsafe { libc::syscall(libc::SYS_io_submit, self.0, PAGES, list.as_ptr()) };
        assert_eq!(sent, PAGES as i64, "{}", std::io::Error::last_os_error());
        let mut events = [IoEvent::default(); PAGES];
        let no_limit = std::ptr::null_mut::<libc::timespec>();
        // SAFETY: the call writes at most `PAGES` events.
        let ended = unsafe {
            let events = events.as_mut_ptr();
            libc::syscall(libc::SYS_io_getevents, self.0, PAGES, PAGES, events, no_limit)
        };
        assert_eq!(ended, PAGES as i64);
        assert!(events.iter().all(|event| event.result == PAGE as i64));
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: no request of the context is in progress.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn open_direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap()
}

/// A page that a reader caches while an asynchronous write is under way must not outlive the write.
#[test]
fn cached_reads_follow_asynchronous_direct_writes() {
    for sharing in BOTH {
        let Some(m) = TestMount::new(sharing) else { return };
        let Some(aio) = Aio::new() else { return };
        let path = m.path("f");
        fs::write(&path, vec![0; PAGES * PAGE]).unwrap();
        let (file, direct) = (File::open(&path).unwrap(), open_direct(&path));
        for byte in 1..=100 {
            let has_ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut buf = vec![0; PAGES * PAGE];
                    while !has_ended.load(Ordering::Acquire) {
                        file.read_exact_at(&mut buf, 0).unwrap();
                    }
                });
                aio.write(&direct, &[Page([byte; PAGE]); PAGES]);
                has_ended.store(true, Ordering::Release);
            });
            let mut cached = vec![0; PAGES * PAGE];
            file.read_exact_at(&mut cached, 0).unwrap();
            let stale = cached.iter().filter(|&&b| b != byte).count() / PAGE;
            assert_eq!(stale, 0, "{sharing:?}: stale pages in round {byte}");
            let mut stored = [Page([0; PAGE]); PAGES];
            for (i, page) in stored.iter_mut().enumerate() {
                direct.read_exact_at(&mut page.0, (i * PAGE) as u64).unwrap();
                assert!(page.0.iter().all(|&b| b == byte), "{sharing:?}: page {i}");
            }
        }
    }
}

/// Requests have at most 1 MiB of data.
#[test]
fn direct_transfers_may_be_larger_than_a_request() {
    const LEN: usize = 5 << 20;
    for sharing in BOTH {
        let Some(m) = TestMount::new(sharing) else { return };
        let path = m.path("f");
        File::create(&path).unwrap();
        let direct = open_direct(&path);
        let mut pages = vec![Page([0; PAGE]); LEN / PAGE];
        for (i, page) in pages.iter_mut().enumerate() {
            page.0.fill((i % 251) as u8);
        }
        let slices: Vec<_> = pages.iter().map(|page| std::io::IoSlice::new(&page.0)).collect();
        let mut done = 0;
        // A call takes at most 1024 slices.
        for part in slices.chunks(1024) {
            done += rustix::io::pwritev(&direct, part, done as u64).unwrap();
        }
        assert_eq!(done, LEN, "{sharing:?}");
        drop_caches();
        let mut back = vec![Page([255; PAGE]); LEN / PAGE];
        let mut slices: Vec<_> =
            back.iter_mut().map(|page| std::io::IoSliceMut::new(&mut page.0)).collect();
        let mut done = 0;
        for part in slices.chunks_mut(1024) {
            done += rustix::io::preadv(&direct, part, done as u64).unwrap();
        }
        assert_eq!(done, LEN, "{sharing:?}");
        assert!(pages.iter().zip(&back).all(|(a, b)| a.0 == b.0), "{sharing:?}");
    }
}
