//! Random changes against a model with one entry for each block.

use proptest::prelude::*;

use super::*;

/// Block of the file to its address and whether it is unwritten.
type Model = BTreeMap<u64, (u64, bool)>;

#[derive(Clone, Debug)]
enum Step {
    Insert { block: u64, blocks: u32, is_unwritten: bool, is_behind: bool },
    Remove { from: u64, blocks: u64, most: usize },
    Convert { from: u64, blocks: u64, is_unwritten: bool, most: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let block = 0..300_u64;
    let insert = (block.clone(), 1..6_u32, any::<bool>(), any::<bool>());
    prop_oneof![
        6 => insert.prop_map(|(block, blocks, is_unwritten, is_behind)| {
            Step::Insert { block, blocks, is_unwritten, is_behind }
        }),
        2 => (block.clone(), 1..60_u64, 1..9_usize).prop_map(|(from, blocks, most)| {
            Step::Remove { from, blocks, most }
        }),
        2 => (block, 1..40_u64, any::<bool>(), 1..9_usize).prop_map(
            |(from, blocks, is_unwritten, most)| Step::Convert { from, blocks, is_unwritten, most }
        ),
    ]
}

/// Returns the extents of the model, each as long as possible.
fn extents(model: &Model) -> Vec<Extent> {
    let mut list: Vec<Extent> = Vec::new();
    for (&file_block, &(start, is_unwritten)) in model {
        let one = Extent { file_block, start, blocks: 1, is_unwritten };
        match list.last_mut().and_then(|last| Some((last.joined(&one)?, last))) {
            Some((both, last)) => *last = both,
            None => list.push(one),
        }
    }
    list
}

struct BlockRange {
    map: ExtentMap,
    nodes: Memory,
    model: Model,
    next_place: u64,
    list_max: usize,
    grown: i64,
}

impl BlockRange {
    fn owner(&self) -> MapOwner {
        MapOwner { ino: INO, list_max: self.list_max }
    }

    fn step(&mut self, step: &Step) {
        let owner = self.owner();
        match *step {
            Step::Insert { block, blocks, is_unwritten, is_behind } => {
                // Into the hole, and behind the extent before it if the step says so.
                let Some(block) = (block..).find(|at| !self.model.contains_key(at)) else { return };
                let room = (block..).take_while(|at| !self.model.contains_key(at));
                let blocks = room.take(blocks as usize).count() as u32;
                let before = block.checked_sub(1).and_then(|at| self.model.get(&at));
                let start = match before {
                    Some((place, _)) if is_behind && *place + 1 == self.next_place => place + 1,
                    _ => self.next_place + 1,
                };
                self.next_place = start + u64::from(blocks);
                let new = Extent { file_block: block, start, blocks, is_unwritten };
                self.grown += self.map.insert(&mut self.nodes, owner, new).unwrap();
                for at in 0..u64::from(blocks) {
                    self.model.insert(block + at, (start + at, is_unwritten));
                }
            }
            Step::Remove { from, blocks, most } => {
                let mut freed = Vec::new();
                let range = (from, from + blocks);
                let (map, nodes, grown) = (&mut self.map, &mut self.nodes, &mut self.grown);
                let end = map.remove(nodes, owner, range, most, &mut freed, grown).unwrap();
                assert!(end == from + blocks || freed.len() == most);
                let mut expected = Vec::new();
                for at in from..end {
                    expected.extend(self.model.remove(&at).map(|(place, _)| place));
                }
                let freed =
                    freed.iter().flat_map(|run| run.start..run.start + u64::from(run.blocks));
                assert_eq!(freed.collect::<Vec<_>>(), expected);
            }
            Step::Convert { from, blocks, is_unwritten, most } => {
                let range = (from, from + blocks);
                let (map, nodes, grown) = (&mut self.map, &mut self.nodes, &mut self.grown);
                let end = map.convert(nodes, owner, range, is_unwritten, most, grown).unwrap();
                assert!(from <= end && end <= from + blocks);
                for (_, (_, unwritten)) in self.model.range_mut(from..end) {
                    *unwritten = is_unwritten;
                }
            }
        }
        self.nodes.commit();
        assert_eq!(all(&self.map, &self.nodes), extents(&self.model));
        assert_eq!(self.grown, self.nodes.blocks.len() as i64);
    }

    /// Checks the mapping of every block.
    fn look_everywhere(&self) {
        for block in 0..320 {
            let found = self.map.lookup(&self.nodes, INO, block).unwrap();
            let is_unwritten = matches!(found, Mapping::Unwritten { .. });
            match (found, self.model.get(&block)) {
                (
                    Mapping::Mapped { start, blocks } | Mapping::Unwritten { start, blocks },
                    Some(place),
                ) => {
                    assert_eq!((start, is_unwritten), *place);
                    let last = self.model[&(block + blocks - 1)];
                    assert_eq!(last, (start + blocks - 1, is_unwritten));
                }
                (Mapping::Hole { blocks }, None) => {
                    let next = self.model.range(block..).next();
                    let expected = next.map_or(FILE_BLOCKS_MAX, |(next, _)| *next) - block;
                    assert_eq!(blocks, expected);
                }
                (found, expected) => panic!("{found:?} instead of {expected:?} at {block}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_map_is_as_a_place_for_each_block(
        steps in prop::collection::vec(step(), 1..150),
        list_max in 0..=LIST_MAX,
    ) {
        let mut run = BlockRange {
            map: ExtentMap::default(),
            nodes: Memory::new(),
            model: Model::new(),
            next_place: 1000,
            list_max,
            grown: 0,
        };
        for step in &steps {
            run.step(step);
        }
        run.look_everywhere();
    }
}
