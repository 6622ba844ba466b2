//! Random schedules of names of one directory that several threads change: `RUSTFLAGS="--cfg
//! shuttle" cargo test --release -p vfscale-diskfs --test shuttle names::`.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_diskfs::{Settings, check};
use vfscale_sync::model;
use vfscale_vfs::driver::FileSystem;
use vfscale_vfs::{At, AtFlags, Errno, OpenOptions, RenameFlags, Task};

use crate::volumes::{copy_of, device, device_with_long_log, mounted, one_list, schedules};

/// Options under which all names are changed side by side that may be.
fn side_by_side() -> Settings {
    Settings { dir_heat: 0, ..one_list() }
}

fn make(task: &Task, path: &str) -> Result<(), Errno> {
    let new = OpenOptions::new().write(true).create_new(true).clone();
    task.open_with(path, &new).map(drop).map_err(|error| error.errno())
}

fn rename(task: &Task, from: &str, to: &str) -> Result<(), Errno> {
    let renamed = task.posix().renameat2(At::Cwd, from, At::Cwd, to, RenameFlags::empty());
    renamed.map_err(|error| error.errno())
}

fn names(task: &Task, path: &str) -> Vec<String> {
    let entries = task.read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "." && name != "..");
    names.sort_unstable();
    names
}

/// Asserts that nothing is wrong with a volume after a replay of its log.
fn assert_clean(device: Arc<dyn Device>) {
    let report = check::check(device, &check::Options::default(), &mut ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Runs threads that create, remove and rename in one directory, one that makes this durable, and a
/// reader, and checks what a power cut leaves.
fn side_by_side_against_sync(new: fn() -> Arc<crate::volumes::Disk>) {
    schedules(move || {
        let device = new();
        let (fs, vfs) = mounted(device.clone(), side_by_side());
        let task = vfs.task();
        task.create_dir("/d").unwrap();
        make(&task, "/d/first").unwrap();
        let with = |work: fn(&Task)| model::spawn(vfs.task(), move |task| work(&task));
        let threads = [
            with(|task| {
                make(task, "/d/a").unwrap();
                task.remove_file("/d/a").unwrap();
                make(task, "/d/stays").unwrap();
            }),
            with(|task| {
                rename(task, "/d/first", "/d/second").unwrap();
                make(task, "/d/b").unwrap();
                rename(task, "/d/b", "/d/second").unwrap();
            }),
            with(|task| {
                let seen = names(task, "/d");
                assert!(seen.windows(2).all(|two| two[0] != two[1]), "{seen:?}");
                let known = ["a", "b", "first", "second", "stays"];
                assert!(seen.iter().all(|name| known.contains(&&**name)), "{seen:?}");
            }),
        ];
        fs.sync_fs().unwrap();
        assert_clean(copy_of(&device));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(names(&task, "/d"), ["second", "stays"]);
        fs.sync_fs().unwrap();
        let copy = copy_of(&device);
        assert_clean(copy.clone());
        drop((task, vfs));
        fs.close().unwrap();
        let (fs, vfs) = mounted(copy, side_by_side());
        let task = vfs.task();
        assert_eq!(names(&task, "/d"), ["second", "stays"]);
        drop((task, vfs));
        fs.close().unwrap();
    });
}

/// A power cut leaves each name together with its inode, whatever other threads change in the
/// directory while a push writes its delayed names.
///
/// Race: Names that are changed side by side against the end of a context.
///
/// A transaction notes the change of a name in memory, and its inode enters the context that is
/// open when it commits. The push writes the names into the directory, in a transaction of the same
/// context, which needs the directory exclusively; a thread that changes a name holds it shared
/// from before it notes the change until it has committed. The directory counts as delayed from
/// before the change is noted, and a context does not end while one counts. If the change were
/// noted behind the commit, or the directory counted later, a checkpoint would have the inode
/// without its name.
///
/// Seam: a delayed change / the end of its context; parties: two that change names, one that
/// pushes, a reader.
#[test]
fn names_against_a_sync_and_a_reader() {
    side_by_side_against_sync(device_with_long_log);
}

/// Race: Names that are changed side by side against the end of a context.
///
/// The log has space for two delayed names: threads that find none lock the directory exclusively,
/// and write the names that others have delayed.
#[test]
fn names_against_others_that_find_no_log_space() {
    side_by_side_against_sync(device);
}

/// Race: Names that are changed side by side against the end of a context.
///
/// A rename changes nothing of a group, whose delayed changes would keep the context open as well.
/// Each thread renames a file in a directory of its own, and makes the directory durable; a third
/// thread pushes at the same time. That a directory counts until its names are written is also
/// tested alone (`a_context_does_not_end_while_a_name_is_delayed`).
#[test]
fn renames_that_are_made_durable_against_a_sync() {
    schedules(|| {
        let device = device_with_long_log();
        let (fs, vfs) = mounted(device.clone(), side_by_side());
        let task = vfs.task();
        for dir in ["/d", "/e"] {
            task.create_dir(dir).unwrap();
            make(&task, &format!("{dir}/old")).unwrap();
        }
        let renamers = ["/d", "/e"].map(|dir| {
            model::spawn((vfs.task(), device.clone()), move |(task, device)| {
                let open = task.open_with(dir, &OpenOptions::new().read(true)).unwrap();
                rename(&task, &format!("{dir}/old"), &format!("{dir}/new")).unwrap();
                open.sync_all().unwrap();
                (dir, copy_of(&device))
            })
        });
        fs.sync_fs().unwrap();
        for renamer in renamers {
            let (dir, copy) = renamer.join().unwrap();
            let (fs, vfs) = mounted(copy, side_by_side());
            assert_eq!(names(&vfs.task(), dir), ["new"], "in {dir}");
            drop(vfs);
            fs.close().unwrap();
        }
        drop((task, vfs));
        fs.close().unwrap();
    });
}

/// Race: Names that are changed side by side against the removal of their directory.
///
/// A directory is empty if it has no entry on disk once its delayed names are written there. The
/// thread that removes it holds it exclusively, and leaves it without links; threads that create a
/// name look at the links while they hold it shared.
#[test]
fn names_against_the_removal_of_their_directory() {
    schedules(|| {
        let device = device_with_long_log();
        let (fs, vfs) = mounted(device.clone(), side_by_side());
        let task = vfs.task();
        task.create_dir("/d").unwrap();
        make(&task, "/d/f").unwrap();
        task.create_dir("/e").unwrap();
        let with = |work: fn(&Task) -> Result<(), Errno>| {
            model::spawn(vfs.task(), move |task| work(&task))
        };
        let threads = [
            with(|task| make(task, "/e/new")),
            with(|task| rename(task, "/d/f", "/e/f")),
            with(|task| {
                let removed = task.posix().unlinkat(At::Cwd, "/e", AtFlags::REMOVEDIR);
                removed.map_err(|error| error.errno())
            }),
        ];
        fs.sync_fs().unwrap();
        let [made, moved, removed] = threads.map(|thread| thread.join().unwrap());
        let expected = if removed.is_ok() { Err(Errno::NOENT) } else { Ok(()) };
        assert!(made == expected || removed.is_err(), "{made:?} {removed:?}");
        assert!(moved == expected || removed.is_err(), "{moved:?} {removed:?}");
        assert!(removed.is_ok() || removed == Err(Errno::NOTEMPTY), "{removed:?}");
        assert_clean(copy_of(&device));
        drop((task, vfs));
        fs.close().unwrap();
        assert_clean(device);
    });
}
