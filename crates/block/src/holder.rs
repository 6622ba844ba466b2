//! The process that has a device open.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::calendar::moment;

/// A process that has a device open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id as the process sees it: another container may use another one.
    pub pid: u32,
    /// File name of its program.
    pub program: String,
    /// Name of the host, or container, that it runs on.
    pub host: String,
    /// Time at which it opened the device, in whole seconds, by its own clock.
    pub since: SystemTime,
}

impl Holder {
    /// Returns the description of this process, as the holder from now on.
    pub(crate) fn this_process() -> Self {
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(|path| path.file_name());
        let program =
            program.map_or_else(|| "?".into(), |name| name.to_string_lossy().into_owned());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { pid: std::process::id(), program, host, since: SystemTime::now() }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, program, host, since } = self;
        write!(f, "process {pid} ({program}) on {host} since {}", utc(*since))
    }
}

/// Formats a time as `2026-11-22 04:14:05 UTC`. A time before 1970 is shown as the start of 1970.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    format!("{} UTC", moment(i64::try_from(seconds).unwrap_or(i64::MAX), ' '))
}

#[cfg(test)]
mod tests;
