//! Why a request was not done.

use std::fmt;
use std::io;
use std::time::Duration;

use vfscale::Errno;

/// The reason to refuse a message of another version.
const OTHER_VERSION: &str = "its server has another version of vfscale";

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub(crate) errno: Errno,
    pub(crate) why: String,
}

impl Error {
    /// Returns an error with a reason of its own.
    pub fn new(errno: Errno, why: impl Into<String>) -> Error {
        Error { errno, why: why.into() }
    }

    /// Returns the error for a server that does not reply in a time.
    pub fn late(limit: Duration) -> Error {
        let why = format!("its server does not reply within {} s", limit.as_secs_f64());
        Error::new(Errno::TIMEDOUT, why)
    }

    /// Returns the number of the error.
    pub fn errno(&self) -> Errno {
        self.errno
    }
}

/// Shows the reason, as the server has told it: it may have any characters.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        let (errno, why) = match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => (Errno::PIPE, "its server has ended".into()),
            io::ErrorKind::ConnectionRefused => {
                let why = "its server has ended, or is in another network namespace";
                (Errno::CONNREFUSED, why.into())
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let why = "its server does not reply any more; it may still do what it was asked \
                           for";
                (Errno::TIMEDOUT, why.into())
            }
            io::ErrorKind::InvalidData => (Errno::PROTO, OTHER_VERSION.into()),
            _ => match Errno::from_io_error(&error) {
                Some(Errno::PROTO) => (Errno::PROTO, OTHER_VERSION.into()),
                errno => (errno.unwrap_or(Errno::IO), error.to_string()),
            },
        };
        Error { errno, why }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Error {
        io::Error::from(errno).into()
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        error.errno.into()
    }
}
