use super::keep::FLOOR;
use super::magazine::CARVE;
use super::region::{Bitmap, PAGES};
use super::system::pretended::Pretended;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::mem::page::tests::alone;
use crate::mem::page::{Page, PageBox};
use crate::reclaim::Work;
use crate::{cpu, page};

/// A maximum of idle memory, until this is dropped.
struct Maximum(usize);

impl Maximum {
    fn of_pages(pages: usize) -> Maximum {
        let before = page::idle_max();
        page::set_idle_max(pages * PAGE_SIZE);
        Maximum(before)
    }
}

impl Drop for Maximum {
    fn drop(&mut self) {
        page::set_idle_max(self.0);
    }
}

fn is_zero(page: &Page) -> bool {
    let mut bytes = [1; PAGE_SIZE];
    page.read(0, &mut bytes);
    bytes == [0; PAGE_SIZE]
}

#[test]
fn bitmaps_are_sets_with_runs() {
    let mut pages = Bitmap::default();
    for index in [3, 4, 5, 63, 64, 200, PAGES - 1] {
        pages.set(index);
    }
    assert_eq!(pages.indices().collect::<Vec<_>>(), [3, 4, 5, 63, 64, 200, PAGES - 1]);
    assert_eq!(pages.first(4).indices().collect::<Vec<_>>(), [3, 4, 5, 63]);
    assert_eq!((pages.first(9).count(), pages.count()), (7, 7));
    let runs: Vec<_> = pages.runs().collect();
    assert_eq!(runs, [(3, 3), (63, 2), (200, 1), (PAGES - 1, 1)]);
    let mut others = pages.clone();
    others.clear(3);
    pages.remove(&others);
    assert_eq!(pages.runs().collect::<Vec<_>>(), [(3, 1)]);
    pages.clear(3);
    assert!(pages.is_empty() && pages.first(1).is_empty());
    pages.add(&others);
    assert!(pages.has(4) && !pages.has(3));
}

#[test]
fn pages_are_zero_aligned_and_their_own_however_often_they_are_used() {
    let _alone = alone();
    for round in 0..4u8 {
        let pages: Vec<PageBox> = (0..3 * PAGES).map(|_| Page::zeroed()).collect();
        let mut addresses: Vec<usize> =
            pages.iter().map(|page| std::ptr::from_ref::<Page>(page).addr()).collect();
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= PAGE_SIZE));
        assert!(addresses.iter().all(|address| address % PAGE_SIZE == 0));
        for page in &pages {
            assert!(is_zero(page));
            page.write(0, &[round + 1; PAGE_SIZE]);
        }
        drop(pages);
        if round == 2 {
            page::trim();
        }
    }
}

/// Magazines of several slots, regions that become dirty and whole, and pages that are freed and
/// allocated again: the count of idle pages is right.
#[test]
fn pages_pass_through_magazines_and_regions() {
    let _alone = alone();
    let _maximum = Maximum::of_pages(FLOOR);
    page::trim();
    assert_eq!(page::idle_bytes(), 0);
    let make = |cpu, count| {
        let _cpu = cpu::pretend(cpu);
        (0..count).map(|_| Page::zeroed()).collect::<Vec<PageBox>>()
    };
    let count = 2 * FLOOR;
    let (first, second) = (make(0, count), make(1, 3 * MAGAZINE + 1));
    for page in first.iter().chain(&second) {
        page.write(0, &[0xff; PAGE_SIZE]);
    }
    drop(first);
    let least = FLOOR - PAGES;
    // A region may have been mapped whose pages are all fresh still.
    let most = FLOOR + 4 * MAGAZINE + PAGES;
    let idle = page::idle_bytes() / PAGE_SIZE;
    assert!((least..=most).contains(&idle), "{idle} pages are idle");
    // Idle pages are dirty, and are allocated first.
    let again = make(1, idle);
    assert!(again.iter().all(|page| is_zero(page)));
    assert!(page::idle_bytes() / PAGE_SIZE <= PAGES + MAGAZINE);
    drop((again, second));
    page::trim();
    assert_eq!(page::idle_bytes(), 0);
}

/// New pages, pages of full magazines, and pages that went back to their regions: whoever takes one
/// after the other gets most of them in ascending order.
#[test]
fn pages_are_handed_out_in_the_order_of_their_addresses() {
    let _alone = alone();
    let _cpu = cpu::pretend(0);
    page::trim();
    for count in [2 * PAGES, 3 * MAGAZINE, FLOOR] {
        for round in 0..3 {
            let pages: Vec<PageBox> = (0..count).map(|_| Page::zeroed()).collect();
            let rising = pages.windows(2).filter(|pair| pair[0].as_ptr() < pair[1].as_ptr());
            let rising = rising.count();
            // Each carving, magazine and region may begin below the one before, and a magazine that
            // was not full is taken as it is.
            let least = count - count / CARVE - MAGAZINE - 2;
            assert!(rising >= least, "{rising} of {count} pages, in round {round}");
            drop(pages);
        }
    }
}

#[test]
fn runs_of_ascending_pages_are_reversed_and_others_are_not() {
    let free = |at: usize| Free {
        page: NonNull::without_provenance(at.try_into().unwrap()),
        is_zero: false,
    };
    let mut pages: Vec<Free> = [5, 6, 7, 3, 9, 8, 1].map(free).into();
    magazine::ascend(&mut pages);
    let order: Vec<usize> = pages.iter().map(|free| free.page.addr().get()).collect();
    assert_eq!(order, [7, 6, 5, 9, 3, 8, 1]);
}

#[test]
fn a_slot_gets_its_own_magazines_first() {
    let mut depot = depot::RegionDepot::new(Keep::new(1, 2));
    let page = |at: usize| Free {
        page: NonNull::without_provenance(at.try_into().unwrap()),
        is_zero: false,
    };
    for (at, slot) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
        assert!(depot.exchange(slot, &mut vec![page(at)]).is_some());
    }
    let mut take = |slot| {
        let mut magazine = PageMagazine::new();
        depot.take(slot, &mut magazine);
        magazine.first().map(|free| free.page.addr().get())
    };
    assert_eq!([take(0), take(0), take(0)], [Some(3), Some(1), Some(4)]);
    assert_eq!([take(1), take(1)], [Some(2), None]);
}

/// Returns the free pages of all depots.
fn depots_idle() -> usize {
    POOL.depots.iter().map(|depot| depot.lock().idle()).sum()
}

/// The maximum holds for the depot at every size, also for one that has room for no magazine.
#[test]
fn idle_memory_stays_below_the_maximum() {
    let _alone = alone();
    for pages in [0, MAGAZINE, FLOOR / 2, 3 * FLOOR] {
        let _maximum = Maximum::of_pages(pages);
        assert_eq!(page::idle_max(), pages * PAGE_SIZE);
        page::trim();
        let all: Vec<PageBox> = (0..4 * FLOOR).map(|_| Page::zeroed()).collect();
        all.iter().for_each(|page| page.write(0, &[0xff; PAGE_SIZE]));
        drop(all);
        let depot = depots_idle();
        assert!((pages.saturating_sub(PAGES)..=pages).contains(&depot), "{depot} of {pages}");
    }
    let _maximum = Maximum::of_pages(3 * FLOOR);
    drop((0..3 * FLOOR).map(|_| Page::with(0, &[1])).collect::<Vec<PageBox>>());
    assert!(depots_idle() > 2 * FLOOR);
    page::set_idle_max(FLOOR * PAGE_SIZE);
    assert!(depots_idle() <= FLOOR);
}

thread_local! {
    /// Number of regions of which this thread has given free pages back.
    pub(super) static DISCARDED: Cell<usize> = const { Cell::new(0) };
}

/// More free pages with memory than the pool may hold with a maximum of [`FLOOR`] pages.
const TOO_MANY: usize = FLOOR + 4 * MAGAZINE + 2 * PAGES;

/// Returns pages of which every second one can be freed, so that no region becomes whole. The
/// caller sets the maximum to [`FLOOR`].
fn in_use() -> Vec<Option<PageBox>> {
    page::trim();
    let mut pages: Vec<_> = (0..2 * TOO_MANY).map(|_| Some(Page::zeroed())).collect();
    pages.iter().flatten().for_each(|page| page.write(0, &[0xff; PAGE_SIZE]));
    pages.sort_by_key(|page| page.as_deref().map(|page| std::ptr::from_ref(page).addr()));
    pages
}

/// Frees every second page, as deferred work does: in an RCU section.
fn free_half(pages: &mut [Option<PageBox>]) {
    let _section = rcu::pin();
    pages.iter_mut().step_by(2).for_each(|page| drop(page.take()));
}

/// Returns whether the pool holds more than it may in the long run.
fn holds_too_many() -> bool {
    page::idle_bytes() / PAGE_SIZE >= TOO_MANY
}

/// Sleeps until the pool holds no more than it may.
fn wait_for_thread() {
    vfscale_harness::wait_until("idle pages are given back", || !holds_too_many());
}

/// Without the reclaim thread each run of pages is a system call in the section, which may be in
/// any call that runs deferred work.
///
/// Race: Returning free memory to the system against threads that free and take pages.
///
/// Deferred work runs in an RCU section inside any call, so it leaves free pages to the reclaim
/// thread (`crates/sync/src/shrink.rs`). A request is cleared before the memory is returned: pages
/// that are freed during that make another request. The thread may be about to end: it announces
/// that first, and a thread that makes a request then starts another. While a superblock is taken
/// down only regions that are wholly free are returned, since pages in use between free ones are
/// about to be freed. Pages on their way are on no list; `rcu::synchronize` waits for a run that
/// has begun.
#[test]
fn a_section_leaves_memory_to_the_reclaim_thread() {
    let _alone = alone();
    let _maximum = Maximum::of_pages(FLOOR);
    let mut pages = in_use();
    let before = DISCARDED.get();
    free_half(&mut pages);
    assert_eq!(DISCARDED.get(), before);
    wait_for_thread();
    assert_eq!(DISCARDED.get(), before);
    // Outside of a section the pool gives back at once.
    drop(pages);
    assert!(!holds_too_many());
}

/// Work that goes on until the flag is cleared.
struct Until(Arc<AtomicBool>);

impl Work for Until {
    fn step(&mut self) -> bool {
        vfscale_harness::pause(Duration::from_millis(1));
        self.0.load(Ordering::Relaxed)
    }
}

/// While a superblock is taken down the pages between free ones are about to be freed: giving back
/// the free ones before takes hundreds of system calls for each region, instead of one.
///
/// Race: Returning free memory to the system against threads that free and take pages.
#[test]
fn regions_in_part_free_wait_for_the_end_of_work() {
    let _alone = alone();
    let _maximum = Maximum::of_pages(FLOOR);
    let goes_on = Arc::new(AtomicBool::new(true));
    let mut pages = in_use();
    assert!(reclaim::submit(u64::MAX - 1, Box::new(Until(Arc::clone(&goes_on)))).is_ok());
    vfscale_harness::pause(Duration::from_millis(50));
    free_half(&mut pages);
    vfscale_harness::pause(Duration::from_millis(100));
    let waits = holds_too_many();
    goes_on.store(false, Ordering::Relaxed);
    assert!(waits);
    wait_for_thread();
}

#[test]
fn a_page_made_with_bytes_is_zero_around_them() {
    let _alone = alone();
    for _ in 0..2 {
        for (offset, len) in [(0, 0), (0, PAGE_SIZE), (0, 1), (1, 100), (4000, 96), (PAGE_SIZE, 0)]
        {
            let page = Page::with(offset, &vec![7; len]);
            let mut bytes = [1; PAGE_SIZE];
            page.read(0, &mut bytes);
            let is_right =
                |(at, byte)| byte == if (offset..offset + len).contains(&at) { 7 } else { 0 };
            assert!(bytes.into_iter().enumerate().all(is_right), "{len} bytes at {offset}");
            page.write(0, &[0xff; PAGE_SIZE]);
        }
    }
}

/// Pages are allocated on one CPU and freed on another, while all idle ones are returned again and
/// again: no page ever has two owners.
///
/// Race: Returning free memory to the system against threads that free and take pages.
#[test]
fn no_page_has_two_owners() {
    let _alone = alone();
    let (send, receive) = std::sync::mpsc::sync_channel::<(u64, PageBox)>(500);
    let receive = std::sync::Mutex::new(receive);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let send = send.clone();
            scope.spawn(move || {
                let _cpu = cpu::pretend(thread as u32);
                for number in 0..20_000 {
                    let page = Page::zeroed();
                    assert!(number % 64 != 0 || is_zero(&page));
                    let tag = thread << 32 | number;
                    page.write(8, &tag.to_le_bytes());
                    send.send((tag, page)).unwrap();
                }
            });
        }
        drop(send);
        for thread in 2..4u32 {
            let receive = &receive;
            scope.spawn(move || {
                let _cpu = cpu::pretend(thread);
                for round in 0.. {
                    let next = receive.lock().unwrap().recv();
                    let Ok((tag, page)) = next else { break };
                    let mut bytes = [0; 8];
                    page.read(8, &mut bytes);
                    assert_eq!(u64::from_le_bytes(bytes), tag);
                    drop(page);
                    if round % 500 == 0 {
                        page::trim();
                    }
                }
            });
        }
    });
}

/// A kernel with pages of 64 KiB takes memory back in these. Free pages that share one with pages
/// in use return to the pool as zeros, and their neighbours keep every byte.
///
/// Seam: pages that are returned to the system / its page size; parties: a thread that frees, users
/// of neighbouring pages.
///
/// With pretended page sizes, one after the other.
#[test]
fn pages_keep_their_bytes_where_the_system_has_larger_ones() {
    let _alone = alone();
    page::trim();
    for system_page in [16 << 10, 64 << 10] {
        let _system = Pretended::pages_of(system_page);
        for stride in [2, 3, 5, 16, 17, 40] {
            let mut pages: Vec<Option<PageBox>> =
                (0..2 * PAGES).map(|_| Some(Page::zeroed())).collect();
            for (number, page) in pages.iter().flatten().enumerate() {
                page.write(0, &[number as u8 | 1; PAGE_SIZE]);
            }
            pages.sort_by_key(|page| page.as_deref().map(|page| std::ptr::from_ref(page).addr()));
            let expected: Vec<u8> = pages.iter().flatten().map(|page| byte(page, 0)).collect();
            // Every stride-th page stays in use, which leaves runs of all lengths at all offsets.
            let kept = |index: &usize| index.is_multiple_of(stride);
            pages.iter_mut().enumerate().filter(|(index, _)| !kept(index)).for_each(|(_, page)| {
                page.take();
            });
            page::trim();
            for index in (0..pages.len()).filter(kept) {
                let page = pages[index].as_deref().unwrap();
                for at in [0, PAGE_SIZE / 2, PAGE_SIZE - 1] {
                    assert_eq!(byte(page, at), expected[index], "{system_page} {stride} {index}");
                }
            }
            let again: Vec<PageBox> = (0..2 * PAGES).map(|_| Page::zeroed()).collect();
            assert!(again.iter().all(|page| is_zero(page)));
        }
    }
}

fn byte(page: &Page, at: usize) -> u8 {
    let mut byte = [0];
    page.read(at, &mut byte);
    byte[0]
}

/// Returns a pool with two slots on each of two pretended nodes.
fn on_two_nodes() -> &'static PagePool {
    Box::leak(Box::new(PagePool::new(4, SlotNodes::pretended(4, 2))))
}

fn node_of(page: NonNull<u8>) -> usize {
    Region::of(page).0.depot()
}

#[test]
fn each_node_has_regions_of_its_own() {
    let pool = on_two_nodes();
    for (on, node) in [(0, 0), (3, 1), (1, 0), (2, 1)] {
        let _on = cpu::pretend(on);
        let page = pool.alloc().page;
        assert_eq!(node_of(page), node);
        pool.free(page);
    }
    pool.trim();
    assert_eq!(pool.idle_pages(), 0);
}

/// The pages of a file that one node has written and another one cuts.
#[test]
fn pages_that_another_node_frees_return_to_their_regions() {
    let _alone = alone();
    let pool = on_two_nodes();
    let pages: Vec<_> = {
        let _on = cpu::pretend(0);
        (0..20 * MAGAZINE).map(|_| pool.alloc().page).collect()
    };
    {
        let _on = cpu::pretend(2);
        pages.into_iter().for_each(|page| pool.free(page));
    }
    // Two magazines at most stay where they were freed.
    assert_eq!(pool.depots[1].lock().idle(), 0);
    assert!(pool.depots[0].lock().idle() >= 18 * MAGAZINE);
    let _on = cpu::pretend(2);
    let again: Vec<_> = (0..4 * MAGAZINE).map(|_| pool.alloc().page).collect();
    assert_eq!(node_of(again[0]), 0);
    assert_eq!(node_of(again[4 * MAGAZINE - 1]), 1);
    again.into_iter().for_each(|page| pool.free(page));
    pool.trim();
    assert_eq!(pool.idle_pages(), 0);
    let regions: usize = pool.depots.iter().map(|depot| depot.lock().regions()).sum();
    assert_eq!(regions, 0);
}
