//! Connections: the first exchange with the kernel, and the workers that read requests, serve them
//! and send the replies.
//!
//! Each worker has a thread, a device descriptor and a buffer of its own; workers share only the
//! [`Service`]. A worker serves one request at a time and never waits for another request. If a
//! request has to wait (for a file lock), another thread answers it through [`DeferredReply`] when
//! the wait ends, so waiting requests can't use up the workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use vfscale::Errno;

use crate::device::Device;
use crate::error::MountError;
use crate::polling::{Clients, Poller};
use crate::statistics::{Counters, WorkerCounters};
use crate::wire::reply::{Reply, Settings};
use crate::wire::request::{Dialect, Offer, Operation, Request};
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

    /// Serves one request. An error becomes the reply's error number.
    fn serve(
        &self,
        worker: &mut Self::Worker,
        request: &Request<'_>,
        reply: &mut Reply,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno>;

    /// Undoes the effects of a reply that did not reach the kernel: the kernel received none of the
    /// nodes and handles in the last reply of `worker`.
    fn undelivered(&self, worker: &mut Self::Worker);

    /// Handles the end of the connection: gives up requests that wait.
    fn ended(&self);
}

/// A request to be answered later, from any thread. Must be answered exactly once.
#[derive(Debug)]
pub(crate) struct DeferredReply {
    device: Arc<Device>,
    unique: u64,
}

impl DeferredReply {
    /// Returns the request's number.
    pub(crate) fn unique(&self) -> u64 {
        self.unique
    }

    /// Sends the reply.
    pub(crate) fn answer(self, outcome: Result<(), Errno>) {
        let mut reply = Reply::new();
        let message = reply.finish_with(self.unique, outcome);
        if let Err(e) = self.device.send(message) {
            tracing::debug!(unique = self.unique, "late reply not delivered: {e}");
        }
    }
}

/// Answers the kernel's first message.
pub(crate) fn handshake<S: Service>(device: &Device, service: &S) -> Result<Dialect, MountError> {
    let failed = |e: std::io::Error| MountError::Protocol(format!("no answer: {e}"));
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
        let settings = settings(service, &offer);
        reply.init(&settings);
        device.send(reply.finish_with(unique, Ok(()))).map_err(failed)?;
        tracing::debug!(offer = ?offer.flags, taken = ?settings.flags, minor = offer.minor, "connected");
        return Ok(Dialect { setxattr_ext: settings.flags.contains(InitFlags::SETXATTR_EXT) });
    }
}

fn settings<S: Service>(service: &S, offer: &Offer) -> Settings {
    let mut flags = service.settings(offer)
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

/// The running workers of a connection.
#[derive(Debug)]
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts a worker for each of the counters.
    pub(crate) fn start<S: Service>(
        device: &Arc<Device>,
        service: &Arc<S>,
        dialect: Dialect,
        counters: &Arc<Counters>,
    ) -> Result<Workers, MountError> {
        let count = counters.workers();
        let running = Arc::new(AtomicU64::new(count as u64));
        let clients = Clients::new(counters.polling());
        let mut threads = Vec::with_capacity(count);
        for i in 0..count {
            let device = match i {
                0 => Arc::clone(device),
                // A user who mounts through the helper may lack the permission to open the device.
                _ => device.clone_connection().map_or_else(|_| Arc::clone(device), Arc::new),
            };
            let (service, counters) = (Arc::clone(service), Arc::clone(counters));
            let (running, poller) = (Arc::clone(&running), Poller::new(Arc::clone(&clients)));
            let thread = std::thread::Builder::new()
                .name(format!("vfscale-fuse-{i}"))
                .spawn(move || {
                    work(&device, &*service, dialect, poller, counters.of_worker(i));
                    if running.fetch_sub(1, Ordering::AcqRel) == 1 {
                        service.ended();
                    }
                })
                .map_err(MountError::Threads)?;
            threads.push(thread);
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
fn work<S: Service>(
    device: &Arc<Device>,
    service: &S,
    dialect: Dialect,
    mut poller: Poller,
    counters: &WorkerCounters,
) {
    let mut buf = vec![0; TRANSFER_MAX + BUFFER_MARGIN];
    let mut reply = Reply::new();
    let mut worker = S::Worker::default();
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
        let arrival = Instant::now();
        reply.clear();
        let (header, outcome) = match Request::parse(&buf[..n], dialect) {
            Ok(request) if matches!(request.operation, Operation::Destroy) => {
                counters.add(request.header.opcode, arrival.elapsed());
                let _ = device.send(reply.finish_with(request.header.unique, Ok(())));
                continue;
            }
            Ok(request) => {
                let unique = request.header.unique;
                poller.note(request.header.pid);
                tracing::trace!(?request.header, "request");
                let later = || DeferredReply { device: Arc::clone(device), unique };
                let serve = || service.serve(&mut worker, &request, &mut reply, &later);
                let outcome = catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|_| {
                    tracing::error!(?request.header, "serving a request panicked");
                    Err(Errno::IO)
                });
                (request.header, outcome)
            }
            Err(Some(header)) => {
                tracing::warn!(?header, "malformed request");
                (header, Err(Errno::INVAL))
            }
            Err(None) => {
                tracing::error!("a message of {n} bytes is not a request");
                continue;
            }
        };
        counters.add(header.opcode, arrival.elapsed());
        let unique = header.unique;
        tracing::trace!(unique, ?outcome, "served");
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
