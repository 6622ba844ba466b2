//! Errors of calls: a sentence for the agent that says what failed, and what to do.

use std::fmt;

use vfscale::{Errno, Error};

/// The result of a call, or why it was refused.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// The reason why a call was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(String);

impl Refusal {
    /// Makes a refusal of a sentence.
    pub(crate) fn new(why: impl Into<String>) -> Refusal {
        Refusal(why.into())
    }

    /// Adds what to know or to do.
    #[must_use]
    pub(crate) fn and(self, more: impl fmt::Display) -> Refusal {
        Refusal(format!("{}; {more}", self.0))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let refusal = Refusal::new(error.to_string());
        match remedy(error.errno()) {
            Some(remedy) => refusal.and(remedy),
            None => refusal,
        }
    }
}

/// Returns what to do about an error of a file.
fn remedy(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::NOENT => "`list` shows the files that are there, `mkdir` makes directories",
        Errno::EXIST => "take another name, or say that the file is to be replaced",
        Errno::NOTDIR => "a part of the path is a file; `list` shows what is there",
        Errno::ISDIR => "it is a directory; `list` shows what is in it",
        Errno::NOTEMPTY => "the directory is not empty; `recursive` removes what is in it too",
        Errno::NOSPC => "the image is full; remove files or branches, or grow it by `vfscale grow`",
        Errno::ROFS => "the branch can only be read; `branch_fork` makes one that can be written",
        Errno::ACCESS | Errno::PERM => {
            "the user of this server may not do that; `list` shows owners and modes"
        }
        Errno::LOOP => "its symbolic links lead in a circle",
        Errno::NAMETOOLONG => "names have at most 255 bytes, paths 4,095",
        _ => return None,
    })
}
