//! Failures of the command, with their messages and exit statuses.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// A failure of the command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An argument is invalid.
    Usage(String),
    /// A measurement could not be made.
    Bench(vfscale_bench::Error),
    /// A file could not be written.
    Write(PathBuf, io::Error),
    /// A file could not be read.
    Read(PathBuf, io::Error),
    /// A report could not be drawn or written.
    Report(vfscale_bench::plot::PlotError),
    /// A system call that should not fail did.
    System(&'static str, io::Error),
}

impl Failure {
    /// Returns the exit status: 2 for a misuse, otherwise 1.
    pub(crate) fn exit_code(&self) -> ExitCode {
        use vfscale_bench::Error;
        ExitCode::from(match self {
            Failure::Usage(_)
            | Failure::Bench(
                Error::Usage(_) | Error::UnknownWorkload { .. } | Error::UnknownTarget(_),
            ) => 2,
            _ => 1,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(what) => f.write_str(what),
            Failure::Bench(e) => e.fmt(f),
            Failure::Report(e) => e.fmt(f),
            Failure::Write(path, e) => write!(f, "cannot write {}: {e}", path.display()),
            Failure::Read(path, e) => write!(f, "cannot read {}: {e}", path.display()),
            Failure::System(call, e) => write!(f, "{call}: {e}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<vfscale_bench::Error> for Failure {
    fn from(e: vfscale_bench::Error) -> Failure {
        Failure::Bench(e)
    }
}
