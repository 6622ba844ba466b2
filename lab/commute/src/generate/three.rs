//! Triples: two calls after a third one that commutes with both.
//!
//! A third call may leave a state that the two calls then conflict on: a negative dentry, a page of
//! a table, a count that was just sharded. All three calls commute in every order according to the
//! model, so the third call's effects must not cause a conflict.

use vfscale::Errno;
use vfscale_sync::random::Random;

use super::template;
use crate::case::{Call, CallKind, Case, Outcome};
use crate::model::{State, commute_three};

/// Slot for the descriptor of a third call.
const NEW_SLOT: u8 = 10;

/// Kinds of third calls: those that look up names, take references, and make or remove names.
const THIRD: [CallKind; 8] = [
    CallKind::Stat,
    CallKind::Open,
    CallKind::Unlink,
    CallKind::Mkdir,
    CallKind::Readlink,
    CallKind::Fstat,
    CallKind::Getcwd,
    CallKind::Pread,
];

/// Generates at most `count` cases, each one of `cases` after a third call, selected
/// at random.
pub(super) fn triples(cases: &[Case], seed: u64, count: usize) -> Vec<Case> {
    let mut random = Random::new(seed ^ 0x7472_6970_6c65);
    let mut order: Vec<_> = (0..cases.len()).collect();
    random.shuffle(&mut order);
    let with_third = |at: usize| triple(&cases[at], &mut random);
    order.into_iter().filter_map(with_third).take(count).collect()
}

/// Adds a random third call to a case, or returns `None` if it does not commute with both. It may
/// fail: a lookup that fails leaves a negative dentry.
fn triple(case: &Case, random: &mut Random) -> Option<Case> {
    let kind = random.one(&THIRD);
    let ops = template::templates(kind, true);
    let op = &ops[random.below(ops.len() as u64) as usize];
    let paths = [&case.first, &case.second].map(|call| call.op.paths()).concat();
    let path = match paths.len() {
        0 => "e".into(),
        count => paths[random.below(count as u64) as usize].to_owned(),
    };
    let third = Call { process: 0, op: op.clone().with_paths(&[path]).with_slots(0, NEW_SLOT) };
    let start = State::after(&case.setup)?;
    if start.clone().call(&third) == Outcome::Error(Errno::BADF) {
        return None;
    }
    if !commute_three(&start, [&case.first, &case.second, &third]) {
        return None;
    }
    let setup: Vec<_> = case.setup.iter().cloned().chain([third.clone()]).collect();
    let name = format!("{}; after {}", case.name, third.op);
    Some(Case::new(name, setup, case.first.clone(), case.second.clone()))
}
