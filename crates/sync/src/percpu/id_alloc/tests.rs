use std::collections::HashSet;
use std::thread;

use super::*;
use crate::cpu;

const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn ids_are_unique_and_increase_in_a_slot() {
    let ids = IdAlloc::new(100, 3);
    let one_cpu: Vec<u64> = {
        let _on = cpu::pretend(1);
        (0..3000).map(|_| ids.next(cpu::current())).collect()
    };
    assert!(one_cpu.is_sorted_by(|a, b| a < b));
    assert_eq!((one_cpu[0], one_cpu[2999]), (100, 3099));
    let all = thread::scope(|scope| {
        let threads: Vec<_> = (0..4u32)
            .map(|cpu| {
                let ids = &ids;
                scope.spawn(move || {
                    let _on = cpu::pretend(cpu);
                    (0..ROUNDS).map(|_| ids.next(cpu::current())).collect::<Vec<u64>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<u64>>()
    });
    let unique: HashSet<u64> = all.iter().chain(&one_cpu).copied().collect();
    assert_eq!(unique.len(), all.len() + one_cpu.len());
    assert!(unique.iter().all(|&id| id >= 100));
}
