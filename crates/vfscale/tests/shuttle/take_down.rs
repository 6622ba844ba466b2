//! Schedules of a superblock that is taken down by a reclaim thread, chosen at random:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle take_down::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::sync::{Arc, Weak};

use crate::common::{MODE, errno, ino, make};
use shuttle::thread::{self, JoinHandle};
use vfscale::posix::{At, MountFlags, OFlags, UmountFlags};
use vfscale::{Errno, File, MemFs, Scaling, Task};
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::{cpu, rcu, reclaim};

const SCHEDULES: usize = 1_500;
/// Number of CPU slots of the shared structures: with two, the count of a dentry can be spread.
const SLOTS: usize = 2;
/// Number of alternate uses of a file by both CPUs that make its count spread.
const USES: u32 = 40;

/// Runs a model under many schedules.
fn check(model: impl Fn() + Send + Sync + 'static) {
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], model);
}

fn beside<T: Send + 'static>(
    task: &Arc<Task>,
    call: impl FnOnce(&Task) -> T + Send + 'static,
) -> JoinHandle<T> {
    let task = task.clone();
    thread::spawn(move || call(&task))
}

/// A file system with a directory that is mounted on `/m`, and the numbers of two files in it.
struct Mounted {
    task: Arc<Task>,
    fs: Weak<MemFs>,
    /// A file whose count is spread over CPUs, `/m/d/hot`.
    hot: u64,
    /// An open file without a name.
    held: File,
}

impl Mounted {
    fn new() -> Self {
        let scaling = Scaling::with_slots(SLOTS);
        let vfs = vfscale::memory().size(4 << 20).scaling(scaling).build().unwrap();
        let task = vfs.task();
        task.posix().mkdirat(At::Cwd, "/m", MODE).unwrap();
        let fs = MemFs::builder().size(1 << 20).build();
        let weak = Arc::downgrade(&fs);
        task.posix().mount(fs, "/m", MountFlags::empty()).unwrap();
        task.posix().mkdirat(At::Cwd, "/m/d", MODE).unwrap();
        let hot = make(&task, "/m/d/hot");
        for n in 0..USES {
            let _cpu = cpu::pretend(n % SLOTS as u32);
            drop(task.posix().open("/m/d/hot", OFlags::RDONLY, MODE).unwrap());
        }
        let held = task.posix().open("/m/d/held", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
        task.remove_file("/m/d/held").unwrap();
        Self { task: Arc::new(task), fs: weak, hot, held }
    }
}

/// Looks for the file within one section of RCU. Once the walker has found it, the file system
/// lives until the section ends.
fn walk(task: &Task, fs: &Weak<MemFs>, hot: u64) {
    for _ in 0..2 {
        let section = rcu::pin();
        match ino(task, "/m/d/hot") {
            Ok(found) => {
                assert_eq!(found, hot);
                thread::yield_now();
                assert_eq!(fs.strong_count(), 1, "taken down under a walker");
            }
            Err(error) => assert_eq!(error, Errno::NOENT),
        }
        drop(section);
    }
}

/// Detaches a mount while one thread closes the last open file in it, one removes a file whose
/// count is still to be collected from all CPUs, and one walks there. The superblock is taken down
/// after all of them, and nothing remains.
fn take_down() {
    let Mounted { task, fs, hot, held } = Mounted::new();
    let walker = {
        let fs = fs.clone();
        beside(&task, move |task| walk(task, &fs, hot))
    };
    let holder = {
        let fs = fs.clone();
        beside(&task, move |_| {
            let _cpu = cpu::pretend(1);
            held.write_all(b"text").unwrap();
            assert_eq!(fs.strong_count(), 1, "taken down under an open file");
            drop(held);
        })
    };
    let remover = beside(&task, |task| {
        let _cpu = cpu::pretend(1);
        let removed = errno(task.remove_file("/m/d/hot"));
        assert!([None, Some(Errno::NOENT)].contains(&removed), "{removed:?}");
    });
    assert_eq!(errno(task.posix().umount("/m", UmountFlags::DETACH)), None);
    for thread in [walker, holder, remover] {
        thread.join().unwrap();
    }
    reclaim::settle();
    assert_eq!(fs.strong_count(), 0, "a superblock without users is not freed");
}

/// The reclaim thread takes the superblock down.
///
/// Race: The end of a superblock against walks and other calls.
///
/// The last use of a superblock ends in deferred work of any thread. Walks that began before may
/// still read its dentries, and its take-down frees them immediately. So it is passed to the
/// reclaim thread, which first waits for a grace period, that is, for the end of all sections that
/// existed when it was passed on. Later sections find no mount of it. A tree of any size that was
/// taken down where its last use ended used to be one section inside another call.
///
/// Seam: take-down of a superblock / walks, open files, late references; parties: the reclaim
/// thread, a holder of an open file, a removal of a file whose count is to be collected, a walk, an
/// unmount.
///
/// Fails if a mount is freed without a grace period, if the last reference does not close the
/// counts of each CPU, or if neither the thread waits for a grace period nor a collection holds the
/// superblock: either of these two suffices.
#[test]
fn take_down_by_thread_against_holder_late_reference_and_walker() {
    check(|| reclaim::with_thread(take_down));
}

/// The call that ends the last use takes the superblock down, as on a system that can't start a
/// thread.
///
/// Race: The end of a superblock against walks and other calls.
///
/// Seam: sharded count / its collection / the end of the superblock; parties: a holder of an open
/// file, a removal of a file whose count is to be collected, a walk, an unmount.
///
/// Fails if a collection does not hold the superblock (`Collecting`).
#[test]
fn take_down_by_last_user_against_holder_late_reference_and_walker() {
    check(take_down);
}
