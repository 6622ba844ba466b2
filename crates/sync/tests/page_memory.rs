//! The memory that the page pool takes from the system and returns. A process of its own, because
//! it watches the memory of the whole process.

#![cfg(not(any(loom, shuttle, miri)))]
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use vfscale_harness::alone;
use vfscale_sync::cpu;
use vfscale_sync::page::{self, PAGE_SIZE, Page, PageBox};

/// The other memory of the process, and the headers of the pool's regions.
const SLACK: usize = 1 << 20;

/// Maximum of the idle memory of the pool.
fn reserve() -> usize {
    (16 << 20) + (2 << 20) + cpu::possible() as usize * (512 << 10)
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn is_zero(page: &Page) -> bool {
    let mut bytes = [1; PAGE_SIZE];
    page.read(0, &mut bytes);
    bytes == [0; PAGE_SIZE]
}

#[test]
fn freed_pages_go_back_to_the_system_but_for_a_reserve() {
    let _alone = alone();
    page::set_idle_max(16 << 20);
    page::trim();
    let before = resident_bytes();
    let count = (128 << 20) / PAGE_SIZE;
    let mut pages: Vec<PageBox> = (0..count).map(|_| Page::zeroed()).collect();
    pages.iter().for_each(|page| page.write(0, &[1]));
    let resident = resident_bytes() - before;
    assert!(resident >= count * PAGE_SIZE);
    assert!(resident <= count * PAGE_SIZE + page::idle_bytes() + SLACK, "{resident} bytes");
    // One page of eight stays in use: no region is ever wholly free.
    let mut index = 0;
    pages.retain(|_| {
        index += 1;
        index % 8 == 0
    });
    let idle = page::idle_bytes();
    assert!(idle <= reserve(), "{idle} bytes are idle");
    let resident = resident_bytes().saturating_sub(before);
    assert!(resident <= pages.len() * PAGE_SIZE + idle + SLACK, "{resident} bytes");
    page::trim();
    assert_eq!(page::idle_bytes(), 0);
    let resident = resident_bytes().saturating_sub(before);
    assert!(resident <= pages.len() * PAGE_SIZE + SLACK, "{resident} bytes");
    // Pages in use are unchanged, and new ones are zero.
    let mut first = [0];
    pages.iter().for_each(|page| {
        page.read(0, &mut first);
        assert_eq!(first, [1]);
    });
    let more: Vec<PageBox> = (0..1_000).map(|_| Page::zeroed()).collect();
    assert!(more.iter().all(|page| is_zero(page)));
    drop((pages, more));
    page::trim();
    let resident = resident_bytes().saturating_sub(before);
    assert!(resident <= SLACK, "{resident} bytes");
}

/// Returns pages of `bytes` bytes in all, with memory.
fn pages_of(bytes: usize) -> Vec<PageBox> {
    (0..bytes / PAGE_SIZE).map(|_| Page::with(0, &[1])).collect()
}

fn reclaim_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("vfscale-reclaim")).count()
}

/// The pool keeps what it has just got, although it is much, and gives it back by and by while the
/// process makes no call. Then nothing wakes any more.
///
/// Race: Returning free memory to the system against threads that free and take pages.
///
/// Above 16 MiB the reclaim thread gives free memory back that lay idle for a second
/// (`crates/sync/src/mem/page/pool/keep.rs`). A thread that frees pages announces them after it has
/// put them into the depot, so the reclaim thread sees them before it ends.
#[test]
fn free_memory_decays_while_nobody_calls_and_then_the_thread_ends() {
    let _alone = alone();
    page::trim();
    let before = resident_bytes();
    page::set_idle_max(256 << 20);
    for round in 0..2 {
        drop(pages_of(128 << 20));
        let idle = page::idle_bytes();
        assert!(idle >= 120 << 20, "{idle} bytes in round {round}");
        let start = Instant::now();
        let is_back = || resident_bytes().saturating_sub(before) <= reserve() + SLACK;
        vfscale_harness::wait_until("freed pages go back", is_back);
        assert!(start.elapsed() > Duration::from_secs(1), "too soon");
        vfscale_harness::wait_until("the thread ends", || round > 0 || reclaim_threads() == 0);
    }
}

/// Memory that is used within each second is kept, however much it is.
#[test]
fn memory_that_is_used_again_and_again_is_kept() {
    let _alone = alone();
    page::trim();
    page::set_idle_max(256 << 20);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        drop(pages_of(64 << 20));
        let idle = page::idle_bytes();
        assert!(idle >= 60 << 20, "{idle} bytes are left after {:?}", start.elapsed());
        vfscale_harness::pause(Duration::from_millis(100));
    }
    page::trim();
}
