use super::*;

fn source(text: &str) -> Source<'_> {
    Source { path: "crates/vfs/src/a.rs", text }
}

#[test]
fn an_opening_that_hides_its_subject_is_a_complaint() {
    for text in ["/// What is left.\n", "    // The same, backwards.\n", "//! It in a word.\n"] {
        assert_eq!(openings(source(text)).len(), 1, "{text}");
    }
    for text in ["/// Whatnot.\n", "/// Item.\n", "// First.\n// What follows is inside.\n", "x\n"]
    {
        assert_eq!(openings(source(text)), [""; 0], "{text}");
    }
}

#[test]
fn code_in_a_text_block_is_a_complaint() {
    let text =
        |line: &str| format!("//! ```text\n//! {line}\n//! ```\n//! ```\n//! f(x);\n//! ```\n");
    for bad in ["task.map(1, 2);", "let a = task.pipe()?;"] {
        assert_eq!(uncompiled(source(&text(bad))).len(), 1, "{bad}");
    }
    for good in ["a, b;", "task.map(1, 2) maps"] {
        assert_eq!(uncompiled(source(&text(good))), [""; 0], "{good}");
    }
}

#[test]
fn verbs_are_counted() {
    let text = "/// Returns one.\nfn a() {}\n/// The second.\n#[inline]\nfn b() {}\nfn c() {}\n\
                /// Names.\nstruct S;\nimpl S { /// Frees it.\nfn d() {} }\n\
                trait T { /// Bytes of it.\nfn e(); }\n";
    let counted = Summaries::of(source(text));
    assert_eq!(counted, Summaries { documented: 4, with_verb: 2 });
    assert_eq!(counted.percent(), 50);
    assert_eq!(Summaries::default().percent(), 100);
    let test = Source { path: "crates/vfs/src/a/tests.rs", text };
    assert_eq!(Summaries::of(test), Summaries::default());
}
