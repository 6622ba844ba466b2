//! Memory that an idle CPU does not retain. A test process of its own, because it counts all
//! allocations of the process.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use vfscale_memfs::MemFs;
use vfscale_sync::{cpu, rcu};
use vfscale_vfs::{At, AtFlags, Vfs, XattrFlags};

/// Number of allocated bytes.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: The system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: The caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: The caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The CPU on which files with large attributes were removed is idle: their memory is freed where
/// the grace period ends. Memory that returned to the CPU used to wait there for an allocation.
///
/// Race: A removal against the idle CPU that it happened on.
///
/// A slab returns the objects of an ended grace period to the CPU that freed them, and drops them
/// there when it needs memory. An idle CPU retained up to 256 inodes that way; with large
/// attributes these own 16 MB for which the budget of the file system was already free again. An
/// inode that owns more than a page is now dropped wherever its grace period ends
/// (`Slab::free_rcu_large` in `crates/sync/src/slab.rs`). Failed before.
#[test]
fn large_attributes_of_removed_files_do_not_wait_for_their_cpu() {
    const FILES: usize = 250;
    const VALUE: usize = 60_000;
    let vfs = Vfs::new(MemFs::builder().size(1 << 30).build()).unwrap();
    let task = vfs.task();
    let file = |n| format!("/{n}");
    let before = LIVE.load(Ordering::Relaxed);
    {
        let _there = cpu::pretend(1);
        let value = vec![7; VALUE];
        for n in 0..FILES {
            task.write(file(n), b"").unwrap();
            let (flags, at) = (XattrFlags::empty(), AtFlags::empty());
            task.posix().setxattrat(At::Cwd, file(n), "user.large", &value, flags, at).unwrap();
        }
        assert!(LIVE.load(Ordering::Relaxed) - before > FILES * VALUE);
        for n in 0..FILES {
            task.remove_file(file(n)).unwrap();
        }
    }
    let _here = cpu::pretend(0);
    (0..8).for_each(|_| rcu::synchronize());
    let rest = LIVE.load(Ordering::Relaxed) - before;
    assert!(rest < FILES * VALUE / 4, "{rest} bytes stay");
}
