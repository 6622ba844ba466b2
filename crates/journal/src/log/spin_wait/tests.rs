use std::sync::Arc;
use std::thread;

use super::*;

#[test]
fn a_spin_wait_for_short_pushes_sees_one_end() {
    let spin_wait = Arc::new(SpinWait::new());
    spin_wait.note_push(Duration::from_micros(10));
    let before = spin_wait.ended();
    spin_wait.note_end();
    // The push has already ended: there is nothing to wait for.
    spin_wait.spin(before);
    assert!(!spin_wait.is_spinning.load(Ordering::Relaxed));
    // Nor does a thread wait for a push that never ends.
    let other = Arc::clone(&spin_wait);
    thread::spawn(move || other.spin(other.ended())).join().unwrap();
    assert!(!spin_wait.is_spinning.load(Ordering::Relaxed));
}

#[test]
fn a_spin_wait_refuses_long_pushes_and_a_second_waiter() {
    let spin_wait = SpinWait::new();
    for _ in 0..40 {
        spin_wait.note_push(Duration::from_millis(5));
    }
    assert!(spin_wait.push_nanos.load(Ordering::Relaxed) > 4_000_000);
    spin_wait.spin(spin_wait.ended());
    for _ in 0..40 {
        spin_wait.note_push(Duration::from_micros(5));
    }
    assert!(spin_wait.push_nanos.load(Ordering::Relaxed) < 10_000);
    // Another thread spins: its mark is not changed.
    spin_wait.is_spinning.store(true, Ordering::Relaxed);
    spin_wait.spin(spin_wait.ended());
    assert!(spin_wait.is_spinning.load(Ordering::Relaxed));
}

#[test]
fn a_single_long_push_is_not_usual() {
    let spin_wait = SpinWait::new();
    for _ in 0..40 {
        spin_wait.note_push(Duration::from_micros(100));
    }
    spin_wait.note_push(Duration::from_secs(1));
    assert!(spin_wait.usual_push() <= Duration::from_micros(100));
    spin_wait.note_push(Duration::from_micros(100));
    assert!(spin_wait.usual_push() <= Duration::from_micros(100));
}

/// A thread that loses its CPU in every second push does not make the others sleep.
#[test]
fn pushes_without_a_cpu_do_not_end_the_spinning() {
    let spin_wait = SpinWait::new();
    for number in 0..400 {
        let micros = if number % 2 == 0 { 4_000 } else { 5 };
        spin_wait.note_push(Duration::from_micros(micros));
        assert!(spin_wait.usual_push() <= SPIN_MAX, "{number}: {:?}", spin_wait.usual_push());
    }
}

#[test]
fn patience_lasts_as_long_as_a_push() {
    let spin_wait = SpinWait::new();
    assert!(
        GroupDeadline::default().remaining(&spin_wait).is_none(),
        "a woken thread is too late for a short push"
    );
    let note_push = |time| (0..80).for_each(|_| spin_wait.note_push(time));
    note_push(Duration::from_millis(3));
    let mut deadline = GroupDeadline::default();
    let remaining = deadline.remaining(&spin_wait).unwrap();
    assert!(remaining > Duration::from_millis(2) && remaining <= Duration::from_millis(3));
    vfscale_harness::pause(remaining);
    assert!(
        deadline.remaining(&spin_wait).is_none(),
        "the time is up, whichever event woke the caller"
    );
    note_push(Duration::from_secs(60));
    let mut deadline = GroupDeadline::default();
    assert!(deadline.remaining(&spin_wait).unwrap() <= GROUP_WAIT_MAX);
    deadline.has_passed = true;
    assert!(deadline.remaining(&spin_wait).is_none());
}
