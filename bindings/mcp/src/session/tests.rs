//! Tests of what may be changed.

use super::*;

fn branch(name: &str, parent: Option<&str>) -> Branch {
    Branch { name: name.to_owned(), parent: parent.map(str::to_owned), ..Branch::main() }
}

#[test]
fn only_a_branch_and_what_comes_from_it_is_below_it() {
    let branches = [
        branch("main", None),
        branch("t", Some("main")),
        branch("t@1", Some("t")),
        branch("child", Some("t@1")),
        branch("other", Some("main")),
        branch("loop", Some("pool")),
        branch("pool", Some("loop")),
    ];
    let forked = BTreeSet::from(["unchanged".to_owned()]);
    let below = |name: &str| is_below("t", name, &branches, &forked);
    for name in ["t", "t@1", "t@7", "child", "child@1", "unchanged"] {
        assert!(below(name), "{name}");
    }
    for name in ["main", "main@1", "other", "loop", "nothing", "tt", ""] {
        assert!(!below(name), "{name}");
    }
}
