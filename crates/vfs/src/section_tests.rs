//! Calls that wait for a lock, or hold one for a long time, delay no grace period.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use vfscale_sync::rcu;

use crate::base::types::{FallocateFlags, Mode, OFlags};
use crate::file::open_file::File;
use crate::mount::namespace::Vfs;
use crate::names_only_tests::NamesOnly;
use crate::task::task_struct::Task;

/// A call on a file, by a task.
type Call = dyn Fn(&Task, &File) + Sync;

/// The longest duration of a grace period on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs one call in two threads: the driver blocks the first, and the second waits for the first if
/// the call takes a lock. Returns whether a grace period ends during that time.
fn grace_period_ends_beside(call: impl Fn(&Task, &File) + Sync) -> bool {
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
    let file = vfs.task().open("/f", OFlags::CREATE | OFlags::RDWR, Mode::RWXU).unwrap();
    file.truncate(100).unwrap();
    is_armed.store(true, Ordering::Relaxed);
    let closed = gate.write().unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            let (call, file, vfs) = (&call, &file, &vfs);
            scope.spawn(move || call(&vfs.task(), file));
        }
        while inside.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(30));
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
            drop(task.open("/f", OFlags::WRONLY | OFlags::TRUNC, Mode::empty()).unwrap());
        }),
    ];
    let held_up: Vec<&str> = calls
        .iter()
        .filter(|(_, call)| !grace_period_ends_beside(call))
        .map(|(name, _)| *name)
        .collect();
    assert!(held_up.is_empty(), "{held_up:?}");
}
