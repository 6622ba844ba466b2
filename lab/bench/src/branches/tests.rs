//! Tests of runs: they check what a run does, not how fast.

use std::path::PathBuf;

use super::*;

fn small(image: Option<PathBuf>) -> Branching {
    Branching { image, size: 512 << 20, files: 40, forks: 10, depth: 3, changed: 3, open: 2 }
}

#[test]
fn a_run_measures_everything_in_memory_and_in_an_image() {
    let dir = tempfile::tempdir().unwrap();
    for image in [None, Some(dir.path().join("disk.vfs"))] {
        let mut seen = Vec::new();
        let plan = small(image);
        let mut watch = |row: &BranchRow| seen.push(row.name.clone());
        let report = branches(&plan, &Interrupt::new(), &mut watch).unwrap();
        let names: Vec<_> = report.rows.iter().map(|row| row.name.clone()).collect();
        assert_eq!((&names, names.len()), (&seen, 51));
        let closed = &report.rows[0];
        assert_eq!(closed.count, 10);
        assert!(report.rows.iter().all(|row| row.median <= row.p99 && row.p99 <= row.max));
        // A change in a branch takes space, and not that of the whole file.
        let changed = report.rows.iter().find(|row| row.name.contains("synced change")).unwrap();
        assert!((4096.0..1e6).contains(&changed.median), "{changed:?}");
        let many = |name: &str| report.rows.iter().find(|row| row.name.contains(name)).unwrap();
        let [all, each] = ["3 branches with", "each of them"].map(|name| many(name).median);
        assert!((3.0 * each - all).abs() < 1.0 && (8192.0..1e6).contains(&each), "{all} {each}");
        let [idle, used] = ["branches, idle", "10 written"].map(|name| many(name).median);
        // So few branches may take memory that was free before.
        assert!(idle < 1e9 && used < 1e9, "{idle} {used}");
        let read: BranchReport = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(read.table(), report.table());
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn bad_plans_and_interrupts_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("mine");
    std::fs::write(&image, "untouched").unwrap();
    let refused = |plan: &Branching| branches(plan, &Interrupt::new(), &mut |_| ()).unwrap_err();
    assert!(refused(&small(Some(image.clone()))).to_string().contains("exists already"));
    assert_eq!(std::fs::read(&image).unwrap(), b"untouched");
    assert!(refused(&Branching { forks: 0, ..small(None) }).to_string().contains("--forks"));
    let interrupt = Interrupt::new();
    interrupt.raise();
    let image = dir.path().join("new.vfs");
    let ended = branches(&small(Some(image.clone())), &interrupt, &mut |_| ()).unwrap_err();
    assert!(ended.to_string().contains("interrupted") && !image.exists(), "{ended}");
}
