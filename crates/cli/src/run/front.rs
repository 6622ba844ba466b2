//! The two processes of `vfscale run`.
//!
//! A shell stops and continues the processes that it has started, and so does Ctrl-Z. A server that
//! stops would hang every other process that uses its mount. So the server is a process of its own,
//! in a session without a terminal. The one that was started, the front, runs the command: it
//! passes signals on, stops when the command stops, and ends with its status. The server unmounts
//! when the front has closed its end of a socket, also because it was killed.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, setsid, waitpid,
};
use vfscale_command::say;
use vfscale_command::signals::{Blocked, Caught};

use crate::child::{exit_code, program, spawn};
use crate::error::Failure;

/// One of the two processes.
pub(super) enum Side {
    Front(Front),
    Server(Server),
}

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
    /// on: others see this process as the one that has the image open.
    pub(super) fn run_in(&self, dir: &Path) {
        let Self { front, signals, .. } = *self;
        std::thread::spawn(move || {
            loop {
                let caught = signals.wait();
                // If the front has ended, this process is about to.
                if caught.signal != libc::SIGCHLD && getppid() == Some(front) {
                    pass_on(caught, front);
                }
            }
        });
        let mut stream = &self.stream;
        let told = stream.write_all(dir.as_os_str().as_bytes());
        let told = told.and_then(|()| stream.shutdown(Shutdown::Write));
        // The front says nothing, and ends.
        let ended = told.and_then(|()| stream.read_to_end(&mut Vec::new()));
        tracing::debug!("the command has ended: {ended:?}");
    }
}

impl Front {
    /// Runs the command when the server has mounted, and waits for the end of both. Returns the
    /// status of the server if that has failed, which has said why.
    pub(super) fn run(self, command: &[OsString]) -> Result<ExitCode, Failure> {
        let Front { mut stream, server, signals } = self;
        let mut dir = Vec::new();
        let status = match stream.read_to_end(&mut dir) {
            Ok(1..) => Some(run_in(Path::new(OsStr::from_bytes(&dir)), command, signals)),
            // The server has ended, or is about to.
            _ => None,
        };
        drop(stream);
        let served = wait(server)?;
        if let Some(signal) = served.signal() {
            say(format_args!("vfscale: the server of the command was killed by signal {signal}"));
        }
        match status {
            Some(status) if served.success() => Ok(exit_code(status?)),
            _ => Ok(exit_code(served)),
        }
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

/// Runs the command, passes signals on to it, and stops as long as it is stopped. One thread does
/// all of it, so that no signal is passed on after a later one was acted upon.
pub(super) fn run_in(
    dir: &Path,
    command: &[OsString],
    signals: Blocked,
) -> Result<ExitStatus, Failure> {
    let child = Pid::from_child(&start(dir, command, signals)?);
    loop {
        let caught = signals.wait();
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
    let mut command = Command::new(find(name));
    command.arg0(name).args(arguments).current_dir(dir);
    command.env("VFSCALE_MOUNT", dir).env("PWD", dir);
    // SAFETY: does one system call, which is allowed between `fork` and `exec`.
    unsafe { command.pre_exec(move || signals.restore()) };
    spawn(&mut command, name)
}

/// Returns the path of a program. A relative path with directories starts at the user's working
/// directory, since the new file system contains no program yet.
fn find(program: &OsStr) -> PathBuf {
    let path = Path::new(program);
    if path.components().count() > 1 && path.is_relative() {
        return std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    }
    path.to_owned()
}
