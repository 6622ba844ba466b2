use vfscale::Mode;

use super::*;
use crate::case::{Call, Case, Op};
use crate::report::{Plan, run};

/// Returns a free case and a conflicting one: both calls make directories, in different ones or in
/// one.
fn cases() -> Vec<Case> {
    let call = |process, op| Call { process, op };
    let mkdir = |path: &str| Op::Mkdir { path: path.into(), mode: Mode::RWXU };
    let setup = vec![call(0, mkdir("d")), call(0, mkdir("e"))];
    let case =
        |name: &str, a: Op, b: Op| Case::new(name.into(), setup.clone(), call(0, a), call(1, b));
    let getcwd = || Op::Getcwd {};
    let chmod = |path: &str| Op::Chmod { path: path.into(), mode: Mode::RUSR };
    vec![case("free", getcwd(), getcwd()), case("not free", chmod("d"), chmod("d"))]
}

#[test]
fn a_list_is_read_as_it_was_written() {
    let list = Exceptions::parse("# why\n\n b || c \na || b\n");
    assert_eq!(list.len(), 2);
    assert_eq!(Exceptions::parse(&list.to_string()), list);
    assert!(Exceptions::parse(&Exceptions::default().to_string()).is_empty());
}

#[test]
fn only_the_exact_list_is_no_difference() {
    let cases = cases();
    let report = run(&cases, &Plan::default(), |_| true).unwrap();
    let differs = |text: &str| {
        let list = Exceptions::parse(text);
        let differences = list.differences(&report, &cases);
        (differences.is_empty(), differences.to_string())
    };
    assert_eq!(Exceptions::of(&report), Exceptions::parse("not free"));
    assert!(differs("not free").0);
    let (same, text) = differs("");
    assert!(
        !same && text.starts_with("conflicts, and was free before: not free\n    on "),
        "{text}"
    );
    assert!(
        differs("not free\nfree").1.starts_with("free of conflicts, remove from the list: free")
    );
    assert!(
        differs("not free\nother")
            .1
            .starts_with("on the list, but not a case of the sample: other")
    );
}
