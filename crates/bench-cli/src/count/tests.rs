//! Tests of the counts of the report.

use super::*;

#[test]
fn what_is_over_is_not_counted() {
    assert!(shared_lines(&|| true).unwrap().is_empty());
}

/// Two CPUs that create files touch shared lines more often without a patch of the committed item
/// list than with all.
#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn patches_of_the_committed_items_are_seen_in_the_count() {
    let count = |before: &[&str]| on_x86_64::of_case("create-many", before).unwrap();
    let after = count(&[]);
    assert!(after.lines > 0 && after.touches_min <= after.touches_max, "{after:?}");
    for patch in ["active-trans", "cil-lists"] {
        let before = count(&[patch]);
        assert!(before.touches_min > after.touches_min, "{before:?} {after:?}");
    }
    assert!(on_x86_64::of_case("magic", &[]).is_err());
}
