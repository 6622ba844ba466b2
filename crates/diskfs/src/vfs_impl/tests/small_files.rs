//! Small files come and go: how many transactions that takes, what reaches the device, and what a
//! crash leaves.

use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::*;
use crate::tools::check::{Options, check};

const PAGE: usize = 4096;

/// Returns a volume on which only the test makes anything durable.
fn quiet(bytes: u64) -> Mounted {
    let Mounted { device, .. } = made(bytes).again();
    opened_with(device, Settings { sync_interval: None, ..Settings::default() })
}

/// A put is a creation and a rename, and a file that comes and goes a creation and a removal: what
/// they free takes few transactions more.
#[test]
fn small_files_are_freed_many_at_a_time() {
    const CALLS: u64 = 2000;
    let mounted = quiet(1024 * MIB);
    let commits = || mounted.fs.volume().journal().unwrap().stats().commits;
    let commits_of = |call: &dyn Fn()| {
        let before = commits();
        (0..CALLS).for_each(|_| call());
        mounted.fs.inactivator.flush();
        commits() - before
    };
    let put = commits_of(&|| {
        mounted.write("/new", &[b'p'; PAGE]);
        mounted.rename("/new", "/kept", RenameFlags::empty()).unwrap();
    });
    let comes_and_goes = commits_of(&|| {
        mounted.write("/new", &[b'g'; PAGE]);
        mounted.unlink("/new", AtFlags::empty()).unwrap();
    });
    // A busy machine may free some alone.
    for commits in [put, comes_and_goes] {
        assert!((2 * CALLS..5 * CALLS / 2).contains(&commits), "{commits} for {CALLS} calls");
    }
    drop(mounted.again());
}

/// Returns the number of pages of the device that are full of this byte.
fn pages_with(mounted: &Mounted, byte: u8) -> usize {
    let mut bytes = vec![0; mounted.device.size() as usize];
    mounted.device.read_at(0, &mut bytes).unwrap();
    bytes.chunks_exact(PAGE).filter(|page| page.iter().all(|each| *each == byte)).count()
}

#[test]
fn data_that_come_and_go_between_two_syncs_reach_no_device() {
    let mounted = quiet(64 * MIB);
    for _ in 0..200 {
        mounted.write("/new", &[b'g'; 2 * PAGE]);
        mounted.unlink("/new", AtFlags::empty()).unwrap();
    }
    // Otherwise the sync may write the last ones.
    mounted.fs.inactivator.flush();
    mounted.write("/kept", &[b'k'; 2 * PAGE]);
    mounted.fs.sync_fs().unwrap();
    assert_eq!((pages_with(&mounted, b'g'), pages_with(&mounted, b'k')), (0, 2));
}

const ROUNDS: u8 = 4;
const FILES: u8 = 40;
/// The files that stay; the others are removed in each round.
const KEPT: u8 = 8;

/// Returns what file `number` contains in a round.
fn contents(round: u8, number: u8) -> Vec<u8> {
    [round, number].repeat(PAGE)
}

/// While many files are replaced and removed, and freed together, every power cut leaves each name
/// with all of its old contents or all of its new ones, and a clean volume.
#[test]
fn a_crash_while_small_files_are_freed_leaves_whole_ones() {
    let Mounted { device, .. } = made(16 * MIB).again();
    let recording = Arc::new(RecordingDevice::new(device));
    let options = || Settings { sync_interval: None, ..Settings::default() };
    let fs = DiskFs::open(recording.clone(), options()).unwrap();
    let task = Vfs::new(fs.clone()).unwrap().task();
    for round in 0..ROUNDS {
        for number in 0..FILES {
            task.write("/new", contents(round, number)).unwrap();
            task.rename("/new", format!("/{number}")).unwrap();
        }
        // Blocks that were freed since the last round are used again by the next one.
        (KEPT..FILES).for_each(|number| task.remove_file(format!("/{number}")).unwrap());
        fs.inactivator.flush();
        fs.sync_fs().unwrap();
        recording.mark(format!("round {round}"));
    }
    drop(task);
    fs.close().unwrap();
    let mut cuts = 0;
    for state in recording.crash_states(CrashPlan::default().listed_max(4).samples(2)) {
        let checked = check(state.device(), &Options::default(), &mut ()).unwrap();
        assert_eq!(checked.findings, [], "{state}");
        let fs = DiskFs::open(state.device(), options()).unwrap();
        let task = Vfs::new(fs.clone()).unwrap().task();
        let durable = state.marks() as u8;
        for number in 0..FILES {
            let found = task.read(format!("/{number}"));
            let is_promised = number < KEPT && durable > 0;
            let Ok(found) = found else {
                assert!(!is_promised, "{number} is lost, {state}");
                continue;
            };
            let least = if is_promised { durable - 1 } else { durable };
            let is_whole = (least..ROUNDS).any(|round| found == contents(round, number));
            assert!(is_whole, "{number} is neither old nor new, {state}");
        }
        drop(task);
        fs.close().unwrap();
        cuts += 1;
    }
    assert!(cuts > 100, "{cuts} states");
}
