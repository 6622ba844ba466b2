//! The memory that the page pool takes from the system and returns. A process of its own, because
//! it watches the memory of the whole process.

#![cfg(not(any(loom, shuttle, miri)))]
#![allow(clippy::unwrap_used)]

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
fn what_is_freed_goes_back_to_the_system_but_for_a_reserve() {
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
