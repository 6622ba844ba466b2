//! Requests to this process about itself: to serve further branches of its image, also to native
//! runs, and to tell of the end of a mount.
//!
//! They come over the sockets of its mounts ([`control`](vfscale_fuse::control)), of its own user
//! and of root.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vfscale::pool::MAIN;
use vfscale::{Errno, Escaped, ForkOptions, Pool, PoolError};
use vfscale_command::say;
use vfscale_fuse::control::{Connection, Host, Reply, Request, Stage};
use vfscale_fuse::{Builder, Mounted, Unserved};

use super::{
    Entry, Refusal, Served, Shared, Ticket, Untold, device_of, device_text, namespaces,
    start_thread, views,
};
use crate::checked::check_open;
use crate::error::Failure;
use crate::options::MountOptions;
use crate::source::args::{ServeArgs, SourceArgs};
use crate::source::{self, Source};

/// Parses the command line of another process that mounts, or says why it names no mount.
pub(crate) type Parse = fn(&[OsString]) -> Result<Wish, String>;

/// The mount that a command line names.
pub(crate) struct Wish {
    pub(crate) source: SourceArgs,
    pub(crate) serve: ServeArgs,
    pub(crate) life: Life,
}

/// How long a mount lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Until somebody unmounts it.
    Mount,
    /// Until the commands have ended that run in it.
    Run,
    /// Until the command has ended, and its branch as well, which is a new one.
    Trial,
}

/// Time that processes left behind by a run that was killed get to leave its mount.
const PATIENCE: Duration = Duration::from_millis(500);

/// The reply of a server whose image is no pool.
const NO_BRANCHES: &str =
    "it is mounted, and has no branches yet: `vfscale branch create` makes the first one";

/// The reply of a server that can't make a pool of its image.
const NO_POOL: &str = "what is mounted of it is in memory, or has its log elsewhere";

/// The reply of a server that takes no mount any more.
const ENDING: &str = "its server is ending: try again";

/// Returns what serves requests to this process. `parse` parses the command lines that arrive.
pub(crate) fn host(served: &Arc<Served>, image: Option<&Path>, parse: Parse) -> Host {
    // A server leaves its working directory.
    let image = image.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned()));
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
    options: MountOptions,
    wish: Wish,
}

/// The branch of a trial, which is deleted when this is dropped; its volume is closed by then.
pub(crate) struct Trial {
    pub(crate) pool: Pool,
    pub(crate) branch: String,
}

impl Trial {
    /// Makes a copy of the branch `parent`. Should this process be killed, the next opening of the
    /// image deletes it.
    pub(crate) fn fork(pool: Pool, parent: &str) -> Result<Trial, PoolError> {
        let options = ForkOptions::new().temporary(true);
        loop {
            let branches = pool.branches();
            let mut names = (0_u64..).map(|number| format!("run {number}"));
            let is_free = |name: &String| branches.iter().all(|info| info.name != *name);
            let branch = names.find(is_free).unwrap_or_default();
            match pool.fork_with(parent, &branch, options) {
                // Another command has been faster.
                Err(error) if error.errno() == Errno::EXIST => {}
                forked => return forked.map(|()| Trial { pool, branch }),
            }
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Err(error) = self.pool.delete(&self.branch) {
            let left = "the branch of the command is left until the image is opened next";
            say(format_args!("vfscale: {left}: {error}"));
        }
    }
}

/// Returns the options by which runs of one branch know whether they can use one mount.
pub(crate) fn shared_options(
    source: &SourceArgs,
    serve: &ServeArgs,
    options: &MountOptions,
) -> String {
    format!("{options:?} {:?} {}", source.before, serve.proc)
}

impl Listening {
    fn answer(&self, request: Request, connection: &Connection) -> io::Result<()> {
        match request {
            Request::Mount { namespaces: theirs, .. } if theirs != namespaces() => {
                let why = "its server is in another namespace of users or processes";
                connection.refuse(Errno::INVAL, why)
            }
            Request::Mount { branch, arguments, .. } => match (self.parse)(&arguments) {
                Ok(wish) => {
                    let mut options = wish.serve.merged_options();
                    if wish.life != Life::Mount {
                        // As `run` has it itself.
                        options.allow_other.get_or_insert(false);
                    }
                    self.begin(connection, Wanted { branch, options, wish })
                }
                Err(why) => connection.refuse(Errno::INVAL, why),
            },
            Request::Places => {
                for (branch, device, dir) in self.served.places() {
                    let device = device_text(device);
                    connection.reply(&Reply::Place { branch, device, dir })?;
                }
                connection.reply(&Reply::End)
            }
            // Of a volume without branches, its superblock tells whether it was closed.
            Request::Wait(_) if self.served.pool().is_none() => {
                self.refuse_without_pool(connection)
            }
            Request::Wait(device) => {
                let device = device_of(OsStr::new(&device)).ok_or(io::ErrorKind::InvalidData)?;
                let _untold = self.served.untold();
                connection.reply(&Reply::Stage(Stage::Waiting))?;
                tell_end(&self.served, connection, device, || !connection.is_gone())
            }
            Request::Check(branch, findings) => self.check(connection, &branch, findings),
            Request::State(_) | Request::View(_) | Request::Ingest { .. } => {
                // A run can't know whether a request was done whose reply it has not got.
                let _untold = self.served.untold();
                let branch = if let Request::State(branch) = &request { branch } else { "" };
                match self.pool_of(connection, branch)? {
                    Some(pool) => views::answer(&pool, &request, connection),
                    None => Ok(()),
                }
            }
            _ => connection.refuse(Errno::INVAL, "this request is none to the process"),
        }
    }

    /// Checks a branch as it is now. The process may end meanwhile, and the other one then does so.
    fn check(&self, connection: &Connection, branch: &str, findings: u64) -> io::Result<()> {
        let Some(pool) = self.pool_of(connection, "")? else { return Ok(()) };
        let image = self.image.as_deref().unwrap_or(Path::new("")).display();
        match check_open(&pool, branch, &format!("{image}:{branch}"), findings) {
            Ok(checked) => {
                connection.reply(&Reply::Checked(checked))?;
                connection.reply(&Reply::End)
            }
            Err(Failure::Pool(error)) => connection.refuse(error.errno(), error.to_string()),
            Err(failure) => connection.refuse(Errno::IO, failure.to_string()),
        }
    }

    /// Finds a place for a mount, and serves it until it is ended.
    fn begin(&self, connection: &Connection, mut wanted: Wanted) -> io::Result<()> {
        let trial = match wanted.wish.life {
            Life::Trial => match self.fork(connection, &mut wanted)? {
                Some(trial) => Some(trial),
                None => return Ok(()),
            },
            Life::Mount | Life::Run => None,
        };
        let pool = self.served.pool();
        let Wanted { branch, options, wish } = &wanted;
        let read_only = options.is_read_only();
        let entered = match wish.life {
            // Its name is its own.
            Life::Mount | Life::Trial => self.served.reserve(branch, read_only).map(Entry::New),
            Life::Run => {
                let shared = shared_options(&wish.source, &wish.serve, options);
                self.served.enter(branch, read_only, shared)
            }
        };
        let (ticket, pool) = match (entered, pool) {
            (Ok(Entry::New(ticket)), Some(pool)) => (ticket, pool),
            (Ok(Entry::New(ticket)), None) => {
                drop(ticket);
                return self.refuse_without_pool(connection);
            }
            (Ok(Entry::Shared(shared)), _) => return self.share(connection, branch, shared),
            (Err(Refusal::Ending), _) => return connection.refuse(Errno::AGAIN, ENDING),
            (Err(Refusal::Mounted(dir)), _) => {
                return connection.refuse(Errno::BUSY, is_mounted(branch, dir));
            }
        };
        self.mount(connection, (pool, trial), &wanted, ticket)
    }

    /// Makes the branch of a trial, and has `wanted` name it. `None` if the command is refused.
    fn fork(&self, connection: &Connection, wanted: &mut Wanted) -> io::Result<Option<Trial>> {
        let Some(pool) = self.pool_of(connection, &wanted.branch)? else { return Ok(None) };
        match Trial::fork(pool, &wanted.branch) {
            Ok(trial) => {
                wanted.branch.clone_from(&trial.branch);
                Ok(Some(trial))
            }
            Err(error) => connection.refuse(error.errno(), error.to_string()).map(|()| None),
        }
    }

    /// Returns the pool that has a branch. The image becomes one if it is none, and the branch is
    /// its first one. `None` if the command is refused.
    fn pool_of(&self, connection: &Connection, branch: &str) -> io::Result<Option<Pool>> {
        let pool = match (self.served.pool(), self.served.maker()) {
            (Some(pool), _) => return Ok(Some(pool)),
            (None, Some(maker)) if branch == MAIN => {
                connection.reply(&Reply::Stage(Stage::Pool))?;
                maker.make_pool()
            }
            (None, _) => return self.refuse_without_pool(connection).map(|()| None),
        };
        match pool {
            Ok(pool) => Ok(Some(pool)),
            Err(error) => connection.refuse(error.errno(), error.to_string()).map(|()| None),
        }
    }

    fn refuse_without_pool(&self, connection: &Connection) -> io::Result<()> {
        // A server begins with a mount, and of such an image it gets no other one.
        let is_ending = self.served.is_ending() || self.served.places().is_empty();
        match (is_ending, self.served.maker()) {
            (true, _) => connection.refuse(Errno::AGAIN, ENDING),
            (false, Some(_)) => connection.refuse(Errno::NOENT, NO_BRANCHES),
            (false, None) => connection.refuse(Errno::OPNOTSUPP, NO_POOL),
        }
    }

    /// Lets a run use a mount that others use.
    fn share(&self, connection: &Connection, branch: &str, shared: Shared) -> io::Result<()> {
        let Shared { number, device, dir } = shared;
        let untold = self.served.untold();
        let (branch, number_text) = (branch.to_owned(), device_text(device));
        // A run that is gone is noticed below.
        let _ = connection.reply(&Reply::Place { branch, device: number_text, dir });
        follow(connection, &untold, number, device)
    }

    /// Serves a mount until it is ended.
    fn mount(
        &self,
        connection: &Connection,
        (pool, trial): (Pool, Option<Trial>),
        wanted: &Wanted,
        ticket: Ticket,
    ) -> io::Result<()> {
        let Wanted { branch, options, wish } = wanted;
        let opened = Source::of_branch(&pool, branch, &wish.source, options);
        drop(pool);
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return connection.refuse(Errno::INVAL, error.to_string()),
        };
        let mounted = match self.take(connection, &opened, wanted, &ticket) {
            Ok(mounted) => mounted,
            Err((errno, error)) => {
                let closed = opened.close();
                drop(ticket);
                report(branch, closed);
                return connection.refuse(errno, error.to_string());
            }
        };
        let is_run = wish.life != Life::Mount;
        let dir = Escaped::new(mounted.dir()).to_string();
        if !is_run {
            say(format_args!("vfscale: branch {branch:?} is mounted at {dir}"));
        }
        // The command may be gone: the mount stays, but that of a run.
        let told = connection.reply(&Reply::Stage(Stage::Mounted));
        mounted.wait();
        ticket.close();
        let closed = opened.close().map_err(|error| error.to_string());
        drop(trial);
        ticket.closed(&closed);
        let _untold = ticket.end();
        if !is_run {
            say(format_args!("vfscale: branch {branch:?} is unmounted from {dir}"));
        }
        if let Err(why) = &closed {
            say(format_args!("vfscale: {why}"));
        }
        match closed {
            _ if is_run => Ok(()),
            Ok(()) => told.and_then(|()| connection.reply(&Reply::Stage(Stage::Closed))),
            Err(why) => told.and_then(|()| connection.refuse(Errno::IO, why)),
        }
    }

    /// Starts a thread that notices when a run has finished.
    fn follow_run(
        &self,
        connection: &Connection,
        ticket: &Ticket,
        mounted: &Mounted,
    ) -> io::Result<()> {
        let (connection, untold) = (connection.try_clone()?, self.served.untold());
        let (number, device) = (ticket.number(), mounted.device()?);
        let follow = move || {
            if let Err(error) = follow(&connection, &untold, number, device) {
                tracing::info!("a run has not heard of the end of its mount: {error}");
            }
        };
        start_thread("vfscale-run", follow).map_err(io::Error::other)
    }

    /// Has the command make the mount, and begins to serve it.
    fn take(
        &self,
        connection: &Connection,
        source: &Source,
        wanted: &Wanted,
        ticket: &Ticket,
    ) -> Result<Mounted, (Errno, Failure)> {
        let failed = |e| (Errno::INVAL, Failure::System("the command that mounts", e));
        let refused = |e: Failure| (Errno::INVAL, e);
        let Wanted { options, wish, .. } = wanted;
        let builder = source::builder(source, &wish.serve, options, None).map_err(refused)?;
        connection.reply(&Reply::Stage(Stage::Ready)).map_err(failed)?;
        let unserved = unserved(connection).map_err(failed)?;
        let image = self.image.as_deref();
        let builder = builder.host(host(&self.served, image, self.parse));
        let builder = image.into_iter().fold(builder, Builder::image);
        let mounted = builder.serve(unserved).map_err(|e| refused(e.into()))?;
        if !ticket.start(&mounted, source.syncer()) {
            // Ends the mount.
            drop(mounted);
            return Err((Errno::AGAIN, Failure::Usage(ENDING.into())));
        }
        if wish.life != Life::Mount {
            self.follow_run(connection, ticket, &mounted).map_err(failed)?;
        }
        source.publish_mount(&mounted);
        Ok(mounted)
    }
}

/// Waits until a run has finished with its mount, or is gone, and has the last one end the mount.
/// The process does not end before the run has been told.
fn follow(
    connection: &Connection,
    untold: &Untold,
    number: u64,
    device: (u32, u32),
) -> io::Result<()> {
    let served = &untold.0;
    while !connection.await_end(None) {}
    if !served.leave(number) {
        return connection.reply(&Reply::End);
    }
    let told = connection.reply(&Reply::Stage(Stage::Unused));
    let told =
        told.and_then(|()| tell_end(served, connection, device, || !connection.is_hung_up()));
    // If the run is gone, nobody else does it.
    served.unmount(number, PATIENCE);
    told
}

/// Tells a program of the end of a mount, unless it does not wait any more.
fn tell_end(
    served: &Served,
    connection: &Connection,
    device: (u32, u32),
    is_awaited: impl Fn() -> bool,
) -> io::Result<()> {
    match served.wait_for(device, is_awaited) {
        Ok(true) => connection.reply(&Reply::Stage(Stage::Closed)),
        Ok(false) => {
            connection.reply(&Reply::Stage(Stage::Last))?;
            connection.try_clone().map(|clone| served.retain(clone))
        }
        Err(why) => connection.refuse(Errno::IO, why),
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
fn is_mounted(branch: &str, dir: Option<PathBuf>) -> String {
    match dir {
        Some(dir) => {
            let (process, dir) = (std::process::id(), Escaped::new(&dir));
            format!("in use by process {process}: branch {branch:?} is mounted at {dir} already")
        }
        None => format!("branch {branch:?} is being mounted or unmounted"),
    }
}

/// Reports that a volume could not be closed.
fn report(branch: &str, closed: Result<(), Failure>) {
    if let Err(error) = closed {
        say(format_args!("vfscale: branch {branch:?}: {error}"));
    }
}
