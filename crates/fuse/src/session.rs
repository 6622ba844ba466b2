//! Connections: the first exchange with the kernel, and the workers that read requests, serve them
//! and send the replies.
//!
//! Each worker has a thread, a device descriptor and a buffer of its own; workers share only the
//! [`Service`]. A worker serves one request at a time and never waits for another request. If a
//! request has to wait (for a file lock), another thread answers it through [`DeferredReply`] when
//! the wait ends, so waiting requests can't use up the workers. On a mount over io_uring (`uring`)
//! there is one worker, for the few messages that the kernel sends through the device anyway.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vfscale::Errno;
use vfscale::posix::Stat;
use vfscale_sync::thread::spawn;

use crate::base::device::Device;
use crate::base::error::MountError;
use crate::base::polling::{Clients, Poller};
use crate::base::uring_switches::UringObstacle;
use crate::statistics::{Counters, WorkerCounters};
use crate::wire::reply::{Reply, Settings};
use crate::wire::request::{Dialect, Header, Offer, Operation, Request};
use crate::wire::{self, InitFlags};

/// Room in a worker's buffer in addition to the data of the largest `WRITE`, in bytes.
const BUFFER_MARGIN: usize = 4096;

/// Maximum data of one `READ` or `WRITE`, in bytes. The kernel's own limit without a changed
/// sysctl.
pub(crate) const TRANSFER_MAX: usize = 1 << 20;

/// Outcome of an operation that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// The reply is built.
    Reply,
    /// This kind of request has no reply.
    Silent,
    /// The reply is sent through a [`DeferredReply`].
    Deferred,
}

/// The file system's side of a connection: the boundary between transport and file system.
///
/// Any number of workers call it concurrently.
pub(crate) trait Service: Send + Sync + 'static {
    /// State of one worker across requests.
    type Worker: Default + Send;

    /// Chooses among the flags that the kernel offers.
    fn settings(&self, offer: &Offer) -> InitFlags;

    /// Returns the flags that the kernel has to offer.
    fn needed(&self) -> InitFlags {
        InitFlags::empty()
    }

    /// Serves one request. An error becomes the reply's error number.
    fn serve(
        &self,
        worker: &mut Self::Worker,
        request: &Request<'_>,
        reply: &mut Reply,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno>;

    /// Returns whether serving the request may take long: the transfer of much data, or I/O. A
    /// transport with a queue for each CPU then serves it on another thread. Never true of a
    /// request that may be answered later.
    fn is_long(&self, operation: &Operation<'_>) -> bool;

    /// Undoes the effects of a reply that did not reach the kernel: the kernel received none of the
    /// nodes and handles in the last reply of `worker`.
    fn undelivered(&self, worker: &mut Self::Worker);

    /// Handles the end of the connection: gives up requests that wait.
    fn ended(&self);
}

/// The contents of a late reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    Nothing,
    Number(u64),
    /// Attributes, the inode number to show, and how long they are valid.
    Attr(Stat, u64, Duration),
}

impl Late {
    /// Appends the contents to a reply.
    pub(crate) fn put(self, reply: &mut Reply) {
        match self {
            Late::Nothing => {}
            Late::Number(number) => reply.u64(number),
            Late::Attr(stat, ino, valid) => reply.attr(ino, &stat, valid),
        }
    }
}

/// A transport that takes late replies.
pub(crate) trait LateReplies: std::fmt::Debug + Send + Sync {
    /// Sends the reply to the request with this number.
    fn answer(&self, unique: u64, outcome: Result<Late, Errno>);
}

impl LateReplies for Device {
    fn answer(&self, unique: u64, outcome: Result<Late, Errno>) {
        let mut reply = Reply::new();
        let outcome = outcome.map(|late| late.put(&mut reply));
        if let Err(e) = self.send(reply.finish_with(unique, outcome)) {
            tracing::debug!(unique, "late reply not delivered: {e}");
        }
    }
}

/// A request to be answered later, from any thread. Must be answered exactly once.
#[derive(Debug)]
pub(crate) struct DeferredReply {
    to: Arc<dyn LateReplies>,
    unique: u64,
}

impl DeferredReply {
    /// Creates the reply to the request with this number.
    pub(crate) fn new(to: Arc<dyn LateReplies>, unique: u64) -> DeferredReply {
        DeferredReply { to, unique }
    }

    /// Returns the request's number.
    pub(crate) fn unique(&self) -> u64 {
        self.unique
    }

    /// Sends the reply.
    pub(crate) fn answer(self, outcome: Result<Late, Errno>) {
        self.to.answer(self.unique, outcome);
    }
}

/// Answers the kernel's first message. Takes the flags in `needed` in addition to those that
/// `service` chooses.
///
/// # Errors
/// [`MountError::Protocol`]; [`MountError::Uring`] or [`MountError::IdMap`] if the kernel does not
/// offer a needed flag.
pub(crate) fn handshake<S: Service>(
    device: &Device,
    service: &S,
    needed: InitFlags,
) -> Result<Dialect, MountError> {
    let failed = |e: std::io::Error| MountError::Protocol(format!("no answer: {e}"));
    let needed = needed | service.needed();
    let mut buf = vec![0; 8192];
    let mut reply = Reply::new();
    loop {
        let n = device.receive(&mut buf).map_err(failed)?;
        if n == 0 {
            return Err(MountError::Protocol("unmounted before the first request".into()));
        }
        let request = Request::parse(&buf[..n], Dialect::default())
            .map_err(|_| MountError::Protocol("the first request is malformed".into()))?;
        let unique = request.header.unique;
        reply.clear();
        let Operation::Init(offer) = request.operation else {
            let _ = device.send(reply.finish_with(unique, Err(Errno::IO)));
            return Err(MountError::Protocol("the first request is not INIT".into()));
        };
        if offer.major > wire::MAJOR {
            reply.version();
            device.send(reply.finish_with(unique, Ok(()))).map_err(failed)?;
            continue;
        }
        if offer.major < wire::MAJOR || offer.minor < wire::MINOR_OLDEST {
            let _ = device.send(reply.finish_with(unique, Err(Errno::PROTO)));
            return Err(MountError::Protocol(format!(
                "the kernel speaks version {}.{}, at least {}.{} is needed (Linux 5.4)",
                offer.major,
                offer.minor,
                wire::MAJOR,
                wire::MINOR_OLDEST
            )));
        }
        if !offer.flags.contains(needed) {
            let _ = device.send(reply.finish_with(unique, Err(Errno::PROTO)));
            return Err(match (needed - offer.flags).contains(InitFlags::OVER_IO_URING) {
                true => MountError::Uring(UringObstacle::not_offered()),
                false => MountError::IdMap("this kernel is older than Linux 6.12"),
            });
        }
        let settings = settings(service, &offer, needed);
        reply.init(&settings);
        device.send(reply.finish_with(unique, Ok(()))).map_err(failed)?;
        tracing::debug!(offer = ?offer.flags, taken = ?settings.flags, minor = offer.minor, "connected");
        return Ok(Dialect { setxattr_ext: settings.flags.contains(InitFlags::SETXATTR_EXT) });
    }
}

fn settings<S: Service>(service: &S, offer: &Offer, needed: InitFlags) -> Settings {
    let mut flags = service.settings(offer)
        | needed
        | InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::MAX_PAGES
        | InitFlags::INIT_EXT;
    flags &= offer.flags;
    Settings {
        minor: offer.minor,
        readahead_max: offer.readahead_max.max(TRANSFER_MAX as u32),
        flags,
        background_max: 64,
        write_max: TRANSFER_MAX as u32,
        pages_max: (TRANSFER_MAX / rustix::param::page_size()) as u16,
    }
}

/// The service of a connection, shared by all its threads. The last thread that ends calls
/// [`Service::ended`].
pub(crate) struct Shared<S: Service>(Arc<S>);

impl<S: Service> Shared<S> {
    pub(crate) fn new(service: &Arc<S>) -> Arc<Shared<S>> {
        Arc::new(Shared(Arc::clone(service)))
    }

    pub(crate) fn service(&self) -> &S {
        &self.0
    }
}

impl<S: Service> Drop for Shared<S> {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// The running workers of a connection.
#[derive(Debug)]
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Takes over threads that serve a connection.
    pub(crate) fn of(threads: Vec<JoinHandle<()>>) -> Workers {
        Workers { threads }
    }

    /// Starts a worker for each of the counters.
    pub(crate) fn start<S: Service>(
        device: &Arc<Device>,
        service: &Arc<S>,
        dialect: Dialect,
        counters: &Arc<Counters>,
    ) -> Result<Workers, MountError> {
        let count = counters.workers();
        let shared = Shared::new(service);
        let clients = Clients::new(counters.polling());
        let mut threads = Vec::with_capacity(count);
        for i in 0..count {
            let device = match i {
                0 => Arc::clone(device),
                // A user who mounts through the helper may lack the permission to open the device.
                _ => device.clone_connection().map_or_else(|_| Arc::clone(device), Arc::new),
            };
            let (shared, counters) = (Arc::clone(&shared), Arc::clone(counters));
            let poller = Poller::new(Arc::clone(&clients));
            let run =
                move || work(&device, shared.service(), dialect, poller, counters.of_worker(i));
            let thread = spawn(format!("vfscale-fuse-{i}"), run);
            threads.push(thread.map_err(MountError::Threads)?);
        }
        Ok(Workers { threads })
    }

    /// Returns the number of workers that were started.
    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Returns whether all workers have exited.
    pub(crate) fn are_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the connection has ended.
    pub(crate) fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // Panics are caught within each request, so a worker never ends with one.
            let _ = thread.join();
        }
    }
}

/// Serves requests until the connection ends.
pub(crate) fn work<S: Service>(
    device: &Arc<Device>,
    service: &S,
    dialect: Dialect,
    mut poller: Poller,
    counters: &WorkerCounters,
) {
    let mut buf = vec![0; TRANSFER_MAX + BUFFER_MARGIN];
    let mut reply = Reply::new();
    let mut worker = S::Worker::default();
    let later = |unique| DeferredReply::new(Arc::clone(device) as _, unique);
    loop {
        if let Some(found) = poller.poll(|| device.is_ready()) {
            counters.add_poll(found);
        }
        let n = match device.receive(&mut buf) {
            Ok(0) => return,
            Ok(n) => n,
            Err(e) => {
                tracing::error!("a FUSE worker stops, for its device failed: {e}");
                return;
            }
        };
        reply.clear();
        let parsed = Request::parse(&buf[..n], dialect);
        let Some((header, outcome)) =
            serve_one(service, &mut worker, parsed, &mut reply, &later, counters)
        else {
            tracing::error!("a message of {n} bytes is not a request");
            continue;
        };
        poller.note(header.pid);
        let unique = header.unique;
        let outcome = match outcome {
            Ok(Served::Silent | Served::Deferred) => continue,
            Ok(Served::Reply) => Ok(()),
            Err(errno) => Err(errno),
        };
        if let Err(e) = device.send(reply.finish_with(unique, outcome)) {
            tracing::debug!(unique, "reply not delivered: {e}");
            service.undelivered(&mut worker);
        }
    }
}

/// Serves one message, builds its reply in `reply`, which is clear, and counts it. `later` makes
/// the late reply to the request with a number. Returns the header and the outcome; `None` if the
/// message has no header.
pub(crate) fn serve_one<S: Service>(
    service: &S,
    worker: &mut S::Worker,
    parsed: Result<Request<'_>, Option<Header>>,
    reply: &mut Reply,
    later: &dyn Fn(u64) -> DeferredReply,
    counters: &WorkerCounters,
) -> Option<(Header, Result<Served, Errno>)> {
    let arrival = Instant::now();
    let (header, outcome) = match parsed {
        Ok(request) if matches!(request.operation, Operation::Destroy) => {
            (request.header, Ok(Served::Reply))
        }
        Ok(request) => {
            let header = request.header;
            tracing::trace!(?header, "request");
            let later = || later(header.unique);
            let serve = || service.serve(worker, &request, reply, &later);
            let outcome = catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|_| {
                tracing::error!(?header, "serving a request panicked");
                Err(Errno::IO)
            });
            (header, outcome)
        }
        Err(Some(header)) => {
            tracing::warn!(?header, "malformed request");
            (header, Err(Errno::INVAL))
        }
        Err(None) => return None,
    };
    counters.add(header.opcode, arrival.elapsed());
    tracing::trace!(header.unique, ?outcome, "served");
    Some((header, outcome))
}
