use super::*;
use crate::cpu;

#[test]
fn a_slot_follows_the_cpu_modulo_the_slots() {
    let slots = PerCpu::new(3, |slot| slot);
    for cpu in 0..10 {
        let _on = cpu::pretend(cpu);
        assert_eq!(*slots.this(), cpu as usize % 3);
    }
    assert_eq!(slots.len(), 3);
    assert_eq!(slots.iter().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((slots.get(2), slots.get(3)), (Some(&2), None));
}

#[test]
fn slots_are_128_bytes_apart_and_never_zero() {
    let slots = PerCpu::new(2, |_| 0u8);
    let at: Vec<usize> = slots.iter().map(|slot| std::ptr::from_ref(slot).addr()).collect();
    assert_eq!(at[1] - at[0], 128);
    assert_eq!(PerCpu::new(0, |_| ()).len(), 1);
}
