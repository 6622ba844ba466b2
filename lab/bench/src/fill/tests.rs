//! Tests of a small run, and of plans that are refused.

use super::*;

fn plan(dir: &tempfile::TempDir) -> Fill {
    Fill {
        image: dir.path().join("disk.vfs"),
        size: 64 << 20,
        keep: false,
        files: 501,
        per_directory: 100,
        workers: 2,
        before: vec![],
        log_size: Some(2 << 20),
        cache: 16 << 20,
        memory_max: None,
        every: Duration::from_millis(1),
    }
}

fn run(plan: &Fill) -> Result<FillReport> {
    fill(plan, &Interrupt::new(), &mut |_| {})
}

#[test]
fn fill_counts_and_removes_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let plan = plan(&dir);
    assert_eq!((plan.share(0), plan.share(1), plan.directories()), (251, 250, 2 + 3 + 3));
    let report = run(&plan).unwrap();
    assert_eq!(
        report.totals.iter().map(|t| t.phase).collect::<Vec<_>>(),
        [Phase::Create, Phase::Remove]
    );
    for total in &report.totals {
        assert!(total.rate > 0.0 && total.rate_first > 0.0 && total.rate_last > 0.0, "{total:?}");
        assert!(total.sync_seconds <= total.seconds);
        let last = report.samples.iter().rfind(|sample| sample.phase == total.phase).unwrap();
        assert_eq!(last.done, 501);
        assert!(last.resident > 0 && last.resident <= report.resident_max);
        assert!(last.image > 0);
    }
    assert!(!plan.image.exists());
    assert!(report.table().contains("last tenth"), "{}", report.table());
    let back: FillReport = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(back.samples.len(), report.samples.len());
}

#[test]
fn patches_can_be_disabled() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(plan(&dir).scaling().unwrap(), Scaling::default());
    let all = Fill { before: vec!["all".into()], ..plan(&dir) };
    assert_eq!(all.scaling().unwrap(), Scaling::kernel_2_6());
    let before = ["cil-lists", "orphan"].map(str::to_owned).to_vec();
    let some = Fill { before: before.clone(), ..plan(&dir) };
    let due = Scaling::default().and_before("cil-lists").unwrap().and_before("orphan").unwrap();
    assert_eq!(some.scaling().unwrap(), due);
    let report = run(&some).unwrap();
    assert_eq!(report.before, before);
    assert!(report.table().ends_with("without cil-lists, orphan\n"), "{}", report.table());
}

/// A retained image is a volume without files, and is not overwritten.
#[test]
fn an_image_that_is_kept_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Fill { keep: true, ..plan(&dir) };
    run(&plan).unwrap();
    let volume = vfscale::volume(&plan.image).open().unwrap();
    let figures = volume.task().posix().statfs(At::Cwd, "/").unwrap();
    assert_eq!(figures.files - figures.files_free, 1);
    volume.close().unwrap();
    assert!(matches!(run(&plan), Err(Error::Usage(_))));
}

#[test]
fn fill_ends_at_its_memory_limit_and_when_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    // More files than it can create before the first sample.
    let plan = Fill { files: 100_000, memory_max: Some(1), ..plan(&dir) };
    let why = run(&plan).unwrap_err().to_string();
    assert!(why.contains("MiB of memory"), "{why}");
    assert!(!plan.image.exists());
    let interrupt = Interrupt::new();
    interrupt.raise();
    let why = fill(&plan, &interrupt, &mut |_| {}).unwrap_err().to_string();
    assert!(why.contains("interrupted"), "{why}");
}

#[test]
fn fill_refuses_impossible_plans() {
    let dir = tempfile::tempdir().unwrap();
    for plan in [
        Fill { files: 0, ..plan(&dir) },
        Fill { per_directory: 0, ..plan(&dir) },
        Fill { workers: 0, ..plan(&dir) },
        Fill { before: vec!["magic".into()], ..plan(&dir) },
    ] {
        assert!(matches!(run(&plan), Err(Error::Usage(_))));
        assert!(!plan.image.exists());
    }
}

#[test]
fn tenths_are_of_files_and_not_of_time() {
    let sample = |seconds, done| FillSample {
        phase: Phase::Create,
        seconds,
        done,
        rate: 0.0,
        resident: 0,
        image: 0,
    };
    // A hundred per second at first, ten per second later.
    let samples = [sample(1.0, 100), sample(5.0, 500), sample(9.0, 900), sample(19.0, 1000)];
    assert_eq!(tenths(&samples, 1000), (100.0, 10.0));
    assert_eq!(tenths(&samples[3..], 1000), (1000.0 / 19.0, 1000.0 / 19.0));
}
