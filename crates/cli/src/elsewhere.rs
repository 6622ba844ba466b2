//! A mount that another process serves: the one that has the image open, for another branch of it.
//!
//! This process makes the mount, with the rights of its user and in its own namespace of mounts,
//! and passes it to the server ([`served`](crate::served)).

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use vfscale::block::Error as DeviceError;
use vfscale::posix::MountFlags;
use vfscale::{Errno, Escaped, PoolError, VolumeError};
use vfscale_fuse::{Attachment, control};

use crate::error::Failure;
use crate::mounts;
use crate::served::wire::{self, ENDING, VERSION};

/// Time for each reply of a server: it may recover the branch first, or compare large trees.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// Time for a server to say at which socket it takes requests, which it does at once.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Returns whether a volume or pool was not opened because another process has it open.
pub(crate) fn is_locked(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Open(VolumeError::Device(DeviceError::Locked { .. }))
            | Failure::Pool(PoolError::Device(DeviceError::Locked { .. }))
    )
}

/// A mount of this process that another one serves.
pub(crate) struct Elsewhere {
    stream: UnixStream,
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
}

impl Wanted<'_> {
    /// Has the process that has the image open make ready to serve it. Returns `None` if that
    /// process serves no branches of it that this one can see.
    pub(crate) fn ask(self) -> Result<Option<Ready>, Failure> {
        let Some((stream, user)) = server_of(self.image)? else { return Ok(None) };
        let (image, namespaces) = (wire::image_id(self.image), wire::namespaces());
        let mut fields = [VERSION, "mount"].map(OsStr::new).to_vec();
        fields.extend([&image, OsStr::new(self.branch), &namespaces]);
        fields.extend(self.arguments.iter().map(OsString::as_os_str));
        let attachment = match mounts::Trusted::with(None).has(user) {
            true => self.attachment,
            // Another user's server must not give rights here.
            false => self.attachment.add_flags(MountFlags::NOSUID | MountFlags::NODEV),
        };
        let ready = Ready { stream, image: self.image.to_owned(), attachment };
        wire::send(&ready.stream, &fields).map_err(|e| ready.failed(lost(&e)))?;
        ready.expect("ready")?;
        Ok(Some(ready))
    }
}

/// A server that is ready to serve a mount.
pub(crate) struct Ready {
    stream: UnixStream,
    image: PathBuf,
    attachment: Attachment,
}

impl Ready {
    /// Mounts at a directory, and has the server begin.
    pub(crate) fn mount(self, dir: &Path) -> Result<Elsewhere, Failure> {
        let unserved = self.attachment.clone().mount(dir)?;
        let (dir, device) = (unserved.dir().to_owned(), unserved.device());
        let told = wire::send_fd(&self.stream, unserved.as_fd()).and_then(|()| {
            let number = wire::device_text(device);
            wire::send(&self.stream, &[dir.as_os_str(), OsStr::new(&number)])
        });
        let begun = told.map_err(|e| self.failed(lost(&e))).and_then(|()| self.expect("mounted"));
        if let Err(failure) = begun {
            let _ = unserved.unmount();
            return Err(failure);
        }
        // From here on the mount ends with its server: its descriptor is dropped.
        Ok(Elsewhere { stream: self.stream, image: self.image, dir, device })
    }

    /// Waits for a reply of the server.
    fn expect(&self, expected: &str) -> Result<(), Failure> {
        let reply = wire::receive(&self.stream).map_err(|e| self.failed(lost(&e)))?;
        match reply.first() {
            Some(found) if found == expected => Ok(()),
            Some(found) if found == ENDING => {
                Err(self.failed("its server is ending: try again".into()))
            }
            _ => Err(self.failed(why(&reply).unwrap_or_else(|| "its server refuses that".into()))),
        }
    }

    fn failed(&self, why: String) -> Failure {
        Failure::Branch(self.image.clone(), why)
    }
}

/// Returns the reason that a reply tells, if it tells one, so that it can be shown.
fn why(reply: &[OsString]) -> Option<String> {
    reply.get(1).map(|why| Escaped::message(why).to_string())
}

/// Says that a server is gone.
fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => "its server has ended".into(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("its server does not reply any more; {STILL}")
        }
        _ => format!("its server does not reply: {error}"),
    }
}

/// Calls a function in a process of its own, and waits at most `limit` for its result: a server
/// that hangs keeps a call in its mount for ever, and the process that makes it.
///
/// # Errors
/// Any error of the function; `TimedOut`, with a text that says so.
pub(crate) fn within(
    limit: Duration,
    call: impl FnOnce() -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    Caller::start(limit, call).map(|(bytes, _)| bytes)
}

/// A process that has made a call, and lives until this handle is dropped, or the process that has
/// it ends.
pub(crate) struct Caller {
    stream: UnixStream,
    process: Pid,
}

impl Caller {
    fn start(
        limit: Duration,
        call: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<(Vec<u8>, Caller)> {
        let (stream, other) = UnixStream::pair()?;
        // SAFETY: the child has this thread alone, and libc lets it allocate; it takes no other
        // lock, and ends by `_exit`.
        let process = match unsafe { libc::fork() } {
            0 => {
                serve(other, call);
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) }
            }
            child => Pid::from_raw(child).ok_or_else(io::Error::last_os_error)?,
        };
        drop(other);
        let time = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut poll = [PollFd::new(&stream, PollFlags::IN)];
        if rustix::event::poll(&mut poll, Some(&time))? == 0 {
            let _ = kill_process(process, Signal::KILL);
            return Err(late(limit));
        }
        let mut caller = Caller { stream, process };
        let mut reply = Vec::new();
        caller.stream.read_to_end(&mut reply)?;
        match reply.split_first_chunk() {
            Some((code, bytes)) if *code == [0; 4] => Ok((bytes.to_vec(), caller)),
            Some((code, _)) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(*code))),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let _ = waitpid(Some(self.process), WaitOptions::empty());
    }
}

/// Makes a call, sends its result, and waits until the other end of the stream is closed.
fn serve(mut stream: UnixStream, call: impl FnOnce() -> io::Result<Vec<u8>>) {
    close_all_but(stream.as_raw_fd());
    // Signals of the terminal are for the other process, which may outlive them.
    let _ = rustix::process::setpgid(None, None);
    let (code, bytes) = match call() {
        Ok(bytes) => (0, bytes),
        Err(e) => (e.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
    };
    let _ = stream.write_all(&[&code.to_le_bytes(), &bytes[..]].concat());
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read(&mut [0]);
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

/// Says what is known of a request without a reply.
const STILL: &str = "it may still do what it was asked for";

/// Makes a request to the server of a mount, as [`within`] does, and waits for the reply as long as
/// for one through the [socket](ask).
///
/// # Errors
/// Any error of the request; `TimedOut`, with a text that says what is known.
pub(crate) fn request(call: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    held_request(call).map(|(bytes, _)| bytes)
}

/// Makes a [`request`] that is replied to with a number.
pub(crate) fn request_number(call: impl FnOnce() -> io::Result<u64>) -> io::Result<u64> {
    let bytes = request(|| Ok(call()?.to_le_bytes().to_vec()))?;
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Makes a [`request`] whose effect ends with the process that makes it, which is returned too.
pub(crate) fn held_request(
    call: impl FnOnce() -> io::Result<Vec<u8>>,
) -> io::Result<(Vec<u8>, Caller)> {
    Caller::start(PATIENCE, call).map_err(|e| match e.kind() {
        io::ErrorKind::TimedOut => io::Error::new(e.kind(), format!("{e}; {STILL}")),
        _ => e,
    })
}

/// Makes the kernel write to the servers what it holds back of the mounts of an image, and makes
/// the file system at `dir`, which is one of them, durable.
pub(crate) fn sync_kernel(image: &Path, dir: &Path) -> Result<(), Failure> {
    for other in mounts::of(&mounts::table()?, image) {
        let sync = || {
            // Of a mount without a server, or that this user may not open, nothing can be held
            // back.
            let Ok(at) = std::fs::File::open(&other) else { return Ok(Vec::new()) };
            Ok(rustix::fs::syncfs(at).map(|()| Vec::new())?)
        };
        request(sync).map_err(|error| Failure::Sync(other.clone(), error))?;
    }
    sync(dir)
}

/// Makes the file system at `dir` durable, also what the kernel holds back of it.
pub(crate) fn sync(dir: &Path) -> Result<(), Failure> {
    let sync = || {
        // First the data that the kernel holds back.
        rustix::fs::syncfs(std::fs::File::open(dir)?)?;
        control::sync(dir).map(|()| Vec::new())
    };
    request(sync).map(drop).map_err(|error| Failure::Sync(dir.to_owned(), error))
}

fn late(limit: Duration) -> io::Error {
    let why = format!("its server does not reply within {} s", limit.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Fails if the server of the mount at a directory does not reply, to whatever request.
pub(crate) fn check_replies(dir: &Path) -> Result<(), Failure> {
    match socket(dir, AT_ONCE) {
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(hung(dir, &e)),
        _ => Ok(()),
    }
}

/// Returns the failure for a server that does not reply.
fn hung(dir: &Path, error: &io::Error) -> Failure {
    Failure::Branch(dir.to_owned(), format!("{error}; `vfscale umount --force` ends its mount"))
}

/// Returns the name of the socket of the server of the mount at a directory.
fn socket(dir: &Path, limit: Duration) -> io::Result<String> {
    let name = within(limit, || control::socket(dir).map(String::into_bytes))?;
    String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Connects to the server of an image, and returns its user. `None` if there is no mount of it
/// whose server takes requests of this user.
fn server_of(image: &Path) -> Result<Option<(UnixStream, u32)>, Failure> {
    let trusted = mounts::Trusted::with(Some(image));
    for dir in mounts::of(&mounts::table()?, image) {
        match connected(&dir, AT_ONCE) {
            // Anybody can mount something that pretends to be the image.
            Ok((stream, user)) if trusted.has(user) => return Ok(Some((stream, user))),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(hung(&dir, &e)),
            Err(e) => tracing::info!("{}: no server to ask: {e}", Escaped::new(&dir)),
        }
    }
    Ok(None)
}

/// Connects to the server of the mount at a directory, and returns its user.
fn connected(dir: &Path, limit: Duration) -> io::Result<(UnixStream, u32)> {
    let stream = connect(&socket(dir, limit)?, limit)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let user = wire::peer(&stream)?;
    Ok((stream, user))
}

/// Connects to an abstract socket. While the queue of those whom its server has not accepted is
/// full, waits, for at most `limit`.
fn connect(name: &str, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let stream = UnixStream::from(socket);
    // Linux limits by it also the time for which `connect` waits.
    stream.set_write_timeout(Some(limit))?;
    match rustix::net::connect(&stream, &SocketAddrUnix::new_abstract_name(name.as_bytes())?) {
        Err(Errno::AGAIN) => Err(late(limit)),
        connected => Ok(connected.map(|()| stream)?),
    }
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
        let failed = |why: String| Failure::Branch(self.image.clone(), why);
        self.stream.set_read_timeout(limit).map_err(|e| failed(e.to_string()))?;
        match wire::receive(&self.stream) {
            Ok(reply) if reply.first().is_some_and(|word| word == "closed") => Ok(()),
            Ok(reply) => {
                Err(failed(why(&reply).unwrap_or_else(|| "the branch was not closed".into())))
            }
            Err(error) => {
                // The mount is without a server, and no other process removes it.
                let _ = self.unmounter().unmount(true);
                Err(failed(lost(&error)))
            }
        }
    }
}

/// Sends a request about branches to the server of an image, and hands each reply before the last
/// one to `take`, which returns whether it understands it. Returns `None` if no server of the image
/// takes requests of this user.
pub(crate) fn ask(
    image: &Path,
    request: [&str; 3],
    take: impl FnMut(&[OsString]) -> bool,
) -> Result<Option<()>, Failure> {
    let server = match mounts::is_dir(image) {
        true => {
            let trusted = mounts::Trusted::with(None);
            let is_trusted = mounts::around(&mounts::table()?, image, |it| trusted.has_made(it));
            let server = is_trusted.then(|| connected(image, AT_ONCE).ok()).flatten();
            server.filter(|(_, user)| trusted.has(*user))
        }
        false => server_of(image)?,
    };
    let Some((stream, _)) = server else { return Ok(None) };
    let [kind, one, other] = request.map(OsStr::new);
    let named = if mounts::is_dir(image) { OsString::new() } else { wire::image_id(image) };
    let asked = converse(&stream, &[OsStr::new(VERSION), kind, &named, one, other], take);
    asked.map(Some).map_err(|why| Failure::Branch(image.to_owned(), why))
}

/// Sends a request, and hands each reply before the last one to `take`. The socket limits the time
/// for each of them, so a server that goes on sending has as long as it needs.
fn converse(
    stream: &UnixStream,
    request: &[&OsStr],
    mut take: impl FnMut(&[OsString]) -> bool,
) -> Result<(), String> {
    wire::send(stream, request).map_err(|e| lost(&e))?;
    loop {
        let reply = wire::receive(stream).map_err(|e| lost(&e))?;
        match &reply[..] {
            [word] if word == "end" => return Ok(()),
            reply if take(reply) => {}
            [word, _] if word == "refused" => return Err(why(&reply).unwrap_or_default()),
            _ => return Err("its server has another version of vfscale".into()),
        }
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
pub(crate) struct Awaited(UnixStream);

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
    /// `TimedOut` if the server does not reply.
    pub(crate) fn new(dir: &Path, limit: Duration) -> io::Result<Option<Awaited>> {
        let ask = || -> io::Result<Option<Awaited>> {
            let device = wire::device_text(mounts::device_of(dir)?);
            let (stream, _) = connected(dir, limit)?;
            stream.set_read_timeout(Some(limit))?;
            wire::say(&stream, &[VERSION, "wait", &device])?;
            let reply = wire::receive(&stream)?;
            Ok(reply.first().is_some_and(|word| word == "waiting").then_some(Awaited(stream)))
        };
        match ask() {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(e),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(late(limit)),
            asked => Ok(asked.unwrap_or_default()),
        }
    }

    /// Waits until the branch is closed. May be called again if that is [late](Ended::Late).
    pub(crate) fn wait(&self, limit: Duration) -> Ended {
        let limited = self.0.set_read_timeout(Some(limit.max(Duration::from_millis(1))));
        match limited.and_then(|()| wire::receive(&self.0)) {
            Ok(reply) if reply.first().is_some_and(|word| word == "closed") => Ended::Closed,
            Ok(reply) if reply.first().is_some_and(|word| word == "failed") => {
                Ended::Failed(why(&reply).unwrap_or_default())
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Ended::Late
            }
            _ => Ended::Last,
        }
    }
}

/// Returns the failure of a command that a branch of an image was named to, if the image has none
/// and is mounted; otherwise `failure`.
pub(crate) fn or_no_branches(image: &Path, failure: Failure) -> Failure {
    let table = mounts::table().unwrap_or_default();
    let no_branches = mounts::of(&table, image).iter().any(|dir| {
        let asked = socket(dir, AT_ONCE);
        asked.is_err_and(|e| Errno::from_io_error(&e) == Some(Errno::OPNOTSUPP))
    });
    match no_branches {
        true => Failure::Branch(
            image.to_owned(),
            "it is mounted, and has no branches yet: `vfscale branch create` makes the first one"
                .into(),
        ),
        false => failure,
    }
}

#[cfg(test)]
mod tests;
