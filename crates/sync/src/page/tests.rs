use super::*;
use std::thread;

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

#[test]
#[should_panic(expected = "not within a page")]
fn read_past_the_end_panics() {
    Page::zeroed().read(4000, &mut [0; 97]);
}

#[test]
#[should_panic(expected = "not within a page")]
fn write_with_an_offset_that_overflows_panics() {
    Page::zeroed().write(usize::MAX, &[0; 2]);
}

#[test]
#[should_panic(expected = "not within a page")]
fn zero_past_the_end_panics() {
    Page::zeroed().zero(4096..4097);
}

#[test]
#[should_panic(expected = "ends before it starts")]
#[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
fn zero_of_a_reversed_range_panics() {
    Page::zeroed().zero(2..1);
}

/// Writers of neighbouring bytes keep each other's, and a reader sees only bytes that were written.
#[test]
fn neighbours_and_readers_may_race() {
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
