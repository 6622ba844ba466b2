//! Names as text for people.

use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// Displays a name or path so that it can neither steer a terminal nor pass for other text: control
/// characters, bytes that are not UTF-8, and backslashes are escaped, as `\n` or `\x1b`. Different
/// names are displayed differently.
///
/// ```
/// # mod vfscale { pub use vfscale_vfs::*; }
/// use vfscale::Escaped;
///
/// assert_eq!(Escaped::new("a\u{1b}[2J\n").to_string(), "a\\x1b[2J\\n");
/// assert_eq!(Escaped::new("naïve").to_string(), "naïve");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'n> {
    bytes: &'n [u8],
    is_message: bool,
}

impl<'n> Escaped<'n> {
    /// Returns the name or path, to display it.
    pub fn new<N: AsRef<OsStr> + ?Sized>(name: &'n N) -> Escaped<'n> {
        Escaped::bytes(name.as_ref().as_bytes())
    }

    /// Returns the bytes of a name, to display them.
    pub fn bytes(name: &'n [u8]) -> Escaped<'n> {
        Escaped { bytes: name, is_message: false }
    }

    /// Returns a message of another program, to display it on one line. Its names have been escaped
    /// there, so backslashes stay.
    ///
    /// ```
    /// # mod vfscale { pub use vfscale_vfs::*; }
    /// use vfscale::Escaped;
    ///
    /// assert_eq!(Escaped::message("a\\x1b: \u{1b}[2J").to_string(), "a\\x1b: \\x1b[2J");
    /// ```
    pub fn message<T: AsRef<OsStr> + ?Sized>(text: &'n T) -> Escaped<'n> {
        Escaped { bytes: text.as_ref().as_bytes(), is_message: true }
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes.utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '\\' if self.is_message => f.write_char(char)?,
                    '\\' | '\n' | '\r' | '\t' => write!(f, "{}", char.escape_default())?,
                    char if char.is_control() => {
                        hex(f, char.encode_utf8(&mut [0; 4]).as_bytes())?;
                    }
                    char => f.write_char(char)?,
                }
            }
            hex(f, chunk.invalid())?;
        }
        Ok(())
    }
}

fn hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

#[cfg(test)]
mod tests;
