//! The pool of pages: one for the process.
//!
//! # Purpose
//!
//! A general allocator retains freed pages (glibc returns only memory at the end of its heap): a
//! file system that was full once would hold its memory for ever, and other memory of the process
//! would be added to it. This pool returns the memory that it does not need, in pages of the
//! system, at any address; and it gives each CPU a stock of its own, in magazines (Bonwick and
//! Adams, USENIX 2001).
//!
//! ```text
//!  CPU slot: two magazines <--> depot: full magazines <--> regions of 2 MiB <--> system
//! ```
//!
//! There is a depot for each NUMA node ([`SlotNodes`]): its regions get their memory when a CPU of
//! the node touches them, and its slots take pages of them only, but for pages of other nodes that
//! were freed in the slot just before.
//!
//! # Invariants
//!
//! * A free page is in exactly one of: a magazine of a slot, a magazine of its node's depot, the
//!   bitmap `free` of its region. A free page in a region that isn't *dirty* reads as zeros.
//! * Free and resident are at most the pages of the depots that their owner allows
//!   ([`idle_max`](super::idle_max)), two magazines for each slot (half a MiB), and the rest of
//!   huge pages that are being handed out for the first time (2 MiB for each thread that has mapped
//!   one concurrently). A thread that frees pages in an RCU section leaves more than that, for some
//!   milliseconds: the reclaim thread returns it ([`shrink`]).
//! * As long as a depot has more than its share of [`FLOOR`](keep::FLOOR) pages, the reclaim thread
//!   exists, and ends a window every second ([`keep`]). A thread that leaves more pages in a depot
//!   makes sure of that afterwards; if there can be no such thread, it returns all above that
//!   itself.
//! * A region is unmapped when the last of its pages has been given back. The first page of a
//!   region is its header.
//!
//! # Order
//!
//! Pages are handed out in the order of their addresses where that is possible: those of a region,
//! and those that were freed in that order, as the pages of a file are when it is cut. So a file
//! that is written page by page lies in memory as one that is written at once. A copy of many pages
//! copies neighbours as one, and the processor, which prefetches upwards only, reads a page that is
//! not in its caches in less than half the time.
//!
//! # Shared lines
//!
//! Two CPUs that allocate write a common line only once for 64 pages, when they exchange a full
//! magazine with the depot. The depot returns a slot's own magazines first, so pages move to the
//! caches of another CPU only if that has none. A thread that needs a new region maps it, and
//! touches it for the first time, while it holds no lock.
//!
//! # Huge pages
//!
//! The first [`HUGE_FROM`] regions of a node use no huge pages, so a small pool is exact. Later
//! ones are offered to the kernel for huge pages, which it fills six times faster (0.34 instead of
//! 2.1 microseconds for a page, measured). A region that has returned pages is excluded, because
//! the kernel would fill it up again.
//!
//! # Locks
//!
//! `PageStock` (a slot), then `PageDepot`, one at a time; both are leaves for other code. No system
//! call is made under them.

use std::alloc::handle_alloc_error;
use std::mem;
use std::ptr::NonNull;
use std::sync::LazyLock;

use crate::cpu::SlotNodes;
use crate::lock::Mutex;
use crate::mem::page::size::{LAYOUT, PAGE_SIZE};
use crate::percpu::{CachePadded, PerCpu};
use crate::shrink::{self, Effort, Shrinker};
use crate::{rcu, reclaim};
use depot::{Fill, RegionDepot, Taken};
use keep::{Keep, Kept};
use magazine::{Free, MAGAZINE, PageMagazine};
use region::Region;

mod depot;
mod keep;
mod magazine;
mod region;
mod system;

crate::lock_class! {
    /// Protects the free pages of one CPU slot of the page pool.
    pub PageStock = ("page_stock", 65030);
    /// Protects the regions of a node in the page pool.
    pub PageDepot = ("page_depot", 65040);
}

/// Number of regions of a node (16 MiB) from which new ones ask for huge pages.
const HUGE_FROM: usize = 8;

static POOL: LazyLock<PagePool> = LazyLock::new(|| {
    let slots = crate::cpu::slots() as usize;
    PagePool::new(slots, SlotNodes::of_machine(slots))
});

/// The free pages of a CPU slot.
#[derive(Default)]
struct Stock {
    /// The magazine that pages are taken from and put back into.
    loaded: PageMagazine,
    /// The magazine loaded before: a slot at the edge of a magazine need not visit the depot each
    /// time.
    spare: PageMagazine,
}

struct PagePool {
    stocks: PerCpu<Mutex<Stock, PageStock>>,
    nodes: SlotNodes,
    /// One for each node, each on lines of its own.
    depots: Box<[CachePadded<Mutex<RegionDepot, PageDepot>>]>,
}

/// Allocates a page. Returns it, and whether it reads as zeros. Aborts if there is no memory.
#[inline]
pub(super) fn alloc() -> (NonNull<u8>, bool) {
    let free = POOL.alloc();
    (free.page, free.is_zero)
}

/// Allocates `count` pages, in the order of their addresses: pages that were carved from a region
/// together, or freed together, are adjacent. Takes the slot's lock once for each magazine.
pub(super) fn alloc_many(count: usize) -> Vec<(NonNull<u8>, bool)> {
    let pool = &*POOL;
    let mut pages = Vec::with_capacity(count);
    while pages.len() < count {
        let mut stock = pool.stocks.this().lock();
        let from = stock.loaded.len().saturating_sub(count - pages.len());
        pages.extend(stock.loaded.drain(from..).map(|free| (free.page, free.is_zero)));
        drop(stock);
        if pages.len() < count {
            let free = pool.refill();
            pages.push((free.page, free.is_zero));
        }
    }
    pages.sort_unstable_by_key(|(page, _)| page.addr());
    pages
}

/// Frees a page.
///
/// # Safety
///
/// The page came from [`alloc`], hasn't been freed, and no thread uses it any more.
#[inline]
pub(super) unsafe fn free(page: NonNull<u8>) {
    POOL.free(page);
}

/// Returns all idle memory to the system. Takes the locks of all slots, one after the other.
pub(super) fn trim() {
    POOL.trim();
}

/// Returns the bytes of memory that are free, and could be returned. Takes the locks of all slots,
/// one after the other.
pub(super) fn idle_bytes() -> usize {
    POOL.idle_pages() * PAGE_SIZE
}

/// Returns the maximum of idle bytes in the depots.
pub(super) fn idle_max() -> usize {
    POOL.depots.iter().map(|depot| depot.lock().keep().max()).sum::<usize>() * PAGE_SIZE
}

/// Sets the maximum of idle bytes in the depots, each of which gets the same share, and returns
/// what exceeds it to the system.
pub(super) fn set_idle_max(bytes: usize) {
    let share = bytes / PAGE_SIZE / POOL.depots.len();
    POOL.depots.iter().for_each(|depot| depot.lock().keep().set_max(share));
    POOL.give_back(Effort::All, Kept::Max, usize::MAX);
}

impl Shrinker for PagePool {
    fn give_back(&self, effort: Effort, regions: usize) -> bool {
        self.give_back(effort, Kept::ByUse, regions)
    }

    fn end_window(&self, is_short: bool) -> bool {
        self.any_depot(|depot| {
            depot.end_window(is_short);
            depot.has_excess()
        })
    }

    fn decays(&self) -> bool {
        self.any_depot(|depot| depot.decays())
    }
}

impl PagePool {
    fn new(slots: usize, nodes: SlotNodes) -> Self {
        let depot = |node| {
            let keep = Keep::new(nodes.count(), nodes.slots_of(node));
            CachePadded::new(Mutex::new(RegionDepot::new(keep)))
        };
        let depots = (0..nodes.count()).map(depot).collect();
        Self { stocks: PerCpu::new(slots, |_| Mutex::new(Stock::default())), nodes, depots }
    }

    /// Asks every depot, and returns whether any says yes.
    fn any_depot(&self, mut ask: impl FnMut(&mut RegionDepot) -> bool) -> bool {
        self.depots.iter().fold(false, |any, depot| ask(&mut depot.lock()) | any)
    }

    #[inline]
    fn alloc(&self) -> Free {
        // The lock is released before a refill.
        let loaded = self.stocks.this().lock().loaded.pop();
        loaded.unwrap_or_else(|| self.refill())
    }

    #[inline]
    fn free(&'static self, page: NonNull<u8>) {
        let free = Free { page, is_zero: false };
        let slot = self.stocks.this_slot();
        let Some(stock) = self.stocks.get(slot) else { return };
        let mut stock = stock.lock();
        if stock.loaded.len() < MAGAZINE && stock.loaded.capacity() > 0 {
            stock.loaded.push(free);
        } else {
            let fill = self.make_room(slot, &mut stock, free);
            drop(stock);
            if fill.decays {
                self.has_much(fill);
            }
        }
    }

    fn trim(&self) {
        for stock in self.stocks.iter() {
            let Stock { loaded, spare } = mem::take(&mut *stock.lock());
            self.put_in_regions(&loaded);
            self.put_in_regions(&spare);
        }
        self.depots.iter().for_each(|depot| depot.lock().empty_magazines());
        self.give_back(Effort::All, Kept::Nothing, usize::MAX);
        for depot in &self.depots {
            loop {
                let taken = depot.lock().take_fresh();
                let Some(taken) = taken else { break };
                self.discard(taken);
            }
        }
    }

    fn idle_pages(&self) -> usize {
        let mut pages = 0;
        for stock in self.stocks.iter() {
            let stock = stock.lock();
            for free in stock.loaded.iter().chain(&stock.spare) {
                // A region with a page in a stock remains mapped.
                let (mut region, _) = Region::of(free.page);
                let _depot = self.depots[region.depot()].lock();
                pages += usize::from(!free.is_zero || region.header().is_huge);
            }
        }
        pages + self.depots.iter().map(|depot| depot.lock().idle_pages()).sum::<usize>()
    }

    /// Returns a page for a slot whose loaded magazine was empty.
    #[cold]
    fn refill(&self) -> Free {
        loop {
            let slot = self.stocks.this_slot();
            let node = self.nodes.node(slot);
            let (depot, Some(stock)) = (&self.depots[node], self.stocks.get(slot)) else {
                handle_alloc_error(LAYOUT)
            };
            let huge = {
                let mut stock = stock.lock();
                let Stock { loaded, spare } = &mut *stock;
                if loaded.is_empty() {
                    mem::swap(loaded, spare);
                }
                if loaded.is_empty() {
                    depot.lock().take(slot, loaded);
                }
                match loaded.pop() {
                    Some(free) => return free,
                    None => depot.lock().regions() >= HUGE_FROM,
                }
            };
            let Some(region) = Region::map(node, huge) else { handle_alloc_error(LAYOUT) };
            depot.lock().add(region);
        }
    }

    /// Puts a page into a slot whose loaded magazine is full. Returns the state of the depot of the
    /// slot's node, if depots have received pages.
    #[cold]
    fn make_room(&self, slot: usize, stock: &mut Stock, free: Free) -> Fill {
        let node = self.nodes.node(slot);
        let Stock { loaded, spare } = stock;
        magazine::ascend(loaded);
        mem::swap(loaded, spare);
        let mut fill = Fill::default();
        if loaded.len() >= MAGAZINE {
            let is_own = loaded.iter().all(|page| self.depot_of(page) == node);
            let depot = &self.depots[node];
            let taken = if is_own { depot.lock().exchange(slot, loaded) } else { None };
            fill = taken.unwrap_or_else(|| {
                self.put_in_regions(loaded);
                loaded.clear();
                depot.lock().fill()
            });
        }
        loaded.reserve_exact(MAGAZINE - loaded.len());
        loaded.push(free);
        fill
    }

    /// Returns the number of the depot that a page belongs to.
    fn depot_of(&self, page: &Free) -> usize {
        // One depot has all pages, whose regions need not be asked.
        if self.depots.len() == 1 { 0 } else { Region::of(page.page).0.depot() }
    }

    /// Puts free pages, which are in no magazine, into their regions. The caller holds no depot's
    /// lock.
    fn put_in_regions(&self, pages: &[Free]) {
        for run in pages.chunk_by(|page, next| self.depot_of(page) == self.depot_of(next)) {
            self.depots[self.depot_of(&run[0])].lock().put(run.iter().copied());
        }
    }

    /// Makes sure that the reclaim thread looks after the memory of the depots, and returns what is
    /// too much already. A thread in an RCU section leaves that to the reclaim thread, too.
    #[cold]
    fn has_much(&'static self, fill: Fill) {
        shrink::register(self);
        let is_attended = reclaim::attend();
        if !is_attended {
            self.give_back(Effort::All, Kept::Floor, usize::MAX);
        } else if fill.is_over && rcu::is_pinned() {
            shrink::request();
        } else if fill.is_over {
            self.give_back(Effort::All, Kept::Max, usize::MAX);
        }
    }

    /// Gives memory back to the system, of at most `regions` regions of each node, until there is
    /// no more than `kept`. Returns whether there may be more.
    #[cold]
    fn give_back(&self, effort: Effort, kept: Kept, regions: usize) -> bool {
        let nodes = 0..self.depots.len();
        nodes.fold(false, |more, node| self.give_back_of(node, effort, kept, regions) | more)
    }

    /// Gives back memory of one node: regions that are wholly free first, as one call returns each
    /// of them.
    fn give_back_of(&self, node: usize, effort: Effort, kept: Kept, regions: usize) -> bool {
        for _ in 0..regions {
            let mut depot = self.depots[node].lock();
            if let Some(region) = depot.take_whole(kept) {
                drop(depot);
                region.unmap();
            } else if effort == Effort::All
                && let Some(taken) = depot.take_dirty(kept)
            {
                drop(depot);
                self.discard(taken);
            } else {
                return false;
            }
        }
        true
    }

    /// Returns the memory of pages to the system. They are in no list during that, so no thread
    /// gets one of them too early.
    fn discard(&self, taken: Taken) {
        #[cfg(all(test, not(any(loom, shuttle, miri))))]
        tests::DISCARDED.set(tests::DISCARDED.get() + 1);
        taken.region.discard(&taken.pages, taken.was_huge);
        let empty = self.depots[taken.region.depot()].lock().put_void(taken);
        if let Some(empty) = empty {
            empty.unmap();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
