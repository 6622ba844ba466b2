//! Requests to this process about itself: to serve further branches of its image, and to tell of
//! the end of a mount.
//!
//! They come over the sockets of its mounts ([`control`](vfscale_fuse::control)), of its own user
//! and of root.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfscale::{Errno, Escaped, Pool};
use vfscale_command::say;
use vfscale_fuse::control::{Connection, Host, Reply, Request, Stage};
use vfscale_fuse::{Builder, Mounted, Unserved};

use super::{Refusal, Served, Ticket, device_of, namespaces};
use crate::error::Failure;
use crate::source::args::{ServeArgs, SourceArgs};
use crate::source::{self, Source};

/// Parses the command line of another process that mounts, or says why it names no mount.
pub(crate) type Parse = fn(&[OsString]) -> Result<(SourceArgs, ServeArgs), String>;

/// The reply of a server whose image is no pool.
const NO_BRANCHES: &str =
    "it is mounted, and has no branches yet: `vfscale branch create` makes the first one";

/// The reply of a server that takes no mount any more.
const ENDING: &str = "its server is ending: try again";

/// Returns what serves requests to this process. `parse` parses the command lines that arrive.
pub(crate) fn host(served: &Arc<Served>, image: Option<&Path>, parse: Parse) -> Host {
    let image = image.map(Path::to_owned);
    let listening = Listening { served: Arc::clone(served), image, parse };
    Arc::new(move |request, connection| listening.answer(request, connection))
}

struct Listening {
    served: Arc<Served>,
    image: Option<PathBuf>,
    parse: Parse,
}

/// The mount that a command asks for.
struct Wanted {
    branch: String,
    source: SourceArgs,
    serve: ServeArgs,
}

impl Listening {
    fn answer(&self, request: Request, connection: &Connection) -> io::Result<()> {
        let stage = |stage| connection.reply(&Reply::Stage(stage));
        let Some(pool) = self.served.pool() else {
            return match self.served.is_ending() {
                true => connection.refuse(Errno::AGAIN, ENDING),
                false => connection.refuse(Errno::OPNOTSUPP, NO_BRANCHES),
            };
        };
        match request {
            Request::Mount { namespaces: theirs, .. } if theirs != namespaces() => {
                let why = "its server is in another namespace of users or processes";
                connection.refuse(Errno::INVAL, why)
            }
            Request::Mount { branch, arguments, .. } => match (self.parse)(&arguments) {
                Ok((source, serve)) => {
                    self.mount(connection, pool, &Wanted { branch, source, serve })
                }
                Err(why) => connection.refuse(Errno::INVAL, why),
            },
            Request::Wait(device) => {
                drop(pool);
                let device = device_of(OsStr::new(&device)).ok_or(io::ErrorKind::InvalidData)?;
                let _untold = self.served.untold();
                stage(Stage::Waiting)?;
                match self.served.wait_for(device, || !connection.is_gone()) {
                    Ok(true) => stage(Stage::Closed),
                    Ok(false) => stage(Stage::Last),
                    Err(why) => connection.refuse(Errno::IO, why),
                }
            }
            _ => connection.refuse(Errno::INVAL, "this request is none to the process"),
        }
    }

    /// Serves a mount until it is ended.
    fn mount(&self, connection: &Connection, pool: Pool, wanted: &Wanted) -> io::Result<()> {
        let Wanted { branch, source, serve } = wanted;
        let options = serve.merged_options();
        let read_only = options.is_read_only();
        let ticket = match self.served.reserve(branch, read_only) {
            Ok(ticket) => ticket,
            Err(Refusal::Ending) => return connection.refuse(Errno::AGAIN, ENDING),
            Err(Refusal::Mounted(dir)) => {
                return connection.refuse(Errno::BUSY, is_mounted(branch, dir));
            }
        };
        let opened = Source::of_branch(&pool, branch, source, &options);
        drop(pool);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return connection.refuse(Errno::INVAL, error.to_string()),
        };
        let mounted = match self.take(connection, &opened, wanted, &ticket) {
            Ok(mounted) => mounted,
            Err(error) => {
                let closed = opened.close();
                drop(ticket);
                report(branch, closed);
                return connection.refuse(Errno::INVAL, error.to_string());
            }
        };
        let dir = Escaped::new(mounted.dir()).to_string();
        say(format_args!("vfscale: branch {branch:?} is mounted at {dir}"));
        // The command may be gone: the mount stays.
        let told = connection.reply(&Reply::Stage(Stage::Mounted));
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
            Ok(()) => connection.reply(&Reply::Stage(Stage::Closed)),
            Err(why) => connection.refuse(Errno::IO, why),
        }
    }

    /// Has the command make the mount, and begins to serve it.
    fn take(
        &self,
        connection: &Connection,
        source: &Source,
        wanted: &Wanted,
        ticket: &Ticket,
    ) -> Result<Mounted, Failure> {
        let failed = |e| Failure::System("the command that mounts", e);
        let options = wanted.serve.merged_options();
        let builder = source::builder(source, &wanted.serve, &options, None)?;
        connection.reply(&Reply::Stage(Stage::Ready)).map_err(failed)?;
        let unserved = unserved(connection).map_err(failed)?;
        let image = self.image.as_deref();
        let builder = builder.host(host(&self.served, image, self.parse));
        let builder = image.into_iter().fold(builder, Builder::image);
        let mounted = builder.serve(unserved)?;
        if !ticket.start(&mounted, source.syncer()) {
            // Ends the mount.
            drop(mounted);
            return Err(Failure::Usage(ENDING.into()));
        }
        source.publish_mount(&mounted);
        Ok(mounted)
    }
}

/// Receives a mount.
fn unserved(connection: &Connection) -> io::Result<Unserved> {
    let (fd, words) = connection.receive_fd()?;
    match &words[..] {
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
