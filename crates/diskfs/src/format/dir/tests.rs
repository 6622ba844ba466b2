use super::*;
use crate::format::damage::{DirDamage, DirFault};
use crate::format::{Damage, documented};

#[test]
fn format_md_has_every_field() {
    let [entry, head] = FIELDS;
    assert_eq!(documented("#### Entries in an inode"), entry);
    assert_eq!(documented("#### Entries in a tree"), head);
}

#[test]
fn format_md_has_every_number() {
    let page = include_str!("../../../../../docs/FORMAT.md");
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
    for (fault, number) in faults.into_iter().zip(500..) {
        assert_eq!(fault.number(), number);
        assert!(page.contains(&format!("| V{number} |")), "V{number} is not in FORMAT.md");
        let damage = Damage::from(DirDamage { ino: 7, position: 9, fault });
        assert_eq!(damage.number(), number);
        let begin = format!("V{number}: directory 7: the entry at 9: ");
        assert!(damage.to_string().starts_with(&begin), "{damage}");
    }
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
