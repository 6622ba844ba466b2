use super::{current, possible, pretend};

#[test]
fn current_agrees_with_the_kernel() {
    let mut allowed = allowed_cpus();
    allowed.truncate(4);
    for cpu in allowed {
        std::thread::spawn(move || {
            pin_to(cpu);
            assert_eq!(current() as usize, cpu);
        })
        .join()
        .unwrap();
    }
}

/// Returns the CPUs that this process may run on.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: a zeroed set is a valid set, and the kernel fills it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        set
    };
    // SAFETY: every index is below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

fn pin_to(cpu: usize) {
    // SAFETY: the set is initialised, and `cpu` is below its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

#[test]
fn pretending_nests_and_ends() {
    {
        let _outer = pretend(70);
        assert_eq!(current(), 70);
        {
            let _inner = pretend(3);
            assert_eq!(current(), 3);
        }
        assert_eq!(current(), 70);
    }
    assert_ne!(current(), 70);
}

#[test]
fn pretending_is_of_one_thread() {
    let _here = pretend(77);
    std::thread::spawn(|| assert_ne!(current(), 77)).join().unwrap();
}

#[test]
fn a_machine_has_a_cpu() {
    assert!(possible() >= 1);
}
