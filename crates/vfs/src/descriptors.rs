//! Descriptor tables.
//!
//! Slots live in segments that double in size and never move, so that looking a descriptor up takes
//! only the slot's own lock. The lowest free number is found in a bitmap behind one lock, as
//! POSIX's rule that `open` returns the lowest makes every two opens of one task depend on each other
//! anyhow; threads that open files on their own use handles or tasks of their own.

use std::sync::OnceLock;

use rustix::io::Errno;
use vfscale_sync::lock::Mutex;

use crate::file::File;
use crate::ranks::{DescriptorSlot, DescriptorTable};

/// A descriptor of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fd(pub i32);

/// The number of descriptors a task may have (`EMFILE` beyond).
pub const OPEN_MAX: usize = 1 << 20;

const SEGMENT_MIN: usize = 64;
const SEGMENTS: usize = 15;

#[derive(Default)]
struct Slot {
    file: Option<File>,
    close_on_exec: bool,
}

type Segment = Box<[Mutex<Slot, DescriptorSlot>]>;

/// Which numbers are in use: a bit for each, and none behind the last word.
#[derive(Default)]
struct Numbers {
    used: Vec<u64>,
    /// No word before this one has a free number.
    first_free: usize,
}

pub(crate) struct Descriptors {
    segments: [OnceLock<Segment>; SEGMENTS],
    numbers: Mutex<Numbers, DescriptorTable>,
}

impl Descriptors {
    pub(crate) fn new() -> Descriptors {
        Descriptors { segments: Default::default(), numbers: Mutex::new(Numbers::default()) }
    }

    /// Segment and index of a number: segment `s` begins at `SEGMENT_MIN * (2^s - 1)`.
    fn place(number: usize) -> (usize, usize) {
        let shifted = number / SEGMENT_MIN + 1;
        let segment = shifted.ilog2() as usize;
        (segment, number - SEGMENT_MIN * ((1 << segment) - 1))
    }

    fn slot(&self, fd: Fd) -> Option<&Mutex<Slot, DescriptorSlot>> {
        let number = usize::try_from(fd.0).ok().filter(|n| *n < OPEN_MAX)?;
        let (segment, index) = Descriptors::place(number);
        self.segments[segment].get()?.get(index)
    }

    fn slot_or_make(&self, number: usize) -> &Mutex<Slot, DescriptorSlot> {
        let (segment, index) = Descriptors::place(number);
        let slots = self.segments[segment].get_or_init(|| {
            (0..SEGMENT_MIN << segment).map(|_| Mutex::new(Slot::default())).collect()
        });
        &slots[index]
    }

    /// The open file of a descriptor.
    pub(crate) fn get(&self, fd: Fd) -> Result<File, Errno> {
        self.slot(fd).and_then(|slot| slot.lock().file.clone()).ok_or(Errno::BADF)
    }

    /// Puts a file under the lowest free number that is at least `min`.
    pub(crate) fn install(&self, file: File, min: usize, close_on_exec: bool) -> Result<Fd, Errno> {
        let mut numbers = self.numbers.lock();
        let number = numbers.lowest_free(min);
        if number >= OPEN_MAX {
            return Err(Errno::MFILE);
        }
        numbers.claim(number);
        *self.slot_or_make(number).lock() = Slot { file: Some(file), close_on_exec };
        Ok(Fd(number as i32))
    }

    /// Puts a file under this number; returns what was there.
    pub(crate) fn install_at(
        &self,
        fd: Fd,
        file: File,
        close_on_exec: bool,
    ) -> Result<Option<File>, Errno> {
        let number = usize::try_from(fd.0).ok().filter(|n| *n < OPEN_MAX).ok_or(Errno::BADF)?;
        let mut numbers = self.numbers.lock();
        numbers.claim(number);
        let new = Slot { file: Some(file), close_on_exec };
        Ok(std::mem::replace(&mut *self.slot_or_make(number).lock(), new).file)
    }

    /// Takes a descriptor away.
    pub(crate) fn remove(&self, fd: Fd) -> Result<File, Errno> {
        let slot = self.slot(fd).ok_or(Errno::BADF)?;
        let mut numbers = self.numbers.lock();
        let file = std::mem::take(&mut *slot.lock()).file.ok_or(Errno::BADF)?;
        numbers.release(fd.0 as usize);
        Ok(file)
    }

    pub(crate) fn close_on_exec(&self, fd: Fd) -> Result<bool, Errno> {
        let slot = self.slot(fd).ok_or(Errno::BADF)?.lock();
        if slot.file.is_some() { Ok(slot.close_on_exec) } else { Err(Errno::BADF) }
    }

    pub(crate) fn set_close_on_exec(&self, fd: Fd, on: bool) -> Result<(), Errno> {
        let mut slot = self.slot(fd).ok_or(Errno::BADF)?.lock();
        if slot.file.is_none() {
            return Err(Errno::BADF);
        }
        slot.close_on_exec = on;
        Ok(())
    }

    /// Every open descriptor in order.
    pub(crate) fn list(&self) -> Vec<Fd> {
        let numbers = self.numbers.lock();
        let all = 0..numbers.used.len() * WORD;
        all.filter(|n| numbers.is_used(*n)).map(|n| Fd(n as i32)).collect()
    }

    /// Takes over the files of another table under the same numbers.
    pub(crate) fn copy_from(&self, other: &Descriptors) {
        for fd in other.list() {
            let Some(slot) = other.slot(fd) else { continue };
            let (file, close_on_exec) = {
                let slot = slot.lock();
                (slot.file.clone(), slot.close_on_exec)
            };
            if let Some(file) = file {
                // The number is in range, since the other table has it.
                let _ = self.install_at(fd, file, close_on_exec);
            }
        }
    }
}

/// Numbers in a word of the bitmap.
const WORD: usize = u64::BITS as usize;

impl Numbers {
    fn is_used(&self, number: usize) -> bool {
        self.used.get(number / WORD).is_some_and(|word| word & 1 << (number % WORD) != 0)
    }

    /// The lowest number that is free and at least `min`.
    fn lowest_free(&mut self, min: usize) -> usize {
        let start = (min / WORD).max(self.first_free);
        // In the word of `min`, the numbers below it count as taken.
        let below = if start == min / WORD { (1 << (min % WORD)) - 1 } else { 0 };
        let mut words = self.used.iter().enumerate().skip(start);
        let found = words.find_map(|(i, word)| {
            let taken = if i == start { word | below } else { *word };
            (taken != u64::MAX).then(|| (i, i * WORD + taken.trailing_ones() as usize))
        });
        let (word, number) = found.unwrap_or_else(|| {
            let end = self.used.len().max(start);
            (end, (end * WORD).max(min))
        });
        if min <= self.first_free * WORD {
            self.first_free = word;
        }
        number
    }

    fn claim(&mut self, number: usize) {
        let word = number / WORD;
        if word >= self.used.len() {
            self.used.resize(word + 1, 0);
        }
        self.used[word] |= 1 << (number % WORD);
    }

    fn release(&mut self, number: usize) {
        let word = number / WORD;
        self.used[word] &= !(1 << (number % WORD));
        self.first_free = self.first_free.min(word);
    }
}

#[cfg(test)]
mod tests;
