//! The state that all branches of a pool share, and its commits.
//!
//! # Purpose
//!
//! A commit takes the pool from one consistent state to the next: roots of branches, branch table
//! and bitmaps change together. All new blocks go to fresh places (bitmaps to the copy that is not
//! valid); a flush; then the superblock, twice, to those of its places that are older
//! ([`crate::state::head`]); a flush. What the commit gave up is handed out again only after that.
//!
//! # Locks
//!
//! `PoolState` is held over the commit's I/O.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vfscale_sync::Mutex;

use crate::Error;
use crate::disk::device::Disk;
use crate::disk::format::{
    self, Bytes, Entry, FLAT_TABLE, LEAD, Lead, PLACE_BYTES, ROWS, SUPER, Superblock, TWICE,
    VERSION,
};
use crate::disk::layout::Layout;
use crate::disk::record::LogArea;
use crate::space::bitmaps::{self, Lease, Space};
use crate::space::reservations::Held;
use crate::state::branch_table::Table;
use crate::state::head::{self, Newest, Opened, Purpose};
use crate::state::map::Written;
use crate::state::read_spares;

vfscale_sync::lock_class! {
    /// The branch table of a pool, and the right to commit.
    pub(crate) PoolState = ("pool_state", 64020) sleeping;
}

/// The state that commits change.
#[derive(Debug)]
pub(crate) struct State {
    /// The number of the last commit.
    pub(crate) generation: u64,
    pub(crate) next_node: u64,
    /// The size of the pool that the next commit says.
    pub(crate) places: u64,
    pub(crate) table: Table,
    /// The root of the tree of the branch table in the last commit.
    pub(crate) root: Entry,
    /// Places in use by the last commit.
    pub(crate) used: u64,
    /// The spare logs that the next commit names.
    pub(crate) spares: Vec<LogArea>,
    /// Whether there has to be a commit before the pool is used.
    pub(crate) must_commit: bool,
    /// The blocks of the head that the commit writes again.
    pub(crate) mends: Vec<(u64, Box<Bytes>)>,
    /// How many blocks of the head were not whole, of those that are there twice.
    pub(crate) copies: u64,
    /// Blocks that a repair could not read, and goes on without, in words.
    pub(crate) losses: Vec<String>,
    pub(crate) lease: Lease,
    /// Places that commits took from the reserve, and still owe to it.
    debt: u64,
}

/// Does a step of the reaper, and returns whether there may be more room.
pub(crate) struct Reaper(pub(crate) Box<dyn Fn() -> Result<bool, Error> + Send + Sync>);

impl std::fmt::Debug for Reaper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reaper").finish_non_exhaustive()
    }
}

/// Tells the user of a pool of something, without waiting.
pub(crate) struct Notice(pub(crate) Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notice").finish_non_exhaustive()
    }
}

/// The parts of a pool that branches share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Disk,
    pub(crate) space: Space,
    pub(crate) state: Mutex<State, PoolState>,
    /// CPU slots of the locks of branches.
    pub(crate) slots: usize,
    pub(crate) purpose: Purpose,
    /// How many places the spare logs have.
    pub(crate) spare_places: AtomicU64,
    /// Does a step of the reaper, once the pool is open.
    pub(crate) reaper: OnceLock<Reaper>,
    /// Called when there are places to discard.
    pub(crate) freed: OnceLock<Notice>,
    failed: AtomicBool,
    is_low: AtomicBool,
}

impl State {
    /// Notes that places were taken from the reserve.
    pub(crate) fn owe(&mut self, places: u64) {
        self.debt += places;
    }

    /// Gives back to the reserve what it lacks, out of `places` places. Returns how many these are.
    fn repay(&mut self, places: u64) -> u64 {
        let paid = places.min(self.debt);
        self.debt -= paid;
        paid
    }
}

/// Changes for a commit, besides those of the branch table.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) written: Written,
    /// Places that are in use from now on.
    pub(crate) sets: Vec<u64>,
    /// Places that are not any more.
    pub(crate) clears: Vec<u64>,
    /// Zones whose bitmaps are written although no place of them changes.
    pub(crate) zones: BTreeSet<usize>,
    /// How many of `sets` were taken from the reserve.
    pub(crate) reserved: u64,
    /// How many of `clears` were blocks of the pool itself that others have replaced.
    pub(crate) replaced: u64,
    /// The reservations of the branch that gives places up: they are filled first.
    pub(crate) held: Option<Arc<Held>>,
}

impl Change {
    /// Takes a place from the reserve.
    pub(crate) fn place(&mut self, space: &Space, lease: &mut Lease) -> Result<u64, Error> {
        let (place, _) = space.take(lease, 1, 1)?;
        self.sets.push(place);
        self.reserved += 1;
        Ok(place)
    }

    /// Takes a place for a block of the branch table from the reserve, and the next one for its
    /// copy from the budget, if that has it. Returns the entry of the block.
    fn table_place(&mut self, space: &Space, lease: &mut Lease) -> Result<Entry, Error> {
        if space.budget.take(1) {
            if let Ok((place, _)) = space.take(lease, 2, 2) {
                self.sets.extend([place, place + 1]);
                self.reserved += 1;
                return Ok(Entry::twice(place));
            }
            space.give(1);
        }
        Ok(Entry::new(self.place(space, lease)?, 1))
    }
}

impl Shared {
    /// Makes a pool on an empty device.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::Size`] and errors of the device.
    pub(crate) fn create(disk: &Disk) -> Result<(), Error> {
        let mut first = [0; PLACE_BYTES];
        disk.device.read_at(0, &mut first)?;
        if first != [0; PLACE_BYTES] {
            return Err(Error::NotEmpty);
        }
        clear_copies(disk, 0..disk.layout().places)?;
        disk.write(&[(0, Box::new([0; PLACE_BYTES]))])?;
        Self::begin(disk, 0)
    }

    /// Writes the superblocks of a pool without branches, of which `used` places are in use, and
    /// its first block.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn begin(disk: &Disk, used: u64) -> Result<(), Error> {
        let layout = disk.layout();
        let [other, place] = layout.superblocks();
        let zero = |place| (place, Box::new([0; PLACE_BYTES]));
        disk.write(&[other, layout.copy_of_superblock(other)].map(zero))?;
        let mut block: Superblock = format::zeroed();
        block.header = format::header(disk.expect(SUPER, place), 1, 0, 1);
        block.version = VERSION.into();
        block.places = layout.places.into();
        block.next_node = 1.into();
        block.incompat = (FLAT_TABLE | TWICE).into();
        block.used = used.into();
        head::write_superblock(disk, &block)?;
        disk.device.flush()?;
        let mut lead: Lead = format::zeroed();
        lead.header = format::header(disk.expect(LEAD, layout.first), 0, 0, 0);
        lead.version = VERSION.into();
        lead.superblocks = layout.superblocks().map(Into::into);
        lead.group = layout.group.into();
        lead.incompat = if layout.first == 0 { 0 } else { ROWS }.into();
        let lead = format::seal(&lead);
        disk.write(&[(layout.copy_of_lead(), lead.clone()), (layout.first, lead)])?;
        Ok(disk.device.flush()?)
    }

    /// Reads the state of the last commit of the pool that begins at place `first`.
    ///
    /// # Errors
    /// [`Error::NoPool`], [`Error::Features`], [`Error::Damage`] and errors of the device.
    pub(crate) fn open(
        device: Arc<dyn vfscale_block::Device>,
        first: u64,
        slots: usize,
    ) -> Result<Self, Error> {
        Self::open_for(device, first, slots, Purpose::Use)
    }

    /// Opens a pool as [`open`](Self::open) does, for a purpose.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub(crate) fn open_for(
        device: Arc<dyn vfscale_block::Device>,
        first: u64,
        slots: usize,
        purpose: Purpose,
    ) -> Result<Self, Error> {
        let Opened { disk, mends } = head::open_disk(device, first, purpose)?;
        let Newest { block, is_twice, lost } = head::newest(&disk, purpose)?;
        disk.set_places(block.places.get());
        let (used, next_node) = (block.used.get(), block.next_node.get());
        let root = Entry(block.table.get());
        if let Some(what) = disk.layout().complaint_of_table(root) {
            return Err(Error::Damage { place: block.header.place.get(), what });
        }
        let mut table =
            Table::open(&disk, root, head::table_levels(&block), block.table_blocks.get())?;
        if table.records().any(|record| record.id >= next_node) {
            return Err(Error::Damage { place: root.place(), what: "the id of a branch" });
        }
        let spares = read_spares::read(&block, &disk.layout())?;
        let adopted = read_spares::adopt(&disk, &mut table, spares, purpose)?;
        let space = Space::new(&disk, &block.copies, block.zones_made.get(), slots);
        let paid = used.min(space.budget.total());
        if !space.budget.take(paid) {
            return Err(Error::Full);
        }
        space.fill_urgent();
        space.protect_commits();
        let state = State {
            generation: block.header.generation.get(),
            next_node,
            places: block.places.get(),
            table,
            root,
            used,
            spares: adopted.spares,
            must_commit: !adopted.lost.is_empty() || !is_twice || !mends.is_empty(),
            copies: mends.len() as u64 + u64::from(!is_twice),
            mends,
            losses: lost.into_iter().chain(adopted.lost).map(|error| error.loss()).collect(),
            lease: Lease::default(),
            debt: used - paid,
        };
        let (spare_places, reaper, freed, failed, is_low) = Default::default();
        let state = Mutex::new(state);
        let this = Self {
            disk,
            space,
            state,
            slots,
            purpose,
            spare_places,
            reaper,
            freed,
            failed,
            is_low,
        };
        this.count_spares(&this.state.lock());
        Ok(this)
    }

    /// Returns an error if a commit has failed.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub(crate) fn alive(&self) -> Result<(), Error> {
        if self.failed.load(Ordering::Acquire) { Err(Error::Failed) } else { Ok(()) }
    }

    /// Ends the pool: memory and device differ.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Checks that the table and the reserve have room for another node of the history. Gives up
    /// spare logs if the reserve has not.
    ///
    /// # Errors
    /// [`Error::Nodes`], [`Error::Full`], and errors of a commit.
    pub(crate) fn check_room(&self, state: &mut State) -> Result<(), Error> {
        state.table.check_room()?;
        let is_low = |state: &State| state.debt > bitmaps::reserve(self.disk.layout().places) / 3;
        if is_low(state) && (!self.give_up_spares(state)? || is_low(state)) {
            return Err(Error::Full);
        }
        self.alive()
    }

    /// Takes a place for a block of the pool, from the reserve.
    ///
    /// # Errors
    /// Errors of reading bitmaps; [`Error::Full`] if even the reserve is used up.
    pub(crate) fn reserved(&self, state: &mut State, change: &mut Change) -> Result<u64, Error> {
        change.place(&self.space, &mut state.lease)
    }

    /// Commits the branch table and `change`. `drain` waits for the readers that may be inside of
    /// the places that are given up.
    ///
    /// # Errors
    /// Any; the pool has failed then, and each later call says so.
    pub(crate) fn commit(
        &self,
        state: &mut State,
        change: Change,
        drain: impl FnOnce(),
    ) -> Result<(), Error> {
        self.alive()?;
        let result = self.try_commit(state, change, drain);
        if result.is_err() {
            self.fail();
        }
        result
    }

    fn try_commit(
        &self,
        state: &mut State,
        mut change: Change,
        drain: impl FnOnce(),
    ) -> Result<(), Error> {
        let generation = state.generation + 1;
        let mut written = std::mem::take(&mut change.written);
        let (lease, table) = (&mut state.lease, &mut state.table);
        let mut place = || change.table_place(&self.space, lease);
        let (root, given_up) = table.write(generation, &mut place, &mut written)?;
        change.replaced += given_up.len() as u64;
        change.clears.extend(given_up);
        self.space.retain_known(&mut change.clears);
        let bitmaps = self.space.commit(
            &change.sets,
            &change.clears,
            std::mem::take(&mut change.zones),
            generation,
        )?;
        written.blocks.extend(bitmaps);
        written.blocks.append(&mut state.mends);
        self.disk.write_twice(&written.blocks, &written.twice)?;
        self.disk.device.flush()?;
        let used = state.used.saturating_add(change.sets.len() as u64);
        state.used = used.saturating_sub(change.clears.len() as u64);
        self.write_superblock(state, root, generation)?;
        self.disk.device.flush()?;
        (state.generation, state.root, state.must_commit) = (generation, root, false);
        drain();
        self.space.free(&change.clears);
        self.give_back(state, &change);
        if let Some(Notice(call)) = self.freed.get().filter(|_| self.space.has_freed()) {
            call();
        }
        Ok(())
    }

    /// Gives back the places that a commit has made free. First to the reserve, as many as stood in
    /// for blocks that were taken from it; then to the reservations of the branch; then what the
    /// reserve still lacks. A pool that is full for a long time would use up its reserve otherwise.
    fn give_back(&self, state: &mut State, change: &Change) {
        let mut count = change.clears.len() as u64;
        state.debt += change.reserved;
        count -= state.repay(change.replaced.min(count));
        count = change.held.as_ref().map_or(count, |held| held.refill(count));
        count -= state.repay(count);
        self.space.give(count);
        let more = state.debt.min(self.space.budget.available());
        if self.space.budget.take(more) {
            state.debt -= more;
        }
        let is_low = state.debt > bitmaps::reserve(self.disk.layout().places) / 2;
        self.is_low.store(is_low, Ordering::Release);
    }

    /// Returns whether commits have used up half of their reserve.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Acquire)
    }

    fn write_superblock(&self, state: &State, root: Entry, generation: u64) -> Result<(), Error> {
        let mut block: Superblock = format::zeroed();
        let place = self.disk.layout().superblocks()[(generation % 2) as usize];
        block.header =
            format::header(self.disk.expect(SUPER, place), generation, 0, generation % 2);
        block.version = VERSION.into();
        block.places = state.places.into();
        block.table = root.0.into();
        block.table_blocks = state.table.blocks().into();
        block.next_node = state.next_node.into();
        block.used = state.used.into();
        block.zones_made = self.space.describe(&mut block.copies).into();
        let levels = if state.table.levels() == 1 { FLAT_TABLE } else { 0 };
        block.incompat = (levels | TWICE).into();
        read_spares::write(&state.spares, &mut block);
        head::write_superblock(&self.disk, &block)
    }
}

/// Fills the places in a range with zeros where programs that do not know pools look for copies of
/// a volume's superblock.
///
/// # Errors
/// Errors of the device.
pub(crate) fn clear_copies(disk: &Disk, range: std::ops::Range<u64>) -> Result<(), Error> {
    let copies = (10..=27).map(|bit| 1_u64 << bit).filter(|place| range.contains(place));
    let zero: Vec<_> = copies.map(|place| (place, Box::new([0; PLACE_BYTES]))).collect();
    disk.write(&zero)
}

/// Checks that a pool can have a layout.
///
/// # Errors
/// [`Error::Size`].
pub(crate) fn check_layout(layout: &Layout) -> Result<(), Error> {
    if layout.is_valid() {
        return Ok(());
    }
    Err(Error::Size(match layout.first {
        0 => "a pool has 512 KiB to 3.6 TiB",
        _ => {
            "an image with branches has 3.6 TiB at most, in which the volume that it was counts \
             twice, and some space behind that"
        }
    }))
}
