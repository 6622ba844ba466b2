//! A node of the history, as the branch table tells it.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use vfscale_sync::random::fresh_seed;
use zerocopy::little_endian::U64;

use crate::Error;
use crate::disk::format::{self, Bytes, DEPTH_MAX, Entry, NAME_MAX, PLACE_BYTES, RawRecord};
use crate::disk::layout::Layout;

/// Most blocks of a branch: 16 TiB.
pub(crate) const BLOCKS_MAX: u64 = 1 << 32;

/// Most places of a limit: those of all bytes that a number counts.
pub(crate) const LIMIT_MAX: u64 = u64::MAX / PLACE_BYTES as u64;

/// The node can't be written any more: others depend on it, or its user said so.
pub(crate) const FROZEN: u32 = 1;
/// The node was given up; its places are being freed.
pub(crate) const ZOMBIE: u32 = 2;
/// The node that it was forked from was merged into it.
pub(crate) const MERGED: u32 = 4;

/// The node was frozen for its contents to be looked at, and not because one was forked from it: a
/// rollback does not stop there.
pub(crate) const PASSING: u32 = 1;
/// The node is the state at an adoption: its only child keeps it for a rollback.
pub(crate) const KEPT: u32 = 2;
/// The branch lives no longer than the pool is open.
pub(crate) const TEMPORARY: u32 = 4;

/// Where the delta log of a branch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogArea {
    pub(crate) place: u64,
    pub(crate) blocks: u32,
    /// Records of other sequences are stale.
    pub(crate) sequence: u64,
}

impl LogArea {
    /// Returns the places of its records.
    pub(crate) fn places(&self) -> Range<u64> {
        self.place..self.place + u64::from(self.blocks)
    }

    /// Returns whether it is no row of places of the pool.
    pub(crate) fn is_outside(&self, layout: &Layout) -> bool {
        let end = self.place.saturating_add(u64::from(self.blocks));
        self.blocks == 0 || !layout.has(self.place) || end > layout.places
    }

    /// Returns whether no commit has begun the log anew since it was made, or was a spare.
    pub(crate) fn is_new(&self) -> bool {
        self.sequence >> 63 != 0
    }
}

/// Returns a sequence that no log has had.
pub(crate) fn unused_sequence() -> u64 {
    // Checkpoints give logs the numbers of commits, which stay far below 2^63.
    fresh_seed() | 1 << 63
}

/// A node of the history. A branch is a node with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) id: u64,
    /// The node that it was forked from; 0 for none.
    pub(crate) parent: u64,
    /// Greater than its parent's: what it writes has this as birth.
    pub(crate) depth: u32,
    pub(crate) flags: u32,
    pub(crate) root: Entry,
    /// The size of the device.
    pub(crate) blocks: u64,
    pub(crate) log: Option<LogArea>,
    /// Place of the newest block of the dead list, 0 for none.
    pub(crate) dead: u64,
    pub(crate) dead_count: u64,
    /// Places with its births.
    pub(crate) own: u64,
    /// The id of the node that its branch began as; 0 if the branch is no copy of another one.
    pub(crate) origin: u64,
    /// Marks, which a program that does not know them may lose.
    pub(crate) marks: u32,
    /// When the branch was made; of a node without a name, when it was frozen. In nanoseconds since
    /// 1970, 0 if unknown.
    pub(crate) time: u64,
    /// In the record of a merge of its parent, the node with the result; 0 in other nodes.
    pub(crate) merged: u64,
    /// The number by which other pools know these contents: of a branch that can only be read, once
    /// it was sent or has come; else 0.
    pub(crate) sent: u64,
    /// How many places the branch may have for itself, 0 for any number. Of one that can be
    /// written, so it has no `sent`.
    pub(crate) limit: u64,
    /// Empty for a node that is no branch.
    pub(crate) name: String,
    /// The text of a checkpoint, or the branch that was adopted or merged.
    pub(crate) text: String,
}

impl Record {
    /// Returns a node without a name, a parent and contents.
    pub(crate) fn new(id: u64, blocks: u64) -> Self {
        Self {
            id,
            parent: 0,
            depth: 1,
            flags: 0,
            root: Entry::NONE,
            blocks,
            log: None,
            dead: 0,
            dead_count: 0,
            own: 0,
            origin: 0,
            marks: 0,
            time: now(),
            merged: 0,
            sent: 0,
            limit: 0,
            name: String::new(),
            text: String::new(),
        }
    }

    /// Returns whether nothing can be written to it.
    pub(crate) fn is_frozen(&self) -> bool {
        self.flags & FROZEN != 0
    }

    /// Returns whether it has a mark.
    pub(crate) fn has(&self, mark: u32) -> bool {
        self.marks & mark != 0
    }

    /// Returns whether it was given up.
    pub(crate) fn is_zombie(&self) -> bool {
        self.flags & ZOMBIE != 0
    }

    /// Interprets a record of the block at `place`; `None` for a free slot.
    ///
    /// # Errors
    /// [`Error::Damage`].
    pub(crate) fn read(
        raw: &RawRecord,
        place: u64,
        layout: &Layout,
    ) -> Result<Option<Self>, Error> {
        let damage = |what| Err(Error::Damage { place, what });
        if raw.id.get() == 0 {
            return Ok(None);
        }
        let name = raw.name.get(..raw.name_bytes.get() as usize).map(std::str::from_utf8);
        let Some(Ok(name)) = name else { return damage("the name of a branch") };
        let text = raw.name[name.len()..].get(..raw.text_bytes.get() as usize);
        // As with marks, nothing depends on it.
        let text = text.and_then(|text| str::from_utf8(text).ok()).unwrap_or_default();
        let log = LogArea {
            place: raw.log.get(),
            blocks: raw.log_blocks.get(),
            sequence: raw.log_sequence.get(),
        };
        let is_frozen = raw.flags.get() & FROZEN != 0;
        let record = Self {
            id: raw.id.get(),
            parent: raw.parent.get(),
            depth: raw.depth.get(),
            flags: raw.flags.get(),
            root: Entry(raw.root.get()),
            blocks: raw.blocks.get(),
            log: (log.place != 0).then_some(log),
            dead: raw.dead.get(),
            dead_count: raw.dead_count.get(),
            own: raw.own.get(),
            origin: raw.origin.get(),
            marks: raw.marks.get() & (PASSING | KEPT | TEMPORARY),
            time: raw.time.get(),
            merged: raw.merged.get(),
            sent: if is_frozen { raw.sent_or_limit.get() } else { 0 },
            limit: if is_frozen { 0 } else { raw.sent_or_limit.get().min(LIMIT_MAX) },
            name: name.into(),
            text: text.into(),
        };
        match record.complaint(layout) {
            Some(what) => damage(what),
            None => Ok(Some(record)),
        }
    }

    fn complaint(&self, layout: &Layout) -> Option<&'static str> {
        let places = layout.places;
        let is_outside = |place: u64| !layout.has(place);
        if self.depth == 0
            || self.depth > DEPTH_MAX
            || self.flags & !(FROZEN | ZOMBIE | MERGED) != 0
        {
            return Some("the depth or the flags of a branch");
        }
        if self.blocks == 0 || self.blocks > BLOCKS_MAX {
            return Some("the size of a branch");
        }
        if !self.name.is_empty() && (self.is_zombie() || !is_name(&self.name)) {
            return Some("the name of a branch");
        }
        if self.log.is_some_and(|log| log.is_outside(layout)) {
            return Some("the log of a branch is not in the pool");
        }
        if self.own > places {
            return Some("the space of a branch");
        }
        if self.dead_count > places || self.dead != 0 && is_outside(self.dead) {
            return Some("the dead list of a branch is not in the pool");
        }
        layout.complaint(self.root, self.depth)
    }

    /// Writes the record into a slot.
    pub(crate) fn write(&self, raw: &mut RawRecord) {
        let mut name = [0; NAME_MAX];
        let both = [self.name.as_bytes(), self.text.as_bytes()].concat();
        name[..both.len()].copy_from_slice(&both);
        let log = self.log.unwrap_or(LogArea { place: 0, blocks: 0, sequence: 0 });
        *raw = RawRecord {
            id: self.id.into(),
            parent: self.parent.into(),
            depth: self.depth.into(),
            flags: self.flags.into(),
            root: U64::new(self.root.0),
            blocks: self.blocks.into(),
            log: log.place.into(),
            log_sequence: log.sequence.into(),
            log_blocks: log.blocks.into(),
            name_bytes: (self.name.len() as u32).into(),
            dead: self.dead.into(),
            dead_count: self.dead_count.into(),
            own: self.own.into(),
            origin: self.origin.into(),
            marks: self.marks.into(),
            text_bytes: (self.text.len() as u32).into(),
            time: self.time.into(),
            merged: self.merged.into(),
            sent_or_limit: if self.is_frozen() { self.sent } else { self.limit }.into(),
            name,
        };
    }
}

/// Returns the time, in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or_default()
}

/// Returns how long the text of a branch may be, in bytes, beside its name.
pub(crate) fn text_max(name: &str) -> usize {
    NAME_MAX - name.len()
}

/// Returns whether a branch can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.contains(|c: char| c == '/' || c.is_control())
}

/// Returns the records of a block of the table.
///
/// # Errors
/// [`Error::Damage`].
pub(crate) fn read_block(
    block: &format::TableBlock,
    number: u64,
    place: u64,
    layout: &Layout,
) -> Result<Vec<Option<Record>>, Error> {
    if block.header.number.get() != number {
        return Err(Error::Damage { place, what: "another block of the branch table" });
    }
    block.records.iter().map(|raw| Record::read(raw, place, layout)).collect()
}

/// Returns the bytes of a block of the table.
pub(crate) fn seal_block(records: &[Option<Record>], header: format::Header) -> Box<Bytes> {
    let mut block: format::TableBlock = format::zeroed();
    block.header = header;
    for (raw, record) in block.records.iter_mut().zip(records) {
        if let Some(record) = record {
            record.write(raw);
        }
    }
    format::seal(&block)
}
