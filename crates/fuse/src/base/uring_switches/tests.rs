//! Tests of the switches, without changing them.

use super::*;

#[test]
fn errors_name_the_switch_that_is_off() {
    let text = |obstacle: UringObstacle| obstacle.to_string();
    assert!(text(UringObstacle::Module).contains(MODULE));
    assert!(text(UringObstacle::Sysctl { value: 2 }).contains("kernel.io_uring_disabled is 2"));
    let denied = || io::Error::from(Errno::PERM);
    assert!(text(UringObstacle::Filter { source: denied() }).contains("seccomp"));
    assert!(text(UringObstacle::Kernel).contains("Linux 6.14"));
}

#[test]
fn a_refused_ring_has_a_cause() {
    let cause = |errno: Errno| UringObstacle::of_setup(errno.into());
    assert!(matches!(cause(Errno::NOSYS), UringObstacle::Filter { .. }));
    assert!(matches!(cause(Errno::NOMEM), UringObstacle::Queue { .. }));
    match (cause(Errno::PERM), sysctl()) {
        (UringObstacle::Sysctl { value }, Some(set)) => assert!(value == set && set != 0),
        (UringObstacle::Filter { .. }, None | Some(0)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn refused_entries_have_a_cause() {
    let cause = |errno: Errno| UringObstacle::of_registration(errno.into());
    assert!(matches!(cause(Errno::OPNOTSUPP), UringObstacle::Module));
    assert!(matches!(cause(Errno::NOMEM), UringObstacle::Queue { .. }));
}

#[test]
fn parameters_of_modules_are_read() {
    assert!(is_off("N\n") && is_off("0\n"));
    assert!(!is_off("Y\n") && !is_off("1\n"));
}
