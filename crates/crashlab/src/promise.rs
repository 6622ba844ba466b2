//! The promises of file systems about power cuts, as rules over a log.
//!
//! A rule is of one of two forms. *Forced*: from some sync on, a change can't be lost. *Implied*:
//! if a change is lost, others are lost with it. A set of changes can be lost together if it has
//! all that its members imply, and none that is forced.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;

use vfscale_fuse::recording::{Change, Object};

use crate::event::{Event, Kind};
use crate::log::Log;

/// The promise of a file system about power cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promise {
    /// The promise of POSIX, and so what a portable program may rely on: `fsync` makes the data and
    /// the attributes of a file durable, that of a directory its names, and nothing has an order. A
    /// change of one name is whole or not there, and so is a rename.
    #[default]
    Posix,
    /// The promise of ext4 with `data=ordered`, its default: names and attributes are as after some
    /// number of calls; `fsync` of a file makes all calls up to the last one durable that has
    /// changed the file or its names; a file that replaces another has its data
    /// (`auto_da_alloc`); nobody sees what was not written. Sources: the kernel's
    /// `Documentation/admin-guide/ext4.rst`; `ext4_rename` and `ext4_alloc_da_blocks`.
    Ext4,
    /// The promise of vfscale (`docs/SEMANTICS.md`, "What a crash leaves"): as ext4; a file that is
    /// exchanged with another has its data too, and a sync of any file writes those that were
    /// truncated to zero and written again.
    Vfscale,
}

/// A name that is no promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePromiseError(String);

impl fmt::Display for ParsePromiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no promise: write `posix`, `ext4` or `vfscale`", self.0)
    }
}

impl std::error::Error for ParsePromiseError {}

impl FromStr for Promise {
    type Err = ParsePromiseError;

    fn from_str(name: &str) -> Result<Self, ParsePromiseError> {
        let all = [Promise::Posix, Promise::Ext4, Promise::Vfscale];
        let found = all.into_iter().find(|promise| promise.to_string() == name);
        found.ok_or_else(|| ParsePromiseError(name.to_owned()))
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Promise::Posix => "posix",
            Promise::Ext4 => "ext4",
            Promise::Vfscale => "vfscale",
        })
    }
}

impl Promise {
    /// Returns whether names and attributes are as after some number of calls.
    fn is_ordered(self) -> bool {
        self != Promise::Posix
    }
}

/// Bytes that a device writes whole.
const SECTOR: u64 = 512;

/// The rules for each step of a log.
pub(crate) struct History {
    is_ordered: bool,
    /// The sync that forces it.
    forced: Vec<Option<usize>>,
    /// The steps that are lost with it; those that they imply in turn are not repeated.
    implied: Vec<Vec<usize>>,
    /// Writes of which either part can be lost: their blocks are in the file for good.
    in_place: Vec<bool>,
}

impl History {
    pub(crate) fn new(log: &Log, promise: Promise) -> Self {
        let events = &log.events;
        let mut history = Self {
            is_ordered: promise.is_ordered(),
            forced: vec![None; events.len()],
            implied: vec![Vec::new(); events.len()],
            in_place: vec![false; events.len()],
        };
        history.find_places(events);
        history.force(events, promise);
        if promise.is_ordered() {
            history.order(events, promise);
        }
        history
    }

    /// Finds the writes into blocks that the file has, whatever is lost.
    fn find_places(&mut self, events: &[Event]) {
        // The length to which that is so, and the present length.
        let mut files: HashMap<Object, (u64, u64)> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            let Event::Change(change) = event else { continue };
            match change {
                Change::Made { object, .. } => {
                    files.insert(*object, (0, 0));
                }
                Change::Written { object, offset, data, size, .. } => {
                    let (stable, present) = files.entry(*object).or_insert((*size, *size));
                    let end = offset + data.len() as u64;
                    self.in_place[index] = end <= *stable;
                    *present = end.max(*size);
                }
                Change::Resized { object, size, former, .. } => {
                    let (stable, present) = files.entry(*object).or_insert((*former, *former));
                    (*stable, *present) = (*size.min(stable), *size);
                }
                // Holes and shifts.
                Change::Allocated { object, mode, .. } if mode & !1 != 0 => {
                    files.entry(*object).or_default().0 = 0;
                }
                Change::Synced { object, .. } => {
                    if let Some((stable, present)) = files.get_mut(object) {
                        *stable = *present;
                    }
                }
                _ => {}
            }
        }
    }

    /// Finds what each sync makes durable.
    fn force(&mut self, events: &[Event], promise: Promise) {
        for (sync, event) in events.iter().enumerate() {
            let Event::Change(Change::Synced { object, data_only, .. }) = event else { continue };
            let mut truncated = Truncated::default();
            for (index, before) in events[..sync].iter().enumerate() {
                let is_written = truncated.next(before) && promise == Promise::Vfscale;
                let is_own = before.object() == Some(*object);
                let is_forced = match before.kind() {
                    Kind::Mark => false,
                    Kind::Data => is_own || is_written,
                    // The length and the blocks that the data need.
                    Kind::Inode if *data_only => is_own && is_about_space(before),
                    Kind::Inode => is_own,
                    // The data of a directory are its names.
                    Kind::Name if !promise.is_ordered() || *data_only => {
                        before.names().iter().any(|name| name.dir == *object)
                    }
                    Kind::Name => before.touches(*object),
                };
                if is_forced {
                    self.forced[index].get_or_insert(sync);
                }
            }
        }
    }

    /// Finds what is lost together where names and attributes are in order. From the last step on,
    /// so that what comes next is known.
    fn order(&mut self, events: &[Event], promise: Promise) {
        // The next change of names or attributes, and the writes before it that need new blocks,
        // whose place is an attribute.
        let (mut next, mut writes) = (None, Vec::new());
        // Of each file the next write that makes it longer, and the next rename over another.
        let (mut longer, mut replacing) = (HashMap::new(), HashMap::new());
        for (index, event) in events.iter().enumerate().rev() {
            let implied = &mut self.implied[index];
            match (event.kind(), event.object()) {
                (Kind::Name | Kind::Inode, _) => {
                    *implied = std::mem::take(&mut writes);
                    implied.extend(next);
                    next = Some(index);
                    for object in replacing_files(event, promise) {
                        replacing.insert(object, index);
                    }
                }
                (Kind::Data, Some(object)) => {
                    if !self.in_place[index] {
                        writes.push(index);
                    }
                    implied.extend(replacing.get(&object));
                    if extends(event) {
                        // A file ends before what was not written.
                        implied.extend(longer.insert(object, index));
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns whether a step can be lost by itself in a power cut before the step `cut`.
    pub(crate) fn is_free(&self, index: usize, cut: usize) -> bool {
        self.forced[index].is_none_or(|sync| sync >= cut)
    }

    /// Returns steps that are lost with one, before the step `cut`: with those that are lost with
    /// these, all.
    pub(crate) fn implied(&self, index: usize, cut: usize) -> impl Iterator<Item = usize> + '_ {
        self.implied[index].iter().copied().filter(move |other| *other < cut)
    }

    /// Adds what is lost with the members of a set in a power cut before the step `cut`. `None` if
    /// that can't be lost.
    pub(crate) fn close(&self, lost: BTreeSet<usize>, cut: usize) -> Option<BTreeSet<usize>> {
        let mut open: Vec<usize> = lost.iter().copied().collect();
        let mut closed = lost;
        while let Some(index) = open.pop() {
            if !self.is_free(index, cut) {
                return None;
            }
            open.extend(self.implied(index, cut).filter(|other| closed.insert(*other)));
        }
        Some(closed)
    }

    /// Returns the parts of a write that can arrive alone: offsets in it, in bytes.
    pub(crate) fn parts(&self, index: usize, event: &Event) -> Vec<(usize, usize)> {
        let Event::Change(Change::Written { offset, data, .. }) = event else { return Vec::new() };
        let middle = offset + data.len() as u64 / 2;
        let cut = match self.is_ordered {
            true => middle.next_multiple_of(SECTOR),
            false => middle,
        };
        let Some(cut) = cut.checked_sub(*offset).map(|it| it as usize) else { return Vec::new() };
        if cut == 0 || cut >= data.len() {
            return Vec::new();
        }
        let mut parts = vec![(0, cut)];
        if self.in_place[index] || !self.is_ordered {
            parts.push((cut, data.len()));
        }
        parts
    }
}

/// The files that were truncated to zero, and the bytes that each has got since.
#[derive(Default)]
struct Truncated(HashMap<Object, usize>);

impl Truncated {
    /// Takes the next step. Returns whether it writes one of the first 4 MiB of such a file.
    fn next(&mut self, event: &Event) -> bool {
        match event {
            Event::Change(Change::Resized { object, size: 0, .. }) => {
                self.0.insert(*object, 0);
                false
            }
            Event::Change(Change::Written { object, data, .. }) => {
                let bytes = self.0.get_mut(object);
                bytes.is_some_and(|bytes| {
                    *bytes += data.len();
                    *bytes < 4 << 20
                })
            }
            _ => false,
        }
    }
}

/// Returns whether a change is one of length or blocks.
fn is_about_space(event: &Event) -> bool {
    matches!(event, Event::Change(Change::Resized { .. } | Change::Allocated { .. }))
}

/// Returns whether a write makes its file longer.
fn extends(event: &Event) -> bool {
    match event {
        Event::Change(Change::Written { offset, data, size, .. }) => {
            offset + data.len() as u64 > *size
        }
        _ => false,
    }
}

/// Returns the files that a rename puts in the place of others, and that have their data then.
fn replacing_files(event: &Event, promise: Promise) -> Vec<Object> {
    match event {
        Event::Change(Change::Renamed { object, replaced: Some(other), exchanged, .. }) => {
            match (exchanged, promise) {
                (false, _) => vec![*object],
                (true, Promise::Vfscale) => vec![*object, *other],
                (true, _) => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}
