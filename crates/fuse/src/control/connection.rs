//! A connection between a program and the server of a mount.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, UCred, socket_with, sockopt,
};
use vfscale::Applied;
use vfscale::pool::View;
use vfscale::posix::FstrimRange;
use vfscale::{BranchInfo, Errno, Received, Sent};

use super::error::Error;
use super::message::{self, Fields};
use super::reply::{Checked, Reply, Stage};
use super::request::{Growth, Request};
use crate::statistics::Statistics;

/// Version of the messages, the first field of a request.
const VERSION: &str = "5";

/// The address of a mount: digits of the name of its socket, and as many of its secret.
pub type Address = [u8; 64];

/// A connection for one request. Its end ends a freeze.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    /// The secret of the mount, of a program's end.
    secret: String,
    /// The image that its requests are about, if the program has named one.
    image: OsString,
}

impl Connection {
    /// Returns the server's end, at which each message is waited for within a limit.
    pub(crate) fn accepted(stream: UnixStream, limit: Duration) -> io::Result<Connection> {
        let connection = Connection { stream, secret: String::new(), image: OsString::new() };
        connection.limit(Some(limit))?;
        Ok(connection)
    }

    /// Connects to a server. While the queue of those whom it has not accepted is full, waits, for
    /// at most `limit`.
    ///
    /// # Errors
    /// `EPROTO` for no address of a vfscale mount, `ETIMEDOUT`, `ECONNREFUSED`; other errors of
    /// `connect(2)`.
    pub fn open(address: &Address, limit: Option<Duration>) -> Result<Connection, Error> {
        let digits = str::from_utf8(address).ok();
        // A server of another user must not choose what is sent, or to which other program.
        let digits = digits.filter(|it| it.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let (name, secret) = digits.map(|it| it.split_at(it.len() / 2)).ok_or(Errno::PROTO)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let stream = UnixStream::from(socket);
        // Linux limits by it also the time for which `connect` waits.
        stream.set_write_timeout(limit)?;
        match rustix::net::connect(&stream, &socket_address(name)?) {
            Err(Errno::AGAIN) => Err(Error::late(limit.unwrap_or_default())),
            connected => {
                connected?;
                Ok(Connection { stream, secret: secret.into(), image: OsString::new() })
            }
        }
    }

    /// Limits the time for each message from now on.
    ///
    /// # Errors
    /// `EINVAL` if it is zero.
    pub fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(limit)?;
        self.stream.set_write_timeout(limit)
    }

    /// Makes requests about the image at a path, which a server refuses that has another one: a
    /// mount may have the name of an image without being of it.
    #[must_use]
    pub fn about(self, image: &Path) -> Connection {
        Connection { image: image_id(image), ..self }
    }

    /// Returns the effective user of the process at the other end, at the time when it connected
    /// or began to listen.
    ///
    /// # Errors
    /// Any error of `getsockopt(2)`.
    pub fn user(&self) -> io::Result<u32> {
        Ok(self.peer()?.uid.as_raw())
    }

    /// Returns the id of the process at the other end, at that time.
    ///
    /// # Errors
    /// Any error of `getsockopt(2)`.
    pub fn process(&self) -> io::Result<i32> {
        Ok(self.peer()?.pid.as_raw_pid())
    }

    /// Returns the process at the other end, and its user.
    pub(crate) fn peer(&self) -> io::Result<UCred> {
        Ok(sockopt::socket_peercred(&self.stream)?)
    }

    /// Returns whether the other side has closed the connection. Never blocks.
    pub fn is_gone(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = rustix::net::recv(&self.stream, &mut [0_u8; 1][..], flags);
        !matches!(peeked, Ok((_, 1..)) | Err(Errno::AGAIN))
    }

    /// Returns another handle of the connection, which ends with the last one.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn try_clone(&self) -> io::Result<Connection> {
        let Connection { stream, secret, image } = self;
        let (secret, image) = (secret.clone(), image.clone());
        Ok(Connection { stream: stream.try_clone()?, secret, image })
    }

    /// Sends nothing from now on. The other side may still reply.
    ///
    /// # Errors
    /// Any error of `shutdown(2)`.
    pub fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Returns whether the other side has closed the connection for replies, too. Never blocks.
    pub fn is_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Waits until the other side sends nothing any more, for at most `limit`, if there is one;
    /// returns whether that is so. What it sends ends the wait as well.
    pub fn await_end(&self, limit: Option<Duration>) -> bool {
        let limited = self.stream.set_read_timeout(limit);
        let peeked = limited.and_then(|()| {
            let peek = || rustix::net::recv(&self.stream, &mut [0_u8; 1][..], RecvFlags::PEEK);
            Ok(rustix::io::retry_on_intr(peek)?)
        });
        !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Any error of the socket.
    pub fn send(&self, request: &Request) -> Result<(), Error> {
        let head = [VERSION.into(), OsString::from(&self.secret), self.image.clone()];
        let fields: Fields = head.into_iter().chain(request.encode()).collect();
        message::send(&self.stream, &fields).map_err(|error| match self.next() {
            // A server refuses a process before it has read anything.
            Err(refused) if refused.errno() != Errno::PIPE => refused,
            _ => error.into(),
        })
    }

    /// Receives a request about the mount with a secret and an image.
    ///
    /// # Errors
    /// `EPROTO` if it is of another version, or does not know the secret, `EXDEV` if it is about
    /// another image; any error of the socket.
    pub(crate) fn request(&self, secret: &str, image: &OsStr) -> Result<Request, Error> {
        match &message::receive(&self.stream)?[..] {
            [version, known, named, rest @ ..] if version == VERSION && known == secret => {
                if !named.is_empty() && named != image {
                    return Err(Error::new(Errno::XDEV, "its mount is of another image"));
                }
                Request::decode(rest).ok_or_else(|| Errno::PROTO.into())
            }
            _ => Err(Errno::PROTO.into()),
        }
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// Any error of the socket.
    pub fn reply(&self, reply: &Reply) -> io::Result<()> {
        message::send(&self.stream, &reply.encode())
    }

    /// Sends the reply that the request is not done, and why.
    ///
    /// # Errors
    /// Any error of the socket.
    pub fn refuse(&self, errno: Errno, why: impl Into<String>) -> io::Result<()> {
        self.reply(&Reply::Refused(Error::new(errno, why)))
    }

    /// Receives a reply; `None` for the last one of a request that is done.
    ///
    /// # Errors
    /// Why the request is not done; `EPIPE` if the server is gone, `ETIMEDOUT` after the
    /// [limit](Self::limit), `EPROTO` for what no server of this version replies.
    pub fn next(&self) -> Result<Option<Reply>, Error> {
        match Reply::decode(&message::receive(&self.stream)?) {
            Some(Reply::End) => Ok(None),
            Some(Reply::Refused(error)) => Err(error),
            Some(reply) => Ok(Some(reply)),
            None => Err(Errno::PROTO.into()),
        }
    }

    /// Sends a descriptor, and words about it.
    ///
    /// # Errors
    /// Any error of the socket.
    pub fn send_fd(&self, fd: BorrowedFd<'_>, words: &[&OsStr]) -> io::Result<()> {
        message::send_fd(&self.stream, fd)?;
        let fields: Fields = words.iter().map(|it| (*it).to_owned()).collect();
        message::send(&self.stream, &fields)
    }

    /// Receives a descriptor, and words about it.
    ///
    /// # Errors
    /// `InvalidData` if there is none; any error of the socket.
    pub fn receive_fd(&self) -> io::Result<(OwnedFd, Vec<OsString>)> {
        Ok((message::receive_fd(&self.stream)?, message::receive(&self.stream)?))
    }

    /// Makes a request, and hands each reply to `take`, which returns whether it understands it.
    /// Blocks until it is done.
    ///
    /// # Errors
    /// Errors of [`next`](Self::next); see [`Request`] for what is refused.
    pub fn ask(&self, request: &Request, mut take: impl FnMut(Reply) -> bool) -> Result<(), Error> {
        self.send(request)?;
        while let Some(reply) = self.next()? {
            if !take(reply) {
                return Err(Errno::PROTO.into());
            }
        }
        Ok(())
    }

    /// Makes a request without a result.
    ///
    /// # Errors
    /// Errors of [`ask`](Self::ask).
    pub fn tell(&self, request: &Request) -> Result<(), Error> {
        self.ask(request, |_| false)
    }

    /// Makes a request with one result.
    fn ask_one<T>(
        &self,
        request: &Request,
        found: impl Fn(Reply) -> Option<T>,
    ) -> Result<T, Error> {
        let mut result = None;
        self.ask(request, |reply| {
            result = found(reply);
            result.is_some()
        })?;
        result.ok_or_else(|| Errno::PROTO.into())
    }

    fn number(&self, request: &Request) -> Result<u64, Error> {
        self.ask_one(request, |reply| match reply {
            Reply::Number(number) => Some(number),
            _ => None,
        })
    }

    /// Grows the volume in a branch of the image, or the one that is mounted if none is named.
    /// Returns its size in bytes, which is durable. Blocks for the I/O.
    ///
    /// # Errors
    /// * `EOPNOTSUPP` if the file system has no size of its own.
    /// * `EINVAL` if it is larger already, `EFBIG` if that is more than the maximum.
    /// * `EBUSY` if it has grown too often since it was mounted.
    /// * `ENOSPC` if its device is smaller or has no space; `ENOENT` if there is no such branch.
    /// * `EROFS`, `EIO`.
    pub fn grow(&self, branch: Option<&str>, growth: Growth) -> Result<u64, Error> {
        self.number(&Request::Grow(branch.map(str::to_owned), growth))
    }

    /// Grows the space that the branches of the image share; without a size it takes all of its
    /// file or device. Returns the size in bytes, which is durable. Blocks for the I/O.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the image has no branches; otherwise as [`grow`](Self::grow).
    pub fn grow_space(&self, growth: Option<Growth>) -> Result<u64, Error> {
        self.number(&Request::GrowSpace(growth))
    }

    /// Discards the free blocks in a range of the file system, as `fstrim(8)` does. Returns the
    /// number of bytes that were discarded. Blocks for the I/O.
    ///
    /// # Errors
    /// * `EOPNOTSUPP` if the file system or its device can't discard.
    /// * `EINVAL` for a range outside of the file system, or of less than a block.
    /// * `EROFS`, `EIO`.
    pub fn trim(&self, range: FstrimRange) -> Result<u64, Error> {
        self.number(&Request::Trim(range))
    }

    /// Reads the statistics of the mount. This costs the mount nothing of its caches.
    ///
    /// # Errors
    /// Errors of [`next`](Self::next).
    pub fn statistics(&self) -> Result<Statistics, Error> {
        self.ask_one(&Request::Statistics, |reply| match reply {
            Reply::Statistics(statistics) => Some(*statistics),
            _ => None,
        })
    }

    /// Lists the branches of the image.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it has none.
    pub fn branches(&self) -> Result<Vec<BranchInfo>, Error> {
        let mut branches = Vec::new();
        self.ask(&Request::Branches, |reply| match reply {
            Reply::Branch(info) => {
                branches.push(info);
                true
            }
            _ => false,
        })?;
        Ok(branches)
    }

    /// Checks the volume in a branch as it is now, and tells so many findings at most. Blocks for
    /// the I/O.
    ///
    /// # Errors
    /// `ENOENT` if there is no such branch, or the image has none; `EOPNOTSUPP` if the server
    /// serves no further branches; why the volume can't be checked.
    pub fn check(&self, branch: &str, findings: u64) -> Result<Checked, Error> {
        self.ask_one(&Request::Check(branch.to_owned(), findings), |reply| match reply {
            Reply::Checked(checked) => Some(checked),
            _ => None,
        })
    }

    /// Returns an id of what a branch has now. That of `main` makes the image a pool. Blocks for
    /// the I/O.
    ///
    /// # Errors
    /// `ENOENT` if there is no such branch; `EOPNOTSUPP` if the image has none, or the server
    /// serves no further branches.
    pub fn state(&self, branch: &str) -> Result<[u8; 16], Error> {
        let mut state = None;
        self.ask(&Request::State(branch.to_owned()), |reply| match reply {
            Reply::State(id) => state.replace(id).is_none(),
            reply => reply == Reply::Stage(Stage::Pool),
        })?;
        state.ok_or_else(|| Errno::PROTO.into())
    }

    /// Writes a view of a branch that can only be read to the file with a name in a directory.
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// Errors of [`state`](Self::state); why there is no view.
    pub fn view(&self, branch: &str, (dir, name): (BorrowedFd<'_>, &OsStr)) -> Result<View, Error> {
        self.send(&Request::View(branch.to_owned()))?;
        self.expect(Stage::Ready)?;
        self.send_fd(dir, &[name])?;
        let [Some(Reply::Number(inodes)), Some(Reply::Number(bytes))] =
            [self.next()?, self.next()?]
        else {
            return Err(Errno::PROTO.into());
        };
        let marked = match self.next()? {
            Some(Reply::Text(path)) if self.next()?.is_none() => Some(path.into()),
            None => None,
            Some(_) => return Err(Errno::PROTO.into()),
        };
        Ok(View { inodes, bytes, marked })
    }

    /// Writes the layer that leads from branch `a` to branch `b`, or from what both had in common,
    /// to a file. Returns the number of files in it. Blocks for the I/O.
    ///
    /// # Errors
    /// `ENOENT` if there is no such branch; which file can't be in a layer; why it can't be
    /// written.
    pub fn layer(
        &self,
        (a, b): (&str, &str),
        with_base: bool,
        paths: Vec<OsString>,
        out: BorrowedFd<'_>,
    ) -> Result<u64, Error> {
        let (a, b) = (a.to_owned(), b.to_owned());
        self.send(&Request::Layer { a, b, with_base, paths })?;
        self.expect(Stage::Ready)?;
        self.send_fd(out, &["".as_ref()])?;
        match [self.next()?, self.next()?] {
            [Some(Reply::Number(count)), None] => Ok(count),
            _ => Err(Errno::PROTO.into()),
        }
    }

    /// Applies the layer or the patch in a file to a branch. Blocks for the I/O.
    ///
    /// # Errors
    /// `ENOENT` if there is no such branch, `EBUSY` if it is mounted; what can't be applied.
    pub fn apply(
        &self,
        branch: &str,
        (strip, dry_run): (u64, bool),
        input: BorrowedFd<'_>,
    ) -> Result<Applied, Error> {
        self.send(&Request::Apply { branch: branch.to_owned(), strip, dry_run })?;
        self.expect(Stage::Ready)?;
        self.send_fd(input, &["".as_ref()])?;
        let mut counts = [0; 5];
        for count in &mut counts {
            let Some(Reply::Number(number)) = self.next()? else { return Err(Errno::PROTO.into()) };
            *count = number;
        }
        let [is_layer, written, removed, untold, is_done] = counts;
        let (is_layer, is_done) = (is_layer != 0, is_done != 0);
        self.next()?;
        Ok(Applied { is_layer, written, removed, untold, is_done })
    }

    /// Writes a branch as a stream to a file ([`Pool::send`](vfscale::Pool::send)), which `out`
    /// returns when the server is ready to write. Blocks for the I/O.
    ///
    /// # Errors
    /// `ENOENT` if there is no such branch; why it can't be sent or written.
    pub fn send_branch<'f>(
        &self,
        branch: &str,
        since: Option<&str>,
        skip: u64,
        out: impl FnOnce() -> BorrowedFd<'f>,
    ) -> Result<Sent, Error> {
        let (branch, since) = (branch.to_owned(), since.map(str::to_owned));
        self.send(&Request::Send { branch, since, skip })?;
        self.expect(Stage::Ready)?;
        self.send_fd(out(), &["".as_ref()])?;
        let [bytes, data] = self.two_numbers()?;
        Ok(Sent { bytes, data })
    }

    /// Makes a branch of a stream in a file ([`Pool::receive`](vfscale::Pool::receive)), which
    /// `input` returns when the server is ready to read. Blocks for the I/O.
    ///
    /// # Errors
    /// `EBADMSG` if it is damaged, cut or none, `ENOENT` if what it goes on from is not there,
    /// `EEXIST`, `ENOSPC`.
    pub fn receive_branch<'f>(
        &self,
        name: Option<&str>,
        input: impl FnOnce() -> BorrowedFd<'f>,
    ) -> Result<Received, Error> {
        self.send(&Request::Receive(name.map(str::to_owned)))?;
        self.expect(Stage::Ready)?;
        self.send_fd(input(), &["".as_ref()])?;
        let Some(Reply::Kept(name)) = self.next()? else { return Err(Errno::PROTO.into()) };
        let [bytes, data] = self.two_numbers()?;
        Ok(Received { name, bytes, data })
    }

    /// Receives two numbers, and the end.
    fn two_numbers(&self) -> Result<[u64; 2], Error> {
        match [self.next()?, self.next()?, self.next()?] {
            [Some(Reply::Number(one)), Some(Reply::Number(other)), None] => Ok([one, other]),
            _ => Err(Errno::PROTO.into()),
        }
    }

    /// Takes over into a branch what was changed above a view of `base`: the file with a name in a
    /// directory. `above` is the directory with the upper layer and the directory for its work, and
    /// their names; `userxattr` tells whether the overlay has that option. Returns the branch that
    /// has the changes, if the branch could not take them. Blocks for the I/O.
    ///
    /// # Errors
    /// Errors of [`state`](Self::state); which file can't be taken over.
    pub fn ingest(
        &self,
        (branch, base): (&str, &str),
        (views, view): (BorrowedFd<'_>, &OsStr),
        (above, names): (BorrowedFd<'_>, [&OsStr; 2]),
        userxattr: bool,
    ) -> Result<Option<String>, Error> {
        let (branch, base) = (branch.to_owned(), base.to_owned());
        self.send(&Request::Ingest { branch, base, userxattr })?;
        self.expect(Stage::Ready)?;
        self.send_fd(views, &[view])?;
        self.send_fd(above, &names)?;
        match self.next()? {
            None => Ok(None),
            Some(Reply::Kept(name)) => self.next().map(|_| Some(name)),
            Some(_) => Err(Errno::PROTO.into()),
        }
    }

    /// Freezes the volume until this connection ends, and for at most `limit` (in milliseconds; an
    /// hour at most): its device, and that of its log, have everything that has reached the server,
    /// in place and durable, and do not change. A copy or a snapshot of them that is made meanwhile
    /// opens with nothing to replay. Calls that change the file system sleep until the thaw, and
    /// may keep others waiting; so this process must make none. If it is a branch, all branches of
    /// the image are frozen, and requests about them wait. Blocks for the I/O.
    ///
    /// # Errors
    /// * `EOPNOTSUPP` if it is in memory.
    /// * `EBUSY` if a branch of the image is just being opened.
    /// * `EINVAL` for another `limit`.
    /// * `EIO` or another error of the device if it can't be frozen.
    pub fn freeze(&self, limit: Duration) -> Result<(), Error> {
        self.send(&Request::Freeze(limit))?;
        self.expect(Stage::Frozen)
    }

    /// Waits for a stage.
    ///
    /// # Errors
    /// Errors of [`next`](Self::next); `EPROTO` for another reply.
    pub fn expect(&self, stage: Stage) -> Result<(), Error> {
        if self.next()? == Some(Reply::Stage(stage)) { Ok(()) } else { Err(Errno::PROTO.into()) }
    }
}

/// Returns a name of an image by which both sides know whether they mean the same one: of a file or
/// a block device its numbers, otherwise the path.
pub(crate) fn image_id(image: &Path) -> OsString {
    match image.metadata() {
        Ok(meta) if meta.file_type().is_block_device() => format!("block {}", meta.rdev()).into(),
        Ok(meta) => format!("file {} {}", meta.dev(), meta.ino()).into(),
        Err(_) => image.into(),
    }
}

/// Returns the address of a socket with a name of digits.
pub(crate) fn socket_address(digits: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("vfscale-{digits}").as_bytes())?)
}
