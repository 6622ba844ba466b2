//! Programs from recordings of the library.
//!
//! Both workers of a workload are recorded on CPUs of their own, as cases are ([`runner`](crate::runner)),
//! and each access becomes a [`Touch`]. Which of them take and give back a lock is told by the function they
//! are in. Locks that readers share and seqlocks are lines like others: so what waits for their writers is
//! predicted too well.

use std::io;

use super::workload::Workload;
use super::{Program, Role, Touch};
use crate::case::Outcome;
use crate::record::{Access, Step, Trace};
use crate::runner::{Options, Runner};
use crate::symbols::{Frame, Symbols};

/// Recordings of which [`program_alone`] takes one.
const RECORDINGS: usize = 5;
/// Bytes of a line, as a power of two.
const LINE_BITS: u32 = 6;

/// The program of a workload, where and with structures spread as far as `options` say.
///
/// # Errors
/// As `Runner::record_all`; if a call fails, which in a workload none should.
pub fn program(workload: &Workload, options: Options) -> io::Result<Program> {
    let mut runner = Runner::new(options)?;
    let look = |recorded: &[Vec<(Outcome, Trace)>; 2], symbols: &mut Symbols| {
        let mut touches = [Vec::new(), Vec::new()];
        for (touches, recorded) in touches.iter_mut().zip(recorded) {
            for (outcome, trace) in recorded {
                if let Outcome::Error(errno) = outcome {
                    return Err(io::Error::from_raw_os_error(errno.raw_os_error()));
                }
                touches.extend(touched(trace, symbols));
            }
        }
        Ok(Program::new(&touches[0], &touches[1]))
    };
    // What happens only the first time is no part of it, nor the first time after what is hot was promoted.
    let again = workload.once().cloned().collect();
    runner.record_all(workload.setup.clone(), again, workload.workers.clone(), look)?
}

/// The same with the fewest shared lines of some recordings. A CPU's allowance of something may just run out
/// in one of them; and what threads in the background do in between, as those of a volume do, may leave
/// memory with the other CPU.
///
/// # Errors
/// As [`program`].
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

/// The accesses of a trace. Its instructions are spread over them evenly.
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
    // What comes after the last access belongs to it.
    if let Some(last) = touches.last_mut() {
        last.instructions += trace.instructions - seen;
    }
    touches
}

/// The lines that an access is in.
fn lines(access: &Access) -> std::ops::RangeInclusive<u64> {
    let last = access.address + access.size.max(1) - 1;
    access.address >> LINE_BITS..=last >> LINE_BITS
}

/// The functions of `vfscale_sync` whose writes take a lock for one thread at a time.
const ACQUIRE: [(&str, &str); 6] = [
    ("RawMutex", "take_free"),
    ("RawMutex", "claim"),
    ("RawRwLock", "take_empty"),
    ("Lockref", "claim"),
    ("SlotLock", "take"),
    ("SlotLock", "lock"),
];

/// Those whose writes give it back.
const RELEASE: [(&str, &str); 6] = [
    ("RawMutex", "unlock"),
    ("RawMutex", "unlock_slow"),
    ("RawRwLock", "unlock_write"),
    ("LockrefGuard", "drop"),
    ("LockrefGuard", "unlock_slow"),
    ("SlotGuard", "drop"),
];

/// What a write does, by the innermost of its functions that is about locks.
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

/// The type and name of a method, without parameters: `a::Type::name<T>` is of `Type`.
fn method(function: &str) -> (&str, &str) {
    let path = function.trim_start_matches('<').split('<').next().unwrap_or_default();
    let mut parts = path.rsplit("::");
    let name = parts.next().unwrap_or_default();
    (parts.next().unwrap_or_default(), name)
}

#[cfg(test)]
mod tests;
