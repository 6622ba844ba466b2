#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use vfscale_sync::{cpu, rcu, reclaim};

use super::Collecting;
use crate::base::types::{Mode, MountFlags, OFlags, UmountFlags};
use crate::names_only_tests::{NamesOnly, names_only};
use crate::task::task_struct::At;
use vfscale_sync::scaling::Scaling;

const SLOTS: usize = 4;

/// A superblock is freed with its last mount, or when the last count is collected after that.
#[test]
fn a_superblock_stays_until_all_is_collected() {
    let task = names_only(Scaling::with_slots(SLOTS)).task();
    task.posix().mkdirat(At::Cwd, "/a", Mode::RWXU).unwrap();
    let fs = Arc::new(NamesOnly::default());
    for collections in 0..3 {
        task.posix().mount(fs.clone(), "/a", MountFlags::empty()).unwrap();
        let sb = task
            .posix()
            .open("/a", OFlags::PATH, Mode::empty())
            .unwrap()
            .path()
            .mount()
            .sb()
            .clone();
        let mut kept: Vec<Collecting> = (0..collections)
            .map(|cpu| {
                let _there = cpu::pretend(cpu);
                Collecting::new(&sb)
            })
            .collect();
        let dev = sb.dev();
        drop(sb);
        task.posix().umount("/a", UmountFlags::empty()).unwrap();
        rcu::synchronize();
        while let Some(one) = kept.pop() {
            assert!(Arc::strong_count(&fs) > 1, "freed with {} to collect", kept.len() + 1);
            drop(one);
        }
        // The reclaim thread frees the superblock.
        reclaim::wait_for(dev);
        assert_eq!(Arc::strong_count(&fs), 1, "not freed although no count is collected");
    }
}
