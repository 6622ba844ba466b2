use std::sync::Arc;
use std::thread;

use super::*;

#[test]
fn who_waits_for_short_pushes_is_there_when_one_ends() {
    let pace = Arc::new(Pace::new());
    pace.took(Duration::from_micros(10));
    let before = pace.ended();
    pace.end();
    // It has ended already: there is nothing to wait for.
    pace.stay_awake(before);
    assert!(!pace.is_watched.load(Ordering::Relaxed));
    // One that never ends is not waited for either.
    let other = Arc::clone(&pace);
    thread::spawn(move || other.stay_awake(other.ended())).join().unwrap();
    assert!(!pace.is_watched.load(Ordering::Relaxed));
}

#[test]
fn nobody_stays_awake_for_long_pushes_or_beside_another() {
    let pace = Pace::new();
    for _ in 0..20 {
        pace.took(Duration::from_millis(5));
    }
    assert!(pace.push_nanos.load(Ordering::Relaxed) > 4_000_000);
    pace.stay_awake(pace.ended());
    for _ in 0..40 {
        pace.took(Duration::from_micros(5));
    }
    assert!(pace.push_nanos.load(Ordering::Relaxed) < 10_000);
    // The place is taken: the mark stays the other one's.
    pace.is_watched.store(true, Ordering::Relaxed);
    pace.stay_awake(pace.ended());
    assert!(pace.is_watched.load(Ordering::Relaxed));
}

#[test]
fn patience_lasts_as_long_as_a_push() {
    let pace = Pace::new();
    assert!(
        Patience::default().rest(&pace).is_none(),
        "who is woken comes too late for a short one"
    );
    let took = |time| (0..40).for_each(|_| pace.took(time));
    took(Duration::from_millis(3));
    let mut patience = Patience::default();
    let rest = patience.rest(&pace).unwrap();
    assert!(rest > Duration::from_millis(2) && rest <= Duration::from_millis(3));
    thread::sleep(rest);
    assert!(patience.rest(&pace).is_none(), "the time is up, whatever woke the caller");
    took(Duration::from_secs(60));
    let mut patience = Patience::default();
    assert!(patience.rest(&pace).unwrap() <= PATIENCE_MAX);
    patience.is_over = true;
    assert!(patience.rest(&pace).is_none());
}
