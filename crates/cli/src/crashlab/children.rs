//! The command that is recorded, and the checks.
//!
//! Each is a group of processes of its own: signals of a terminal reach this process only, which
//! ends the group, also what the command has left in the background.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use vfscale_command::signals::{Blocked, ENDING};
use vfscale_crashlab::Sink;

use crate::child::{in_mount, program, spawn};
use crate::error::Failure;

/// Time between two looks at what the command says.
const LISTENING: Duration = Duration::from_millis(20);

/// The most of what a check prints that is shown, in bytes.
const SHOWN: u64 = 4096;

/// The end of a check.
pub(super) struct Ended {
    /// `None` if it took too long.
    pub(super) status: Option<ExitStatus>,
    output: Vec<u8>,
}

impl Ended {
    /// Returns whether the check has found the state right.
    pub(super) fn is_right(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns what the check has printed.
    pub(super) fn output(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => write!(f, "exit status {code}"),
            Some((None, signal)) => write!(f, "signal {}", signal.unwrap_or_default()),
            None => f.write_str("too long"),
        }
    }
}

/// Runs the command in a directory, and listens to what it says through `output`.
///
/// # Errors
/// A command that fails is an error: what it does then is no example.
pub(super) fn run_command(
    dir: &Path,
    command: &[OsString],
    (sink, output): (&Sink, OwnedFd),
    signals: Blocked,
) -> Result<(), Failure> {
    let (name, arguments) = program(command)?;
    let mut starting = in_mount(name, dir, signals);
    starting.args(arguments).stdin(Stdio::null()).stdout(output);
    let status = run(starting, name, (None, signals), || sink.listen())?;
    match status {
        Some(status) if !status.success() => {
            let ended = Ended { status: Some(status), output: Vec::new() };
            Err(Failure::Program(format!("the command ended with {ended}: nothing was checked"), 2))
        }
        _ => Ok(()),
    }
}

/// Runs a check in a directory. What the command had `said` is its standard input.
pub(super) fn run_check(
    dir: &Path,
    (check, said): (&OsStr, &[u8]),
    timeout: Duration,
    signals: Blocked,
) -> Result<Ended, Failure> {
    let memory = || memfd_create("crashlab", MemfdFlags::CLOEXEC).map(File::from);
    let opened = || -> std::io::Result<(File, File)> {
        let (mut input, output) = (memory()?, memory()?);
        input.write_all(said)?;
        input.rewind()?;
        Ok((input, output))
    };
    let failed = |e| Failure::System("memfd_create", e);
    let (input, mut output) = opened().map_err(failed)?;
    let (stdout, stderr) =
        (output.try_clone().map_err(failed)?, output.try_clone().map_err(failed)?);
    let shell = OsStr::new("sh");
    let mut starting = in_mount(shell, dir, signals);
    starting.arg("-c").arg(check).stdin(input).stdout(stdout).stderr(stderr);
    let status = run(starting, shell, (Some(timeout), signals), || {})?;
    let mut shown = Vec::new();
    let read = output.rewind().and_then(|()| output.take(SHOWN).read_to_end(&mut shown));
    read.map_err(failed)?;
    Ok(Ended { status, output: shown })
}

/// Runs a program until it has ended. `None` if that takes longer than `limit`.
fn run(
    mut starting: Command,
    name: &OsStr,
    (limit, signals): (Option<Duration>, Blocked),
    meanwhile: impl Fn(),
) -> Result<Option<ExitStatus>, Failure> {
    let mut child = spawn(starting.process_group(0), name)?;
    // This holds an end of the pipe that the command writes to.
    drop(starting);
    let ended = wait(&mut child, limit, signals, meanwhile);
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    if !matches!(ended, Ok(Some(_))) {
        let _ = child.wait();
    }
    ended
}

fn wait(
    child: &mut Child,
    limit: Option<Duration>,
    signals: Blocked,
    meanwhile: impl Fn(),
) -> Result<Option<ExitStatus>, Failure> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| Failure::System("wait", e))? {
            return Ok(Some(status));
        }
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            return Ok(None);
        }
        if let Some(caught) = signals.wait_for(LISTENING)
            && ENDING.contains(&caught.signal)
        {
            let status = u8::try_from(128 + caught.signal).unwrap_or(1);
            return Err(Failure::Program(format!("stopped by signal {}", caught.signal), status));
        }
        meanwhile();
    }
}
