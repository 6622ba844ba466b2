use std::cell::Cell;
use std::hash::Hasher;

use super::*;

#[test]
fn members_stay_in_the_order_of_insertion() {
    let mut set = OrderedSet::default();
    set.extend([5, 1, 9, 1, 7]);
    assert_eq!(Vec::from_iter(set.iter()), [5, 1, 9, 7], "each once");
    set.remove(1);
    set.remove(2);
    set.insert(1);
    assert_eq!((Vec::from_iter(set.iter()), set.iter().len()), (vec![5, 9, 7, 1], 4));
    [5, 9, 7, 1].into_iter().for_each(|member| set.remove(member));
    assert!(set.is_empty());
}

thread_local! {
    static COMPARED: Cell<u64> = const { Cell::new(0) };
}

/// A member that counts how often it is compared.
#[derive(Clone, Copy, Debug)]
struct Counted(u64);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// The work of a removal does not depend on the number of members, wherever the member is.
#[test]
fn a_removal_searches_nothing() {
    const MEMBERS: u64 = 20_000;
    let mut set = OrderedSet::default();
    set.extend((0..MEMBERS).map(Counted));
    COMPARED.set(0);
    // From both ends and the middle.
    for n in 0..MEMBERS {
        set.remove(Counted(n * 7919 % MEMBERS));
    }
    assert!(set.is_empty());
    assert!(COMPARED.get() < 3 * MEMBERS, "{} comparisons", COMPARED.get());
}
