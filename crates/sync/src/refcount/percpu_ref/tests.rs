use super::PerCpuRef;
use crate::cpu;

crate::lock_class! { Count = ("count", 5); }

#[test]
fn is_never_the_last_while_open() {
    let count = PerCpuRef::<Count>::new(4);
    assert!(!count.put());
    assert_eq!(count.users(), 0);
    count.get();
    assert_eq!(count.users(), 1);
}

#[test]
fn the_last_unit_of_a_closed_count_is_told_once() {
    let count = PerCpuRef::<Count>::new(4);
    count.get();
    count.get();
    assert!(!count.put());
    count.close();
    count.close();
    assert_eq!(count.users(), 2);
    count.get();
    assert!(!count.put());
    assert!(!count.put());
    assert!(count.put());
    // A walk that arrived too late.
    count.get();
    assert!(!count.put());
}

#[test]
fn no_user_comes_after_the_last_one() {
    let count = PerCpuRef::<Count>::new(4);
    assert!(count.get_not_dead() && !count.put());
    count.close();
    assert!(count.get_not_dead());
    assert_eq!(count.users(), 2);
    assert!(!count.put() && count.put());
    assert!(!count.get_not_dead());
    assert_eq!(count.users(), 0);
}

/// Units that moved to the central count while it was read don't end it before it is closed.
#[test]
fn reading_takes_nothing_from_an_open_count() {
    let count = PerCpuRef::<Count>::new(4);
    count.get();
    assert_eq!(count.users(), 2);
    assert!(count.parts().eq([0; 4]));
    assert!(!count.put() && !count.put());
    assert_eq!(count.users(), 0);
    count.get();
    count.close();
    assert_eq!(count.users(), 1);
    assert!(count.put());
}

#[test]
fn units_may_be_given_back_on_another_cpu() {
    let count = PerCpuRef::<Count>::new(3);
    for cpu in 0..9 {
        let _here = cpu::pretend(cpu);
        count.get();
    }
    for _ in 0..9 {
        let _here = cpu::pretend(1);
        assert!(!count.put());
    }
    assert_eq!(count.users(), 1);
    count.close();
    assert!(count.put());
}

#[test]
fn closing_under_gets_and_puts_finds_the_last_exactly_once() {
    for _ in 0..200 {
        let count = PerCpuRef::<Count>::new(2);
        let last = std::thread::scope(|scope| {
            let users: Vec<_> = (0..3_u32)
                .map(|cpu| {
                    count.get();
                    let count = &count;
                    scope.spawn(move || {
                        let _here = cpu::pretend(cpu);
                        let mut last = 0;
                        for _ in 0..50 {
                            count.get();
                            last += u32::from(count.put());
                        }
                        last + u32::from(count.put())
                    })
                })
                .collect();
            count.close();
            let mine = u32::from(count.put());
            mine + users.into_iter().map(|user| user.join().unwrap()).sum::<u32>()
        });
        assert_eq!(last, 1);
        assert_eq!(count.users(), 0);
    }
}
