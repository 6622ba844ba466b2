//! Power cuts: after each one a branch has, block by block, what was flushed or written later.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::{CrashPlan, Fault, FaultyDevice, RecordingDevice};

use crate::base::plant::{Plant, Plants};
use crate::state::commit::Shared;
use crate::state::head::Purpose;
use crate::{Branch, Error, Pool};

const UNIT: usize = 4096;
pub(crate) type Recording = Arc<RecordingDevice<MemoryDevice>>;

/// The contents that a block may have after a power cut: the last flushed one first. Contents are
/// numbers, 0 for zeros.
type Allowed = Vec<u64>;

/// The model of a branch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    blocks: BTreeMap<u64, Allowed>,
    /// The contents at its last fork.
    base: BTreeMap<u64, u64>,
    read_only: bool,
}

impl Model {
    fn write(&mut self, block: u64, content: u64) {
        self.blocks.entry(block).or_insert_with(|| vec![0]).push(content);
    }

    fn flush(&mut self) {
        for allowed in self.blocks.values_mut() {
            allowed.drain(..allowed.len() - 1);
        }
    }

    fn contents(&self) -> BTreeMap<u64, u64> {
        self.blocks.keys().map(|block| (*block, self.now(*block))).collect()
    }

    /// A branch that has just been forked.
    pub(crate) fn forked(base: BTreeMap<u64, u64>, read_only: bool) -> Self {
        let blocks = base.iter().map(|(block, content)| (*block, vec![*content])).collect();
        Self { blocks, base, read_only }
    }

    fn now(&self, block: u64) -> u64 {
        self.blocks.get(&block).map_or(0, |allowed| allowed[allowed.len() - 1])
    }
}

/// All branches, by name.
type World = HashMap<String, Model>;

pub(crate) fn content(number: u64) -> Vec<u8> {
    let words = (0..UNIT as u64 / 8).map(|at| if number == 0 { 0 } else { number << 12 | at });
    words.flat_map(u64::to_le_bytes).collect()
}

/// Returns the number of a content, `u64::MAX` for one that is none.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    let first = u64::from_le_bytes(bytes[..8].try_into().unwrap()) >> 12;
    if bytes == content(first) { first } else { u64::MAX }
}

/// A run: a pool on a device that records, with a model.
pub(crate) struct Run {
    pub(crate) device: Recording,
    /// Where the pool begins.
    first: u64,
    pub(crate) pool: Pool,
    open: HashMap<String, Arc<Branch>>,
    /// The states of the model after each mark: those in which the pool may be found, any of them.
    worlds: Vec<Vec<World>>,
    world: World,
    random: Random,
    next: u64,
    blocks: u64,
    /// The present call, for reports.
    label: String,
}

pub(crate) fn device(places: u64) -> Recording {
    let memory = MemoryDevice::with_block_size(places * UNIT as u64, 4096).unwrap();
    Arc::new(RecordingDevice::new(memory))
}

impl Run {
    fn new(places: u64, blocks: u64, seed: u64) -> Self {
        let device = device(places);
        let pool = Pool::create(device.clone(), [7; 16]).unwrap();
        pool.create_branch("main", blocks * UNIT as u64).unwrap();
        Self::on(device, 0, pool, Model::default(), blocks, seed)
    }

    /// Goes on with a pool that begins at `first`, whose only branch has the contents of a model.
    pub(crate) fn on(
        device: Recording,
        first: u64,
        pool: Pool,
        model: Model,
        blocks: u64,
        seed: u64,
    ) -> Self {
        let mut run = Self {
            device,
            first,
            open: HashMap::new(),
            pool,
            worlds: vec![Vec::new()],
            next: 1 + model.blocks.values().flatten().max().copied().unwrap_or(0),
            world: World::from([("main".into(), model)]),
            random: Random::new(seed),
            blocks,
            label: String::new(),
        };
        run.mark(&[]);
        run
    }

    /// Notes that from here on the world is the present one, or one of `others`.
    fn mark(&mut self, others: &[World]) {
        let mut worlds = vec![self.world.clone()];
        worlds.extend_from_slice(others);
        self.worlds.push(worlds);
        self.device.mark(&*self.label);
    }

    pub(crate) fn branch(&mut self, name: &str) -> Arc<Branch> {
        let open = || self.pool.branch(name).unwrap();
        self.open.entry(name.into()).or_insert_with(open).clone()
    }

    fn write(&mut self, name: &str) {
        let branch = self.branch(name);
        let block = self.random.below(self.blocks);
        let count = (1 + self.random.below(3)).min(self.blocks - block);
        let mut bytes = Vec::new();
        for block in block..block + count {
            self.world.get_mut(name).unwrap().write(block, self.next);
            bytes.extend(content(self.next));
            self.next += 1;
        }
        // Before the call: any block of it may be there at any cut during the call.
        self.mark(&[]);
        branch.write_at(block * UNIT as u64, &bytes).unwrap();
    }

    fn flush(&mut self, name: &str) {
        self.branch(name).flush().unwrap();
        self.world.get_mut(name).unwrap().flush();
        self.mark(&[]);
    }

    /// Makes a call after which the world is `after`, and during which it may be either.
    fn change<T>(&mut self, after: World, call: impl FnOnce(&Pool) -> Result<T, Error>) -> bool {
        self.mark(std::slice::from_ref(&after));
        let is_ok = match call(&self.pool) {
            Ok(_) => true,
            Err(Error::Full | Error::Refused { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        if is_ok {
            self.world = after;
        }
        self.mark(&[]);
        is_ok
    }

    fn fork(&mut self, parent: &str) {
        let name = format!("b{}", self.next);
        self.next += 1;
        let mut after = self.world.clone();
        let model = after.get_mut(parent).unwrap();
        model.flush();
        model.base = model.contents();
        let read_only = self.random.below(4) == 0;
        let child = Model::forked(model.base.clone(), read_only);
        after.insert(name.clone(), child);
        self.change(after, |pool| pool.fork(parent, &name, read_only));
    }

    fn close(&mut self, name: &str) {
        if let Some(branch) = self.open.remove(name) {
            branch.close().unwrap();
        }
        self.world.get_mut(name).unwrap().flush();
        self.mark(&[]);
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.close(name);
        let mut after = self.world.clone();
        after.remove(name);
        self.change(after, |pool| pool.delete(name));
    }

    /// Rolls a branch back. Its contents go on under another name, unless it has written nothing.
    fn rollback(&mut self, name: &str) {
        self.close(name);
        let mut after = self.world.clone();
        let model = after.get_mut(name).unwrap();
        let rolled = Model::forked(model.base.clone(), false);
        let old = std::mem::replace(model, rolled);
        let mut names = (1..).map(|number| format!("{name}@{number}"));
        let kept = names.find(|name| !after.contains_key(name)).unwrap();
        let without = after.clone();
        after.insert(kept.clone(), old);
        self.mark(&[without.clone(), after.clone()]);
        match self.pool.rollback(name) {
            Ok(told) => {
                assert!(told.as_ref().is_none_or(|told| *told == kept));
                self.world = if told.is_some() { after } else { without };
            }
            Err(Error::Full | Error::Refused { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        self.mark(&[]);
    }

    /// Has a branch adopt another one, whatever it has written itself.
    fn adopt(&mut self, parent: &str, child: &str) {
        self.close(parent);
        self.close(child);
        let mut after = self.world.clone();
        let mut model = after.remove(child).unwrap();
        model.base = model.contents();
        after.insert(parent.into(), model);
        self.change(after, |pool| pool.adoption(parent, child).and_then(|it| pool.adopt(&it)));
    }

    /// Looks at what a branch has, while it goes on.
    fn snapshot(&mut self, name: &str) {
        self.world.get_mut(name).unwrap().flush();
        let taken = match self.pool.snapshot(name, || ()) {
            Ok(taken) => taken,
            Err(Error::Full) => return,
            Err(error) => panic!("{error}"),
        };
        let model = self.world[name].clone();
        if !model.read_only {
            self.write(name);
        }
        for block in 0..self.blocks {
            let mut bytes = vec![1; UNIT];
            taken.read_at(block * UNIT as u64, &mut bytes).unwrap();
            assert_eq!(number(&bytes), model.now(block), "{name} block {block}");
        }
        taken.close().unwrap();
    }

    fn rename(&mut self, name: &str) {
        self.close(name);
        let mut after = self.world.clone();
        let (model, to) = (after.remove(name).unwrap(), format!("r{}", self.next));
        self.next += 1;
        after.insert(to.clone(), model);
        self.change(after, |pool| pool.rename(name, &to));
    }

    pub(crate) fn reap(&mut self, places: u64) -> bool {
        let more = self.pool.reap(places).unwrap().more;
        let report = self.pool.check().unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        self.mark(&[]);
        more
    }

    /// Returns the name of a branch.
    pub(crate) fn any(&mut self) -> String {
        let mut names: Vec<_> = self.world.keys().cloned().collect();
        names.sort();
        self.random.one(&names.iter().map(|name| &**name).collect::<Vec<_>>()).into()
    }

    /// Calls of all kinds on a tree of branches.
    pub(crate) fn tree(&mut self, calls: usize) {
        for _ in 0..calls {
            let name = self.any();
            let count = self.world.len();
            let call = self.random.below(20);
            self.label = format!("{call} {name}");
            match call {
                0..2 if count < 6 => self.fork(&name),
                2 if count > 2 => self.delete(&name),
                3 if count < 6 => self.rollback(&name),
                4 => self.rename(&name),
                5..7 => _ = self.reap(1),
                7..10 => self.flush(&name),
                10 if count > 2 => {
                    let child = self.any();
                    if child != name {
                        self.adopt(&name, &child);
                    }
                }
                11 => self.snapshot(&name),
                _ if !self.world[&name].read_only => self.write(&name),
                _ => {}
            }
        }
    }

    pub(crate) fn check_live(&mut self) {
        for name in self.world.keys().cloned().collect::<Vec<_>>() {
            let branch = self.branch(&name);
            for block in 0..self.blocks {
                let mut bytes = vec![1; UNIT];
                branch.read_at(block * UNIT as u64, &mut bytes).unwrap();
                assert_eq!(number(&bytes), self.world[&name].now(block), "{name} block {block}");
            }
        }
    }

    /// Recovers after power cuts, and returns the first violation.
    pub(crate) fn sweep(&self, plan: CrashPlan) -> Result<usize, String> {
        self.sweep_with(plan, &[])
    }

    /// Recovers, with faults, after power cuts, and returns the first violation.
    fn sweep_with(&self, plan: CrashPlan, plants: &[Plant]) -> Result<usize, String> {
        let mut count = 0;
        for state in self.device.crash_states(plan) {
            if state.marks() == 0 {
                continue;
            }
            count += 1;
            let tell = |what: String| {
                let labels = &self.device.marks()[state.marks().saturating_sub(6)..state.marks()];
                format!("after {}: {what}; last calls: {labels:?}", state.id())
            };
            let faults = Plants::default();
            plants.iter().for_each(|plant| faults.add(*plant));
            let opened = Shared::open_with(state.device(), self.first, 1, Purpose::Use, faults)
                .and_then(|shared| Pool::recovered(Arc::new(shared)));
            let pool = match opened {
                // Only a repair goes on without a block that was being written.
                Err(Error::Unreadable { .. }) => {
                    Pool::open_repaired(state.device(), self.first).map(|(pool, _)| pool)
                }
                opened => opened,
            };
            let pool = pool.map_err(|error| tell(error.to_string()))?;
            self.explain(&pool, state.marks()).map_err(tell)?;
        }
        Ok(count)
    }

    /// Finds a world that explains the branches of a recovered pool.
    fn explain(&self, pool: &Pool, marks: usize) -> Result<(), String> {
        let report = pool.check().map_err(|error| error.to_string())?;
        if !report.problems.is_empty() {
            return Err(format!("{:#?}", report.problems));
        }
        let mut found = HashMap::new();
        for info in pool.list() {
            let branch = pool.branch(&info.name).map_err(|error| error.to_string())?;
            let mut numbers = Vec::new();
            for block in 0..self.blocks {
                let mut bytes = vec![1; UNIT];
                branch.read_at(block * UNIT as u64, &mut bytes).map_err(|e| e.to_string())?;
                numbers.push(number(&bytes));
            }
            found.insert(info.name, numbers);
        }
        let why: Vec<String> =
            self.worlds[marks].iter().filter_map(|world| mismatch(world, &found)).collect();
        if why.len() < self.worlds[marks].len() { Ok(()) } else { Err(why.join("; ")) }
    }
}

/// Returns the first thing that a world does not explain.
fn mismatch(world: &World, found: &HashMap<String, Vec<u64>>) -> Option<String> {
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<BTreeSet<_>>();
    let (told, there) = (names(world.keys().collect()), names(found.keys().collect()));
    if told != there {
        return Some(format!("branches {there:?}, not {told:?}"));
    }
    for (name, numbers) in found {
        for (block, number) in numbers.iter().enumerate() {
            let allowed = world[name].blocks.get(&(block as u64)).cloned().unwrap_or(vec![0]);
            if !allowed.contains(number) {
                return Some(format!("{name} block {block}: {number}, not of {allowed:?}"));
            }
        }
    }
    None
}

pub(crate) fn plan() -> CrashPlan {
    CrashPlan::default().exhaustive_bits(4).listed_max(6).samples(2)
}

/// Writes and flushes of one branch, at random.
fn one_branch(run: &mut Run, calls: usize) {
    for _ in 0..calls {
        match run.random.below(3) {
            0 => run.flush("main"),
            _ => run.write("main"),
        }
    }
}

#[test]
fn a_branch_keeps_what_was_flushed() {
    let seed = seed();
    for round in 0..4 {
        // Few places and blocks: reuse is at once.
        let mut run = Run::new(160, 12, seed + round);
        one_branch(&mut run, 60);
        run.check_live();
        let count = run.sweep(plan()).unwrap();
        assert!(count > 200, "{count} states");
    }
}

#[test]
fn a_branch_of_several_leaves_keeps_what_was_flushed() {
    let mut run = Run::new(400, 1600, seed());
    one_branch(&mut run, 40);
    run.check_live();
    run.sweep(plan()).unwrap();
}

/// Blocks of the pool that are being written when power fails may be unreadable after that: the
/// superblocks, the bitmaps, the log.
#[test]
fn blocks_that_cannot_be_read() {
    let seed = seed();
    for round in 0..4 {
        let mut run = Run::new(300, 12, seed + round);
        one_branch(&mut run, 50);
        let log = run.pool.shared.state.lock().table.named("main").unwrap().log.unwrap();
        let bytes = |from: u64, count: u64| from * UNIT as u64..(from + count) * UNIT as u64;
        let ranges = [bytes(0, 32), bytes(log.place, u64::from(log.blocks))];
        run.sweep(plan().lost_in(ranges)).unwrap();
    }
}

/// Plants a fault, and returns whether a few sweeps find it.
fn is_found(plant: Plant, play: fn(&mut Run)) -> bool {
    (0..12).any(|seed| {
        let mut run = Run::new(160, 12, seed);
        run.pool.shared.plants.add(plant);
        play(&mut run);
        run.sweep(plan()).is_err()
    })
}

#[test]
fn planted_faults_of_one_branch_are_found() {
    let plants = [
        Plant::RecordBeforeContent,
        Plant::OverwriteUnconfirmed,
        Plant::EarlyReuse,
        Plant::RootBeforeContent,
        Plant::SuperblockEarly,
        Plant::FirstRecordLate,
    ];
    for plant in plants {
        assert!(is_found(plant, |run| one_branch(run, 60)), "{plant:?}");
    }
}

#[test]
fn a_closed_branch_has_everything() {
    let mut run = Run::new(400, 30, 3);
    for _ in 0..20 {
        run.write("main");
    }
    run.close("main");
    let pool = Pool::open(run.device.clone()).unwrap();
    run.worlds.push(vec![run.world.clone()]);
    run.explain(&pool, run.worlds.len() - 1).unwrap();
}

#[test]
fn a_branch_has_one_writer() {
    let run = Run::new(400, 30, 3);
    let branch = run.pool.branch("main").unwrap();
    let again = run.pool.branch("main").unwrap_err();
    assert_eq!(again, Error::InUse("main".into()));
    let delete = run.pool.delete("main").unwrap_err();
    assert_eq!(delete, Error::InUse("main".into()));
    drop(branch);
    run.pool.branch("main").unwrap();
}

/// A branch that is dropped has its writes when it is opened again.
#[test]
fn a_dropped_branch_goes_on() {
    let run = Run::new(400, 30, 3);
    let branch = run.pool.branch("main").unwrap();
    branch.write_at(4096, &content(5)).unwrap();
    drop(branch);
    let branch = run.pool.branch("main").unwrap();
    let mut bytes = vec![0; 4096];
    branch.read_at(4096, &mut bytes).unwrap();
    assert_eq!(number(&bytes), 5);
    branch.close().unwrap();
    assert!(branch.read_at(4096, &mut bytes).is_err() && branch.flush().is_err());
    let again = run.pool.branch("main").unwrap();
    drop(branch);
    assert_eq!(run.pool.branch("main").unwrap_err(), Error::InUse("main".into()));
    again.read_at(4096, &mut bytes).unwrap();
    assert_eq!(number(&bytes), 5);
    again.close().unwrap();
    run.pool.close().unwrap();
}

#[test]
fn a_tree_of_branches_keeps_what_was_flushed() {
    let seed = seed();
    for round in 0..6 {
        let mut run = Run::new(400, 10, seed + round);
        run.tree(70);
        run.check_live();
        run.sweep(plan().samples(1)).unwrap();
    }
}

#[test]
fn planted_faults_of_forks_are_found() {
    for plant in [Plant::ForkWithoutDepth, Plant::DeadForgotten, Plant::EarlyReuse] {
        let is_found = (0..12).any(|seed| {
            let mut run = Run::new(400, 10, seed);
            run.pool.shared.plants.add(plant);
            let play = std::panic::AssertUnwindSafe(|| {
                run.tree(60);
                run.check_live();
                run.sweep(plan())
            });
            !matches!(std::panic::catch_unwind(play), Ok(Ok(_)))
        });
        assert!(is_found, "{plant:?}");
    }
}

/// Branches that are closed again and again, so that they take logs that others have left.
fn spares(run: &mut Run, calls: usize) {
    for _ in 0..calls {
        let (name, count) = (run.any(), run.world.len());
        let call = run.random.below(10);
        run.label = format!("{call} {name}");
        match call {
            0 if count < 4 => run.fork(&name),
            1..3 => run.close(&name),
            3..6 => run.flush(&name),
            _ if !run.world[&name].read_only => run.write(&name),
            _ => {}
        }
    }
}

#[test]
fn branches_with_spare_logs_keep_what_was_flushed() {
    let seed = seed();
    for round in 0..6 {
        let mut run = Run::new(500, 10, seed + round);
        spares(&mut run, 90);
        run.check_live();
        run.sweep(plan().samples(1)).unwrap();
    }
}

#[test]
fn planted_faults_of_spare_logs_are_found() {
    let plants: [(&[Plant], &[Plant]); 6] = [
        (&[Plant::SpareSequenceAgain], &[]),
        (&[Plant::SpareKept], &[]),
        (&[Plant::SpareTwice], &[]),
        (&[Plant::FirstUnchecked], &[]),
        (&[], &[Plant::SpareNotAdopted]),
        (&[], &[Plant::SpareAdoptedLate]),
    ];
    for (playing, opening) in plants {
        let is_found = (0..12).any(|seed| {
            let mut run = Run::new(500, 10, seed);
            playing.iter().for_each(|plant| run.pool.shared.plants.add(*plant));
            let play = std::panic::AssertUnwindSafe(|| {
                spares(&mut run, 60);
                run.check_live();
                run.sweep_with(plan(), opening)
            });
            !matches!(std::panic::catch_unwind(play), Ok(Ok(_)))
        });
        assert!(is_found, "{playing:?} {opening:?}");
    }
}

/// Places that are in use when all branches but one have gone are those that this one has.
#[test]
fn space_comes_back() {
    let seed = seed();
    for round in 0..20 {
        let mut run = Run::new(1500, 1200, seed + round);
        for _ in 0..6 {
            run.tree(40);
            run.check_live();
        }
        let keep = run.any();
        for name in run.world.keys().cloned().collect::<Vec<_>>() {
            if name != keep {
                run.delete(&name);
            }
        }
        // A fork takes the place of what is kept of the last adoption.
        run.fork(&keep);
        run.delete(&format!("b{}", run.next - 1));
        run.close(&keep);
        while run.reap(50) {}
        let blocks = run.world[&keep].blocks.len() as u64;
        let report = run.pool.check().unwrap();
        // Contents, a root and three leaves at most; logs; the table, twice: blocks, a leaf, the
        // root.
        let state = run.pool.shared.state.lock();
        let table = 2 * (state.table.blocks() + u64::from(state.table.levels()));
        drop(state);
        let most = blocks + 4 + run.pool.shared.spare_places() + table;
        assert!(report.used <= most, "{} of {most} places", report.used);
        run.check_live();
    }
}

/// The model of a branch that several threads use.
struct Threads {
    run: std::sync::Mutex<Run>,
    /// The last content of each block whose write has returned.
    returned: std::sync::Mutex<BTreeMap<u64, u64>>,
}

impl Threads {
    fn write(&self, branch: &Branch, block: u64) {
        let next = {
            let mut run = self.run.lock().unwrap();
            let next = run.next;
            run.next += 1;
            run.world.get_mut("main").unwrap().write(block, next);
            run.mark(&[]);
            next
        };
        branch.write_at(block * UNIT as u64, &content(next)).unwrap();
        self.returned.lock().unwrap().insert(block, next);
    }

    fn flush(&self, branch: &Branch) {
        let covered = self.returned.lock().unwrap().clone();
        branch.flush().unwrap();
        let mut run = self.run.lock().unwrap();
        let model = run.world.get_mut("main").unwrap();
        for (block, content) in covered {
            let allowed = model.blocks.get_mut(&block).unwrap();
            if let Some(at) = allowed.iter().position(|one| *one == content) {
                allowed.drain(..at);
            }
        }
        run.mark(&[]);
    }
}

/// Lets three threads write and flush one branch, and sweeps.
fn threads_of_one_branch(seed: u64, plant: Option<Plant>) -> Result<usize, String> {
    let mut run = Run::new(300, 12, seed);
    // Writes take different times, so those of other threads overtake them.
    let slow = Arc::new(FaultyDevice::new(run.device.clone()));
    let count = AtomicU64::new(seed);
    let wait = move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        vfscale_harness::pause(Duration::from_micros(Random::new(number).below(300)));
    };
    slow.arm(Fault::on(Operation::Write).from(1).run(wait));
    run.pool = Pool::open(slow).unwrap();
    plant.into_iter().for_each(|plant| run.pool.shared.plants.add(plant));
    let branch = run.pool.branch("main").unwrap();
    let threads = Threads { run: run.into(), returned: Default::default() };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (threads, branch) = (&threads, &branch);
            scope.spawn(move || {
                let mut random = Random::new(seed + thread);
                for _ in 0..30 {
                    match random.below(3) {
                        0 => threads.flush(branch),
                        _ => threads.write(branch, thread * 4 + random.below(4)),
                    }
                }
            });
        }
    });
    threads.run.into_inner().unwrap().sweep(plan())
}

/// Race: Overwrites of a block against the flush that closes its batch.
///
/// A flush closes a batch while no writer is inside, so its checksums are those of contents that
/// were written, and later writes see that the blocks are fragile.
#[test]
fn threads_of_one_branch_keep_what_was_flushed() {
    let seed = seed();
    for round in 0..4 {
        threads_of_one_branch(seed + 10 * round, None).unwrap();
    }
}

#[test]
fn a_batch_that_is_not_closed_is_found() {
    let seed = seed();
    let plant = Some(Plant::BatchNotClosed);
    assert!((0..100).any(|round| threads_of_one_branch(seed + 10 * round, plant).is_err()));
}
