//! The space and the writes that a small change in a branch takes, and the memory of branches.

use std::sync::Arc;

use vfscale::posix::MountFlags;
use vfscale::volume::CacheBudget;
use vfscale::{OpenOptions, Pool, Volume};
use vfscale_diskfs::mkfs::{self, MkfsOptions};

use crate::common::{image, within};
use crate::counted::{Counted, counted};

const LARGE: u64 = 50 << 20;
const KIB: u64 = 1 << 10;
/// The most that a small, durable change in an open branch may take.
const CHANGE_MAX: u64 = 64 * KIB;
/// The most that it may take together with the opening and the closing of the branch.
const CYCLE_MAX: u64 = 128 * KIB;
/// The most that opening, one such change and closing write: 140 KiB, and room for a push of the
/// log in the background.
const WRITTEN_MAX: u64 = 164 * KIB;

/// The most nodes of maps that these write, with those that lead to the branch table, which are
/// written twice. Those of the branch are written once.
const NODES_MAX: u64 = 10;

/// The most reads of an opening, and of a change after it.
const OPENING_READS_MAX: u64 = 16;
const CHANGE_READS_MAX: u64 = 8;

/// Makes a pool whose branch `main` has a file of 50 MiB and a thousand small ones.
fn pool() -> (Arc<Counted>, Pool) {
    let device = Arc::new(counted(4 << 30));
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let volume = vfscale::volume_on(device.clone()).open().unwrap();
    let task = volume.task();
    task.write("/large", vec![7; LARGE as usize]).unwrap();
    task.create_dir("/d").unwrap();
    for n in 0..1000 {
        task.write(format!("/d/f{n}"), n.to_string()).unwrap();
    }
    drop(task);
    volume.close().unwrap();
    let pool = vfscale::pool_on(device.clone()).convert(true).open().unwrap();
    (device, pool)
}

fn used(pool: &Pool) -> u64 {
    pool.usage().size - pool.usage().free
}

/// Changes a block of the large file, durably.
fn change(volume: &Volume, block: u64) {
    let file = volume.task().open_with("/large", &OpenOptions::new().write(true)).unwrap();
    assert_eq!(file.write_at(&[1; 4096], block * 4096).unwrap(), 4096);
    file.sync_all().unwrap();
}

#[test]
fn a_small_change_in_a_branch_takes_little_space_and_few_writes() {
    let (device, pool) = pool();
    for name in ["first", "second"] {
        pool.fork("main", name).unwrap();
        let before = used(&pool);
        let volume = pool.open(name).unwrap();
        device.state.take();
        // The first change begins an epoch of the volume's log, later ones do not.
        for block in [5000, 9000] {
            change(&volume, block);
            let (kinds, bytes) = device.state.take();
            assert!((4 * KIB..=CHANGE_MAX).contains(&bytes), "{name}: {kinds:?}");
        }
        volume.close().unwrap();
        let taken = used(&pool) - before;
        assert!(
            (8 * KIB..=CYCLE_MAX).contains(&taken),
            "{name}: {taken} {:?}",
            device.state.take()
        );
        // An opening without a change writes nothing.
        device.state.take();
        pool.open(name).unwrap().close().unwrap();
        assert_eq!((device.state.take().1, used(&pool) - before), (0, taken), "{name}");
    }
    pool.close().unwrap();
}

/// Reads of a branch change nothing in it, but where access times are asked for.
#[test]
fn reads_of_a_branch_take_no_space() {
    let (device, pool) = pool();
    // An access is noted once after each change.
    let read_all = |volume: &Volume| {
        let task = volume.task();
        for n in 0..1000 {
            assert_eq!(task.read_to_string(format!("/d/f{n}")).unwrap(), n.to_string());
        }
        volume.sync().unwrap();
    };
    for (name, rule) in [("quiet", None), ("noted", Some(MountFlags::RELATIME))] {
        pool.fork("main", name).unwrap();
        // The first opening of a fork may be written down.
        pool.open(name).unwrap().close().unwrap();
        let before = used(&pool);
        let volume = pool.open(name).unwrap();
        if let Some(rule) = rule {
            volume.task().posix().remount_bind("/", rule).unwrap();
        }
        device.state.take();
        read_all(&volume);
        volume.close().unwrap();
        let (kinds, written) = device.state.take();
        assert_eq!(written > 0, rule.is_some(), "{name}: {kinds:?}");
        assert_eq!(used(&pool) > before, rule.is_some(), "{name}");
    }
    // `main` is as any volume.
    let main = pool.open("main").unwrap();
    device.state.take();
    read_all(&main);
    main.close().unwrap();
    assert!(device.state.take().1 > 0);
    pool.close().unwrap();
}

/// A change writes, together with the first opening and the closing of its branch, three
/// superblocks twice, since the branch gets a log, which is closed; and one commit of the pool, at
/// the closing, with the nodes of the map. The pool's superblock, its table and the root of that
/// are written twice. The branch takes the delta log that the fork has left for it, or an earlier
/// closing.
#[test]
fn a_changed_branch_writes_few_blocks() {
    let (device, pool) = pool();
    for (name, block) in [("a", 5000), ("b", 9000)] {
        pool.fork("main", name).unwrap();
        device.state.take();
        let volume = pool.open(name).unwrap();
        change(&volume, block);
        volume.close().unwrap();
        let (kinds, bytes) = device.state.take();
        assert_eq!((kinds["vfsS"], kinds["pooS"]), (6, 2), "{name}: {kinds:?}");
        assert!(kinds["pooN"] <= NODES_MAX, "{name}: {kinds:?}");
        assert!((64 * KIB..=WRITTEN_MAX).contains(&bytes), "{name}: {bytes} {kinds:?}");
    }
    pool.close().unwrap();
}

/// The first opening of a branch, which has 32 groups, and later ones read the superblocks, the end
/// of the log, and the nodes of the map that lead to them, but no header of a group. A change reads
/// the header of the group that it uses.
#[test]
fn an_opening_reads_no_group() {
    let (device, pool) = pool();
    for name in ["a", "b"] {
        pool.fork("main", name).unwrap();
        for round in 0..3 {
            device.state.take_reads();
            let volume = pool.open(name).unwrap();
            let opening = device.state.take_reads();
            change(&volume, 5000 + round);
            let change = device.state.take_reads();
            volume.close().unwrap();
            assert!(opening <= OPENING_READS_MAX, "{name} {round}: {opening}");
            assert!(change <= CHANGE_READS_MAX, "{name} {round}: {change}");
        }
    }
    pool.close().unwrap();
}

/// Branches share the budget of their pool, which another volume shares as well; one with caches of
/// its own takes nothing from it.
#[test]
fn branches_share_one_budget_for_their_caches() {
    const BUDGET: u64 = 16 << 20;
    let (device, pool) = pool();
    pool.close().unwrap();
    let budget = CacheBudget::new(BUDGET);
    let pool = vfscale::pool_on(device).cache_budget(&budget).open().unwrap();
    let names: Vec<_> = (0..4).map(|n| format!("b{n}")).collect();
    names.iter().for_each(|name| pool.fork("main", name).unwrap());
    let own = pool.branch("b0").cache_size(64 << 20).open().unwrap();
    assert_eq!(own.task().read("/large").unwrap().len() as u64, LARGE);
    assert_eq!(budget.used(), (0, 0));
    let volumes: Vec<_> = names[1..].iter().map(|name| pool.open(name).unwrap()).collect();
    for volume in &volumes {
        assert_eq!(volume.task().read("/large").unwrap().len() as u64, LARGE);
        let (data, metadata) = budget.used();
        assert!((BUDGET / 2..=BUDGET * 3 / 4).contains(&data) && metadata > 0, "{data} {metadata}");
    }
    volumes.into_iter().chain([own]).for_each(|volume| volume.close().unwrap());
    pool.close().unwrap();
}

/// `df` in a branch knows that others have filled the pool.
#[test]
fn a_branch_tells_what_the_pool_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let pool = vfscale::pool(image(dir.path(), |_| ())).convert(true).open().unwrap();
    pool.fork("main", "small").unwrap();
    let space = |name| within(&pool, name, |task| task.space("/").unwrap());
    let before = space("small");
    assert!(before.available < pool.usage().free);
    for name in (0..).map(|n| format!("large {n}")) {
        if pool.usage().free < before.available / 2 {
            break;
        }
        pool.fork("main", &name).unwrap();
        within(&pool, &name, |task| task.write("/f", vec![7; 16 << 20]).unwrap());
    }
    let after = space("small");
    assert_eq!((after.total, after.used), (before.total, before.used));
    assert!((1..=pool.usage().free).contains(&after.available), "{after:?} {:?}", pool.usage());
    pool.close().unwrap();
}
