//! Branches that get other contents while they are open: rolled back, adopted into, merged into.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use vfscale::block::Device;
use vfscale::pool::DifferenceKind;
use vfscale::volume::{CantFollow, Differing, Followed, Follower, LiveVolume};
use vfscale::{Errno, MergeOptions, Pool, PoolError, Task};
use vfscale_block::MemoryDevice;
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_testkit::{CrashPlan, RecordingDevice};

use crate::common::{image, read, within};

/// A user who notes what it is told, or refuses.
#[derive(Default)]
struct Noting {
    refuses: AtomicBool,
    followed: AtomicUsize,
    differing: Mutex<Option<Differing>>,
}

impl Follower for Noting {
    fn follow(&self, switch: &mut dyn FnMut() -> Option<Followed>) -> Result<(), CantFollow> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(CantFollow { errno: Errno::OPNOTSUPP, why: "it can't" });
        }
        if let Some(followed) = switch() {
            self.followed.fetch_add(1, Ordering::Relaxed);
            *self.differing.lock().unwrap() = Some(followed.differing);
        }
        Ok(())
    }
}

fn followed(live: &LiveVolume) -> Arc<Noting> {
    let user = Arc::new(Noting::default());
    let follower: Weak<dyn Follower> = Arc::<Noting>::downgrade(&user);
    live.follow(follower);
    user
}

fn with<T>(live: &LiveVolume, act: impl FnOnce(&Task) -> T) -> T {
    live.with(|volume| act(&volume.task())).unwrap()
}

fn ino(live: &LiveVolume, path: &str) -> u64 {
    with(live, |task| task.metadata(path).unwrap().ino)
}

/// Opens an image with some files as a live volume, and makes a checkpoint of it.
fn opened(dir: &Path) -> (Pool, LiveVolume, String) {
    let path = image(dir, |task| {
        task.create_dir("/dir").unwrap();
        for name in ["/same", "/changed", "/dir/gone", "/dir/same"] {
            task.write(name, name).unwrap();
        }
    });
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let live = LiveVolume::new(pool.open("main").unwrap());
    let before = pool.checkpoint("main", "before").unwrap();
    (pool, live, before)
}

#[test]
fn an_open_branch_is_rolled_back_and_keeps_what_it_had() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, live, before) = opened(dir.path());
    with(&live, |task| {
        task.write("/changed", "now").unwrap();
        task.remove_file("/dir/gone").unwrap();
        task.write("/dir/new", "new").unwrap();
    });
    let kept = pool.rollback_to("main", &before).unwrap().unwrap();
    with(&live, |task| {
        assert_eq!(task.read_to_string("/changed").unwrap(), "/changed");
        assert_eq!(task.read_to_string("/dir/gone").unwrap(), "/dir/gone");
        assert!(task.metadata("/dir/new").is_err());
        task.write("/after", "goes on").unwrap();
    });
    // All that had returned before is there, synced or not, and is had again the same way.
    assert_eq!(read(&pool, &kept, "/changed").as_deref(), Some("now"));
    assert_eq!(read(&pool, &kept, "/dir/new").as_deref(), Some("new"));
    assert_eq!(read(&pool, &kept, "/dir/gone"), None);
    pool.rollback("main").unwrap();
    with(&live, |task| assert!(task.metadata("/after").is_err()));
    live.close().unwrap();
    assert_eq!(read(&pool, "main", "/changed").as_deref(), Some("/changed"));
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

#[test]
fn the_user_is_told_which_inodes_differ() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, live, before) = opened(dir.path());
    let names = ["/same", "/changed", "/dir/gone", "/dir/same", "/dir", "/"];
    let [same, changed, gone, below, dir_ino, root] = names.map(|name| ino(&live, name));
    with(&live, |task| {
        task.write("/changed", "now").unwrap();
        task.remove_file("/dir/gone").unwrap();
        task.create_dir("/new").unwrap();
        task.read("/same").unwrap();
    });
    let new = ino(&live, "/new");
    let user = followed(&live);
    pool.rollback_to("main", &before).unwrap();
    let told = user.differing.lock().unwrap().take().unwrap();
    for (what, ino, is_other) in [
        ("a file that is the same", same, false),
        ("a file that is the same, in a directory that is not", below, false),
        ("a file whose contents are others", changed, true),
        ("a file that was removed", gone, true),
        ("a directory that was made", new, true),
        ("a directory with other names", dir_ino, false),
        ("the root", root, false),
    ] {
        assert_eq!(told.is_other(ino), is_other, "{what}");
    }
    assert!(told.has_changed(dir_ino) && told.has_changed(root));
    assert!(!told.has_changed(below));
    live.close().unwrap();
}

/// Nothing that is refused stops the volume, or changes it.
#[test]
fn a_refused_rollback_leaves_the_branch_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, live, before) = opened(dir.path());
    let task = live.with(vfscale::Volume::task).unwrap();
    let file = task.open_with("/changed", &vfscale::OpenOptions::new().write(true)).unwrap();
    task.write("/changed", "now").unwrap();
    let user = followed(&live);
    for _ in 0..3 {
        let error = pool.rollback_to("main", "nothing").unwrap_err();
        assert_eq!(error.errno(), Errno::NOENT, "{error}");
    }
    user.refuses.store(true, Ordering::Relaxed);
    let error = pool.rollback_to("main", &before).unwrap_err();
    assert!(matches!(error, PoolError::Follow { .. }), "{error}");
    assert_eq!(user.followed.load(Ordering::Relaxed), 0);
    drop(user);
    file.write_all(b"NOW").unwrap();
    file.sync_all().unwrap();
    drop((file, task));
    live.close().unwrap();
    assert_eq!(read(&pool, "main", "/changed").as_deref(), Some("NOW"));
    assert_eq!(pool.branches().len(), 2);
    pool.close().unwrap();
}

/// A file of before can't change anything, and does not read what is not its own.
#[test]
fn former_files_belong_to_the_former_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, live, before) = opened(dir.path());
    let task = live.with(vfscale::Volume::task).unwrap();
    task.write("/changed", "now").unwrap();
    let file = task.open_with("/changed", &vfscale::OpenOptions::new().write(true)).unwrap();
    let kept = pool.rollback_to("main", &before).unwrap().unwrap();
    let written = file.write_all(b"LATE").and_then(|()| file.sync_all());
    assert!(written.is_err(), "a file of before was written");
    if let Ok(text) = task.read_to_string("/changed") {
        assert_ne!(text, "/changed");
    }
    drop((file, task));
    live.close().unwrap();
    assert_eq!(read(&pool, &kept, "/changed").as_deref(), Some("now"));
    assert_eq!(read(&pool, "main", "/changed").as_deref(), Some("/changed"));
    pool.close().unwrap();
}

/// A volume that has become a branch while it was open is one more such branch, and its handles
/// lead to what it is by then.
#[test]
fn a_volume_that_became_a_branch_is_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let live = LiveVolume::new(vfscale::volume(&path).open().unwrap());
    let (maker, freezer) =
        live.with(|volume| (volume.pool_maker().unwrap(), volume.freezer())).unwrap();
    let pool = maker.make_pool().unwrap();
    let before = pool.checkpoint("main", "").unwrap();
    with(&live, |task| task.write("/f", "now").unwrap());
    pool.rollback_to("main", &before).unwrap();
    drop(pool);
    assert_eq!(with(&live, |task| task.read_to_string("/f").unwrap()), "base");
    assert_eq!(freezer.volume_size(), Some(64 << 20));
    freezer.freeze(|| ()).unwrap();
    let pool = maker.pool().unwrap();
    assert_eq!(pool.branches().len(), 3);
    live.close().unwrap();
    pool.close().unwrap();
    let volume = vfscale::volume(&path).open().unwrap();
    assert_eq!(volume.task().read_to_string("/f").unwrap(), "base");
    volume.close().unwrap();
}

#[test]
fn an_open_branch_adopts_and_merges() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, live, _) = opened(dir.path());
    for name in ["a", "b", "c"] {
        pool.fork("main", name).unwrap();
        within(&pool, name, |task| task.write(format!("/{name}"), "work").unwrap());
    }
    let user = followed(&live);
    pool.adopt("main", "a").unwrap();
    with(&live, |task| {
        assert_eq!(task.read_to_string("/a").unwrap(), "work");
        task.write("/own", "kept").unwrap();
    });
    // The parent has changed since the fork.
    let error = pool.adopt("main", "b").unwrap_err();
    assert!(matches!(error, PoolError::HasChanged { .. }), "{error}");
    for name in ["b", "c"] {
        let merged = pool.merge(name, "main", MergeOptions::new()).unwrap();
        assert_eq!((merged.added, merged.conflicts.len()), (1, 0));
    }
    assert_eq!(user.followed.load(Ordering::Relaxed), 3);
    for path in ["/a", "/b", "/c", "/own"] {
        with(&live, |task| task.metadata(path).unwrap());
    }
    live.close().unwrap();
    assert_eq!(read(&pool, "main", "/own").as_deref(), Some("kept"));
    assert_eq!(pool.check().unwrap(), Vec::<String>::new());
    pool.close().unwrap();
}

/// Merges race with a writer of the branch that they are merged into: nothing of either is lost.
#[test]
fn a_merge_does_not_lose_what_is_written_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, live, _) = opened(dir.path());
    let user = followed(&live);
    let names: Vec<String> = (0..4).map(|n| format!("m{n}")).collect();
    for name in &names {
        pool.fork("main", name).unwrap();
        within(&pool, name, |task| task.write(format!("/{name}"), "work").unwrap());
    }
    let is_over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                // A call that is in the lock of the volume is not held up by a follower.
                with(&live, |task| task.write(format!("/w{written}"), "w").unwrap());
                written += 1;
                vfscale_harness::pause(std::time::Duration::from_millis(3));
            }
            written
        });
        let mut merged = 0;
        for name in &names {
            match pool.merge(name, "main", MergeOptions::new()) {
                Ok(_) => merged += 1,
                Err(PoolError::HasChanged { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(user.followed.load(Ordering::Relaxed), merged);
        writer.join().unwrap()
    });
    for n in 0..written {
        with(&live, |task| assert!(task.metadata(format!("/w{n}")).is_ok(), "/w{n} of {written}"));
    }
    live.close().unwrap();
    pool.close().unwrap();
}

/// After a power cut at any write of a rollback the branch has the contents of before or those
/// asked for, and what it had is there in either case.
#[test]
fn a_power_cut_leaves_the_former_contents_or_the_new_ones() {
    let device = MemoryDevice::with_block_size(16 << 20, 4096).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    let device = Arc::new(RecordingDevice::new(device));
    let pool = vfscale::pool_on(device.clone()).convert(true).open().unwrap();
    let live = LiveVolume::new(pool.open("main").unwrap());
    with(&live, |task| task.write("/f", "base").unwrap());
    let before = pool.checkpoint("main", "").unwrap();
    with(&live, |task| {
        task.write("/f", "now").unwrap();
        task.write("/new", "new").unwrap();
    });
    live.with(|volume| volume.sync().unwrap());
    device.mark("begins");
    pool.rollback_to("main", &before).unwrap();
    device.mark("returned");
    with(&live, |task| task.write("/after", "after").unwrap());
    live.with(|volume| volume.sync().unwrap());
    let plan = CrashPlan::default().exhaustive_bits(2).listed_max(4).samples(1);
    let (mut old, mut new) = (0, 0);
    for state in device.crash_states(plan).filter(|state| state.marks() > 0) {
        let id = state.id();
        let pool = vfscale::pool_on(state.device()).open().unwrap();
        let is_new = read(&pool, "main", "/f").as_deref() == Some("base");
        if is_new {
            new += 1;
            assert_eq!(read(&pool, "main", "/new"), None, "{id}");
            assert_eq!(read(&pool, "main@2", "/f").as_deref(), Some("now"), "{id}");
            assert_eq!(read(&pool, "main@2", "/new").as_deref(), Some("new"), "{id}");
        } else {
            old += 1;
            assert_eq!(read(&pool, "main", "/f").as_deref(), Some("now"), "{id}");
            assert_eq!(read(&pool, "main", "/new").as_deref(), Some("new"), "{id}");
            assert_eq!(state.marks(), 1, "{id}: it had returned");
        }
        assert_eq!(read(&pool, "main@1", "/f").as_deref(), Some("base"), "{id}");
        assert_eq!(pool.check().unwrap(), Vec::<String>::new(), "{id}");
    }
    assert!(old > 3 && new > 3, "{old} with the former contents, {new} with the new ones");
    live.close().unwrap();
    let _: Arc<dyn Device> = device;
}

/// Work that a rollback took away is had again by an adoption.
#[test]
fn what_a_rollback_took_is_adopted_again() {
    let dir = tempfile::tempdir().unwrap();
    let (pool, live, before) = opened(dir.path());
    with(&live, |task| task.write("/work", "work").unwrap());
    let kept = pool.rollback_to("main", &before).unwrap().unwrap();
    let differences = pool.diff("main", &kept).unwrap();
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].kind, DifferenceKind::Added);
    pool.adopt("main", &kept).unwrap();
    assert_eq!(with(&live, |task| task.read_to_string("/work").unwrap()), "work");
    live.close().unwrap();
    pool.close().unwrap();
}
