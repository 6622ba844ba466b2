use vfscale_bench::workloads::ALL;

use super::*;
use crate::case::Outcome;
use crate::execute::World;

#[test]
fn every_worker_can_repeat_its_calls_for_ever() {
    for workload in all().into_iter().chain(fxmark()) {
        let mut world = World::new(vfscale::memory().size(16 << 20).build().unwrap());
        let again = (0..3).flat_map(|_| workload.once());
        for call in workload.setup.iter().chain(again) {
            let outcome = world.call(call);
            assert!(
                !matches!(outcome, Outcome::Error(_)),
                "{} {call:?}: {outcome:?}",
                workload.name
            );
        }
    }
}

#[test]
fn they_are_those_of_the_bench() {
    let missing = ALL.iter().map(|listed| listed.name).filter(|name| find(name).is_none());
    let left_out = [
        "close-sockets",
        "mount-cross",
        "open-handle",
        "evict",
        "remount",
        "bind-umount",
        "aim-alltests",
        "aim-five-sec",
        "aim-fserver",
        "aim-high-systime",
        "aim-new-fserver",
        "aim-shared",
        "path-jobs",
        "cat-fds",
        "orphan-unlink",
        "orphan-cut",
        "push",
        "create-many-sync",
        "pwrite",
        "pread",
        "write-truncate",
        "punch-write",
        "DRBL_bg",
        "DRBM_bg",
        "DRBH_bg",
        "MRPM_bg",
        "MRDL_bg",
        "MRDM_bg",
        "varmail",
        "fileserver",
        "webserver",
    ];
    assert_eq!(missing.collect::<Vec<_>>(), left_out);
    for workload in all().into_iter().chain(fxmark()) {
        assert!(vfscale_bench::workloads::find(workload.name).is_ok(), "{}", workload.name);
    }
}
