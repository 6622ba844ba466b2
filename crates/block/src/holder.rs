//! The process that has a device open.

use std::fmt;
use std::io;
use std::path::Path;
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
        Self { pid: std::process::id(), program, host: host_name(), since: SystemTime::now() }
    }

    /// Returns whether the process is of this host, and has ended: it does not exist, or only as
    /// what its parent has not asked for yet. A process of another process namespace seems so, too.
    pub(crate) fn has_ended(&self) -> bool {
        if self.host != host_name() {
            return false;
        }
        match std::fs::read(format!("/proc/{}/stat", self.pid)) {
            // The state stands behind the name, which may have any bytes.
            Ok(stat) => stat
                .iter()
                .rposition(|byte| *byte == b')')
                .and_then(|end| stat.get(end + 2))
                .is_some_and(|state| matches!(state, b'Z' | b'X')),
            Err(error) => {
                error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self/stat").exists()
            }
        }
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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
