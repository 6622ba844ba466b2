//! Owners of conflicting lines, and the source lines that touch them.
//!
//! A line belongs to the field that the touching code works on. Locks, counters, tables and other
//! structures of `sync` are parts of larger objects. For them, the owner names their own field
//! first and then the field of the innermost function outside of `sync`, which holds them
//! (`RawMutex.state in SuperBlock.hot`).

use std::fmt;

use serde::Serialize;

use crate::trace::arena;
use crate::trace::conflict::Conflict;
use crate::trace::record::{Access, Step, Trace};
use crate::trace::symbols::{Frame, Symbols};

/// A conflict, described by names of fields and functions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NamedConflict {
    /// Owner of the line.
    pub owner: Owner,
    /// Access of the first call.
    pub first: AccessSite,
    /// Access of the second call.
    pub second: AccessSite,
    /// Whether both calls touch the same bytes. If not, the line is falsely shared.
    pub same_bytes: bool,
    /// Offset of the line in its allocated block.
    pub offset: u64,
    /// Size of that block; 0 if the line is in no block: a static variable or memory of the system.
    pub block_bytes: u64,
}

/// Owner of a line, by type and field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Owner {
    /// The touched field; the function if the source names no field.
    pub field: String,
    /// The field that contains it, if it is a structure of `sync` or of a library.
    pub of: Option<String>,
}

/// An access, by its location in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AccessSite {
    /// Whether the access writes.
    pub write: bool,
    /// Innermost function of this workspace or of a library it uses.
    pub at: Frame,
    /// Callers of that function, innermost first.
    pub through: Vec<Frame>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        self.of.as_ref().map_or(Ok(()), |of| write!(f, " in {of}"))
    }
}

impl fmt::Display for AccessSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.write { "written" } else { "read" };
        write!(f, "{how} by {} ({}:{})", self.at.function, self.at.file, self.at.line)?;
        let holder = self.through.iter().find(|frame| !is_of_structures(frame));
        match holder {
            Some(frame) if is_of_structures(&self.at) => {
                write!(f, " for {} ({}:{})", frame.function, frame.file, frame.line)
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether a frame is in the standard library, which does not show the owner.
fn is_of_language(frame: &Frame) -> bool {
    frame.file.starts_with("library/") || frame.file == "?"
}

/// Returns whether a frame is in a structure that is part of a larger object.
fn is_of_structures(frame: &Frame) -> bool {
    let is_ours = ["crates/", "lab/"].iter().any(|folder| frame.file.starts_with(folder));
    frame.file.starts_with("crates/sync/") || !is_ours
}

/// Returns whether a frame is in this checker.
fn is_of_checker(frame: &Frame) -> bool {
    ["runner.rs", "trace/record/recorder.rs", "execute.rs"]
        .iter()
        .any(|file| frame.file.strip_prefix("lab/commute/src/") == Some(file))
}

fn access_site(symbols: &mut Symbols, trace: &Trace, index: usize, access: Access) -> AccessSite {
    let mut frames = symbols.frames(access.ip).to_vec();
    for ip in trace.calls_to(index).into_iter().rev() {
        frames.extend_from_slice(symbols.frames(ip));
    }
    let end = frames.iter().position(is_of_checker).unwrap_or(frames.len());
    let innermost = frames[0].clone();
    let mut own = frames.drain(..end).filter(|frame| !is_of_language(frame));
    let at = own.next().unwrap_or(innermost);
    AccessSite { write: access.write, at, through: own.collect() }
}

/// Returns the owner of a line, given an access to it.
fn owner(site: &AccessSite) -> Owner {
    let name = |frame: &Frame| frame.field.clone().unwrap_or_else(|| frame.function.clone());
    let holder = site.through.iter().find(|frame| !is_of_structures(frame));
    let of = if is_of_structures(&site.at) { holder.map(name) } else { None };
    Owner { field: name(&site.at), of }
}

/// Describes a conflict by names. Returns `None` if an index is not that of an access.
pub fn describe(
    conflict: &Conflict,
    first: &Trace,
    second: &Trace,
    symbols: &mut Symbols,
) -> Option<NamedConflict> {
    let access = |trace: &Trace, index: usize| match trace.steps.get(index) {
        Some(Step::Access(access)) => Some(*access),
        _ => None,
    };
    let (a, b) = (access(first, conflict.first)?, access(second, conflict.second)?);
    let first = access_site(symbols, first, conflict.first, a);
    let second = access_site(symbols, second, conflict.second, b);
    // The writer's code is more specific about the owner.
    let owner = owner(if first.write { &first } else { &second });
    let block = arena::block_of(conflict.line);
    Some(NamedConflict {
        owner,
        first,
        second,
        same_bytes: conflict.bytes != 0,
        offset: block.map_or(0, |block| conflict.line - block.start),
        block_bytes: block.map_or(0, |block| block.bytes),
    })
}
