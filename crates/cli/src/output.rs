//! Output that several commands have: their lines, and on a terminal their progress.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::Value;
use vfscale::FileType;

use crate::error::Failure;

/// Returns the outcome of a command after it wrote to the standard output.
pub(crate) fn written(outcome: io::Result<()>) -> Result<ExitCode, Failure> {
    match outcome {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::Write("standard output".into(), error)),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the members of a path: its text, and if that is not all of it the bytes, in hexadecimal.
pub(crate) fn path_members(key: &str, path: &Path) -> Vec<(String, Value)> {
    let bytes = path.as_os_str().as_bytes();
    let mut members = vec![(key.to_owned(), String::from_utf8_lossy(bytes).into())];
    if str::from_utf8(bytes).is_err() {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        members.push((format!("{key}_bytes"), digits.into()));
    }
    members
}

/// Returns the members of a type and a mode, and of a size.
pub(crate) fn file_members(mode: u32, size: u64) -> [(String, Value); 3] {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character_device",
        FileType::BlockDevice => "block_device",
        FileType::Unknown => "unknown",
    };
    let mode = format!("{mode:06o}");
    [("type".into(), kind.into()), ("mode".into(), mode.into()), ("size".into(), size.into())]
}

/// Shows on a terminal that the command works, until it is dropped.
pub(crate) fn spinner(is_quiet: bool, message: &'static str) -> ProgressBar {
    let is_hidden = is_quiet || !io::stderr().is_terminal();
    let bar = if is_hidden { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    bar.set_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
