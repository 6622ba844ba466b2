//! Power cuts while a branch takes over an overlay, what another branch has changed, or a layer or
//! a patch; and how much of its device the first writes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use vfscale::block::{Device, MemoryDevice};
use vfscale::{ApplyOptions, DiffOptions, MergeOptions, Merged, Pool, Task};
use vfscale_testkit::{Call, CrashPlan, HookedDevice, RecordingDevice};

use crate::common::{image, within};
use crate::counted::counting;
use crate::ingests::{Above, ingest};
use crate::tree_common::{Tree, read_tree};

/// Makes an image, and changes it in an overlay. Returns the image in memory, whose `main` has not
/// taken the changes over.
fn changed(dir: &Path, fill: impl FnOnce(&Task), act: impl FnOnce(&Above)) -> Option<MemoryDevice> {
    let path = image(dir, fill);
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let above = Above::new(&pool, &path)?;
    act(&above);
    drop(above);
    pool.close().unwrap();
    Some(in_memory(&path))
}

/// Copies an image into memory.
fn in_memory(path: &Path) -> MemoryDevice {
    let (file, mut chunk) = (File::open(path).unwrap(), vec![0; 1 << 16]);
    let device = MemoryDevice::with_block_size(file.metadata().unwrap().len(), 4096).unwrap();
    for at in (0..device.size()).step_by(chunk.len()) {
        let read = file.read_at(&mut chunk, at).unwrap();
        if chunk[..read].iter().any(|byte| *byte != 0) {
            device.write_at(at, &chunk[..read]).unwrap();
        }
    }
    device
}

/// The contents of a branch, whether there is something to merge into `into`, and all branches.
type Found = (Tree, bool, Vec<String>);

/// Returns whether the branch `from` has something that the branch `into` has not; false if there
/// is no such branch.
fn is_to_merge(pool: &Pool) -> Result<bool, String> {
    if pool.branches().iter().all(|info| info.name != "from") {
        return Ok(false);
    }
    let planned = pool.merge("from", "into", MergeOptions::new().dry_run(true));
    planned.map(|planned| planned != Merged::default()).map_err(|error| error.to_string())
}

/// Returns what the branch `of` has in an image of such branches, and fails for a pool that is not
/// whole.
fn found(device: Arc<dyn Device>, of: &str) -> Result<Found, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let pool = vfscale::pool_on(device).open().map_err(|error| text(&error))?;
    let names: Vec<_> = pool.branches().into_iter().map(|info| info.name).collect();
    let volume = pool.open(of).map_err(|error| text(&error))?;
    let found = read_tree(&volume.task()).map_err(|error| text(&error))?;
    volume.close().map_err(|error| text(&error))?;
    let is_to_merge = is_to_merge(&pool)?;
    let problems = pool.check().map_err(|error| text(&error))?;
    match problems.is_empty() {
        true => Ok((found, is_to_merge, names)),
        false => Err(format!("{names:?}, {problems:?}")),
    }
}

/// A device that records, and forgets flushes if the state says so.
type Cut = HookedDevice<RecordingDevice<MemoryDevice>, bool>;

/// Cuts the power at each write and flush of a change of the branch `of`. Returns how often that
/// was as before and as after it, or why it was neither.
fn sweep(
    device: MemoryDevice,
    (branches, of, kept): (&[&str], &str, Option<&str>),
    is_planted: bool,
    act: impl FnOnce(&Pool),
) -> Result<[usize; 2], String> {
    let device: Arc<Cut> = Arc::new(HookedDevice::new(
        RecordingDevice::new(device),
        is_planted,
        |device, is_planted, call| match call {
            Call::Flush if *is_planted => Ok(()),
            call => call.pass(device),
        },
    ));
    let pool = vfscale::pool_on(device.clone()).open().unwrap();
    let now = |pool: &Pool| {
        let tree = within(pool, of, |task| read_tree(task).unwrap());
        let names: Vec<_> = pool.branches().into_iter().map(|info| info.name).collect();
        (tree, is_to_merge(pool).unwrap(), names)
    };
    let before = now(&pool);
    act(&pool);
    device.below.mark("done");
    let after = now(&pool);
    pool.close().unwrap();
    assert_eq!((before.0 == after.0, after.1), (false, kept.is_some()));
    let [one, mut other] = [&before, &after].map(|it| it.2.iter().map(String::as_str));
    assert!(one.eq(branches.iter().copied()));
    assert_eq!(other.find(|name| !branches.contains(name)), kept);
    let mut met = [0; 2];
    let plan = CrashPlan::default().exhaustive_bits(2).listed_max(3).samples(2);
    for state in device.below.crash_states(plan) {
        let found = found(state.device(), of);
        let found = found.map_err(|why| format!("{}: {why}", state.id()))?;
        match (found == before, found == after) {
            (true, _) if state.marks() == 0 => met[0] += 1,
            (_, true) => met[1] += 1,
            _ => return Err(format!("{}: neither before nor after: {found:?}", state.id())),
        }
    }
    Ok(met)
}

/// Changes a file, a link, attributes and names.
fn change(above: &Above) {
    let large = File::options().write(true).open(above.path("large")).unwrap();
    large.write_all_at(&[9], 30_000).unwrap();
    fs::rename(above.path("large"), above.path("larger")).unwrap();
    fs::rename(above.path("a/b"), above.path("c")).unwrap();
    fs::remove_dir_all(above.path("a")).unwrap();
    File::options().append(true).open(above.path("one")).unwrap().write_all(b"!").unwrap();
    fs::remove_file(above.path("one")).unwrap();
    fs::set_permissions(above.path("c/inner"), PermissionsExt::from_mode(0o600)).unwrap();
    for n in 0..20 {
        fs::write(above.path(format!("new {n}")), vec![n; 3000]).unwrap();
    }
}

#[test]
fn a_power_cut_in_an_ingest_leaves_the_branch_as_before_or_after() {
    for is_planted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let fill = |task: &Task| {
            task.create_dir_all("/a/b").unwrap();
            task.write("/a/b/inner", "inner").unwrap();
            task.write("/large", vec![1; 40_000]).unwrap();
            task.write("/one", "linked").unwrap();
            task.hard_link("/one", "/two").unwrap();
        };
        let Some(device) = changed(dir.path(), fill, change) else { return };
        let act = |pool: &Pool| assert_eq!(ingest(pool, dir.path()).unwrap().kept, None);
        judge(is_planted, sweep(device, (&["base", "main"], "main", None), is_planted, act));
    }
}

fn judge(is_planted: bool, swept: Result<[usize; 2], String>) {
    match swept {
        Ok([before, after]) if !is_planted => {
            println!("{before} before, {after} after");
            assert!(before > 20 && after > 3, "{before} before, {after} after");
        }
        swept => assert!(is_planted && swept.is_err(), "{is_planted}: {swept:?}"),
    }
}

/// A merge with names, contents, a text by lines, a removal, and a conflict.
#[test]
fn a_power_cut_in_a_merge_or_a_rebase_leaves_the_branch_as_before_or_after() {
    for is_planted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), |task| {
            task.create_dir("/d").unwrap();
            task.write("/d/text", "1\n2\n3\n4\n5\n6\n").unwrap();
            task.write("/gone", "gone").unwrap();
            task.write("/both", "base").unwrap();
        });
        let pool = vfscale::pool(&path).convert(true).open().unwrap();
        pool.fork("main", "into").unwrap();
        pool.fork("main", "from").unwrap();
        within(&pool, "into", |task| {
            task.write("/d/text", "one\n2\n3\n4\n5\n6\n").unwrap();
            task.write("/both", vec![0, 1]).unwrap();
        });
        within(&pool, "from", |task| {
            task.write("/d/text", "1\n2\n3\n4\n5\nsix\n").unwrap();
            task.write("/both", vec![0, 2]).unwrap();
            task.remove_file("/gone").unwrap();
            task.rename("/d", "/e").unwrap();
            (0..4).for_each(|n| task.write(format!("/e/new {n}"), vec![n; 5000]).unwrap());
        });
        pool.close().unwrap();
        let act = |pool: &Pool| {
            let merged = pool.merge("from", "into", MergeOptions::new()).unwrap();
            assert_eq!((merged.texts, merged.conflicts.len()), (1, 1));
        };
        let branches = (&["from", "into", "main"][..], "into", None);
        judge(is_planted, sweep(in_memory(&path), branches, is_planted, act));
        let act = |pool: &Pool| {
            let rebased = pool.rebase("from", "into", MergeOptions::new()).unwrap();
            assert_eq!((rebased.texts, rebased.conflicts.len()), (1, 1));
        };
        let branches = (branches.0, "from", Some("from@1"));
        judge(is_planted, sweep(in_memory(&path), branches, is_planted, act));
    }
}

/// A layer and a patch, each with contents, new files, one that goes, and one that comes elsewhere.
#[test]
fn a_power_cut_in_an_apply_leaves_the_branch_as_before_or_after() {
    for is_planted in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), |task| {
            task.create_dir_all("/d/below").unwrap();
            task.write("/d/text", "1\n2\n3\n4\n5\n6\n").unwrap();
            task.write("/d/below/gone", "gone\n").unwrap();
            task.write("/moved", "a line\n".repeat(900)).unwrap();
        });
        let pool = vfscale::pool(&path).convert(true).open().unwrap();
        pool.fork("main", "trial").unwrap();
        within(&pool, "trial", |task| {
            task.write("/d/text", "1\n2\n3\n4\n5\nsix\n").unwrap();
            task.remove_dir_all("/d/below").unwrap();
            task.rename("/moved", "/d/moved").unwrap();
            (0..4).for_each(|n| task.write(format!("/new{n}"), "line\n".repeat(1000)).unwrap());
        });
        let all = DiffOptions::new();
        let [mut layer, mut patch] = <[Vec<u8>; 2]>::default();
        let take = |into: &mut Vec<u8>, part: &[u8]| {
            into.extend_from_slice(part);
            true
        };
        pool.layer("main", "trial", &all, &mut |part| take(&mut layer, part)).unwrap();
        pool.patch("main", "trial", &all, &mut |part| take(&mut patch, part)).unwrap();
        pool.close().unwrap();
        for input in [layer, patch] {
            let act = |pool: &Pool| {
                let applied = pool.apply("main", &mut &input[..], ApplyOptions::new()).unwrap();
                assert!(applied.is_done && applied.removed > 0, "{applied:?}");
            };
            let branches = (&["main", "trial"][..], "main", None);
            judge(is_planted, sweep(in_memory(&path), branches, is_planted, act));
        }
    }
}

/// Of a large file, what differs is written, and little beside.
#[test]
fn a_small_change_of_a_large_file_is_a_small_write() {
    let dir = tempfile::tempdir().unwrap();
    let fill = |task: &Task| {
        let bytes: Vec<u8> = (0..50_u32 << 20).map(|at| (at / 4096) as u8 | 1).collect();
        task.write("/large", bytes).unwrap();
    };
    let change = |above: &Above| {
        let large = File::options().write(true).open(above.path("large")).unwrap();
        large.write_all_at(&[0; 4096], 20 << 20).unwrap();
    };
    let Some(device) = changed(dir.path(), fill, change) else { return };
    let device = Arc::new(counting(device));
    let pool = vfscale::pool_on(device.clone()).open().unwrap();
    device.state.take();
    assert_eq!(ingest(&pool, dir.path()).unwrap().bytes, 4096);
    let (kinds, bytes) = device.state.take();
    // Most of it are the maps of the pool, and both copies of superblocks.
    println!("{bytes} bytes: {kinds:?}");
    assert!(bytes <= 384 << 10, "{bytes} bytes: {kinds:?}");
    pool.close().unwrap();
}
