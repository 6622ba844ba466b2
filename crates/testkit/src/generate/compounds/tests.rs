use std::collections::BTreeSet;

use super::*;

#[test]
fn compounds_are_whole_and_follow_from_their_seed() {
    let some = |seed| {
        let mut compounds = Compounds::new(seed);
        (0..2_000).map(|tag| compounds.next(tag)).collect::<Vec<_>>()
    };
    let all = some(1);
    assert_eq!(all, some(1));
    assert_ne!(all, some(2));
    for compound in &all {
        assert!(compound.paths().iter().all(|path| path.starts_with('/')), "{compound}");
        let mut ops = compound.0.clone();
        let on_file = ops.len() == 2;
        let last = ops.last_mut().unwrap();
        let wanted = if on_file { 0 } else { CWD };
        assert!(last.descriptors_mut().iter().all(|fd| **fd == wanted), "{compound}");
    }
    let names: BTreeSet<_> = all.iter().filter_map(|c| c.0.last()).map(Op::name).collect();
    assert!(names.len() > 18, "{names:?}");
}
