//! A state in words.

use std::fmt;

use vfscale::FileType;
use vfscale_fuse::recording::Change;

use crate::event::{Event, Kind};
use crate::log::Log;
use crate::state::State;

/// The fate of a step in a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The step is there.
    Kept,
    /// The step is not there.
    Lost,
    /// Of the data that it wrote, the bytes from an offset to another are there.
    Torn(usize, usize),
}

/// A step, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of the step in the log.
    pub number: usize,
    /// The call that the program made.
    pub text: String,
    /// Its fate.
    pub fate: Fate,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fate {
            Fate::Kept => write!(f, "  kept  {}", self.text),
            Fate::Lost => write!(f, "  LOST  {}", self.text),
            Fate::Torn(from, to) => {
                write!(f, "  TORN  {} (bytes {from} to {to} of it are there)", self.text)
            }
        }
    }
}

/// Lists the steps from the one before the first that is lost on, or the last one if none is.
pub(crate) fn of(log: &Log, state: &State) -> Vec<Line> {
    let first = state.lost().next().unwrap_or(state.cut()).saturating_sub(1);
    let lines = log.events.iter().enumerate().take(state.cut()).skip(first);
    let line = |(number, event): (usize, &Event)| {
        let fate = match state.torn() {
            Some((torn, (from, to))) if torn == number => Fate::Torn(from, to),
            _ if event.kind() == Kind::Mark || state.has(number) => Fate::Kept,
            _ => Fate::Lost,
        };
        Line { number, text: text(event), fate }
    };
    lines.map(line).collect()
}

/// Returns bytes that a program has said, in one line.
fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 60;
    let text =
        String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).escape_debug().to_string();
    if bytes.len() > LONGEST { format!("{text}...") } else { text }
}

/// Tells a step as the call that has made it.
fn text(event: &Event) -> String {
    let change = match event {
        Event::Said(bytes) => return format!("say \"{}\"", shown(bytes)),
        Event::Change(change) => change,
    };
    let path = event.path().map(|path| vfscale::Escaped::new(path).to_string()).unwrap_or_default();
    match change {
        Change::Made { attributes, .. } => match FileType::from_raw_mode(attributes.mode) {
            FileType::RegularFile => format!("create {path}"),
            FileType::Directory => format!("mkdir {path}"),
            FileType::Symlink => format!("symlink {path}"),
            _ => format!("mknod {path}"),
        },
        Change::Linked { .. } => format!("link {path}"),
        Change::Removed { .. } => format!("remove {path}"),
        Change::Renamed { to, exchanged, replaced, .. } => {
            let to = vfscale::Escaped::new(&to.path);
            match (exchanged, replaced) {
                (true, _) => format!("exchange {path} and {to}"),
                (false, Some(_)) => format!("rename {path} over {to}"),
                (false, None) => format!("rename {path} to {to}"),
            }
        }
        Change::Written { offset, data, .. } => {
            format!("write {path}, bytes {offset} to {}", offset + data.len() as u64)
        }
        Change::Resized { size, former, .. } => {
            format!("truncate {path} from {former} to {size} bytes")
        }
        Change::Allocated { offset, length, .. } => {
            format!("fallocate {path}, bytes {offset} to {}", offset + length)
        }
        Change::Attributes { .. } => format!("change mode, owner or times of {path}"),
        Change::Xattr { name, .. } => {
            format!("change the attribute {} of {path}", vfscale::Escaped::new(name))
        }
        Change::Synced { data_only: true, .. } => format!("fdatasync {path}"),
        Change::Synced { .. } => format!("fsync {path}"),
        _ => String::new(),
    }
}
