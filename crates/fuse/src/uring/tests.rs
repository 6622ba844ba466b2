//! Tests of the numbers of threads.

use super::*;

#[test]
fn lists_of_cpus_are_counted() {
    let cases =
        [("0\n", Some(1)), ("0-3", Some(4)), ("0-3,8,10-11\n", Some(7)), ("0-65534", Some(65535))];
    for (list, count) in cases {
        assert_eq!(count_cpus(list), count, "{list}");
    }
    for wrong in ["", "a", "3-0", "0-65535", "0-1,", "-1"] {
        assert_eq!(count_cpus(wrong), None, "{wrong}");
    }
}

#[test]
fn each_thread_has_counters() {
    let crew = Crew::new(3);
    assert!(crew.queues >= 1);
    assert_eq!(crew.workers(), 1 + usize::from(crew.queues) + 3);
}
