//! Values of options.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use vfscale_diskfs::{OnError, OnErrorError};

use super::size::Size;

fn utf8(value: &OsStr) -> Result<&str, String> {
    value.to_str().ok_or_else(|| "the value is not UTF-8".into())
}

pub(super) fn text(value: &OsStr) -> Result<String, String> {
    utf8(value).map(str::to_owned)
}

#[allow(clippy::unnecessary_wraps)] // The rows of the table have one type.
pub(super) fn path(value: &OsStr) -> Result<PathBuf, String> {
    Ok(value.into())
}

pub(super) fn size(value: &OsStr) -> Result<Size, String> {
    utf8(value)?.parse()
}

pub(super) fn bytes(value: &OsStr) -> Result<u64, String> {
    parse_bytes(utf8(value)?)
}

pub(super) fn number(value: &OsStr) -> Result<u64, String> {
    utf8(value)?.parse().map_err(|_| "not a number".into())
}

pub(super) fn id(value: &OsStr) -> Result<u32, String> {
    parse_id(utf8(value)?)
}

/// Parses permissions in octal, with or without a leading zero.
pub(super) fn mode(value: &OsStr) -> Result<u32, String> {
    let text = utf8(value)?;
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("`{text}` is not a mode: write it in octal, as 755 or 1777")),
    }
}

/// Parses whether something is so.
pub(super) fn yes(value: &OsStr) -> Result<bool, String> {
    let wrong = |_| format!("`{}`: write true or false", value.display());
    utf8(value)?.parse().map_err(wrong)
}

pub(super) fn on_error(value: &OsStr) -> Result<OnError, String> {
    utf8(value)?.parse().map_err(|error: OnErrorError| error.to_string())
}

/// Parses a time; `None` for `never`.
pub(super) fn interval(value: &OsStr) -> Result<Option<Duration>, String> {
    if value == "never" { Ok(None) } else { seconds(value).map(Some) }
}

pub(super) fn seconds(value: &OsStr) -> Result<Duration, String> {
    parse_seconds(utf8(value)?)
}

/// Parses the size of an image, which can't be a share of the memory. Rounds down to blocks.
///
/// # Errors
/// Returns a text that names the value.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    match text.parse()? {
        Size::Bytes(bytes) if bytes >= 4096 => Ok(bytes / 4096 * 4096),
        _ => Err(format!("`{text}` is not the size of an image: write it as 64M or 10G")),
    }
}

/// Parses a time in seconds, which may have a fraction.
///
/// # Errors
/// Returns a text that names the value.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|s| (0.01..=86_400.0).contains(s));
    let seconds =
        seconds.ok_or_else(|| format!("`{text}` is not a time: 0.01 to 86400 seconds"))?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses the number of a user or group. The largest number is invalid: `chown(2)` leaves an owner
/// unchanged for it.
///
/// # Errors
/// Returns a text that names the value.
pub fn parse_id(text: &str) -> Result<u32, String> {
    let id = text.parse().ok().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| format!("`{text}` is not the number of a user or group"))
}
