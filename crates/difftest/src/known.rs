//! Differences that are meant. Each has its reason; everything else that differs is a defect.

use crate::op::{Op, Step};
use crate::outcome::Outcome;

/// A difference that is meant.
pub struct Known {
    /// Why it is.
    pub reason: &'static str,
    /// Whether a difference is this one: the call, what the oracle gave, what the subject gave.
    pub is: fn(&Step, &Outcome, &Outcome) -> bool,
}

/// All of them. A sequence goes on after one: both sides failed, and neither has changed.
pub static KNOWN: &[Known] = &[
    Known {
        reason: "mount(2) copies its source as a string before it takes it for a path",
        is: |step, expected, got| match &step.op {
            Op::Bind { source, .. } | Op::MoveMount { source, .. } => {
                let odd = source.0.is_empty() || source.0.len() >= 4096;
                odd && failed(expected) == Some(libc::EINVAL) && failed(got).is_some()
            }
            _ => false,
        },
    },
    Known {
        reason: "a fifo can't be opened at all; Linux looks at the access mode first",
        is: |step, expected, got| {
            let flags = match &step.op {
                Op::Open { flags, .. }
                | Op::Reopen { flags, .. }
                | Op::OpenHandle { flags, .. } => u64::from(*flags),
                Op::Openat2 { flags, .. } => *flags,
                _ => return false,
            };
            let errors = (failed(expected), failed(got));
            flags & 3 == 3 && errors == (Some(libc::EINVAL), Some(libc::ENXIO))
        },
    },
];

fn failed(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Err(errno) => Some(*errno),
        _ => None,
    }
}

/// The entry that explains a difference.
pub fn known(step: &Step, expected: &Outcome, got: &Outcome) -> Option<&'static Known> {
    KNOWN.iter().find(|known| (known.is)(step, expected, got))
}
