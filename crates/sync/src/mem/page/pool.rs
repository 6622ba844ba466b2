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
//! # Invariants
//!
//! * A free page is in exactly one of: a magazine of a slot, a magazine of the depot, the bitmap
//!   `free` of its region. A free page in a region that isn't *dirty* reads as zeros.
//! * Free and resident are at most [`FULL_MAX`](magazine::FULL_MAX) magazines and [`DIRTY_MAX`]
//!   pages (16 MiB together), two magazines for each slot (half a MiB), and the rest of huge pages
//!   that are being handed out for the first time (2 MiB for each thread that has mapped one
//!   concurrently). A thread that frees pages in an RCU section leaves more than that, for some
//!   milliseconds: the reclaim thread returns it ([`shrink`]).
//! * A region is unmapped when the last of its pages has been given back. The first page of a
//!   region is its header.
//!
//! # Shared lines
//!
//! Two CPUs that allocate write a common line only once for 64 pages, when they exchange a full
//! magazine with the depot. A thread that needs a new region maps it, and touches it for the first
//! time, while it holds no lock.
//!
//! # Huge pages
//!
//! The first [`HUGE_FROM`] regions use no huge pages, so a small pool is exact. Later ones are
//! offered to the kernel for huge pages, which it fills six times faster (0.34 instead of 2.1
//! microseconds for a page, measured). A region that has returned pages is excluded, because the
//! kernel would fill it up again.
//!
//! # Locks
//!
//! `PageStock` (a slot), then `PageDepot`; both are leaves for other code. No system call is made
//! under them.

use std::alloc::handle_alloc_error;
use std::mem;
use std::ptr::NonNull;
use std::sync::LazyLock;

use crate::lock::Mutex;
use crate::mem::page::size::{LAYOUT, PAGE_SIZE};
use crate::percpu::{CachePadded, PerCpu};
use crate::shrink::{self, Effort};
use crate::{rcu, reclaim};
use depot::{RegionDepot, Taken};
use magazine::{DIRTY_MAX, Free, MAGAZINE, PageMagazine, WHOLE_MAX};
use region::Region;

mod depot;
mod magazine;
mod region;
mod system;

crate::lock_class! {
    /// Protects the free pages of one CPU slot of the page pool.
    pub PageStock = ("page_stock", 65030);
    /// Protects the regions of the page pool.
    pub PageDepot = ("page_depot", 65040);
}

/// Number of regions (16 MiB) from which new ones ask for huge pages.
const HUGE_FROM: usize = 8;

static POOL: LazyLock<PagePool> = LazyLock::new(|| PagePool {
    stocks: PerCpu::new(crate::cpu::possible() as usize, |_| Mutex::new(Stock::default())),
    depot: CachePadded::new(Mutex::new(RegionDepot::default())),
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
    /// On lines of its own, because every allocation reads the above.
    depot: CachePadded<Mutex<RegionDepot, PageDepot>>,
}

/// Allocates a page. Returns it, and whether it reads as zeros. Aborts if there is no memory.
#[inline]
pub(super) fn alloc() -> (NonNull<u8>, bool) {
    let pool = &*POOL;
    // The lock is released before a refill.
    let loaded = pool.stocks.this().lock().loaded.pop();
    let free = loaded.unwrap_or_else(|| pool.refill());
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
    let free = Free { page, is_zero: false };
    let pool = &*POOL;
    let mut stock = pool.stocks.this().lock();
    if stock.loaded.len() < MAGAZINE && stock.loaded.capacity() > 0 {
        stock.loaded.push(free);
    } else {
        let too_many = pool.make_room(&mut stock, free);
        drop(stock);
        if too_many {
            pool.has_too_many();
        }
    }
}

/// Returns all idle memory to the system. Takes the locks of all slots, one after the other.
pub(super) fn trim() {
    let pool = &*POOL;
    for stock in pool.stocks.iter() {
        let Stock { mut loaded, mut spare } = mem::take(&mut *stock.lock());
        let mut depot = pool.depot.lock();
        depot.put(loaded.drain(..));
        depot.put(spare.drain(..));
    }
    pool.depot.lock().empty_magazines();
    while pool.give_back(0, 0, usize::MAX) {}
    loop {
        let taken = pool.depot.lock().take_fresh();
        let Some(taken) = taken else { break };
        pool.discard(taken);
    }
}

/// Returns the bytes of memory that are free, and could be returned. Takes the locks of all slots,
/// one after the other.
pub(super) fn idle_bytes() -> usize {
    let pool = &*POOL;
    let mut pages = 0;
    for stock in pool.stocks.iter() {
        let stock = stock.lock();
        // A region with a page in a stock remains mapped.
        let is_resident = |free: &&Free| !free.is_zero || Region::of(free.page).0.header().is_huge;
        let _depot = pool.depot.lock();
        pages += stock.loaded.iter().chain(&stock.spare).filter(is_resident).count();
    }
    (pages + pool.depot.lock().idle_pages()) * PAGE_SIZE
}

/// Returns surplus memory to the system, outside of RCU sections.
fn shrink_pool(effort: Effort, regions: usize) -> bool {
    let keep = if effort == Effort::All { DIRTY_MAX } else { usize::MAX };
    POOL.give_back(WHOLE_MAX, keep, regions)
}

impl PagePool {
    /// Returns a page for a slot whose loaded magazine was empty.
    #[cold]
    fn refill(&self) -> Free {
        loop {
            let huge = {
                let mut stock = self.stocks.this().lock();
                let Stock { loaded, spare } = &mut *stock;
                if loaded.is_empty() {
                    mem::swap(loaded, spare);
                }
                if loaded.is_empty() {
                    self.depot.lock().take(loaded);
                }
                match loaded.pop() {
                    Some(free) => return free,
                    None => self.depot.lock().regions() >= HUGE_FROM,
                }
            };
            let Some(region) = Region::map(huge) else { handle_alloc_error(LAYOUT) };
            self.depot.lock().add(region);
        }
    }

    /// Puts a page into a slot whose loaded magazine is full. Returns whether the pool has too many
    /// pages now.
    #[cold]
    fn make_room(&self, stock: &mut Stock, free: Free) -> bool {
        let Stock { loaded, spare } = stock;
        mem::swap(loaded, spare);
        let mut too_many = false;
        if loaded.len() >= MAGAZINE {
            too_many = self.depot.lock().exchange(loaded);
        }
        loaded.reserve_exact(MAGAZINE - loaded.len());
        loaded.push(free);
        too_many
    }

    /// Returns surplus memory to the system. A thread in an RCU section leaves that to the reclaim
    /// thread.
    #[cold]
    fn has_too_many(&self) {
        if rcu::is_pinned() {
            shrink::request(shrink_pool);
            if reclaim::attend() {
                return;
            }
        }
        self.give_back(WHOLE_MAX, DIRTY_MAX, usize::MAX);
    }

    /// Gives memory back to the system, of at most `regions` regions, until no more than `keep`
    /// dirty pages are in the regions, and no more than `keep_whole` as long as some region is
    /// wholly free. Returns whether there may be more.
    #[cold]
    fn give_back(&self, keep_whole: usize, keep: usize, regions: usize) -> bool {
        for _ in 0..regions {
            let mut depot = self.depot.lock();
            if let Some(region) = depot.take_whole(keep_whole) {
                drop(depot);
                region.unmap();
            } else if let Some(taken) = depot.take_dirty(keep) {
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
        let empty = self.depot.lock().put_void(taken);
        if let Some(empty) = empty {
            empty.unmap();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
