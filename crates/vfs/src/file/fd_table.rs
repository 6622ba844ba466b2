//! Descriptor tables.
//!
//! Slots are in segments that double in size and never move. A slot is one word ([`SharedSlot`]),
//! so a lookup of a descriptor takes no lock of the table.
//!
//! POSIX's rule that `open` returns the lowest free number makes all opens of one task depend on
//! each other; threads that want to open files independently use handles or separate tasks. The
//! first 64 numbers are one atomic word, in which one exchange finds and claims the lowest free
//! number. The other numbers are a bitmap under a lock. An open that, under that lock, finds the
//! word full may take the lowest free number of the bitmap: the bitmap does not change in between,
//! so at the moment of that check the number was the lowest free one.
//!
//! A number is claimed before its slot is filled, and its slot is emptied before the number is
//! released. So a thread that has claimed a number has exclusive access to the empty slot.

pub use crate::base::limits::OPEN_MAX;
use std::sync::OnceLock;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicU64, AtomicUsize, Ordering, thread};
use vfscale_sync::lock::Mutex;
use vfscale_sync::shared::{Listed, SharedSlot};

use crate::base::error::check_fork;
use crate::base::lock_classes::{DescriptorTable, FilesLock};
use crate::file::open_file::File;
use crate::objects::file_description::OpenFile;

/// A descriptor of a task.
///
/// ```
/// # use vfscale_vfs::Fd;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let fd: Fd = task.posix().install(task.open("/f")?)?;
/// task.posix().read(fd, &mut [0; 16])?;
/// task.posix().close(fd)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fd(pub i32);

const SEGMENT_MIN: usize = 64;
const SEGMENTS: usize = 15;

/// The open file of a descriptor; marked if `exec` closes it.
type Slot = SharedSlot<OpenFile, Listed<FilesLock>>;

type Segment = Box<[Slot]>;

/// The set of numbers in use: a bit for each; numbers beyond the last word are free.
#[derive(Default)]
struct UsedNumbers {
    used: Vec<u64>,
    /// The index of a word before which all numbers are in use.
    first_free: usize,
}

pub(crate) struct Descriptors {
    segments: [OnceLock<Segment>; SEGMENTS],
    /// The first [`WORD`] numbers; the bits of used ones are set.
    low: AtomicU64,
    /// The limit of new numbers (`RLIMIT_NOFILE`); numbers in use may be above it.
    max: AtomicUsize,
    /// The other numbers, counted from [`WORD`].
    high: Mutex<UsedNumbers, DescriptorTable>,
}

impl Descriptors {
    /// Creates an empty table for the numbers below `max`, which is at most [`OPEN_MAX`].
    pub(crate) fn new(max: usize) -> Descriptors {
        Descriptors {
            segments: Default::default(),
            low: AtomicU64::new(0),
            max: AtomicUsize::new(max),
            high: Mutex::new(UsedNumbers::default()),
        }
    }

    /// Returns segment and index of a number: segment `s` begins at `SEGMENT_MIN * (2^s - 1)`.
    fn place(number: usize) -> (usize, usize) {
        let shifted = number / SEGMENT_MIN + 1;
        let segment = shifted.ilog2() as usize;
        (segment, number - SEGMENT_MIN * ((1 << segment) - 1))
    }

    fn slot(&self, fd: Fd) -> Option<&Slot> {
        let number = usize::try_from(fd.0).ok().filter(|n| *n < OPEN_MAX)?;
        let (segment, index) = Descriptors::place(number);
        self.segments[segment].get()?.get(index)
    }

    fn slot_or_make(&self, number: usize) -> &Slot {
        let (segment, index) = Descriptors::place(number);
        let slots = self.segments[segment]
            .get_or_init(|| (0..SEGMENT_MIN << segment).map(|_| Slot::new()).collect());
        &slots[index]
    }

    /// Returns the open file of a descriptor.
    pub(crate) fn get(&self, fd: Fd) -> Result<File, Errno> {
        check_fork()?;
        self.slot(fd).and_then(SharedSlot::get).map(File).ok_or(Errno::BADF)
    }

    /// Returns the limit of new descriptors.
    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets the limit of new descriptors, at most [`OPEN_MAX`].
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Installs a file at the lowest free number that is at least `min`.
    pub(crate) fn install(&self, file: File, min: usize, close_on_exec: bool) -> Result<Fd, Errno> {
        check_fork()?;
        let max = self.max();
        let low = if min < WORD { self.claim_low(min, max) } else { None };
        let number = match low {
            Some(number) => number,
            None => self.claim_high(min, max)?,
        };
        self.slot_or_make(number).fill(file.0, close_on_exec);
        Ok(Fd(number as i32))
    }

    /// Claims the lowest free number of the first word that is at least `min` and below `max`.
    #[inline]
    fn claim_low(&self, min: usize, max: usize) -> Option<usize> {
        let above = if max < WORD { u64::MAX << max } else { 0 };
        let not = ((1 << min) - 1) | above;
        let mut used = self.low.load(Ordering::Relaxed);
        while used | not != u64::MAX {
            let number = (used | not).trailing_ones() as usize;
            let new = used | 1 << number;
            // Acquire: pairs with the release of the number, so the slot is seen empty.
            match self.low.compare_exchange_weak(used, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(number),
                Err(now) => used = now,
            }
        }
        None
    }

    /// Claims the lowest free number that is at least `min` and below `max`, when the first word is
    /// full.
    #[cold]
    fn claim_high(&self, min: usize, max: usize) -> Result<usize, Errno> {
        let mut high = self.high.lock();
        if min < WORD
            && let Some(number) = self.claim_low(min, max)
        {
            return Ok(number);
        }
        let number = WORD + high.lowest_free(min.saturating_sub(WORD));
        if number >= max {
            return Err(Errno::MFILE);
        }
        high.claim(number - WORD);
        Ok(number)
    }

    /// Claims this number. Returns false if it is in use.
    fn claim(&self, number: usize) -> bool {
        if number < WORD {
            let bit = 1 << number;
            return self.low.fetch_or(bit, Ordering::Acquire) & bit == 0;
        }
        let mut high = self.high.lock();
        let is_free = !high.is_used(number - WORD);
        high.claim(number - WORD);
        is_free
    }

    fn release(&self, number: usize) {
        if number < WORD {
            // Release: the slot was emptied before.
            self.low.fetch_and(!(1 << number), Ordering::Release);
        } else {
            self.high.lock().release(number - WORD);
        }
    }

    /// Installs a file at this number; returns the previous file. Yields while another thread is
    /// between claiming the number and filling its slot, or between emptying the slot and releasing
    /// the number.
    pub(crate) fn install_at(
        &self,
        fd: Fd,
        file: File,
        close_on_exec: bool,
    ) -> Result<Option<File>, Errno> {
        let number = usize::try_from(fd.0).ok().filter(|n| *n < OPEN_MAX).ok_or(Errno::BADF)?;
        let slot = self.slot_or_make(number);
        let mut file = file.0;
        loop {
            if self.claim(number) {
                slot.fill(file, close_on_exec);
                return Ok(None);
            }
            match slot.replace(file, close_on_exec) {
                Ok(before) => return Ok(Some(File(before))),
                Err(back) => file = back,
            }
            thread::yield_now();
        }
    }

    /// Removes a descriptor and returns its file.
    pub(crate) fn remove(&self, fd: Fd) -> Result<File, Errno> {
        check_fork()?;
        let file = self.slot(fd).and_then(SharedSlot::take).ok_or(Errno::BADF)?;
        self.release(fd.0 as usize);
        Ok(File(file))
    }

    pub(crate) fn close_on_exec(&self, fd: Fd) -> Result<bool, Errno> {
        check_fork()?;
        self.slot(fd).and_then(SharedSlot::mark).ok_or(Errno::BADF)
    }

    pub(crate) fn set_close_on_exec(&self, fd: Fd, on: bool) -> Result<(), Errno> {
        check_fork()?;
        let done = self.slot(fd).is_some_and(|slot| slot.set_mark(on));
        if done { Ok(()) } else { Err(Errno::BADF) }
    }

    /// Returns every open descriptor in order.
    pub(crate) fn list(&self) -> Vec<Fd> {
        if check_fork().is_err() {
            return Vec::new();
        }
        let high = self.high.lock();
        let end = WORD + high.used.len() * WORD;
        let is_open = |number: &usize| {
            self.slot(Fd(*number as i32)).is_some_and(|slot| slot.mark().is_some())
        };
        (0..end).filter(is_open).map(|n| Fd(n as i32)).collect()
    }

    /// Copies the files of another table, under their numbers.
    pub(crate) fn copy_from(&self, other: &Descriptors) {
        if check_fork().is_err() {
            return;
        }
        for fd in other.list() {
            if let (Ok(file), Ok(close_on_exec)) = (other.get(fd), other.close_on_exec(fd)) {
                // The number is in range, because the other table contains it.
                let _ = self.install_at(fd, file, close_on_exec);
            }
        }
    }
}

/// The number of descriptors in a word of the bitmap.
const WORD: usize = u64::BITS as usize;

impl UsedNumbers {
    fn is_used(&self, number: usize) -> bool {
        self.used.get(number / WORD).is_some_and(|word| word & 1 << (number % WORD) != 0)
    }

    /// Returns the lowest free number that is at least `min`.
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
