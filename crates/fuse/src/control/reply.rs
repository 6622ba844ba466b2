//! The replies of the server of a mount.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vfscale::pool::{Changes, Difference, DifferenceKind, LogEntry, LogKind, LogMerge};
use vfscale::{BranchInfo, Conflict, ConflictKind, Errno, Merged};

use super::error::Error;
use super::message::Fields;
use crate::statistics::{self, Statistics};

/// A reply to a [`Request`](super::Request). Each request has any number of them, and then
/// [`End`](Self::End) or [`Refused`](Self::Refused).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request is done.
    End,
    /// The request, or the rest of it, is not done.
    Refused(Error),
    /// A size or a number of bytes.
    Number(u64),
    /// The statistics of the mount.
    Statistics(Box<Statistics>),
    /// A branch of the image.
    Branch(BranchInfo),
    /// A difference between two branches.
    Difference(Difference),
    /// A part of a patch.
    Text(OsString),
    /// A conflict of a merge; it comes before what the merge has done.
    Conflict(Conflict),
    /// The result of a merge, without its conflicts.
    Merged(Merged),
    /// A state in the history of a branch.
    Entry(LogEntry),
    /// The branch that has what a rollback took away, or what a branch could not take over; or the
    /// checkpoint that was made.
    Kept(String),
    /// An id of what a branch has.
    State([u8; 16]),
    /// The result of a check.
    Checked(Checked),
    /// A stage of the mount.
    Stage(Stage),
    /// A mount of the process: one of those that it serves, or the one that has the branch already
    /// that a program asks for, and that it shares.
    Place {
        /// Its branch.
        branch: String,
        /// Its device number (`MAJOR:MINOR`).
        device: String,
        /// Its directory, as the process knows it that has made the mount.
        dir: PathBuf,
    },
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The exit status of `fsck`.
    pub status: u8,
    /// Lines for a reader, with the findings.
    pub words: String,
    /// The object of JSON.
    pub json: String,
}

/// A stage of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its volume is frozen.
    Frozen,
    /// The image becomes a pool of branches.
    Pool,
    /// The request can be done: its descriptors may follow.
    Ready,
    /// The mount is served.
    Mounted,
    /// The mount is known, and its end is waited for.
    Waiting,
    /// No other program uses the mount: the one that leaves it unmounts it.
    Unused,
    /// The mount is ended, and its branch closed.
    Closed,
    /// Its branch is closed, and its server ends.
    Last,
}

/// The stages, and their words.
const STAGES: [(Stage, &str); 8] = [
    (Stage::Frozen, "frozen"),
    (Stage::Pool, "pool"),
    (Stage::Ready, "ready"),
    (Stage::Mounted, "mounted"),
    (Stage::Waiting, "waiting"),
    (Stage::Unused, "unused"),
    (Stage::Closed, "closed"),
    (Stage::Last, "last"),
];

/// Words for what a branch is, and for the parts that differ.
const READ_ONLY: &str = "read-only";
const CONTENT: &str = "content";
const ATTRIBUTES: &str = "attributes";
const XATTRS: &str = "xattrs";

impl Reply {
    /// Returns the fields of a message.
    pub(super) fn encode(&self) -> Fields {
        let words: Vec<String> = match self {
            Self::End => vec!["end".into()],
            Self::Refused(Error { errno, why }) => {
                vec!["refused".into(), errno.raw_os_error().to_string(), why.replace('\0', "")]
            }
            Self::Number(number) => vec!["number".into(), number.to_string()],
            Self::Statistics(numbers) => {
                ["statistics".into()].into_iter().chain(statistics::encode(numbers)).collect()
            }
            Self::Branch(info) => encode_branch(info),
            Self::Difference(difference) => return encode_difference(difference),
            Self::Text(text) => return vec!["text".into(), text.clone()],
            Self::Conflict(Conflict { path, kind, beside }) => {
                let fields = ["conflict".into(), kind.name().into(), path.clone()];
                return fields.into_iter().chain(beside.clone()).map(OsString::from).collect();
            }
            Self::Merged(Merged {
                added, removed, moved, changed, texts, kept, is_done, ..
            }) => {
                let counts = [added, removed, moved, changed, texts].map(u64::to_string);
                let words = ["merged".into(), is_done.to_string()].into_iter().chain(counts);
                words.chain(kept.clone()).collect()
            }
            Self::Entry(entry) => encode_entry(entry),
            Self::Kept(name) => vec!["kept".into(), name.clone()],
            Self::Checked(Checked { status, words, json }) => {
                vec!["checked".into(), status.to_string(), words.clone(), json.clone()]
            }
            Self::State(id) => vec!["state".into(), u128::from_be_bytes(*id).to_string()],
            Self::Place { branch, device, dir } => {
                let fields = ["place".into(), branch.into(), device.into()];
                return fields.into_iter().chain([dir.clone().into_os_string()]).collect();
            }
            Self::Stage(stage) => {
                let word = STAGES.iter().find(|(it, _)| it == stage).map_or("", |(_, word)| *word);
                vec!["stage".into(), word.into()]
            }
        };
        words.into_iter().map(OsString::from).collect()
    }

    /// Returns the reply that a message is; `None` if this version knows none like it.
    pub(super) fn decode(fields: &[OsString]) -> Option<Reply> {
        if let [kind, fields @ ..] = fields
            && kind == "difference"
        {
            return decode_difference(fields).map(Self::Difference);
        }
        if let [kind, text] = fields
            && kind == "text"
        {
            return Some(Self::Text(text.clone()));
        }
        if let [kind, what, path, beside @ ..] = fields
            && kind == "conflict"
            && beside.len() < 2
        {
            let kind = ConflictKind::ALL.into_iter().find(|kind| what == kind.name())?;
            let (path, beside) = (path.into(), beside.first().map(PathBuf::from));
            return Some(Self::Conflict(Conflict { path, kind, beside }));
        }
        if let [kind, branch, device, dir] = fields
            && kind == "place"
        {
            let (branch, device) = (branch.to_str()?.to_owned(), device.to_str()?.to_owned());
            return Some(Self::Place { branch, device, dir: dir.into() });
        }
        let words: Vec<&str> = fields.iter().map(|field| field.to_str()).collect::<Option<_>>()?;
        Some(match words[..] {
            ["end"] => Self::End,
            ["refused", errno, why] => {
                let errno = Errno::from_raw_os_error(errno.parse().ok()?);
                Self::Refused(Error { errno, why: why.to_owned() })
            }
            ["number", number] => Self::Number(number.parse().ok()?),
            ["statistics", ref numbers @ ..] => {
                Self::Statistics(Box::new(statistics::decode(numbers)))
            }
            ["branch", ref fields @ ..] => Self::Branch(decode_branch(fields)?),
            ["entry", ref fields @ ..] => Self::Entry(decode_entry(fields)?),
            ["merged", ref fields @ ..] => Self::Merged(decode_merged(fields)?),
            ["kept", name] => Self::Kept(name.to_owned()),
            ["checked", status, words, json] => Self::Checked(Checked {
                status: status.parse().ok()?,
                words: words.to_owned(),
                json: json.to_owned(),
            }),
            ["state", id] => Self::State(id.parse::<u128>().ok()?.to_be_bytes()),
            ["stage", word] => Self::Stage(STAGES.iter().find(|(_, it)| *it == word)?.0),
            _ => return None,
        })
    }
}

fn encode_branch(info: &BranchInfo) -> Vec<String> {
    let BranchInfo { name, parent, size, read_only, depth, own, limit, made, text } = info.clone();
    let access = if read_only { READ_ONLY } else { "" }.to_owned();
    let limit = limit.map_or_else(String::new, |limit| limit.to_string());
    let [size, own, depth] = [size, own, depth.into()].map(|number: u64| number.to_string());
    // No branch has an empty name.
    let (parent, made) = (parent.unwrap_or_default(), encode_time(made));
    vec!["branch".into(), name, size, own, limit, depth, access, parent, made, text]
}

fn decode_branch(fields: &[&str]) -> Option<BranchInfo> {
    let [name, size, own, limit, depth, access, parent, made, text] = *fields else { return None };
    Some(BranchInfo {
        name: name.to_owned(),
        parent: (!parent.is_empty()).then(|| parent.to_owned()),
        size: size.parse().ok()?,
        own: own.parse().ok()?,
        limit: if limit.is_empty() { None } else { Some(limit.parse().ok()?) },
        depth: depth.parse().ok()?,
        read_only: access == READ_ONLY,
        made: decode_time(made)?,
        text: text.to_owned(),
    })
}

/// Returns a time in nanoseconds since 1970, 0 for none.
fn encode_time(time: Option<SystemTime>) -> String {
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    since.as_nanos().to_string()
}

fn decode_time(text: &str) -> Option<Option<SystemTime>> {
    let nanos: u64 = text.parse().ok()?;
    Some((nanos != 0).then(|| UNIX_EPOCH + Duration::from_nanos(nanos)))
}

fn decode_merged(fields: &[&str]) -> Option<Merged> {
    let [is_done, added, removed, moved, changed, texts, kept @ ..] = fields else { return None };
    let is_one = kept.len() < 2;
    is_one.then_some(Merged {
        added: added.parse().ok()?,
        removed: removed.parse().ok()?,
        moved: moved.parse().ok()?,
        changed: changed.parse().ok()?,
        texts: texts.parse().ok()?,
        conflicts: Vec::new(),
        kept: kept.first().map(|name| (*name).to_owned()),
        is_done: is_done.parse().ok()?,
    })
}

fn encode_entry(entry: &LogEntry) -> Vec<String> {
    let LogEntry { node, kind, time, text, parent, merges, branches } = entry;
    let numbers = [*node, parent.unwrap_or_default(), merges.len() as u64].map(|it| it.to_string());
    let words = ["entry", kind.name(), text].map(str::to_owned).into_iter();
    let merges = merges.iter().flat_map(|it| [it.node.to_string(), it.branch.clone()]);
    let time = [encode_time(*time)];
    words.chain(time).chain(numbers).chain(merges).chain(branches.iter().cloned()).collect()
}

fn decode_entry(fields: &[&str]) -> Option<LogEntry> {
    let [kind, text, time, node, parent, count, rest @ ..] = fields else { return None };
    let (merges, branches) = rest.split_at_checked(count.parse::<usize>().ok()?.checked_mul(2)?)?;
    let merge = |it: &[&str]| Some(LogMerge { node: it[0].parse().ok()?, branch: it[1].into() });
    let parent: u64 = parent.parse().ok()?;
    Some(LogEntry {
        node: node.parse().ok()?,
        kind: LogKind::ALL.into_iter().find(|it| it.name() == *kind)?,
        time: decode_time(time)?,
        text: (*text).to_owned(),
        parent: (parent != 0).then_some(parent),
        merges: merges.chunks(2).map(merge).collect::<Option<_>>()?,
        branches: branches.iter().map(|name| (*name).to_owned()).collect(),
    })
}

fn encode_difference(difference: &Difference) -> Fields {
    let Difference { path, kind, mode, size } = difference;
    let (kind, rest): (&str, Vec<&OsStr>) = match kind {
        DifferenceKind::Added => ("added", Vec::new()),
        DifferenceKind::Removed => ("removed", Vec::new()),
        DifferenceKind::Replaced => ("replaced", Vec::new()),
        DifferenceKind::Moved { from } => ("moved", vec![from.as_os_str()]),
        DifferenceKind::Changed(Changes { content, attributes, xattrs, .. }) => {
            let parts = [(content, CONTENT), (attributes, ATTRIBUTES), (xattrs, XATTRS)];
            let parts = parts.into_iter().filter(|(differs, _)| **differs);
            ("changed", parts.map(|(_, part)| OsStr::new(part)).collect())
        }
        // Its word is one that the other side does not know.
        _ => ("other", Vec::new()),
    };
    let numbers = [mode.to_string(), size.to_string()].map(OsString::from);
    let words = ["difference", kind].map(OsString::from).into_iter();
    let fields = words.chain(numbers).chain([path.as_os_str().to_owned()]);
    fields.chain(rest.into_iter().map(OsStr::to_owned)).collect()
}

fn decode_difference(fields: &[OsString]) -> Option<Difference> {
    let [kind, mode, size, path, rest @ ..] = fields else { return None };
    let kind = match (kind.to_str()?, rest) {
        ("added", []) => DifferenceKind::Added,
        ("removed", []) => DifferenceKind::Removed,
        ("replaced", []) => DifferenceKind::Replaced,
        ("moved", [from]) => DifferenceKind::Moved { from: PathBuf::from(from) },
        ("changed", parts) => {
            let has = |part| parts.iter().any(|it| it == part);
            let (content, attributes, xattrs) = (has(CONTENT), has(ATTRIBUTES), has(XATTRS));
            DifferenceKind::Changed(Changes { content, attributes, xattrs })
        }
        _ => return None,
    };
    let (mode, size) = (mode.to_str()?.parse().ok()?, size.to_str()?.parse().ok()?);
    Some(Difference { path: PathBuf::from(path), kind, mode, size })
}
