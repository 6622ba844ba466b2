//! `vfscale bench`: starts the program that measures.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::error::Failure;

/// The program that measures.
const PROGRAM: &str = "vfscale-bench";

/// Replaces this process by `vfscale-bench`: the one beside this program, or else the one in PATH.
///
/// # Errors
/// Returns [`Failure::Bench`] if there is none, or it can't be run.
pub(crate) fn start(arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.with_file_name(PROGRAM);
    let mut failed = run(&beside, arguments);
    if failed.kind() == io::ErrorKind::NotFound {
        failed = run(&PathBuf::from(PROGRAM), arguments);
    }
    Err(Failure::Bench(beside, failed))
}

/// Replaces this process by a program; returns why that failed.
fn run(program: &PathBuf, arguments: &[OsString]) -> io::Error {
    Command::new(program).args(arguments).exec()
}
