use std::sync::Weak;

use super::*;
use crate::cpu;

#[test]
fn references_are_counted_where_they_are_taken() {
    let object = Arc::new(7);
    let shared = PerCpuArc::new(2, object.clone());
    let units = Arc::strong_count(&object);
    let keep = |cpu| {
        let _there = cpu::pretend(cpu);
        shared.keep()
    };
    let kept = [keep(0), keep(1), keep(1)];
    assert_eq!(shared.kept(), [1, 2]);
    // The object's own count, which is next to it, was not written.
    assert_eq!((Arc::strong_count(&object), *kept[2]), (units, 7));
    drop(kept);
    assert_eq!(shared.kept(), [0, 0]);
}

#[test]
fn the_object_lives_as_long_as_any_reference() {
    let object = Arc::new(String::from("here"));
    let alive = Arc::downgrade(&object);
    let shared = PerCpuArc::new(4, object);
    let kept = shared.keep();
    drop(shared);
    assert_eq!((alive.upgrade().is_some(), kept.as_str()), (true, "here"));
    drop(kept);
    assert!(Weak::upgrade(&alive).is_none());
}

#[test]
fn counts_have_lines_of_their_own() {
    let shared = PerCpuArc::new(8, Arc::new(0_u8));
    let mut lines: Vec<_> =
        shared.counts.iter().map(|count| Arc::as_ptr(count).addr() / 128).collect();
    assert!(lines.iter().all(|line| *line != Arc::as_ptr(&shared.object).addr() / 128));
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 8);
}
