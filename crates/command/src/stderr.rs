//! Messages for the person at the terminal.

use std::fmt;
use std::io::Write;

/// Prints a line to standard error, if somebody reads it.
///
/// `eprintln!` panics if nobody does, for example because the terminal was closed. A server that
/// ends must not fail over its last words.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
