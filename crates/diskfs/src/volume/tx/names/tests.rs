use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_block::{Device, MemoryDevice};

use super::*;
use crate::Settings;
use crate::format::inode::ROOT_INO;
use crate::icache::table::NodeTable;
use crate::inode::core::FileKind;
use crate::tools::mkfs::{self, MkfsOptions};
use crate::volume::Volume;
use crate::volume::tx::TxReservation;

/// A volume whose names are all delayed, with its root directory. All names have one hash.
struct World {
    volume: Volume,
    root: Arc<Node>,
    hash: NameHash,
}

const BASE: u64 = 1 << 40;
const NEED: TxReservation = TxReservation { log_blocks: 60, space: 16, from_pool: false };
const KIND: FileKind = FileKind::Regular;

impl World {
    fn new() -> Self {
        let device = MemoryDevice::new(256 << 20).unwrap();
        let options = MkfsOptions { log_blocks: Some(2000), ..MkfsOptions::default() };
        mkfs::format(&device, &options).unwrap();
        let device: Arc<dyn Device> = Arc::new(device);
        let options = Settings { dir_heat: 0, ..Settings::default() };
        let volume = Volume::open(device, options).unwrap();
        let root = NodeTable::new(10).get(&volume, ROOT_INO).unwrap().unwrap();
        assert!(volume.metadata().dirs().is_for(&root));
        Self { volume, root, hash: NameHash::planted(|_| BASE) }
    }

    fn step<'n>(&'n self, name: &'n [u8], step: NameStep) -> DirStep<'n> {
        DirStep { dir: &self.root, name, step }
    }

    /// Commits one change, and returns whether it was delayed.
    fn change(&self, name: &[u8], step: NameStep) -> Result<bool, Fault> {
        let (mut tx, steps) = (self.volume.begin(NEED).unwrap(), [self.step(name, step)]);
        let _sharing = self.root.read();
        Ok(tx.commit_names(DirLock::Shared, self.hash, &steps, 0)?.is_some())
    }

    /// Returns the position and the inode of a name.
    fn shown(&self, name: &[u8]) -> Option<(u64, u64)> {
        let _sharing = self.root.read();
        let (reader, core) = (self.volume.reader(), self.root.core());
        let stored = Directory::new(ROOT_INO, self.hash).lookup(&reader, &core, name).unwrap();
        let stored = stored.map(|found| (found.position, found.ino, found.kind));
        let shown = self.root.delayed_names().unwrap().changed(BASE, name).unwrap_or(stored);
        shown.map(|(position, ino, _)| (position, ino))
    }

    fn fold(&self) {
        let mut tx = self.volume.begin(NEED).unwrap();
        let _locked = self.root.lock();
        tx.fold_names(&self.root).unwrap();
        tx.commit().unwrap();
    }

    /// Notes the removal of `leaving`, has another transaction add `new`, and undoes the removal.
    fn undone_removal(&self, (leaving, ino): (&[u8], u64), new: (&[u8], u64)) {
        let before = self.shown(leaving);
        let mut tx = self.volume.begin(NEED).unwrap();
        let sharing = self.root.read();
        let step = self.step(leaving, NameStep::Remove(ino));
        let mut noted = SmallVec::new();
        assert!(tx.note(self.hash, &step, &mut noted).unwrap());
        assert_eq!(noted.len(), 1);
        let other = || {
            assert_eq!(self.shown(leaving), None);
            assert!(self.change(new.0, NameStep::Add(new.1, KIND)).unwrap());
        };
        std::thread::scope(|scope| scope.spawn(other).join().unwrap());
        tx.undo(noted);
        drop((tx, sharing));
        assert_eq!(self.shown(leaving), before);
        assert_eq!(self.shown(new.0).map(|(_, ino)| ino), Some(new.1));
    }
}

/// A transaction that fails returns the name that it has removed to its position. Another thread
/// has added a name with the same hash in the meantime, and both names stay: whether the removed
/// one was delayed or is on disk.
#[test]
fn an_undone_removal_loses_no_name_that_came_meanwhile() {
    let world = World::new();
    assert!(world.change(b"a", NameStep::Add(20, KIND)).unwrap());
    world.undone_removal((b"a", 20), (b"b", 21));
    world.fold();
    world.undone_removal((b"a", 20), (b"c", 22));
    world.fold();
    for (name, ino) in [(b"a", 20), (b"b", 21), (b"c", 22)] {
        assert_eq!(world.shown(name).map(|(_, ino)| ino), Some(ino));
        assert!(world.change(name, NameStep::Remove(ino)).unwrap());
    }
    let left = world.volume.metadata().dirs().left();
    world.fold();
    assert!(world.volume.metadata().dirs().left() > left);
    world.volume.close().unwrap();
}

/// The position of a removed name is free as soon as the removal is committed, or undone.
#[test]
fn a_position_is_taken_until_its_removal_commits() {
    let world = World::new();
    for round in 0..40 {
        let names: Vec<_> = (0..16_u8).map(|number| [b'a' + number]).collect();
        for name in &names {
            let is_delayed = world.change(name, NameStep::Add(20, KIND)).unwrap();
            assert!(is_delayed, "round {round}, {name:?}");
        }
        let full = world.change(b"full", NameStep::Add(20, KIND));
        assert!(matches!(full, Err(Fault::Refused(Errno::NOSPC))), "{full:?} in {round}");
        for name in &names {
            assert!(world.change(name, NameStep::Remove(20)).unwrap());
        }
    }
    world.volume.close().unwrap();
}
