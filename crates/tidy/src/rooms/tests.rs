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

#[test]
fn a_page_that_uses_its_child_imports_it() {
    let parsed = parse(&[
        ("lib.rs", ""),
        (
            "a.rs",
            "mod one; mod two; mod three; pub use one::One; pub use two::Two; fn f(_: One) { three::g() }",
        ),
        ("a/one.rs", "pub struct One;"),
        ("a/two.rs", "use super::One; pub struct Two;"),
        ("a/three.rs", "pub fn g() {}"),
    ]);
    let expected = [arrow("a", "a/one"), arrow("a", "a/three"), arrow("a/two", "a/one")];
    assert_eq!(parsed.arrows().into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_module_within_a_file_is_a_part_of_it() {
    let parsed = parse(&[
        ("lib.rs", ""),
        ("a.rs", "mod one; use one::f;"),
        ("a/one.rs", "const C: u8 = 0; mod inner { use super::C; use super::super::D; } fn f() {}"),
        ("b.rs", ""),
    ]);
    let expected = [arrow("a", "a/one"), arrow("a/one", "a")];
    assert_eq!(parsed.arrows().into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_circle_that_is_not_listed_is_a_complaint() {
    let parsed = parse(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; impl B { fn f(_: crate::a::A) {} }"),
    ]);
    let arrows = parsed.arrows();
    let found = circle_complaints("x", &[], &arrows);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a -> b") && found[0].contains("b -> a"), "{found:?}");
    assert!(circle_complaints("x", &[("x", &["a", "b"], "one thing")], &arrows).is_empty());
    // The circle of another crate, or a part of one, does not excuse it.
    assert_eq!(circle_complaints("x", &[("y", &["a", "b"], "one thing")], &arrows).len(), 1);
    assert_eq!(circle_complaints("x", &[("x", &["a"], "one thing")], &arrows).len(), 2);
}

#[test]
fn a_listed_circle_that_is_undone_is_a_complaint() {
    let known: &[Circle] = &[("x", &["a", "b"], "one thing")];
    assert_eq!(circle_complaints("x", known, &[arrow("a", "b")].into()).len(), 1);
    assert!(circle_complaints("y", known, &[arrow("a", "b")].into()).is_empty());
}
