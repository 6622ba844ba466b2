//! The log of the calls that could change something.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;

use crate::changes::Changes;
use crate::refusal::{Refusal, Result};

/// The most bytes of records that are kept for the resource.
const KEPT_BYTES: usize = 1 << 20;
/// The most characters of a text in the arguments of a record.
const TEXT_CHARS: usize = 200;

/// A call that could change something.
#[derive(Debug, Serialize)]
pub(crate) struct Record<'r> {
    /// Its end, in universal time.
    time: String,
    tool: &'r str,
    /// The arguments, with long texts shortened.
    arguments: Value,
    branch: &'r str,
    /// Why it was not done, or not wholly.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Its changes of the files of the branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'r Changes>,
}

impl<'r> Record<'r> {
    /// Makes the record of a call that ends now.
    pub(crate) fn new(
        tool: &'r str,
        arguments: &Value,
        branch: &'r str,
        error: Option<&Refusal>,
        changes: Option<&'r Changes>,
    ) -> Record<'r> {
        Record {
            time: Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true),
            tool,
            arguments: shortened(arguments),
            branch,
            error: error.map(Refusal::to_string),
            changes,
        }
    }
}

/// The log, in memory and, if the user wants that, in a file.
#[derive(Debug)]
pub(crate) struct Audit {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    file: Option<File>,
    /// The last lines.
    lines: VecDeque<String>,
    bytes: usize,
}

impl Audit {
    /// Begins a log, which is appended to a file if one is named.
    ///
    /// # Errors
    /// The file can't be opened.
    pub(crate) fn new(path: Option<&Path>) -> Result<Audit> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.map_err(|e| Refusal::new(format!("--audit {}: {e}", path.display())))
        };
        let file = path.map(open).transpose()?;
        Ok(Audit { state: Mutex::new(State { file, ..State::default() }) })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The file can't be written. Nobody may believe then that it has all.
    pub(crate) fn add(&self, record: &Record<'_>) -> Result<()> {
        let failed = |e: std::io::Error| {
            Refusal::new(format!("the call was made, but the audit log can't be written: {e}"))
        };
        let line = serde_json::to_string(record).map_err(|e| failed(e.into()))? + "\n";
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // One write, so that lines of several servers stay whole.
        let written = state.file.as_mut().map(|file| file.write_all(line.as_bytes()));
        state.bytes += line.len();
        state.lines.push_back(line);
        while state.bytes > KEPT_BYTES {
            state.bytes -= state.lines.pop_front().map_or(0, |line| line.len());
        }
        written.unwrap_or(Ok(())).map_err(failed)
    }

    /// Returns the last records of this server, a line of JSON each.
    pub(crate) fn text(&self) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.iter().map(String::as_str).collect()
    }
}

/// Returns a value with long texts shortened.
fn shortened(value: &Value) -> Value {
    match value {
        Value::String(text) => match text.char_indices().nth(TEXT_CHARS) {
            Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()).into(),
            None => value.clone(),
        },
        Value::Array(list) => list.iter().map(shortened).collect(),
        Value::Object(object) => {
            let members = object.iter().map(|(key, value)| (key.clone(), shortened(value)));
            Value::Object(members.collect())
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests;
