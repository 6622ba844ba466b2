//! Requests that librbd works on.
//!
//! # Why their memory is valid until they have ended
//!
//! [`Requests`] owns all requests that it has submitted, and waits for each, at the latest when it
//! is dropped, so also after a panic. Requests with memory of the caller's live on the stacks of
//! functions of [`RbdDevice`](super::RbdDevice) and never leave them, so they can't be leaked by
//! `forget`. Those that are passed on (a write that has begun) share their pages; where they are
//! leaked, the pages are leaked with them. Each batch holds its image open.
//!
//! Nothing of Rust runs in librbd's threads: requests have no callback, and whoever wants a result
//! waits for it.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use vfscale_sync::page::{PAGE_SIZE, PageBox};

use super::image::{Code, Image};
use super::library::Handle;
use crate::Operation;
use crate::device::CallRange;

/// Largest number of requests of a batch that are in flight at a time.
pub(super) const DEPTH: usize = 64;
/// Largest number of pages of a request: as large as an object of the usual layout. Each object
/// that a request touches is one transaction on each of its OSDs, so fewer and larger ones are
/// faster.
const REQUEST_PAGES: usize = (4 << 20) / PAGE_SIZE;
/// Largest size of a request, in bytes: librbd counts with 32 bits.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// A request that has failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) call: CallRange,
    pub(super) code: Code,
}

/// A request in flight.
struct Request {
    completion: Handle,
    call: CallRange,
    /// The addresses of its memory, which librbd may read until it has ended.
    _memory: Box<[libc::iovec]>,
    /// Its pages, if it shares them.
    _pages: Option<Arc<Vec<PageBox>>>,
}

/// Requests in flight, whose memory is borrowed for `'m`.
pub(super) struct Requests<'m> {
    image: Arc<Image>,
    in_flight: VecDeque<Request>,
    /// The first failure.
    failed: Option<Failure>,
    memory: PhantomData<&'m mut [u8]>,
}

// SAFETY: completions may be waited for and released by any thread, and the memory of requests is
// either borrowed for `'m`, as by `&mut [u8]`, or owned by pages that may be shared.
unsafe impl Send for Requests<'_> {}

impl<'m> Requests<'m> {
    pub(super) fn new(image: Arc<Image>) -> Self {
        Self { image, in_flight: VecDeque::new(), failed: None, memory: PhantomData }
    }

    /// Submits reads of a range.
    pub(super) fn read(&mut self, offset: u64, buf: &'m mut [u8]) {
        let starts = (offset..).step_by(REQUEST_BYTES_MAX);
        for (at, part) in starts.zip(buf.chunks_mut(REQUEST_BYTES_MAX)) {
            let call = CallRange::new(Operation::Read, at, part.len());
            let memory = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
            self.transfer(call, Box::new([memory]), None);
        }
    }

    /// Submits writes of a range.
    pub(super) fn write(&mut self, offset: u64, bytes: &'m [u8]) {
        let starts = (offset..).step_by(REQUEST_BYTES_MAX);
        for (at, part) in starts.zip(bytes.chunks(REQUEST_BYTES_MAX)) {
            let call = CallRange::new(Operation::Write, at, part.len());
            // A write only reads its memory.
            let base = part.as_ptr().cast_mut().cast();
            let memory = libc::iovec { iov_base: base, iov_len: part.len() };
            self.transfer(call, Box::new([memory]), None);
        }
    }

    /// Submits reads or writes of pages.
    pub(super) fn pages(&mut self, operation: Operation, offset: u64, pages: &'m [PageBox]) {
        for (at, part) in requests(offset, pages) {
            let call = CallRange::new(operation, at, part.len() * PAGE_SIZE);
            self.transfer(call, addresses(part), None);
        }
    }

    /// Submits writes of pages, which the requests share.
    pub(super) fn write_shared(&mut self, offset: u64, pages: &Arc<Vec<PageBox>>) {
        for (at, part) in requests(offset, pages) {
            let call = CallRange::new(Operation::Write, at, part.len() * PAGE_SIZE);
            self.transfer(call, addresses(part), Some(Arc::clone(pages)));
        }
    }

    /// Submits a flush.
    pub(super) fn flush(&mut self) {
        let call = CallRange::new(Operation::Flush, 0, 0);
        let (image, flush) = (self.image.handle(), self.image.library().rbd_aio_flush);
        // SAFETY: the image is open, and the completion is a new one.
        self.submit(call, Box::new([]), None, |completion, _| unsafe { flush(image, completion) });
    }

    /// Submits a discard.
    pub(super) fn discard(&mut self, offset: u64, length: u64) {
        let call = CallRange { operation: Operation::Discard, offset, length };
        let (image, discard) = (self.image.handle(), self.image.library().rbd_aio_discard);
        // SAFETY: the image is open, and the completion is a new one.
        self.submit(call, Box::new([]), None, |completion, _| unsafe {
            discard(image, offset, length, completion)
        });
    }

    fn transfer(
        &mut self,
        call: CallRange,
        memory: Box<[libc::iovec]>,
        pages: Option<Arc<Vec<PageBox>>>,
    ) {
        let (image, library) = (self.image.handle(), self.image.library());
        let transfer = match call.operation {
            Operation::Read => library.rbd_aio_readv,
            _ => library.rbd_aio_writev,
        };
        // SAFETY: the image is open, and the completion is a new one. The list and the memory that
        // it names are valid until the request has ended, see the page of this module: the request
        // owns the list, and the memory is borrowed for `'m` or shared. A list has at most as many
        // entries as a request has pages.
        self.submit(call, memory, pages, |completion, memory| unsafe {
            transfer(image, memory.as_ptr(), memory.len() as i32, call.offset, completion)
        });
    }

    /// Submits a request; first waits for the oldest one if there are too many.
    fn submit(
        &mut self,
        call: CallRange,
        memory: Box<[libc::iovec]>,
        pages: Option<Arc<Vec<PageBox>>>,
        begin: impl FnOnce(Handle, &[libc::iovec]) -> i32,
    ) {
        if self.in_flight.len() >= DEPTH {
            self.end_oldest();
        }
        let (library, mut completion) = (self.image.library(), ptr::null_mut());
        // SAFETY: the handle is stored in `completion`; there is no callback and no argument.
        let made = unsafe {
            (library.rbd_aio_create_completion)(ptr::null_mut(), ptr::null(), &raw mut completion)
        };
        if made < 0 {
            return self.fail(call, -made);
        }
        let begun = begin(completion, &memory);
        if begun < 0 {
            // SAFETY: the request has not begun, so nothing else uses the completion.
            unsafe { (library.rbd_aio_release)(completion) };
            return self.fail(call, -begun);
        }
        self.in_flight.push_back(Request { completion, call, _memory: memory, _pages: pages });
    }

    fn fail(&mut self, call: CallRange, code: i32) {
        self.failed.get_or_insert(Failure { call, code: Code::new(code) });
    }

    /// Waits for the request that was submitted first; returns whether there was one.
    fn end_oldest(&mut self) -> bool {
        let Some(request) = self.in_flight.pop_front() else { return false };
        let library = self.image.library();
        // SAFETY: the completion belongs to this request, which keeps its memory until the wait has
        // returned. It is released once, and not used after that.
        let result = unsafe {
            (library.rbd_aio_wait_for_complete)(request.completion);
            let result = (library.rbd_aio_get_return_value)(request.completion);
            (library.rbd_aio_release)(request.completion);
            result
        };
        let is_short = request.call.operation == Operation::Read
            && u64::try_from(result).is_ok_and(|count| count < request.call.length);
        if result < 0 {
            let code = i32::try_from(result.unsigned_abs()).unwrap_or(libc::EIO);
            self.fail(request.call, code);
        } else if is_short {
            // The image has become smaller.
            self.fail(request.call, libc::EIO);
        }
        true
    }

    /// Waits for all requests. Returns the first failure.
    pub(super) fn wait(mut self) -> Result<(), Failure> {
        while self.end_oldest() {}
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for Requests<'_> {
    fn drop(&mut self) {
        while self.end_oldest() {}
    }
}

/// Returns the requests for pages from `offset` on, each with its offset.
fn requests(offset: u64, pages: &[PageBox]) -> impl Iterator<Item = (u64, &[PageBox])> {
    let starts = (offset..).step_by(REQUEST_PAGES * PAGE_SIZE);
    starts.zip(pages.chunks(REQUEST_PAGES))
}

/// Returns the memory of pages. Contiguous memory gets one entry.
fn addresses(pages: &[PageBox]) -> Box<[libc::iovec]> {
    let mut list: Vec<libc::iovec> = Vec::with_capacity(pages.len());
    for page in pages {
        let base = page.as_ptr();
        match list.last_mut() {
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == base => {
                last.iov_len += PAGE_SIZE;
            }
            _ => list.push(libc::iovec { iov_base: base.cast(), iov_len: PAGE_SIZE }),
        }
    }
    list.into()
}
