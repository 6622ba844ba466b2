//! Power cuts: after each one a branch has, block by block, what was flushed or written later.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::{CrashPlan, RecordingDevice};

use crate::state::commit::Shared;
use crate::tests::plants::{Known, Plant};
use crate::{Branch, Error, Pool};

const UNIT: usize = 4096;
pub(crate) type Recording = Arc<RecordingDevice<MemoryDevice>>;

/// The contents that a block may have after a power cut: the last flushed one first. Contents are
/// numbers, 0 for zeros.
type Allowed = Vec<u64>;

/// The model of a branch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) blocks: BTreeMap<u64, Allowed>,
    /// All contents that its blocks have had.
    had: BTreeMap<u64, BTreeSet<u64>>,
    /// The contents at its last fork.
    base: BTreeMap<u64, u64>,
    read_only: bool,
}

impl Model {
    pub(crate) fn write(&mut self, block: u64, content: u64) {
        self.blocks.entry(block).or_insert_with(|| vec![0]).push(content);
        self.had.entry(block).or_insert_with(|| [0].into()).insert(content);
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
        let had = base.iter().map(|(block, content)| (*block, [0, *content].into())).collect();
        Self { blocks, had, base, read_only }
    }

    fn now(&self, block: u64) -> u64 {
        self.blocks.get(&block).map_or(0, |allowed| allowed[allowed.len() - 1])
    }
}

/// The contents that a recovered branch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// The last flushed contents, or later ones.
    Flushed,
    /// Anything that its blocks have had.
    Any,
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
    pub(crate) world: World,
    random: Random,
    pub(crate) next: u64,
    blocks: u64,
    /// The present call, for reports.
    label: String,
    /// Changes the memory of the pool between two calls.
    pub(crate) tamper: fn(&Pool, &mut Known),
    known: Known,
    /// Opens the pool after a power cut.
    pub(crate) opening: fn(Arc<dyn Device>, u64) -> Result<Pool, Error>,
}

pub(crate) fn device(places: u64) -> Recording {
    let memory = MemoryDevice::with_block_size(places * UNIT as u64, 4096).unwrap();
    Arc::new(RecordingDevice::new(memory))
}

impl Run {
    pub(crate) fn new(places: u64, blocks: u64, seed: u64) -> Self {
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
            tamper: |_, _| (),
            known: Known::new(),
            opening: |device, first| Pool::recovered(Arc::new(Shared::open(device, first, 1)?)),
        };
        run.mark(&[]);
        run
    }

    /// Goes on with a device above the one that records. No branch was used yet.
    pub(crate) fn reopen(&mut self, above: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>) {
        self.pool = Pool::open(above(self.device.clone())).unwrap();
    }

    /// Notes that from here on the world is the present one, or one of `others`.
    pub(crate) fn mark(&mut self, others: &[World]) {
        let mut worlds = vec![self.world.clone()];
        worlds.extend_from_slice(others);
        self.worlds.push(worlds);
        (self.tamper)(&self.pool, &mut self.known);
        // A device that puts calls off makes them now.
        self.pool.shared.disk.device.read_at(0, &mut []).unwrap();
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
        let read_only = self.random.below(4) == 0;
        self.fork_as(parent, read_only);
    }

    /// Forks a branch, and returns the name of the child.
    fn fork_as(&mut self, parent: &str, read_only: bool) -> Option<String> {
        let name = format!("b{}", self.next);
        self.next += 1;
        let mut after = self.world.clone();
        let model = after.get_mut(parent).unwrap();
        model.flush();
        model.base = model.contents();
        let child = Model::forked(model.base.clone(), read_only);
        after.insert(name.clone(), child);
        let is_done = self.change(after, |pool| pool.fork(parent, &name, read_only));
        is_done.then_some(name)
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

    /// Returns the name that a checkpoint of a branch gets.
    fn numbered(&self, name: &str) -> String {
        let number = |other: &String| {
            let digits = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('@'));
            digits.and_then(|digits| digits.parse::<u32>().ok())
        };
        let greatest = self.world.keys().filter_map(number).max().unwrap_or_default();
        format!("{name}@{}", greatest + 1)
    }

    fn checkpoint(&mut self, branch: &str) {
        let (name, mut after) = (self.numbered(branch), self.world.clone());
        let model = after.get_mut(branch).unwrap();
        model.flush();
        model.base = model.contents();
        let checkpoint = Model::forked(model.base.clone(), true);
        after.insert(name.clone(), checkpoint);
        self.change(after, |pool| {
            pool.checkpoint(branch, "a text", || ()).map(|made| assert_eq!(made, name))
        });
    }

    /// Rolls a branch back, perhaps to another one. Its contents go on under another name, unless
    /// it has written nothing.
    fn rollback(&mut self, name: &str) {
        self.close(name);
        let to = Some(self.any()).filter(|to| self.world[to].read_only);
        let mut after = self.world.clone();
        let base = to.as_ref().map_or(&self.world[name].base, |to| &self.world[to].base).clone();
        let model = after.get_mut(name).unwrap();
        let rolled = Model::forked(base, false);
        let old = std::mem::replace(model, rolled);
        let kept = self.numbered(name);
        let without = after.clone();
        after.insert(kept.clone(), old);
        self.mark(&[without.clone(), after.clone()]);
        let rolled = match &to {
            Some(to) => self.pool.rollback_to(name, to),
            None => self.pool.rollback(name),
        };
        match rolled {
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
        self.adopt_by(parent, child, |pool| {
            pool.adoption(parent, child).and_then(|it| pool.adopt(&it))
        });
    }

    /// Merges a branch into another one, by a fork of that which it adopts.
    fn merge(&mut self, from: &str, into: &str) {
        self.world.get_mut(from).unwrap().flush();
        let Ok(merged) = self.pool.snapshot(from, || ()) else { return };
        let Some(fork) = self.fork_as(into, false) else { return };
        self.write(&fork);
        self.adopt_by(into, &fork, |pool| {
            pool.adoption(into, &fork).and_then(|it| pool.adopt_merged(&it, (&merged, from)))
        });
        merged.close().unwrap();
    }

    fn adopt_by(
        &mut self,
        parent: &str,
        child: &str,
        adopt: impl FnOnce(&Pool) -> Result<(), Error>,
    ) {
        self.close(parent);
        self.close(child);
        let mut after = self.world.clone();
        let mut model = after.remove(child).unwrap();
        model.base = model.contents();
        after.insert(parent.into(), model);
        self.change(after, adopt);
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
                13 if count < 6 => self.checkpoint(&name),
                12 if count < 5 => {
                    let from = self.any();
                    self.merge(&from, &name);
                }
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
            let pool = match (self.opening)(state.device(), self.first) {
                // Only a repair goes on without a block that was being written.
                Err(Error::Unreadable { .. }) => {
                    Pool::open_repaired(state.device(), self.first).map(|(pool, _)| pool)
                }
                opened => opened,
            };
            let pool = pool.map_err(|error| tell(error.to_string()))?;
            self.explain(&pool, state.marks(), Age::Flushed).map_err(tell)?;
        }
        Ok(count)
    }

    /// Finds a world that explains the branches of a recovered pool.
    pub(crate) fn explain(&self, pool: &Pool, marks: usize, age: Age) -> Result<(), String> {
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
            self.worlds[marks].iter().filter_map(|world| mismatch(world, &found, age)).collect();
        if why.len() < self.worlds[marks].len() { Ok(()) } else { Err(why.join("; ")) }
    }
}

/// Returns the first thing that a world does not explain.
fn mismatch(world: &World, found: &HashMap<String, Vec<u64>>, age: Age) -> Option<String> {
    let names = |keys: Vec<&String>| keys.into_iter().cloned().collect::<BTreeSet<_>>();
    let (told, there) = (names(world.keys().collect()), names(found.keys().collect()));
    if told != there {
        return Some(format!("branches {there:?}, not {told:?}"));
    }
    for (name, numbers) in found {
        for (block, number) in numbers.iter().enumerate() {
            let (model, block) = (&world[name], block as u64);
            let allowed = model.blocks.get(&block).cloned().unwrap_or(vec![0]);
            let was_there =
                age == Age::Any && model.had.get(&block).is_some_and(|had| had.contains(number));
            if !allowed.contains(number) && !was_there {
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

/// Asserts that a few sweeps find each fault after calls on a pool of so many places.
fn assert_found(plants: &[Plant], places: u64, play: fn(&mut Run)) {
    for plant in plants {
        let is_found = (0..12).any(|seed| {
            let mut run = Run::new(places, 12, seed);
            plant.plant_in(&mut run);
            let play = std::panic::AssertUnwindSafe(|| {
                play(&mut run);
                run.check_live();
                run.sweep(plan())
            });
            !matches!(std::panic::catch_unwind(play), Ok(Ok(_)))
        });
        assert!(is_found, "{plant:?}");
    }
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
    assert_found(&plants, 160, |run| one_branch(run, 60));
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
    run.explain(&pool, run.worlds.len() - 1, Age::Flushed).unwrap();
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
    let plants = [Plant::ForkWithoutDepth, Plant::DeadForgotten, Plant::EarlyReuse];
    assert_found(&plants, 400, |run| run.tree(60));
}

/// Branches that are closed again and again, so that they take logs that others have left.
pub(crate) fn spares(run: &mut Run, calls: usize) {
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
    let plants = [
        Plant::SpareSequenceAgain,
        Plant::SpareKept,
        Plant::SpareTwice,
        Plant::FirstUnchecked,
        Plant::SpareNotAdopted,
        Plant::SpareAdoptedLate,
    ];
    assert_found(&plants, 500, |run| spares(run, 60));
}

/// Places that are in use when all branches but one have gone are those that this one has.
#[test]
fn space_comes_back() {
    let seed = seed();
    for round in 0..8 {
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
