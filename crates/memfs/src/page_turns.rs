//! Turns at pages: who overwrites the same bytes of a file does so one after the other.
//!
//! # Purpose
//!
//! Those who overwrite have the inode's lock shared, so that each page needs a lock of its own for them. It
//! is found by the page's file and number in a table of the file system, made when the first overwrites.
//! Pages beside each other have locks beside each other, each on lines of its own, so that two writes meet if
//! they are to the same page, and otherwise by chance.
//!
//! # Order
//!
//! A write has the locks of all its pages before it changes the first: so of two that have several
//! pages in common one comes first in all of them. They are taken in the order of their places in the table.

use std::sync::OnceLock;

use vfscale_sync::lock_class;
use vfscale_sync::percpu::Apart;
use vfscale_sync::{Mutex, MutexGuard};
use vfscale_vfs::driver::OVERWRITE_MAX;

use crate::pages::PAGE;

lock_class! {
    /// The bytes of one page, among those who overwrite.
    pub PageTurn = ("page_turn", 75);
}

/// The most pages that an overwrite touches.
pub(crate) const PAGES_MAX: usize = OVERWRITE_MAX / PAGE as usize + 1;

/// Locks for each CPU. Of two that overwrite, each a page, one waits for the other by chance once in so many
/// times, and as often again for each CPU more.
const PER_CPU: usize = 64;

/// The lock of some pages.
type Turn = Apart<Mutex<(), PageTurn>>;

/// Turns at the pages of an overwrite, held by this thread.
pub(crate) type Turns<'a> = [Option<MutexGuard<'a, (), PageTurn>>; PAGES_MAX];

/// The table.
pub(crate) struct PageTurns {
    locks: OnceLock<Box<[Turn]>>,
    /// A power of two, and more than [`PAGES_MAX`].
    len: usize,
}

impl PageTurns {
    /// A table for so many CPUs.
    pub(crate) fn new(slots: usize) -> PageTurns {
        PageTurns { locks: OnceLock::new(), len: (slots.max(1) * PER_CPU).next_power_of_two() }
    }

    /// Takes the turns at `count` pages (no more than [`PAGES_MAX`]) of a file from `first` on. Blocks.
    pub(crate) fn take(&self, ino: u64, first: u64, count: usize) -> Turns<'_> {
        let locks = self.locks.get_or_init(|| (0..self.len).map(|_| Apart::default()).collect());
        let mut places = self.places(ino, first, count);
        std::array::from_fn(|_| places.next().map(|place| locks[place].lock_nested()))
    }

    /// Where the locks of pages are, in ascending order.
    fn places(&self, ino: u64, first: u64, count: usize) -> impl Iterator<Item = usize> {
        let begin = (spread(ino) as usize).wrapping_add(first as usize) & (self.len - 1);
        // Those behind the table's end are at its beginning, and come first.
        let wrapped = (begin + count).saturating_sub(self.len);
        (0..wrapped).chain(begin..begin + count - wrapped)
    }
}

/// Files that were made one after the other begin far from each other.
fn spread(ino: u64) -> u64 {
    vfscale_sync::hash::fibonacci(ino) >> 32
}

#[cfg(test)]
mod tests;
