//! Branches with a limit of their own.

use std::sync::Arc;

use vfscale::block::MemoryDevice;
use vfscale::{Errno, Pool, Task, Volume};
use vfscale_diskfs::mkfs::{self, MkfsOptions};

const MIB: u64 = 1 << 20;
const CHUNK: usize = 100_000;

/// Makes a pool whose branch `main` has 40 MiB in a file, and its fork `trial`, with a limit.
fn pool(limit: u64) -> (Arc<MemoryDevice>, Pool) {
    let device = Arc::new(MemoryDevice::new(1 << 30).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let volume = vfscale::volume_on(device.clone()).open().unwrap();
    volume.task().write("/base", vec![1; 40 << 20]).unwrap();
    volume.close().unwrap();
    let pool = vfscale::pool_on(device.clone()).convert(true).open().unwrap();
    pool.fork("main", "trial").unwrap();
    pool.set_limit("trial", Some(limit)).unwrap();
    (device, pool)
}

fn open(pool: &Pool, name: &str) -> Volume {
    pool.branch(name).sync_interval(None).open().unwrap()
}

/// Writes files of 100 kB until one is refused. Returns how many were written.
fn fill(task: &Task, name: &str) -> usize {
    for number in 0..10_000 {
        match task.write(format!("/{name}{number}"), vec![2; CHUNK]) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.errno(), Errno::DQUOT, "{name}{number}");
                return number;
            }
        }
    }
    panic!("no limit");
}

fn own(pool: &Pool) -> u64 {
    pool.branches().into_iter().find(|info| info.name == "trial").unwrap().own
}

#[test]
fn a_branch_at_its_limit_gets_edquot_alone() {
    let (_, pool) = pool(64 * MIB);
    let (main, trial) = (open(&pool, "main"), open(&pool, "trial"));
    let (there, here) = (main.task(), trial.task());
    let count = fill(&here, "a");
    assert!((500..=640).contains(&count), "{count} files of 100 kB in 64 MiB");
    trial.sync().unwrap();
    assert!(own(&pool) <= 64 * MIB, "{} bytes", own(&pool));
    assert!(own(&pool) >= 52 * MIB, "{} bytes", own(&pool));
    assert!(here.space("/").unwrap().available < MIB);
    // The other branch goes on, and so do reads, syncs and removals here.
    assert!(there.space("/").unwrap().available > 500 * MIB);
    there.write("/more", vec![3; 100 << 20]).unwrap();
    assert_eq!(here.read("/base").unwrap().len(), 40 << 20);
    assert_eq!(here.read("/a7").unwrap(), vec![2; CHUNK]);
    for number in 0..count / 2 {
        here.remove_file(format!("/a{number}")).unwrap();
    }
    let again = fill(&here, "b");
    assert!((count / 2 - 40..=count / 2 + 40).contains(&again), "{again} after {count}");
    // To change what the parent has takes space as well.
    let file = here.open_with("/base", &vfscale::OpenOptions::new().write(true)).unwrap();
    let overwritten = (0..400).find_map(|part| {
        file.write_at(&[4; CHUNK], part * CHUNK as u64).and_then(|_| file.sync_all()).err()
    });
    assert_eq!(overwritten.map(|error| error.errno()), Some(Errno::DQUOT));
    drop(file);
    pool.set_limit("trial", Some(128 * MIB)).unwrap();
    here.write("/large", vec![5; 30 << 20]).unwrap();
    drop((there, here));
    main.close().unwrap();
    trial.close().unwrap();
    pool.close().unwrap();
}

#[test]
fn what_was_accepted_below_a_limit_is_there_at_the_next_opening() {
    let (device, pool) = pool(16 * MIB);
    let trial = open(&pool, "trial");
    let task = trial.task();
    let count = fill(&task, "a");
    assert!(count >= 80, "{count} files of 100 kB in 16 MiB");
    // Nothing was synced: the close writes all of it.
    drop(task);
    trial.close().unwrap();
    pool.close().unwrap();
    let pool = vfscale::pool_on(device.clone()).open().unwrap();
    let trial = open(&pool, "trial");
    let task = trial.task();
    for number in 0..count {
        assert_eq!(task.read(format!("/a{number}")).unwrap(), vec![2; CHUNK], "file {number}");
    }
    assert_eq!(task.write("/more", vec![2; 4 << 20]).unwrap_err().errno(), Errno::DQUOT);
    // The log is at work again at the limit: what is there can be removed, and leaves room for
    // small changes.
    task.remove_file("/a1").unwrap();
    trial.sync().unwrap();
    task.rename("/a0", "/renamed").unwrap();
    drop(task);
    trial.close().unwrap();
    pool.close().unwrap();
}
