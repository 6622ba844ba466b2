//! A file of the kernel whose bytes are on a device of the test: writes and syncs of the file reach
//! the device in the order of the kernel's requests.
//!
//! # Purpose
//!
//! A [`FileDevice`](vfscale_block::FileDevice) makes system calls, some of them by io_uring. Only
//! the layer below the file can determine which of them a power cut leaves. So the file is on a
//! FUSE file system served here: a directory with one name, [`NAME`]. A `WRITE` of the kernel is a
//! write of the device, an `FSYNC` a flush. With a `RecordingDevice` as the device, all possible
//! states after a power cut are known.
//!
//! # Durability
//!
//! * Bytes become durable by `fsync` and `fdatasync`, if their requests were answered before.
//! * The size becomes durable by either of them. Until then, device writes beyond the old end fail.
//! * The name becomes durable by `fsync` of the directory ([`Below::events`]).
//!
//! # Locks
//!
//! None is held while the device is used, except by the serving thread.

#![allow(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;
use vfscale_block::Device;

/// Name of the file.
pub const NAME: &str = "disk";
/// Time limit for the kernel to release the mount.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum length of a request, with its header.
const BUFFER: usize = (1 << 20) + 4096;
/// Validity of cached attributes in the kernel: forever, because only the kernel's requests change
/// them.
const VALID_SECONDS: u64 = 1 << 30;

/// `FUSE_ASYNC_READ`, `FUSE_BIG_WRITES`, `FUSE_ASYNC_DIO` and `FUSE_MAX_PAGES`.
const INIT_FLAGS: u32 = 1 | 1 << 5 | 1 << 15 | 1 << 22;
const INIT_WRITEBACK_CACHE: u32 = 1 << 16;
/// Direct writes need not wait for each other.
const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
const PUNCH_HOLE: u32 = 2;
const SETATTR_SIZE: u32 = 1 << 3;

const DIR: u64 = 1;
const FILE: u64 = 2;

/// Options of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Whether the kernel caches writes without `O_DIRECT` until a sync or a write-back that it
    /// chooses. Otherwise it writes through immediately, and caches only reads.
    pub keeps_writes: bool,
    /// Whether syncs have no effect.
    pub lies: bool,
    /// Whether the file does not exist at first.
    pub is_missing: bool,
}

/// A request that makes something durable, or whose effect must be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Created,
    Resized(u64),
    Synced,
    DirSynced,
}

/// A mount with the file in it. Dropping it unmounts.
#[derive(Debug)]
pub struct Below {
    dir: Option<TempDir>,
    server: Option<JoinHandle<()>>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Below {
    /// Mounts the file system. Fails with the reason if that is not permitted.
    pub fn mount(device: Arc<dyn Device>, how: How) -> Result<Below, String> {
        let dir = tempfile::Builder::new().prefix("vfscale-below-").tempdir().unwrap();
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        let fuse = fuse.map_err(|error| format!("/dev/fuse can't be opened: {error}"))?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", fuse.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
        mount("below", dir.path(), "fuse", MountFlags::empty(), options)
            .map_err(|error| format!("the mount is not permitted: {error}"))?;
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let size = device.size();
        let is_there = !how.is_missing;
        let told = events.clone();
        let server = thread::spawn(move || {
            Server { fuse, device, how, is_there, size, events: told }.serve();
        });
        Ok(Below { dir: Some(dir), server: Some(server), events })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.dir().join(NAME)
    }

    /// Returns the requests in order.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    fn dir(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        // A process that had the file open may be about to close it.
        let idle = loop {
            match unmount(self.dir(), UnmountFlags::empty()) {
                Err(Errno::BUSY) if Instant::now() < end => thread::sleep(Duration::from_millis(1)),
                other => break other,
            }
        };
        if idle.is_err() {
            let _ = unmount(self.dir(), UnmountFlags::DETACH | UnmountFlags::FORCE);
        }
        let served = self.server.take().unwrap().join();
        if !thread::panicking() {
            idle.unwrap();
            served.unwrap();
        }
    }
}

/// State of the thread that answers the kernel.
struct Server {
    fuse: File,
    device: Arc<dyn Device>,
    how: How,
    is_there: bool,
    /// Size of the file; the device's size is the durable one.
    size: u64,
    events: Arc<Mutex<Vec<Event>>>,
}

/// A request without its header.
struct Request<'a> {
    node: u64,
    body: &'a [u8],
}

impl Request<'_> {
    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.body[at..at + 4].try_into().unwrap())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.body[at..at + 8].try_into().unwrap())
    }
}

/// The bytes of an answer.
#[derive(Default)]
struct Answer(Vec<u8>);

impl Answer {
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }
}

impl Server {
    fn serve(mut self) {
        let mut buffer = vec![0; BUFFER];
        loop {
            let count = match self.fuse.read(&mut buffer) {
                Ok(count) => count,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NOENT | Errno::INTR | Errno::AGAIN) => continue,
                    Some(Errno::NODEV | Errno::CONNABORTED) => return,
                    other => panic!("{other:?}"),
                },
            };
            let header = Request { node: 0, body: &buffer[..count] };
            let (opcode, unique) = (header.u32(4), header.u64(8));
            let request = Request { node: header.u64(16), body: &buffer[40..count] };
            let Some(answer) = self.answer(opcode, &request) else { continue };
            let (error, bytes) = match answer {
                Ok(Answer(bytes)) => (0, bytes),
                Err(errno) => (-errno.raw_os_error(), Vec::new()),
            };
            let head = Answer::default().u32(16 + bytes.len() as u32).u32(error as u32);
            let Answer(mut message) = head.u64(unique);
            message.extend(bytes);
            // The requesting process may have ended.
            let _ = self.fuse.write(&message);
        }
    }

    /// Answers a request. Returns `None` for requests without an answer.
    fn answer(&mut self, opcode: u32, request: &Request<'_>) -> Option<Result<Answer, Errno>> {
        let empty = Answer::default;
        Some(match opcode {
            // FORGET, INTERRUPT, BATCH_FORGET.
            2 | 36 | 42 => return None,
            // INIT
            26 => Ok(self.init(request)),
            // LOOKUP
            1 if self.is_there && request.body == b"disk\0" => Ok(self.entry()),
            1 => Err(Errno::NOENT),
            // GETATTR
            3 => Ok(self.attributes(request.node)),
            // SETATTR
            4 => {
                if request.u32(0) & SETATTR_SIZE != 0 {
                    self.size = request.u64(16);
                    self.tell(Event::Resized(self.size));
                }
                Ok(self.attributes(FILE))
            }
            // CREATE
            35 => {
                self.is_there = true;
                self.size = 0;
                self.tell(Event::Created);
                let Answer(opened) = self.opened();
                let Answer(mut bytes) = self.entry();
                bytes.extend(opened);
                Ok(Answer(bytes))
            }
            // OPEN, OPENDIR
            14 | 27 => Ok(self.opened()),
            // READ
            15 => self.read(request.u64(8), request.u32(16)),
            // WRITE
            16 => self.write(request.u64(8), &request.body[40..]),
            // FSYNC
            20 => self.sync(),
            // FALLOCATE, to allocate: all of the file is.
            43 if request.u32(24) & PUNCH_HOLE == 0 => Ok(empty()),
            // FALLOCATE, to make a hole.
            43 => {
                let result = self.device.discard(request.u64(8), request.u64(16));
                result.map(|()| empty()).map_err(|_| Errno::IO)
            }
            // FSYNCDIR
            30 => {
                self.tell(Event::DirSynced);
                Ok(empty())
            }
            // STATFS
            17 => Ok(empty().zeros(40).u32(4096).u32(255).u32(4096).zeros(28)),
            // RELEASE, FLUSH, RELEASEDIR, ACCESS, DESTROY
            18 | 25 | 29 | 34 | 38 => Ok(empty()),
            _ => Err(Errno::NOSYS),
        })
    }

    fn tell(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    fn init(&self, request: &Request<'_>) -> Answer {
        let keeps = if self.how.keeps_writes { INIT_WRITEBACK_CACHE } else { 0 };
        let (minor, readahead) = (request.u32(4), request.u32(8));
        let answer = Answer::default().u32(7).u32(minor.min(45)).u32(readahead);
        let answer = answer.u32((INIT_FLAGS | keeps) & request.u32(12)).u16(64).u16(48);
        answer.u32(1 << 20).u32(1).u16(256).zeros(34)
    }

    fn attributes(&self, node: u64) -> Answer {
        self.put_attributes(Answer::default().u64(VALID_SECONDS).zeros(8), node)
    }

    fn entry(&self) -> Answer {
        let answer = Answer::default().u64(FILE).u64(1).u64(VALID_SECONDS).u64(VALID_SECONDS);
        self.put_attributes(answer.zeros(8), FILE)
    }

    fn put_attributes(&self, answer: Answer, node: u64) -> Answer {
        let (size, mode) = if node == DIR { (0, 0o40_755) } else { (self.size, 0o100_644) };
        let answer = answer.u64(node).u64(size).u64(size / 512).zeros(36);
        answer.u32(mode).u32(1).zeros(12).u32(4096).zeros(4)
    }

    fn opened(&self) -> Answer {
        Answer::default().u64(0).u32(OPEN_PARALLEL_DIRECT_WRITES).zeros(4)
    }

    /// Reads zeros beyond the durable end.
    fn read(&self, offset: u64, len: u32) -> Result<Answer, Errno> {
        let len = u64::from(len).min(self.size.saturating_sub(offset));
        let there = len.min(self.device.size().saturating_sub(offset));
        let mut bytes = vec![0; len as usize];
        self.device.read_at(offset, &mut bytes[..there as usize]).map_err(|_| Errno::IO)?;
        Ok(Answer(bytes))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<Answer, Errno> {
        self.device.write_at(offset, bytes).map_err(|_| Errno::IO)?;
        Ok(Answer::default().u32(bytes.len() as u32).zeros(4))
    }

    fn sync(&self) -> Result<Answer, Errno> {
        self.tell(Event::Synced);
        if !self.how.lies {
            if self.size != self.device.size() {
                self.device.set_size(self.size).map_err(|_| Errno::IO)?;
            }
            self.device.flush().map_err(|_| Errno::IO)?;
        }
        Ok(Answer::default())
    }
}
