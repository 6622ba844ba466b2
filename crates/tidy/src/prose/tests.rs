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
