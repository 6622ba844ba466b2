use super::*;

#[test]
fn labels_are_escaped() {
    assert_eq!(label("/mnt/a \"b\" \\c\nd"), "/mnt/a \\\"b\\\" \\\\c\\nd");
}

#[test]
fn names_of_figures_are_unique_and_valid() {
    let totals = totals(&Statistics::default(), Space::default());
    for (i, (words, name, _)) in totals.iter().enumerate() {
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        for (other_words, other, _) in &totals[..i] {
            assert!(words != other_words && name != other, "{name}");
        }
    }
}
