//! Calls that wait for a lock, or hold one for a long time, delay no grace period.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use vfscale_sync::rcu;

use crate::base::types::{AtFlags, FallocateFlags, Mode, OFlags, SetTime, XattrFlags};
use crate::file::open_file::File;
use crate::mount::namespace::Vfs;
use crate::names_only_tests::NamesOnly;
use crate::task::task_struct::{At, Task};

/// A call on a file, by a task.
type Call = dyn Fn(&Task, &File) + Sync;

/// The longest duration of a grace period on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes a call that the driver holds up, and then another call, which waits for the first one if
/// both take the same lock. Returns whether a grace period ends during that.
fn grace_period_ends_beside(first: &Call, second: &Call) -> bool {
    let gate = Arc::new(RwLock::new(()));
    let (is_armed, inside) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let stops = {
        let (gate, is_armed, inside) = (gate.clone(), is_armed.clone(), inside.clone());
        move || {
            if is_armed.load(Ordering::Relaxed) {
                inside.fetch_add(1, Ordering::Relaxed);
                drop(gate.read().unwrap());
            }
        }
    };
    let fs = Arc::new(NamesOnly::default());
    assert!(fs.on_data.set(Box::new(stops)).is_ok());
    let vfs = Vfs::new(fs).unwrap();
    let file = vfs.task().posix().open("/f", OFlags::CREATE | OFlags::RDWR, Mode::RWXU).unwrap();
    file.truncate(100).unwrap();
    is_armed.store(true, Ordering::Relaxed);
    let closed = gate.write().unwrap();
    thread::scope(|scope| {
        let (file, vfs) = (&file, &vfs);
        scope.spawn(move || first(&vfs.task(), file));
        vfscale_harness::wait_until("the first is inside", || inside.load(Ordering::Relaxed) > 0);
        scope.spawn(move || second(&vfs.task(), file));
        vfscale_harness::pause(Duration::from_millis(30));
        let (tell, is_over) = channel();
        scope.spawn(move || {
            rcu::synchronize();
            let _ = tell.send(());
        });
        let ended = is_over.recv_timeout(PATIENCE);
        drop(closed);
        ended != Err(RecvTimeoutError::Timeout)
    })
}

/// Race: A long write against the end of grace periods.
///
/// `read`, `write`, `fallocate`, truncations and `O_TRUNC` used to enter a section before they
/// waited for the position and the lock of the file, and left it at their end. One slow call
/// delayed all freeing in the process, and other calls got `ENOSPC` although space was about to
/// become free. Now they wait outside of a section. Failed before, for each of these calls.
///
/// `chmod`, `chown`, `utimens`, `truncate`, `setxattr` and `removexattr` of a path used to wait for
/// a writer's lock in the section of their walk, or in one that they had just entered. Now they
/// only try to take the lock there; while another thread holds it, they wait outside of sections
/// with a reference to the inode. Owner, mode and seals are checked under the lock, after the wait.
/// Debug builds panic if a thread waits for a sleeping lock inside a section.
/// `no_change_by_path_holds_grace_periods_up_while_it_waits_for_a_writer` failed before, for each
/// of these calls.
#[test]
fn no_call_on_data_holds_grace_periods_up() {
    let calls: [(&str, &Call); 7] = [
        ("read", &|_, file| assert_eq!(file.read(&mut [0; 4]).unwrap(), 0)),
        ("write", &|_, file| assert_eq!(file.write(b"some").unwrap(), 4)),
        ("pread", &|_, file| assert_eq!(file.pread(&mut [0; 4], 0).unwrap(), 0)),
        ("pwrite", &|_, file| assert_eq!(file.pwrite(b"some", 0).unwrap(), 4)),
        ("ftruncate", &|_, file| file.truncate(50).unwrap()),
        ("fallocate", &|_, file| {
            file.fallocate(FallocateFlags::KEEP_SIZE, 0, 10).unwrap();
        }),
        ("open", &|task, _| {
            drop(task.posix().open("/f", OFlags::WRONLY | OFlags::TRUNC, Mode::empty()).unwrap());
        }),
    ];
    let held_up: Vec<&str> = calls
        .iter()
        .filter(|(_, call)| !grace_period_ends_beside(call, call))
        .map(|(name, _)| *name)
        .collect();
    assert!(held_up.is_empty(), "{held_up:?}");
}

/// Race: A long write against the end of grace periods.
#[test]
fn no_change_by_path_holds_grace_periods_up_while_it_waits_for_a_writer() {
    const HERE: At<'_> = At::Cwd;
    const NONE: AtFlags = AtFlags::empty();
    /// The value of `security.capability`, revision 2, without any capability.
    const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    /// The value of `system.posix_acl_access`, without an entry.
    const NO_LIST: [u8; 4] = [2, 0, 0, 0];
    fn set(task: &Task, name: &str, value: &[u8]) {
        task.posix().setxattrat(HERE, "/f", name, value, XattrFlags::empty(), NONE).unwrap();
    }
    let calls: [(&str, &Call); 7] = [
        ("chmod", &|task, _| task.posix().fchmodat(HERE, "/f", Mode::from(0o640), NONE).unwrap()),
        ("chown", &|task, _| task.posix().fchownat(HERE, "/f", Some(3), Some(4), NONE).unwrap()),
        ("utimens", &|task, _| {
            task.posix().utimensat(HERE, "/f", [SetTime::Now; 2], NONE).unwrap()
        }),
        ("truncate", &|task, _| task.posix().truncate("/f", 50).unwrap()),
        ("setxattr", &|task, _| set(task, "security.capability", &CAPABILITY)),
        ("setxattr of a list", &|task, _| set(task, "system.posix_acl_access", &NO_LIST)),
        ("removexattr", &|task, _| {
            task.posix().removexattrat(HERE, "/f", "system.posix_acl_access", NONE).unwrap();
        }),
    ];
    let write: &Call = &|_, file| assert_eq!(file.write(b"some").unwrap(), 4);
    let held_up: Vec<&str> = calls
        .iter()
        .filter(|(_, call)| !grace_period_ends_beside(write, call))
        .map(|(name, _)| *name)
        .collect();
    assert!(held_up.is_empty(), "{held_up:?}");
}
