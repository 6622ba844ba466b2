//! The two processes of `vfscale run`.
//!
//! A shell stops and continues the processes that it has started, and so does Ctrl-Z. A server that
//! stops would hang every other process that uses its mount. So the server is a process of its own,
//! in a session without a terminal. The one that was started, the front, runs the command: it
//! passes signals on, stops when the command stops, and ends with its status. The server unmounts
//! when the front has closed its end of a socket, also because it was killed. It outlives the front
//! as long as it serves others that have joined.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, setsid, waitpid,
};
use vfscale_command::say;
use vfscale_command::signals::{Blocked, Caught, ENDING};
use vfscale_command::stderr::Log;

use super::args::RunArgs;
use super::checkpoints::Checkpoints;
use crate::child::{exit_code, in_mount, leave_terminal, program, spawn};
use crate::error::Failure;
use crate::options::MountOptions;
use crate::served::{Served, end_all};

/// Time that users of a mount get to leave it when a signal ends the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// One of the two processes.
pub(super) enum Side {
    Front(Front),
    Server(Server),
}

/// How the attempt to run a command has ended.
pub(super) enum Ran {
    /// The command has run, or the server has said why not.
    Ended(ExitCode),
    /// Another process has the image open; why that is not the server of a run.
    Busy(String),
}

/// The words that the server tells the front: it is mounted at a directory; the image is busy, and
/// why; the mount has ended, with a status, and the server goes on.
const MOUNTED: u8 = b'm';
const BUSY: u8 = b'b';
const ENDED: u8 = b'e';

/// Runs the command of a run, whose mount is at a directory.
pub(super) type Inside<'i> = &'i dyn Fn(&Path, Blocked) -> Result<ExitStatus, Failure>;

/// Mounts a file system, and runs the command of a run inside.
pub(super) type Mounting<'m> =
    &'m dyn Fn(&RunArgs, &MountOptions, Inside<'_>) -> Result<ExitCode, Failure>;

/// The process that the shell knows.
pub(super) struct Front {
    stream: UnixStream,
    server: Pid,
    signals: Blocked,
}

/// The process that serves the mount.
pub(super) struct Server {
    stream: UnixStream,
    front: Pid,
    signals: Blocked,
}

/// Starts the server, and returns in both processes. This process must have only one thread.
pub(super) fn split() -> Result<Side, Failure> {
    let signals = Blocked::for_jobs().map_err(|e| Failure::System("pthread_sigmask", e))?;
    let pid = getpid();
    let (front, server) = UnixStream::pair().map_err(|e| Failure::System("socketpair", e))?;
    // SAFETY: this process has one thread, so the child may do what this one may.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::System("fork", std::io::Error::last_os_error())),
        0 => {
            setsid().map_err(|e| Failure::System("setsid", e.into()))?;
            Ok(Side::Server(Server { stream: server, front: pid, signals }))
        }
        child => {
            let child = Pid::from_raw(child).ok_or(Errno::CHILD);
            let child = child.map_err(|e| Failure::System("fork", e.into()))?;
            Ok(Side::Front(Front { stream: front, server: child, signals }))
        }
    }
}

impl Server {
    /// Has the front run its command in a directory, and waits until that has ended. Passes signals
    /// on: others see this process as the one that has the image open. When the front has ended, a
    /// signal ends what is `served`.
    pub(super) fn run_in(&self, dir: &Path, served: &Arc<Served>) {
        let Self { front, signals, .. } = *self;
        let served = Arc::clone(served);
        std::thread::spawn(move || {
            loop {
                let caught = signals.wait();
                if getppid() == Some(front) {
                    if caught.signal != libc::SIGCHLD {
                        pass_on(caught, front);
                    }
                } else if ENDING.contains(&caught.signal) {
                    end_all(&served, PATIENCE);
                }
            }
        });
        self.tell(MOUNTED, dir.as_os_str().as_bytes());
        // The front says nothing, and ends.
        let ended = (&self.stream).read_to_end(&mut Vec::new());
        tracing::debug!("the command has ended: {ended:?}");
    }

    /// Tells the front that another process has the image open.
    pub(super) fn is_busy(&self, failure: &Failure) {
        self.tell(BUSY, failure.to_string().as_bytes());
    }

    /// Tells the front to end with a status, and goes on without it.
    pub(super) fn leave(&self, status: u8) {
        let left = leave_terminal(Log::System).map(|null| {
            let _ =
                rustix::stdio::dup2_stdin(&null).and_then(|()| rustix::stdio::dup2_stdout(&null));
        });
        if let Err(failure) = left {
            tracing::warn!("{failure}");
        }
        self.tell(ENDED, &[status]);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Sends a word with its length and its text. A front that is gone needs none.
    fn tell(&self, word: u8, text: &[u8]) {
        let length = u32::try_from(text.len()).unwrap_or_default().to_le_bytes();
        let _ = (&self.stream).write_all(&[&[word], &length[..], text].concat());
    }
}

impl Front {
    /// Runs the command when the server has mounted, and waits for the end of both, or until the
    /// server goes on for others. Returns the status of the server if that has failed, which has
    /// said why.
    pub(super) fn run(self, inside: Inside<'_>) -> Result<Ran, Failure> {
        let status = match self.next() {
            Some((MOUNTED, dir)) => Some(inside(Path::new(OsStr::from_bytes(&dir)), self.signals)),
            Some((BUSY, why)) => {
                wait(self.server)?;
                let restored = self.signals.restore();
                restored.map_err(|e| Failure::System("pthread_sigmask", e))?;
                return Ok(Ran::Busy(String::from_utf8_lossy(&why).into_owned()));
            }
            // The server has ended, or is about to.
            _ => None,
        };
        let _ = self.stream.shutdown(Shutdown::Write);
        let served = match self.next() {
            Some((ENDED, code)) => {
                ExitStatus::from_raw(i32::from(code.first().map_or(1, |it| *it)) << 8)
            }
            _ => wait(self.server)?,
        };
        if let Some(signal) = served.signal() {
            say(format_args!("vfscale: the server of the command was killed by signal {signal}"));
        }
        Ok(Ran::Ended(match status {
            Some(status) if served.success() => exit_code(status?),
            _ => exit_code(served),
        }))
    }

    /// Waits for the next word of the server; `None` if it has ended.
    fn next(&self) -> Option<(u8, Vec<u8>)> {
        let (mut stream, mut head) = (&self.stream, [0; 5]);
        stream.read_exact(&mut head).ok()?;
        let [word, length @ ..] = head;
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut text).ok()?;
        Some((word, text))
    }
}

/// Waits for the end of a child.
fn wait(child: Pid) -> Result<ExitStatus, Failure> {
    let waited = rustix::io::retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
    status(waited)?.ok_or_else(|| Failure::System("wait", Errno::CHILD.into()))
}

/// Returns the status that a call has found.
fn status(
    waited: rustix::io::Result<Option<(Pid, WaitStatus)>>,
) -> Result<Option<ExitStatus>, Failure> {
    let found = waited.map_err(|e| Failure::System("wait", e.into()))?;
    Ok(found.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
}

/// Runs the command, passes signals on to it, stops as long as it is stopped, and makes the
/// checkpoints. One thread does all of it, so that no signal is passed on after a later one was
/// acted upon.
pub(super) fn run_in(
    dir: &Path,
    command: &[OsString],
    signals: Blocked,
    mut checkpoints: Option<Checkpoints<'_>>,
) -> Result<ExitStatus, Failure> {
    let child = Pid::from_child(&start(dir, command, signals)?);
    loop {
        let caught = match &mut checkpoints {
            None => signals.wait(),
            Some(checkpoints) => match signals.wait_for(checkpoints.wait()) {
                Some(caught) => caught,
                None => {
                    checkpoints.make();
                    continue;
                }
            },
        };
        if caught.signal != libc::SIGCHLD {
            // The child is not waited for yet, so the number is still its own.
            pass_on(caught, child);
            continue;
        }
        let waited = waitpid(Some(child), WaitOptions::UNTRACED | WaitOptions::NOHANG);
        match status(waited)? {
            // The command was continued, or this is about the server.
            None => {}
            // The shell takes the terminal back, and continues this process some time.
            Some(status) if status.stopped_signal().is_some() => {
                kill_process(getpid(), Signal::STOP)
                    .map_err(|e| Failure::System("kill", e.into()))?;
            }
            Some(status) => return Ok(status),
        }
    }
}

/// Passes a signal on to a process.
fn pass_on(caught: Caught, process: Pid) {
    // A terminal sends its signals to the command, too, but a hang-up only to the leader of the
    // session.
    if (!caught.from_terminal || caught.signal == libc::SIGHUP)
        && let Some(signal) = Signal::from_named_raw(caught.signal)
    {
        let _ = kill_process(process, signal);
    }
}

fn start(dir: &Path, command: &[OsString], signals: Blocked) -> Result<Child, Failure> {
    let (name, arguments) = program(command)?;
    let mut command = in_mount(name, dir, signals);
    spawn(command.args(arguments), name)
}
