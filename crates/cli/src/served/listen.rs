//! The socket at which this process is asked to serve further branches of its image.
//!
//! Its name is random, and the mounts tell it ([`control::socket`](vfscale_fuse::control::socket)).
//! The kernel says which user is at the other end: this process serves that of its own user and of
//! root.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vfscale::Escaped;
use vfscale_command::say;
use vfscale_fuse::{Mounted, Unserved};

use super::wire::{self, ENDING, VERSION, device_of, receive, receive_fd};
use super::{Refusal, Served, Ticket, compare};
use crate::error::Failure;
use crate::source::args::{ServeArgs, SourceArgs};
use crate::source::{self, Source};

/// Time that a command gets for each message, and for making its mount.
const PATIENCE: Duration = Duration::from_secs(30);

/// Parses the command line of another process that mounts, or says why it names no mount.
pub(crate) type Parse = fn(&[OsString]) -> Result<(SourceArgs, ServeArgs), String>;

/// Starts to listen for requests about an image, and returns the name of the socket; `None` if the
/// image can't have branches, or if there can be no socket. `parse` parses the command lines that
/// arrive.
pub(crate) fn start(served: &Arc<Served>, image: Option<&Path>, parse: Parse) -> Option<String> {
    let image = image.filter(|_| served.may_have_branches()).map(wire::image_id)?;
    let listen = || -> io::Result<String> {
        let mut random = [0; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("vfscale-{:032x}", u128::from_le_bytes(random));
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let listening = Listening { served: Arc::clone(served), name: name.clone(), image, parse };
        let thread = std::thread::Builder::new().name("vfscale-listen".into());
        thread.spawn(move || listening.run(&listener))?;
        Ok(name)
    };
    let started = listen();
    started.inspect_err(|e| tracing::warn!("other branches can't be mounted meanwhile: {e}")).ok()
}

#[derive(Clone)]
struct Listening {
    served: Arc<Served>,
    name: String,
    image: OsString,
    parse: Parse,
}

/// The mount that a command asks for.
struct Wanted {
    branch: String,
    source: SourceArgs,
    serve: ServeArgs,
}

impl Listening {
    fn run(&self, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let this = self.clone();
                    let thread = std::thread::Builder::new().name("vfscale-request".into());
                    if let Err(e) = thread.spawn(move || this.answer(&stream)) {
                        tracing::warn!("a request is not served: {e}");
                    }
                }
                Err(e) => {
                    tracing::warn!("a request is not served: {e}");
                    // There may be too many open files for a moment.
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    fn answer(&self, stream: &UnixStream) {
        if let Err(e) = self.answer_one(stream) {
            tracing::info!("a request was not served: {e}");
        }
    }

    fn answer_one(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if !wire::may_request(stream)? {
            return refuse(stream, "only root and the user who mounted the image may do that");
        }
        let fields = receive(stream)?;
        let words: Vec<&OsStr> = fields.iter().map(OsString::as_os_str).collect();
        match words[..] {
            // A mount can have the name of an image without being of it.
            [version, kind, image, ..]
                if version == VERSION
                    && kind != "wait"
                    && !image.is_empty()
                    && image != self.image =>
            {
                refuse(stream, "its mount is of another image")
            }
            [version, kind, _, branch, namespaces, ref rest @ ..]
                if version == VERSION && kind == "mount" =>
            {
                if namespaces != wire::namespaces() {
                    let why = "its server is in another namespace of users or processes";
                    return refuse(stream, why);
                }
                let arguments: Vec<OsString> = rest.iter().map(|it| (*it).to_owned()).collect();
                match self.wanted(branch, &arguments) {
                    Ok(wanted) => self.mount(stream, &wanted),
                    Err(why) => refuse(stream, &why),
                }
            }
            [version, kind, device] if version == VERSION && kind == "wait" => {
                let device = device_of(device).ok_or(io::ErrorKind::InvalidData)?;
                let _untold = self.served.untold();
                wire::say(stream, &["waiting"])?;
                match self.served.wait_for(device, || !wire::is_gone(stream)) {
                    Ok(has_others) => {
                        wire::say(stream, &[if has_others { "closed" } else { "last" }])
                    }
                    Err(why) => wire::say(stream, &["failed", &why]),
                }
            }
            [version, kind, _, one, other]
                if version == VERSION
                    && ["diff", "adopt", "rollback"].iter().any(|it| kind == *it) =>
            {
                let (Some(pool), Some(one), Some(other)) =
                    (self.served.pool(), one.to_str(), other.to_str())
                else {
                    return refuse(stream, "there is no such branch");
                };
                match kind.to_str() {
                    Some("diff") => compare::diff(stream, &pool, one, other),
                    Some("adopt") => compare::adopt(stream, &pool, one, other),
                    _ => compare::rollback(stream, &pool, one),
                }
            }
            _ => refuse(stream, "its server has another version of vfscale"),
        }
    }

    /// Returns the mount of a branch that a command line names, or why there is none.
    fn wanted(&self, branch: &OsStr, arguments: &[OsString]) -> Result<Wanted, String> {
        let branch = branch.to_str().ok_or("no branch has that name")?.to_owned();
        let (source, serve) = (self.parse)(arguments)?;
        Ok(Wanted { branch, source, serve })
    }

    /// Serves a mount until it is ended.
    fn mount(&self, stream: &UnixStream, wanted: &Wanted) -> io::Result<()> {
        let Wanted { branch, source, serve } = wanted;
        let options = serve.merged_options();
        let read_only = source::is_read_only(source, &options);
        let ticket = match self.served.reserve(branch, read_only) {
            Ok(ticket) => ticket,
            Err(Refusal::Ending) => return wire::say(stream, &[ENDING]),
            Err(Refusal::Mounted(dir)) => return refuse(stream, &is_mounted(branch, dir)),
        };
        let Some(pool) = self.served.pool() else { return wire::say(stream, &[ENDING]) };
        let opened = Source::of_branch(&pool, branch, source, &options);
        drop(pool);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return refuse(stream, &error.to_string()),
        };
        let mounted = match self.take(stream, &opened, wanted, &ticket) {
            Ok(mounted) => mounted,
            Err(error) => {
                let closed = opened.close();
                drop(ticket);
                report(branch, closed);
                return refuse(stream, &error.to_string());
            }
        };
        let dir = Escaped::new(mounted.dir()).to_string();
        say(format_args!("vfscale: branch {branch:?} is mounted at {dir}"));
        // The command may be gone: the mount stays.
        let told = wire::say(stream, &["mounted"]);
        mounted.wait();
        ticket.close();
        let closed = opened.close().map_err(|error| error.to_string());
        ticket.closed(&closed);
        let _untold = ticket.end();
        say(format_args!("vfscale: branch {branch:?} is unmounted from {dir}"));
        if let Err(why) = &closed {
            say(format_args!("vfscale: {why}"));
        }
        told?;
        match closed {
            Ok(()) => wire::say(stream, &["closed"]),
            Err(why) => wire::say(stream, &["failed", &why]),
        }
    }

    /// Has the command make the mount, and begins to serve it.
    fn take(
        &self,
        stream: &UnixStream,
        source: &Source,
        wanted: &Wanted,
        ticket: &Ticket,
    ) -> Result<Mounted, Failure> {
        let failed = |e| Failure::System("the command that mounts", e);
        let options = wanted.serve.merged_options();
        let builder = source::builder(source, &wanted.serve, &options, None)?;
        wire::say(stream, &["ready"]).map_err(failed)?;
        let unserved = unserved(stream).map_err(failed)?;
        let mounted = builder.requests_at(Some(self.name.clone())).serve(unserved)?;
        if !ticket.start(&mounted, source.syncer()) {
            // Ends the mount.
            drop(mounted);
            return Err(Failure::Usage("its server is ending: try again".into()));
        }
        source.publish_mount(&mounted);
        Ok(mounted)
    }
}

/// Receives a mount.
fn unserved(stream: &UnixStream) -> io::Result<Unserved> {
    let fd = receive_fd(stream)?;
    match &receive(stream)?[..] {
        [dir, device] if PathBuf::from(dir).is_absolute() => {
            let device = device_of(device).ok_or(io::ErrorKind::InvalidData)?;
            Ok(Unserved::new(fd, PathBuf::from(dir), device))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Says where a branch is mounted.
pub(crate) fn is_mounted(branch: &str, dir: Option<PathBuf>) -> String {
    match dir {
        Some(dir) => format!("branch {branch:?} is mounted at {} already", Escaped::new(&dir)),
        None => format!("branch {branch:?} is being mounted or unmounted"),
    }
}

/// Reports that a volume could not be closed.
fn report(branch: &str, closed: Result<(), Failure>) {
    if let Err(error) = closed {
        say(format_args!("vfscale: branch {branch:?}: {error}"));
    }
}

fn refuse(stream: &UnixStream, why: &str) -> io::Result<()> {
    wire::say(stream, &["refused", why])
}
