//! Full pools: calls are refused, and no volume stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::block::MemoryDevice;
use vfscale::posix::{At, AtFlags, FallocateFlags, OFlags, XattrFlags};
use vfscale::{Errno, Mode, Task, Volume};
use vfscale_diskfs::{check, check::Options, mkfs, mkfs::MkfsOptions};
use vfscale_pool::{Error, Pool};
use vfscale_sync::random::{Random, seed};

use crate::watched::{Watched, watched};

const MODE: Mode = Mode::from_bits_retain(0o755);
const BYTES: u64 = 48 << 20;
const STEPS: u64 = 1500;

/// An open branch of a test, with its volume.
struct Open {
    name: String,
    device: Arc<Watched>,
    volume: Option<Volume>,
}

impl Open {
    fn task(&self) -> Task {
        self.volume.as_ref().unwrap().task()
    }
}

/// Makes a pool whose branch `main` has a file with data and an allocated one.
fn pool_of(bytes: u64) -> Pool {
    let pool = Pool::create(Arc::new(MemoryDevice::new(bytes).unwrap()), [5; 16]).unwrap();
    pool.create_branch("main", BYTES).unwrap();
    let main = Arc::new(pool.branch("main").unwrap());
    let options = MkfsOptions { log_blocks: Some(256), ..MkfsOptions::default() };
    mkfs::format(&*main, &options).unwrap();
    let volume = vfscale::volume_on(main.clone()).open().unwrap();
    let task = volume.task();
    task.write("/shared", vec![1; 2 << 20]).unwrap();
    let file = task.posix().open("/allocated", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
    file.fallocate(FallocateFlags::empty(), 0, 4 << 20).unwrap();
    for n in 0..200 {
        task.write(format!("/small{n}"), "small").unwrap();
    }
    drop((file, task));
    volume.close().unwrap();
    main.close().unwrap();
    pool
}

/// Opens a branch, and makes the first change, which reserves the log; `None` if the pool is too
/// full for that.
fn open(pool: &Pool, name: &str, full: &Arc<AtomicU64>) -> Option<Open> {
    let branch = pool.branch(name).unwrap();
    let device = Arc::new(watched(branch, full.clone()));
    let opened = vfscale::volume_on(device.clone()).cache_size(4 << 20).open();
    match opened {
        Ok(volume) => {
            let first = volume.task().create_dir("/first");
            if let Err(error) = first {
                assert_eq!(Errno::from(error), Errno::NOSPC, "{name}");
                volume.close().unwrap();
                device.below.close().unwrap();
                return None;
            }
            Some(Open { name: name.into(), device, volume: Some(volume) })
        }
        Err(error) => {
            assert_eq!(error.errno(), Errno::NOSPC, "{error}");
            device.below.close().unwrap();
            None
        }
    }
}

/// One call, which may be refused.
fn step(task: &Task, random: &mut Random) -> Result<(), Errno> {
    let small = format!("/small{}", random.below(400));
    let bytes = vec![random.below(255) as u8; 1 + random.below(200_000) as usize];
    match random.below(16) {
        0 => task.write(small, &bytes[..bytes.len().min(3000)])?,
        1 => task.remove_file(small)?,
        2 => task.create_dir(format!("/dir{}", random.below(400)))?,
        3 => {
            let (how, flags) = (XattrFlags::empty(), AtFlags::empty());
            let value = &bytes[..bytes.len().min(100)];
            task.posix().setxattrat(At::Cwd, small, "user.a", value, how, flags)?;
        }
        4 => {
            let file = task.posix().open("/allocated", OFlags::RDWR, MODE)?;
            file.fallocate(FallocateFlags::empty(), random.below(8 << 20), bytes.len() as u64)?;
        }
        5 => {
            let name = random.one(&["/shared", "/allocated"]);
            task.posix().open(name, OFlags::RDWR, MODE)?.sync_all()?;
        }
        6 => task.write(format!("/big{}", random.below(20)), bytes)?,
        _ => {
            let name = random.one(&["/shared", "/allocated"]);
            let file = task.posix().open(name, OFlags::RDWR, MODE)?;
            file.pwrite(&bytes, random.below(4 << 20))?;
        }
    }
    Ok(())
}

/// Ends the use of the branches, each of which is sound.
fn close(pool: &Pool, branches: &mut [Open]) {
    for open in branches.iter_mut() {
        // Accepted data is written back, whatever was removed.
        open.volume.take().unwrap().close().unwrap();
        open.device.below.close().unwrap();
        let device = Arc::new(pool.branch(&open.name).unwrap());
        let report = check::check(device.clone(), &Options::default(), &mut ()).unwrap();
        assert_eq!(report.findings, [], "{}", open.name);
        device.close().unwrap();
    }
}

fn fill(bytes: u64, count: u64, random: &mut Random) {
    let pool = pool_of(bytes);
    let full = Arc::new(AtomicU64::new(0));
    for n in 0..count {
        pool.fork("main", &format!("b{n}"), false).unwrap();
    }
    let names = (0..count).map(|n| format!("b{n}")).chain(["main".into()]);
    let mut branches: Vec<Open> = names.filter_map(|name| open(&pool, &name, &full)).collect();
    assert!(branches.len() > 1, "{bytes} bytes: {} branches", branches.len());
    let (mut refused, mut forks) = (0, 0);
    for n in 0..STEPS {
        let at = random.below(branches.len() as u64) as usize;
        match step(&branches[at].task(), random) {
            Err(Errno::NOSPC) => refused += 1,
            Ok(()) | Err(Errno::NOENT | Errno::EXIST | Errno::NODATA) => {}
            Err(error) => panic!("{} of {bytes} bytes, step {n}: {error}", branches[at].name),
        }
        assert_eq!(full.load(Ordering::Relaxed), 0, "a write of a volume has found a full pool");
        if n % 100 == 10 {
            match pool.fork(&branches[at].name, &format!("f{n}"), false) {
                Ok(()) => forks += 1,
                Err(error) => assert_eq!(error, Error::Full),
            }
        }
    }
    assert!(refused > 0 && forks > 0, "{bytes} bytes: {refused} refused, {forks} forks");
    // Removing works in the full pool, although each of these takes space: forks have the files.
    for open in &branches {
        let removed = (0..200).map(|n| open.task().remove_file(format!("/small{n}")));
        let removed = removed.map(|result| result.map_err(Errno::from));
        let removed: Vec<_> = removed.filter(|result| *result != Err(Errno::NOENT)).collect();
        let refused = removed.iter().filter(|result| result.is_err()).count();
        assert_eq!(refused, 0, "{}: {refused} of {} removals", open.name, removed.len());
    }
    close(&pool, &mut branches);
    assert_eq!(full.load(Ordering::Relaxed), 0);
    let before = pool.usage().free;
    for open in branches.iter().filter(|open| open.name != "main") {
        pool.delete(&open.name).unwrap();
    }
    while pool.reap(1000).unwrap().more {}
    assert!(pool.usage().free > before);
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_full_pool_stops_no_volume() {
    let mut random = Random::new(seed());
    for (megabytes, count) in [(34, 4), (40, 5), (52, 6), (72, 8)] {
        fill(megabytes << 20, count, &mut random);
    }
}
