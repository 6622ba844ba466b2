//! A run: rounds, in each of which all cases work one after the other.
//!
//! All cases of a workload (each target, number of workers, with and without patches) are prepared
//! first and exist at the same time. In each round all of them work, one after the other, so a
//! disturbance of the machine affects all of them, and ratios are taken within rounds. What a case
//! leaves behind (work in the background, contents of the CPU's caches) affects the next one, so
//! each round has an order of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use vfscale_vfs::lockstat;

use super::instance::CaseTarget;
use super::plan::{Pace, Plan};
use super::team::{Failure, Team};
use crate::base::error::{Error, Fault, Result};
use crate::base::interrupt::Interrupt;
use crate::base::machine::{self, Machine, Mount, Theft};
use crate::base::results::{
    CaseName, CaseResult, Compared, Comparison, CpuShare, Failed, JournalWork, Latency, LockMicros,
    LockRound, LockRow, OverTime, Report, SourceRate,
};
use crate::base::stats::{self, Ratio, Rng, Spread, Verdict};
use crate::measure::player::{Sample, Timing};
use crate::targets::TargetSpec;
use crate::targets::memory::Memory;
use crate::targets::path::{Scratch, has_own_cwd};
use crate::targets::volume::{Image, JournalLook};
use crate::workloads::{Description, Scene};

/// Maximum number of attempts at a round that gets too little of its CPUs.
const ATTEMPTS: usize = 3;

/// Length of the intervals of [`OverTime`].
const INTERVAL_NANOS: u64 = 100_000_000;

/// Held while locks are recorded: the statistics belong to the process, in which other runs may be
/// under way.
static LOCKSTAT: Mutex<()> = Mutex::new(());

/// An observer of the progress of a run.
pub trait Watch {
    /// Receives the completed share of the run, from 0 to 1, and the next case.
    fn at(&mut self, done: f64, next: &CaseName);
}

/// Ignores the progress.
impl Watch for () {
    fn at(&mut self, _: f64, _: &CaseName) {}
}

/// Resources of a target that a run holds from its start to its end.
enum TargetResources {
    /// Nothing: each case creates its own file system.
    Memory,
    /// Sets of disabled patches, each with an image; first the named image, without any.
    Volume(Vec<(Vec<String>, Arc<Image>)>),
    /// A directory that the run has made, perhaps in a mount that it has made, too.
    Directory(Arc<Scratch>),
}

impl TargetResources {
    fn of(spec: &TargetSpec, plan: &Plan) -> Result<TargetResources> {
        Ok(match spec {
            TargetSpec::Memory => TargetResources::Memory,
            TargetSpec::Volume(path) => {
                let mut images = vec![(vec![], Image::open(path, plan.scaling(&[])?)?)];
                for (n, before) in plan.before_of(spec).into_iter().enumerate() {
                    let image = Image::beside(path, n, plan.scaling(&before)?)?;
                    images.push((before, image));
                }
                TargetResources::Volume(images)
            }
            TargetSpec::Path(dir) => TargetResources::Directory(Scratch::new(dir)?),
            TargetSpec::Mount(mount) => TargetResources::Directory(Scratch::mounted(mount)?),
        })
    }

    /// Returns the mount of a directory; `None` for the library.
    fn mount(&self) -> Option<Mount> {
        match self {
            TargetResources::Directory(scratch) => Mount::of(scratch.dir()),
            TargetResources::Memory | TargetResources::Volume(..) => None,
        }
    }

    /// Returns the mount options of the target, in words.
    fn options(&self, mount: Option<&Mount>) -> String {
        match (self, mount) {
            (_, Some(mount)) => mount.options.clone(),
            (TargetResources::Volume(images), None) => images[0].1.options(),
            _ => "memory".to_owned(),
        }
    }
}

/// The result of one round of a case.
struct Round {
    rate: f64,
    share: f64,
    stolen: f64,
    used: f64,
    system: f64,
    intervals: Vec<f64>,
    ops: u64,
    /// Work of the journal, for volumes.
    journal: Option<JournalLook>,
}

struct Case {
    name: CaseName,
    target: usize,
    workload: &'static Description,
    scene: Scene,
    file_system: CaseTarget,
    team: Option<Team>,
    rounds: Vec<Round>,
    disturbed: usize,
    /// Nanoseconds of single operations.
    latencies: Histogram<u64>,
    lockstat: Option<(LockRound, Vec<LockRow>)>,
    failure: Option<Failure>,
}

/// A run in progress.
struct Run<'a> {
    plan: &'a Plan,
    stop: &'a Interrupt,
    watch: &'a mut dyn Watch,
    /// The resources of each target.
    resources: Vec<TargetResources>,
    machine: Machine,
    own_cwd: bool,
    report: Report,
}

/// Carries out a plan. All files that it creates are removed before it returns, even if it was
/// interrupted or a workload failed.
///
/// # Errors
/// Returns an error if the plan is invalid or a target is unusable. Failures of workloads are in
/// the report.
pub fn run(plan: &Plan, stop: &Interrupt, watch: &mut dyn Watch) -> Result<Report> {
    let mut plan = plan.clone();
    plan.check()?;
    raise_descriptor_limit();
    let resources = plan.targets.iter().map(|target| TargetResources::of(target, &plan));
    let resources = resources.collect::<Result<Vec<_>>>()?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let report = Report::empty(started);
    let machine = Machine::this();
    let own_cwd = has_own_cwd();
    let begin = Instant::now();
    let mut run = Run { plan: &plan, stop, watch, resources, machine, own_cwd, report };
    for (i, workload) in plan.workloads.iter().enumerate() {
        if stop.is_raised() {
            break;
        }
        run.workload(i, workload)?;
    }
    run.report.interrupted = stop.is_raised();
    run.report.seconds = begin.elapsed().as_secs_f64();
    Ok(run.report)
}

/// Returns the order of a number of cases in a round: a random one (Fisher and Yates 1938) in every
/// other round, and then the same one backwards. So no case always follows the same one.
fn order(cases: usize, round: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::new(seed.wrapping_add(round as u64 / 2));
    let mut order: Vec<usize> = (0..cases).collect();
    for i in (1..cases).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Raises the limit of open files: many workers with many open files need more than the usual soft
/// limit.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, or is not enough, the workload reports EMFILE.
    let _ = setrlimit(Resource::Nofile, limit);
}

impl Run<'_> {
    fn workload(&mut self, index: usize, workload: &'static Description) -> Result<()> {
        let mut cases = self.cases(workload)?;
        let steps = (self.plan.workloads.len() * (self.plan.rounds + 1)) as f64;
        for round in 0..=self.plan.rounds {
            let order = order(cases.len(), round, self.plan.random_seed);
            for (i, at) in order.into_iter().enumerate() {
                let part = i as f64 / cases.len() as f64;
                let done = (index * (self.plan.rounds + 1) + round) as f64 + part;
                let case = &mut cases[at];
                if case.failure.is_some() || self.stop.is_raised() {
                    continue;
                }
                self.watch.at(done / steps, &case.name);
                let outcome = if round == 0 { self.warm_up(case) } else { self.round(case) };
                case.failure = outcome.err();
            }
        }
        for case in &mut cases {
            self.finish(case);
        }
        self.compare(&cases);
        for case in cases {
            self.note(case);
        }
        Ok(())
    }

    /// Prepares all cases of a workload; some may have failed.
    fn cases(&self, workload: &'static Description) -> Result<Vec<Case>> {
        let names = self.plan.cases(workload).into_iter();
        let wanted = names.take_while(|_| !self.stop.is_raised());
        wanted.map(|(target, name)| self.case(workload, target, name)).collect()
    }

    fn case(&self, workload: &'static Description, target: usize, name: CaseName) -> Result<Case> {
        let file_system = self.file_system(workload, target, &name)?;
        let scene = Scene {
            workers: name.threads,
            readers: name.readers,
            users: name.users.unwrap_or(0),
            files: self.plan.files,
            database: self.plan.database,
            io_size: self.plan.io_size,
            tree: self.plan.tree.clone(),
            random_seed: self.plan.random_seed,
        };
        let mut case = Case {
            name,
            target,
            workload,
            scene,
            file_system,
            team: None,
            rounds: vec![],
            disturbed: 0,
            latencies: histogram(),
            lockstat: None,
            failure: None,
        };
        match self.team(&case) {
            Ok(team) => case.team = Some(team),
            Err(failure) => case.failure = Some(failure),
        }
        Ok(case)
    }

    /// Returns a place for a case's files: in memory a new file system, elsewhere a new directory.
    fn file_system(
        &self,
        workload: &'static Description,
        target: usize,
        name: &CaseName,
    ) -> Result<CaseTarget> {
        let failed = |reason: String| Error::Workload {
            workload: workload.name,
            target: name.target.clone(),
            reason,
        };
        Ok(match &self.resources[target] {
            TargetResources::Directory(scratch) => CaseTarget::Directory(scratch.case()?),
            TargetResources::Volume(images) => {
                let of_case = images.iter().find(|(before, _)| *before == name.before);
                let image = &of_case.unwrap_or(&images[0]).1;
                CaseTarget::Volume(image.case().map_err(|fault| failed(fault.to_string()))?)
            }
            TargetResources::Memory => {
                let memory = Memory::new(self.plan.scaling(&name.before)?);
                CaseTarget::Memory(memory.map_err(|e| failed(e.to_string()))?)
            }
        })
    }

    /// Creates the files of a case, and starts its workers.
    fn team(&self, case: &Case) -> std::result::Result<Team, Failure> {
        let (kind, scene) = (case.workload.kind, &case.scene);
        case.file_system.prepare(kind, scene)?;
        case.file_system.team(case.workload, scene, self.plan, self.stop)
    }

    /// Checks the file system of a case in memory, and gives the case a new one with new workers.
    ///
    /// Where the files of a file system lie in memory changes its rate by up to 3 %, for as long as
    /// it exists. So rounds in one file system agree about a figure that another one denies.
    fn renew(&self, case: &mut Case) -> std::result::Result<(), Failure> {
        drop(case.team.take());
        case.file_system.inspect(case.workload.kind, &case.scene)?;
        let made = self.file_system(case.workload, case.target, &case.name);
        case.file_system = made.map_err(|e| Fault::wrong(e.to_string()))?;
        case.team = Some(self.team(case)?);
        self.warm_up(case)
    }

    fn warm_up(&self, case: &mut Case) -> std::result::Result<(), Failure> {
        let nanos = self.plan.warm_up.as_nanos() as u64;
        if let Some(team) = &mut case.team {
            team.round(nanos, Timing::Throughput)?;
        }
        Ok(())
    }

    /// Returns the duration of a round in nanoseconds.
    fn nanos_of(&self, case: &Case) -> u64 {
        self.plan.slice_of(case.scene.workers).as_nanos() as u64
    }

    /// Runs a round that counts, up to [`ATTEMPTS`] times. If none gets enough of its CPUs, the
    /// best counts.
    fn round(&self, case: &mut Case) -> std::result::Result<(), Failure> {
        if matches!(case.file_system, CaseTarget::Memory(_)) && !case.rounds.is_empty() {
            self.renew(case)?;
        }
        let nanos = self.nanos_of(case);
        let Some(team) = &mut case.team else { return Ok(()) };
        let mut best: Option<Round> = None;
        for _ in 0..ATTEMPTS {
            let (before, journal) = (Theft::now(), case.file_system.journal());
            let samples = team.round(nanos, Timing::Throughput)?;
            if self.stop.is_raised() {
                // The round was interrupted.
                return Ok(());
            }
            let mut round = summarize(&samples, self.machine.cpus, before);
            let after = case.file_system.journal();
            round.journal = journal.zip(after).map(|(before, after)| after.since(&before));
            let good = round.share >= self.plan.share_min;
            if best.as_ref().is_none_or(|best| best.share < round.share) {
                best = Some(round);
            }
            if good {
                break;
            }
            case.disturbed += 1;
        }
        // The round that counts after all was not discarded.
        if best.as_ref().is_some_and(|best| best.share < self.plan.share_min) {
            case.disturbed -= 1;
        }
        case.rounds.extend(best);
        Ok(())
    }

    /// Finishes a case: times single operations, records lock statistics, and checks the whole
    /// tree.
    fn finish(&self, case: &mut Case) {
        for look in [Self::time_each, Self::look_at_locks] {
            if case.failure.is_none() && !self.stop.is_raised() {
                case.failure = look(self, case).err();
            }
        }
        // The workers close their files before the tree is checked.
        drop(case.team.take());
        if case.failure.is_none() && !self.stop.is_raised() {
            case.failure = case.file_system.inspect(case.workload.kind, &case.scene).err();
        }
        case.file_system.remove();
    }

    fn time_each(&self, case: &mut Case) -> std::result::Result<(), Failure> {
        let nanos = self.nanos_of(case);
        let (Some(pace), Some(team)) = (self.plan.latency, &mut case.team) else { return Ok(()) };
        let timing = match pace {
            Pace::Closed => Timing::Closed,
            Pace::Rate(rate) => {
                Timing::Every((1e9 * case.scene.workers as f64 / rate).max(1.0) as u64)
            }
        };
        for sample in team.round(nanos * 2, timing)? {
            for nanos in sample.latencies {
                // Can't fail: the histogram resizes itself.
                let _ = case.latencies.record(nanos);
            }
        }
        Ok(())
    }

    /// Runs a round with lock statistics on. Recording takes time, so nothing else of it counts.
    fn look_at_locks(&self, case: &mut Case) -> std::result::Result<(), Failure> {
        let is_library = !matches!(case.file_system, CaseTarget::Directory(_));
        let (wanted, nanos) = (self.plan.lockstat && is_library, self.nanos_of(case));
        let (true, Some(team)) = (wanted, &mut case.team) else { return Ok(()) };
        let _alone = LOCKSTAT.lock().unwrap_or_else(PoisonError::into_inner);
        lockstat::reset();
        lockstat::record_for(case.file_system.thread_owner());
        let done = team.round(nanos, Timing::Throughput);
        lockstat::record(false);
        let samples = done?;
        let table = lockstat::Table::now();
        let rows: Vec<LockRow> = table.rows().iter().map(LockRow::of).collect();
        let waited: f64 = rows.iter().map(|row| row.wait_us.total).sum();
        let worked: f64 = samples.iter().map(|sample| sample.elapsed as f64 / 1e3).sum();
        let round = LockRound {
            operations: samples.iter().map(|sample| sample.ops).sum(),
            waiting: (waited / worked.max(1.0)).min(1.0),
        };
        case.lockstat = Some((round, rows));
        Ok(())
    }

    /// Compares each case with the cases that differ from it in one respect.
    fn compare(&mut self, cases: &[Case]) {
        for case in cases.iter().filter(|case| case.name.before.is_empty()) {
            let others = || cases.iter().filter(|o| o.name.users == case.name.users);
            let with = |other: &&Case| other.name.before.is_empty();
            let same = |other: &&Case| other.target == case.target;
            let team = |name: &CaseName| (name.threads, name.readers);
            let as_many = |other: &&Case| team(&other.name) == team(&case.name);
            let targets = others().filter(with).find(as_many);
            let targets = targets.filter(|other| other.target != case.target);
            let threads = others().filter(with).find(same);
            let threads = threads.filter(|other| other.name.threads != case.name.threads);
            let threads = threads.filter(|_| case.name.readers.is_none());
            for other in others().filter(same).filter(as_many).filter(|other| !with(other)) {
                self.compare_two(Compared::Patches, case, Some(other));
            }
            self.compare_two(Compared::Threads, case, threads);
            self.compare_two(Compared::Targets, case, targets);
        }
    }

    fn compare_two(&mut self, compared: Compared, of: &Case, over: Option<&Case>) {
        let Some(over) = over else { return };
        if of.failure.is_some() || over.failure.is_some() {
            return;
        }
        let (a, b) = (of.rates(), over.rates());
        let (bound, seed) = (self.plan.disagreement_max, self.plan.random_seed);
        if let Some(mut ratio) = Ratio::of(&a, &b, bound, seed) {
            let share = of.cpu_share().median.min(over.cpu_share().median);
            if share < self.plan.share_min {
                ratio.verdict = Verdict::Starved;
            }
            let (of, over) = (of.name.clone(), over.name.clone());
            self.report.ratios.push(Comparison { compared, of, over, ratio });
        }
    }

    /// Adds a case to the report.
    fn note(&mut self, case: Case) {
        if let Some(failure) = case.failure {
            // A failure caused by an interruption is not reported.
            if !self.stop.is_raised() {
                let failed = Failed { case: case.name, reason: failure.reason };
                let skipped = failure.unsupported;
                let list =
                    if skipped { &mut self.report.skipped } else { &mut self.report.failures };
                list.push(failed);
            }
            return;
        }
        if case.rounds.is_empty() {
            return;
        }
        let rounds = case.rates();
        let ops_per_s = Spread::of(&rounds);
        let resource = &self.resources[case.target];
        let mount = resource.mount();
        let mount_options = resource.options(mount.as_ref());
        // Without writers there is no redo, and queries count.
        let is_read_only = case.name.readers == Some(case.name.threads);
        let source_unit = case.workload.source_unit.filter(|_| !is_read_only);
        let unit = if is_read_only { "query" } else { case.workload.unit };
        let source_rate = source_unit.map(|rate| SourceRate {
            unit: rate.unit.to_owned(),
            rate: ops_per_s.scaled(rate.factor),
        });
        let result = CaseResult {
            source: case.workload.source.to_owned(),
            unit: unit.to_owned(),
            ops_per_s,
            source_rate,
            disagreement: ops_per_s.disagreement(),
            rounds,
            rounds_disturbed: case.disturbed,
            cpu: case.cpu_share(),
            latency_ns: latency(&case.latencies, self.plan.latency),
            over_time: case.over_time(),
            journal: case.journal(),
            lockstat_round: case.lockstat.as_ref().map(|(round, _)| *round),
            lockstat: case.lockstat.map(|(_, rows)| rows),
            verified: true,
            processes: self.plan.processes,
            pinned: self.plan.pinned,
            cpus_pretended: self.plan.cpus.filter(|_| mount.is_none()),
            own_cwd: self.own_cwd || mount.is_none(),
            machine: self.machine.clone(),
            kernel: machine::kernel(),
            mount_options,
            mount,
            commit: machine::commit(),
            random_seed: self.plan.random_seed,
            case: case.name,
        };
        self.report.results.push(result);
    }
}

impl Case {
    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.rate).collect()
    }

    fn cpu_share(&self) -> CpuShare {
        let all = |of: fn(&Round) -> f64| self.rounds.iter().map(of).collect::<Vec<_>>();
        let shares = all(|round| round.share);
        CpuShare {
            min: stats::quantile(&shares, 0.0),
            median: stats::median(&shares),
            used: stats::median(&all(|round| round.used)),
            system: stats::median(&all(|round| round.system)),
            stolen_max: stats::quantile(&all(|round| round.stolen), 1.0),
        }
    }

    fn over_time(&self) -> Option<OverTime> {
        let rates: Vec<f64> =
            self.rounds.iter().flat_map(|round| round.intervals.iter().copied()).collect();
        if rates.is_empty() {
            return None;
        }
        let (mean, deviation) = stats::mean_and_deviation(&rates);
        Some(OverTime { interval_ms: INTERVAL_NANOS / 1_000_000, mean, deviation })
    }

    fn journal(&self) -> Option<JournalWork> {
        let looks = self.rounds.iter().map(|round| Some((round, round.journal.as_ref()?)));
        let looks = looks.collect::<Option<Vec<_>>>().filter(|looks| !looks.is_empty())?;
        let per_op = |commits: u64, ops: u64| commits as f64 / ops.max(1) as f64;
        let rates = looks.iter().map(|(round, look)| round.rate * per_op(look.commits, round.ops));
        let sum = |of: fn(&(&Round, &JournalLook)) -> u64| looks.iter().map(of).sum();
        let waits = per_op(sum(|(_, look)| look.waits), sum(|(_, look)| look.commits));
        Some(JournalWork {
            transactions_per_s: Spread::of(&rates.collect::<Vec<_>>()),
            transactions_per_op: per_op(sum(|(_, look)| look.commits), sum(|(round, _)| round.ops)),
            waited_per_1000: 1e3 * waits,
            checkpoints: looks.iter().flat_map(|(_, look)| look.checkpoints.clone()).collect(),
        })
    }
}

impl LockRow {
    fn of(row: &lockstat::Row) -> LockRow {
        let times = |times: &lockstat::Times| {
            let [min, max, total, avg] = times.in_micros();
            LockMicros { min, max, total, avg }
        };
        LockRow {
            class: row.name.to_owned(),
            con_bounces: row.con_bounces,
            contentions: row.contentions,
            wait_us: times(&row.wait),
            acq_bounces: row.acq_bounces,
            acquisitions: row.acquisitions,
            hold_us: times(&row.hold),
        }
    }
}

/// Summarizes the samples of a round on this many CPUs.
///
/// The rate of a fixed time is the sum of the workers' rates; that of a fixed amount is the whole
/// amount over the time of the slowest worker. If there are more workers than CPUs, they don't all
/// work all the time, and the rate is that of the time from the first one's start to the last one's
/// end. Then waiting for a CPU is no disturbance: the share is that of the CPU time which they
/// could have used together.
fn summarize(samples: &[Sample], cpus: usize, before: Theft) -> Round {
    let longest = samples.iter().map(|s| s.elapsed).max().unwrap_or(1);
    let stolen = Theft::now().since(before, longest);
    let ops: u64 = samples.iter().map(|s| s.ops).sum();
    let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64;
    let (cpu, system) = (sum(|s| s.cpu), sum(|s| s.system));
    let is_crowded = samples.len() > cpus.max(1);
    let end = samples.iter().map(|s| s.begin + s.elapsed).max().unwrap_or(1);
    let whole = end.saturating_sub(samples.iter().map(|s| s.begin).min().unwrap_or(0)).max(1);
    let rate = if samples.iter().any(|s| s.fixed) && !is_crowded {
        ops as f64 / (longest as f64 / 1e9)
    } else if is_crowded {
        ops as f64 / (whole as f64 / 1e9)
    } else {
        samples.iter().map(Sample::rate).sum()
    };
    let least = if is_crowded {
        cpu / sum(|s| s.cpu + s.waited).min(whole as f64 * cpus as f64).max(1.0)
    } else {
        samples.iter().map(Sample::share).fold(1.0, f64::min)
    };
    let span = if is_crowded { whole } else { longest } as f64;
    Round {
        rate,
        share: (least - stolen).clamp(0.0, 1.0),
        stolen,
        used: cpu / span,
        system: system / span,
        intervals: intervals(samples),
        ops,
        journal: None,
    }
}

/// Returns the rates of all workers together in whole intervals, from their marks.
fn intervals(samples: &[Sample]) -> Vec<f64> {
    let Some(begin) = samples.iter().map(|s| s.begin).min() else { return vec![] };
    // All workers work until the first is done.
    let ends = samples.iter().filter_map(|s| s.marks.last().map(|(t, _)| s.begin + t));
    let end = ends.min().unwrap_or(begin);
    if samples.iter().any(|s| s.marks.is_empty()) {
        return vec![];
    }
    let count = (end - begin) / INTERVAL_NANOS;
    let done = |moment: u64| samples.iter().map(|s| s.done_by(moment)).sum::<f64>();
    (0..count)
        .map(|i| {
            let from = begin + i * INTERVAL_NANOS;
            (done(from + INTERVAL_NANOS) - done(from)) / (INTERVAL_NANOS as f64 / 1e9)
        })
        .collect()
}

impl Sample {
    /// Returns the operations done by a moment, interpolated linearly between marks.
    fn done_by(&self, moment: u64) -> f64 {
        let at = moment.saturating_sub(self.begin) as f64;
        let (mut t0, mut n0) = (0.0, 0.0);
        for &(t, n) in &self.marks {
            let (t, n) = (t as f64, n as f64);
            if at <= t {
                return if t > t0 { n0 + (n - n0) * (at - t0) / (t - t0) } else { n };
            }
            (t0, n0) = (t, n);
        }
        n0
    }
}

/// Creates an auto-resizing histogram with three significant digits.
fn histogram() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are a valid precision")
}

/// Returns the usual percentiles of all times.
fn latency(nanos: &Histogram<u64>, pace: Option<Pace>) -> Option<Latency> {
    let rate = match pace {
        Some(Pace::Rate(rate)) => Some(rate),
        _ => None,
    };
    (!nanos.is_empty()).then(|| Latency {
        rate,
        count: nanos.len(),
        p50: nanos.value_at_quantile(0.5),
        p90: nanos.value_at_quantile(0.9),
        p99: nanos.value_at_quantile(0.99),
        p999: nanos.value_at_quantile(0.999),
        max: nanos.max(),
    })
}

#[cfg(test)]
mod tests;
