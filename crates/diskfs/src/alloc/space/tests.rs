use vfscale_sync::random::Random;

use super::*;

fn space(blocks: u64, available: u64) -> Space {
    Space::new(&Totals { blocks, available, ..Totals::default() }, true)
}

fn figures(space: &Space) -> (u64, u64) {
    let SpaceFigures { free, available, .. } = space.figures();
    (free, available)
}

#[test]
fn the_pool_is_for_those_who_make_space() {
    let space = space(10_000, 10_000);
    assert_eq!(figures(&space), (10_000, 9500));
    assert!(!space.take(9501, false) && space.take(9000, false));
    assert!(!space.take(501, false) && space.take(501, true));
    assert_eq!(figures(&space), (499, 499), "where it comes from: the pool and the rest");
    assert!(!space.take(500, true) && space.take(499, true));
    assert_eq!(figures(&space), (0, 0));
    assert!(!space.take(1, true));
    space.give(300);
    assert_eq!(figures(&space), (300, 0), "the pool is filled first");
    space.give(300);
    assert_eq!(figures(&space), (600, 100));
    space.give(9400);
    assert_eq!(figures(&space), (10_000, 9500));
}

/// Threads that take from the pool do not hide its blocks from each other: each needs one block,
/// and the pool has enough for all of them.
#[test]
fn threads_that_make_space_are_not_refused_for_each_other() {
    const ROUNDS: usize = 100_000;
    let space = space(1000, 1000);
    assert!(space.take(936, false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    assert!(space.take(1, true), "refused in round {round}");
                    space.give(1);
                }
            });
        }
        // A request that neither has changes nothing, not even for a moment.
        scope.spawn(|| (0..ROUNDS).for_each(|_| assert!(!space.take(100, true))));
    });
    assert_eq!(figures(&space), (64, 0), "the pool is as full as it may be");
}

/// Chinner 2020, patch 1.
#[test]
fn space_counters_that_are_read_share_no_written_line() {
    for is_spread in [true, false] {
        let space =
            Space::new(&Totals { blocks: 1000, available: 1000, ..Totals::default() }, is_spread);
        assert_eq!(figures(&space), (1000, 936));
        let [read, written] = [&space.read.pool_size, space.pool()]
            .map(|field| std::ptr::from_ref(field).addr() / 128);
        assert_eq!(read != written, is_spread);
    }
}

#[test]
fn the_pool_has_bounds() {
    assert_eq!(figures(&space(1000, 1000)), (1000, 936));
    assert_eq!(figures(&space(1 << 20, 1 << 20)), (1 << 20, (1 << 20) - 8192));
    assert_eq!(figures(&space(1 << 30, 1 << 30)), (1 << 30, (1 << 30) - (1 << 20)));
    assert_eq!(figures(&space(1000, 40)), (40, 0), "a full volume has what it has");
    assert_eq!(figures(&space(30, 30)), (30, 0));
    assert_eq!(figures(&space(0, 0)), (0, 0));
}

#[test]
fn a_volume_that_grows_has_more() {
    let space = space(1000, 10);
    assert_eq!(figures(&space), (10, 0));
    space.grow(9000);
    assert_eq!(figures(&space), (9010, 8510));
    assert_eq!(space.figures().blocks, 10_000);
    assert!(space.take(8510, false) && !space.take(1, false) && space.take(500, true));
}

/// Several threads take and give blocks, and no block is lost or counted twice.
#[test]
fn threads_lose_nothing() {
    let space = space(5000, 5000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let space = &space;
            scope.spawn(move || {
                let (mut random, mut held) = (Random::new(thread), 0);
                for _ in 0..20_000 {
                    let blocks = 1 + random.below(800);
                    if random.below(2) == 0 && space.take(blocks, random.below(2) == 0) {
                        held += blocks;
                    } else {
                        let back = blocks.min(held);
                        space.give(back);
                        held -= back;
                    }
                    assert!(held <= 5000);
                }
                space.give(held);
            });
        }
    });
    assert_eq!(figures(&space), (5000, 4750));
}

/// With splits at multiples of the coarse grain only, all possible splits take a quarter of the
/// pool at most, and no volume writes more than 32 MiB of zeros for one of them.
#[test]
fn the_pool_lasts_for_every_split() {
    for blocks in (10..32).flat_map(|log2| [1 << log2, (1 << log2) + 12_345]) {
        let pool = pool_of(blocks);
        let grain = grain_of(blocks, pool);
        let splits = blocks.div_ceil(grain);
        assert!(
            2 * splits <= pool / 4 + 2,
            "{splits} splits, {pool} blocks in the pool of {blocks}"
        );
        assert!(grain <= 8192);
    }
}

#[test]
fn the_grain_gets_coarser_as_the_pool_gets_low() {
    let (blocks, pool) = (1 << 28, 1 << 18);
    let space = space(blocks, blocks);
    assert!(space.take(blocks - pool, false));
    let grains = [0, pool / 4, 1, pool / 4 - 1, 1, pool / 2 - 1].map(|more| {
        assert!(space.take(more, true));
        space.grain()
    });
    assert_eq!(grains, [1, 1, 256, 256, 8192, 8192]);
    space.give(pool);
    assert_eq!(space.grain(), 1);
}
