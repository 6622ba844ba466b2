use super::*;
use crate::predict::{Machine, throughput, workload};

fn program_of(name: &str, scaling: Scaling) -> Program {
    let workload = workload::all().into_iter().find(|w| w.name == name).unwrap();
    program(&workload, scaling).unwrap()
}

#[test]
fn opening_scales_now_and_did_not_with_the_kernels_structures() {
    let machine = Machine::eight_sockets();
    let at = |program: &Program, cores| throughput(&machine, program, cores);
    let now = program_of("open-close-same-dir", Scaling::default());
    assert_eq!(now.shared_lines(), 0);
    assert!(at(&now, 80) > 79.0 * at(&now, 1));
    let before = program_of("open-close-same-dir", Scaling::kernel_2_6());
    assert!(before.locks_taken() > 0);
    // The shape of seed 000's table: eight sockets are slower than one.
    assert!(at(&before, 80) < 0.6 * at(&before, 10));
}

#[test]
fn functions_that_lock_are_known() {
    let is = |function: &str| {
        role(&[Frame { function: function.into(), file: String::new(), line: 0, field: None }])
    };
    assert_eq!(is("vfscale_sync::lock::raw_mutex::RawMutex::take_free"), Role::Acquire);
    assert_eq!(is("RawMutex::unlock"), Role::Release);
    assert_eq!(is("Lockref::claim"), Role::Acquire);
    assert_eq!(is("SlotLock::take<Slot<OpenFile, FilesLock>, FilesLock>"), Role::Acquire);
    assert_eq!(is("SlotGuard::drop<Slot<OpenFile, FilesLock>, FilesLock>"), Role::Release);
    assert_eq!(is("PerCpuRef::change<MountCount>"), Role::Plain);
    assert_eq!(role(&[]), Role::Plain);
}
