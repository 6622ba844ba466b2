use super::*;

/// Returns the index of a group of 16 zones from block 65,536 on, with these runs.
fn loaded(runs: &[(u64, u64)]) -> Index {
    let mut index = unloaded(runs);
    assert!(index.load(0, 16, runs));
    index
}

fn unloaded(runs: &[(u64, u64)]) -> Index {
    let mut index = Index::new(START, 16 * ZONE_BLOCKS);
    index.blocks = runs.iter().map(|(_, blocks)| *blocks).sum();
    index
}

const START: u64 = 1 << 16;

fn zone(at: u64) -> u64 {
    START + at * ZONE_BLOCKS
}

fn index() -> Index {
    let mut index = loaded(&[(START + 100, 20)]);
    (index.tree_total, index.tree_max) = (4, 10);
    index
}

fn claim(index: &mut Index, near: u64, min: u64, max: u64) -> Search<BlockRange> {
    index.claim(near, min, max, Reach::Anything)
}

#[test]
fn the_index_keeps_blocks_for_trees_from_files() {
    let mut index = index();
    assert_eq!(index.available(), 14);
    assert_eq!(claim(&mut index, START + 100, 15, 20), Search::Nothing);
    let taken = |start, blocks| Search::Taken(BlockRange::new(START + start, blocks));
    assert_eq!(claim(&mut index, START + 100, 1, 20), taken(100, 14));
    assert_eq!((index.available(), claim(&mut index, 0, 1, 1)), (0, Search::Nothing));
    // The trees get the end of the run.
    assert_eq!(index.claim_for_trees(2), taken(118, 2));
    assert_eq!((index.tree_total, index.available()), (6, 0));
    assert_eq!(index.claim_for_trees(9), taken(114, 4));
    assert_eq!(index.claim_for_trees(1), Search::Nothing);
    assert_eq!(claim(&mut index, 0, 0, 0), Search::Nothing);
    assert_eq!(claim(&mut index, 0, 0, 5), Search::Nothing);
}

#[test]
fn the_index_asks_for_zones_that_are_not_loaded() {
    let runs = [(zone(1), 3), (zone(2) - 10, 40), (zone(9) + 8, 200)];
    let mut index = unloaded(&runs);
    assert_eq!(index.claim(zone(2), 1, 9, Reach::Loaded), Search::Nothing);
    assert_eq!(index.claim(zone(2), 1, 9, Reach::Better), Search::Load(2));
    assert!(index.load(2, 3, &runs[1..2]));
    let run = Search::Taken(BlockRange::new(zone(2), 9));
    assert_eq!(index.claim(zone(2), 1, 9, Reach::Better), run, "the part that is in the zone");
    assert_eq!(index.claim(zone(2) + 9, 1, 50, Reach::Better), Search::Load(3), "is there more?");
    let run = Search::Taken(BlockRange::new(zone(2) + 9, 21));
    assert_eq!(index.claim(zone(2) + 9, 1, 50, Reach::Anything), run);
    assert_eq!(index.claim(zone(2), 1, 1, Reach::Anything), Search::Load(3));
    assert!(index.load(3, 9, &[]) && index.load(10, 16, &[]) && index.load(0, 1, &[]));
    assert_eq!(claim(&mut index, zone(4), 1, 1), Search::Load(9), "from there on, and around");
    assert!(index.load(9, 10, &runs[2..]));
    assert_eq!(index.claim(zone(4), 1, 300, Reach::Better), Search::Load(1));
    assert!(index.load(1, 2, &runs[..2]));
    assert_eq!((index.zones.is_whole(), index.free.blocks()), (true, 213));
    assert_eq!(
        index.claim_for_chunk(zone(1), Reach::Better),
        Search::Taken(BlockRange::new(zone(2) - 8, 8))
    );
}

#[test]
fn a_zone_that_is_dropped_is_known() {
    let runs = [(zone(1) + 1, 3), (zone(2) - 7, 40), (zone(9) + 8, 200)];
    let mut index = loaded(&runs);
    let near = zone(1) + 2;
    assert_eq!(claim(&mut index, near, 1, 1), Search::Taken(BlockRange::new(near, 1)));
    // The first round finds all zones in use.
    while index.drop_zone() {}
    assert!(index.zones.is_loaded(9));
    for at in 8..10 {
        let claimed = claim(&mut index, zone(9), 1, 1);
        assert_eq!(claimed, Search::Taken(BlockRange::new(zone(9) + at, 1)));
        // The part in zone 2 is a run of its own only after zone 1 is dropped.
        while index.drop_zone() {}
    }
    let known = |index: &Index, zone| index.zones.summary(zone);
    assert_eq!(
        (known(&index, 1), known(&index, 2), known(&index, 9)),
        (Some(7), Some(33 | HAS_PLACE), None)
    );
    assert_eq!((index.blocks, index.free.blocks()), (240, 198));
    // A run released in a dropped zone is not in memory, but in the zone's summary.
    index.release(BlockRange::new(near, 1));
    assert_eq!((index.blocks, known(&index, 1)), (241, Some(7 | HAS_PLACE)));
    assert_eq!(
        claim(&mut index, zone(3), 1, 250),
        Search::Taken(BlockRange::new(zone(9) + 10, 198))
    );
    assert_eq!(
        index.claim(zone(3), 1, 30, Reach::Better),
        Search::Load(2),
        "where it is known to fit"
    );
    assert_eq!(index.claim(zone(3), 1, 35, Reach::Better), Search::Load(2), "the most there is");
    assert!(index.load(2, 3, &runs[1..2]));
    assert_eq!(
        index.claim(zone(3), 1, 35, Reach::Better),
        Search::Taken(BlockRange::new(zone(2), 33))
    );
    assert_eq!(index.claim(zone(3), 1, 35, Reach::Better), Search::Load(1));
    // Pending blocks are not loaded.
    assert!(index.withhold(BlockRange::new(zone(1) + 100, 5)));
    index.blocks += 2;
    assert!(index.load(1, 2, &[runs[0], (zone(1) + 99, 7), runs[1]]));
    let has: Vec<_> = index.free.runs().collect();
    assert_eq!(has, [(zone(1) + 1, 3), (zone(1) + 99, 1), (zone(1) + 105, 1), (zone(2) - 7, 7)]);
}

#[test]
fn a_long_run_is_not_dropped_in_vain() {
    let mut index = loaded(&[(zone(1) + 5, 6 * ZONE_BLOCKS), (zone(8), 1)]);
    while index.drop_zone() {}
    while index.drop_zone() {}
    assert_eq!((index.zones.is_loaded(1), index.zones.is_loaded(2)), (false, true));
    assert_eq!(
        (index.zones.is_loaded(7), index.zones.is_loaded(8), index.entries()),
        (true, false, 1)
    );
}

/// Returns the inodes of a group with all zones loaded.
fn inodes() -> Chunks {
    let mut chunks = Index::new(0, ZONE_BLOCKS).chunks;
    assert!(chunks.load(0, 1, &[]));
    chunks
}

#[test]
fn inodes_are_of_the_chunk_they_are_wanted_in() {
    let mut index = inodes();
    index.add(1000, 0b110);
    index.add(2000, 0b1);
    assert_eq!(index.inodes, 3);
    assert_eq!(index.claim(2007, Reach::Anything), Search::Taken((2000, 0)));
    assert_eq!(
        index.claim(2007, Reach::Anything),
        Search::Taken((1000, 1)),
        "the other one is used up"
    );
    index.add(3000, 1 << 63);
    assert_eq!(
        index.claim(1008, Reach::Anything),
        Search::Taken((3000, 63)),
        "behind the wish first"
    );
    assert_eq!(index.claim(1008, Reach::Anything), Search::Taken((1000, 2)));
    assert_eq!((index.claim(0, Reach::Anything), index.inodes), (Search::Nothing, 0));
}

#[test]
fn a_chunk_goes_if_nobody_has_claimed_of_it() {
    let mut index = inodes();
    index.add(1000, !0b11);
    assert_eq!(index.claim_whole(1000, 0b01), None, "bit 1 is somebody's");
    assert_eq!(index.claim_whole(2000, 0b01), None);
    assert_eq!(index.claim_whole(1000, 0b11), Some(!0b11));
    assert_eq!((index.inodes, index.claim(1000, Reach::Anything)), (0, Search::Nothing));
    index.unclaim(1000, !0b11);
    assert_eq!(index.inodes, 62);
}

#[test]
fn inodes_of_a_zone_that_is_dropped_are_counted() {
    let chunks = [(16, 0b111), (zone(2) - START, 1 << 5), (zone(5) - START + 8, u64::MAX)];
    let mut index = Index::new(0, 16 * ZONE_BLOCKS).chunks;
    index.inodes = 3 + 1 + 64;
    assert_eq!(index.claim(16, Reach::Loaded), Search::Nothing);
    assert_eq!(index.claim(16, Reach::Better), Search::Load(0));
    assert!(index.load(0, 16, &chunks));
    assert_eq!(index.claim(16, Reach::Better), Search::Taken((16, 0)));
    while index.drop_zone() {}
    while index.drop_zone() {}
    assert_eq!((index.len(), index.inodes), (0, 67));
    assert_eq!(
        [0, 1, 2, 5].map(|zone| index.zones.summary(zone)),
        [Some(2), None, Some(1), Some(64)]
    );
    assert_eq!(index.claim(zone(3) - START, Reach::Better), Search::Load(5));
    // Claimed inodes are not loaded; inodes that are given back are counted.
    assert!(index.load(0, 1, &chunks[..1]));
    assert_eq!(index.masks().get(&16), Some(&0b110));
    index.add(zone(2) - START, 0b11);
    index.unclaim(16, 1);
    assert_eq!((index.zones.summary(2), index.masks().get(&16)), (Some(3), Some(&0b111)));
    // A chunk without claimed inodes, loaded or not.
    let whole = zone(5) - START + 8;
    assert_eq!(index.claim_whole(whole, 0b1), Some(!0b1));
    assert_eq!((index.zones.summary(5), index.inodes), (Some(1), 7));
    index.unclaim(whole, !0b1);
    assert_eq!((index.zones.summary(5), index.inodes), (Some(64), 70));
    assert_eq!(index.claim(whole, Reach::Better), Search::Load(5));
    assert!(index.load(5, 6, &chunks[2..]));
    assert_eq!(index.claim(whole, Reach::Better), Search::Taken((whole, 0)));
    while index.drop_zone() {}
    while index.drop_zone() {}
    assert_eq!(index.claim_whole(whole, 0b10), None, "bit 0 is claimed");
    assert_eq!(index.claim_whole(whole, 0b1), Some(!0b1));
}
