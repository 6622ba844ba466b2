use std::time::{Duration, SystemTime};

use vfscale::pool::LogMerge;

use super::*;

fn entry(node: u64, kind: LogKind, parent: u64, merges: &[(u64, &str)]) -> LogEntry {
    let merge = |it: &(u64, &str)| LogMerge { node: it.0, branch: it.1.into() };
    LogEntry {
        node,
        kind,
        time: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * node)),
        text: String::new(),
        parent: (parent != 0).then_some(parent),
        merges: merges.iter().map(merge).collect(),
        branches: Vec::new(),
    }
}

#[test]
fn lines_of_branches_part_and_meet() {
    let log = [
        LogEntry { time: None, ..entry(9, LogKind::Now, 7, &[]) },
        LogEntry { branches: vec!["end".into()], ..entry(7, LogKind::Merge, 3, &[(5, "trial")]) },
        entry(5, LogKind::Merged, 3, &[]),
        LogEntry { text: "the first".into(), ..entry(3, LogKind::Checkpoint, 1, &[]) },
        LogEntry { text: "other".into(), ..entry(1, LogKind::Adoption, 0, &[]) },
    ];
    let mut out = Vec::new();
    draw(&mut out, &log).unwrap();
    let expected = "\
*      9                       now
*      7  1970-01-08 00:00:00  merge of trial (end)
|\\
| *      5  1970-01-06 00:00:00  merged
|/
*      3  1970-01-04 00:00:00  checkpoint: the first
*      1  1970-01-02 00:00:00  adoption of other
";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}
