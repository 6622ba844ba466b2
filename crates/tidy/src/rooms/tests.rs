use super::*;

fn parse(files: &[(&str, &str)]) -> Crate {
    let files: Vec<_> =
        files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
    Crate::new(&files)
}

fn arrow(from: &str, to: &str) -> Arrow {
    Arrow { from: from.into(), to: to.into() }
}

#[test]
fn imports_are_resolved_through_exports() {
    let parsed = parse(&[
        ("lib.rs", "mod a; mod b; pub use a::one::One;"),
        ("a.rs", "mod one; pub(crate) use one::One;"),
        ("a/one.rs", "use super::super::b::Two; pub struct One;"),
        ("b.rs", "use crate::{One, a::{self, One as First}}; fn f() -> crate::a::One { todo() }"),
    ]);
    let expected = [arrow("a/one", "b"), arrow("b", "a"), arrow("b", "a/one")];
    assert_eq!(parsed.arrows().into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn tests_and_links_of_documentation_may_look_up() {
    let parsed = parse(&[
        ("lib.rs", ""),
        ("low.rs", "#[cfg(doc)] use crate::high::A; #[cfg(test)] use crate::high::B;"),
        ("low/tests.rs", "use crate::high::A;"),
        ("high.rs", "use std::fmt; use smallvec::SmallVec;"),
    ]);
    assert!(parsed.arrows().is_empty(), "{:?}", parsed.arrows());
}

#[test]
fn an_import_from_above_is_a_complaint() {
    let down = [arrow("high/a", "low/b")].into();
    assert!(complaints("x", &["high", "low"], &down).is_empty());
    let up = [arrow("low/b", "high/a"), arrow("low/b", "low/c")].into();
    assert_eq!(
        complaints("x", &["high", "low"], &up),
        ["x: low/b imports high/a, which is above it"]
    );
    let unknown = [arrow("new/b", "low/a")].into();
    assert_eq!(complaints("x", &["high", "low"], &unknown).len(), 1);
}

#[test]
fn an_exception_that_is_not_needed_is_a_complaint() {
    let (name, from, to, _) = UPWARD[0];
    let needed = UPWARD.iter().filter(|(krate, ..)| *krate == name);
    let needed: BTreeSet<_> = needed.map(|(_, from, to, _)| arrow(from, to)).collect();
    assert!(stale(name, &needed).is_empty());
    assert!(complaints(name, &[from.split('/').next().unwrap()], &BTreeSet::new()).is_empty());
    let mut rest = needed;
    rest.remove(&arrow(from, to));
    assert_eq!(stale(name, &rest).len(), 1);
}

#[test]
fn files_in_a_circle_are_found() {
    let arrows = [arrow("a", "b"), arrow("b", "c"), arrow("c", "a"), arrow("c", "d")].into();
    assert_eq!(circles(&arrows), BTreeSet::from([vec!["a", "b", "c"]]));
    assert!(circles(&[arrow("a", "b"), arrow("b", "c")].into()).is_empty());
}
