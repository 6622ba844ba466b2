//! Messages for the person at the terminal, or for the log of a process in the background.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::OnceLock;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// The socket of the system's log.
const SYSTEM_LOG: &str = "/dev/log";
/// Facility `daemon`, level `warning`, as RFC 3164 numbers them: 3 * 8 + 4.
const PRIORITY: u8 = 28;

/// The place of messages when there is no terminal any more.
#[derive(Debug)]
pub enum Log {
    /// The system's log (`/dev/log`). Messages are lost while nobody reads it.
    System,
    /// A file that is appended to.
    File(File),
}

/// Set once, when the process leaves its terminal.
static LOG: OnceLock<Log> = OnceLock::new();

impl Log {
    /// Opens a file to append to, which is made if missing.
    ///
    /// # Errors
    /// Returns the error of opening it.
    pub fn file(path: &Path) -> io::Result<Log> {
        File::options().append(true).create(true).open(path).map(Log::File)
    }

    /// Returns the file, if it is one.
    pub fn as_file(&self) -> Option<&File> {
        match self {
            Log::File(file) => Some(file),
            Log::System => None,
        }
    }

    /// Writes a line, with its time.
    fn line(&self, line: &str) -> io::Result<()> {
        match self {
            Log::File(_) => {
                let mut time = String::new();
                // Of a text that has no time yet; the format is that of the library's messages.
                let _ = SystemTime.format_time(&mut Writer::new(&mut time));
                self.event(&format!("{time} {line}"))
            }
            Log::System => send(Path::new(SYSTEM_LOG), line),
        }
    }

    /// Writes a message of the library, which begins with its time.
    fn event(&self, event: &str) -> io::Result<()> {
        let event = event.trim_end();
        match self {
            // One call, so that lines of several threads and processes stay whole.
            Log::File(file) => (&*file).write_all(format!("{event}\n").as_bytes()),
            // The system's log has times of its own.
            Log::System => {
                let text = event.split_once(' ').map_or(event, |(_, text)| text.trim_start());
                send(Path::new(SYSTEM_LOG), text)
            }
        }
    }
}

/// Sends a line to the system's log, as RFC 3164 has it for programs of the same machine: without
/// time and host, which the log adds.
fn send(socket: &Path, line: &str) -> io::Result<()> {
    let own = UnixDatagram::unbound()?;
    // A log that does not keep up loses messages, and does not stop a mount.
    own.set_nonblocking(true)?;
    let pid = std::process::id();
    own.send_to(format!("<{PRIORITY}>vfscale[{pid}]: {line}").as_bytes(), socket).map(drop)
}

/// Sends all messages from now on to a log instead of standard error. Only the first call has an
/// effect.
pub fn redirect(log: Log) {
    let _ = LOG.set(log);
}

/// Prints a line to standard error, or to the log of a process in the background, if somebody reads
/// it.
///
/// `eprintln!` panics if nobody does, for example because the terminal was closed. A server that
/// ends must not fail over its last words.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = match LOG.get() {
        Some(log) => log.line(&line.to_string()),
        None => writeln!(io::stderr().lock(), "{line}"),
    };
}

/// Standard error, or the log that took its place. Takes one message of the library a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages;

impl Write for Messages {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        match LOG.get() {
            Some(log) => log.event(&String::from_utf8_lossy(message)).map(|()| message.len()),
            None => io::stderr().write(message),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
