//! Requests to the server of a mount, and a mount that another process serves: the one that has the
//! image open, for another branch of it.
//!
//! This process makes that mount, with the rights of its user and in its own namespace of mounts,
//! and passes it to the server ([`served`](crate::served)).

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};
use vfscale::block::Error as DeviceError;
use vfscale::pool::MAIN;
use vfscale::posix::MountFlags;
use vfscale::{Errno, Escaped, PoolError, VolumeError};
use vfscale_fuse::Attachment;
use vfscale_fuse::control::{self, Connection, Error, Reply, Request, Stage};

use crate::error::{Failure, NOT_MOUNTED};
use crate::mounts;
use crate::served::{device_of, device_text, namespaces};

pub(crate) mod branches;
pub(crate) mod temporary;
pub(crate) mod visit;

/// Time for each reply of a server: it may recover the branch first, or compare large trees.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// Time for which a command waits for an image that another process has open, which may be a short
/// command, or a server that is just beginning or ending.
const BUSY: Duration = Duration::from_secs(10);
/// Time for which a command waits while one process after the other has the image.
const MOST: Duration = Duration::from_secs(120);
/// Time between two looks whether it still is.
const PAUSE: Duration = Duration::from_millis(5);
/// Time for a server to say at which socket it takes requests, which it does at once.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Time to find out whether a mount has a server.
const MOMENT: Duration = Duration::from_secs(1);

/// The meaning of `EPERM` as the reply of a mount.
const NOT_ALLOWED: &str = "only root and the user who mounted it may do that";

/// Returns whether a volume or pool was not opened because another process has it open.
pub(crate) fn is_locked(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Open(VolumeError::Device(DeviceError::Locked { .. }))
            | Failure::Pool(PoolError::Device(DeviceError::Locked { .. }))
            | Failure::Device(DeviceError::Locked { .. })
    )
}

/// The wait of a command for an image that other processes have open, one after the other.
pub(crate) struct Turn {
    start: Instant,
    /// The processes that had it, in words, and since when each.
    holders: Vec<(String, Instant)>,
}

impl Turn {
    pub(crate) fn new() -> Turn {
        Turn { start: Instant::now(), holders: Vec::new() }
    }

    /// Waits for a moment after a failure. Returns whether to try again: not if the process of the
    /// failure has had the image for [`BUSY`], or it was others' for [`MOST`].
    pub(crate) fn wait(&mut self, failure: &Failure) -> bool {
        let now = Instant::now();
        // The message names the holder. A server that ends says nothing of who comes next.
        if !matches!(failure, Failure::Ended(..)) {
            let holder = failure.to_string();
            match self.holders.iter().find(|(known, _)| *known == holder) {
                Some((_, since)) if now.duration_since(*since) >= BUSY => return false,
                Some(_) => {}
                None => self.holders.push((holder, now)),
            }
        }
        std::thread::sleep(PAUSE);
        now.duration_since(self.start) < MOST
    }
}

/// Returns the failure of a command for which an image was not free in time. If it is mounted, that
/// is by runs that only read it, since others serve it.
pub(crate) fn busy(image: Option<&Path>, why: String) -> Failure {
    let table = mounts::table().unwrap_or_default();
    let is_mounted = image.is_some_and(|image| !mounts::of(&table, image).is_empty());
    Failure::Busy(match is_mounted {
        true => format!(
            "{why}; try again when the commands have ended that only read it, such as \
                         those of `vfscale run --discard`"
        ),
        false => why,
    })
}

/// A mount of this process that another one serves.
pub(crate) struct Elsewhere {
    connection: Connection,
    image: PathBuf,
    dir: PathBuf,
    device: (u32, u32),
}

/// The mount to be made.
pub(crate) struct Wanted<'a> {
    pub(crate) image: &'a Path,
    pub(crate) branch: &'a str,
    /// The command line, from which the server takes its options.
    pub(crate) arguments: &'a [OsString],
    pub(crate) attachment: Attachment,
    /// Whether its branch is to be a copy of `branch`.
    pub(crate) is_trial: bool,
}

impl Wanted<'_> {
    /// Has the process that has the image open make ready to serve it. Returns `failure` if that
    /// process serves no branches of it that this one can see. `is_named` tells whether the command
    /// line names the branch.
    pub(crate) fn ask(self, failure: Failure, is_named: bool) -> Result<Ready, Failure> {
        let Some((connection, user)) = server_of(self.image)? else { return Err(failure) };
        let sent = connection.send(&self.request());
        match sent.and_then(|()| connection.expect(Stage::Ready)) {
            Ok(()) => Ok(self.ready(connection, user)),
            Err(error) if is_no_pool(&error) && !is_named => Err(failure),
            Err(error) => Err(refused(self.image, &error)),
        }
    }

    /// Has the process that has the image open make ready to serve a run of it, or name a mount
    /// that the run is to use as well. `None` if no process serves branches of it, or only of what
    /// it has in memory. Calls `makes_pool` when the image becomes a pool.
    pub(crate) fn ask_for_run(self, makes_pool: impl Fn()) -> Result<Option<Asked>, Failure> {
        let Some((connection, user)) = server_of(self.image)? else { return Ok(None) };
        if self.is_trial {
            flush_kernel(self.image)?;
        }
        let mut reply = connection.send(&self.request()).and_then(|()| connection.next());
        if let Ok(Some(Reply::Stage(Stage::Pool))) = reply {
            makes_pool();
            reply = connection.next();
        }
        match reply {
            Ok(Some(Reply::Stage(Stage::Ready))) => {
                Ok(Some(Asked::Ready(self.ready(connection, user))))
            }
            Ok(Some(Reply::Place { branch, device, dir })) => {
                let device = device_of(OsStr::new(&device));
                match device.filter(|device| mounts::device_of(&dir).is_ok_and(|it| it == *device))
                {
                    Some(device) => {
                        let image = self.image.to_owned();
                        Ok(Some(Asked::Shared(Elsewhere { connection, image, dir, device })))
                    }
                    None => {
                        let dir = Escaped::new(&dir);
                        let why = format!("branch {branch:?} is mounted at {dir}, out of sight");
                        Err(Failure::Refused(self.image.to_owned(), why))
                    }
                }
            }
            Ok(_) => Err(refused(self.image, &Errno::PROTO.into())),
            Err(error) if error.errno() == Errno::OPNOTSUPP => Ok(None),
            Err(error) => Err(refused(self.image, &error)),
        }
    }

    fn request(&self) -> Request {
        let (branch, arguments) = (self.branch.to_owned(), self.arguments.to_vec());
        Request::Mount { branch, namespaces: namespaces(), arguments }
    }

    fn ready(self, connection: Connection, user: u32) -> Ready {
        let attachment = match mounts::Trusted::with(None).has(user) {
            true => self.attachment,
            // Another user's server must not give rights here.
            false => self.attachment.add_flags(MountFlags::NOSUID | MountFlags::NODEV),
        };
        Ready { connection, image: self.image.to_owned(), attachment }
    }
}

/// Returns whether a mount was refused because the image is no pool.
fn is_no_pool(error: &Error) -> bool {
    matches!(error.errno(), Errno::NOENT | Errno::OPNOTSUPP)
}

/// The mount that a run gets.
pub(crate) enum Asked {
    /// The run makes it.
    Ready(Ready),
    /// Another run has made it.
    Shared(Elsewhere),
}

/// A server that is ready to serve a mount.
pub(crate) struct Ready {
    connection: Connection,
    image: PathBuf,
    attachment: Attachment,
}

impl Ready {
    /// Mounts at a directory, and has the server begin.
    pub(crate) fn mount(self, dir: &Path) -> Result<Elsewhere, Failure> {
        let Ready { connection, image, attachment } = self;
        let unserved = attachment.mount(dir)?;
        let (dir, device) = (unserved.dir().to_owned(), unserved.device());
        let number = device_text(device);
        let told = connection.send_fd(unserved.as_fd(), &[dir.as_os_str(), OsStr::new(&number)]);
        let begun = told.map_err(Error::from).and_then(|()| connection.expect(Stage::Mounted));
        if let Err(error) = begun {
            let _ = unserved.unmount();
            return Err(refused(&image, &error));
        }
        // From here on the mount ends with its server: its descriptor is dropped.
        Ok(Elsewhere { connection, image, dir, device })
    }
}

/// Returns the failure of a request about a mount or an image. That its server ends or has ended
/// is told from what a server refuses.
pub(crate) fn refused(place: &Path, error: &Error) -> Failure {
    let why = match error.errno() {
        Errno::NOTTY => NOT_MOUNTED.into(),
        Errno::PERM | Errno::ACCESS => NOT_ALLOWED.into(),
        _ => Escaped::message(&error.to_string()).to_string(),
    };
    match error.errno() {
        Errno::NOTTY | Errno::AGAIN | Errno::PIPE | Errno::CONNREFUSED | Errno::NOTCONN => {
            Failure::Ended(place.to_owned(), why)
        }
        _ => Failure::Refused(place.to_owned(), why),
    }
}

/// Calls a function in a process of its own, and waits at most `limit` for its result: a server
/// that hangs keeps a call in its mount for ever, and the process that makes it.
///
/// # Errors
/// Any error of the function; `ETIMEDOUT`, with a text that says so.
pub(crate) fn within(
    limit: Duration,
    call: impl FnOnce() -> io::Result<Vec<u8>>,
) -> Result<Vec<u8>, Error> {
    let (mut stream, process) = forked(|stream| serve(stream, call))?;
    let time = Timespec::try_from(limit).map_err(|_| Errno::INVAL)?;
    let mut poll = [PollFd::new(&stream, PollFlags::IN)];
    if rustix::event::poll(&mut poll, Some(&time))? == 0 {
        let _ = kill_process(process, Signal::KILL);
        return Err(Error::late(limit));
    }
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    let _ = waitpid(Some(process), WaitOptions::empty());
    match reply.split_first_chunk() {
        Some((code, bytes)) if *code == [0; 4] => Ok(bytes.to_vec()),
        Some((code, _)) => Err(Errno::from_raw_os_error(i32::from_le_bytes(*code)).into()),
        None => Err(Errno::IO.into()),
    }
}

/// Has a process of its own do what opens an image, and returns its result: this process may fork
/// later, and a child would lack the threads that the library has in its parent. That process has
/// this one as its parent, and ends with it.
///
/// # Errors
/// Any failure of `work`, of which only [`Failure::Unfit`] stays what it is.
pub(crate) fn apart(work: impl FnOnce() -> Result<Vec<u8>, Failure>) -> Result<Vec<u8>, Failure> {
    let failed = |error| Failure::System("fork", error);
    let answer = |mut stream: UnixStream| {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        let reply = match work() {
            Ok(bytes) => [&[0, 0], &bytes[..]].concat(),
            Err(failure) => {
                let kind = if matches!(failure, Failure::Unfit(_)) { 2 } else { 1 };
                [&[kind, failure.status()], failure.to_string().as_bytes()].concat()
            }
        };
        let _ = stream.write_all(&reply);
    };
    let (mut stream, process) = forked(answer).map_err(failed)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).map_err(failed)?;
    let _ = waitpid(Some(process), WaitOptions::empty());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &reply[..] {
        [0, _, bytes @ ..] => Ok(bytes.to_vec()),
        [2, _, why @ ..] => Err(Failure::Unfit(text(why))),
        [1, status, why @ ..] => Err(Failure::Program(text(why), *status)),
        _ => Err(failed(io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Starts a process of its own that answers on a stream, and returns the other end of that.
fn forked(answer: impl FnOnce(UnixStream)) -> io::Result<(UnixStream, Pid)> {
    let (stream, other) = UnixStream::pair()?;
    // SAFETY: the child has this thread alone, and libc lets it allocate; it takes no other lock,
    // and ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            answer(other);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) }
        }
        child => Ok((stream, Pid::from_raw(child).ok_or_else(io::Error::last_os_error)?)),
    }
}

/// Makes a call, and sends its result.
fn serve(mut stream: UnixStream, call: impl FnOnce() -> io::Result<Vec<u8>>) {
    close_all_but(stream.as_raw_fd());
    // Signals of the terminal are for the other process, which may outlive them.
    let _ = rustix::process::setpgid(None, None);
    let (code, bytes) = match call() {
        Ok(bytes) => (0, bytes),
        Err(e) => (e.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
    };
    let _ = stream.write_all(&[&code.to_le_bytes(), &bytes[..]].concat());
}

/// Closes what a caller may read until its end, as standard output, and all else.
fn close_all_but(fd: i32) {
    let fd = fd.unsigned_abs();
    for (first, last) in [(0, fd.saturating_sub(1)), (fd + 1, u32::MAX)] {
        if first <= last && !(first..=last).contains(&fd) {
            // SAFETY: the child uses none of them.
            unsafe { libc::close_range(first, last, 0) };
        }
    }
}

/// Makes the kernel write to the servers what it holds back of the mounts of an image, and makes
/// the file system at `dir`, which is one of them, durable.
pub(crate) fn sync_kernel(image: &Path, dir: &Path) -> Result<(), Failure> {
    check_replies(dir)?;
    flush_kernel(image)?;
    sync(dir)
}

/// Makes the kernel write to the servers what it holds back of the mounts of an image.
fn flush_kernel(image: &Path) -> Result<(), Failure> {
    for other in mounts::of(&mounts::table()?, image) {
        let sync = || {
            // Of a mount without a server, or that this user may not open, nothing can be held
            // back.
            let Ok(at) = std::fs::File::open(&other) else { return Ok(Vec::new()) };
            Ok(rustix::fs::syncfs(at).map(|()| Vec::new())?)
        };
        let synced = within(PATIENCE, sync);
        // The mount of a run may have ended meanwhile, with nothing held back.
        if let Err(error) = synced
            && mounts::of(&mounts::table()?, image).contains(&other)
        {
            return Err(Failure::Sync(other, error));
        }
    }
    Ok(())
}

/// Makes the file system at `dir` durable, also what the kernel holds back of it.
pub(crate) fn sync(dir: &Path) -> Result<(), Failure> {
    check_replies(dir)?;
    let sync = || {
        // First the data that the kernel holds back.
        rustix::fs::syncfs(std::fs::File::open(dir)?)?;
        control::sync(dir).map(|()| Vec::new())
    };
    within(PATIENCE, sync).map(drop).map_err(|error| Failure::Sync(dir.to_owned(), error))
}

/// The server of a mount.
pub(crate) struct Serving {
    pub(crate) process: i32,
    /// The branch that is mounted, if the server knows that.
    pub(crate) branch: Option<String>,
}

/// Returns how the mount at a directory is served.
///
/// # Errors
/// `ENOTCONN` if its server has ended, `ETIMEDOUT` if that does not reply; errors of
/// [`control::connect`].
pub(crate) fn serving(dir: &Path) -> Result<Serving, Error> {
    let device = device_text(mounts::device_of(dir)?);
    let connection = connected(dir, MOMENT)?;
    let (process, mut branch) = (connection.process()?, None);
    let asked = connection.ask(&Request::Places, |reply| match reply {
        Reply::Place { branch: name, device: number, .. } => {
            if number == device {
                branch = Some(name);
            }
            true
        }
        _ => false,
    });
    match asked {
        // A library serves it.
        Err(error) if error.errno() != Errno::OPNOTSUPP => Err(error),
        _ => Ok(Serving { process, branch }),
    }
}

/// Returns whether a branch of an image is mounted at a directory; one of a volume without branches
/// is the main one.
pub(crate) fn has_branch(dir: &Path, name: &str) -> bool {
    serving(dir).is_ok_and(|it| it.branch.as_deref().unwrap_or(MAIN) == name)
}

/// Returns whether the mount at a directory has no server any more.
pub(crate) fn is_dead(dir: &Path) -> bool {
    // This is a request to the server, whatever the kernel has cached.
    let asked = within(MOMENT, || Ok(rustix::fs::statfs(dir).map(|_| Vec::new())?));
    asked.is_err_and(|error| error.errno() == Errno::NOTCONN)
}

/// Fails if the server of the mount at a directory does not reply, to whatever request.
pub(crate) fn check_replies(dir: &Path) -> Result<(), Failure> {
    match connected(dir, AT_ONCE) {
        Err(error) if error.errno() == Errno::TIMEDOUT => Err(hung(dir, &error)),
        _ => Ok(()),
    }
}

/// Returns the failure for a server that does not reply.
fn hung(dir: &Path, error: &Error) -> Failure {
    Failure::Refused(dir.to_owned(), format!("{error}; `vfscale umount --force` ends its mount"))
}

/// Makes a request to the server of the mount at a directory, which was found for `place`: that
/// directory, or an image, which the mount has to be of.
pub(crate) fn ask<T>(
    place: &Path,
    dir: &Path,
    request: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<T, Failure> {
    try_ask(place, dir, request)?.map_err(|error| refused(dir, &error))
}

/// Makes a request as [`ask`] does, and returns its error as it is, unless the server hangs.
pub(crate) fn try_ask<T>(
    place: &Path,
    dir: &Path,
    request: impl FnOnce(&Connection) -> Result<T, Error>,
) -> Result<Result<T, Error>, Failure> {
    match connected(dir, AT_ONCE) {
        Ok(connection) if mounts::is_dir(place) => Ok(request(&connection)),
        Ok(connection) => Ok(request(&connection.about(place))),
        Err(error) if error.errno() == Errno::TIMEDOUT => Err(hung(dir, &error)),
        Err(error) => Ok(Err(error)),
    }
}

/// Connects to the server of an image, and returns its user. `None` if there is no mount of it
/// whose server takes requests of this user.
fn server_of(image: &Path) -> Result<Option<(Connection, u32)>, Failure> {
    let trusted = mounts::Trusted::with(Some(image));
    for dir in mounts::of(&mounts::table()?, image) {
        match connected(&dir, AT_ONCE).and_then(|it| Ok((it.user()?, it))) {
            // Anybody can mount something that pretends to be the image.
            Ok((user, connection)) if trusted.has(user) => {
                return Ok(Some((connection.about(image), user)));
            }
            Ok(_) => {}
            Err(error) if error.errno() == Errno::TIMEDOUT => return Err(hung(&dir, &error)),
            Err(error) => tracing::info!("{}: no server to ask: {error}", Escaped::new(&dir)),
        }
    }
    Ok(None)
}

/// Connects to the server of the mount at a directory, which has `limit` to say at which socket,
/// and to accept, and then [`PATIENCE`] for each reply.
fn connected(dir: &Path, limit: Duration) -> Result<Connection, Error> {
    let address = within(limit, || control::address(dir).map(|address| address.to_vec()));
    let address = address.map_err(|error| match error.errno() {
        // The directory of a run, which is gone by now.
        Errno::NOENT => Errno::NOTTY.into(),
        _ => error,
    })?;
    let address = address.try_into().map_err(|_| Errno::PROTO)?;
    let connection = Connection::open(&address, Some(limit))?;
    connection.limit(Some(PATIENCE))?;
    Ok(connection)
}

impl Elsewhere {
    /// Returns the directory of the mount, as an absolute path.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a handle that unmounts from another thread.
    pub(crate) fn unmounter(&self) -> Unmounter {
        Unmounter { dir: self.dir.clone(), device: self.device }
    }

    /// Waits until the mount is ended, and its branch closed; at most for `limit`, if there is one.
    pub(crate) fn wait(self, limit: Option<Duration>) -> Result<(), Failure> {
        let limited = self.connection.limit(limit).map_err(Error::from);
        let ended = limited.and_then(|()| self.connection.expect(Stage::Closed));
        ended.map_err(|error| self.failed(&error))
    }
}

/// How a run has left its mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Others use it.
    Used,
    /// The mount is ended.
    Ended,
    /// The mount was ended though it was in use.
    Forced,
}

impl Elsewhere {
    /// Leaves the mount of a run, and ends it if no other run uses it: by force if it is in use
    /// after `patience`, and its users then are not waited for.
    pub(crate) fn leave(self, patience: Duration) -> Result<Left, Failure> {
        let finished =
            self.connection.finish().and_then(|()| self.connection.limit(Some(PATIENCE)));
        let reply = finished.map_err(Error::from).and_then(|()| self.connection.next());
        match reply {
            Ok(None) => return Ok(Left::Used),
            Ok(Some(Reply::Stage(Stage::Unused))) => {}
            // The mount was ended by somebody else.
            Ok(_) => return Ok(Left::Ended),
            Err(error) => return Err(self.failed(&error)),
        }
        let unmounted = self.unmounter().unmount_within(patience);
        if unmounted.map_err(|e| Failure::Unmount(self.dir.clone(), e))? {
            return Ok(Left::Forced);
        }
        match self.connection.next() {
            // The server ends when it has nothing more to do, and its end closes the connection.
            Ok(Some(Reply::Stage(Stage::Last))) => {
                // The image is free when the server has ended, which closes the connection.
                let _ = self.connection.next();
                Ok(Left::Ended)
            }
            Ok(_) => Ok(Left::Ended),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Removes a mount without a server, which no other process does, and returns the failure.
    fn failed(&self, error: &Error) -> Failure {
        if error.errno() != Errno::IO {
            let _ = self.unmounter().unmount(true);
        }
        refused(&self.image, error)
    }
}

/// Unmounts a mount that another process serves.
#[derive(Clone)]
pub(crate) struct Unmounter {
    dir: PathBuf,
    device: (u32, u32),
}

impl Unmounter {
    /// Unmounts, unless something else is mounted at the directory, or nothing.
    fn unmount(&self, by_force: bool) -> io::Result<()> {
        if mounts::device_of(&self.dir)? != self.device {
            return Ok(());
        }
        control::unmount(&self.dir, by_force, by_force)
    }

    /// Unmounts when the mount is no longer in use, or by force after `patience`. Returns whether
    /// force was needed.
    pub(crate) fn unmount_within(&self, patience: Duration) -> io::Result<bool> {
        const STEP: Duration = Duration::from_millis(10);
        let end = Instant::now() + patience;
        loop {
            match self.unmount(false) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                    if Instant::now() >= end {
                        return self.unmount(true).map(|()| true);
                    }
                    std::thread::sleep(STEP);
                }
                outcome => return outcome.map(|()| false),
            }
        }
    }
}

/// The end of a mount, to be waited for.
pub(crate) struct Awaited(Connection);

/// How a mount has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its branch is closed, and its server has other mounts.
    Closed,
    /// Its branch is closed, and its server ends, or has ended.
    Last,
    /// Its branch or volume could not be closed properly, for this reason.
    Failed(String),
    /// The time is over.
    Late,
}

impl Awaited {
    /// Returns a handle that waits for the end of the mount at a directory; `None` if its server
    /// can't say it.
    ///
    /// # Errors
    /// `ETIMEDOUT` if the server does not reply.
    pub(crate) fn new(dir: &Path, limit: Duration) -> Result<Option<Awaited>, Error> {
        let ask = || -> Result<Awaited, Error> {
            let device = device_text(mounts::device_of(dir)?);
            let connection = connected(dir, limit)?;
            connection.limit(Some(limit))?;
            connection.send(&Request::Wait(device))?;
            connection.expect(Stage::Waiting).map(|()| Awaited(connection))
        };
        match ask() {
            Err(error) if error.errno() == Errno::TIMEDOUT => Err(Error::late(limit)),
            asked => Ok(asked.ok()),
        }
    }

    /// Waits until the branch is closed. May be called again if that is [late](Ended::Late).
    pub(crate) fn wait(&self, limit: Duration) -> Ended {
        let limited = self.0.limit(Some(limit.max(Duration::from_millis(1))));
        match limited.map_err(Error::from).and_then(|()| self.0.next()) {
            Ok(Some(Reply::Stage(Stage::Closed))) => Ended::Closed,
            Err(error) if error.errno() == Errno::TIMEDOUT => Ended::Late,
            Err(error) if error.errno() == Errno::IO => {
                Ended::Failed(Escaped::message(&error.to_string()).to_string())
            }
            _ => Ended::Last,
        }
    }
}
