use super::*;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

/// The lock of the one pool: tests that count its pages run alone, all others concurrently.
static POOL: RwLock<()> = RwLock::new(());

pub(super) fn alone() -> RwLockWriteGuard<'static, ()> {
    POOL.write().unwrap_or_else(PoisonError::into_inner)
}

fn beside_others() -> RwLockReadGuard<'static, ()> {
    POOL.read().unwrap_or_else(PoisonError::into_inner)
}

fn model_check(
    write: impl Fn(usize, &[u8]),
    read: impl Fn(usize, &mut [u8]),
    zero: impl Fn(Range<usize>),
) {
    let mut model = [0u8; PAGE_SIZE];
    let lens = (0..70).chain([127, 128, 511, 512, 513, 1000, 4000]);
    let mut fill = 1u8;
    for (step, len) in lens.flat_map(|len| [0, 1, 7, 9, 64, 95].map(|at| (at, len))).enumerate() {
        let (at, len) = len;
        fill = fill.wrapping_mul(31).wrapping_add(7);
        let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add(i as u8)).collect();
        if step % 5 == 4 {
            zero(at..at + len);
            model[at..at + len].fill(0);
        } else {
            write(at, &data);
            model[at..at + len].copy_from_slice(&data);
        }
        let mut all = [0xee; PAGE_SIZE];
        read(0, &mut all);
        assert!(all == model, "after step {step}: {len} bytes at {at}");
        let mut part = vec![0xee; len];
        read(at, &mut part);
        assert_eq!(part, model[at..at + len]);
    }
}

#[test]
fn page_behaves_as_an_array() {
    let _pool = beside_others();
    let page = Page::zeroed();
    model_check(|at, from| page.write(at, from), |at, into| page.read(at, into), |r| page.zero(r));
}

#[test]
fn atomic_words_behave_as_an_array() {
    // SAFETY: Zeros are a valid array of integers.
    let bytes: Box<bytes_atomic::Bytes> = unsafe { Box::new(std::mem::zeroed()) };
    model_check(
        |at, from| bytes.write(at, from),
        |at, into| bytes.read(at, into),
        |range| bytes.zero(range),
    );
}

#[test]
fn fresh_page_is_zero_and_ends_are_reachable() {
    let _pool = beside_others();
    let page = Page::zeroed();
    let mut all = [1; PAGE_SIZE];
    page.read(0, &mut all);
    assert_eq!(all, [0; PAGE_SIZE]);
    page.write(PAGE_SIZE - 1, &[9]);
    page.write(PAGE_SIZE, &[]);
    page.zero(PAGE_SIZE..PAGE_SIZE);
    let mut last = [0];
    page.read(PAGE_SIZE - 1, &mut last);
    assert_eq!(last, [9]);
}

/// Long copies use another method if the buffer is a few bytes ahead in its page.
#[test]
fn long_copies_are_right_wherever_buffers_lie_in_their_pages() {
    let _pool = beside_others();
    let page = Page::zeroed();
    let bytes: Vec<u8> = (0..PAGE_SIZE).map(|at| (at * 7 % 251) as u8).collect();
    for begin in (0..40).chain(PAGE_SIZE - 40..PAGE_SIZE) {
        let mut room = vec![0; 3 * PAGE_SIZE];
        let to_page = room.as_ptr().align_offset(PAGE_SIZE);
        for len in [512, 1000, PAGE_SIZE - 8, PAGE_SIZE] {
            let buffer = &mut room[to_page + begin..][..len];
            buffer.copy_from_slice(&bytes[..len]);
            page.zero(0..PAGE_SIZE);
            page.write(PAGE_SIZE - len, buffer);
            buffer.fill(0);
            page.read(PAGE_SIZE - len, buffer);
            assert!(buffer == &bytes[..len], "{len} bytes at {begin}");
        }
    }
}

#[test]
#[should_panic(expected = "not within a page")]
fn read_past_the_end_panics() {
    let _pool = beside_others();
    Page::zeroed().read(4000, &mut [0; 97]);
}

#[test]
#[should_panic(expected = "not within a page")]
fn write_with_an_offset_that_overflows_panics() {
    let _pool = beside_others();
    Page::zeroed().write(usize::MAX, &[0; 2]);
}

#[test]
#[should_panic(expected = "not within a page")]
fn zero_past_the_end_panics() {
    let _pool = beside_others();
    Page::zeroed().zero(4096..4097);
}

#[test]
#[should_panic(expected = "ends before it starts")]
#[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
fn zero_of_a_reversed_range_panics() {
    let _pool = beside_others();
    Page::zeroed().zero(2..1);
}

/// Writers of neighbouring bytes don't overwrite each other's, and a reader sees only bytes that
/// were written.
#[test]
fn neighbours_and_readers_may_race() {
    let _pool = beside_others();
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };
    let page = Page::zeroed();
    thread::scope(|scope| {
        for thread in 0..2usize {
            let page = &page;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mine = [if round % 2 == 0 { 0x11 } else { 0x22 } << thread; 21];
                    page.write(100 + 21 * thread, &mine);
                    let mut seen = [0; 21];
                    page.read(100 + 21 * thread, &mut seen);
                    assert_eq!(seen, mine, "a neighbour's write reached over");
                    page.read(100 + 21 * (1 - thread), &mut seen);
                    let other = 1 - thread;
                    let known = |b: &u8| [0, 0x11 << other, 0x22 << other].contains(b);
                    assert!(seen.iter().all(known), "{seen:x?}");
                }
            });
        }
    });
}

fn bytes_of(pages: &[PageBox]) -> Vec<u8> {
    let mut bytes = vec![0xee; pages.len() * PAGE_SIZE];
    for (page, into) in pages.iter().zip(bytes.chunks_mut(PAGE_SIZE)) {
        page.read(0, into);
    }
    bytes
}

#[test]
fn several_pages_are_copied_as_an_array() {
    let _pool = beside_others();
    // An order that makes runs of one, of several, and gaps.
    let mut pages = Page::many_with(12, 0, &[]);
    pages.swap(2, 7);
    pages.swap(8, 9);
    drop(pages.remove(4));
    let mut model = vec![0; pages.len() * PAGE_SIZE];
    assert_eq!(bytes_of(&pages), model);
    let mut fill = 1_u8;
    for (at, len) in [(0, 45_056), (5, 1), (4000, 200), (4096, 8192), (8191, 20_000), (70, 0)] {
        fill += 17;
        let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add((i / 5) as u8)).collect();
        let (first, within) = (at / PAGE_SIZE, at % PAGE_SIZE);
        assert_eq!(write_pages(pages[first..].iter().map(|page| &**page), within, &data), len);
        model[at..at + len].copy_from_slice(&data);
        assert_eq!(bytes_of(&pages), model);
        let mut part = vec![0xee; len];
        assert_eq!(read_pages(pages[first..].iter().map(|page| &**page), within, &mut part), len);
        assert_eq!(part, data);
    }
    // At most the bytes of the pages.
    let mut long = vec![0xee; 3 * PAGE_SIZE];
    let last = || pages[10..].iter().map(|page| &**page);
    assert_eq!(read_pages(last(), 96, &mut long), 4000);
    assert_eq!((&long[..4000], long[4000]), (&model[10 * PAGE_SIZE + 96..], 0xee));
    assert_eq!(write_pages(last(), PAGE_SIZE, &long), 0);
}

#[test]
fn many_pages_have_zeros_around_the_bytes() {
    let _pool = beside_others();
    for round in 0..3 {
        // Pages that were used before.
        let used: Vec<PageBox> = (0..200).map(|_| Page::with(0, &[0xee; PAGE_SIZE])).collect();
        drop(used);
        for (count, offset, len) in
            [(1, 0, 0), (1, 7, 100), (5, 4090, 9000), (3, 8192, 4096), (130, 5, 530_000), (0, 0, 0)]
        {
            let pages = Page::many_with(count, offset, &vec![3; len]);
            let mut expected = vec![0; count * PAGE_SIZE];
            expected[offset..offset + len].fill(3);
            assert!(bytes_of(&pages) == expected, "{round}: {count} pages");
        }
        assert_eq!(Page::many_unfilled(70).len(), 70);
    }
}

#[cfg(not(miri))]
#[test]
fn many_pages_ascend() {
    let _pool = beside_others();
    let pages = Page::many_unfilled(64);
    assert!(pages.is_sorted_by_key(|page| page.as_ptr().addr()));
}
