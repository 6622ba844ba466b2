use super::*;
use crate::format::damage::{DirDamage, DirFault};
use crate::format::documented;

#[test]
fn format_md_has_every_field() {
    let [entry, head] = FIELDS;
    assert_eq!(documented("#### Entries in an inode"), entry);
    assert_eq!(documented("#### Entries in a tree"), head);
}

#[test]
fn format_md_has_every_number() {
    let faults = [
        DirFault::Cut,
        DirFault::Position,
        DirFault::Name,
        DirFault::Type { kind: 0 },
        DirFault::Inode { ino: 0 },
        DirFault::Part { part: 0 },
        DirFault::Hash,
        DirFault::Twice,
        DirFault::Size { found: 0, computed: 0 },
    ];
    crate::format::check_numbers(
        500,
        "directory 7: the entry at 9",
        faults.map(|fault| DirDamage { ino: 7, position: 9, fault }.into()),
    );
}

#[test]
fn keys_are_in_the_order_of_positions_and_parts() {
    let keys = [
        DirKey::new(0, 0),
        DirKey::new(16, 0),
        DirKey::new(16, 1),
        DirKey::new(255, 8),
        DirKey::new(256, 0),
    ];
    assert!(keys.is_sorted());
    assert_eq!(DirKey::new(0x0102, 3).as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0, 3]);
}
