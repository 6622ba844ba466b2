//! Tests of the counts of the report.

use super::on_x86_64::of_case;

/// Two CPUs that create files touch shared lines more often without a patch of the committed item
/// list than with all.
#[test]
fn patches_of_the_committed_items_are_seen_in_the_count() {
    let count = |before: &[&str]| of_case("create-many", before).unwrap();
    let after = count(&[]);
    assert!(after.lines > 0 && after.touches_min <= after.touches_max, "{after:?}");
    for patch in ["active-trans", "cil-lists"] {
        let before = count(&[patch]);
        assert!(before.touches_min > after.touches_min, "{before:?} {after:?}");
    }
    assert!(of_case("magic", &[]).is_err());
}
