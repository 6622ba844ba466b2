use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::trace::arena::Arena;

fn record<R>(call: impl FnOnce() -> R) -> (R, Trace) {
    let arena = Arena::new().unwrap();
    Recorder::new(&arena).unwrap().record(&mut CodeCache::new(), call)
}

fn at(trace: &Trace, address: u64, len: u64) -> Vec<Access> {
    let inside = |a: &&Access| a.address < address + len && a.address + a.size > address;
    trace.accesses().filter(inside).copied().collect()
}

#[test]
fn loads_stores_and_exchanges_are_seen() {
    let (word, count) = (Box::new(7u64), Box::new(AtomicU64::new(1)));
    let mut target = Box::new(0u32);
    let (result, trace) = record(|| {
        **black_box(&mut target) = 5;
        count.fetch_add(1, Ordering::Relaxed);
        let failed = count.compare_exchange(9, 1, Ordering::AcqRel, Ordering::Relaxed);
        (*black_box(&*word), failed)
    });
    assert_eq!(result, (7, Err(2)));
    let loads = at(&trace, &raw const *word as u64, 8);
    assert!(loads.iter().any(|a| a.read && !a.write && a.size == 8), "{loads:?}");
    let stores = at(&trace, &raw const *target as u64, 4);
    assert!(stores.iter().any(|a| a.write && a.size == 4), "{stores:?}");
    let exchanges = at(&trace, &raw const *count as u64, 8);
    assert!(exchanges.iter().filter(|a| a.write).count() >= 2, "{exchanges:?}");
    assert!(trace.instructions > 5 && trace.not_understood == 0 && trace.system_calls == 0);
}

#[test]
fn a_copy_and_a_fill_are_seen_to_their_last_byte() {
    for len in [1usize, 5, 15, 33, 63, 100, 1000, 5000, 70_000] {
        let (from, mut to) = (vec![3u8; len + 64], vec![0u8; len + 64]);
        let ((), trace) = record(|| {
            black_box(&mut to)[..len].copy_from_slice(&black_box(&from)[..len]);
        });
        assert_eq!((to[0], to[len - 1], to[len]), (3, 3, 0));
        let covers = |accesses: &[Access], byte: u64| {
            accesses.iter().any(|a| a.address <= byte && byte < a.address + a.size)
        };
        let reads = at(&trace, from.as_ptr() as u64, len as u64);
        let writes: Vec<Access> = at(&trace, to.as_ptr() as u64, len as u64);
        let writes: Vec<Access> = writes.into_iter().filter(|a| a.write).collect();
        for byte in [0, len / 2, len - 1] {
            assert!(covers(&reads, from.as_ptr() as u64 + byte as u64), "{len}: {byte}");
            assert!(covers(&writes, to.as_ptr() as u64 + byte as u64), "{len}: {byte}");
        }
        assert!(!covers(&writes, to.as_ptr() as u64 + len as u64), "{len}: {writes:x?}");
        let ((), trace) = record(|| black_box(&mut to)[..len].fill(9));
        let writes = at(&trace, to.as_ptr() as u64 + len as u64 - 1, 1);
        assert!(writes.iter().any(|a| a.write));
        assert_eq!(at(&trace, to.as_ptr() as u64 + len as u64, 1), [], "{len}: one too many");
    }
}

#[test]
fn ordinary_programs_run_as_they_would() {
    let work = || {
        let mut words: Vec<String> =
            (0..300).map(|n: u32| format!("{:.3}", f64::from(n).sqrt())).collect();
        words.sort_by(|a, b| b.cmp(a));
        let map: std::collections::HashMap<_, _> = words.iter().zip(1..).collect();
        let sum: i32 = words.iter().map(|word| map[word]).sum();
        (words.join(","), sum, "12.5".parse::<f64>().ok())
    };
    let (result, trace) = record(work);
    assert_eq!(result, work());
    assert!(trace.instructions > 100_000, "{}", trace.instructions);
    assert_eq!(trace.not_understood, 0);
}

#[test]
fn a_panic_unwinds_through_copies() {
    // Without the hook, which would print a message and a backtrace.
    let panics = |n: &u64| -> u64 {
        let _held = black_box(Box::new(1));
        if *n == 1 { std::panic::resume_unwind(Box::new("as it should")) } else { *n }
    };
    let caught = record(|| std::panic::catch_unwind(|| panics(black_box(&1))).is_err());
    assert!(caught.0);
    let out = std::panic::catch_unwind(|| record(|| panics(black_box(&1))));
    assert_eq!(out.unwrap_err().downcast_ref(), Some(&"as it should"));
    assert_eq!(record(|| panics(black_box(&2))).0, 2);
}

#[test]
fn system_calls_and_the_calls_that_lead_to_an_access_are_seen() {
    #[inline(never)]
    fn touch(word: &AtomicU64) {
        word.store(1, Ordering::Relaxed);
    }
    let word = Box::new(AtomicU64::new(0));
    let (_, trace) = record(|| {
        touch(black_box(&word));
        // SAFETY: the call has no arguments.
        unsafe { libc::syscall(libc::SYS_getpid) }
    });
    assert_eq!(trace.system_calls, 1);
    let address = &raw const *word as u64;
    let is_it = |step: &Step| matches!(step, Step::Access(a) if a.address == address && a.write);
    let index = trace.steps.iter().position(is_it).unwrap();
    let calls = trace.calls_to(index);
    assert!(!calls.is_empty() && calls.iter().all(|ip| *ip != 0));
}
