//! Programs from recordings of the library.
//!
//! Both workers of a workload are recorded on CPUs of their own, as cases are
//! ([`runner`](crate::runner)), and each access becomes a [`Touch`]. The enclosing function shows
//! whether an access takes or releases a lock. Reader-writer locks taken shared and seqlocks count
//! as ordinary lines, so workloads that wait for their writers are predicted too fast.

use std::collections::BTreeSet;
use std::io;

use super::workload::Workload;
use super::{Program, Role, Touch};
use crate::case::Outcome;
use crate::runner::{Options, Runner};
use crate::trace::conflict::conflicts;
use crate::trace::owner::{NamedConflict, describe};
use crate::trace::record::{Access, Step, Trace};
use crate::trace::symbols::{Frame, Symbols};

/// Number of recordings from which [`program_alone`] selects one.
const RECORDINGS: usize = 5;
/// Binary logarithm of the line size.
const LINE_BITS: u32 = 6;

/// Makes the program of a workload from recordings on the target and with the sharding of
/// `options`.
///
/// # Errors
/// Returns the errors of `Runner::record_all`, and that of a failed call; no call of a workload
/// should fail.
pub fn program(workload: &Workload, options: Options) -> io::Result<Program> {
    record(workload, options, |recorded, symbols| {
        let touches = recorded.each_ref().map(|traces| {
            traces.iter().flat_map(|trace| touched(trace, symbols)).collect::<Vec<_>>()
        });
        Program::new(&touches[0], &touches[1])
    })
}

/// Names the lines that the two workers of a workload share, each once.
///
/// # Errors
/// As [`program`].
pub fn shared_lines(workload: &Workload, options: Options) -> io::Result<Vec<NamedConflict>> {
    record(workload, options, |[first, second], symbols| {
        let mut seen = BTreeSet::new();
        let mut named = Vec::new();
        for (a, b) in first.iter().flat_map(|a| second.iter().map(move |b| (a, b))) {
            for conflict in conflicts(a, b) {
                if seen.insert(conflict.line) {
                    named.extend(describe(&conflict, a, b, symbols));
                }
            }
        }
        named
    })
}

/// Records the calls of both workers and returns what `look` finds in them.
fn record<R>(
    workload: &Workload,
    options: Options,
    look: impl FnOnce([&[&Trace]; 2], &mut Symbols) -> R,
) -> io::Result<R> {
    let mut runner = Runner::new(options)?;
    let look = |recorded: &[Vec<(Outcome, Trace)>; 2], symbols: &mut Symbols| {
        let traces = |worker: usize| {
            let calls = recorded[worker].iter().map(|(outcome, trace)| match outcome {
                Outcome::Error(errno) => Err(io::Error::from_raw_os_error(errno.raw_os_error())),
                _ => Ok(trace),
            });
            calls.collect::<io::Result<Vec<_>>>()
        };
        let (first, second) = (traces(0)?, traces(1)?);
        Ok(look([&first, &second], symbols))
    };
    // The warm-up excludes one-time costs: of the first execution, and of the first one after the
    // promotion.
    let again = workload.once().cloned().collect();
    runner.record_all(workload.setup.clone(), again, workload.workers.clone(), look)?
}

/// Makes the program of a workload repeatedly and returns the one with the fewest shared lines. In
/// some recordings, a CPU's local allowance runs out, or a background thread, such as a volume's,
/// leaves memory with the other CPU.
///
/// # Errors
/// Returns the errors of [`program`].
pub fn program_alone(workload: &Workload, options: Options) -> io::Result<Program> {
    let mut least = program(workload, options)?;
    for _ in 1..RECORDINGS {
        if least.shared_lines() == 0 {
            break;
        }
        let next = program(workload, options)?;
        if next.shared_lines() < least.shared_lines() {
            least = next;
        }
    }
    Ok(least)
}

/// Returns the accesses of a trace. Its instructions are distributed over them evenly.
fn touched(trace: &Trace, symbols: &mut Symbols) -> Vec<Touch> {
    let count = trace.steps.len().max(1) as u64;
    let mut seen = 0;
    let mut before = 0;
    let mut touches = Vec::new();
    for (at, step) in trace.steps.iter().enumerate() {
        let Step::Access(access) = step else { continue };
        seen = trace.instructions * (at as u64 + 1) / count;
        for line in lines(access) {
            let role = if access.write { role(symbols.frames(access.ip)) } else { Role::Plain };
            let instructions = seen - std::mem::replace(&mut before, seen);
            touches.push(Touch { line, write: access.write, role, instructions });
        }
    }
    // Instructions after the last access count for it.
    if let Some(last) = touches.last_mut() {
        last.instructions += trace.instructions - seen;
    }
    touches
}

/// Returns the lines of an access.
fn lines(access: &Access) -> std::ops::RangeInclusive<u64> {
    let last = access.address + access.size.max(1) - 1;
    access.address >> LINE_BITS..=last >> LINE_BITS
}

/// Functions of `vfscale_sync` whose writes take an exclusive lock.
const ACQUIRE: [(&str, &str); 6] = [
    ("RawMutex", "take_free"),
    ("RawMutex", "claim"),
    ("RawRwLock", "take_empty"),
    ("Lockref", "claim"),
    ("SlotLock", "take"),
    ("SlotLock", "lock"),
];

/// Functions of `vfscale_sync` whose writes release an exclusive lock.
const RELEASE: [(&str, &str); 6] = [
    ("RawMutex", "unlock"),
    ("RawMutex", "unlock_slow"),
    ("RawRwLock", "unlock_write"),
    ("LockrefGuard", "drop"),
    ("LockrefGuard", "unlock_slow"),
    ("SlotGuard", "drop"),
];

/// Returns the effect of a write on a lock, given by the innermost lock function.
fn role(frames: &[Frame]) -> Role {
    let of_frame = |frame: &Frame| {
        let method = method(&frame.function);
        if ACQUIRE.contains(&method) {
            Some(Role::Acquire)
        } else {
            RELEASE.contains(&method).then_some(Role::Release)
        }
    };
    frames.iter().find_map(of_frame).unwrap_or(Role::Plain)
}

/// Returns the type and name of a method, without parameters: `a::Type::name<T>` is of `Type`.
fn method(function: &str) -> (&str, &str) {
    let path = function.trim_start_matches('<').split('<').next().unwrap_or_default();
    let mut parts = path.rsplit("::");
    let name = parts.next().unwrap_or_default();
    (parts.next().unwrap_or_default(), name)
}

#[cfg(test)]
mod tests;
