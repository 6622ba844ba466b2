//! Whose a line is that two calls conflict on, and where they touch it.
//!
//! A line belongs to the field that is worked on where it is touched. Locks, counters, tables and other
//! structures of `sync` are parts of something: their own field comes first, and then that of the innermost
//! function outside of `sync`, which holds them (`RawMutex.state in SuperBlock.hot`).

use std::fmt;

use serde::Serialize;

use crate::arena;
use crate::conflict::Conflict;
use crate::record::{Access, Step, Trace};
use crate::symbols::{Frame, Symbols};

/// A conflict in words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Found {
    /// What the line belongs to.
    pub owner: Owner,
    /// Where the first call touches it.
    pub first: Place,
    /// Where the second does.
    pub second: Place,
    /// Whether both touch the same bytes. If not, the two only happen to be neighbours on a line.
    pub same_bytes: bool,
    /// The offset of the line in the block of memory that it lies in.
    pub offset: u64,
    /// The size of that block; 0 if it is none: a static variable, or memory of the system.
    pub block_bytes: u64,
}

/// What a line belongs to, by type and field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Owner {
    /// The field that is touched; the function, where the text does not tell.
    pub field: String,
    /// Whose part that is, if it is a structure of `sync` or of a library.
    pub of: Option<String>,
}

/// Where a call touches a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// Whether it writes.
    pub write: bool,
    /// The innermost function of this workspace or of a library it uses.
    pub at: Frame,
    /// Those that led there, the innermost first.
    pub through: Vec<Frame>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.field)?;
        self.of.as_ref().map_or(Ok(()), |of| write!(f, " in {of}"))
    }
}

impl fmt::Display for Place {
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

/// Functions of the language itself, which say nothing about whose something is.
fn is_of_language(frame: &Frame) -> bool {
    frame.file.starts_with("library/") || frame.file == "?"
}

/// Structures that are parts of something.
fn is_of_structures(frame: &Frame) -> bool {
    frame.file.starts_with("crates/sync/") || !frame.file.starts_with("crates/")
}

/// Frames that belong to the checker.
fn is_of_checker(frame: &Frame) -> bool {
    ["runner.rs", "record/context.rs", "execute.rs"]
        .iter()
        .any(|file| frame.file.strip_prefix("crates/commute/src/") == Some(file))
}

fn place(symbols: &mut Symbols, trace: &Trace, index: usize, access: Access) -> Place {
    let mut frames = symbols.frames(access.ip).to_vec();
    for ip in trace.calls_to(index).into_iter().rev() {
        frames.extend_from_slice(symbols.frames(ip));
    }
    let end = frames.iter().position(is_of_checker).unwrap_or(frames.len());
    let innermost = frames[0].clone();
    let mut own = frames.drain(..end).filter(|frame| !is_of_language(frame));
    let at = own.next().unwrap_or(innermost);
    Place { write: access.write, at, through: own.collect() }
}

/// What a line belongs to, by who touches it.
fn owner(place: &Place) -> Owner {
    let name = |frame: &Frame| frame.field.clone().unwrap_or_else(|| frame.function.clone());
    let holder = place.through.iter().find(|frame| !is_of_structures(frame));
    let of = if is_of_structures(&place.at) { holder.map(name) } else { None };
    Owner { field: name(&place.at), of }
}

/// A conflict in words.
pub fn describe(
    conflict: &Conflict,
    first: &Trace,
    second: &Trace,
    symbols: &mut Symbols,
) -> Option<Found> {
    let access = |trace: &Trace, index: usize| match trace.steps.get(index) {
        Some(Step::Access(access)) => Some(*access),
        _ => None,
    };
    let (a, b) = (access(first, conflict.first)?, access(second, conflict.second)?);
    let first = place(symbols, first, conflict.first, a);
    let second = place(symbols, second, conflict.second, b);
    // Who writes knows better what it is.
    let owner = owner(if first.write { &first } else { &second });
    let block = arena::block_of(conflict.line);
    Some(Found {
        owner,
        first,
        second,
        same_bytes: conflict.bytes != 0,
        offset: block.map_or(0, |block| conflict.line - block.start),
        block_bytes: block.map_or(0, |block| block.bytes),
    })
}
