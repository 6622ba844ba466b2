//! The ways by which the kernel and the server of a mount exchange messages.

use std::fmt;
use std::str::FromStr;

/// The way by which the kernel hands requests to the server, and gets the replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// By reading and writing the device `/dev/fuse`. All workers share one queue.
    #[default]
    Classic,
    /// By io_uring, with a queue and a thread for each CPU (Linux 6.14): the thread on the CPU of
    /// the caller serves the request, and one system call both sends a reply and waits for the next
    /// request.
    ///
    /// Requests that may take long go to the worker threads
    /// ([`Builder::threads`](crate::Builder::threads)). The administrator has to have switched it
    /// on: see [`enable_uring`](crate::enable_uring).
    Uring,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Classic => "classic",
            Transport::Uring => "uring",
        })
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Transport, String> {
        match text {
            "classic" => Ok(Transport::Classic),
            "uring" => Ok(Transport::Uring),
            _ => Err(format!("`{text}` is not a transport: write classic or uring")),
        }
    }
}
