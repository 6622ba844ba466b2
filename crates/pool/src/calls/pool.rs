//! A pool, and the list of its branches.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vfscale_block::{CowDevice, Device};
use vfscale_sync::cpu;

use crate::branch::Inner;
use crate::branch::registry::{self, Branches, Registry};
use crate::disk::device::Disk;
use crate::disk::format::PLACE_BYTES;
use crate::disk::layout::Layout;
use crate::disk::record::{BLOCKS_MAX, Record};
use crate::state::branch_table::Table;
use crate::state::commit::{Change, Shared, State, check_layout};
use crate::state::head::Purpose;
use crate::{Branch, Error};

/// A pool of branches on one device, opened by one process. `Send` and `Sync`.
#[derive(Debug)]
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
    pub(crate) open: Arc<Registry>,
}

/// A branch of a pool, with its size and what it has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchInfo {
    /// The name.
    pub name: String,
    /// The branch that it was forked from; the parent of that if it had changed nothing; if it is
    /// gone, the next one that it comes from. `None` if there is none.
    pub parent: Option<String>,
    /// The size of its device, in bytes.
    pub size: u64,
    /// Whether it can only be read.
    pub read_only: bool,
    /// The length of its history: one more with each fork of contents that have changed. States
    /// that are not needed any more still count.
    pub depth: u32,
    /// The space that deleting it frees, in bytes, at most: what only it has, as of its last
    /// commit, and what the branch that it was forked from has replaced since, if nothing else has
    /// that.
    pub own: u64,
    /// How much it may have for itself, in bytes, if that is limited.
    pub limit: Option<u64>,
    /// When it was made, if that is known.
    pub made: Option<SystemTime>,
    /// The text of a checkpoint.
    pub text: String,
}

/// The space of a pool, in bytes, and its branches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The size of the device.
    pub size: u64,
    /// Space that branches can still use, with the logs that the pool has in reserve: it gives
    /// these up when it becomes full. Places that a branch gave up count as used until its next
    /// checkpoint.
    pub free: u64,
    /// Branches, with checkpoints and temporary ones.
    pub branches: u64,
}

impl BranchInfo {
    fn of(record: &Record, table: &Table) -> Self {
        Self {
            name: record.name.clone(),
            parent: table.parent_branch(record).map(|parent| parent.name.clone()),
            size: record.blocks * PLACE_BYTES as u64,
            read_only: record.is_frozen(),
            depth: record.depth,
            own: table.freed_by_deletion(record).saturating_mul(PLACE_BYTES as u64),
            limit: (record.limit != 0).then(|| record.limit * PLACE_BYTES as u64),
            made: time_of(record),
            text: record.text.clone(),
        }
    }

    /// Returns whether it is a checkpoint by its name, `BRANCH@N`, and can only be read.
    #[must_use]
    pub fn is_checkpoint(&self) -> bool {
        self.read_only && is_of_checkpoint(&self.name)
    }
}

/// Returns whether a name is that of a checkpoint.
pub(crate) fn is_of_checkpoint(name: &str) -> bool {
    let parts = name.rsplit_once('@').filter(|(stem, _)| !stem.is_empty());
    parts.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// Returns the time of a node, if it is known.
pub(crate) fn time_of(record: &Record) -> Option<SystemTime> {
    (record.time != 0).then(|| UNIX_EPOCH + Duration::from_nanos(record.time))
}

impl Shared {
    /// Returns the space that branches can still use, in bytes. Does not block.
    pub(super) fn free_bytes(&self) -> u64 {
        (self.space.budget.available() + self.spare_places()) * PLACE_BYTES as u64
    }
}

impl Pool {
    /// Makes a pool on an empty device, and opens it. `id` has to differ from that of any other
    /// pool: blocks of a former pool on the device are told apart by it.
    ///
    /// Blocks for the I/O, which ends with a flush.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if the first block of the device is not zero, [`Error::Size`] and errors
    /// of the device.
    pub fn create(device: Arc<dyn Device>, id: [u8; 16]) -> Result<Self, Error> {
        let layout = Layout::whole(device.size() / PLACE_BYTES as u64);
        check_layout(&layout)?;
        Shared::create(&Disk::new(device.clone(), id, layout))?;
        Self::open(device)
    }

    /// Opens a pool. If it was not closed, what branches have flushed since their last checkpoint
    /// is read from their logs, and a checkpoint of each such branch is made. Nothing else may use
    /// the device until the pool and its branches are closed or dropped.
    ///
    /// A branch whose log or map is damaged can't be used: each call that names it has the reason
    /// as its error, and nothing of it is given up. If its log does not tell any more which places
    /// it has, the pool can only be [read](Self::open_to_read).
    ///
    /// Blocks for the I/O: reads the branch table, and the log of each branch that has one.
    ///
    /// # Errors
    /// [`Error::NoPool`], [`Error::Features`], [`Error::Damage`], [`Error::Unreadable`] and errors
    /// of the device.
    pub fn open(device: Arc<dyn Device>) -> Result<Self, Error> {
        Self::open_behind(device, 0)
    }

    /// Opens a pool that a volume has become, as [`open`](Self::open) does. It begins at the place
    /// `first`, in blocks of 4096 bytes, which the superblocks of the volume tell.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub fn open_behind(device: Arc<dyn Device>, first: u64) -> Result<Self, Error> {
        let shared = Arc::new(Shared::open(device, first, cpu::possible() as usize)?);
        Self::recovered(shared)
    }

    /// Opens a pool as [`open_behind`](Self::open_behind) does, to read it: what the opening and
    /// its branches write goes to memory. A branch whose log can't be read does not hold up the
    /// others.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// Errors of [`open`](Self::open).
    pub fn open_to_read(device: Arc<dyn Device>, first: u64) -> Result<Self, Error> {
        let device = Arc::new(CowDevice::new(device));
        let slots = cpu::possible() as usize;
        Self::recovered(Arc::new(Shared::open_for(device, first, slots, Purpose::Read)?))
    }

    /// Returns the id of the pool.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.shared.disk.pool
    }

    /// Returns the space of the pool, and the number of its branches.
    ///
    /// Waits for a commit that is under way.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let shared = &self.shared;
        let branches = shared.state.lock().table.names() as u64;
        let size = shared.disk.layout().places * PLACE_BYTES as u64;
        Usage { size, free: shared.free_bytes(), branches }
    }

    /// Lists the branches by name: `t2` before `t10`.
    ///
    /// Waits for a commit that is under way.
    #[must_use]
    pub fn list(&self) -> Vec<BranchInfo> {
        let state = self.shared.state.lock();
        let named = state.table.records().filter(|record| !record.name.is_empty());
        let mut list: Vec<_> = named.map(|record| BranchInfo::of(record, &state.table)).collect();
        list.sort_by(|a, b| by_number(&a.name, &b.name));
        list
    }

    /// Returns a branch as [`list`](Self::list) tells it; `None` if there is none of that name.
    /// Takes time for each fork of the branch.
    ///
    /// Waits for a commit that is under way.
    #[must_use]
    pub fn info(&self, name: &str) -> Option<BranchInfo> {
        let state = self.shared.state.lock();
        state.table.find(name).map(|record| BranchInfo::of(record, &state.table))
    }

    /// Returns whether a branch can only be read; `None` if there is none of that name. Takes the
    /// same time for any history.
    ///
    /// Waits for a commit that is under way.
    #[must_use]
    pub fn is_read_only(&self, name: &str) -> Option<bool> {
        self.shared.state.lock().table.find(name).map(Record::is_frozen)
    }

    /// Adds a branch that reads as zeros, of `size` bytes rounded down to blocks of 4096. The size
    /// may be more than the pool has.
    ///
    /// Blocks for the I/O: two flushes.
    ///
    /// # Errors
    /// [`Error::Name`], [`Error::Exists`], [`Error::Size`], [`Error::Full`] and errors of the
    /// device.
    pub fn create_branch(&self, name: &str, size: u64) -> Result<(), Error> {
        let blocks = size / PLACE_BYTES as u64;
        if blocks == 0 || blocks > BLOCKS_MAX {
            return Err(Error::Size("a branch has 4 KiB to 16 TiB"));
        }
        self.shared.with_room(|| {
            let mut state = self.shared.state.lock();
            state.table.check_new(name)?;
            self.shared.check_room(&mut state)?;
            let (id, name) = (next_id(&mut state), name.into());
            state.table.insert(Record { name, origin: id, ..Record::new(id, blocks) });
            self.shared.commit(&mut state, Change::default(), || ())
        })
    }

    /// Opens a branch. One that can be written may be open once; one that can only be read, often.
    ///
    /// Blocks for the I/O: reads the root of the map.
    ///
    /// # Errors
    /// [`Error::NoBranch`], [`Error::InUse`], [`Error::Damage`] and errors of the device.
    pub fn branch(&self, name: &str) -> Result<Arc<Branch>, Error> {
        self.shared.alive()?;
        let inner = self.open.open(name, || self.open_named(name))?;
        Ok(Arc::new(Branch::new(inner, &self.open, name)))
    }

    /// Opens the node of a branch.
    pub(crate) fn open_named(&self, name: &str) -> Result<Inner, Error> {
        self.open_found(|table| table.named(name).cloned())
    }

    /// Opens a frozen node for reading. The reaper leaves it alone meanwhile.
    ///
    /// # Errors
    /// [`Error::NoBranch`] if it is gone, [`Error::Damage`] and errors of the device.
    pub(crate) fn open_node(
        &self,
        branches: &mut Branches<'_>,
        id: u64,
    ) -> Result<Arc<Branch>, Error> {
        self.shared.alive()?;
        let key = registry::key_of_node(id);
        let inner = registry::open_in(branches, &key, || {
            let missing = || Error::NoBranch(key.clone());
            self.open_found(|table| table.get(id).cloned().ok_or_else(missing))
        })?;
        Ok(Arc::new(Branch::new(inner, &self.open, &key)))
    }

    fn open_found(
        &self,
        find: impl FnOnce(&Table) -> Result<Record, Error>,
    ) -> Result<Inner, Error> {
        let (record, own_above) = {
            let state = self.shared.state.lock();
            let record = find(&state.table)?;
            let own_above = state.table.own_above(&record);
            (record, own_above)
        };
        let inner = Inner::open(&self.shared, &record, own_above)?;
        inner.limit.load(&self.shared.state.lock().table, &record);
        Ok(inner)
    }

    /// Closes the pool: makes everything durable, so that the next opening has nothing to recover.
    /// A pool that is dropped loses nothing that was flushed.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::InUse`] if a branch is open, and errors of the device.
    pub fn close(self) -> Result<(), Error> {
        self.close_branches()
    }

    /// Makes everything durable of branches that were dropped without being closed, and closes
    /// them.
    ///
    /// Blocks for the I/O.
    ///
    /// # Errors
    /// [`Error::InUse`] if a branch is open, and errors of the device.
    pub fn close_branches(&self) -> Result<(), Error> {
        let mut branches = self.open.lock();
        for name in branches.keys().cloned().collect::<Vec<_>>() {
            registry::close(&mut branches, &name, 0)?;
        }
        Ok(())
    }
}

/// Compares two names, numbers in them by their values.
fn by_number(a: &str, b: &str) -> Ordering {
    let (mut one, mut other) = (a, b);
    loop {
        let digits = [one, other].map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        let order = if digits[0] > 0 && digits[1] > 0 {
            let [left, right] = [&one[..digits[0]], &other[..digits[1]]]
                .map(|number| number.trim_start_matches('0'));
            left.len().cmp(&right.len()).then(left.cmp(right))
        } else {
            one.chars().next().cmp(&other.chars().next())
        };
        if order != Ordering::Equal || one.is_empty() {
            // Names may differ in zeros only.
            return order.then(a.cmp(b));
        }
        let step = |rest: &str, digits: usize| match digits {
            0 => rest.chars().next().map_or(0, char::len_utf8),
            digits => digits,
        };
        (one, other) = (&one[step(one, digits[0])..], &other[step(other, digits[1])..]);
    }
}

/// Returns the id of a new node.
pub(crate) fn next_id(state: &mut State) -> u64 {
    let id = state.next_node;
    state.next_node += 1;
    id
}
