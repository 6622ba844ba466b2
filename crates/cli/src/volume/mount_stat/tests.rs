use super::*;

#[test]
fn labels_are_escaped() {
    assert_eq!(label("/mnt/a \"b\" \\c\nd"), "/mnt/a \\\"b\\\" \\\\c\\nd");
}

#[test]
fn names_of_figures_are_unique_and_valid() {
    let mut statistics = Statistics::default();
    let without = totals(&statistics, Space::default()).len();
    statistics.storage.log = Some(LogCounts::default());
    statistics.storage.cache = Some(CacheCounts::default());
    let totals = totals(&statistics, Space::default());
    assert_eq!(totals.len(), without + 12);
    for (i, (words, name, _)) in totals.iter().enumerate() {
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        for (other_words, other, _) in &totals[..i] {
            assert!(words != other_words && name != other, "{name}");
        }
    }
}
