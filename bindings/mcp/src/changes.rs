//! Differences between two states of a branch, as `vfscale diff --json` prints them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read};

use schemars::JsonSchema;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::command::arguments;
use crate::reach::Image;
use crate::refusal::Result;

/// The most changes that the result of a call has.
pub(crate) const CHANGES_SHOWN: usize = 50;

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Change {
    /// `added`, `removed`, `replaced` by another file, `moved` or `changed`
    pub(crate) kind: String,
    pub(crate) path: String,
    /// Path before a move
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// `file`, `directory`, `symlink`, ...
    #[serde(rename = "type")]
    pub(crate) file_type: String,
    /// Length in bytes
    pub(crate) size: u64,
    /// Changed parts: `content`, `attributes`, `extended attributes`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) parts: Vec<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(from) = &self.from {
            write!(f, "{from} -> ")?;
        }
        f.write_str(&self.path)?;
        match &self.parts[..] {
            [] => Ok(()),
            parts => write!(f, " ({})", parts.join(", ")),
        }
    }
}

/// The differences, of which only the first ones are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Differences {
    /// Number of files that differ
    pub(crate) total: u64,
    /// Numbers by kind
    pub(crate) kinds: BTreeMap<String, u64>,
    /// The first of them
    pub(crate) files: Vec<Change>,
}

impl Differences {
    /// Returns a line for each file, and one for what is left out.
    pub(crate) fn text(&self) -> String {
        let mut lines: Vec<String> = self.files.iter().map(Change::to_string).collect();
        let left = self.total - self.files.len() as u64;
        if left > 0 {
            lines.push(format!("[and {left} more]"));
        }
        lines.join("\n")
    }
}

/// The changes of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Changes {
    #[serde(flatten)]
    pub(crate) differences: Differences,
    /// Number of the state before the call, as `log` shows it
    pub(crate) node_before: Option<u64>,
    /// Number of the state after the call
    pub(crate) node_after: Option<u64>,
    /// Checkpoint that has the state before the call: `roll_back` leads there
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<String>,
}

impl Changes {
    /// Returns lines for a reader.
    pub(crate) fn text(&self) -> String {
        let mut text = match self.differences.total {
            0 => "no file has changed".to_owned(),
            _ => self.differences.text(),
        };
        if let Some(checkpoint) = &self.checkpoint {
            text += &format!("\nthe state before is checkpoint {checkpoint}");
        }
        text
    }
}

/// Compares two branches or checkpoints, and keeps the first `most` differences.
///
/// # Errors
/// The message of `vfscale diff`.
pub(crate) fn between(
    image: &Image,
    [a, b]: [&str; 2],
    base: bool,
    paths: &[String],
    most: usize,
) -> Result<Differences> {
    let mut options = vec!["--json".into()];
    options.extend(base.then(|| "--base".into()));
    let words = [a, b].into_iter().chain(paths.iter().map(String::as_str));
    let arguments = arguments(&["diff"], options, &image.path, words);
    image.vfscale.read(arguments, &[0, 1], |out| first(out, most))
}

/// Reads a list of differences, and keeps the first ones.
pub(crate) fn first(out: &mut dyn Read, most: usize) -> io::Result<Differences> {
    let mut read = serde_json::Deserializer::from_reader(BufReader::new(out));
    Ok(First(most).deserialize(&mut read)?)
}

struct First(usize);

impl<'de> DeserializeSeed<'de> for First {
    type Value = Differences;

    fn deserialize<D: Deserializer<'de>>(
        self,
        read: D,
    ) -> std::result::Result<Differences, D::Error> {
        read.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for First {
    type Value = Differences;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of differences")
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut list: A,
    ) -> std::result::Result<Differences, A::Error> {
        let mut found = Differences::default();
        while let Some(change) = list.next_element::<Change>()? {
            found.total += 1;
            *found.kinds.entry(change.kind.clone()).or_default() += 1;
            if found.files.len() < self.0 {
                found.files.push(change);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
