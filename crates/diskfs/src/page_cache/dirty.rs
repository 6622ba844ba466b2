//! Files that have something to be written back.
//!
//! # Nobody's batch is his own
//!
//! Several threads write back at once: the background writer, writers that are short of memory, and
//! whoever makes the volume durable. Each takes one file at a time, and the file stays known until
//! it is written ([`Taken`]). So a thread that makes everything durable sees all there is: it
//! writes what still waits, and then waits for what others have taken ([`DirtyFiles::wait`]). Were
//! a thread to take a whole list for itself, the files in it would be neither dirty nor written for
//! as long as that takes, and a `sync` beside it would return too early.
//!
//! Each file on a list has a number, in the order in which the files came. What was dirty at some
//! moment has numbers below the list's next one of that moment ([`Mark`]); so a thread that waits
//! for these never waits for what came later.

use std::collections::VecDeque;
use std::ops::Deref;

use vfscale_sync::percpu::PerCpu;
use vfscale_sync::{Condvar, Mutex, lock_class};

use super::file_pages::FilePages;

lock_class! {
    /// Which files have something to be written back.
    pub DirtyFilesLock = ("b_dirty", 31140);
}

/// Files that have something to be written back, on a list for each CPU slot, in the order in which
/// they became dirty there. Each is there once for its data (`FilePages::set_queued`). `Send` and
/// `Sync` if `F` is.
#[derive(Debug)]
pub struct DirtyFiles<F> {
    lists: PerCpu<List<F>>,
}

/// All that was dirty at one moment: for each list the number of the next file.
#[derive(Clone, Debug)]
pub struct Mark(Vec<u64>);

#[derive(Debug)]
struct List<F> {
    state: Mutex<DirtyState<F>, DirtyFilesLock>,
    /// A file that was taken has been written.
    written: Condvar,
}

#[derive(Debug)]
struct DirtyState<F> {
    waiting: VecDeque<F>,
    /// The number that the next file gets.
    next: u64,
    /// The numbers of files that threads have taken and are writing.
    taken: Vec<u64>,
}

impl<F> Default for List<F> {
    fn default() -> Self {
        let state = DirtyState { waiting: VecDeque::new(), next: 0, taken: Vec::new() };
        Self { state: Mutex::new(state), written: Condvar::default() }
    }
}

impl<F> DirtyState<F> {
    /// Takes the first file, if its number is below `end`.
    fn take(&mut self, end: u64) -> Option<(u64, F)> {
        let number = self.next - self.waiting.len() as u64;
        let file = if number < end { self.waiting.pop_front()? } else { return None };
        self.taken.push(number);
        Some((number, file))
    }
}

/// A file that a thread has taken to write it back. Whoever waits for it waits until this is
/// dropped.
#[derive(Debug)]
pub struct Taken<'a, F> {
    list: &'a List<F>,
    number: u64,
    file: F,
}

impl<F> Deref for Taken<'_, F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.file
    }
}

impl<F> Drop for Taken<'_, F> {
    fn drop(&mut self) {
        self.list.state.lock().taken.retain(|number| *number != self.number);
        self.list.written.notify_all();
    }
}

impl<F> DirtyFiles<F> {
    /// Makes `lists` empty lists, at least one.
    pub fn new(lists: usize) -> Self {
        Self { lists: PerCpu::new(lists.max(1), |_| List::default()) }
    }

    /// Adds a file for its data, if it is not there for them already.
    pub fn add(&self, data: &FilePages, file: impl FnOnce() -> F) {
        if data.set_queued() {
            self.push(file());
        }
    }

    /// Adds a file for another reason than its data.
    pub fn push(&self, file: F) {
        let mut state = self.lists.this().state.lock();
        state.next += 1;
        state.waiting.push_back(file);
    }

    /// Takes the file that has been there for longest on this CPU, or on another if there is none.
    pub fn take(&self) -> Option<Taken<'_, F>> {
        self.take_from(|_| u64::MAX)
    }

    /// Takes a file that was dirty at the moment of `mark`.
    pub fn take_before(&self, mark: &Mark) -> Option<Taken<'_, F>> {
        self.take_from(|slot| mark.0.get(slot).copied().unwrap_or(0))
    }

    fn take_from(&self, end: impl Fn(usize) -> u64) -> Option<Taken<'_, F>> {
        let own = self.lists.this_slot();
        let mut slots = (own..self.lists.len()).chain(0..own);
        slots.find_map(|slot| {
            let list = self.lists.get(slot)?;
            let (number, file) = list.state.lock().take(end(slot))?;
            Some(Taken { list, number, file })
        })
    }

    /// Marks all that is dirty now.
    pub fn mark(&self) -> Mark {
        Mark(self.lists.iter().map(|list| list.state.lock().next).collect())
    }

    /// Waits for the files that were dirty at the moment of `mark` and that other threads have
    /// taken. The caller has taken none, and holds no lock that writing back takes.
    pub fn wait(&self, mark: &Mark) {
        for (list, end) in self.lists.iter().zip(&mark.0) {
            let is_written = |state: &DirtyState<F>| state.taken.iter().all(|number| number >= end);
            let state = list.state.lock();
            drop(list.written.wait_while(state, |state| !is_written(state)));
        }
    }

    /// Returns whether all files are written: none waits, and none is being written.
    pub fn is_written(&self) -> bool {
        self.lists.iter().all(|list| {
            let state = list.state.lock();
            state.waiting.is_empty() && state.taken.is_empty()
        })
    }

    /// Returns whether no file waits.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(|list| list.state.lock().waiting.is_empty())
    }
}
