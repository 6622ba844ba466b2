//! Sending a branch.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use vfscale_sync::random::fresh_seed;

use super::stream::{Head, RECORD_BLOCKS, Writer};
use crate::calls::fork::refused;
use crate::disk::device::{Disk, offset};
use crate::disk::format::PLACE_BYTES;
use crate::disk::record::Record;
use crate::state::commit::{Change, State};
use crate::state::head::Purpose;
use crate::state::map::levels;
use crate::state::map::walk::{self, Tree};
use crate::{Branch, Error, Pool};

/// Options of [`Pool::send`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    since: Option<String>,
    skip: u64,
}

impl SendOptions {
    /// Returns the default options: all of it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends what differs from a branch that can only be read, which the receiver has.
    #[must_use]
    pub fn since(mut self, branch: Option<&str>) -> Self {
        self.since = branch.map(str::to_owned);
        self
    }

    /// Leaves out the first `bytes` of the stream: so one that was cut goes on. The branch is one
    /// that can only be read: its stream has the same bytes each time.
    #[must_use]
    pub fn skip(mut self, bytes: u64) -> Self {
        self.skip = bytes;
        self
    }
}

/// A stream that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The length of the stream, in bytes, with what was [left out](SendOptions::skip).
    pub bytes: u64,
    /// The contents in it, in bytes.
    pub data: u64,
}

impl Pool {
    /// Writes the contents of a branch that can only be read, or of a [snapshot](Self::snapshot) of
    /// the branch `name`, as a stream for [`receive`](Self::receive): all blocks but zeros, or with
    /// [`SendOptions::since`] those that differ. Both branches can be used and deleted meanwhile.
    ///
    /// Blocks for the I/O: reads the blocks that are sent, and the nodes that lead to them; two
    /// flushes if a branch that can only be read is sent for the first time. Takes 1 MiB of memory.
    ///
    /// # Errors
    /// [`Error::NoBranch`]; [`Error::Refused`] if `what` or the branch to go on from can be
    /// written, if that is `what` itself or larger, or if the first bytes of a snapshot were to be
    /// left out; [`Error::StreamFailed`], [`Error::Damage`], [`Error::Closed`] and errors of the
    /// device. A part of the stream was written then.
    pub fn send(
        &self,
        what: &Branch,
        name: &str,
        options: &SendOptions,
        out: &mut dyn Write,
    ) -> Result<Sent, Error> {
        let inner = what.inner()?;
        if !inner.is_read_only() {
            return Err(refused(
                name,
                "it can be written: send a state of it that does not change",
            ));
        }
        let ToSend { head, new, base } = self.to_send(inner.node(), name, options)?;
        let mut writer = Writer::new(out, options.skip);
        writer.head(&head)?;
        let disk = &self.shared.disk;
        let tree = |record: &Record| Tree { root: record.root, levels: levels(record.blocks) };
        let of_base = base.as_ref().map_or(Tree::EMPTY, |(record, _)| tree(record));
        let bytes = vec![0; RECORD_BLOCKS as usize * PLACE_BYTES];
        let (places, is_whole) = (Vec::new(), base.is_none());
        let mut sender = Sender { disk, writer, first: 0, places, bytes, zeros: 0..0, is_whole };
        let told = walk::changes(disk, of_base, tree(&new), &mut |blocks, place| {
            let blocks = blocks.start..blocks.end.min(new.blocks);
            match place {
                Some(place) => sender.places(blocks, place),
                None => sender.absent(blocks),
            }
        });
        if let Some((_, held)) = base {
            // Nothing is written, so nothing fails.
            let _ = held.close();
        }
        told?;
        sender.end()
    }

    fn to_send(&self, id: u64, name: &str, options: &SendOptions) -> Result<ToSend, Error> {
        let mut branches = self.open.lock();
        let mut state = self.shared.state.lock();
        self.shared.alive()?;
        let new = state.table.get(id).cloned().ok_or_else(|| Error::NoBranch(name.into()))?;
        if new.name.is_empty() && options.skip > 0 {
            let why =
                "it can be written, so its stream is another one each time: send a checkpoint";
            return Err(refused(name, why));
        }
        let base = options.since.as_deref().map(|since| state.table.named(since)).transpose()?;
        let base = base.cloned();
        if let Some(base) = &base {
            check_base(base, &new)?;
        }
        let number = self.number(&mut state, &new)?;
        let of_base = match &base {
            Some(base) => Some((self.number(&mut state, base)?, base.name.clone())),
            None => None,
        };
        drop(state);
        let head = Head {
            state: number,
            base: of_base,
            blocks: new.blocks,
            name: if new.name.is_empty() { name.to_owned() } else { new.name.clone() },
            text: new.text.clone(),
        };
        let base = match base {
            Some(base) => Some((base.clone(), self.open_node(&mut branches, base.id)?)),
            None => None,
        };
        Ok(ToSend { head, new, base })
    }

    /// Returns the number of the contents of a frozen node, and gives it one if it has none. That
    /// of a snapshot is of no use later.
    fn number(&self, state: &mut State, record: &Record) -> Result<u64, Error> {
        if record.sent != 0 {
            return Ok(record.sent);
        }
        let number = (fresh_seed() ^ fresh_seed().rotate_left(32)).max(1);
        if record.name.is_empty() {
            return Ok(number);
        }
        if self.shared.purpose == Purpose::Read {
            let why = "it was never sent, and the pool was opened to be read: open it for writing";
            return Err(refused(&record.name, why));
        }
        state.table.update(record.id, |record| record.sent = number);
        self.shared.commit(state, Change::default(), || ())?;
        Ok(number)
    }
}

/// Checks that a stream can go on from a branch.
///
/// # Errors
/// [`Error::Refused`].
fn check_base(base: &Record, new: &Record) -> Result<(), Error> {
    let why = if !base.is_frozen() {
        "it can be written: go on from a checkpoint, or another branch that can only be read"
    } else if base.id == new.id {
        "it is the branch that is sent"
    } else if base.blocks > new.blocks {
        "it is larger than the branch that is sent"
    } else {
        return Ok(());
    };
    Err(refused(&base.name, why))
}

/// A stream that is to be written.
struct ToSend {
    head: Head,
    new: Record,
    /// The node to go on from, which is held.
    base: Option<(Record, Arc<Branch>)>,
}

/// Blocks that are being sent.
struct Sender<'s> {
    disk: &'s Disk,
    writer: Writer<'s>,
    /// The first of the blocks that are still to be read, and the places of all.
    first: u64,
    places: Vec<u64>,
    bytes: Vec<u8>,
    /// Blocks that are still to be told as zeros.
    zeros: Range<u64>,
    /// Whether blocks that are not told read as zeros.
    is_whole: bool,
}

impl Sender<'_> {
    /// Sends blocks whose places are in a row: most of many may never have been written.
    fn places(&mut self, mut blocks: Range<u64>, mut place: u64) -> Result<(), Error> {
        let unit = PLACE_BYTES as u64;
        while blocks.end - blocks.start > RECORD_BLOCKS {
            let count = blocks.end - blocks.start;
            let data = self.disk.device.data_from(offset(place));
            let (hole, end) = data.map_or((count, count), |data| {
                let end = data.end.div_ceil(unit).saturating_sub(place).clamp(1, count);
                ((data.start / unit).saturating_sub(place).min(end), end)
            });
            let first = blocks.start + hole;
            blocks.start += end;
            self.absent(first - hole..first)?;
            self.present(first..blocks.start, place + hole)?;
            place += end;
        }
        self.present(blocks, place)
    }

    /// Sends blocks that were written. A record has no blocks of two multiples of its size, so it
    /// does not depend on places.
    fn present(&mut self, blocks: Range<u64>, place: u64) -> Result<(), Error> {
        for (block, place) in blocks.zip(place..) {
            let next = self.first + self.places.len() as u64;
            if block != next || block.is_multiple_of(RECORD_BLOCKS) {
                self.read()?;
                self.first = block;
            }
            self.places.push(place);
        }
        Ok(())
    }

    /// Sends that blocks have no places.
    fn absent(&mut self, blocks: Range<u64>) -> Result<(), Error> {
        self.read()?;
        self.zero(blocks)
    }

    fn zero(&mut self, blocks: Range<u64>) -> Result<(), Error> {
        if blocks.is_empty() || self.is_whole {
            return Ok(());
        }
        if self.zeros.end != blocks.start {
            self.tell_zeros()?;
            self.zeros.start = blocks.start;
        }
        self.zeros.end = blocks.end;
        Ok(())
    }

    fn tell_zeros(&mut self) -> Result<(), Error> {
        let zeros = std::mem::take(&mut self.zeros);
        if zeros.is_empty() { Ok(()) } else { self.writer.zeros(&zeros) }
    }

    /// Reads the blocks that are still to be read, and sends them.
    fn read(&mut self) -> Result<(), Error> {
        let places = std::mem::take(&mut self.places);
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut rows: Vec<(u64, &mut [u8])> = Vec::new();
        let mut rest = &mut bytes[..places.len() * PLACE_BYTES];
        for row in places.chunk_by(|one, next| one + 1 == *next) {
            let (part, behind) = rest.split_at_mut(row.len() * PLACE_BYTES);
            rows.push((offset(row[0]), part));
            rest = behind;
        }
        let read = match &mut rows[..] {
            [] => Ok(()),
            [(at, part)] => self.disk.device.read_at(*at, part),
            _ => self.disk.device.read_many(&mut rows),
        };
        let told = read.map_err(Error::from).and_then(|()| self.tell(&bytes, places.len()));
        (self.bytes, self.places) = (bytes, places);
        self.places.clear();
        told
    }

    /// Sends blocks that were read.
    fn tell(&mut self, bytes: &[u8], count: usize) -> Result<(), Error> {
        let (blocks, _) = bytes.as_chunks::<PLACE_BYTES>();
        let is_zero = |block: &[u8; PLACE_BYTES]| *block == [0; PLACE_BYTES];
        let mut at = self.first;
        for row in blocks[..count].chunk_by(|one, next| is_zero(one) == is_zero(next)) {
            let end = at + row.len() as u64;
            if is_zero(&row[0]) {
                self.zero(at..end)?;
            } else {
                self.tell_zeros()?;
                self.writer.data(at, row.as_flattened())?;
            }
            at = end;
        }
        Ok(())
    }

    fn end(mut self) -> Result<Sent, Error> {
        self.read()?;
        self.tell_zeros()?;
        let data = self.writer.blocks * PLACE_BYTES as u64;
        Ok(Sent { bytes: self.writer.end()?, data })
    }
}
