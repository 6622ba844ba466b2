//! The socket of a mount, which is made when its address is first asked for.
//!
//! # References
//!
//! Requests use the server of the mount only for as long as they hold the lock of [`Control`]'s
//! reference to it, and its end waits for them: after it, nothing of them keeps the tree in use.
//! Requests that wait for others, or for long, use what they need of it by handles.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use rustix::net::UCred;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, bind, listen, socket_with};
use vfscale::volume::Freezer;
use vfscale::{Applied, ApplyOptions, DiffOptions, Errno, Pool, Received, SendOptions, Sent};
use vfscale_sync::thread::spawn;

use super::connection::{Address, Connection, socket_address};
use super::error::Error;
use super::reply::{Reply, Stage};
use super::request::Request;

/// Time that a program gets for each message, and for making its mount.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of a patch in one message.
const PART: usize = 1 << 20;

/// Programs that wait to be accepted.
const QUEUE: i32 = 128;

/// Serves requests that the process of the server must not end before: [`Request::Mount`],
/// [`Request::Places`], [`Request::Wait`], [`Request::Check`], [`Request::State`],
/// [`Request::View`] and [`Request::Ingest`].
pub type Host = Arc<dyn Fn(Request, &Connection) -> io::Result<()> + Send + Sync>;

/// The longest freeze.
const LONGEST: Duration = Duration::from_secs(3600);

/// The server of a mount, as requests use it.
pub(crate) trait Controlled: Send + Sync {
    /// Refuses a process that may make no requests.
    fn check_peer(&self, peer: &UCred) -> Result<(), Errno>;
    /// Serves a request that is done when this returns.
    fn serve_request(&self, request: &Request) -> Result<Vec<Reply>, Error>;
    /// Returns the branches of the image.
    fn pool(&self) -> Result<Pool, Error>;
    /// Returns the handle that freezes the volume, if it can be frozen.
    fn freezer(&self) -> Option<Freezer>;
}

/// The control of a mount, by messages.
pub(crate) struct Control {
    /// The server, until the mount ends.
    server: RwLock<Option<Weak<dyn Controlled>>>,
    host: Option<Host>,
    image: OsString,
    socket: Mutex<Option<Socket>>,
}

struct Socket {
    address: Address,
    listener: Arc<UnixListener>,
}

impl Control {
    pub(crate) fn new(
        server: Weak<dyn Controlled>,
        host: Option<Host>,
        image: OsString,
    ) -> Arc<Control> {
        Arc::new(Control {
            server: RwLock::new(Some(server)),
            host,
            image,
            socket: Mutex::new(None),
        })
    }

    /// Returns the address of the socket, and begins to listen if nobody has asked before.
    pub(crate) fn address(self: &Arc<Self>) -> Result<Address, Errno> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = &*socket {
            return Ok(socket.address);
        }
        let started = self.start()?;
        Ok(socket.insert(started).address)
    }

    fn start(self: &Arc<Self>) -> Result<Socket, Errno> {
        let mut random = [0; 32];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let (name, secret) = digits.split_at(digits.len() / 2);
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let flags = SocketFlags::CLOEXEC;
        let fd: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&fd, &socket_address(name).map_err(errno)?)?;
        listen(&fd, QUEUE)?;
        let listener = Arc::new(UnixListener::from(fd));
        let reserve = File::open("/dev/null").map_err(errno)?;
        let (this, accepting, secret) = (self.clone(), listener.clone(), secret.to_owned());
        let run = move || this.accept(&accepting, &secret, reserve);
        spawn("vfscale-control", run).map_err(errno)?;
        let address = digits.as_bytes().try_into().map_err(|_| Errno::IO)?;
        Ok(Socket { address, listener })
    }

    /// Takes no requests from now on, and waits for those that use the server.
    pub(crate) fn end(&self) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(socket) = socket {
            let _ = rustix::net::shutdown(&socket.listener, Shutdown::Both);
        }
        *self.server.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Accepts programs until the mount ends. With `reserve`, a descriptor, those can be turned
    /// away for whom there is none.
    fn accept(self: &Arc<Self>, listener: &UnixListener, secret: &str, reserve: File) {
        let mut reserve = Some(reserve);
        loop {
            let taken = listener.accept().and_then(|(stream, _)| self.take(stream, secret));
            match taken {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    tracing::warn!("a request is not served: {error}");
                    if reserve.take().is_some() {
                        drop(listener.accept());
                    } else {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    reserve = File::open("/dev/null").ok();
                }
            }
        }
    }

    /// Serves a request on a thread of its own, if its user may make one.
    fn take(self: &Arc<Self>, stream: UnixStream, secret: &str) -> io::Result<()> {
        let connection = Connection::accepted(stream, PATIENCE)?;
        let peer = connection.peer()?;
        let permitted = self.with(|server| Ok(server.check_peer(&peer)?));
        if let Err(error) = permitted {
            let _ = connection.reply(&Reply::Refused(error));
            return Ok(());
        }
        let (this, secret) = (self.clone(), secret.to_owned());
        spawn("vfscale-request", move || {
            if let Err(error) = this.serve(&connection, &secret) {
                tracing::info!("a request was not served: {error}");
            }
        })?;
        Ok(())
    }

    /// Calls `call` with the server, whose mount does not end meanwhile.
    fn with<T>(&self, call: impl FnOnce(&dyn Controlled) -> Result<T, Error>) -> Result<T, Error> {
        let held = self.server.read().unwrap_or_else(PoisonError::into_inner);
        let called = held.as_ref().and_then(Weak::upgrade).map(|server| call(&*server));
        drop(held);
        called.unwrap_or_else(|| Err(Error::new(Errno::AGAIN, "its server is ending: try again")))
    }

    fn serve(&self, connection: &Connection, secret: &str) -> io::Result<()> {
        let pool = || self.with(|server| server.pool());
        let refused = |error| connection.reply(&Reply::Refused(error));
        let request = match connection.request(secret, &self.image) {
            Ok(request) => request,
            Err(error) => return refused(error),
        };
        match &request {
            Request::Mount { .. }
            | Request::Places
            | Request::Wait(_)
            | Request::Check(..)
            | Request::State(_)
            | Request::View(_)
            | Request::Ingest { .. } => match &self.host {
                Some(host) => host(request, connection),
                None => {
                    let why = "it is mounted, and its server serves no further branches";
                    connection.refuse(Errno::OPNOTSUPP, why)
                }
            },
            Request::Freeze(limit) => match self.with(|server| Ok(server.freezer())) {
                Ok(freezer) => freeze(connection, freezer, *limit),
                Err(error) => refused(error),
            },
            Request::Diff { a, b, with_base, as_patch, paths } => match pool() {
                Ok(pool) => {
                    let options = DiffOptions::new().with_base(*with_base).paths(paths);
                    let send = if *as_patch { patch } else { diff };
                    send(connection, &pool, (a, b), &options)
                }
                Err(error) => refused(error),
            },
            Request::Layer { .. }
            | Request::Apply { .. }
            | Request::Send { .. }
            | Request::Receive(_) => match pool() {
                Ok(pool) => with_file(connection, &pool, &request),
                Err(error) => refused(error),
            },
            _ => {
                // The mount does not end before the program has the replies: it would not know
                // whether it may ask again.
                let served = self.with(|server| {
                    let replies = server.serve_request(&request)?;
                    replies.iter().try_for_each(|reply| connection.reply(reply))?;
                    let compared = match (&request, &replies[..]) {
                        (Request::Rollback(name, _), [Reply::Kept(kept)]) => {
                            Some((server.pool()?, name, kept.clone()))
                        }
                        _ => None,
                    };
                    if compared.is_none() {
                        connection.reply(&Reply::End)?;
                    }
                    Ok(compared)
                });
                match served {
                    Ok(Some((pool, name, kept))) => {
                        diff(connection, &pool, (name, &kept), &DiffOptions::new())
                    }
                    Ok(None) => Ok(()),
                    Err(error) => refused(error),
                }
            }
        }
    }
}

/// Compares two branches, and sends the differences.
fn diff(
    connection: &Connection,
    pool: &Pool,
    (a, b): (&str, &str),
    options: &DiffOptions,
) -> io::Result<()> {
    match pool.diff_with(a, b, options) {
        Ok(found) => {
            found.into_iter().try_for_each(|it| connection.reply(&Reply::Difference(it)))?;
            connection.reply(&Reply::End)
        }
        Err(error) => connection.refuse(error.errno(), error.to_string()),
    }
}

/// Compares two branches, and sends a patch.
fn patch(
    connection: &Connection,
    pool: &Pool,
    (a, b): (&str, &str),
    options: &DiffOptions,
) -> io::Result<()> {
    let mut sent = Ok(());
    let patched = pool.patch(a, b, options, &mut |part| {
        let mut parts = part.chunks(PART).map(|part| OsStr::from_bytes(part).to_owned());
        sent = parts.try_for_each(|part| connection.reply(&Reply::Text(part)));
        sent.is_ok()
    });
    sent?;
    match patched {
        Ok(_) => connection.reply(&Reply::End),
        Err(error) => connection.refuse(error.errno(), error.to_string()),
    }
}

/// Does what a request asks for with a file that is received.
fn with_file(connection: &Connection, pool: &Pool, request: &Request) -> io::Result<()> {
    match request {
        Request::Layer { a, b, with_base, paths } => {
            let options = DiffOptions::new().with_base(*with_base).paths(paths);
            layer(connection, pool, (a, b), &options)
        }
        Request::Apply { branch, strip, dry_run } => {
            let strip = usize::try_from(*strip).unwrap_or(usize::MAX);
            let options = ApplyOptions::new().strip(strip).dry_run(*dry_run);
            apply(connection, pool, branch, options)
        }
        Request::Send { branch, since, skip } => {
            let options = SendOptions::new().since(since.as_deref()).skip(*skip);
            send(connection, pool, branch, &options)
        }
        Request::Receive(name) => receive(connection, pool, name.as_deref()),
        _ => connection.refuse(Errno::PROTO, "this request has no file"),
    }
}

/// Compares two branches, and writes a layer to a file that is received.
fn layer(
    connection: &Connection,
    pool: &Pool,
    (a, b): (&str, &str),
    options: &DiffOptions,
) -> io::Result<()> {
    connection.reply(&Reply::Stage(Stage::Ready))?;
    let (mut out, mut written) = (File::from(connection.receive_fd()?.0), Ok(()));
    let count = pool.layer(a, b, options, &mut |part| {
        written = out.write_all(part);
        written.is_ok()
    });
    match (count, written) {
        (Ok(count), Ok(())) => {
            connection.reply(&Reply::Number(count))?;
            connection.reply(&Reply::End)
        }
        (Err(error), _) => connection.refuse(error.errno(), error.to_string()),
        (_, Err(error)) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            connection.refuse(errno, format!("the layer can't be written: {error}"))
        }
    }
}

/// Applies a file that is received to a branch.
fn apply(
    connection: &Connection,
    pool: &Pool,
    branch: &str,
    options: ApplyOptions,
) -> io::Result<()> {
    connection.reply(&Reply::Stage(Stage::Ready))?;
    let mut input = File::from(connection.receive_fd()?.0);
    match pool.apply(branch, &mut input, options) {
        Ok(applied) => {
            let Applied { is_layer, written, removed, untold, is_done } = applied;
            let counts = [is_layer.into(), written, removed, untold, is_done.into()];
            counts.into_iter().try_for_each(|count| connection.reply(&Reply::Number(count)))?;
            connection.reply(&Reply::End)
        }
        Err(error) => connection.refuse(error.errno(), error.to_string()),
    }
}

/// Writes a branch to a file that is received.
fn send(
    connection: &Connection,
    pool: &Pool,
    branch: &str,
    options: &SendOptions,
) -> io::Result<()> {
    connection.reply(&Reply::Stage(Stage::Ready))?;
    let mut out = File::from(connection.receive_fd()?.0);
    match pool.send(branch, options, &mut out) {
        Ok(Sent { bytes, data }) => {
            [bytes, data].iter().try_for_each(|it| connection.reply(&Reply::Number(*it)))?;
            connection.reply(&Reply::End)
        }
        Err(error) => connection.refuse(error.errno(), error.to_string()),
    }
}

/// Makes a branch of a file that is received.
fn receive(connection: &Connection, pool: &Pool, name: Option<&str>) -> io::Result<()> {
    connection.reply(&Reply::Stage(Stage::Ready))?;
    let mut input = File::from(connection.receive_fd()?.0);
    match pool.receive(name, &mut input) {
        Ok(Received { name, bytes, data }) => {
            connection.reply(&Reply::Kept(name))?;
            [bytes, data].iter().try_for_each(|it| connection.reply(&Reply::Number(*it)))?;
            connection.reply(&Reply::End)
        }
        Err(error) => connection.refuse(error.errno(), error.to_string()),
    }
}

/// Freezes a volume until the other end of a connection closes it, or ends, and for `limit` at
/// most.
fn freeze(connection: &Connection, freezer: Option<Freezer>, limit: Duration) -> io::Result<()> {
    let frozen = match freezer {
        _ if limit.is_zero() || limit > LONGEST => Err(Errno::INVAL),
        None => Err(Errno::OPNOTSUPP),
        Some(freezer) => freezer.freeze(|| {
            connection.reply(&Reply::Stage(Stage::Frozen))?;
            if !connection.await_end(Some(limit)) {
                let seconds = limit.as_secs_f64();
                tracing::warn!("a freeze has ended after {seconds} s, before who had asked for it");
            }
            Ok(())
        }),
    };
    frozen.unwrap_or_else(|errno| {
        let why = match errno {
            Errno::OPNOTSUPP => "only a volume is frozen, and this file system is none".into(),
            Errno::BUSY => "a branch of its image is being opened or used: try again".into(),
            Errno::INVAL => "the time is more than 0 s, and at most 3600 s".into(),
            _ => format!("it can't be frozen: {errno}"),
        };
        connection.refuse(errno, why)
    })
}
