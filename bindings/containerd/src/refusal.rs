//! Errors of calls, as containerd tells them apart.

use std::fmt;
use std::path::Path;

use tonic::{Code, Status};
use vfscale::{Escaped, PoolError, VolumeError};

/// The result of a call.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// The reason why a call was not carried out.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: Code,
    what: String,
}

impl Refusal {
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        Self { code, what: what.into() }
    }

    /// No snapshot has this name.
    pub(crate) fn missing(name: &str) -> Self {
        Self::new(Code::NotFound, format!("snapshot {name} does not exist"))
    }

    /// The state of something forbids the call.
    pub(crate) fn state(what: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, what)
    }

    /// A file of the host can't be read or written.
    pub(crate) fn at(path: &Path) -> impl Fn(std::io::Error) -> Self {
        let path = Escaped::new(path).to_string();
        move |error| {
            let code = match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    Code::ResourceExhausted
                }
                _ => Code::Internal,
            };
            Self::new(code, format!("{path}: {error}"))
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

impl From<VolumeError> for Refusal {
    fn from(error: VolumeError) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.what)
    }
}
