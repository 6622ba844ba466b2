//! Queues of files to be written back.
//!
//! # Why no thread takes a batch
//!
//! Several threads write back concurrently: one in the background, writers that are short of
//! memory, and threads that make the volume durable. Each takes one file at a time, and the file
//! remains visible until it is written ([`Taken`]). So a thread that makes everything durable sees
//! all files: it writes those that still wait, and then waits for those that others have taken
//! ([`DirtyFiles::write_all`]). If a thread took a whole list, its files would be neither dirty nor
//! written for that time, and a concurrent `sync` would return too early.
//!
//! Each file on a list has a number, in the order of arrival. Files that were dirty at some moment
//! have numbers below the list's next one of that moment ([`Mark`]); so a thread that waits for
//! them never waits for files that arrived later.

use std::collections::VecDeque;
use std::ops::Deref;

use vfscale_sync::percpu::PerCpu;
use vfscale_sync::{Condvar, Mutex, lock_class};

use super::file_pages::FilePages;

lock_class! {
    /// The files to be written back.
    pub DirtyFilesLock = ("b_dirty", 31140);
}

/// Files to be written back, on a list for each CPU slot, in the order in which they became dirty
/// there. Each is queued once for its data (`FilePages::set_queued`). `Send` and `Sync` if `F` is.
#[derive(Debug)]
pub struct DirtyFiles<F> {
    lists: PerCpu<List<F>>,
}

/// The files that were dirty at one moment: for each list the number of the next file.
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
    /// The files, and the number of each, in the order of the numbers.
    waiting: VecDeque<(u64, F)>,
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
        let first = self.waiting.pop_front_if(|(number, _)| *number < end)?;
        self.taken.push(first.0);
        Some(first)
    }
}

/// A file that a thread has taken to write it back. Threads that wait for it wait until this is
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
    /// Creates `lists` empty lists, at least one.
    pub fn new(lists: usize) -> Self {
        Self { lists: PerCpu::new(lists.max(1), |_| List::default()) }
    }

    /// Queues a file for its data, unless it is queued for that already.
    pub fn add(&self, data: &FilePages, file: impl FnOnce() -> F) {
        if data.set_queued() {
            self.push(file());
        }
    }

    /// Queues a file for another reason than its data.
    pub fn push(&self, file: F) {
        let mut state = self.lists.this().state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push_back((number, file));
    }

    /// Takes the file that has waited longest on this CPU's list, or on another if that is empty.
    pub fn take(&self) -> Option<Taken<'_, F>> {
        self.take_from(|_| u64::MAX)
    }

    /// Takes a file that was dirty at the moment of `mark`.
    fn take_before(&self, mark: &Mark) -> Option<Taken<'_, F>> {
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

    /// Marks the files that are dirty now.
    fn mark(&self) -> Mark {
        Mark(self.lists.iter().map(|list| list.state.lock().next).collect())
    }

    /// Calls `write` for each file that is dirty at the call, unless another thread writes it, and
    /// returns when all of them are written. The caller has taken none, and holds no lock that
    /// writing back takes.
    pub fn write_all(&self, mut write: impl FnMut(&F)) {
        let mark = self.mark();
        while let Some(file) = self.take_before(&mark) {
            write(&file);
        }
        for (list, end) in self.lists.iter().zip(&mark.0) {
            let is_taken =
                |state: &mut DirtyState<F>| state.taken.iter().any(|number| number < end);
            drop(list.written.wait_while(list.state.lock(), is_taken));
        }
    }

    /// Returns whether all files are written: none waits, and no thread has taken one.
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

#[cfg(all(test, not(shuttle)))]
mod tests;
