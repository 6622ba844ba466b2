//! Images of Ceph RBD.
//!
//! The libraries of Ceph, librbd and librados, are loaded when the first image is opened; the
//! program itself does not need them.
//!
//! # I/O
//!
//! Requests are asynchronous, up to 64 of a batch in flight (`rbd/requests.rs`). They read and
//! write the caller's memory; librbd's own cache is switched off, because a volume has one. So a
//! write that has returned is on the disks of as many OSDs as the pool demands, and a flush has
//! nothing left to write. While the cluster can't serve a part of the image (too many OSDs are
//! gone), requests for it wait; they fail only when this client is refused.
//!
//! Ceph applies a write to an object as a whole or not at all, on all its copies. A block of 512
//! bytes never lies in two objects, so a write of one is atomic. (With the usual layout the same
//! goes for 4096 bytes.)
//!
//! # Exclusive access
//!
//! A writer takes the exclusive lock of the image, and keeps it: librbd's own hand-over to whoever
//! asks is off. The lock belongs to a client, that is to one opening of one process. A client that
//! lives watches the image; Ceph ends the watch of one that was silent for a while (30 seconds by
//! default).
//!
//! An opener of an image whose lock is taken gets an error as long as the holder is watching it. If
//! it is not, or with [`take_over`](crate::DeviceOptions::take_over), the lock is *broken*: first
//! all monitors and OSDs learn that they have to refuse the old client (it is on the *blocklist*),
//! then the new one takes the lock. A write of the old client that comes after that fails, however
//! late it was sent: each OSD that has served the new client refuses the old one.
//!
//! A flush proves, by asking the cluster, that this client still has the lock; a write that a flush
//! is expected to follow asks for it, while it is under way (`rbd/proof.rs`). So a flush that has
//! succeeded covers only what the next holder sees. Once a call has found that the lock is lost,
//! all later writes and flushes fail with [`Error::Fenced`].
//!
//! Readers take no lock. An image that is being written can't be read consistently, so opening it
//! is refused; a snapshot can be read at any time.
//!
//! # Locks
//!
//! `RbdImage` for a moment, to take a reference to the open image; `RbdSize` while an image grows,
//! which only another growth waits for.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vfscale_sync::Mutex;
use vfscale_sync::page::{PAGE_SIZE, PageBox};

use crate::device::CallRange;
use crate::{Device, Discards, Error, Guarded, Operation, OsError, PendingWrite};
use image::{Code, Image};
use proof::Proof;
use requests::{Failure, Requests};

mod errors;
mod image;
mod library;
mod name;
mod open;
mod owner;
mod proof;
mod requests;

pub use name::Name;
pub(crate) use open::{check_free, exists, remove};
pub use owner::{Owner, Watch};

vfscale_sync::lock_class! {
    /// The reference to an open image; a leaf.
    pub(crate) RbdImage = ("rbd_image", 64861);
    /// Held while an image grows, so that a concurrent call can't shrink it.
    pub(crate) RbdSize = ("rbd_size", 64851);
}

/// Size of a block, in bytes.
const BLOCK_BYTES: u32 = 512;
/// `rbd_discard_granularity_bytes`: smaller discards do nothing.
const DISCARD_BYTES: u32 = 64 << 10;
/// `ESHUTDOWN`: the cluster refuses this client.
const BLOCKLISTED: i32 = libc::ESHUTDOWN;

/// An image of Ceph RBD. See the [module](self).
///
/// Dropping it releases it for other processes; it does not flush.
pub struct RbdDevice {
    name: Arc<str>,
    /// The open image; `None` once it is released.
    image: Mutex<Option<Arc<Image>>, RbdImage>,
    read_only: bool,
    size: AtomicU64,
    growing: Mutex<(), RbdSize>,
    released: AtomicBool,
    /// This client's address, as other clients see it.
    client: Option<Arc<str>>,
    /// The error by which this client has found that it no longer has the lock.
    lost: OnceLock<OsError>,
    proof: Proof,
}

impl RbdDevice {
    /// Returns the address of this client, as `rbd lock ls` shows it, if it has the image's lock.
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Returns whether another client has taken the image over, as far as a call of this one has
    /// found.
    pub fn is_fenced(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Returns the open image, for one call.
    fn image(&self, call: CallRange) -> Result<Arc<Image>, Error> {
        self.image.lock().clone().ok_or_else(|| self.io(call, OsError::new(libc::EBADF)))
    }

    fn io(&self, call: CallRange, source: OsError) -> Error {
        let CallRange { operation, offset, length } = call;
        Error::Io { device: self.name.clone(), operation, offset, length, source }
    }

    fn whole(operation: Operation) -> CallRange {
        CallRange { operation, offset: 0, length: 0 }
    }

    fn fenced(&self, operation: Operation) -> Error {
        Error::Fenced { device: self.name.clone(), operation }
    }

    /// Returns the error of a request, and notes if it shows that the lock is lost: the cluster
    /// refuses this client, or librbd refuses to change an image that it has not locked.
    fn failed(&self, call: CallRange, code: Code) -> Error {
        let is_refused = matches!(code.code(), BLOCKLISTED | libc::EROFS) && !self.read_only;
        if is_refused {
            self.lost.get_or_init(|| code);
            return self.fenced(call.operation);
        }
        self.io(call, code)
    }

    fn ended(&self, result: Result<(), Failure>) -> Result<(), Error> {
        result.map_err(|Failure { call, code }| self.failed(call, code))
    }

    fn is_read_only(&self) -> bool {
        self.read_only || self.released.load(Ordering::Relaxed)
    }

    fn check_writable(&self, operation: Operation) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly { device: self.name.clone(), operation });
        }
        if self.is_fenced() { Err(self.fenced(operation)) } else { Ok(()) }
    }

    fn check_read(&self, offset: u64, length: usize) -> Result<CallRange, Error> {
        CallRange::new(Operation::Read, offset, length).inside(self)
    }

    fn check_write(&self, offset: u64, length: usize) -> Result<CallRange, Error> {
        self.check_writable(Operation::Write)?;
        CallRange::new(Operation::Write, offset, length).inside(self)?.in_blocks(self)
    }

    /// Begins writes by `send`. Asks for the lock while they are under way, if a flush is likely to
    /// follow.
    fn begin_writes<'m>(
        &self,
        call: CallRange,
        send: impl FnOnce(&mut Requests<'m>),
    ) -> Result<Requests<'m>, Error> {
        let image = self.image(call)?;
        let mut requests = Requests::new(image.clone());
        send(&mut requests);
        if let Some(number) = self.proof.write_begun() {
            // The flush reports an error: it finds the lock lost, or asks again.
            if self.check_lock(&image, Operation::Flush).is_ok() {
                self.proof.asked(number);
            }
        }
        Ok(requests)
    }

    /// Asks the cluster whether this client still has the lock.
    ///
    /// A connection that was lost for longer than a watch lives ends the watch, and librbd makes a
    /// new one. Until it has put that into the lock, it says that the lock is not its own. The
    /// cluster still says whose it is: who takes an image over removes that entry, and this client
    /// can't make another one, since it is refused from then on.
    fn check_lock(&self, image: &Image, operation: Operation) -> Result<(), Error> {
        let call = Self::whole(operation);
        let has_lock = image.has_lock().and_then(|has_lock| match has_lock {
            true => Ok(true),
            false => Ok(image.lock_owner()?.is_some_and(|owner| self.client() == Some(&owner))),
        });
        match has_lock {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failed(call, OsError::new(BLOCKLISTED))),
            Err(code) => Err(self.failed(call, code)),
        }
    }
}

impl Device for RbdDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let access = if self.is_read_only() { ", read-only" } else { "" };
        let (name, size) = (&self.name, self.size());
        let client = self.client().map_or_else(String::new, |it| format!(", locked by {it}"));
        format!(
            "{name}: image of Ceph RBD{access}, {size} bytes in blocks of {BLOCK_BYTES}, \
             asynchronous I/O by librbd{client}"
        )
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn block_size(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let call = self.check_read(offset, buf.len())?;
        let mut requests = Requests::new(self.image(call)?);
        requests.read(offset, buf);
        self.ended(requests.wait())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        let call = self.check_write(offset, buf.len())?;
        let requests = self.begin_writes(call, |it| it.write(offset, buf))?;
        self.ended(requests.wait())
    }

    fn flush(&self) -> Result<(), Error> {
        if self.read_only {
            return Ok(());
        }
        self.check_writable(Operation::Flush)?;
        let image = self.image(Self::whole(Operation::Flush))?;
        let mut requests = Requests::new(image.clone());
        let must_ask = self.proof.flush_begun();
        requests.flush();
        let proved = if must_ask { self.check_lock(&image, Operation::Flush) } else { Ok(()) };
        self.ended(requests.wait()).and(proved)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.check_writable(Operation::Discard)?;
        let call = CallRange { operation: Operation::Discard, offset, length: len }.inside(self)?;
        let (start, end) = call.whole_blocks(BLOCK_BYTES);
        if start == end {
            return Ok(());
        }
        let mut requests = Requests::new(self.image(call)?);
        requests.discard(start, end - start);
        self.ended(requests.wait())
    }

    fn discards(&self) -> Option<Discards> {
        let discards = Discards { granularity: DISCARD_BYTES, is_thin: true };
        (!self.is_read_only()).then_some(discards)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), Error> {
        reads.iter().try_for_each(|(at, buf)| self.check_read(*at, buf.len()).map(drop))?;
        let mut requests = Requests::new(self.image(Self::whole(Operation::Read))?);
        reads.iter_mut().for_each(|(at, buf)| requests.read(*at, buf));
        self.ended(requests.wait())
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), Error> {
        writes.iter().try_for_each(|(at, buf)| self.check_write(*at, buf.len()).map(drop))?;
        let requests = self.begin_writes(Self::whole(Operation::Write), |requests| {
            writes.iter().for_each(|(at, buf)| requests.write(*at, buf));
        })?;
        self.ended(requests.wait())
    }

    fn read_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        let call = self.check_read(offset, pages.len() * PAGE_SIZE)?.in_blocks(self)?;
        let mut requests = Requests::new(self.image(call)?);
        requests.pages(Operation::Read, offset, pages);
        self.ended(requests.wait())
    }

    fn write_pages(&self, offset: u64, pages: &[PageBox]) -> Result<(), Error> {
        let call = self.check_write(offset, pages.len() * PAGE_SIZE)?;
        let requests = self.begin_writes(call, |it| it.pages(Operation::Write, offset, pages))?;
        self.ended(requests.wait())
    }

    fn begin_write_pages<'d>(&'d self, offset: u64, pages: &Arc<Vec<PageBox>>) -> PendingWrite<'d> {
        let checked = self.check_write(offset, pages.len() * PAGE_SIZE);
        let begun =
            checked.and_then(|call| self.begin_writes(call, |it| it.write_shared(offset, pages)));
        match begun {
            Ok(requests) => PendingWrite::in_flight(move || self.ended(requests.wait())),
            Err(error) => PendingWrite::ended(Err(error)),
        }
    }

    fn set_size(&self, size: u64) -> Result<(), Error> {
        let operation = Operation::Resize;
        self.check_writable(operation)?;
        let call = CallRange { operation, offset: 0, length: size }.in_blocks(self)?;
        let image = self.image(call)?;
        let _growing = self.growing.lock();
        if size < self.size() {
            let (device, why) = (self.name.clone(), "a device does not shrink");
            return Err(Error::Unsupported { device, operation, why });
        }
        image.set_size(size).map_err(|code| self.failed(call, code))?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }
}

impl Guarded for RbdDevice {
    fn prove(&self) -> Result<(), Error> {
        if self.is_read_only() {
            return Ok(());
        }
        self.check_writable(Operation::Flush)?;
        let image = self.image(Self::whole(Operation::Flush))?;
        self.check_lock(&image, Operation::Flush)
    }

    fn release(&self) {
        self.released.store(true, Ordering::Release);
        let image = self.image.lock().take();
        if let Some(image) = image.filter(|_| !self.read_only && !self.is_fenced()) {
            owner::leave(&image);
        }
    }

    /// Does nothing: other clients learn from the image who has locked it.
    fn publish_mount(&self, _: (u32, u32)) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for RbdDevice {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for RbdDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbdDevice")
            .field("name", &self.name)
            .field("read_only", &self.is_read_only())
            .field("size", &self.size())
            .field("client", &self.client)
            .field("lost", &self.lost.get())
            .finish_non_exhaustive()
    }
}
