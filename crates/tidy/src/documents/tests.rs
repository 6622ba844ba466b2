use super::*;

fn class(rank: u16, class: &str, name: &str) -> Class {
    Class { rank, class: class.to_string(), name: name.to_string() }
}

fn repository(path: &str) -> Option<String> {
    match path {
        "crates/vfs" | "docs" => Some(String::new()),
        "crates/vfs/src/a.rs" => Some("fn one() {}\nstruct Two;".to_string()),
        _ => None,
    }
}

#[test]
fn classes_are_read_wherever_they_are_declared() {
    let text = r#"
        //! lock_class! { pub Commented = ("commented", 1); }
        macro_rules! lock_class { ($name:ident = ($text:expr)) => {} }
        vfscale_sync::lock_class! { /** Doc. */ pub First = ("first", 10); }
        mod inner {
            lock_class! { pub(crate) Second = ("second", 20); Third = ("third", 0x1e) }
        }
    "#;
    let read = lock_classes(text);
    assert_eq!(read[..2], [class(10, "First", "first"), class(20, "Second", "second")]);
    // A rank that is no plain number would be told as missing from the table.
    assert_eq!(read[2..], [class(u16::MAX, "Third", "third")]);
}

#[test]
fn tables_are_read() {
    let markdown = "| rank | class |\n| --- | --- |\n| 10 | `First` | `first` | why |\n";
    assert_eq!(table_of_classes(markdown), [class(10, "First", "first")]);
}

#[test]
fn trees_of_locks_rise() {
    let classes = [class(1, "A", "a"), class(2, "B", "b"), class(3, "C", "c")];
    let tree = |text: &str| tree_complaints(&format!("x\n```text\n{text}\n```\n"), &classes);
    assert_eq!(tree("(first)\na *   one\n  b   ... two\n    c\n  c  three\na, b  four"), [""; 0]);
    assert_eq!(tree("b\n  a  one"), ["a: too low a rank"]);
    assert_eq!(tree("a\n  d  one"), ["d: no such lock"]);
}

#[test]
fn folder_trees_are_read() {
    let tree = "x\n```text\ncrates/\n  a/src/  one\n    b.rs    two\n  c/src/\n```\n  d/\n";
    assert_eq!(tree_paths(tree), ["crates/a/src/", "crates/a/src/b.rs", "crates/c/src/"]);
}

#[test]
fn references_are_followed() {
    let good = "`crates/vfs`, `crates/vfs/src/a.rs::one`, `crates/vfs/src/a.rs::Two`, `cargo test`, \
                [folder](docs), [part](docs#part), [web](https://example.org), \
                `crates/*/Cargo.toml`\n```\n`crates/nothing`\n```\n";
    assert_eq!(broken_references(good, repository), [""; 0]);
    for bad in ["`crates/vfs/src/b.rs`", "`crates/vfs/src/a.rs::on`", "[x](docs/NOTHING.md)"] {
        assert_eq!(broken_references(bad, repository).len(), 1, "{bad}");
    }
}
