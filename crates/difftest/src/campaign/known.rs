//! Intended differences, each with its reason. Every other difference is a defect.

use vfscale_testkit::calls::op::{Op, Seek, Step};
use vfscale_testkit::calls::outcome::{Outcome, Value};

/// An intended difference.
pub struct KnownDifference {
    /// Its reason.
    pub reason: &'static str,
    /// Returns whether a difference is this one, given the call and the outcomes of oracle and
    /// subject.
    pub is: fn(&Step, &Outcome, &Outcome) -> bool,
    /// Whether it applies only after `fallocate` has allocated space.
    pub after_fallocate: bool,
}

/// All intended differences. A sequence continues after one: neither side has changed, except for a
/// file position, which is then set to 0 on both.
pub static KNOWN: &[KnownDifference] = &[
    KnownDifference {
        reason: "mount(2) copies its source as a string before it takes it for a path",
        is: |step, expected, got| match &step.op {
            Op::Bind { source, .. } | Op::MoveMount { source, .. } => {
                let odd = source.0.is_empty() || source.0.len() >= 4096;
                odd && failed(expected) == Some(libc::EINVAL) && failed(got).is_some()
            }
            _ => false,
        },
        after_fallocate: false,
    },
    KnownDifference {
        reason: "allocated and unwritten space is a hole in vfscale, and in tmpfs a hole at first",
        is: |step, _, _| matches!(&step.op, Op::Lseek { whence: Seek::Data | Seek::Hole, .. }),
        after_fallocate: true,
    },
    KnownDifference {
        reason: "tmpfs finds no data in the last pages that an offset can name",
        is: |step, expected, got| {
            let Op::Lseek { whence: Seek::Data, .. } = &step.op else { return false };
            let last = matches!(got, Outcome::Ok(Value::Number(at)) if *at >= i64::MAX - 4096 * 2);
            last && failed(expected) == Some(libc::ENXIO)
        },
        after_fallocate: false,
    },
];

fn failed(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Err(errno) => Some(*errno),
        _ => None,
    }
}

/// Returns the entry that explains a difference. `allocated`: `fallocate` has allocated space
/// before.
pub fn known(
    step: &Step,
    expected: &Outcome,
    got: &Outcome,
    allocated: bool,
) -> Option<&'static KnownDifference> {
    let mut all = KNOWN.iter().filter(|known| allocated || !known.after_fallocate);
    all.find(|known| (known.is)(step, expected, got))
}

#[cfg(test)]
mod tests;
