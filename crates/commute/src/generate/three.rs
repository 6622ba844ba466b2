//! Triples: two calls, after a third one that commutes with both.
//!
//! A third call may leave behind what the two then meet on: a name that is remembered to be absent, a page
//! of a table, a count that was just spread. Only calls are taken for a third of which the model says that
//! all three commute in every order, so that nothing of it may be seen.

use vfscale::Errno;
use vfscale_sync::random::Random;

use super::{Options, started, template};
use crate::case::{Call, CallKind, Case, Outcome};
use crate::model::commute_three;

/// Where a third call puts what it opens.
const NEW_SLOT: u8 = 10;

/// What third calls are: those that find things, that count, and that make and remove names.
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

/// Cases of which each is one of `cases` after a third call, spread over them by chance.
pub(super) fn triples(cases: &[Case], options: &Options) -> Vec<Case> {
    let mut random = Random::new(options.seed ^ 0x7472_6970_6c65);
    let mut order: Vec<_> = (0..cases.len()).collect();
    random.shuffle(&mut order);
    let with_third = |at: usize| triple(&cases[at], &mut random);
    order.into_iter().filter_map(with_third).take(options.triples).collect()
}

/// The case after a third call that commutes with both, if the one that is drawn does. It may fail: that a
/// name is absent is remembered too.
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
    let start = started(&case.setup)?;
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
