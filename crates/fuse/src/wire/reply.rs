//! Replies: the bytes that answer a request.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use vfscale::posix::{Stat, StatFs};
use vfscale::{Errno, FileType, Timestamp};

use super::{InitFlags, MAJOR, MINOR, OUT_HEADER, OpenReply, encode_dev, notify};

/// The times for which the kernel may cache the contents of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validity {
    /// Time for which the node of a name, or that it has none, is valid.
    pub(crate) entry: Duration,
    /// Time for which the attributes of a node are valid.
    pub(crate) attr: Duration,
}

/// A node in a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) node: u64,
    pub(crate) generation: u64,
    pub(crate) ino: u64,
    pub(crate) stat: &'a Stat,
    pub(crate) valid: Validity,
}

/// The server's choices in answer to the kernel's offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) minor: u32,
    pub(crate) readahead_max: u32,
    pub(crate) flags: InitFlags,
    /// Maximum number of background requests in flight, such as readahead.
    pub(crate) background_max: u16,
    /// Maximum bytes in one `WRITE`.
    pub(crate) write_max: u32,
    /// Maximum pages in one request.
    pub(crate) pages_max: u16,
}

/// A worker's buffer for replies, header first.
///
/// The memory is reused for the next reply.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    /// Length of the message in `bytes`; the rest is left from larger replies.
    len: usize,
    /// Whether the kernel knows the address of `bytes`, which therefore never grow.
    is_fixed: bool,
}

impl Reply {
    pub(crate) fn new() -> Reply {
        Reply { bytes: vec![0; 4096], len: OUT_HEADER, is_fixed: false }
    }

    /// Creates a buffer with room for `payload` bytes after the header. It never grows, so its
    /// memory stays where it is. A longer reply panics, which ends the request with `EIO`.
    pub(crate) fn fixed(payload: usize) -> Reply {
        Reply { bytes: vec![0; OUT_HEADER + payload], len: OUT_HEADER, is_fixed: true }
    }

    /// Returns the bytes after the header.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[OUT_HEADER..self.len]
    }

    /// Returns all memory after the header, whatever the length of the reply.
    pub(crate) fn room(&self) -> &[u8] {
        &self.bytes[OUT_HEADER..]
    }

    /// Returns the address of [`room`](Self::room), for the kernel to write to.
    pub(crate) fn room_address(&mut self) -> *mut u8 {
        self.bytes[OUT_HEADER..].as_mut_ptr()
    }

    /// Discards the contents.
    pub(crate) fn clear(&mut self) {
        self.len = OUT_HEADER;
    }

    /// Returns the number of bytes after the header.
    pub(crate) fn payload_len(&self) -> usize {
        self.len - OUT_HEADER
    }

    /// Appends `n` bytes with arbitrary contents and returns them; [`shorten`](Self::shorten) cuts
    /// off the unfilled rest.
    pub(crate) fn space(&mut self, n: usize) -> &mut [u8] {
        let start = self.len;
        assert!(!self.is_fixed || n <= self.bytes.len() - start, "a reply of {n} bytes more");
        self.len += n;
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len.next_power_of_two(), 0);
        }
        &mut self.bytes[start..self.len]
    }

    /// Cuts the payload to `n` bytes.
    pub(crate) fn shorten(&mut self, n: usize) {
        self.len = self.len.min(OUT_HEADER + n);
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
    }

    #[expect(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]
    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }

    #[expect(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]
    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    #[expect(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]
    pub(crate) fn u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    /// Returns a notification that makes the kernel drop its attributes and ACLs of a node, and its
    /// data from `offset` on, which it writes first; no data if that is negative.
    pub(crate) fn inval_inode(&mut self, node: u64, offset: i64) -> &[u8] {
        self.u64(node);
        self.u64(offset.cast_unsigned());
        // Up to the end.
        self.u64(0);
        self.finish(0, -notify::INVAL_INODE)
    }

    /// Appends the outcome of a successful `ioctl`.
    pub(crate) fn ioctl_done(&mut self) {
        // Result, flags, and two counts for unrestricted `ioctl`s.
        self.zeros(16);
    }

    fn zeros(&mut self, n: usize) {
        self.space(n).fill(0);
    }

    /// Returns the finished message. `error` is 0, a positive error number (the payload is then
    /// left out) or the negated code of a notification.
    #[expect(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]
    pub(crate) fn finish(&mut self, unique: u64, error: i32) -> &[u8] {
        let len = if error > 0 { OUT_HEADER } else { self.len };
        self.bytes[0..4].copy_from_slice(&(len as u32).to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&(-error).to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.bytes[..len]
    }

    /// Returns the finished message for the outcome of an operation; see [`finish`](Self::finish).
    pub(crate) fn finish_with(&mut self, unique: u64, outcome: Result<(), Errno>) -> &[u8] {
        self.finish(unique, outcome.err().map_or(0, Errno::raw_os_error))
    }

    pub(crate) fn init(&mut self, settings: &Settings) {
        self.u32(MAJOR);
        self.u32(settings.minor.min(MINOR));
        self.u32(settings.readahead_max);
        self.u32(settings.flags.bits() as u32);
        self.u16(settings.background_max);
        self.u16(settings.background_max / 4 * 3);
        self.u32(settings.write_max);
        // Times have a granularity of one nanosecond.
        self.u32(1);
        self.u16(settings.pages_max);
        self.u16(0);
        self.u32((settings.flags.bits() >> 32) as u32);
        self.zeros(28);
    }

    /// Appends only the version, for a kernel with a newer major version, which then repeats
    /// `INIT`.
    pub(crate) fn version(&mut self) {
        self.u32(MAJOR);
        self.u32(MINOR);
        self.zeros(56);
    }

    pub(crate) fn entry(&mut self, entry: &Entry<'_>) {
        self.u64(entry.node);
        self.u64(entry.generation);
        self.u64(entry.valid.entry.as_secs());
        self.u64(entry.valid.attr.as_secs());
        self.u32(entry.valid.entry.subsec_nanos());
        self.u32(entry.valid.attr.subsec_nanos());
        self.stat(entry.ino, entry.stat);
    }

    /// Appends a negative entry, which the kernel may cache for `valid`.
    pub(crate) fn no_entry(&mut self, valid: Duration) {
        self.zeros(16);
        self.u64(valid.as_secs());
        self.u64(0);
        self.u32(valid.subsec_nanos());
        self.zeros(4 + 88);
    }

    pub(crate) fn attr(&mut self, ino: u64, stat: &Stat, valid: Duration) {
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.u32(0);
        self.stat(ino, stat);
    }

    fn stat(&mut self, ino: u64, stat: &Stat) {
        self.u64(ino);
        self.u64(stat.size);
        self.u64(shown_blocks(stat));
        for time in [stat.atime, stat.mtime, stat.ctime] {
            self.u64(time.secs().cast_unsigned());
        }
        for time in [stat.atime, stat.mtime, stat.ctime] {
            self.u32(time.nanos());
        }
        self.u32(stat.mode);
        self.u32(stat.nlink);
        self.u32(stat.uid);
        self.u32(stat.gid);
        self.u32(encode_dev(stat.rdev));
        self.u32(stat.blksize);
        self.u32(0);
    }

    pub(crate) fn statx(&mut self, ino: u64, stat: &Stat, valid: Duration) {
        /// `STATX_BASIC_STATS | STATX_BTIME`.
        const MASK: u32 = 0xfff;
        self.u64(valid.as_secs());
        self.u32(valid.subsec_nanos());
        self.zeros(4 + 16);
        self.u32(MASK);
        self.u32(stat.blksize);
        self.u64(0);
        self.u32(stat.nlink);
        self.u32(stat.uid);
        self.u32(stat.gid);
        self.u16(stat.mode as u16);
        self.u16(0);
        self.u64(ino);
        self.u64(stat.size);
        self.u64(shown_blocks(stat));
        self.u64(0);
        for time in [stat.atime, stat.btime, stat.ctime, stat.mtime] {
            self.sx_time(time);
        }
        self.u32(rustix::fs::major(stat.rdev));
        self.u32(rustix::fs::minor(stat.rdev));
        self.zeros(8 + 112);
    }

    fn sx_time(&mut self, time: Timestamp) {
        self.u64(time.secs().cast_unsigned());
        self.u32(time.nanos());
        self.u32(0);
    }

    pub(crate) fn open(&mut self, fh: u64, flags: OpenReply) {
        self.u64(fh);
        self.u32(flags.bits());
        self.u32(0);
    }

    /// Appends a number of bytes, in the form of `WRITE`, `COPY_FILE_RANGE` and the attribute
    /// sizes.
    pub(crate) fn count(&mut self, n: u32) {
        self.u32(n);
        self.u32(0);
    }

    /// Returns the number of bytes in the reply to a copy: of 64 bits if it is `wide`, else that of
    /// [`count`](Self::count).
    #[expect(clippy::host_endian_bytes, reason = "the device speaks the machine's byte order")]
    pub(crate) fn counted(&self, wide: bool) -> u64 {
        let number = match wide {
            true => self.payload().first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)),
            false => self.payload().first_chunk().map(|bytes| u32::from_ne_bytes(*bytes).into()),
        };
        number.unwrap_or_default()
    }

    pub(crate) fn statfs(&mut self, s: &StatFs) {
        for n in [s.blocks, s.blocks_free, s.blocks_available, s.files, s.files_free] {
            self.u64(n);
        }
        self.u32(s.block_size);
        self.u32(s.name_max);
        self.u32(s.block_size);
        self.zeros(4 + 24);
    }

    /// Appends a conflicting lock, or `F_UNLCK`.
    pub(crate) fn lock(&mut self, start: u64, end: u64, kind: u32, pid: u32) {
        self.u64(start);
        self.u64(end);
        self.u32(kind);
        self.u32(pid);
    }

    /// Appends a name to a directory listing of at most `size` bytes; returns whether it fits.
    pub(crate) fn dirent(&mut self, size: usize, d: &Dirent<'_>) -> bool {
        let needed = (24 + d.name.len()).next_multiple_of(8);
        if self.payload_len() + needed > size {
            return false;
        }
        self.put_dirent(d);
        true
    }

    /// Appends a name with room for its attributes to a directory listing of at most `size` bytes.
    /// Returns the offset of the entry, or `None` if it does not fit. The caller then looks the
    /// name up and calls [`fill_entry`](Self::fill_entry), so no name is looked up that does not
    /// fit.
    pub(crate) fn direntplus(&mut self, size: usize, d: &Dirent<'_>) -> Option<usize> {
        let needed = (152 + d.name.len()).next_multiple_of(8);
        if self.payload_len() + needed > size {
            return None;
        }
        let at = self.payload_len();
        self.zeros(128);
        self.put_dirent(d);
        Some(at)
    }

    /// Fills in an entry that [`direntplus`](Self::direntplus) left empty.
    pub(crate) fn fill_entry(&mut self, at: usize, entry: &Entry<'_>) {
        let end = self.len;
        self.len = OUT_HEADER + at;
        self.entry(entry);
        self.len = end;
    }

    fn put_dirent(&mut self, d: &Dirent<'_>) {
        self.u64(d.ino);
        self.u64(d.next);
        self.u32(d.name.len() as u32);
        self.u32(d.kind.as_raw_mode() >> 12);
        self.put(d.name.as_bytes());
        self.zeros(self.payload_len().next_multiple_of(8) - self.payload_len());
    }
}

/// Returns the number of blocks to show: one at least, of a file with a size. The kernel may hold
/// data back for holes, and programs read nothing of a file without blocks.
fn shown_blocks(stat: &Stat) -> u64 {
    let may_have_data =
        stat.size > 0 && FileType::from_raw_mode(stat.mode) == FileType::RegularFile;
    stat.blocks.max(u64::from(may_have_data))
}

/// A directory entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dirent<'a> {
    pub(crate) ino: u64,
    /// The position after this entry.
    pub(crate) next: u64,
    pub(crate) kind: FileType,
    pub(crate) name: &'a OsStr,
}
