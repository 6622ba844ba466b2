//! Snapshots: what containerd asks for, as branches of a pool.
//!
//! A committed snapshot is a branch that can only be read, and an active one an overlay above the
//! view of its parent's branch. `Commit` takes the upper layer over into a fork of that branch: so
//! a layer of a container is a whole tree, which shares its blocks with the layers below, and a
//! container has two layers at any depth.
//!
//! # Locks
//!
//! A call *claims* the names that it concerns, all at once, and waits while another call has one of
//! them; the name of a parent, empty if there is none, is needed to mount a view and to unmount it,
//! and may be claimed in addition, from the child up. The table of snapshots is locked for moments,
//! and by a clean-up until its end, so that no call begins meanwhile. One call at a time changes
//! branches: an ingest looks for a free name. The names come first, then the branches, then the
//! table.
//!
//! # Invariants
//!
//! * A branch is deleted when no record names its state and Linux has its view no longer open:
//!   otherwise other contents would take its blocks below a container.
//! * A number is used once, also if something is left of it that no record names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tonic::Code;
use vfscale::{ForkOptions, Pool, PoolError};
use vfscale_command::say;

use crate::api::{Info, Kind, Mount};
use crate::layers::{DIRS, Layers, VIEW};
use crate::record::{Record, Records, State, now};
use crate::refusal::{Refusal, Result};

/// The beginning of the names of the snapshotter's branches.
pub(crate) const BRANCHES: &str = "containerd ";
/// A label of a new active snapshot: the key of one that it is to begin with the changes of.
pub(crate) const COPY_OF: &str = "containerd.io/snapshot/vfscale.copy-of";
/// The beginning of the names of labels.
const LABELS: &str = "labels.";

/// All snapshots of a pool.
pub(crate) struct Snapshots {
    pool: Pool,
    layers: Layers,
    records: Records,
    table: Mutex<Table>,
    freed: Condvar,
    branches: Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    by_name: BTreeMap<String, Record>,
    claimed: BTreeSet<String>,
    next: u64,
}

/// Names that a call has for itself until it is dropped.
struct Claim<'s> {
    snapshots: &'s Snapshots,
    names: Vec<String>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut table = self.snapshots.table();
        self.names.iter().for_each(|name| _ = table.claimed.remove(name));
        self.snapshots.freed.notify_all();
    }
}

impl Snapshots {
    /// Opens the pool of an image, which is made with `bytes` if it is missing, and removes what a
    /// crash has left.
    ///
    /// # Errors
    /// Refuses an image whose branch `main` has files: they would be below all containers.
    pub(crate) fn open(root: &Path, image: &Path, bytes: u64) -> Result<Self> {
        std::fs::create_dir_all(root).map_err(Refusal::at(root))?;
        if !image.exists() {
            vfscale::volume(image)
                .create(bytes)
                .open()?
                .close()
                .map_err(|error| Refusal::new(Code::Internal, error.to_string()))?;
        }
        let pool = vfscale::pool(image).convert(true).open()?;
        let root = root.canonicalize().map_err(Refusal::at(root))?;
        let image = image.canonicalize().map_err(Refusal::at(image))?;
        let layers = Layers::open(&root, &image)?;
        let (records, all) = Records::open(root.join("records"))?;
        let mut names: Vec<_> = all.iter().map(|it| it.id.to_string()).collect();
        for dir in DIRS {
            names.extend(layers.names(dir)?);
        }
        let branches = pool.branches();
        let own = branches.iter().filter_map(|it| it.name.strip_prefix(BRANCHES));
        names.extend(own.map(str::to_owned));
        let next = names.iter().filter_map(|it| number_of(it)).max().map_or(0, |last| last + 1);
        let by_name = all.into_iter().map(|record| (record.name.clone(), record)).collect();
        let table = Mutex::new(Table { by_name, claimed: BTreeSet::new(), next });
        let (freed, branches) = (Condvar::new(), Mutex::new(()));
        let snapshots = Self { pool, layers, records, table, freed, branches };
        snapshots.make_empty()?;
        if let Err(refusal) = snapshots.clean_up() {
            let what = "not all that is left over is removed yet";
            say(format_args!("vfscale-snapshotter: {what}: {refusal}"));
        }
        Ok(snapshots)
    }

    /// Makes the branch of the empty tree, unless it is there.
    fn make_empty(&self) -> Result<()> {
        let name = State::Empty.branch();
        if self.pool.branches().iter().any(|it| it.name == name) {
            return Ok(());
        }
        let main = vfscale::pool::MAIN;
        let volume = self.pool.branch(main).read_only(true).open()?;
        let has_files = volume.task().read_dir("/").map(|mut it| it.next().is_some());
        drop(volume);
        if has_files.unwrap_or(true) {
            return Err(Refusal::state(
                "the branch `main` has files, which would be below all containers; name another image",
            ));
        }
        Ok(self.pool.fork_with(main, &name, ForkOptions::new().read_only(true))?)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other call has one of these names.
    fn claim(&self, names: &[&str]) -> Claim<'_> {
        let mut table = self.table();
        while names.iter().any(|name| table.claimed.contains(*name)) {
            table = self.freed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        table.claimed.extend(names.iter().cloned());
        Claim { snapshots: self, names }
    }

    /// Returns the snapshot with a name.
    fn get(&self, name: &str) -> Result<Record> {
        self.table().by_name.get(name).cloned().ok_or_else(|| Refusal::missing(name))
    }

    /// Returns whether a snapshot is above a state.
    fn has_users(&self, state: State) -> bool {
        let is_above = |it: &Record| it.kind != Kind::Committed && it.base == state;
        self.table().by_name.values().any(is_above)
    }

    /// Refuses a name that a snapshot has.
    fn check_new(&self, name: &str) -> Result<()> {
        match self.get(name) {
            Ok(_) => Err(Refusal::new(Code::AlreadyExists, format!("snapshot {name} exists"))),
            Err(_) if name.is_empty() => {
                Err(Refusal::new(Code::InvalidArgument, "a snapshot needs a name"))
            }
            Err(_) => Ok(()),
        }
    }

    /// Makes a read-only branch of a state from a branch, in place of one that a crash has left.
    fn keep(&self, from: &str, state: State) -> Result<()> {
        let name = state.branch();
        if self.pool.branches().iter().any(|it| it.name == name) {
            self.pool.delete(&name)?;
        }
        Ok(self.pool.fork_with(from, &name, ForkOptions::new().read_only(true))?)
    }

    /// Makes a state of another one and the changes of an active snapshot above it.
    fn take_over(&self, active: &Record, to: State) -> Result<()> {
        let _branches = self.branches.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{BRANCHES}changes of {}", active.id);
        self.pool.fork_with(&active.base.branch(), &name, ForkOptions::new().temporary(true))?;
        let made = self
            .layers
            .ingest(&self.pool, &name, active.id, active.base)
            .and_then(|()| self.keep(&name, to));
        let deleted = self.pool.delete(&name);
        made?;
        Ok(deleted?)
    }

    /// Begins an active snapshot, or a view if it `is_view`.
    pub(crate) fn begin(
        &self,
        (key, parent): (&str, &str),
        labels: BTreeMap<String, String>,
        is_view: bool,
    ) -> Result<Vec<Mount>> {
        let source = labels.get(COPY_OF).cloned().filter(|_| !is_view);
        let source = source.map(|it| self.sibling(key, &it)).transpose()?;
        let concerned = [Some(key), Some(parent), source.as_deref()];
        let concerned: BTreeSet<_> = concerned.into_iter().flatten().collect();
        let _claim = self.claim(&Vec::from_iter(concerned));
        self.check_new(key)?;
        let below = match parent {
            "" => State::Empty,
            parent => match self.get(parent)? {
                Record { kind: Kind::Committed, id, .. } => State::Snapshot(id),
                _ => return Err(Refusal::state(format!("snapshot {parent} is not committed"))),
            },
        };
        let id = {
            let mut table = self.table();
            table.next += 1;
            table.next - 1
        };
        let base = match &source {
            None => below,
            Some(source) => {
                let active = self.get(source)?;
                if active.kind != Kind::Active || active.parent != parent {
                    let what = format!("snapshot {source} is no active one with the same parent");
                    return Err(Refusal::state(what));
                }
                self.take_over(&active, State::Copy(id))?;
                State::Copy(id)
            }
        };
        let lower = self.layers.show(&self.pool, base)?;
        let kind = if is_view { Kind::View } else { Kind::Active };
        if !is_view {
            self.layers.make(id, &lower)?;
        }
        let (name, parent, created) = (key.to_owned(), parent.to_owned(), now());
        let updated = created;
        let (bytes, inodes) = (0, 0);
        let record =
            Record { id, name, parent, kind, labels, created, updated, base, bytes, inodes };
        self.put(record.clone())?;
        Ok(vec![self.mount(&record)])
    }

    /// Returns the name of the active snapshot that a new one is to be a copy of. Containerd puts a
    /// namespace and a number before the keys of its users: `default/12/KEY`.
    fn sibling(&self, key: &str, source: &str) -> Result<String> {
        let space = key.split('/').next().unwrap_or_default();
        let is_meant = |name: &str| {
            let mut parts = name.splitn(3, '/');
            let is_same = parts.next() == Some(space);
            name == source || is_same && parts.nth(1) == Some(source)
        };
        let table = self.table();
        let found = table.by_name.keys().find(|name| is_meant(name)).cloned();
        found.ok_or_else(|| Refusal::missing(source))
    }

    /// Writes a record down, and puts it into the table.
    fn put(&self, record: Record) -> Result<()> {
        self.records.write(&record)?;
        self.table().by_name.insert(record.name.clone(), record);
        Ok(())
    }

    fn mount(&self, record: &Record) -> Mount {
        match record.kind {
            Kind::Active => self.layers.overlay(record.id, record.base),
            _ => self.layers.bind(record.base),
        }
    }

    /// Returns the mounts of an active snapshot or a view, below which Linux has what it needs:
    /// after a start of the machine as well.
    pub(crate) fn mounts(&self, key: &str) -> Result<Vec<Mount>> {
        let _claim = self.claim(&[key]);
        let record = self.get(key)?;
        if record.kind == Kind::Committed {
            return Err(Refusal::state(format!("snapshot {key} is committed")));
        }
        self.show_below(&record)?;
        Ok(vec![self.mount(&record)])
    }

    /// Mounts the view below a snapshot, whose name the caller has claimed, unless it is mounted.
    fn show_below(&self, record: &Record) -> Result<()> {
        let _parent = self.claim(&[&record.parent]);
        self.layers.show(&self.pool, record.base).map(|_| ())
    }

    /// Makes a committed snapshot of an active one, which is no more then.
    pub(crate) fn commit(
        &self,
        (name, key): (&str, &str),
        labels: BTreeMap<String, String>,
    ) -> Result<()> {
        if name == key {
            return Err(Refusal::new(Code::AlreadyExists, format!("snapshot {name} exists")));
        }
        let _claim = self.claim(&[name, key]);
        let active = self.get(key)?;
        self.check_new(name)?;
        if active.kind != Kind::Active {
            return Err(Refusal::state(format!("snapshot {key} is not active")));
        }
        // After a start of the machine nobody may have asked for its mounts.
        self.show_below(&active)?;
        let (bytes, inodes) = self.layers.usage(active.id)?;
        self.take_over(&active, State::Snapshot(active.id))?;
        let (name, kind, created) = (name.to_owned(), Kind::Committed, now());
        let updated = created;
        let committed =
            Record { name, kind, labels, created, updated, bytes, inodes, ..active.clone() };
        self.records.write(&committed)?;
        let mut table = self.table();
        table.by_name.remove(key);
        table.by_name.insert(committed.name.clone(), committed);
        drop(table);
        self.end(&active);
        Ok(())
    }

    /// Removes what a snapshot that is no more had. The call is done already: what can't be removed
    /// now, such as a view that a process of the host reads, the next `Cleanup` removes.
    fn end(&self, gone: &Record) {
        let removed = match gone.kind {
            Kind::Active => self.layers.remove(&gone.id.to_string()),
            _ => Ok(()),
        };
        if let Err(refusal) = removed.and_then(|()| self.release(gone)) {
            let what = format_args!("snapshot {}: not all is removed yet: {refusal}", gone.name);
            say(format_args!("vfscale-snapshotter: {what}"));
        }
    }

    /// Unmounts the view below a snapshot that is no more, if no other one is above it, and removes
    /// its own state.
    fn release(&self, gone: &Record) -> Result<()> {
        if gone.kind != Kind::Committed {
            let _parent = self.claim(&[&gone.parent]);
            if !self.has_users(gone.base) {
                self.layers.hide(&gone.base.name())?;
            }
        }
        if let Some(own) = gone.own() {
            self.layers.forget(&(own.name() + VIEW))?;
            let _branches = self.branches.lock().unwrap_or_else(PoisonError::into_inner);
            self.pool.delete(&own.branch())?;
        }
        Ok(())
    }

    /// Removes a snapshot that has no children.
    pub(crate) fn remove(&self, key: &str) -> Result<()> {
        let _claim = self.claim(&[key]);
        let record = self.get(key)?;
        let child = self.table().by_name.values().find(|it| it.parent == key).cloned();
        if let Some(child) = child {
            let what = format!("snapshot {key} is the parent of {}", child.name);
            return Err(Refusal::state(what));
        }
        self.records.remove(record.id)?;
        self.table().by_name.remove(key);
        self.end(&record);
        Ok(())
    }

    /// Returns what is known of a snapshot.
    pub(crate) fn stat(&self, key: &str) -> Result<Info> {
        self.get(key).map(|it| it.info())
    }

    /// Replaces labels of a snapshot: all, or those that `paths` name.
    pub(crate) fn update(&self, info: &Info, paths: &[String]) -> Result<Info> {
        let _claim = self.claim(&[&info.name]);
        let mut record = self.get(&info.name)?;
        if paths.is_empty() {
            record.labels.clone_from(&info.labels);
        }
        for path in paths {
            match path.strip_prefix(LABELS) {
                Some(label) => match info.labels.get(label) {
                    Some(value) => _ = record.labels.insert(label.to_owned(), value.clone()),
                    None => _ = record.labels.remove(label),
                },
                None if path == "labels" => record.labels.clone_from(&info.labels),
                None => {
                    let what = format!("the field {path} of a snapshot can't be changed");
                    return Err(Refusal::new(Code::InvalidArgument, what));
                }
            }
        }
        record.updated = now();
        self.put(record.clone())?;
        Ok(record.info())
    }

    /// Lists all snapshots by name.
    pub(crate) fn list(&self) -> Vec<Info> {
        self.table().by_name.values().map(Record::info).collect()
    }

    /// Returns the bytes and the inodes of the changes of a snapshot above its parent.
    pub(crate) fn usage(&self, key: &str) -> Result<(i64, i64)> {
        let _claim = self.claim(&[key]);
        let record = self.get(key)?;
        match record.kind {
            Kind::Active => self.layers.usage(record.id),
            _ => Ok((record.bytes, record.inodes)),
        }
    }

    /// Removes what no snapshot has: a crash, or a removal that failed, has left it.
    pub(crate) fn clean_up(&self) -> Result<()> {
        let all: Vec<_> = self.table().by_name.values().cloned().collect();
        let names: Vec<&str> = all.iter().map(|it| &*it.name).collect();
        let _claim = self.claim(&names);
        let _branches = self.branches.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table();
        let known: Vec<_> = table.by_name.values().cloned().collect();
        // A call that has begun since is not in the table yet.
        if table.claimed.len() > names.len() {
            return Ok(());
        }
        let is_open = |it: &&Record| it.kind != Kind::Committed;
        let used = known.iter().filter(is_open).map(|it| it.base.name());
        let used: BTreeSet<_> = used.collect();
        let states = known.iter().filter_map(Record::own).chain([State::Empty]);
        let states: BTreeSet<_> = states.map(State::name).collect();
        let active = known.iter().filter(|it| it.kind == Kind::Active).map(|it| it.id.to_string());
        let active: BTreeSet<_> = active.collect();
        for name in self.layers.names("mounts")?.iter().filter(|name| !used.contains(*name)) {
            self.layers.hide(name)?;
        }
        let is_view =
            |name: &&String| name.strip_suffix(VIEW).is_some_and(|state| states.contains(state));
        let mut open = BTreeSet::new();
        for name in self.layers.names("views")?.iter().filter(|name| !is_view(name)) {
            if let Err(refusal) = self.layers.forget(name) {
                say(format_args!("vfscale-snapshotter: {refusal}"));
                open.insert(name.trim_end_matches(VIEW).to_owned());
            }
        }
        for name in self.layers.names("active")?.iter().filter(|name| !active.contains(*name)) {
            self.layers.remove(name)?;
        }
        for branch in self.pool.branches() {
            let state = branch.name.strip_prefix(BRANCHES);
            if state.is_some_and(|state| !states.contains(state) && !open.contains(state)) {
                self.pool.delete(&branch.name)?;
            }
        }
        Ok(())
    }

    /// Closes the pool. Views stay mounted, and containers go on.
    pub(crate) fn close(self) -> std::result::Result<(), PoolError> {
        self.pool.close()
    }
}

/// Returns the number that a name begins with.
fn number_of(name: &str) -> Option<u64> {
    let end = name.find(|it: char| !it.is_ascii_digit()).unwrap_or(name.len());
    name[..end].parse().ok()
}
