//! Tests on whole volumes in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfscale_block::{Device, MemoryDevice};
use vfscale_testkit::{CrashPlan, RecordingDevice};

use super::*;
use crate::Settings;
use crate::data::Files;
use crate::dir::{Directory, NameHash};
use crate::format::BLOCK_BYTES;
use crate::format::extent::Extent;
use crate::format::inode::INODES_PER_BLOCK;
use crate::format::superblock::LOG_BLOCKS_MIN;
use crate::inode::attr;
use crate::inode::blob::{self, LinkTree};
use crate::inode::core::{FileKind, TYPE_DIRECTORY, TYPE_LINK, TYPE_REGULAR};
use crate::inode::times::Times;
use crate::page_cache::{FilePages, PageCache};
use crate::tools::check::{Options, Unfinished, check};
use crate::tools::mkfs::{MkfsOptions, format};

#[derive(Clone)]
struct Fixture {
    device: Arc<dyn Device>,
    volume: Arc<Volume>,
    table: Arc<NodeTable>,
}

impl Fixture {
    fn new() -> Self {
        Self::with_log(None)
    }

    fn with_log(log_blocks: Option<u64>) -> Self {
        let bytes = 8192 * BLOCK_BYTES as u64;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_size(bytes, 4096).unwrap());
        format(&*device, &MkfsOptions { log_blocks, ..MkfsOptions::default() }).unwrap();
        Self::open(device)
    }

    fn open(device: Arc<dyn Device>) -> Self {
        let volume = Volume::open(device.clone(), Settings::default()).unwrap();
        Self { device, volume: Arc::new(volume), table: Arc::new(NodeTable::new(100)) }
    }

    /// Reopens the volume with only its durable blocks.
    fn crashed(self) -> Self {
        let Self { device, volume, table } = self;
        drop((table, volume));
        Self::open(device)
    }

    fn need(&self) -> TxReservation {
        let log_blocks = (20 + self.volume.groups().log_blocks(2, 1)).min(100);
        TxReservation { log_blocks, space: 200, from_pool: false }
    }

    /// Creates an orphan with `bytes` bytes of attributes, and with `names` names if it is a
    /// directory.
    fn orphan(&self, mode: u32, nlink: u32, bytes: usize, names: u32) -> Arc<Node> {
        let volume = &*self.volume;
        let mut tx = volume.begin(self.need()).unwrap();
        let node_of = |ino| self.table.claim(ino, volume.cache());
        let (node, generation) = tx.new_node(8, false, node_of).unwrap();
        let ino = node.ino();
        let guard = node.lock();
        let parent = if mode == TYPE_DIRECTORY { 64 } else { 0 };
        let mut core = InodeCore { nlink, parent, ..InodeCore::new(mode, generation, 5) };
        let list = vec![(Box::from(&b"user.x"[..]), vec![1; bytes].into())];
        let blob = if bytes == 0 { Vec::new() } else { attr::encode(&list).unwrap() };
        attr::store(&mut tx, ino, node.block(), &mut core, &blob).unwrap();
        if mode == TYPE_LINK {
            let target = vec![b'x'; 4000];
            let tree = blob::create::<LinkTree, _>(&mut tx, ino, node.block(), &target).unwrap();
            core.data = DataFork::Tree { root: tree.root() };
            (core.size, core.blocks) = (4000, core.blocks + 3);
        }
        let dir = Directory::new(ino, NameHash::of(volume.uuid()));
        for number in 0..names {
            let name = format!("name {number}");
            let to = (64, FileKind::Directory);
            let _ = dir.insert(&mut tx, &mut core, name.as_bytes(), to).unwrap();
        }
        tx.set_core(&node, core);
        tx.set_orphan(&node, true);
        let sequence = tx.commit().unwrap();
        drop(guard);
        volume.force(sequence).unwrap();
        node
    }

    /// Returns the free blocks plus those of inode chunks, the inodes in use, and the orphans.
    fn free(&self) -> (u64, u64, u64) {
        self.volume.sync().unwrap();
        let totals = self.volume.groups().totals();
        let used = totals.inodes - totals.free_inodes;
        (totals.available + totals.inodes / INODES_PER_BLOCK, used, totals.orphans)
    }
}

/// Creates the data in memory of a file of `size` bytes.
fn with_data(node: &Node, size: u64) {
    node.data_or_init(|_| FilePages::new(&PageCache::new(1 << 20, 1), size));
}

fn no_cut(_: &Arc<Node>, _: u64) -> Result<(), Fault> {
    Ok(())
}

#[test]
fn everything_of_an_inode_is_free_again() {
    let fix = Fixture::new();
    let before = fix.free();
    for (mode, bytes, names) in [
        (TYPE_REGULAR, 0, 0),
        (TYPE_REGULAR, 100, 0),
        (TYPE_REGULAR, 60_000, 0),
        (TYPE_DIRECTORY, 3000, 300),
        (TYPE_LINK, 300, 0),
    ] {
        let node = fix.orphan(mode, 0, bytes, names);
        assert_eq!(fix.free().2, 1);
        inactivate(&fix.volume, &node, &no_cut).unwrap();
        assert!(node.core().is_free());
        assert_eq!((fix.free().0, fix.free().2), (before.0, 0), "{mode:o} {bytes} {names}");
        // A repetition does no harm.
        inactivate(&fix.volume, &node, &no_cut).unwrap();
        assert!(fix.table.get(&fix.volume, node.ino()).unwrap().is_none());
    }
    assert_eq!(fix.free(), before);
    assert_eq!(fix.volume.overruns(), 0);
}

/// Gives an inode so many extents of a block each.
fn add_extents(fix: &Fixture, node: &Arc<Node>, extents: u64) {
    let mut tx = fix.volume.begin(fix.need()).unwrap();
    let _guard = node.lock();
    let claimed = (0..extents).map(|at| {
        let start = tx.claim(node.block() + 100 * at, 1, 1).unwrap().start;
        Extent { file_block: 2 * at, start, blocks: 1, is_unwritten: false }
    });
    let list: Vec<_> = claimed.collect();
    tx.edit(node, |_, core| {
        (core.data, core.blocks) = (DataFork::Extents(list.into()), core.blocks + extents);
        Ok(())
    })
    .unwrap();
    tx.commit().unwrap();
}

#[test]
fn the_blocks_of_a_small_file_are_freed_with_its_inode() {
    let fix = Fixture::new();
    let before = fix.free();
    for extents in [1, 2] {
        let node = fix.orphan(TYPE_REGULAR, 0, 0, 0);
        add_extents(&fix, &node, extents);
        assert_eq!(fix.free().0, before.0 - extents);
        assert!(step(&fix.volume, &node).unwrap());
        assert_eq!(fix.free(), before);
    }
    // Transactions of their own free more.
    let node = fix.orphan(TYPE_REGULAR, 0, 0, 0);
    add_extents(&fix, &node, 3);
    assert!(matches!(step(&fix.volume, &node), Err(Fault::Refused(Errno::BUSY))));
    assert_eq!(fix.volume.overruns(), 0);
}

/// Frees so many small inodes of each kind at once. Returns the number of transactions.
fn free_together(fix: &Fixture, of_each: usize) -> u64 {
    let before = fix.free();
    let mut nodes = Vec::new();
    for _ in 0..of_each {
        nodes.push(fix.orphan(TYPE_REGULAR, 0, 0, 0));
        nodes.push(fix.orphan(TYPE_DIRECTORY, 0, 20, 0));
        for extents in [1, 2] {
            let node = fix.orphan(TYPE_REGULAR, 0, 0, 0);
            add_extents(fix, &node, extents);
            with_data(&node, 8 * BLOCK_BYTES as u64);
            nodes.push(node);
        }
    }
    let cuts = Arc::new(AtomicU64::new(0));
    let of_cut = Arc::clone(&cuts);
    let cut = move |node: &Arc<Node>, size| {
        assert_eq!((size, node.data().is_some()), (0, true));
        of_cut.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let commits = || fix.volume.journal().unwrap().stats().commits;
    let begun = commits();
    inactivate_all(&fix.volume, nodes.clone(), &cut, &Aside::default());
    let commits = commits() - begun;
    assert!(nodes.iter().all(|node| node.core().is_free() && node.data().is_none()));
    assert_eq!(cuts.load(Ordering::SeqCst), 2 * of_each as u64);
    assert_eq!((fix.free(), fix.volume.overruns()), (before, 0));
    commits
}

#[test]
fn small_inodes_are_freed_in_one_transaction() {
    assert_eq!(free_together(&Fixture::with_log(Some(1000)), 2), 1);
    let fix = Fixture::with_log(Some(LOG_BLOCKS_MIN));
    let commits = free_together(&fix, 2);
    assert!((2..=8).contains(&commits), "{commits} with a small log");
}

/// An inode that can't be freed does not keep the others.
#[test]
fn small_inodes_are_freed_beside_one_that_fails() {
    let fix = Fixture::new();
    let nodes = [0; 3].map(|_| fix.orphan(TYPE_REGULAR, 0, 0, 0));
    let inos = nodes.each_ref().map(|node| node.ino());
    nodes.iter().for_each(|node| with_data(node, 0));
    let cut = move |node: &Arc<Node>, _| match node.ino() == inos[1] {
        true => Err(Fault::NoSpace),
        false => Ok(()),
    };
    inactivate_all(&fix.volume, nodes.clone().into(), &cut, &Aside::default());
    assert_eq!(nodes.map(|node| node.core().is_free()), [true, false, true]);
}

/// The worst case of a step does not fit in the smallest log, but its actual need does.
#[test]
fn trees_are_freed_with_the_smallest_log() {
    let fix = Fixture::with_log(Some(LOG_BLOCKS_MIN));
    let before = fix.free();
    let node = fix.orphan(TYPE_DIRECTORY, 0, 20_000, 300);
    inactivate(&fix.volume, &node, &no_cut).unwrap();
    assert_eq!(fix.free(), before);
    assert_eq!(fix.volume.overruns(), 0);
}

/// A check reports the state after a crash between the transactions of a removal as unfinished
/// work, and a repair finishes it.
#[test]
fn a_removal_that_is_cut_off_is_no_damage() {
    let fix = Fixture::with_log(Some(LOG_BLOCKS_MIN));
    fix.volume.close().unwrap();
    let (before, device) = (fix.free().0, fix.device.clone());
    drop(fix);
    for (mode, bytes, names) in
        [(TYPE_REGULAR, 2000, 0), (TYPE_LINK, 2000, 0), (TYPE_DIRECTORY, 2000, 0)]
    {
        let recording = Arc::new(RecordingDevice::new(device.clone()));
        let fix = Fixture::open(recording.clone());
        let node = fix.orphan(mode, 0, bytes, names);
        let mut steps = 1;
        while !step(&fix.volume, &node).unwrap() {
            fix.volume.sync().unwrap();
            steps += 1;
        }
        assert!(steps > 2, "{mode:o}: {steps} steps");
        drop(node);
        fix.volume.close().unwrap();
        let mut unfinished = 0;
        for state in recording.crash_states(CrashPlan::default().listed_max(4).samples(1)) {
            let checked = check(state.device(), &Options::default(), &mut ()).unwrap();
            assert_eq!(checked.findings, [], "{mode:o}, {state}");
            unfinished += checked.unfinished.removals;
            let repairing = Options { repair: true, ..Options::default() };
            let repaired = check(state.device(), &repairing, &mut ()).unwrap();
            assert_eq!((repaired.count, repaired.left), (0, 0), "{mode:o}, {state}");
            assert_eq!(repaired.finished.removed, checked.unfinished.removals, "{state}");
            let again = check(state.device(), &Options::default(), &mut ()).unwrap();
            assert_eq!((again.findings, again.unfinished), (vec![], Unfinished::default()));
            assert_eq!(Fixture::open(state.device()).free().0, before, "{mode:o}, {state}");
        }
        assert!(unfinished >= steps, "{mode:o}: {unfinished} of {steps}");
    }
}

/// Inodes are freed together, and the number of one is used again, for a file without a name that
/// is in use, before the others are processed.
///
/// Race: An inode number that is freed against its next users.
/// Race: Number of an inode: freed / used again / from a handle.
#[test]
fn a_number_that_is_had_again_is_not_freed_again() {
    let fix = Fixture::new();
    let nodes = [0, 0, 0].map(|bytes| fix.orphan(TYPE_REGULAR, 0, bytes, 0));
    // This one is not small, and not freed together with the others.
    with_data(&nodes[0], 1 << 20);
    let inos = nodes.each_ref().map(|node| node.ino());
    assert!(inos.is_sorted());
    let again = Arc::new(std::sync::Mutex::new(None));
    let (to, maker) = (Arc::clone(&again), fix.clone());
    let cut = move |node: &Arc<Node>, _| {
        assert_eq!(node.ino(), inos[0]);
        let mut made = (0..64).map(|_| maker.orphan(TYPE_REGULAR, 0, 0, 0));
        *to.lock().unwrap() = made.find(|made| made.ino() == inos[2]);
        Ok(())
    };
    inactivate_all(&fix.volume, nodes.into(), &cut, &Aside::default());
    let again = again.lock().unwrap().take().expect("the number was had again");
    assert!(!again.core().is_free());
}

/// Once its number is free, the state in memory under that number belongs to the next inode.
///
/// Race: An inode number that is freed against its next users.
#[test]
fn an_inode_leaves_no_state_under_its_free_number() {
    let fix = Fixture::new();
    let node = fix.orphan(TYPE_REGULAR, 0, 0, 0);
    with_data(&node, 0);
    node.write_errors().record(5);
    node.follow_times(node.core().generation, || Times { atime: 9, mtime: 9, ctime: 9 });
    assert!(step(&fix.volume, &node).unwrap());
    assert!(node.data().is_none() && node.write_errors().is_told() && !node.has_new_times());
}

#[test]
fn an_inode_that_has_a_name_again_stays() {
    let fix = Fixture::new();
    let node = fix.orphan(TYPE_REGULAR, 1, 3000, 0);
    let core = node.core();
    inactivate(&fix.volume, &node, &|_, _| panic!("it was cut")).unwrap();
    assert_eq!(node.core(), core);
}

#[test]
fn a_mount_goes_on_where_a_crash_has_stopped() {
    let fix = Fixture::new();
    let before = fix.free();
    let inos: Vec<_> = [(TYPE_REGULAR, 0), (TYPE_REGULAR, 20_000), (TYPE_DIRECTORY, 0)]
        .map(|(mode, bytes)| fix.orphan(mode, 0, bytes, 0).ino())
        .into();
    let named = fix.orphan(TYPE_REGULAR, 1, 0, 0).ino();
    let fix = fix.crashed();
    assert_eq!(fix.free().2, 4);
    let cuts = Arc::new(AtomicU64::new(0));
    let of_cut = Arc::clone(&cuts);
    let cut = move |node: &Arc<Node>, size| {
        assert_eq!((size, node.core().is_regular()), (0, true));
        of_cut.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let orphans = recover(&fix.volume, &fix.table, &cut).unwrap();
    assert_eq!(orphans, Orphans { removed: 3, cut: 1, failed: 0 });
    // Inodes without names have no data.
    assert_eq!(cuts.load(Ordering::SeqCst), 1);
    for ino in inos {
        assert!(fix.table.get(&fix.volume, ino).unwrap().is_none());
    }
    assert_eq!(fix.table.get(&fix.volume, named).unwrap().unwrap().core().nlink, 1);
    assert_eq!((fix.free().0, fix.free().2), (before.0, 0));
    let fix = fix.crashed();
    let again = recover(&fix.volume, &fix.table, &no_cut).unwrap();
    assert_eq!(again, Orphans::default());
}

#[test]
fn an_inode_whose_inactivation_fails_stays_an_orphan() {
    let fix = Fixture::new();
    let node = fix.orphan(TYPE_REGULAR, 0, 3000, 0);
    with_data(&node, 0);
    let fails = |_: &Arc<Node>, _| Err(Fault::NoSpace);
    assert!(matches!(inactivate(&fix.volume, &node, &fails), Err(Fault::NoSpace)));
    let ino = node.ino();
    drop(node);
    let fix = fix.crashed();
    with_data(&fix.table.get(&fix.volume, ino).unwrap().unwrap(), 0);
    let orphans = recover(&fix.volume, &fix.table, &fails).unwrap();
    assert_eq!(orphans, Orphans { failed: 1, ..Orphans::default() });
    let orphans = recover(&fix.volume, &fix.table, &no_cut).unwrap();
    assert_eq!(orphans, Orphans { removed: 1, ..Orphans::default() });
}

#[test]
fn a_large_orphan_is_freed_in_the_background() {
    let fix = Fixture::new();
    let before = fix.free();
    let is_cut = Arc::new(AtomicBool::new(false));
    let of_cut = Arc::clone(&is_cut);
    let cut = Arc::new(move |_: &Arc<Node>, _| {
        of_cut.store(true, Ordering::SeqCst);
        Ok(())
    });
    let inactivator = Inactivator::new(Arc::clone(&fix.volume), Arc::clone(&fix.table), cut);
    for number in 0..100 {
        inactivator.throttle();
        let node = fix.orphan(TYPE_REGULAR, 0, 300, 0);
        node.follow_times(node.core().generation, || Times { atime: number, mtime: 2, ctime: 3 });
        inactivator.queue(node);
    }
    inactivator.flush();
    assert!(!is_cut.load(Ordering::SeqCst));
    assert_eq!((fix.free().0, fix.free().2), (before.0, 0));
    let node = fix.orphan(TYPE_REGULAR, 0, 0, 0);
    assert_eq!((node.core().atime, node.has_new_times()), (5, false));
    inactivator.queue(node);
    inactivator.stop();
    inactivator.stop();
    assert_eq!(inactivator.recover().unwrap().failed, 0);
    assert_eq!(fix.free().2, 0);
    fix.volume.close().unwrap();
}

#[test]
fn times_of_an_inode_that_is_gone_are_not_stored() {
    let fix = Fixture::new();
    let files = Files::new(
        Arc::clone(&fix.volume),
        &Settings { sync_interval: None, ..Settings::default() },
    );
    let node = fix.orphan(TYPE_REGULAR, 0, 0, 0);
    node.follow_times(node.core().generation, || Times { atime: 9, mtime: 9, ctime: 9 });
    files.set_times_dirty(&node);
    inactivate(&fix.volume, &node, &no_cut).unwrap();
    let sequence = node.sequence();
    assert!(!node.has_new_times());
    // Times that a thread changes too late are not stored either.
    let late = || Times { atime: 9, mtime: 9, ctime: 9 };
    assert!(!node.follow_times(node.core().generation, late));
    files.write_back_all().unwrap();
    assert_eq!((node.has_new_times(), node.sequence()), (false, sequence));
}
