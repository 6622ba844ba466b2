//! Failures of workloads and errors of runs.

use std::fmt;
use std::io;
use std::path::PathBuf;

use vfscale::Errno;

/// A failure of a workload: it could not continue, or a check of the file system failed.
///
/// One word in size: the result of an operation stays in registers.
pub struct Fault(Box<FaultKind>);

/// The kinds of [`Fault`].
#[derive(Debug)]
pub enum FaultKind {
    /// A call failed.
    Call(vfscale::Error),
    /// Calls succeeded, but did not have the right effect.
    Wrong(String),
    /// The target lacks a feature that the workload needs.
    Unsupported(String),
}

impl Fault {
    /// Creates a fault of a failed verification; `what` names the seen and the expected state.
    #[cold]
    pub fn wrong(what: impl Into<String>) -> Fault {
        Fault(Box::new(FaultKind::Wrong(what.into())))
    }

    /// Creates a fault of a feature that the target lacks.
    #[cold]
    pub fn unsupported(what: impl Into<String>) -> Fault {
        Fault(Box::new(FaultKind::Unsupported(what.into())))
    }

    /// Returns the kind of the fault.
    pub fn kind(&self) -> &FaultKind {
        &self.0
    }
}

impl From<vfscale::Error> for Fault {
    #[cold]
    fn from(error: vfscale::Error) -> Fault {
        Fault(Box::new(FaultKind::Call(error)))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            FaultKind::Call(error) => {
                error.fmt(f)?;
                f.write_str(remedy(error.errno()))
            }
            FaultKind::Wrong(what) => write!(f, "verification failed: {what}"),
            FaultKind::Unsupported(what) => f.write_str(what),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Fault {}

/// The result of a step of a workload.
pub type Outcome<T> = std::result::Result<T, Fault>;

/// Returns advice on an error, if there is any.
pub(crate) fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::NOSPC | Errno::DQUOT => {
            "; make room there, or ask for less with --files, --database or a smaller --tree"
        }
        Errno::MFILE | Errno::NFILE => {
            "; allow more open files (`ulimit -n`), or use fewer threads"
        }
        Errno::ACCESS | Errno::PERM => "; choose a directory that this user may write in",
        Errno::ROFS => "; it is mounted read-only: remount it, or choose another directory",
        _ => "",
    }
}

/// An error that prevents a run, or ends it.
#[derive(Debug)]
pub enum Error {
    /// A name that no workload has.
    UnknownWorkload {
        /// The name.
        name: String,
        /// The nearest name that a workload has, if one is near.
        nearest: Option<&'static str>,
        /// The names of all workloads.
        known: Vec<&'static str>,
    },
    /// A text that names no target.
    UnknownTarget(String),
    /// A volume that can't be opened or made.
    Volume(vfscale::VolumeError),
    /// An unusable directory.
    Directory(PathBuf, io::Error),
    /// A program that mounts for the run failed, or can't be run.
    Mount(&'static str, io::Error),
    /// Contradictory arguments.
    Usage(String),
    /// A failed system call.
    System(&'static str, io::Error),
    /// A workload failed while its files were made.
    Workload {
        /// The name of the workload.
        workload: &'static str,
        /// The target.
        target: String,
        /// The reason, in words.
        reason: String,
    },
}

/// The result of a step of a run outside of its workloads.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownWorkload { name, nearest, known } => {
                write!(f, "`{name}` is not a workload")?;
                if let Some(nearest) = nearest {
                    write!(f, "; did you mean `{nearest}`?")?;
                }
                f.write_str(" The workloads are")?;
                write!(f, " {} (`--list` describes them)", known.join(", "))
            }
            Error::UnknownTarget(text) => write!(
                f,
                "`{text}` is not a target; targets are `memory` and `volume:FILE` (the library in this \
                 process), `mount:memory` and `mount:FILE` (mounts that are made for the run; \
                 `mount+noxattr:memory` with options), and `path:DIR` (a directory of any mounted \
                 file system)"
            ),
            Error::Volume(error) => error.fmt(f),
            Error::Directory(dir, e) => {
                write!(f, "cannot use the directory {}: {e}", dir.display())?;
                let errno = e.raw_os_error().map(Errno::from_raw_os_error);
                f.write_str(match errno {
                    Some(Errno::NOENT) => "; make it first, or name one that exists",
                    Some(Errno::NOTDIR) => "; `path:` takes a directory",
                    Some(errno) => remedy(errno),
                    None => "",
                })
            }
            Error::Mount(program, e) => {
                write!(f, "cannot mount with the program `{program}`: {e}")?;
                f.write_str(match e.kind() {
                    io::ErrorKind::NotFound => "; build or install it beside this one",
                    _ => "",
                })
            }
            Error::Usage(what) => f.write_str(what),
            Error::System(call, e) => write!(f, "{call}: {e}"),
            Error::Workload { workload, target, reason } => {
                write!(f, "{workload} on {target}: {reason}")
            }
        }
    }
}

impl std::error::Error for Error {}
