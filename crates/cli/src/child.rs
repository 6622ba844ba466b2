//! Processes: a command that is run, its start and its exit status; a server in the background.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use clap::Args;
use vfscale_command::signals::Blocked;
use vfscale_command::stderr::{self, Log};

use crate::error::Failure;

/// The words of a command, behind all other arguments.
#[derive(Clone, Debug, Args)]
pub(crate) struct CommandArgs {
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
}

/// Returns the program of a command, and its arguments.
pub(crate) fn program(command: &[OsString]) -> Result<(&OsString, &[OsString]), Failure> {
    command.split_first().ok_or_else(|| Failure::Usage("no command given".into()))
}

/// Returns a command to start in a mount: with its directory as the working directory, in the
/// environment, and with the signals as they were.
pub(crate) fn in_mount(program: &OsStr, dir: &Path, signals: Blocked) -> Command {
    let mut command = Command::new(find(program));
    command.arg0(program).current_dir(dir).env("VFSCALE_MOUNT", dir).env("PWD", dir);
    signals.restore_in(&mut command);
    command
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

/// Starts a command, which the user has called `program`.
pub(crate) fn spawn(command: &mut Command, program: &OsStr) -> Result<Child, Failure> {
    command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::CommandNotFound(program.to_owned()),
        _ => Failure::CommandNotRunnable(program.to_owned(), error),
    })
}

/// Returns the command's own status, or 128 plus the number of the signal that ended it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Detaches this process from its terminal, session, directory and standard error. Messages go to
/// `log` from then on. Returns `/dev/null`, for the rest of its standard streams.
pub(crate) fn leave_terminal(log: Log) -> Result<File, Failure> {
    let failed = |e: rustix::io::Errno| Failure::System("cannot move to the background", e.into());
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.map_err(|e| Failure::System("/dev/null", e))?;
    rustix::process::chdir("/").map_err(failed)?;
    let _ = rustix::process::setsid();
    // Of panics, which print to standard error, the file has the text too.
    rustix::stdio::dup2_stderr(log.as_file().unwrap_or(&null)).map_err(failed)?;
    stderr::redirect(log);
    Ok(null)
}
