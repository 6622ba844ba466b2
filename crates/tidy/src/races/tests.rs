use super::*;

const FILE: &str = r#"
//! Race: not of a test.

/// Opens two files.
///
/// Race: an open against
/// an unlink.
///
/// The name owns one reference.
/// Seam: count / collection; parties: a holder,
/// a removal.
#[test]
#[cfg_attr(
    miri,
    ignore = "slow"
)]
fn opens() {}

/// Race: an open against an unlink.
fn helper() {}

#[test]
fn nothing() {}

/// Race: an open against an unlink.
/// Race: two opens.
#[test]
fn opens_again() {}
"#;

#[test]
fn comments_of_tests_name_races_and_seams() {
    let found = tests("crates/a/tests/b.rs", FILE);
    let names: Vec<_> = found.iter().map(|test| test.name.as_str()).collect();
    assert_eq!(names, ["opens", "nothing", "opens_again"]);
    let race = "an open against an unlink".to_owned();
    assert_eq!(found[0].races, [(race.clone(), true)]);
    assert_eq!(found[0].seams, [("count / collection".into(), "a holder, a removal".into())]);
    assert_eq!((found[1].races.len(), found[1].seams.len()), (0, 0));
    assert_eq!(found[2].races, [(race, false), ("two opens".into(), false)]);
}

#[test]
fn the_page_has_a_row_for_each() {
    let found = tests("crates/a/tests/b.rs", FILE);
    let expected = "## Seams\n\n| seam | parties | tests |\n| --- | --- | --- |\n\
         | count / collection | a holder, a removal | `crates/a/tests/b.rs::opens` |\n\n\
         ## Races in a\n\n| race | tests |\n| --- | --- |\n\
         | an open against an unlink | `crates/a/tests/b.rs::opens`, `::opens_again` |\n\
         | two opens | `crates/a/tests/b.rs::opens_again` |\n";
    assert_eq!(page(&found), expected);
}
