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
    #[must_use]
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
    #[must_use]
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
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        match number.checked_mul(1 << shift) {
            Some(0) => Err("a size of 0 holds nothing: give at least 4K".into()),
            Some(bytes) => Ok(Size::Bytes(bytes)),
            None => Err(format!("`{text}` is more than can be counted")),
        }
    }
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
