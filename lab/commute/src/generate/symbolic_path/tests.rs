use super::*;

#[test]
fn two_paths_are_the_same_or_share_a_directory_or_nothing() {
    let mut two: Vec<_> = sequences(2)
        .iter()
        .map(|spots| spots.iter().map(SymbolicPath::to_string).collect::<Vec<_>>().join(" "))
        .collect();
    two.sort();
    two.dedup();
    let from_a = |path: &&String| path.starts_with("d0/a ");
    let found: Vec<_> = two.iter().filter(from_a).map(|path| &path["d0/a ".len()..]).collect();
    // `d0/c` would be `d0/b` under another name, and `d1/b` would be `d1/a`.
    let all = ["d0", "d0/a", "d0/a/x", "d0/b", "d0/b/x", "d1", "d1/a", "d1/a/x", "e"];
    assert_eq!(found, all);
}

#[test]
fn a_symbolic_path_needs_its_parent() {
    let spots = [
        SymbolicPath::Child(0, 0),
        SymbolicPath::Top,
        SymbolicPath::Name(0, 0),
        SymbolicPath::Dir(1),
    ];
    assert_eq!(leaves(&spots), [SymbolicPath::Name(0, 0), SymbolicPath::Top]);
    assert_eq!(dirs(&spots), 2);
}
