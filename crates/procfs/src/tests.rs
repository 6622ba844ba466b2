#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use super::node::{self, Access, Node, Text};
use super::texts;
use vfscale_vfs::lockstat::{Row, Times};
use vfscale_vfs::{OFlags, Scaling};

#[test]
fn an_inode_number_identifies_its_node() {
    let access = |read, write| Access { read, write };
    let mut all = vec![Node::Root, Node::Tasks];
    all.extend(node::TEXTS.iter().map(|(_, text)| Node::Text(*text)));
    for id in [1, 2, 77, 1 << 39] {
        all.extend([Node::Task(id), Node::Cwd(id), Node::Fds(id)]);
        for fd in [0, 1, 1023, (1 << 20) - 1] {
            all.extend(
                [(false, false), (true, false), (false, true), (true, true)]
                    .map(|(read, write)| Node::Fd(id, fd, access(read, write))),
            );
        }
    }
    for node in &all {
        assert_eq!(Node::of(node.ino()), *node);
    }
    let mut numbers: Vec<_> = all.iter().map(|node| node.ino()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), all.len());
    for other in [0, 50, 101, 1 << 24, 1 << 24 | 9] {
        assert_eq!(Node::of(other), Node::Unknown);
    }
}

#[test]
fn names_and_modes() {
    assert_eq!(node::parse("17"), Some(17));
    for bad in ["", "017", "+1", "-1", "1 ", "x", "99999999999999999999999"] {
        assert_eq!(node::parse(bad), None);
    }
    assert_eq!(node::find_in_root("mounts"), Some(Node::Text(Text::Mounts)));
    assert_eq!(node::find_in_root("Mounts"), None);
    let mode = |flags| Node::Fd(1, 0, Access::of(flags)).mode() & 0o7777;
    assert_eq!(mode(OFlags::RDONLY), 0o500);
    assert_eq!(mode(OFlags::WRONLY | OFlags::APPEND), 0o300);
    assert_eq!(mode(OFlags::RDWR), 0o700);
    assert_eq!(mode(OFlags::PATH), 0);
}

/// A line of `lock_stat` is a name, a colon and twelve numbers in columns of fixed width.
#[test]
fn the_table_of_locks_is_the_kernels() {
    let times = |us: u64| Times {
        min: Duration::from_micros(us),
        max: Duration::from_nanos(us * 2_250),
        total: Duration::from_micros(us * 4),
        count: 2,
    };
    let row = Row {
        name: "d_children",
        rank: 50,
        con_bounces: 3,
        contentions: 4,
        parked: 1,
        wait: times(10),
        acq_bounces: 5,
        acquisitions: 600,
        hold: times(1),
    };
    let text = texts::lock_stat(&[row]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "lock_stat version 0.4");
    assert!(lines[1].chars().all(|c| c == '-') && lines[1] == lines[3]);
    assert_eq!(lines[2].split_whitespace().count(), 14);
    assert_eq!(lines[4], "");
    let (name, numbers) = lines[5].split_once(':').unwrap();
    assert_eq!(name, format!("{:>40}", "d_children"));
    let numbers: Vec<f64> = numbers.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(numbers, [3.0, 4.0, 10.0, 22.5, 40.0, 20.0, 5.0, 600.0, 1.0, 2.25, 4.0, 2.0]);
    assert_eq!(lines[1].len(), 40 + 1 + 12 * 15);
    assert_eq!(lines.len(), 6);
}

#[test]
fn patches_are_told_apart() {
    let text = texts::scaling(&Scaling::with_slots(4).and_before("lockref").unwrap());
    let state = |name: &str| text.lines().find_map(|l| l.strip_prefix(&format!("{name}\t")));
    assert_eq!(state("lockref"), Some("before"));
    assert_eq!(state("files-lock"), Some("after"));
    assert_eq!(text.lines().count(), vfscale_vfs::PATCHES.len());
}
