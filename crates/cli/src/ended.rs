//! The exit status of a command that was run.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// Returns the command's own status, or 128 plus the number of the signal that ended it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
