use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};

use super::*;
use crate::Pool;
use crate::calls::check::check;

const UNIT: u64 = 4096;

#[test]
fn ancestors_are_those_of_the_parents() {
    // Node `n` comes from node `n / 2`: a tree of ten levels.
    let nodes: Vec<Record> = (1..1024).map(|id| Record::new(id, 1)).collect();
    let nodes: Vec<Record> =
        nodes.into_iter().map(|node| Record { parent: node.id / 2, ..node }).collect();
    let history = History::new(&nodes.iter().collect::<Vec<_>>());
    for a in (1..1024).step_by(7) {
        for b in 1..1024 {
            let line = std::iter::successors(Some(b), |id| Some(id / 2).filter(|id| *id != 0));
            assert_eq!(history.is_above(a, b), { line }.any(|id| id == a), "{a} {b}");
        }
    }
    assert!(!history.is_above(0, 5) && !history.is_above(5, 2000));
}

/// A place that a node shares with an ancestor is recognized at once, in a history of any length.
#[test]
fn a_long_history_is_checked_without_a_climb() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8000 * UNIT).unwrap());
    let pool = Pool::create(device, [3; 16]).unwrap();
    pool.create_branch("main", 600 * UNIT).unwrap();
    for n in 0..100_u64 {
        let main = pool.branch("main").unwrap();
        main.write_at(n % 60 * UNIT, &[n as u8 + 1; UNIT as usize]).unwrap();
        main.close().unwrap();
        pool.fork("main", &format!("at{n}"), n % 2 == 0).unwrap();
    }
    let (report, found) = check(&pool.shared, &pool.shared.state.lock()).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(found.climbs, 0);
}
