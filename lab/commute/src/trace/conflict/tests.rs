use super::*;
use crate::trace::record::Access;

fn trace(accesses: &[(u64, u64, &str)]) -> Trace {
    let step = |&(address, size, how): &(u64, u64, &str)| {
        let (read, write) = (how.contains('r'), how.contains('w'));
        Step::Access(Access { address, size, read, write, ip: 1 })
    };
    Trace { steps: accesses.iter().map(step).collect(), ..Trace::default() }
}

#[test]
fn a_line_conflicts_if_one_writes_it() {
    let reader = trace(&[(64, 8, "r"), (256, 4, "r")]);
    assert_eq!(conflicts(&reader, &reader), []);
    let writer = trace(&[(64, 8, "r"), (64, 8, "rw"), (512, 8, "w")]);
    let found = conflicts(&reader, &writer);
    assert_eq!(found, [Conflict { line: 64, bytes: 0xff, first: 0, second: 1 }]);
    assert_eq!(conflicts(&writer, &writer).len(), 2);
}

#[test]
fn neighbours_on_a_line_share_no_byte() {
    let found = conflicts(&trace(&[(128, 8, "w")]), &trace(&[(120, 4, "w"), (136, 8, "r")]));
    assert_eq!(found, [Conflict { line: 128, bytes: 0, first: 0, second: 1 }]);
}

#[test]
fn an_access_may_reach_over_several_lines() {
    let found = conflicts(&trace(&[(60, 136, "w")]), &trace(&[(63, 1, "r"), (190, 2, "r")]));
    let lines: Vec<_> = found.iter().map(|c| (c.line, c.bytes)).collect();
    assert_eq!(lines, [(0, 1 << 63), (128, 3 << 62)]);
}
