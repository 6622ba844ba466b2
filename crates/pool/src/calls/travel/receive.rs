//! Receiving a branch.

use std::io::Read;
use std::sync::Arc;

use super::stream::{Head, Part, Reader};
use crate::branch::registry::close;
use crate::calls::fork::{TOO_DEEP, child, free_name, refused};
use crate::calls::pool::next_id;
use crate::disk::format::{DEPTH_MAX, PLACE_BYTES};
use crate::disk::record::{self, FROZEN, Record, TEMPORARY};
use crate::state::branch_table::Table;
use crate::state::commit::Change;
use crate::{Branch, Error, Pool};

/// The name of the branch that is being received, with a number behind it.
const RECEIVED: &str = "receive";

/// A branch that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its name.
    pub name: String,
    /// The length of the stream, in bytes.
    pub bytes: u64,
    /// The contents in it, in bytes.
    pub data: u64,
}

impl Pool {
    /// Makes a branch of a stream that [`send`](Self::send) has written: one that can only be read,
    /// under the name that it had, or another one. A stream that goes on from another branch needs
    /// that one here, as it has come, under any name. Reads no byte behind the stream.
    ///
    /// The branch is there when the whole stream has come, or not at all, also after a power cut.
    /// Until then there is a temporary one, `receive@1` or with the next number. The branch has the
    /// size of the one that was sent, and the pool does not grow.
    ///
    /// Blocks for the I/O: writes what the stream has, and some flushes. Takes the memory of the
    /// nodes that lead to it, and 1 MiB.
    ///
    /// # Errors
    /// [`Error::Stream`], [`Error::StreamFailed`]; [`Error::NoBase`]; [`Error::Received`];
    /// [`Error::Name`], [`Error::Exists`], [`Error::Refused`] if the history is too deep,
    /// [`Error::Nodes`], [`Error::Full`], [`Error::Damage`] and errors of the device. What was
    /// received becomes free by [`reap`](Self::reap) then.
    pub fn receive(&self, name: Option<&str>, input: &mut dyn Read) -> Result<Received, Error> {
        let mut reader = Reader::new(input);
        let head = reader.head()?;
        let name = name.unwrap_or(&head.name).to_owned();
        let key = self.shared.with_room(|| self.begin_received(&head, &name))?;
        let coming = Coming { pool: self, key, branch: None };
        coming.take(&head, &name, &mut reader)
    }

    /// Makes the temporary branch, and returns its name.
    fn begin_received(&self, head: &Head, name: &str) -> Result<String, Error> {
        let mut state = self.shared.state.lock();
        self.shared.alive()?;
        check_new(&state.table, head, name)?;
        let base = base_of(&state.table, head)?.cloned();
        self.shared.check_room(&mut state)?;
        let (key, id) = (free_name(&state.table, RECEIVED), next_id(&mut state));
        let record = match &base {
            Some(base) if base.depth + 2 > DEPTH_MAX => return Err(refused(&base.name, TOO_DEEP)),
            Some(base) => child(base, id, &key),
            None => Record { name: key.clone(), origin: id, ..Record::new(id, head.blocks) },
        };
        state.table.insert(Record { marks: TEMPORARY, ..record });
        self.shared.commit(&mut state, Change::default(), || ())?;
        Ok(key)
    }
}

/// Checks that what a stream has can become the branch `name`.
///
/// # Errors
/// [`Error::Name`], [`Error::Exists`] and [`Error::Received`].
fn check_new(table: &Table, head: &Head, name: &str) -> Result<(), Error> {
    table.check_new(name)?;
    let known = table.records().find(|it| it.sent == head.state && !it.name.is_empty());
    known.map_or(Ok(()), |known| Err(Error::Received(known.name.clone())))
}

/// Returns the branch that a stream goes on from.
///
/// # Errors
/// [`Error::NoBase`], and the reason why it can't be used.
fn base_of<'t>(table: &'t Table, head: &Head) -> Result<Option<&'t Record>, Error> {
    let Some((number, name)) = &head.base else { return Ok(None) };
    let is_it = |it: &&Record| it.sent == *number && !it.name.is_empty();
    let base = table.records().find(is_it).ok_or_else(|| Error::NoBase(name.clone()))?;
    if base.blocks > head.blocks {
        return Err(Error::Stream { at: 0, what: "it is smaller than what it goes on from" });
    }
    table.named(&base.name).map(Some)
}

/// A branch that is being received: temporary, and deleted when this is dropped.
struct Coming<'p> {
    pool: &'p Pool,
    /// Its name; empty when it has come.
    key: String,
    branch: Option<Arc<Branch>>,
}

impl Coming<'_> {
    fn take(mut self, head: &Head, name: &str, reader: &mut Reader<'_>) -> Result<Received, Error> {
        let branch = self.branch.insert(self.pool.branch(&self.key)?).clone();
        let inner = branch.inner()?;
        self.pool.shared.with_room(|| inner.grow_in_pool(head.blocks))?;
        let mut data = 0;
        loop {
            match reader.part()? {
                Part::Data(first, bytes) => {
                    inner.write(first * PLACE_BYTES as u64, bytes)?;
                    data += bytes.len() as u64;
                }
                Part::Zeros(blocks) => inner.zero(blocks)?,
                Part::End => break,
            }
        }
        self.end(head, name)?;
        Ok(Received { name: name.to_owned(), bytes: reader.at, data })
    }

    /// Makes it the branch that has come.
    fn end(&mut self, head: &Head, name: &str) -> Result<(), Error> {
        let Pool { shared, open } = self.pool;
        let mut branches = open.lock();
        close(&mut branches, &self.key, 1)?;
        let mut state = shared.state.lock();
        shared.alive()?;
        check_new(&state.table, head, name)?;
        let id = state.table.named(&self.key)?.id;
        let end = head.text.floor_char_boundary(record::text_max(name));
        state.table.update(id, |record| {
            record.flags |= FROZEN;
            (record.marks, record.sent) = (0, head.state);
            (record.name, record.text) = (name.to_owned(), head.text[..end].to_owned());
            record.time = record::now();
        });
        shared.commit(&mut state, Change::default(), || ())?;
        self.key.clear();
        Ok(())
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        if let Some(branch) = self.branch.take() {
            branch.release();
        }
        if !self.key.is_empty() {
            // An error says no more than the first one: the next opening deletes it.
            let _ = self.pool.delete(&self.key);
        }
    }
}
