//! Crashes of programs that replace a file without a sync: the old or the new file must remain.
//!
//! `VFSCALE_CRASH_STATES` sets the number of checked states (an eighth of 2,000), `VFSCALE_SEED`
//! selects them.

use std::sync::Arc;

use vfscale::posix::{At, RenameFlags};
use vfscale::{OpenOptions, Task, Volume};
use vfscale_block::{Device, MemoryDevice};
use vfscale_crashtest::number;
use vfscale_crashtest::subject::Subject;
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_sync::random::seed;
use vfscale_testkit::{CrashPlan, CrashState, RecordingDevice};

const DEVICE: u64 = 16 << 20;
/// Number of replacements of the file.
const VERSIONS: usize = 8;

/// Returns the bytes of a version: some fit into the inode, others need blocks.
fn bytes_of(version: usize) -> Vec<u8> {
    let sizes = [100, 9_000, 4_096, 1, 70_000];
    vec![b'a' + version as u8; sizes[version % sizes.len()]]
}

/// Makes a device with the first version, which is durable.
fn prepared() -> Arc<dyn Device> {
    let device = MemoryDevice::with_block_size(DEVICE, 512).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    Volumes::default().format(std::slice::from_ref(&device)).unwrap();
    let volume = open(device.clone(), true);
    volume.task().write("/file", bytes_of(0)).unwrap();
    volume.task().write("/other", "").unwrap();
    volume.close().unwrap();
    device
}

fn open(device: Arc<dyn Device>, auto_da_alloc: bool) -> Volume {
    let builder = vfscale::volume_on(device).sync_interval(None).auto_da_alloc(auto_da_alloc);
    builder.open().unwrap()
}

/// Rewrites the file, in place or by a rename.
fn replace(task: &Task, version: usize) {
    let bytes = bytes_of(version);
    match version % 3 {
        0 => task.write("/file", bytes).unwrap(),
        kind => {
            let flags = if kind == 1 { RenameFlags::empty() } else { RenameFlags::EXCHANGE };
            task.write("/new", bytes).unwrap();
            task.posix().renameat2(At::Cwd, "/new", At::Cwd, "/file", flags).unwrap();
        }
    }
}

/// Replaces the file repeatedly, and syncs another file each time. A mark counts the replacements.
fn record(auto_da_alloc: bool) -> Arc<RecordingDevice<Arc<dyn Device>>> {
    let device = Arc::new(RecordingDevice::new(prepared()));
    let volume = open(device.clone(), auto_da_alloc);
    let task = volume.task();
    let other = task.open_with("/other", &OpenOptions::new().write(true)).unwrap();
    for version in 1..VERSIONS {
        replace(&task, version);
        other.pwrite(&[version as u8], version as u64).unwrap();
        other.sync_all().unwrap();
        device.mark(version.to_string());
    }
    drop((other, task));
    volume.close().unwrap();
    device
}

/// Judges a state: the file must be complete, and no older than at the last sync.
fn judge(state: &CrashState) -> Result<(), String> {
    let volume = open(state.device(), true);
    let found = volume.task().read("/file").map_err(|error| error.to_string())?;
    let version = (0..VERSIONS).find(|version| bytes_of(*version) == found);
    match version {
        Some(version) if version >= state.marks() => Ok(()),
        Some(version) => Err(format!("version {version} after {} syncs", state.marks())),
        None => Err(format!("{} bytes, of {:?}", found.len(), found.first())),
    }
}

/// Returns the number of checked states, and the violations.
fn sweep(auto_da_alloc: bool) -> (usize, Vec<String>) {
    let device = record(auto_da_alloc);
    let wanted = (number("VFSCALE_CRASH_STATES", 2_000) / 8).max(1);
    let plan = CrashPlan::default().exhaustive_bits(3).listed_max(4).samples(1).seed(seed());
    // States from the whole run, not only the first ones.
    let states: Vec<CrashState> = device.crash_states(plan).collect();
    let (mut looked, mut wrong) = (0, Vec::new());
    for state in states.iter().step_by(states.len().div_ceil(wanted)) {
        looked += 1;
        if let Err(why) = judge(state) {
            wrong.push(format!("state {}: {why}", state.id()));
        }
    }
    (looked, wrong)
}

/// Race: Forcing the log while a file is replaced by truncation.
#[test]
fn a_file_that_is_replaced_is_the_old_one_or_the_new_one() {
    let (looked, wrong) = sweep(true);
    println!("{looked} states");
    assert!(looked > 0 && wrong.is_empty(), "{wrong:#?}");
}

/// Without `auto_da_alloc`, the sweep detects lost files.
#[test]
fn without_auto_da_alloc_files_are_lost() {
    let (looked, wrong) = sweep(false);
    assert!(!wrong.is_empty(), "{looked} states");
}
