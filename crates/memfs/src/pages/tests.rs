use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use vfscale_sync::random::Random;
use vfscale_sync::rcu;

use super::*;

const SLOTS: usize = 2;
const GIB: u64 = 1 << 30;
const SIZE_MAX: u64 = i64::MAX as u64;

/// A file as the driver builds it from a tree: with a size and a number of pages.
struct TestFile {
    tree: PageTree,
    space: Space,
    size: AtomicU64,
    pages: u64,
}

impl TestFile {
    fn new(space: u64) -> TestFile {
        TestFile {
            tree: PageTree::default(),
            space: Space::new(space, SLOTS),
            size: AtomicU64::new(0),
            pages: 0,
        }
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn extend(&self, end: u64) {
        self.size.fetch_max(end, Ordering::AcqRel);
    }

    fn write(&mut self, offset: u64, buf: &[u8]) -> usize {
        let written = self.tree.write(offset, buf, &self.space);
        self.pages += written.pages;
        if written.bytes > 0 {
            self.extend(offset + written.bytes as u64);
        }
        written.bytes
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = self.size().saturating_sub(offset).min(len as u64) as usize;
        let mut buf = vec![0xaa; len];
        self.tree.read(offset, &mut buf);
        buf
    }

    fn truncate(&mut self, size: u64) {
        let before = self.size.swap(size, Ordering::AcqRel);
        if size <= before {
            self.pages -= self.tree.truncate(size, &self.space);
        }
    }

    fn punch(&mut self, range: Range<u64>) {
        self.pages -= self.tree.punch(range, &self.space);
    }

    fn allocate(&mut self, range: Range<u64>, keep_size: bool) -> bool {
        let Ok(added) = self.tree.allocate(range.clone(), &self.space) else { return false };
        self.pages += added;
        if !keep_size {
            self.extend(range.end);
        }
        true
    }

    fn zero_range(&mut self, range: Range<u64>, keep_size: bool) -> bool {
        let Ok(added) = self.tree.zero_range(range.clone(), &self.space) else { return false };
        self.pages += added;
        if !keep_size {
            self.extend(range.end);
        }
        true
    }

    fn seek_data(&self, offset: u64) -> Option<u64> {
        self.tree.seek_data(offset, self.size())
    }

    fn seek_hole(&self, offset: u64) -> Option<u64> {
        (offset < self.size()).then(|| self.tree.seek_hole(offset, self.size()))
    }

    /// Checks the tree's shape, and that the charge matches the contents.
    fn check(&self) {
        let guard = rcu::pin();
        let (nodes, pages) = check_slot(&self.tree.root, None, &guard);
        assert_eq!(pages, self.pages, "the number of pages");
        assert_eq!(self.space.used(), nodes * NODE_BYTES + pages * PAGE_BYTES, "the space taken");
    }
}

/// Checks the tree below `slot`, whose parent has shift `above`; returns its nodes and pages.
fn check_slot(slot: &PageSlot, above: Option<u32>, guard: &Guard) -> (u64, u64) {
    match slot.read(guard) {
        Entry::Empty => (0, 0),
        Entry::Reserved | Entry::Leaf(_) => {
            assert!(matches!(above, None | Some(0)), "a page below a node of shift {above:?}");
            (0, 1)
        }
        Entry::Node(node) => {
            assert!(above.is_none_or(|above| above == node.shift + FANOUT_BITS), "a wrong shift");
            let (mut nodes, mut pages) = (1, 0);
            for slot in &node.slots {
                let below = check_slot(slot, Some(node.shift), guard);
                nodes += below.0;
                pages += below.1;
            }
            assert!(pages > 0, "a node without use");
            (nodes, pages)
        }
    }
}

/// The expected file: its size, and its pages, of which `None` is a reservation.
#[derive(Default)]
struct Model {
    size: u64,
    pages: BTreeMap<u64, Option<Vec<u8>>>,
}

/// Returns the pages that a range of bytes, which is not empty, touches, each with its part of the
/// range.
fn pieces(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> + use<> {
    let (start, end) = (range.start, range.end);
    (start / PAGE..end.div_ceil(PAGE)).map(move |index| {
        let within = |at: u64| (at.clamp(index * PAGE, (index + 1) * PAGE) - index * PAGE) as usize;
        (index, within(start)..within(end))
    })
}

impl Model {
    fn page_mut(&mut self, index: u64) -> &mut Vec<u8> {
        self.pages.entry(index).or_default().get_or_insert_with(|| vec![0; PAGE as usize])
    }

    fn byte(&self, at: u64) -> u8 {
        match self.pages.get(&(at / PAGE)) {
            Some(Some(page)) => page[(at % PAGE) as usize],
            _ => 0,
        }
    }

    fn write(&mut self, offset: u64, buf: &[u8]) {
        if buf.is_empty() {
            return;
        }
        for (index, within) in pieces(&(offset..offset + buf.len() as u64)) {
            let from = (index * PAGE + within.start as u64 - offset) as usize;
            let piece = &buf[from..from + within.len()];
            self.page_mut(index)[within].copy_from_slice(piece);
        }
        self.size = self.size.max(offset + buf.len() as u64);
    }

    fn zero_existing(&mut self, range: Range<u64>) {
        for (index, within) in pieces(&range) {
            if let Some(Some(page)) = self.pages.get_mut(&index) {
                page[within].fill(0);
            }
        }
    }

    fn truncate(&mut self, size: u64) {
        if size <= self.size {
            self.pages.retain(|&index, _| index * PAGE < size);
            self.zero_existing(size..size.next_multiple_of(PAGE));
        }
        self.size = size;
    }

    /// Returns the pages that are entirely in `range`.
    fn whole(range: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let range = range.clone();
        (range.start / PAGE..range.end.div_ceil(PAGE))
            .filter(move |index| range.start <= index * PAGE && (index + 1) * PAGE <= range.end)
    }

    fn punch(&mut self, range: Range<u64>) {
        self.zero_existing(range.clone());
        for index in Self::whole(&range) {
            self.pages.remove(&index);
        }
    }

    fn allocate(&mut self, range: Range<u64>, keep_size: bool) {
        for index in range.start / PAGE..range.end.div_ceil(PAGE) {
            self.pages.entry(index).or_insert(None);
        }
        if !keep_size {
            self.size = self.size.max(range.end);
        }
    }

    fn zero_range(&mut self, range: Range<u64>, keep_size: bool) {
        self.allocate(range.clone(), keep_size);
        self.zero_existing(range.clone());
        for index in Self::whole(&range) {
            self.pages.insert(index, None);
        }
    }

    fn seek_data(&self, offset: u64) -> Option<u64> {
        self.pages
            .range(offset / PAGE..)
            .find(|(_, page)| page.is_some())
            .map(|(index, _)| offset.max(index * PAGE))
            .filter(|&found| found < self.size)
    }

    fn seek_hole(&self, offset: u64) -> Option<u64> {
        let is_data = |index: &u64| matches!(self.pages.get(index), Some(Some(_)));
        (offset < self.size).then(|| {
            let index = (offset / PAGE..).find(|index| !is_data(index)).unwrap_or(u64::MAX);
            offset.max(index.saturating_mul(PAGE)).min(self.size)
        })
    }

    fn check(&self, file: &TestFile) {
        assert_eq!(self.size, file.size(), "the size");
        assert_eq!(self.pages.len() as u64, file.pages, "the number of pages");
        for (&index, page) in &self.pages {
            assert!(index < file.tree.end.load(Ordering::Relaxed), "page {index} is past the end");
            let offset = index * PAGE;
            if offset < self.size {
                let len = (self.size - offset).min(PAGE) as usize;
                let got = file.read(offset, PAGE as usize);
                let zeros = vec![0; PAGE as usize];
                let want = &page.as_ref().unwrap_or(&zeros)[..len];
                assert!(got == want, "page {index} differs");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize, u8),
    Read(u64, usize),
    Truncate(u64),
    Punch(u64, u64),
    Zero(u64, u64, bool),
    Allocate(u64, u64, bool),
    SeekData(u64),
    SeekHole(u64),
    Cycle,
}

/// Returns offsets around those where a tree gets another level or node.
fn offset() -> impl Strategy<Value = u64> {
    let base = prop_oneof![
        4 => Just(0),
        2 => Just(60 * PAGE),
        1 => Just(4090 * PAGE),
        1 => Just(5 * GIB),
        1 => Just(SIZE_MAX - 40 * PAGE),
    ];
    (base, prop_oneof![(0..9u64).prop_map(|n| n * PAGE), 0..9 * PAGE]).prop_map(|(b, d)| b + d)
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![1..100usize, 1..30_000usize, (1..5usize).prop_map(|n| n * PAGE as usize)]
}

fn op() -> impl Strategy<Value = Op> {
    let span = || (offset(), len().prop_map(|len| len as u64));
    prop_oneof![
        4 => (offset(), len(), 1..=255u8).prop_map(|(o, l, b)| Op::Write(o, l, b)),
        2 => (offset(), len()).prop_map(|(o, l)| Op::Read(o, l)),
        2 => offset().prop_map(Op::Truncate),
        2 => span().prop_map(|(o, l)| Op::Punch(o, l)),
        2 => (span(), any::<bool>()).prop_map(|((o, l), k)| Op::Zero(o, l, k)),
        2 => (span(), any::<bool>()).prop_map(|((o, l), k)| Op::Allocate(o, l, k)),
        1 => offset().prop_map(Op::SeekData),
        1 => offset().prop_map(Op::SeekHole),
        1 => Just(Op::Cycle),
    ]
}

/// Applies `op` to both; an operation for which there is no space is not applied to the model.
fn apply(op: &Op, file: &mut TestFile, model: &mut Model) {
    match *op {
        Op::Write(offset, len, byte) => {
            let buf: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
            let done = file.write(offset, &buf);
            model.write(offset, &buf[..done]);
            if done < len {
                let left = file.space.total() - file.space.used();
                assert!(left < PAGE_BYTES + 18 * NODE_BYTES, "a short write with {left} bytes");
            }
        }
        Op::Read(offset, len) => {
            let got = file.read(offset, len);
            let end = model.size.min(offset + len as u64);
            let want: Vec<u8> = (offset..end.max(offset)).map(|at| model.byte(at)).collect();
            assert!(got == want, "{len} bytes at {offset} differ");
        }
        Op::Truncate(size) => {
            file.truncate(size);
            model.truncate(size);
        }
        Op::Punch(offset, len) => {
            file.punch(offset..offset + len);
            model.punch(offset..offset + len);
        }
        Op::Zero(offset, len, keep) => {
            if file.zero_range(offset..offset + len, keep) {
                model.zero_range(offset..offset + len, keep);
            }
        }
        Op::Allocate(offset, len, keep) => {
            if file.allocate(offset..offset + len, keep) {
                model.allocate(offset..offset + len, keep);
            }
        }
        Op::SeekData(offset) => assert_eq!(file.seek_data(offset), model.seek_data(offset)),
        Op::SeekHole(offset) => assert_eq!(file.seek_hole(offset), model.seek_hole(offset)),
        Op::Cycle => rcu::synchronize(),
    }
    file.check();
    model.check(file);
}

fn run(space: u64, ops: &[Op]) {
    let (mut file, mut model) = (TestFile::new(space), Model::default());
    for op in ops {
        apply(op, &mut file, &mut model);
    }
    file.truncate(0);
    assert_eq!((file.pages, file.space.used()), (0, 0));
    assert!(file.tree.root.is_empty());
}

proptest! {
    #[test]
    fn behaves_like_a_plain_map_of_pages(ops in prop::collection::vec(op(), 1..40)) {
        run(64 << 20, &ops);
    }

    #[test]
    fn runs_out_of_space_in_good_order(ops in prop::collection::vec(op(), 1..60)) {
        run(20 * PAGE_BYTES, &ops);
    }
}

#[test]
fn a_file_of_one_page_has_no_node() {
    let mut file = TestFile::new(GIB);
    assert_eq!(file.write(100, b"x"), 1);
    assert!(matches!(file.tree.root.read(&rcu::pin()), Entry::Leaf(_)));
    assert_eq!(file.space.used(), PAGE_BYTES);
    assert_eq!(size_of::<PageTree>(), 16);
}

#[test]
fn the_last_byte_that_a_file_can_have_is_written_and_read() {
    let mut file = TestFile::new(GIB);
    assert_eq!(file.write(0, b"first"), 5);
    assert_eq!(file.write(SIZE_MAX - 4, b"last"), 4);
    assert_eq!(file.size(), SIZE_MAX);
    file.check();
    assert_eq!(file.read(SIZE_MAX - 10, 100), b"\0\0\0\0\0\0last");
    assert_eq!(file.read(0, 7), b"first\0\0");
    assert_eq!(file.seek_data(PAGE), Some((SIZE_MAX - 4) / PAGE * PAGE));
    assert_eq!(file.seek_hole(0), Some(PAGE));
    file.punch(0..SIZE_MAX);
    assert_eq!(file.seek_data(0), Some((SIZE_MAX - 4) / PAGE * PAGE));
    assert_eq!(file.read(SIZE_MAX - 4, 4), [0; 4]);
    file.truncate(0);
    assert_eq!(file.space.used(), 0);
}

#[test]
fn extending_after_a_cut_shows_no_old_bytes() {
    let mut file = TestFile::new(GIB);
    file.write(0, &[0xff; 3 * PAGE as usize]);
    file.truncate(PAGE + 10);
    file.truncate(3 * PAGE);
    let got = file.read(0, 3 * PAGE as usize);
    assert!(got[..PAGE as usize + 10].iter().all(|&b| b == 0xff));
    assert!(got[PAGE as usize + 10..].iter().all(|&b| b == 0));
}

#[test]
fn an_impossible_allocation_fails_immediately_and_changes_nothing() {
    let mut file = TestFile::new(GIB);
    file.write(5 * PAGE, b"here");
    let used = file.space.used();
    let start = std::time::Instant::now();
    assert!(!file.allocate(0..1 << 50, false));
    assert!(!file.allocate(1 << 40..SIZE_MAX, true));
    assert!(!file.zero_range(0..1 << 50, false));
    assert!(start.elapsed() < std::time::Duration::from_millis(100));
    assert_eq!((file.space.used(), file.size()), (used, 5 * PAGE + 4));
    assert_eq!(file.read(5 * PAGE, 4), b"here");
    file.check();
}

#[test]
fn a_reservation_belongs_to_its_file() {
    let mut file = TestFile::new(100 * PAGE_BYTES);
    assert!(file.allocate(0..80 * PAGE, true));
    let mut other = TestFile { space: file.space, ..TestFile::new(0) };
    assert!(other.write(0, &[1; 100 * PAGE as usize]) < 20 * PAGE as usize);
    file.space = other.space;
    // The space is reserved, so none has to be charged.
    assert_eq!(file.write(0, &[2; 80 * PAGE as usize]), 80 * PAGE as usize);
    assert_eq!(file.pages, 80);
}

#[test]
fn seeking_over_a_big_hole_takes_few_steps() {
    let mut file = TestFile::new(GIB);
    file.write(SIZE_MAX - 1, b"x");
    let start = std::time::Instant::now();
    for _ in 0..1_000 {
        assert!(file.seek_data(0).is_some());
    }
    // A step for each page of the hole would take days.
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
}

/// Returns the byte that the stress tests store at an offset. Neighbouring pages differ, so the
/// reuse of a page that is still being read shows.
fn pattern(at: u64) -> u8 {
    (at / 7 % 251) as u8 + 1
}

fn pattern_of(range: Range<u64>) -> Vec<u8> {
    range.map(pattern).collect()
}

#[test]
fn concurrent_readers_see_the_writers_bytes_or_zeros() {
    const PAGES: u64 = 300;
    const ROUNDS: u64 = 3_000;
    let mut file = TestFile::new(GIB);
    let done = AtomicBool::new(false);
    let (tree, space) = (PageTree::default(), Space::new(GIB, SLOTS));
    (file.tree, file.space) = (tree, space);
    let shared = &file;
    std::thread::scope(|scope| {
        for reader in 1..3u64 {
            let done = &done;
            scope.spawn(move || {
                let mut random = Random::new(reader);
                while !done.load(Ordering::Relaxed) {
                    let offset = random.below(PAGES * PAGE);
                    for (at, byte) in (offset..).zip(shared.read(offset, 20_000)) {
                        assert!(byte == 0 || byte == pattern(at), "{byte} at {at}");
                    }
                    let found = shared.seek_data(offset);
                    assert!(found.is_none_or(|found| found >= offset));
                }
            });
        }
        let mut random = Random::new(99);
        for round in 0..ROUNDS {
            let offset = random.below(PAGES * PAGE);
            let end = offset + random.below(20_000);
            match round % 5 {
                0 => {
                    shared.size.store(offset, Ordering::Release);
                    shared.tree.truncate(offset, &shared.space);
                }
                1 => drop(shared.tree.punch(offset..end, &shared.space)),
                2 => drop(shared.tree.zero_range(offset..end, &shared.space)),
                _ => {
                    let bytes = pattern_of(offset..end);
                    let written = shared.tree.write(offset, &bytes, &shared.space);
                    assert_eq!(written.bytes, bytes.len());
                    shared.extend(end);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    file.tree.truncate(0, &file.space);
    assert_eq!(file.space.used(), 0);
    rcu::synchronize();
    // The deferred work of this thread is done; the readers never freed anything.
    assert_eq!(file.space.limbo_used(), 0);
}

#[test]
fn readers_find_fixed_pages_while_the_tree_grows_around_them() {
    const STAYS: Range<u64> = 10..20;
    let done = AtomicBool::new(false);
    for start in [0, 100 * PAGE, 5_000 * PAGE] {
        let file = &TestFile::new(GIB);
        let bytes = pattern_of(STAYS.start + start..STAYS.end + start);
        file.tree.write(STAYS.start + start, &bytes, &file.space);
        file.extend(SIZE_MAX);
        done.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(file.read(STAYS.start + start, bytes.len()), bytes);
                    }
                });
            }
            for round in 0..400u64 {
                // At ever higher offsets, and then truncated again to the fixed pages.
                let offset = start + (PAGE << (round % 50));
                file.tree.write(offset, b"above", &file.space);
                if round % 10 == 9 {
                    file.tree.truncate(start + PAGE, &file.space);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_reader_that_sleeps_causes_no_growth_without_bound() {
    const CHUNK: usize = 64 * PAGE as usize;
    let mut file = TestFile::new(8 << 20);
    let bound = file.space.total() + file.space.limbo_total();
    let asleep = rcu::pin();
    let mut written = 0;
    // The file has at most one chunk, but the guard prevents the memory of all former chunks from
    // being reused.
    while file.write(0, &[1; CHUNK]) == CHUNK {
        written += CHUNK as u64;
        assert!(written <= bound, "more memory than the bound is in use");
        file.truncate(0);
    }
    assert!(written > bound - 3 * CHUNK as u64, "the space is used up, after {written}");
    file.truncate(0);
    drop(asleep);
    rcu::synchronize();
    assert_eq!((file.space.used(), file.space.limbo_used()), (0, 0));
    assert_eq!(file.write(0, &[1; CHUNK]), CHUNK);
}

#[test]
fn an_overwrite_changes_nothing_before_it_has_locked_all_its_pages() {
    let space = Space::new(1 << 20, 1);
    let (tree, locks) = (PageTree::default(), PageLocks::new(1));
    tree.write(0, &[1; 3 * PAGE_SIZE], &space);
    let seen = || {
        let mut bytes = [0; 3 * PAGE_SIZE];
        tree.read(0, &mut bytes);
        bytes
    };
    let _section = rcu::pin();
    for held_page in [1, 2] {
        let held = locks.lock(7, held_page, 1);
        std::thread::scope(|scope| {
            let value = 1 + held_page as u8;
            let tree = &tree;
            let locks = &locks;
            let done = scope.spawn(move || tree.overwrite(PAGE, &[value; 2 * PAGE_SIZE], 7, locks));
            vfscale_harness::stays(
                "no page is seen yet",
                std::time::Duration::from_millis(20),
                || !seen().contains(&value),
            );
            drop(held);
            assert!(done.join().unwrap());
            assert!(seen()[PAGE_SIZE..].iter().all(|&byte| byte == value));
        });
    }
    assert!(seen()[..PAGE_SIZE].iter().all(|&byte| byte == 1));
    tree.truncate(0, &space);
}

#[test]
fn an_overwrite_with_a_page_missing_changes_nothing() {
    let space = Space::new(1 << 20, 1);
    let (tree, locks) = (PageTree::default(), PageLocks::new(1));
    tree.write(0, &[1; PAGE_SIZE], &space);
    assert!(!tree.overwrite(100, &[2; PAGE_SIZE], 7, &locks));
    let mut bytes = [0; PAGE_SIZE];
    tree.read(0, &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 1));
    assert!(tree.overwrite(PAGE - 8, &[2; 8], 7, &locks));
    tree.truncate(0, &space);
}

#[test]
fn stress_a_thread_that_has_locked_all_pages_sees_whole_overwrites() {
    const BYTES: usize = (PAGES_MAX - 1) * PAGE_SIZE;
    let space = Space::new(1 << 20, 1);
    let (tree, locks, done) = (PageTree::default(), PageLocks::new(1), AtomicBool::new(false));
    tree.write(0, &[1; BYTES], &space);
    std::thread::scope(|scope| {
        for value in [1, 2] {
            let (tree, locks, done) = (&tree, &locks, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    assert!(tree.overwrite(0, &[value; BYTES], 7, locks));
                }
            });
        }
        let are_whole = |_| {
            let _section = rcu::pin();
            let _locked = locks.lock(7, 0, PAGES_MAX - 1);
            let mut bytes = [0; BYTES];
            tree.read(0, &mut bytes);
            bytes.iter().all(|&byte| byte == bytes[0])
        };
        let all = (0..2_000).all(are_whole);
        done.store(true, Ordering::Relaxed);
        assert!(all);
    });
    tree.truncate(0, &space);
}

/// One write finds pages, a hole, a reservation and another hole, and one read finds them again.
#[test]
fn a_write_over_pages_holes_and_reservations_is_read_as_one() {
    for within in [0, 1, PAGE - 1] {
        let mut file = TestFile::new(GIB);
        file.write(2 * PAGE, &pattern_of(0..2 * PAGE));
        assert!(file.allocate(6 * PAGE..8 * PAGE, true));
        let bytes = pattern_of(within..70 * PAGE + 9);
        assert_eq!(file.write(within, &bytes), bytes.len());
        assert_eq!(file.pages, 71);
        assert_eq!(file.read(within, bytes.len()), bytes);
        file.punch(20 * PAGE..40 * PAGE);
        let read = file.read(within, bytes.len());
        for (at, byte) in (within..).zip(read) {
            let is_cut = (20 * PAGE..40 * PAGE).contains(&at);
            assert_eq!(byte, if is_cut { 0 } else { pattern(at) }, "byte {at}");
        }
        file.check();
    }
}

/// Where there is no space for all pages of a write, it takes those for which there is.
#[test]
fn a_write_takes_the_last_pages_of_the_space() {
    let room = NODE_BYTES + 40 * PAGE_BYTES;
    let mut file = TestFile::new(room + PAGE_BYTES - 1);
    assert_eq!(file.write(PAGE, &[7; 60 * PAGE_SIZE]), 40 * PAGE_SIZE);
    assert_eq!((file.pages, file.space.used()), (40, room));
    assert_eq!(file.write(0, &[7; 3]), 0);
    file.check();
}

/// Pages that are written together are in the order of their addresses, so that adjacent ones are
/// copied as one. The first page of a file is written before the tree has a node.
#[test]
fn pages_written_together_ascend() {
    let mut file = TestFile::new(GIB);
    file.write(0, &[7; FANOUT * PAGE_SIZE]);
    let guard = rcu::pin();
    let address = |index| std::ptr::from_ref(file.tree.page(index, &guard).unwrap()).addr();
    assert!((2..FANOUT as u64).all(|index| address(index - 1) < address(index)));
}
