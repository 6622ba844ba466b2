//! Errors that everybody is told of once (`errseq_t`).
//!
//! # Purpose
//!
//! What is written in the background fails when nobody asks. An [`ErrorSeq`] remembers the latest
//! such error of a file, or of a file system, and each open file has an [`ErrorCursor`] with what
//! it has been told: each of them is told of an error that came after it was opened, once, whoever
//! else was told. An error that nobody was told of yet is also told to a file that is opened later,
//! so that it is not lost when it comes while nobody has the file open.
//!
//! # How
//!
//! One word has the number of the error, a mark that somebody has seen it, and a count. An error
//! that comes counts up if the one before was seen, and else only replaces its number: nobody can
//! tell the difference. A cursor is a copy of the word; one that differs has an error to tell.
//! Numbers that wrap around after 2^19 errors that were all seen could hide one from a cursor that
//! was not looked at in between.
//!
//! # Races
//!
//! * Two calls on one open file that find an error: only who moves the cursor tells it.
//! * An error that comes while one is being told: it differs from the word that the cursor gets, or
//!   its count does, so the next call tells it. If it is of the same number and nobody had marked
//!   the former yet, the two are one.

use crate::atomic::{AtomicU32, Ordering};

/// The number of the error.
const CODE: u32 = 0xFFF;
/// Somebody was told.
const SEEN: u32 = CODE + 1;
/// One more.
const COUNT: u32 = SEEN << 1;

/// The latest error of something that is written in the background. See the [module](self).
#[derive(Debug)]
pub struct ErrorSeq(AtomicU32);

impl Default for ErrorSeq {
    fn default() -> Self {
        Self::new()
    }
}

impl ErrorSeq {
    /// Without an error.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// An error has come: `code` is its positive `errno`, below 4,096; 0 is none.
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

    /// Forgets all errors: it stands for something else from now on. Nobody has a cursor.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether there is no error that nobody was told of.
    #[must_use]
    pub fn is_told(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word == 0 || word & SEEN != 0
    }
}

/// What somebody was told of an [`ErrorSeq`].
#[derive(Debug)]
pub struct ErrorCursor(AtomicU32);

impl Default for ErrorCursor {
    /// Of one that has no errors.
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl ErrorCursor {
    /// Of somebody who comes now, and is told what comes later, and what nobody was told of yet.
    #[must_use]
    pub fn new(errors: &ErrorSeq) -> Self {
        let word = errors.0.load(Ordering::Acquire);
        Self(AtomicU32::new(if word & SEEN == 0 { 0 } else { word }))
    }

    /// The number of the latest error that it was not told yet, which it is by this.
    pub fn advance(&self, errors: &ErrorSeq) -> Option<i32> {
        loop {
            let (told, word) = (self.0.load(Ordering::Acquire), errors.0.load(Ordering::Acquire));
            if told == word {
                return None;
            }
            let seen = word | SEEN;
            if word != seen {
                // If another error comes in between, that differs from what the cursor gets.
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
