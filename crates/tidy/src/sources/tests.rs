use super::*;

const PAGE: &str = "//! One.\n//!\n//! Three.\n//!\n//! Five.\n";

fn check(path: &str, text: &str) -> Vec<String> {
    complaints(Source { path, text })
}

/// A module of one function whose body is `lines` statements, each on a line between a comment and
/// a blank line.
fn function(lines: usize) -> String {
    format!("//! A module.\nfn long() {{\n{}}}\n", "    // Why.\n    step();\n\n".repeat(lines))
}

#[test]
fn a_tidy_module_has_no_complaint() {
    let text =
        "//! A module.\nfn f() { let _ = \"unsafe {\"; } // unsafe\n#[cfg(test)]\nmod tests;\n";
    assert_eq!(check("crates/vfs/src/tidy.rs", text), [""; 0]);
}

#[test]
fn files_are_measured() {
    let text = "\n".repeat(FILE_LINES_MAX);
    assert_eq!(length_complaint(Source { path: "a.rs", text: &text }), None);
    let text = text + "\n";
    assert!(length_complaint(Source { path: "a.rs", text: &text }).is_some());
}

#[test]
fn functions_are_measured_without_comments_and_blank_lines() {
    assert!(check("crates/vfs/src/a.rs", &function(FUNCTION_LINES_MAX)).is_empty());
    assert_eq!(check("crates/vfs/src/a.rs", &function(FUNCTION_LINES_MAX + 1)).len(), 1);
    let method = function(FUNCTION_LINES_MAX + 1).replace("fn long", "impl A { fn long") + "}";
    assert_eq!(check("crates/vfs/src/a.rs", &method).len(), 1);
    let default = function(FUNCTION_LINES_MAX + 1).replace("fn long", "trait A { fn long") + "}";
    assert_eq!(check("crates/vfs/src/a.rs", &default).len(), 1);
}

#[test]
fn comments_are_no_wider_than_the_code() {
    let words = |columns: usize| format!("//! A module.\n    // {}\n", "x".repeat(columns - 7));
    assert!(check("crates/vfs/src/a.rs", &words(COMMENT_COLUMNS_MAX)).is_empty());
    assert_eq!(check("crates/vfs/src/a.rs", &words(COMMENT_COLUMNS_MAX + 1)).len(), 1);
    let row = format!("//! | a | {} |\n", "x".repeat(COMMENT_COLUMNS_MAX));
    assert!(check("crates/vfs/src/a.rs", &row).is_empty());
    let code = format!("//! A module.\nconst A: &str = \"{}\";\n", "x".repeat(COMMENT_COLUMNS_MAX));
    assert!(check("crates/vfs/src/a.rs", &code).is_empty());
}

#[test]
fn tests_sleep_only_in_the_harness() {
    let text = concat!("//! A module.\nfn f() { std::thread::", "sleep(TIME); }\n");
    for path in ["crates/vfs/src/a/tests.rs", "crates/cli/tests/kill.rs"] {
        assert_eq!(check(path, text).len(), 1, "{path}");
    }
    for path in ["crates/vfs/src/a.rs", "crates/harness/src/tests.rs", "crates/fuse/examples/a.rs"]
    {
        assert!(check(path, text).is_empty(), "{path}");
    }
}

#[test]
fn a_length_can_not_be_allowed() {
    let text = "//! A module.\n#[allow(clippy::too_many_lines)]\nfn f() {}\n";
    assert_eq!(check("crates/vfs/src/a.rs", text).len(), 1);
    let text = "//! A module.\n#![expect(clippy::cognitive_complexity)]\n";
    assert_eq!(check("crates/vfs/src/a.rs", text).len(), 1);
    let text = "//! A module.\n#[allow(clippy::len_zero)]\nfn f() {}\n";
    assert!(check("crates/vfs/src/a.rs", text).is_empty());
}

#[test]
fn tests_beside_the_code_are_found() {
    let module = "//! A module.\n#[cfg(all(test, not(loom)))]\nmod tests { fn helper() {} }\n";
    assert_eq!(check("crates/vfs/src/a.rs", module).len(), 1);
    let test = "//! A module.\n#[test]\nfn it_works() {}\n";
    assert_eq!(check("crates/vfs/src/a.rs", test).len(), 1);
    for sibling in ["src/a/tests.rs", "src/a_tests.rs", "tests/a.rs", "benches/a.rs"] {
        assert!(check(&format!("crates/vfs/{sibling}"), test).is_empty(), "{sibling}");
    }
}

#[test]
fn unsafe_is_found_wherever_it_hides() {
    let hidden = [
        "fn f() { unsafe { g() } }",
        "unsafe fn f() {}",
        "unsafe impl Send for A {}",
        "macro_rules! m { () => { unsafe { g() } } }",
    ];
    for text in hidden {
        let text = format!("//! A module.\n{text}\n");
        assert_eq!(check("crates/vfscale/src/a.rs", &text).len(), 1, "{text}");
        for (folder, _) in UNSAFE_FOLDERS {
            assert!(check(&format!("{folder}a.rs"), &text).is_empty(), "{text}");
        }
        assert!(check(UNSAFE_FILES[0].0, &text).is_empty(), "{text}");
    }
    let lint = "//! A module.\n#![deny(unsafe_op_in_unsafe_fn)]\n";
    assert!(check("crates/vfscale/src/a.rs", lint).is_empty());
}

#[test]
fn pages_are_asked_for() {
    assert_eq!(check("crates/vfs/src/a.rs", "fn f() {}\n").len(), 1);
    assert!(check("crates/vfs/src/a/tests.rs", "fn f() {}\n").is_empty());
    assert_eq!(check("crates/vfs/src/lib.rs", "//! Short.\n").len(), 1);
    assert!(check("crates/vfs/src/lib.rs", PAGE).is_empty());
    // A comment on the first item is not a page.
    assert_eq!(check("crates/vfs/src/a.rs", "/// A function.\nfn f() {}\n").len(), 1);
}

#[test]
fn sources_that_are_not_rust_are_reported() {
    assert_eq!(check("crates/vfs/src/a.rs", "fn fn\n").len(), 1);
}
