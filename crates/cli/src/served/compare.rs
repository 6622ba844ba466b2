//! Requests about whole branches of the image that this process has open: compare two, have one
//! adopt another, and roll one back.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use vfscale::Pool;
use vfscale::pool::{Changes, Difference, DifferenceKind};

use super::wire;

/// Letters of the parts that differ.
const CONTENT: &str = "c";
const ATTRIBUTES: &str = "a";
const XATTRS: &str = "x";

/// Compares two branches, and sends a message for each difference.
pub(super) fn diff(stream: &UnixStream, pool: &Pool, a: &str, b: &str) -> io::Result<()> {
    let found = match pool.diff(a, b) {
        Ok(found) => found,
        Err(error) => return wire::say(stream, &["refused", &error.to_string()]),
    };
    for difference in &found {
        send(stream, difference)?;
    }
    wire::say(stream, &["end"])
}

/// Gives a branch the contents of its child.
pub(super) fn adopt(stream: &UnixStream, pool: &Pool, parent: &str, child: &str) -> io::Result<()> {
    match pool.adopt(parent, child) {
        Ok(()) => wire::say(stream, &["end"]),
        Err(error) => wire::say(stream, &["refused", &error.to_string()]),
    }
}

/// Rolls a branch back, and sends what goes: the branch that has it, and the differences.
pub(super) fn rollback(stream: &UnixStream, pool: &Pool, name: &str) -> io::Result<()> {
    match pool.rollback(name) {
        Ok(None) => wire::say(stream, &["end"]),
        Ok(Some(kept)) => {
            wire::say(stream, &["kept", &kept])?;
            diff(stream, pool, name, &kept)
        }
        Err(error) => wire::say(stream, &["refused", &error.to_string()]),
    }
}

fn send(stream: &UnixStream, difference: &Difference) -> io::Result<()> {
    let path = difference.path.as_os_str();
    match &difference.kind {
        DifferenceKind::Added => wire::send(stream, &[OsStr::new("added"), path]),
        DifferenceKind::Removed => wire::send(stream, &[OsStr::new("removed"), path]),
        DifferenceKind::Replaced => wire::send(stream, &[OsStr::new("replaced"), path]),
        DifferenceKind::Moved { from } => {
            wire::send(stream, &[OsStr::new("moved"), path, from.as_os_str()])
        }
        DifferenceKind::Changed(changes) => {
            let parts = [
                (changes.content, CONTENT),
                (changes.attributes, ATTRIBUTES),
                (changes.xattrs, XATTRS),
            ];
            let parts: String =
                parts.into_iter().filter(|(differs, _)| *differs).map(|(_, part)| part).collect();
            wire::send(stream, &[OsStr::new("changed"), path, OsStr::new(&parts)])
        }
        other => {
            let why = format!("its server has found what can't be told: {other:?}");
            wire::say(stream, &["refused", &why])
        }
    }
}

/// Interprets a message of [`diff`]; `None` if it is another one.
pub(crate) fn difference(message: &[OsString]) -> Option<Difference> {
    let (kind, path, rest) = match message {
        [kind, path, rest @ ..] => (kind.to_str()?, PathBuf::from(path), rest),
        _ => return None,
    };
    let kind = match (kind, rest) {
        ("added", []) => DifferenceKind::Added,
        ("removed", []) => DifferenceKind::Removed,
        ("replaced", []) => DifferenceKind::Replaced,
        ("moved", [from]) => DifferenceKind::Moved { from: PathBuf::from(from) },
        ("changed", [parts]) => {
            let parts = parts.to_str()?;
            DifferenceKind::Changed(Changes {
                content: parts.contains(CONTENT),
                attributes: parts.contains(ATTRIBUTES),
                xattrs: parts.contains(XATTRS),
            })
        }
        _ => return None,
    };
    Some(Difference { path, kind })
}

#[cfg(test)]
mod tests;
