use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::SeqCount;

#[test]
fn a_reader_sees_that_a_writer_was_there() {
    let seq = SeqCount::new();
    let start = seq.begin();
    assert!(!seq.retry(start));
    {
        let _write = seq.write();
        assert!(seq.retry(start));
        assert_eq!(seq.try_begin(), None);
        let odd = seq.raw();
        assert!(seq.retry(odd), "a reader that starts inside a write is never right");
    }
    assert!(seq.retry(start));
    assert_eq!(seq.try_begin(), Some(start + 2));
}

#[test]
fn begin_waits_for_a_writer_that_sleeps() {
    let seq = SeqCount::new();
    let left = AtomicBool::new(false);
    let write = seq.write();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = seq.begin();
            assert!(left.load(Ordering::Relaxed));
            assert!(!seq.retry(start));
        });
        vfscale_harness::pause(std::time::Duration::from_millis(20));
        left.store(true, Ordering::Relaxed);
        drop(write);
    });
}

#[test]
fn readers_never_act_on_torn_data() {
    const WRITES: u64 = 100_000;
    let seq = SeqCount::new();
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while last < WRITES {
                    let start = seq.begin();
                    let values = pair.each_ref().map(|value| value.load(Ordering::Relaxed));
                    if !seq.retry(start) {
                        assert_eq!(values[0], values[1]);
                        assert!(values[0] >= last, "time ran backwards");
                        last = values[0];
                    }
                }
            });
        }
        for value in 1..=WRITES {
            let _write = seq.write();
            pair[0].store(value, Ordering::Relaxed);
            pair[1].store(value, Ordering::Relaxed);
        }
    });
}
