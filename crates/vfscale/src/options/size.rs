//! Amounts of memory as people write them.

use std::fmt;
use std::str::FromStr;

use vfscale_sync::machine::memory_bytes;

/// An amount of memory as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the memory that this process may use.
    Percent(u64),
}

impl Size {
    /// Returns the size in bytes on a machine with `memory` bytes.
    pub fn in_bytes(self, memory: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Percent(percent) => {
                (u128::from(memory) * u128::from(percent) / 100).try_into().unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the size in bytes on this machine, or in the control group of this process if that
    /// has a limit of memory.
    pub fn on_this_machine(self) -> u64 {
        self.in_bytes(memory_bytes())
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let wrong = || format!("`{text}` is not a size: write it as 64M, 2G or 50%");
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            return match percent.parse() {
                Ok(p @ 1..=100) => Ok(Size::Percent(p)),
                Ok(p) => Err(format!("{p}% of the memory is out of range: 1% to 100%")),
                Err(_) => Err(wrong()),
            };
        }
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(wrong()),
        };
        match in_units(digits, shift).ok_or_else(wrong)? {
            Some(0) => Err("a size of 0 holds nothing: give at least 4K".into()),
            Some(bytes) => Ok(Size::Bytes(bytes)),
            None => Err(format!("`{text}` is more than can be counted")),
        }
    }
}

/// Returns a number, which may have a fraction as `1.5`, times a power of two, rounded down: the
/// inner `None` if that is too large, and the outer one if it is no number.
fn in_units(text: &str, shift: u32) -> Option<Option<u64>> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_part = text.contains('.');
    // Fifteen digits of a fraction tell each byte of a tebibyte.
    if !is_digits(whole) || !is_digits(part) || has_part && (part.is_empty() || part.len() > 15) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let scale = 10_u128.pow(part.len() as u32);
    let part: u128 = if has_part { part.parse().ok()? } else { 0 };
    let rest = u64::try_from((part << shift) / scale).ok()?;
    Some(whole.checked_mul(1 << shift).and_then(|bytes| bytes.checked_add(rest)))
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(bytes) => write!(f, "{bytes}"),
            Size::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests;
