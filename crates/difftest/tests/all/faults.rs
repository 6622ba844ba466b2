//! Faults injected into vfscale's side, each of which the comparison with tmpfs must find and
//! shrink to a few calls.
//!
//! A fault is between the sequences and the library: it changes calls before, or results after,
//! they are made. The seed is fixed, because it determines how far a sequence can be shrunk.

use std::sync::Arc;

use crate::common::{self, permitted};
use vfscale_difftest::campaign::lockstep;
use vfscale_difftest::campaign::{self, FoundDifference, Pairing, Plan};
use vfscale_testkit::calls::Calls;
use vfscale_testkit::calls::op::{Data, FS_IMMUTABLE, Op, PathArg};
use vfscale_testkit::calls::outcome::{Outcome, Value};
use vfscale_testkit::world::oracle::{OraclePool, PooledOracle};
use vfscale_testkit::world::subject::Subject;
use vfscale_testkit::world::{Finished, World};

const SEED: u64 = 3;

/// Maximum number of calls in a shrunk sequence.
const CALLS_MAX: usize = 10;

/// A faulty implementation of a call.
type Fault = fn(&mut dyn Calls, &Op) -> Outcome;

/// The faults by name.
const PLANTED: &[(&str, Fault)] = &[
    ("a wrong error number", wrong_error),
    ("a success called a failure", refused),
    ("a wrong size", wrong_size),
    ("a wrong link count", wrong_links),
    ("a missing entry", missing_entry),
    ("a lost write", lost_write),
    ("a wrong byte", wrong_byte),
    ("a truncation that is lost", lost_truncation),
    ("an unchanged access time", unchanged_access_time),
    ("a lost group", lost_group),
    ("a lost attribute", lost_attribute),
    ("a rename that links", linking_rename),
    ("a lock that excludes no other", no_lock),
    ("a descriptor out of order", high_dup),
    ("an umask that is not applied", no_umask),
    ("a flag that is lost", lost_flag),
    ("a whiteout that is missing", no_whiteout),
];

fn wrong_error(calls: &mut dyn Calls, op: &Op) -> Outcome {
    match (op, calls.call(op)) {
        (Op::Mkdir { .. }, Outcome::Err(libc::EEXIST)) => Outcome::Err(libc::ENOENT),
        (_, outcome) => outcome,
    }
}

/// Makes the link and reports a failure.
fn refused(calls: &mut dyn Calls, op: &Op) -> Outcome {
    match (op, calls.call(op)) {
        (Op::Symlink { .. }, Outcome::Ok(_)) => Outcome::Err(libc::EPERM),
        (_, outcome) => outcome,
    }
}

fn wrong_size(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let mut outcome = calls.call(op);
    if let Outcome::Ok(Value::Stat(stat)) = &mut outcome
        && stat.mode & libc::S_IFMT == libc::S_IFREG
    {
        stat.size = stat.size.next_multiple_of(512);
    }
    outcome
}

/// Reports a link count that is too low by one for a file with several names.
fn wrong_links(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let mut outcome = calls.call(op);
    if let Outcome::Ok(Value::Stat(stat)) = &mut outcome
        && stat.mode & libc::S_IFMT != libc::S_IFDIR
        && stat.nlink > 1
    {
        stat.nlink -= 1;
    }
    outcome
}

/// Omits one entry of a directory of three.
fn missing_entry(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let mut outcome = calls.call(op);
    if let Outcome::Ok(Value::Entries(entries)) = &mut outcome
        && entries.len() == 5
    {
        entries.pop_last();
    }
    outcome
}

/// Writes nothing and reports success.
fn lost_write(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let Op::Pwrite { fd, data, off } = op else { return calls.call(op) };
    let nothing = Op::Pwrite { fd: *fd, data: Data::Run { seed: 0, len: 0 }, off: *off };
    match calls.call(&nothing) {
        Outcome::Ok(_) => Outcome::Ok(Value::Number(data.len() as i64)),
        refused => refused,
    }
}

fn wrong_byte(calls: &mut dyn Calls, op: &Op) -> Outcome {
    match op {
        Op::Write { fd, data: Data::Run { seed, len } } if *len > 100 => {
            let data = Data::Run { seed: seed ^ 1, len: *len };
            calls.call(&Op::Write { fd: *fd, data })
        }
        _ => calls.call(op),
    }
}

fn lost_truncation(calls: &mut dyn Calls, op: &Op) -> Outcome {
    match op {
        Op::Open { at, path, flags, mode } if flags & libc::O_TRUNC as u32 != 0 => {
            let flags = flags & !(libc::O_TRUNC as u32);
            calls.call(&Op::Open { at: *at, path: path.clone(), flags, mode: *mode })
        }
        _ => calls.call(op),
    }
}

fn unchanged_access_time(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let Op::Read { fd, .. } = op else { return calls.call(op) };
    let Some(flags) = calls.call(&Op::GetFlags { fd: *fd }).number() else { return calls.call(op) };
    let flags = flags as u32;
    calls.call(&Op::SetFlags { fd: *fd, flags: flags | libc::O_NOATIME as u32 });
    let outcome = calls.call(op);
    calls.call(&Op::SetFlags { fd: *fd, flags });
    outcome
}

fn lost_group(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let mut op = op.clone();
    if let Op::Chown { gid, .. } = &mut op {
        *gid = None;
    }
    calls.call(&op)
}

/// Sets the attribute and removes it again.
fn lost_attribute(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let outcome = calls.call(op);
    if let (Op::Setxattr { at, path, name, flags, .. }, Outcome::Ok(_)) = (op, &outcome) {
        let (path, name) = (path.clone(), name.clone());
        calls.call(&Op::Removexattr { at: *at, path, name, flags: *flags });
    }
    outcome
}

/// Leaves the old name of a rename, where possible.
fn linking_rename(calls: &mut dyn Calls, op: &Op) -> Outcome {
    if let Op::Rename { at, path, to_at, to, flags: 0 } = op {
        let (path, to): (PathArg, PathArg) = (path.clone(), to.clone());
        let link = Op::Link { at: *at, path, to_at: *to_at, to, flags: 0 };
        if let linked @ Outcome::Ok(_) = calls.call(&link) {
            return linked;
        }
    }
    calls.call(op)
}

fn no_lock(calls: &mut dyn Calls, op: &Op) -> Outcome {
    match (op, calls.call(op)) {
        (Op::GetLock { .. }, Outcome::Ok(_)) => Outcome::Ok(Value::Conflict(None)),
        (_, outcome) => outcome,
    }
}

fn high_dup(calls: &mut dyn Calls, op: &Op) -> Outcome {
    match op {
        Op::Dup { fd } => calls.call(&Op::DupFrom { fd: *fd, min: 9, cloexec: false }),
        _ => calls.call(op),
    }
}

fn no_umask(calls: &mut dyn Calls, op: &Op) -> Outcome {
    match op {
        // Stores and returns the umask consistently, but never all of it.
        Op::Umask { mode } => calls.call(&Op::Umask { mode: mode & 0o700 }),
        _ => calls.call(op),
    }
}

/// Sets flags, except that of immutable inodes, and reports success.
fn lost_flag(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let mut op = op.clone();
    if let Op::SetInodeFlags { flags, .. } = &mut op {
        *flags &= !FS_IMMUTABLE;
    }
    calls.call(&op)
}

fn no_whiteout(calls: &mut dyn Calls, op: &Op) -> Outcome {
    let mut op = op.clone();
    if let Op::Rename { flags, .. } = &mut op {
        *flags &= !libc::RENAME_WHITEOUT;
    }
    calls.call(&op)
}

/// vfscale with a fault.
struct Faulty {
    subject: Subject,
    fault: Fault,
}

struct FaultyCalls<'a> {
    calls: &'a mut dyn Calls,
    fault: Fault,
}

impl Calls for FaultyCalls<'_> {
    fn call(&mut self, op: &Op) -> Outcome {
        (self.fault)(self.calls, op)
    }
}

impl World for Faulty {
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R {
        let fault = self.fault;
        self.subject.run(task, move |calls| f(&mut FaultyCalls { calls, fault }))
    }

    fn fork(&mut self, from: usize, into: usize) {
        self.subject.fork(from, into);
    }

    fn finish(&mut self) -> Result<Finished, String> {
        self.subject.finish()
    }
}

struct FaultyPairing<'a> {
    pool: &'a OraclePool,
    fault: Fault,
}

impl Pairing for FaultyPairing<'_> {
    type Oracle = PooledOracle;
    type Subject = Faulty;
    fn fresh(&self) -> Result<(PooledOracle, Faulty), String> {
        Ok((self.pool.get()?, Faulty { subject: Subject::new()?, fault: self.fault }))
    }
}

/// Plays until the first difference; returns its kind and its sequence.
fn hunt(pairing: &FaultyPairing<'_>, name: &str, plan: &Plan) -> (String, FoundDifference) {
    let summary = campaign::run(pairing, plan, |_| {}).unwrap();
    let calls = summary.calls;
    let found = summary.found.into_iter().next();
    found.unwrap_or_else(|| panic!("{name}: not found by {calls} calls of seed {}", plan.seed))
}

/// Plays the calls of a shrunk sequence; returns the kind of their difference.
fn shown(
    oracle: &mut impl World,
    subject: &mut impl World,
    found: &FoundDifference,
) -> Option<String> {
    let steps = Arc::new(found.steps.clone());
    lockstep::play(oracle, subject, &steps).err().map(|difference| difference.signature)
}

/// Each fault is found, with the same seed in the same call. The calls of the shrunk sequence show
/// it again, and show nothing without the fault.
#[test]
fn planted_faults_are_found_and_shrunk() {
    if !permitted() {
        return;
    }
    println!("seed: {SEED}");
    let pool = OraclePool::new();
    for (name, fault) in PLANTED {
        let pairing = FaultyPairing { pool: &pool, fault: *fault };
        let plan = Plan::new(SEED, 100_000);
        let (signature, found) = hunt(&pairing, name, &plan);
        println!("{name}, in sequence {}: {signature}\n{}", found.sequence, found.difference);
        assert!(found.steps.len() <= CALLS_MAX, "{name}: {} calls", found.steps.len());

        let again = Plan { first: found.sequence, calls: 1, shrink_max: 0, ..plan };
        assert_eq!(hunt(&pairing, name, &again).0, signature, "{name}: another time");

        let (mut oracle, mut faulty) = pairing.fresh().unwrap();
        let (mut other, mut sound) = (pool.get().unwrap(), Subject::new().unwrap());
        assert_eq!(shown(&mut oracle, &mut faulty, &found), Some(signature), "{name}: shrunk");
        assert_eq!(shown(&mut other, &mut sound, &found), None, "{name}: not by the fault");
    }
}

/// Without a fault, the wrapper changes nothing.
#[test]
fn without_a_fault_nothing_is_found() {
    if !permitted() {
        return;
    }
    let pool = OraclePool::new();
    let pairing = FaultyPairing { pool: &pool, fault: |calls, op| calls.call(op) };
    common::play(&pairing, &Plan::new(SEED, 5_000));
}
