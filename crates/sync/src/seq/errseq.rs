//! Write-back errors that each open file reports once. Counterpart of `errseq_t` in Linux.
//!
//! # Purpose
//!
//! When a background write fails, no call can return the error. An [`ErrorSeq`] stores the latest
//! such error of a file, or of a file system. Each open file has an [`ErrorCursor`], the state up
//! to which it has reported. Each open file reports an error that was recorded after it was opened
//! exactly once, independently of the others. An error that no file has reported yet is also
//! reported by a file that is opened later, so it is not lost if it is recorded while no file is
//! open.
//!
//! # How it works
//!
//! One word holds the number of the error, a flag that the error was seen, and a count. Recording
//! an error increments the count if the former error was seen; otherwise it only replaces the
//! number, for no cursor has a copy of the former one. A cursor is a copy of the word; if the two
//! differ, it has an error to report. The count wraps after 2^19 errors that were all seen; a
//! cursor that is not read during all of them can miss one.
//!
//! # Races
//!
//! * Two calls on one open file find an error: only the one that advances the cursor reports it.
//! * An error is recorded while another is being reported: it (or its count) differs from the word
//!   that the cursor gets, so the next call reports it. If it has the same number and the former
//!   one was not flagged as seen yet, the two are one.

use crate::atomic::{AtomicU32, Ordering};

/// Mask of the error number.
const CODE: u32 = 0xFFF;
/// Flag: a cursor has seen the error.
const SEEN: u32 = CODE + 1;
/// Unit of the count.
const COUNT: u32 = SEEN << 1;

/// The latest background error of a file or file system. See the [module](self).
#[derive(Debug)]
pub struct ErrorSeq(AtomicU32);

impl Default for ErrorSeq {
    fn default() -> Self {
        Self::new()
    }
}

impl ErrorSeq {
    /// Creates one without an error.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Records an error: `code` is its positive `errno`, below 4,096; 0 records nothing.
    pub fn record(&self, code: i32) {
        let Some(code) = u32::try_from(code).ok().filter(|code| (1..=CODE).contains(code)) else {
            debug_assert!(code == 0, "{code} is no errno");
            return;
        };
        let mut old = self.0.load(Ordering::Acquire);
        loop {
            let more = if old & SEEN == 0 { 0 } else { COUNT };
            let new = ((old & !(CODE | SEEN)) | code).wrapping_add(more);
            match self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Clears all errors, for reuse with another file. No cursor may exist.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Returns whether every error was seen by a cursor.
    pub fn is_told(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word == 0 || word & SEEN != 0
    }
}

/// The state of an [`ErrorSeq`] up to which one open file has reported.
#[derive(Debug)]
pub struct ErrorCursor(AtomicU32);

impl Default for ErrorCursor {
    /// Creates a cursor of an [`ErrorSeq`] without errors.
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl ErrorCursor {
    /// Creates a cursor that will see later errors, and those that no cursor has seen yet.
    pub fn new(errors: &ErrorSeq) -> Self {
        let word = errors.0.load(Ordering::Acquire);
        Self(AtomicU32::new(if word & SEEN == 0 { 0 } else { word }))
    }

    /// Advances the cursor; returns the number of the latest error if the cursor had not seen it.
    pub fn advance(&self, errors: &ErrorSeq) -> Option<i32> {
        loop {
            let (told, word) = (self.0.load(Ordering::Acquire), errors.0.load(Ordering::Acquire));
            if told == word {
                return None;
            }
            let seen = word | SEEN;
            if word != seen {
                // An error recorded in between differs from what the cursor gets.
                let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
                let _ = errors.0.compare_exchange(word, seen, order, failed);
            }
            let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
            if self.0.compare_exchange(told, seen, order, failed).is_ok() {
                return Some((word & CODE) as i32);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
