//! Files of whole volumes.

use proptest::prelude::*;
use vfscale_block::{Operation, OsError};
use vfscale_sync::scaling::Scaling;
use vfscale_testkit::{CrashPlan, FaultyDevice, RecordingDevice};

use super::super::file_blocks::RangeStep as CutStep;
use super::*;
use crate::data::Files;
use crate::file_io::tests::model::{Both, Step, Subject, step};
use crate::icache::table::NodeTable;
use crate::inode::core::{DataFork, InodeCore};
use crate::inode::incore::Node;
use crate::tools::check;
use crate::tools::mkfs::{MkfsOptions, format};
use crate::volume::tx::TxReservation;
use crate::volume::{Settings, Volume};

pub(super) const BLOCKS: u64 = 4096;
const REGULAR: u32 = 0o100_644;

/// An open volume, its inodes and its files.
pub(super) struct Mounted {
    device: Arc<dyn Device>,
    pub(super) files: Arc<Files>,
    nodes: NodeTable,
}

fn memory() -> MemoryDevice {
    MemoryDevice::with_block_size(BLOCKS * PAGE, 4096).unwrap()
}

pub(super) fn made() -> Arc<dyn Device> {
    let device = memory();
    for block in 0..BLOCKS {
        device.write_at(block * PAGE, &[POISON; PAGE_SIZE]).unwrap();
    }
    format(&device, &MkfsOptions { force: true, ..MkfsOptions::default() }).unwrap();
    Arc::new(device)
}

impl Mounted {
    pub(super) fn open(device: &Arc<dyn Device>, data_cache_bytes: u64) -> Self {
        // Nothing happens but what the test does.
        let mut settings =
            Settings { data_cache_bytes, sync_interval: None, ..Settings::default() };
        // Two lists, and so two threads that write behind, however many CPUs there are.
        settings.journal.scaling = Scaling::with_slots(2);
        let volume = Arc::new(Volume::open(device.clone(), settings.clone()).unwrap());
        let (files, nodes) = (Files::new(volume, &settings), NodeTable::new(100));
        Self { device: Arc::clone(device), files, nodes }
    }

    pub(super) fn volume(&self) -> &Volume {
        self.files.volume()
    }

    /// A new file.
    pub(super) fn create(&self) -> Arc<Node> {
        let need = TxReservation { log_blocks: 100, space: 8, from_pool: false };
        let mut tx = self.volume().begin(need).unwrap();
        let node_of = |ino| self.nodes.claim(ino, self.volume().cache());
        let (node, generation) = tx.new_node(8, false, node_of).unwrap();
        let guard = node.lock();
        tx.set_core(&node, InodeCore { nlink: 1, ..InodeCore::new(REGULAR, generation, 5) });
        self.volume().force(tx.commit().unwrap()).unwrap();
        drop(guard);
        node
    }

    pub(super) fn node(&self, ino: u64) -> Arc<Node> {
        self.nodes.get(self.volume(), ino).unwrap().unwrap()
    }

    /// Returns a second node of the inode, as after an eviction.
    pub(super) fn read_anew(&self, node: &Arc<Node>) -> Arc<Node> {
        Node::new(node.ino(), Arc::clone(&node.stored()), self.volume().cache())
    }

    pub(super) fn contents(&self, node: &Arc<Node>) -> Vec<u8> {
        let mut bytes = vec![1; self.files.size(node) as usize];
        assert_eq!(self.files.file(node).read(0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    pub(super) fn close(&self) {
        self.files.stop();
        self.files.write_back_all().unwrap();
        self.volume().close().unwrap();
        assert_eq!(self.volume().overruns(), 0);
        // Everything is right, but for names: these files have none.
        let options = check::Options::default();
        let report = check::check(Arc::clone(&self.device), &options, &mut ()).unwrap();
        let of_names = [1020, 1021];
        let found = report.findings.iter().find(|found| !of_names.contains(&found.number()));
        assert!(found.is_none(), "{}", found.unwrap().problem);
    }
}

/// A file of a volume that is opened again and again.
struct OnVolume {
    device: Arc<dyn Device>,
    mounted: Mounted,
    node: Arc<Node>,
}

impl OnVolume {
    fn new() -> Self {
        let device = made();
        let mounted = Mounted::open(&device, 0);
        let node = mounted.create();
        Self { device, mounted, node }
    }

    fn files(&self) -> &Files {
        &self.mounted.files
    }
}

impl Subject for OnVolume {
    fn size(&self) -> u64 {
        self.files().size(&self.node)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<usize, Fault> {
        self.files().file(&self.node).write(at, bytes)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, Fault> {
        self.files().file(&self.node).read(at, into)
    }

    fn set_size(&self, size: u64) -> Result<(), Fault> {
        self.files().file(&self.node).set_size(size)
    }

    fn allocate(&self, at: u64, len: u64, keep_size: bool) -> Result<(), Fault> {
        self.files().file(&self.node).allocate(at, len, keep_size)
    }

    fn punch(&self, at: u64, len: u64) -> Result<(), Fault> {
        self.files().file(&self.node).punch(at, len)
    }

    fn zero_range(&self, at: u64, len: u64, keep_size: bool) -> Result<(), Fault> {
        self.files().file(&self.node).zero_range(at, len, keep_size)
    }

    fn seek_data(&self, at: u64) -> Option<u64> {
        self.files().file(&self.node).seek_data(at).unwrap()
    }

    fn seek_hole(&self, at: u64) -> Option<u64> {
        self.files().file(&self.node).seek_hole(at).unwrap()
    }

    fn write_back(&self) {
        self.files().sync(&self.node, false).unwrap();
        assert_eq!(self.node.core().size, self.size());
        // All that is not free belongs to the file.
        let blocks = self.files().blocks_512(&self.node) / 8;
        assert_eq!(blocks, self.node.core().blocks);
    }

    fn reclaim(&self, pages: u64) {
        self.files().pages().reclaim(pages);
    }

    fn remount(&mut self) {
        self.mounted.close();
        let ino = self.node.ino();
        self.mounted = Mounted::open(&self.device, 0);
        self.node = self.mounted.node(ino);
    }

    fn crash(&mut self) -> bool {
        // Unforced changes are lost with the volume.
        let ino = self.node.ino();
        let _ = self.files().volume().journal().unwrap().force_all();
        self.files().stop();
        self.mounted = Mounted::open(&self.device, 0);
        self.node = self.mounted.node(ino);
        true
    }

    fn check(&self) {
        assert_eq!(self.files().volume().overruns(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_file_on_a_volume_is_as_a_vector(steps in prop::collection::vec(step(), 1..50)) {
        let mut both = Both::new(OnVolume::new());
        let free = both.subject.files().volume().space().figures().free;
        both.run(&steps);
        both.step(&Step::Remount);
        prop_assert_eq!(both.subject.files().volume().space().figures().free, free);
    }
}

#[test]
fn a_small_file_costs_no_block_and_a_large_one_is_found_again() {
    let device = made();
    let mounted = Mounted::open(&device, 1 << 20);
    let (small, large) = (mounted.create(), mounted.create());
    let free = mounted.volume().space().figures().free;
    mounted.files.file(&small).write(0, b"a few words").unwrap();
    mounted.files.sync(&small, true).unwrap();
    assert_eq!(mounted.volume().space().figures().free, free);
    assert!(matches!(small.core().data, DataFork::Inline(_)));
    // Every second page, so that the extents need a tree.
    for page in 0..200 {
        mounted.files.file(&large).write(page * 2 * PAGE, &[page as u8 + 1; PAGE_SIZE]).unwrap();
    }
    mounted.files.sync(&large, true).unwrap();
    assert!(matches!(large.core().data, DataFork::Tree { .. }));
    let blocks = mounted.files.blocks_512(&large) / 8;
    assert_eq!(mounted.volume().space().figures().free, free - blocks);
    let bytes = mounted.contents(&large);
    let (small, large) = (small.ino(), large.ino());
    mounted.close();
    let mounted = Mounted::open(&device, 1 << 20);
    assert_eq!(mounted.contents(&mounted.node(small)), b"a few words");
    assert_eq!(mounted.contents(&mounted.node(large)), bytes);
    assert_eq!(bytes[398 * PAGE_SIZE], 200);
    let node = mounted.node(large);
    mounted.files.truncate_extents(&node, 0).unwrap();
    mounted.volume().sync().unwrap();
    assert_eq!(mounted.volume().space().figures().free, free);
    assert_eq!((node.core().blocks, node.core().size), (0, 0));
}

#[test]
fn a_full_volume_says_so_at_the_call() {
    let device = made();
    let mounted = Mounted::open(&device, 4 << 20);
    let node = mounted.create();
    let free = mounted.volume().space().figures().free;
    let bytes = vec![1; 100 * PAGE_SIZE];
    let mut size = 0;
    loop {
        match mounted.files.file(&node).write(size, &bytes) {
            Ok(written) => size += written as u64,
            Err(Fault::NoSpace) => break,
            Err(fault) => panic!("{fault}"),
        }
    }
    assert!(size > free / 2 * PAGE, "{size}");
    // All of it finds its place.
    mounted.files.sync(&node, false).unwrap();
    assert_eq!(mounted.contents(&node).len() as u64, size);
    mounted.files.file(&node).set_size(0).unwrap();
    mounted.volume().sync().unwrap();
    assert_eq!(mounted.volume().space().figures().free, free);
    assert_eq!(mounted.files.file(&node).write(0, &bytes).unwrap(), bytes.len());
    mounted.close();
}

#[test]
fn a_write_that_fails_is_told_by_the_next_sync() {
    let faulty = Arc::new(FaultyDevice::new(memory()));
    let device: Arc<dyn Device> = faulty.clone();
    format(&*device, &MkfsOptions::default()).unwrap();
    let mounted = Mounted::open(&device, 1 << 20);
    let node = mounted.create();
    let free = mounted.volume().space().figures().free;
    mounted.files.file(&node).write(0, &[1; 10 * PAGE_SIZE]).unwrap();
    faulty.arm(vfscale_testkit::Fault::on(Operation::Write).fail(OsError::new(5)));
    mounted.files.write_back_all().unwrap_err();
    faulty.disarm();
    mounted.files.sync(&node, true).unwrap();
    assert_eq!(mounted.contents(&node), vec![0; 10 * PAGE_SIZE]);
    // Blocks that could not be written are left out for now.
    let left_out = free - mounted.volume().space().figures().free;
    assert!((1..=30).contains(&left_out), "{left_out}");
    // A sync of the file reports the error, and so does a sync of the volume.
    assert!(!node.write_errors().is_told());
    assert!(!mounted.files.write_errors().is_told());
    mounted.files.sync_all().unwrap();
    mounted.close();
}

#[test]
fn a_request_that_fails_once_loses_nothing() {
    let faulty = Arc::new(FaultyDevice::new(memory()));
    let device: Arc<dyn Device> = faulty.clone();
    format(&*device, &MkfsOptions::default()).unwrap();
    // So much of it is unused that the flusher has no reason to write before the fault is armed.
    let mounted = Mounted::open(&device, 4 << 20);
    let node = mounted.create();
    let bytes = vec![1; 100 * PAGE_SIZE];
    mounted.files.file(&node).write(0, &bytes).unwrap();
    faulty.arm(vfscale_testkit::Fault::on(Operation::Write).nth(1).fail(OsError::new(5)));
    mounted.files.sync(&node, true).unwrap();
    assert_eq!(faulty.fired(), 1);
    faulty.disarm();
    assert!(mounted.files.write_errors().is_told());
    assert_eq!(mounted.contents(&node), bytes);
    mounted.close();
}

/// The script of the crash test. Each file is full of one byte.
fn script(mounted: &Mounted, recording: &RecordingDevice<Arc<dyn Device>>) -> [u64; 3] {
    let nodes = [mounted.create(), mounted.create(), mounted.create()];
    let files = &mounted.files;
    recording.mark("made");
    files.file(&nodes[0]).write(0, &[1; 5 * PAGE_SIZE + 77]).unwrap();
    files.sync(&nodes[0], true).unwrap();
    recording.mark("first");
    files.file(&nodes[1]).write(100, &[2; 3 * PAGE_SIZE]).unwrap();
    files.file(&nodes[0]).set_size(2 * PAGE + 9).unwrap();
    files.file(&nodes[2]).write(0, &[3; 50]).unwrap();
    files.write_back_all().unwrap();
    mounted.volume().sync().unwrap();
    recording.mark("second");
    // Freed blocks are used again.
    files.file(&nodes[0]).set_size(0).unwrap();
    files.sync(&nodes[0], false).unwrap();
    files.file(&nodes[2]).write(20, &[3; 20 * PAGE_SIZE]).unwrap();
    files.file(&nodes[1]).allocate(10 * PAGE, 4 * PAGE, false).unwrap();
    files.write_back_all().unwrap();
    mounted.volume().sync().unwrap();
    recording.mark("third");
    files.file(&nodes[0]).write(PAGE / 2, &[1; 4 * PAGE_SIZE]).unwrap();
    files.file(&nodes[2]).punch(5 * PAGE, 5 * PAGE).unwrap();
    files.write_back_all().unwrap();
    mounted.close();
    nodes.map(|node| node.ino())
}

#[test]
fn a_crash_shows_no_bytes_but_the_files_own() {
    let base = made();
    let recording = Arc::new(RecordingDevice::new(base));
    let device: Arc<dyn Device> = recording.clone();
    let inodes = script(&Mounted::open(&device, 1 << 20), &recording);
    let plan = CrashPlan::default().exhaustive_bits(2).listed_max(3).samples(2);
    let mut sizes = std::collections::BTreeSet::new();
    for state in recording.crash_states(plan) {
        let id = state.id();
        let device: Arc<dyn Device> = state.device();
        if state.marks() == 0 {
            continue;
        }
        let mounted = Mounted::open(&device, 1 << 20);
        let contents = inodes.map(|ino| mounted.contents(&mounted.node(ino)));
        for (bytes, own) in contents.iter().zip([1, 2, 3]) {
            assert!(bytes.iter().all(|byte| *byte == own || *byte == 0), "state {id}");
        }
        sizes.insert(contents.each_ref().map(Vec::len));
        match state.marks() {
            2 => assert_eq!(contents[0][..2 * PAGE_SIZE + 9], [1; 2 * PAGE_SIZE + 9], "{id}"),
            3 => assert_eq!(contents[1][100..3 * PAGE_SIZE + 100], [2; 3 * PAGE_SIZE], "{id}"),
            4 => assert_eq!(contents[2][..5 * PAGE_SIZE], [3; 5 * PAGE_SIZE], "{id}"),
            _ => {}
        }
        mounted.close();
    }
    assert!(sizes.len() >= 6, "{sizes:?}");
}

#[test]
fn a_crash_leaves_a_file_as_it_was_or_cut() {
    let base = made();
    let mounted = Mounted::open(&base, 4 << 20);
    let free = mounted.volume().space().figures().free;
    let node = mounted.create();
    // Many extents, so that it takes many transactions.
    for page in 0..60 {
        mounted.files.file(&node).write(page * 2 * PAGE, &[1; PAGE_SIZE]).unwrap();
    }
    let ino = node.ino();
    mounted.close();
    let recording = Arc::new(RecordingDevice::new(base));
    let device: Arc<dyn Device> = recording.clone();
    let mounted = Mounted::open(&device, 4 << 20);
    let node = mounted.node(ino);
    for size in [100 * PAGE, 3 * PAGE] {
        mounted.files.file(&node).set_size(size).unwrap();
        mounted.volume().sync().unwrap();
    }
    mounted.close();
    let plan = CrashPlan::default().exhaustive_bits(1).listed_max(2).samples(1);
    let mut sizes = std::collections::BTreeSet::new();
    for state in recording.crash_states(plan) {
        let device: Arc<dyn Device> = state.device();
        let mounted = Mounted::open(&device, 4 << 20);
        let node = mounted.node(ino);
        let size = mounted.files.size(&node);
        sizes.insert(size);
        let blocks = mounted.files.blocks_512(&node) / 8;
        let chunk = 8;
        let left = mounted.volume().space().figures().free;
        assert!(left + blocks <= free && left + blocks + chunk >= free, "state {}", state.id());
        let written = size.div_ceil(2 * PAGE).min(60);
        assert!(blocks >= written && blocks <= written + 2, "{blocks} blocks, {size} bytes");
        mounted.close();
    }
    assert_eq!(sizes.len(), 3, "{sizes:?}");
}

#[test]
fn a_cut_that_was_begun_is_finished_by_the_next_mount() {
    let device = made();
    let mounted = Mounted::open(&device, 4 << 20);
    let node = mounted.create();
    for page in 0..60 {
        mounted.files.file(&node).write(page * 2 * PAGE, &[1; PAGE_SIZE]).unwrap();
    }
    mounted.files.sync(&node, false).unwrap();
    let (ino, free) = (node.ino(), mounted.volume().space().figures().free);
    // The first of its transactions, and then nothing more.
    let store = mounted.files.blocks(&node);
    let cut = CutStep::Cut { size: 3 * PAGE };
    assert!(store.step(cut, 3, u64::MAX).unwrap() < 118);
    mounted.volume().sync().unwrap();
    mounted.files.stop();
    drop((node, mounted));
    let mounted = Mounted::open(&device, 4 << 20);
    let orphans = || mounted.volume().groups().orphans(&mounted.volume().reader(), 0).unwrap();
    assert_eq!(orphans(), [ino]);
    let node = mounted.node(ino);
    mounted.volume().orphans().found(&node);
    assert_eq!(mounted.files.size(&node), 3 * PAGE);
    mounted.files.truncate_extents(&node, node.core().size).unwrap();
    mounted.volume().sync().unwrap();
    assert!(orphans().is_empty());
    // Two pages are left, and the root of the tree.
    assert_eq!(mounted.files.blocks_512(&node), 3 * 8);
    assert!(mounted.volume().space().figures().free >= free + 58);
    assert_eq!(mounted.contents(&node)[2 * PAGE_SIZE..], [1; PAGE_SIZE]);
    mounted.close();
}

/// Writing the blocks of an allocated range in any order needs no more tree blocks than are left,
/// although next to none are: the volume is full, and a file of single written blocks would take
/// more.
#[test]
fn allocated_blocks_can_be_written_on_a_full_volume() {
    let device = made();
    let mounted = Mounted::open(&device, 0);
    let node = mounted.create();
    let space = mounted.volume().space();
    let blocks = space.figures().available - 100;
    mounted.files.file(&node).allocate(0, blocks * PAGE, false).unwrap();
    // The remaining space is allocated elsewhere, and all but a few blocks of the pool.
    let left = space.figures();
    assert!(space.take(left.available, false) && space.take(left.free - left.available, true));
    space.give(12);
    assert!(space.grain() > 1);
    let page = |block: u64| [(block % 250) as u8 + 1; PAGE_SIZE];
    // Every block once, far from the one before.
    let blocks_in_order = (0..blocks).map(|n| n * 1009 % blocks);
    for (n, block) in blocks_in_order.enumerate() {
        mounted.files.file(&node).write(block * PAGE, &page(block)).unwrap();
        if n % 3 == 0 {
            let written = mounted.files.write_back_all();
            assert!(written.is_ok(), "{written:?} after {n} blocks");
        }
        if n == 500 {
            // Nothing is between what was written but zeros.
            let bytes = mounted.contents(&node);
            let seen = bytes.chunks(PAGE_SIZE).zip(0..);
            let is_right =
                |(bytes, block): (&[u8], u64)| bytes == page(block) || bytes == [0; PAGE_SIZE];
            assert!(seen.into_iter().all(is_right));
        }
    }
    mounted.files.sync(&node, false).unwrap();
    let refused = mounted.files.file(&node).zero_range(PAGE, PAGE, true);
    assert!(matches!(refused, Err(Fault::NoSpace)));
    space.give(left.free - 12);
    let ino = node.ino();
    drop(node);
    mounted.close();
    drop(mounted);
    let mounted = Mounted::open(&device, 0);
    let node = mounted.node(ino);
    let bytes = mounted.contents(&node);
    assert!(bytes.chunks(PAGE_SIZE).zip(0..).all(|(bytes, block)| bytes == page(block)));
    mounted.close();
}
