use std::ops::Range;
use std::sync::{Arc, Mutex as StdMutex};

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::atomic::Ordering;
use vfscale_sync::errseq::ErrorSeq;
use vfscale_sync::page::{PAGE_SIZE, PageBox};

use super::*;
use crate::base::fault::Fault;
use crate::btree::memory::Memory;
use crate::format::BlockRange;
use crate::format::extent::Extent;
use crate::inode::extents::{ExtentMap, MapOwner};
use crate::page_cache::{FilePages, Mapping, Marks, PAGE, PageCache, offset_of, pages_of};

mod crash;
mod faults;
pub(crate) mod model;
mod moments;
mod ordinary;
mod races;
mod within;

const INO: u64 = 77;
const OWNER: MapOwner = MapOwner { ino: INO, list_max: 8 };
/// The first block that a file can have.
const FIRST: u64 = 100;
/// How many bytes fit into the inode at first.
const ROOM: u64 = 300;
/// The byte that fills the device at first, and freed blocks: no reader may ever see it.
pub(crate) const POISON: u8 = 0xEE;

/// The state of one file on the device; each change is atomic, and durable immediately.
pub(super) struct Disk {
    device: MemoryDevice,
    state: StdMutex<State>,
    hook: StdMutex<Option<(Point, Hook)>>,
}

/// Where somebody else can come in between: right before that is done, if it does not say
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Read,
    /// When it is done.
    HasRead,
    Write,
    Change,
}

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
struct State {
    map: ExtentMap,
    nodes: Memory,
    inline: Option<Arc<[u8]>>,
    room: u64,
    size: u64,
    /// Whether a block is free.
    free: Vec<bool>,
    reserved: u64,
    /// How many blocks were left out, and those that can't be written.
    aside: u64,
    bad: Vec<u64>,
    /// How many writes met one of these.
    refused: u64,
    /// The most blocks that a claim gets.
    claim_max: u32,
    /// Changes the next place that is claimed.
    turn: u64,
    /// How many calls of `change` and `write_blocks` succeed before one fails.
    changes_left: u64,
    writes_left: u64,
    reads_left: u64,
    claims_left: u64,
    /// The sizes that the file had on the disk.
    sizes: Vec<u64>,
    /// How many times space was set aside, and how many pages each write had.
    reserves: u64,
    written: Vec<usize>,
    /// How many writes are in flight, and the most so far.
    in_flight: (u64, u64),
    /// The ranges whose write-behind was asked for.
    behind: Vec<Range<u64>>,
    /// Nothing can be written.
    is_sealed: bool,
}

/// A file in memory, of a disk.
pub(super) struct File {
    disk: Arc<Disk>,
    pages: Arc<FilePages>,
    write_errors: ErrorSeq,
}

impl Disk {
    fn new(blocks: u64) -> Arc<Self> {
        let device = MemoryDevice::new((FIRST + blocks) * PAGE).unwrap();
        for block in FIRST..FIRST + blocks {
            device.write_at(block * PAGE, &[POISON; PAGE_SIZE]).unwrap();
        }
        let state = State {
            map: ExtentMap::default(),
            nodes: Memory::new(),
            inline: None,
            room: ROOM,
            size: 0,
            free: vec![true; blocks as usize],
            reserved: 0,
            aside: 0,
            bad: Vec::new(),
            refused: 0,
            claim_max: u32::MAX,
            turn: 0,
            changes_left: u64::MAX,
            writes_left: u64::MAX,
            reads_left: u64::MAX,
            claims_left: u64::MAX,
            sizes: Vec::new(),
            reserves: 0,
            written: Vec::new(),
            in_flight: (0, 0),
            behind: Vec::new(),
            is_sealed: false,
        };
        Arc::new(Self { device, state: StdMutex::new(state), hook: StdMutex::new(None) })
    }

    /// The file as it is found by somebody who knows nothing but the disk.
    fn open(self: &Arc<Self>, cache: &Arc<PageCache>) -> File {
        {
            let mut state = self.state.lock().unwrap();
            state.reserved = 0;
        }
        let pages = FilePages::new(cache, self.state.lock().unwrap().size);
        File { disk: Arc::clone(self), pages, write_errors: ErrorSeq::new() }
    }

    fn come_to(&self, point: Point) {
        let mut hook = self.hook.lock().unwrap();
        let work = hook.take_if(|(at, _)| *at == point);
        drop(hook);
        if let Some((_, work)) = work {
            work();
        }
    }

    fn free_blocks(&self) -> u64 {
        self.state.lock().unwrap().free.iter().filter(|free| **free).count() as u64
    }
}

impl State {
    fn available(&self) -> u64 {
        self.free.iter().filter(|free| **free).count() as u64 - self.reserved
    }

    fn fail(left: &mut u64) -> Result<(), Fault> {
        if *left == 0 {
            return Err(Fault::Refused(rustix::io::Errno::IO));
        }
        *left -= 1;
        Ok(())
    }

    fn give(&mut self, device: &MemoryDevice, runs: &[BlockRange]) {
        for run in runs {
            for block in run.start..run.end() {
                let free = &mut self.free[(block - FIRST) as usize];
                assert!(!*free, "block {block} is freed twice");
                *free = true;
                device.write_at(block * PAGE, &[POISON; PAGE_SIZE]).unwrap();
            }
        }
    }

    /// No blocks with bytes lie behind the size.
    fn check(&self) {
        let mut at = pages_of(self.size);
        while let Some(extent) = self.map.next(&self.nodes, INO, at).unwrap() {
            assert!(extent.is_unwritten, "{extent:?} behind {} bytes", self.size);
            at = extent.end();
        }
        assert!(self.inline.is_none() || self.map.is_empty());
    }
}

impl File {
    pub(super) fn data(&self) -> RegularFile<&Self> {
        RegularFile::new(Arc::clone(&self.pages), self)
    }

    fn inline(&self) -> Option<Arc<[u8]>> {
        self.disk.state.lock().unwrap().inline.clone()
    }

    fn disk_size(&self) -> u64 {
        self.disk.state.lock().unwrap().size
    }

    fn change_as(&self, state: &mut State, change: Change<'_>) -> Result<(), Fault> {
        State::fail(&mut state.changes_left)?;
        let mut freed = Vec::new();
        let State { map, nodes, inline, .. } = state;
        let size = match change {
            Change::Insert(extent, size) => {
                assert!(inline.is_none() || extent.file_block == 0, "the inode's bytes are lost");
                *inline = None;
                map.insert(nodes, OWNER, extent).unwrap();
                size
            }
            Change::Written(Range { start, end }, size) => {
                map.convert(nodes, OWNER, (start, end), false, usize::MAX, &mut 0).unwrap();
                size
            }
            Change::Inline(bytes, size) => {
                assert!(map.is_empty());
                if bytes.len() as u64 > state.room {
                    return Err(Fault::NoSpace);
                }
                *inline = Some(bytes.into());
                size
            }
            Change::Size(size) => size,
            Change::Free(Range { start, end }) => {
                map.remove(nodes, OWNER, (start, end), usize::MAX, &mut freed, &mut 0).unwrap();
                state.size
            }
            Change::Unwrite(Range { start, end }) => {
                map.convert(nodes, OWNER, (start, end), true, usize::MAX, &mut 0).unwrap();
                state.size
            }
        };
        state.give(&self.disk.device, &freed);
        assert!(size >= state.size);
        state.size = size;
        if state.sizes.last() != Some(&size) {
            state.sizes.push(size);
        }
        state.check();
        Ok(())
    }

    fn write_pages(&self, start: u64, from: &[PageBox]) -> Result<(), Fault> {
        self.disk.come_to(Point::Write);
        let mut state = self.disk.state.lock().unwrap();
        State::fail(&mut state.writes_left)?;
        if state.bad.iter().any(|bad| (start..start + from.len() as u64).contains(bad)) {
            state.refused += 1;
            return Err(Fault::Refused(rustix::io::Errno::IO));
        }
        state.written.push(from.len());
        drop(state);
        Ok(self.disk.device.write_pages(start * PAGE, from)?)
    }
}

impl Store for &File {
    fn may(&self, act: Act) -> Result<(), Fault> {
        let is_sealed = self.disk.state.lock().unwrap().is_sealed;
        if is_sealed && act == Act::WriteBack { Err(Fault::ReadOnly) } else { Ok(()) }
    }

    fn reserve(&self, blocks: u64) -> Result<Reserved<'_, Self>, Fault> {
        let mut state = self.disk.state.lock().unwrap();
        if state.available() < blocks {
            return Err(Fault::NoSpace);
        }
        state.reserved += blocks;
        state.reserves += u64::from(blocks > 0);
        Ok(Reserved::new(self, blocks))
    }

    fn unreserve(&self, blocks: u64) {
        let mut state = self.disk.state.lock().unwrap();
        assert!(state.reserved >= blocks);
        state.reserved -= blocks;
    }

    fn map(&self, block: u64) -> Result<Mapping, Fault> {
        let state = self.disk.state.lock().unwrap();
        Ok(match &state.inline {
            Some(bytes) if block == 0 => Mapping::Inline(Arc::clone(bytes)),
            _ => state.map.lookup(&state.nodes, INO, block).unwrap(),
        })
    }

    fn is_inline(&self) -> bool {
        self.disk.state.lock().unwrap().inline.is_some()
    }

    fn inline_room(&self) -> Option<u64> {
        let state = self.disk.state.lock().unwrap();
        state.map.is_empty().then_some(state.room)
    }

    fn disk_size(&self) -> u64 {
        File::disk_size(self)
    }

    fn read_pages(&self, start: u64, into: &[PageBox]) -> Result<(), Fault> {
        self.disk.come_to(Point::Read);
        State::fail(&mut self.disk.state.lock().unwrap().reads_left)?;
        self.disk.device.read_pages(start * PAGE, into)?;
        self.disk.come_to(Point::HasRead);
        Ok(())
    }

    /// Writes as late as it may.
    fn begin_write(&self, start: u64, from: &Arc<Vec<PageBox>>) -> Writing<'_> {
        let mut state = self.disk.state.lock().unwrap();
        state.in_flight.0 += 1;
        state.in_flight.1 = state.in_flight.1.max(state.in_flight.0);
        let pages = Arc::clone(from);
        Writing::in_flight(move || {
            self.disk.state.lock().unwrap().in_flight.0 -= 1;
            self.write_pages(start, &pages)
        })
    }

    fn claim(&self, _: u64, near: Option<u64>, blocks: u32) -> Result<BlockRange, Fault> {
        assert!(near.is_none_or(|near| near > FIRST));
        let mut state = self.disk.state.lock().unwrap();
        assert!(state.reserved >= 1);
        State::fail(&mut state.claims_left)?;
        let (all, turn) = (state.free.len(), state.turn as usize);
        state.turn = state.turn.wrapping_mul(13).wrapping_add(7);
        let at = (0..all).map(|at| (at + turn) % all).find(|at| state.free[*at]).unwrap();
        let most = u64::from(blocks.min(state.claim_max)).min(state.reserved) as usize;
        let len = state.free[at..].iter().take(most).take_while(|free| **free).count();
        state.free[at..at + len].fill(false);
        state.reserved -= len as u64;
        Ok(BlockRange { start: FIRST + at as u64, blocks: len as u32 })
    }

    fn give_back(&self, claim: BlockRange, is_bad: bool) -> bool {
        let mut state = self.disk.state.lock().unwrap();
        let is_aside = is_bad && state.available() >= u64::from(claim.blocks);
        if is_aside {
            state.aside += u64::from(claim.blocks);
        } else {
            state.give(&self.disk.device, &[claim]);
        }
        state.reserved += u64::from(claim.blocks);
        is_aside || !is_bad
    }

    fn change(&self, change: Change<'_>) -> Result<(), Fault> {
        let claim = match &change {
            Change::Insert(extent, _) => Some(extent.run()),
            _ => None,
        };
        self.disk.come_to(Point::Change);
        let changed = self
            .may(Act::WriteBack)
            .and_then(|()| self.change_as(&mut self.disk.state.lock().unwrap(), change));
        changed.inspect_err(|_| {
            claim.map(|claim| self.give_back(claim, false));
        })
    }

    fn truncate(&self, size: u64) -> Truncation {
        let mut state = self.disk.state.lock().unwrap();
        if let Err(fault) = State::fail(&mut state.changes_left) {
            return Truncation::Failed(fault);
        }
        state.size = state.size.min(size);
        state.inline = match state.inline.take() {
            Some(bytes) if size > 0 => Some(bytes[..bytes.len().min(size as usize)].into()),
            _ => None,
        };
        let mut freed = Vec::new();
        let range = (pages_of(size), u64::MAX);
        let State { map, nodes, .. } = &mut *state;
        map.remove(nodes, OWNER, range, usize::MAX, &mut freed, &mut 0).unwrap();
        state.give(&self.disk.device, &freed);
        state.check();
        Truncation::Whole
    }

    fn tell(&self, event: Event<'_>) {
        match event {
            Event::Dirty(_) | Event::Renewed(_) => {}
            Event::Filled(pages) => self.disk.state.lock().unwrap().behind.push(pages),
            Event::Awaited(pages) => self.data().populate(pages.start, pages.end),
            Event::Failed(fault) => self.write_errors.record(fault.errno().raw_os_error()),
        }
    }

    fn write_back_one(&self) -> bool {
        let was_dirty = self.data().pages.read().unstable_pages() > 0;
        let _ = self.data().write_back();
        was_dirty
    }
}

/// All bytes of the file.
fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![1; file.data().size() as usize + 100];
    let read = file.data().read(0, &mut bytes).unwrap();
    assert_eq!(read as u64, file.data().size());
    bytes.truncate(read);
    bytes
}

/// Checks that the counts are exact, if it is the only file of the cache.
fn check_counts(file: &File, cache: &PageCache) {
    let pages = file.pages.read();
    let all = |mark: fn(&Marks) -> u64| pages.count(0, 1 << 20, mark);
    let reserved = all(|marks| marks.reserved);
    assert_eq!(cache.pages(), pages.len());
    assert_eq!(cache.pages(), all(|marks| marks.present));
    assert_eq!(cache.unstable(), pages.unstable_pages());
    assert_eq!(cache.unstable(), all(Marks::unstable));
    assert_eq!(file.pages.delayed_blocks(), reserved);
    assert_eq!(file.disk.state.lock().unwrap().reserved, reserved);
    assert_eq!(all(|marks| marks.reserved & marks.mapped), 0);
    assert_eq!(all(|marks| (marks.reserved | marks.mapped | marks.dirty) & !marks.present), 0);
    let size = file.data().size();
    let mut at = 0;
    while let Some(index) = pages.next(at) {
        at = index + 1;
        assert_eq!(pages.next_unstable(index) == Some(index), pages.is_unstable(index));
        assert!(index < pages_of(size), "page {index} behind the end");
        let mut bytes = [0; PAGE_SIZE];
        pages.page(index).unwrap().read(0, &mut bytes);
        let valid = (size - offset_of(index)).min(PAGE) as usize;
        assert!(bytes[valid..].iter().all(|byte| *byte == 0), "bytes behind the end");
    }
}
