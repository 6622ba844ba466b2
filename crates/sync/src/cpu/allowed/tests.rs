use super::*;

fn mask(cpus: impl IntoIterator<Item = usize>) -> Mask {
    let mut mask = [0; CPUS_MAX / 64];
    cpus.into_iter().for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64));
    mask
}

#[test]
fn each_allowed_cpu_has_a_slot_of_its_own() {
    let slots = |cpus: &[usize]| slots_for(&mask(cpus.iter().copied()), 512);
    assert_eq!(slots(&[0]), 1);
    assert_eq!(slots(&[511]), 1);
    assert_eq!(slots(&[0, 1]), 2);
    assert_eq!(slots(&[100, 101]), 2, "consecutive ones, wherever they begin");
    assert_eq!(slots(&[3, 4, 5]), 3);
    assert_eq!(slots(&[0, 256]), 3, "with two they would share one");
    assert_eq!(slots(&[0, 1, 2, 3, 256, 257, 258, 259]), 9, "cores and their second threads");
    assert_eq!(slots(&[]), 512, "the system does not tell");
    let all = |cpus| slots_for(&mask(0..cpus), 512);
    assert_eq!((all(512), all(511), all(600)), (512, 511, 512));
    assert_eq!(slots_for(&mask([0, 1, 6000]), 2), 2, "a number above those of the machine");
}

/// The CPUs of any set are apart, or there is a slot for each CPU of the machine.
#[test]
fn slots_of_sets_at_random() {
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    for _ in 0..300 {
        let count = next() as usize % 24 + 1;
        let cpus: std::collections::BTreeSet<usize> =
            (0..count).map(|_| next() as usize % 512).collect();
        let slots = slots_for(&mask(cpus.iter().copied()), 512) as usize;
        let used: std::collections::BTreeSet<usize> = cpus.iter().map(|cpu| cpu % slots).collect();
        assert_eq!(used.len(), cpus.len(), "{cpus:?} in {slots} slots");
        assert!(slots == 512 || slots <= 2 * cpus.len());
    }
}

#[test]
fn slots_are_at_most_the_cpus_of_the_machine() {
    assert!((1..=possible()).contains(&slots()));
    assert!((slots()..=possible()).contains(&most_slots()));
}
