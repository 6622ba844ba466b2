//! The state of unsynced files after a crash: new files, and files that replace others.

use std::thread;
use std::time::{Duration, Instant};
use vfscale_vfs::OpenOptions;

use vfscale_testkit::{Fault as DeviceFault, Gate};

use super::*;
use crate::format::superblock::LogPlace;

const OLD: &[u8] = &[b'o'; 9000];
const NEW: &[u8] = &[b'n'; 8192];

/// Returns a volume on which only the test makes anything durable, with a durable file `/f`.
fn with_old(options: Settings) -> Mounted {
    let Mounted { device, .. } = made(16 * MIB).again();
    let mounted = opened_with(device, Settings { sync_interval: None, ..options });
    mounted.write("/f", OLD);
    mounted.write("/other", b"");
    mounted.fs.sync_fs().unwrap();
    mounted
}

/// Syncs another file, and then crashes.
fn crashed_after_another_sync(mounted: Mounted) -> Mounted {
    mounted.write("/other", b"changed");
    mounted.task.open_with("/other", &OpenOptions::new().write(true)).unwrap().sync_all().unwrap();
    mounted.crashed()
}

fn renamed_over(options: Settings, flags: RenameFlags) -> Mounted {
    let mounted = with_old(options);
    mounted.write("/tmp", NEW);
    mounted.rename("/tmp", "/f", flags).unwrap();
    crashed_after_another_sync(mounted)
}

#[test]
fn a_file_that_is_renamed_over_another_has_its_data_after_a_crash() {
    let left = renamed_over(Settings::default(), RenameFlags::empty());
    assert_eq!(
        (left.read("/f"), left.names("/")),
        (NEW.to_vec(), vec!["f".into(), "other".into()])
    );
    let left = renamed_over(Settings::default(), RenameFlags::EXCHANGE);
    assert_eq!((left.read("/f"), left.read("/tmp")), (NEW.to_vec(), OLD.to_vec()));
}

/// The names and the data of a small file are one transaction, wherever the data are.
#[test]
fn a_small_file_replaces_another_in_one_transaction() {
    for new in [NEW, b"short"] {
        let mounted = with_old(Settings::default());
        // Nothing frees it meanwhile.
        let _old = mounted.task.open("/f").unwrap();
        mounted.write("/tmp", new);
        let commits = || mounted.fs.volume().journal().unwrap().stats().commits;
        let before = commits();
        mounted.rename("/tmp", "/f", RenameFlags::empty()).unwrap();
        assert_eq!(commits(), before + 1);
        assert_eq!(mounted.fs.files.pages().unstable(), 0);
    }
}

/// A mount that disables the option writes nothing for it.
#[test]
fn without_auto_da_alloc_a_rename_writes_no_data() {
    let options = || Settings { auto_da_alloc: false, ..Settings::default() };
    assert_eq!(renamed_over(options(), RenameFlags::empty()).read("/f"), b"");
}

/// Writing the new data fails, so the rename fails and the old file remains.
#[test]
fn a_rename_of_data_that_are_lost_keeps_the_old_file() {
    let device = with_old(Settings::default()).again().device;
    let faulty = Arc::new(FaultyDevice::new(device));
    let options = Settings { sync_interval: None, ..Settings::default() };
    let fs = DiskFs::open(faulty.clone(), options).unwrap();
    let vfs = Vfs::new(fs.clone()).unwrap();
    let task = vfs.task();
    task.write("/tmp", NEW).unwrap();
    faulty.arm(DeviceFault::on(Operation::Write).fail(OsError::IO));
    let renamed = task.rename("/tmp", "/f");
    assert_eq!(renamed.unwrap_err().errno(), Errno::IO);
    faulty.disarm();
    assert_eq!(task.read("/f").unwrap(), OLD);
}

/// This tests each way of cutting a file to nothing, and also data that fit into the inode.
///
/// Race: Forcing the log while a file is replaced by truncation.
///
/// An `fsync` of one file makes durable that another one was truncated to zero. The new data of the
/// latter are written back before. A thread that forces the log finds the file on a list; or it
/// finds that another thread has taken it, and waits, as a sync does. A file joins the list with
/// the write that gives it new data, after it has been counted, and is subtracted after it was
/// written: a thread that finds the count zero has to wait for none.
/// `a_file_that_is_replaced_is_the_old_one_or_the_new_one` fails with `auto_da_alloc` off.
#[test]
fn a_file_that_is_written_anew_has_its_new_data_after_a_crash() {
    for new in [NEW, b"short"] {
        let mounted = with_old(Settings::default());
        mounted.write("/f", new);
        assert_eq!(crashed_after_another_sync(mounted).read("/f"), new);

        let mounted = with_old(Settings::default());
        mounted.task.posix().truncate("/f", 0).unwrap();
        let file = mounted.task.open_with("/f", &OpenOptions::new().write(true)).unwrap();
        // Another file is synced in the middle.
        file.pwrite(&new[..1], 0).unwrap();
        mounted
            .task
            .open_with("/other", &OpenOptions::new().write(true))
            .unwrap()
            .sync_all()
            .unwrap();
        file.pwrite(&new[1..], 1).unwrap();
        drop(file);
        assert_eq!(crashed_after_another_sync(mounted).read("/f"), new);
    }
}

#[test]
fn without_auto_da_alloc_a_sync_writes_no_other_file() {
    let options = || Settings { auto_da_alloc: false, ..Settings::default() };
    let mounted = with_old(options());
    mounted.write("/f", NEW);
    assert_eq!(crashed_after_another_sync(mounted).read("/f"), b"");
}

/// Waits until `is_so` holds for the state that a crash would leave.
fn wait_until(mounted: &FaultyVolume, is_so: impl Fn(&Mounted) -> bool) {
    vfscale_harness::wait_until("a state of the volume", || is_so(&mounted.left()));
}

/// While the data of a new file wait on their way to the device, the name of the file is not
/// durable either. The file is made while a pass is writing another one, so the log has its name
/// when that pass is about to force it.
#[test]
fn unsynced_names_become_durable_after_their_data() {
    let interval = Duration::from_millis(20);
    let mounted = FaultyVolume::new(Some(interval));
    let [first, second] = [Gate::new(), Gate::new()];
    // Data are written outside the log.
    let log = mounted.left().fs.volume().superblock().log();
    let LogPlace::Inside { start, blocks } = log else { panic!("{log:?}") };
    let [log_start, log_end] = [start * 4096, (start + blocks) * 4096];
    let hold = |gate: &Arc<Gate>| {
        mounted.device.disarm();
        for data in [(2 + 4) * 4096..log_start, log_end..16 * MIB] {
            mounted.device.arm(DeviceFault::on(Operation::Write).within(data).hold(gate));
        }
    };
    // The first change writes the copies of the superblock, which lie among the data.
    mounted.task.set_permissions("/", Mode::from(0o755)).unwrap();
    hold(&first);
    mounted.task.write("/other", NEW).unwrap();
    first.wait_for(1);
    hold(&second);
    mounted.task.write("/new", NEW).unwrap();
    first.open();
    second.wait_for(1);
    // The wait is long enough for a log that is forced periodically.
    vfscale_harness::pause(10 * interval);
    let names = mounted.left().names("/");
    second.open();
    let is_new = |name: &String| name == "new";
    assert!(!names.iter().any(is_new), "{names:?} without data");
    wait_until(&mounted, |left| left.names("/").iter().any(is_new));
    assert_eq!(mounted.left().read("/new"), NEW);
}

/// An `fsync` of a small file writes what it is about: a few requests, however much of another file
/// was written anew. A file that is written anew and stays small is written with it.
#[test]
fn an_fsync_does_not_wait_for_a_large_file_that_is_written_anew() {
    const LARGE: usize = 7 * MIB as usize;
    let mounted = FaultyVolume::new(None);
    mounted.task.write("/large", vec![1; LARGE]).unwrap();
    mounted.task.write("/small", b"old").unwrap();
    mounted.task.write("/other", b"").unwrap();
    mounted.fs.sync_fs().unwrap();
    let unstable = || mounted.fs.files.pages().unstable();
    assert_eq!(unstable(), 0);
    let writing = OpenOptions::new().write(true).truncate(true);
    let large = mounted.task.open_with("/large", &writing).unwrap();
    for at in 0..7 {
        large.pwrite(&vec![2; MIB as usize], at * MIB).unwrap();
        if at == 1 {
            mounted.task.open_with("/other", &writing).unwrap().sync_all().unwrap();
            assert!(unstable() <= 1, "a file that is written anew was small, and is not written");
        }
    }
    // The first pages are written behind the writer, and the others wait.
    let left = 3 * MIB / 4096;
    let begun = Instant::now();
    while unstable() > left {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written behind the writer");
        thread::yield_now();
    }
    let other = mounted.task.open_with("/other", &writing).unwrap();
    other.pwrite(b"x", 0).unwrap();
    let before = mounted.device.calls(Operation::Write);
    other.sync_all().unwrap();
    let requests = mounted.device.calls(Operation::Write) - before;
    assert!(requests <= 8, "{requests} requests");
    assert!(unstable() >= left / 2, "{} pages are left of {left}", unstable());
    mounted.task.write("/small", b"new").unwrap();
    other.pwrite(b"y", 0).unwrap();
    other.sync_all().unwrap();
    assert_eq!(mounted.left().read("/small"), b"new");
}
