//! Tests of rounds, on samples with known answers, and of whole runs.

use std::path::Path;
use std::time::Duration;

use vfscale::posix::OFlags;

use super::*;
use crate::base::machine::usable_cpus;
use crate::targets::{Calls, MountSpec, Target};
use crate::workloads::find;

fn sample(ops: u64, elapsed: u64) -> Sample {
    Sample { ops, elapsed, cpu: elapsed, ..Sample::default() }
}

#[test]
fn rates_of_work_of_a_fixed_time_add_up() {
    let round =
        summarize(&[sample(100, 1_000_000_000), sample(300, 2_000_000_000)], 2, Theft::now());
    assert_eq!(round.rate, 250.0);
    assert!((round.used - 1.5).abs() < 1e-9);
}

#[test]
fn a_fixed_amount_of_work_takes_until_the_last_is_done() {
    let fixed = |ops, elapsed| Sample { fixed: true, ..sample(ops, elapsed) };
    let round = summarize(&[fixed(100, 1_000_000_000), fixed(300, 2_000_000_000)], 2, Theft::now());
    assert_eq!(round.rate, 200.0);
}

#[test]
fn the_share_is_that_of_the_worker_who_waited_most() {
    let waiting = Sample { waited: 250, ..sample(1, 1_000) };
    let round = summarize(&[sample(1, 1_000), waiting], 2, Theft::now());
    assert!(round.share <= 0.75, "{}", round.share);
}

/// Where each CPU has many workers, a round lasts until each of them has had its turns.
#[test]
fn a_round_of_many_workers_is_longer() {
    let plan = Plan::new(vec![find("slob").unwrap()], vec![TargetSpec::Memory]);
    let cpus = usable_cpus().len();
    let times = |per_cpu: usize| plan.slice_of(per_cpu * cpus).div_duration_f64(plan.slice);
    assert_eq!([1, 6, 11, 12, 72].map(times), [1.0, 1.0, 1.0, 2.0, 12.0]);
    let many = Plan { threads: vec![72 * cpus], ..plan.clone() };
    assert!(many.estimate() > 10 * plan.estimate());
}

#[test]
fn no_case_always_follows_the_same_one() {
    let follows = |cases: usize, round| -> Vec<(usize, usize)> {
        let order = order(cases, round, 1);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..cases), "{order:?}");
        order.windows(2).map(|two| (two[0], two[1])).collect()
    };
    for round in (0..8).step_by(2) {
        let [one, other] = [round, round + 1].map(|round| follows(2, round));
        assert_eq!(one[0], (other[0].1, other[0].0), "two cases swap places");
    }
    let pairs: Vec<_> = (0..8).flat_map(|round| follows(14, round)).collect();
    let most = pairs.iter().map(|pair| pairs.iter().filter(|other| *other == pair).count()).max();
    assert!(most < Some(5), "{pairs:?}");
}

/// Two workers on one CPU work in turn: their rates don't add up, and waiting for each other is no
/// disturbance. What another process takes is.
#[test]
fn workers_who_share_a_cpu_have_the_rate_of_the_whole_time() {
    let half = |begin| Sample { begin, cpu: 500, waited: 500, ..sample(100, 1_000) };
    let round = summarize(&[half(0), half(1_000)], 1, Theft::now());
    assert!((round.rate - 200.0 / 2e-6).abs() < 1.0, "{}", round.rate);
    assert!((round.used - 0.5).abs() < 1e-9);
    let crowd = [half(0), half(0)];
    let round = summarize(&crowd, 1, Theft::now());
    assert!((round.rate - 200.0 / 1e-6).abs() < 1.0 && round.share > 0.9, "{}", round.rate);
    let robbed = crowd.map(|one| Sample { cpu: 250, waited: 750, ..one });
    let round = summarize(&robbed, 1, Theft::now());
    assert!(round.share <= 0.5 + 1e-9, "{}", round.share);
    assert!((round.used - 0.5).abs() < 1e-9);
}

#[test]
fn rates_over_time_come_from_marks() {
    let ms = 1_000_000;
    // 100 in the first interval and 300 in the second; the other worker 50 in each.
    let marks = vec![(100 * ms, 100), (200 * ms, 400), (230 * ms, 430)];
    let one = Sample { marks, ..sample(430, 230 * ms) };
    let two = Sample { marks: vec![(50 * ms, 25), (200 * ms, 100)], ..sample(100, 200 * ms) };
    let rates = intervals(&[one, two.clone()]);
    assert_eq!(rates.len(), 2);
    assert!((rates[0] - 1_500.0).abs() < 1e-6 && (rates[1] - 3_500.0).abs() < 1e-6, "{rates:?}");
    // A worker without marks was done too soon for a rate over time.
    assert!(intervals(&[two, sample(1, 1)]).is_empty());
}

#[test]
fn shares_of_all_times() {
    let of = |nanos: &mut dyn Iterator<Item = u64>, pace| {
        let mut all = histogram();
        nanos.for_each(|nanos| all.record(nanos).unwrap());
        latency(&all, Some(pace))
    };
    let times = of(&mut (1..=1_000).rev(), Pace::Rate(5.0)).unwrap();
    assert_eq!((times.p50, times.p90, times.p99, times.p999), (500, 900, 990, 999));
    assert_eq!((times.max, times.count, times.rate), (1_000, 1_000, Some(5.0)));
    let one = of(&mut [7].into_iter(), Pace::Closed).unwrap();
    assert_eq!((one.p50, one.p999, one.max), (7, 7, 7));
    // Longer times are exact to a thousandth.
    let long = of(&mut [3_000_000_017].into_iter(), Pace::Closed).unwrap();
    assert!(long.p50.abs_diff(3_000_000_017) < 3_000_000, "{long:?}");
    assert!(of(&mut [].into_iter(), Pace::Closed).is_none());
}

/// A plan that takes a few milliseconds for each round.
fn quick(names: &[&str], targets: &[TargetSpec]) -> Plan {
    let workloads = names.iter().map(|name| find(name).unwrap()).collect();
    let mut plan = Plan::new(workloads, targets.to_vec());
    plan.slice = Duration::from_millis(2);
    plan.warm_up = Duration::from_millis(1);
    plan.rounds = 5;
    plan.files = 100;
    // These tests check what runs do, and not how fast.
    plan.share_min = 0.0;
    plan
}

/// A mark in the file system of the first round is not in that of the second.
#[test]
fn each_round_in_memory_has_a_file_system_of_its_own() {
    let plan = quick(&["open-close-own-dir"], &[TargetSpec::Memory]);
    let mut run = Run {
        plan: &plan,
        stop: &Interrupt::new(),
        watch: &mut (),
        resources: vec![TargetResources::Memory],
        machine: Machine::this(),
        own_cwd: true,
        report: Report::empty(0),
    };
    let mut case = run.cases(plan.workloads[0]).unwrap().remove(0);
    run.warm_up(&mut case).unwrap();
    let calls = |case: &Case| match &case.file_system {
        CaseTarget::Memory(memory) => memory.enter().unwrap(),
        _ => unreachable!("the target is memory"),
    };
    let is_marked = |case: &Case| calls(case).stat(c".").unwrap().mtime == 7;
    let marking = calls(&case);
    marking.touch(&marking.open(c".", OFlags::RDONLY).unwrap(), 7).unwrap();
    run.round(&mut case).unwrap();
    assert!(is_marked(&case));
    run.round(&mut case).unwrap();
    assert!(!is_marked(&case));
    // A file system is checked before another one replaces it.
    calls(&case).mkdir(c"stray").unwrap();
    assert!(run.round(&mut case).unwrap_err().reason.contains("2 names"));
    assert_eq!(case.rounds.len(), 2);
    run.note(case);
    assert_eq!(run.report.results.len(), 1);
}

fn names_in(dir: &Path) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_run_measures_all_cases_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mine"), "untouched").unwrap();
    let path = TargetSpec::Path(dir.path().to_owned());
    let names = ["open-close-own-dir", "rename-cross-dir"];
    let mut plan = quick(&names, &[TargetSpec::Memory, path]);
    plan.threads = vec![1, 2];
    plan.before = vec![vec!["lockref".into(), "dcache-hash".into()]];
    plan.latency = Some(Pace::Closed);
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    // Memory with and without the patches, and the directory; each with one worker and with two.
    assert_eq!(report.results.len(), 2 * 3 * 2);
    for result in &report.results {
        assert_eq!(result.rounds.len(), 5);
        assert!(result.ops_per_s.min > 0.0 && result.ops_per_s.min <= result.ops_per_s.median);
        assert!(result.latency_ns.is_some_and(|times| times.count > 0 && times.p50 > 0));
        assert_eq!(result.mount.is_none(), result.case.target == "memory");
    }
    let count = |compared| report.ratios.iter().filter(|r| r.compared == compared).count();
    assert_eq!(count(Compared::Patches), 2 * 2);
    assert_eq!(count(Compared::Threads), 2 * 2);
    assert_eq!(count(Compared::Targets), 2 * 2);
    assert_eq!(names_in(dir.path()), ["mine"]);
    assert_eq!(std::fs::read_to_string(dir.path().join("mine")).unwrap(), "untouched");
}

#[test]
fn volumes_are_made_and_removed_or_left_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept.vfs");
    let volume = vfscale::volume(&kept).create(64 << 20).open().unwrap();
    volume.task().write("/mine", "untouched").unwrap();
    volume.close().unwrap();
    let targets = [kept.clone(), dir.path().join("new.vfs")].map(TargetSpec::Volume);
    let names = ["create-many-sync", "append-sync", "write-seq", "read-seq"];
    let mut plan = quick(&names, &targets);
    plan.before = vec![vec!["lockref".into(), "cil-lists".into()]];
    plan.database = 2 << 20;
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    // Each image with the patches and without.
    assert_eq!(report.results.len(), names.len() * 4);
    let before = report.results.iter().filter(|r| r.case.before == ["lockref", "cil-lists"]);
    assert_eq!(before.count(), names.len() * 2);
    assert_eq!(names_in(dir.path()), ["kept.vfs"]);
    let volume = vfscale::volume(&kept).open().unwrap();
    assert_eq!(volume.task().read_to_string("/mine").unwrap(), "untouched");
    assert_eq!(volume.task().read_dir("/").unwrap().count(), 1);
    volume.close().unwrap();
}

#[test]
fn pretended_cpus_have_slots() {
    let mut plan = quick(&["open-close-same-dir"], &[TargetSpec::Memory]);
    plan.cpus = Some(80);
    plan.threads = vec![8];
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    assert_eq!(report.results[0].cpus_pretended, Some(80));
    assert_eq!(plan.scaling(&[]).unwrap().files_lock_slots(), 80);
}

#[test]
fn the_time_of_a_run_is_that_of_its_cases() {
    let mut plan = quick(&["stat-deep", "aim-short"], &[TargetSpec::Memory]);
    plan.users = vec![1, 2, 3];
    let one = plan.estimate();
    // Four cases, each with a warm-up of a millisecond and five rounds of two.
    assert!(one >= Duration::from_millis(4 * 11) && one < Duration::from_millis(4 * 22), "{one:?}");
    plan.before = vec![vec!["lockref".into()]];
    assert_eq!(plan.estimate(), one * 2);
    plan.threads = vec![1, 2];
    assert_eq!(plan.estimate(), one * 4);
    // The directory has no patches to disable.
    plan.targets.push(TargetSpec::Path("/".into()));
    assert_eq!(plan.estimate(), one * 6);
    plan.lockstat = true;
    assert!(plan.estimate() > one * 6);
}

/// Stops a run when it reaches a certain case.
struct StopAt<'a>(usize, &'a Interrupt);

impl Watch for StopAt<'_> {
    fn at(&mut self, _: f64, _: &CaseName) {
        match self.0.checked_sub(1) {
            Some(left) => self.0 = left,
            None => self.1.raise(),
        }
    }
}

#[test]
fn an_interrupted_run_reports_the_rounds_until_then_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let plan = quick(&["create-unlink-own-dir"], &[TargetSpec::Path(dir.path().to_owned())]);
    let stop = Interrupt::new();
    // The warm-up and two rounds.
    let report = run(&plan, &stop, &mut StopAt(3, &stop)).unwrap();
    assert!(report.interrupted && !report.is_complete());
    assert_eq!(report.results[0].rounds.len(), 2);
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let path = TargetSpec::Path("/".into());
    let refused = |change: fn(&mut Plan), target: &TargetSpec| {
        let mut plan = quick(&["stat-deep"], std::slice::from_ref(target));
        change(&mut plan);
        plan.check().unwrap_err().to_string()
    };
    let memory = TargetSpec::Memory;
    assert!(refused(|plan| plan.rounds = 4, &memory).contains("at least 5"));
    assert!(refused(|plan| plan.threads = vec![0], &memory).contains("--threads 0"));
    assert!(refused(|plan| plan.workloads.clear(), &memory).contains("workload"));
    assert!(refused(|plan| plan.before = vec![vec!["lockref".into()]], &path).contains("memory"));
    assert!(refused(|plan| plan.before = vec![vec!["magic".into()]], &memory).contains("lockref"));
    let of_volumes = refused(|plan| plan.before = vec![vec!["cil-lists".into()]], &memory);
    assert!(of_volumes.contains("volumes"));
    assert!(refused(|plan| plan.cpus = Some(4), &path).contains("--cpus"));
    assert!(refused(|plan| plan.lockstat = true, &path).contains("memory"));
    assert!(refused(|plan| plan.processes = true, &memory).contains("path:DIR"));
    assert!(refused(|plan| plan.mixes = vec![(1, 1), (0, 0)], &memory).contains("--mix 0:0"));
    let mut all = quick(&["stat-deep"], &[memory]);
    all.before = vec![vec!["all".into()]];
    all.check().unwrap();
    let memory = vfscale::PATCHES.iter().filter(|patch| !patch.is_of_volumes());
    assert!(memory.map(vfscale::Patch::name).eq(all.before[0].iter().map(String::as_str)));
    assert!(!all.before[0].contains(&"cil-lists".into()));
}

#[test]
fn directories_that_can_not_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (target, word) in [(dir.path().join("missing"), "make it first"), (file, "directory")] {
        let plan = quick(&["stat-deep"], &[TargetSpec::Path(target.clone())]);
        let error = run(&plan, &Interrupt::new(), &mut ()).unwrap_err().to_string();
        assert!(error.contains(&target.display().to_string()), "{error}");
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn targets_are_read() {
    assert_eq!(TargetSpec::parse("memory").unwrap(), TargetSpec::Memory);
    assert_eq!(TargetSpec::parse("path:/a:b").unwrap(), TargetSpec::Path("/a:b".into()));
    let error = |text| TargetSpec::parse(text).unwrap_err().to_string();
    assert_eq!(TargetSpec::parse("volume:a").unwrap(), TargetSpec::Volume("a".into()));
    for text in ["mount:memory", "mount:./memory", "mount+noxattr,sync:memory", "mount+ro:a+b:c"] {
        assert_eq!(TargetSpec::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(TargetSpec::parse("mount:memory").unwrap(), TargetSpec::Mount(MountSpec::default()));
    for text in ["path:", "volume:", "mount:", "mount+ro", "path+ro:a", "tmpfs", "", "memory:"] {
        assert!(error(text).contains("path:DIR"), "{text}");
    }
}
