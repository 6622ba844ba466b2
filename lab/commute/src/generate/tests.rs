use std::sync::OnceLock;

use super::*;
use crate::model;

/// The cases of the default options, generated once because that takes a while.
pub(crate) fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| all(&Options::default()))
}

fn count_by_pair(cases: &[Case]) -> BTreeMap<(CallKind, CallKind), usize> {
    let mut count = BTreeMap::new();
    for case in cases {
        *count.entry(case.pair).or_default() += 1;
    }
    count
}

#[test]
fn the_same_seed_makes_the_same_cases() {
    let few = Options { per_pair: 6, tries: 100, triples: 20, ..Options::default() };
    let made = all(&few);
    assert!(made == all(&few));
    assert!(made != all(&Options { seed: 2, ..few }));
    assert!(sample(50, &few) == sample(50, &few));
}

#[test]
fn there_are_ten_thousand_cases_and_some_of_every_two_calls() {
    let cases = cases();
    assert!(cases.len() >= 10_000, "{}", cases.len());
    let count = count_by_pair(cases);
    for pair in pairs(&Options::default()) {
        let count = count.get(&pair).copied().unwrap_or(0);
        assert!(count >= 4, "{pair:?} has {count}");
    }
    let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len(), "names are not unique");
}

#[test]
fn the_calls_of_every_case_commute_and_mostly_succeed() {
    let mut both_succeed = 0;
    for case in cases() {
        let mut turned = case.clone();
        std::mem::swap(&mut turned.first, &mut turned.second);
        let [mut one, mut other] = [case, &turned].map(model::outcomes);
        let (Some(second), Some(first)) = (one.pop(), one.pop()) else { panic!() };
        let (Some(first_last), Some(second_first)) = (other.pop(), other.pop()) else { panic!() };
        assert_eq!((&first, &second), (&first_last, &second_first), "{}", case.name);
        let is_triple = case.name.contains("; after ");
        assert!(is_triple || one.iter().all(|o| failure(o).is_none()), "{}", case.name);
        both_succeed += usize::from(failure(&first).is_none() && failure(&second).is_none());
    }
    assert!(both_succeed * 2 > cases().len(), "only {both_succeed} of {}", cases().len());
}

#[test]
fn a_sample_is_spread_over_the_calls() {
    let sample = sample(2_000, &Options { per_pair: 12, tries: 400, ..Options::default() });
    assert_eq!(sample.len(), 2_000);
    let count = count_by_pair(&sample);
    assert_eq!(count.len(), pairs(&Options::default()).len());
    let (least, most) = (count.values().min().unwrap(), count.values().max().unwrap());
    assert!(*least >= 4 && *most <= 5, "{least} to {most}");
}

#[test]
fn a_volume_has_fsync_besides() {
    let options = Options { volume: true, ..Options::default() };
    let count = KINDS.len() + 1;
    assert_eq!(pairs(&options).len(), count * (count + 1) / 2);
    let cases = of((CallKind::Pwrite, CallKind::Fsync), &options);
    assert!(
        cases
            .iter()
            .any(|case| case.name.starts_with("pwrite(#0") && case.name.contains("fsync(#1)"))
    );
}

#[test]
fn a_name_says_what_the_case_is() {
    let options = Options { per_pair: usize::MAX, tries: 10_000, ..Options::default() };
    let cases = of((CallKind::Stat, CallKind::Rename), &options);
    let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
    let has = |text: &str| names.iter().any(|name| name.contains(text));
    assert!(has("stat(d0/a) || rename(d0/b, d0/c): d0/a is "));
    assert!(has("d0/b is a link of d0/a"));
    assert!(has("; one process"));
    // Removing a name removes a link of its file, which changes the link count.
    let two_links = "d0/a is a file of 1 page; d0/b is a file of 1 page; d0/c is a link of d0/a";
    assert!(!has(&format!("stat(d0/a) || rename(d0/b, d0/c): {two_links}")));
}
