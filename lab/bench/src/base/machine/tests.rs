//! Tests of reading `/proc`, on tables with known answers.

use super::*;

const TABLE: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,discard
30 22 0:25 / /mnt rw,noatime - xfs /dev/loop0 rw,logbufs=8
31 30 0:26 / /mnt/a\\040b rw master:1 propagate_from:2 - tmpfs none rw,size=1g
32 22 0:27 / /mntx rw - btrfs /dev/loop1 rw
33 30 0:28 / /mnt ro - nfs srv:/x ro,vers=4.2
";

fn on(dir: &str) -> Mount {
    Mount::find(TABLE, Path::new(dir)).unwrap()
}

#[test]
fn the_mount_of_a_directory() {
    assert_eq!(on("/usr").fs_type, "ext4");
    assert_eq!(on("/mntx/y").fs_type, "btrfs");
    assert_eq!(on("/mnty").fs_type, "ext4");
    // The second mount hides the first.
    assert_eq!(on("/mnt/z").source, "srv:/x");
    let tmpfs = on("/mnt/a b/c");
    assert_eq!((tmpfs.fs_type.as_str(), tmpfs.options.as_str()), ("tmpfs", "rw;rw,size=1g"));
    assert_eq!(tmpfs.at, "/mnt/a b");
}

#[test]
fn words_are_quoted_where_a_shell_would_split_them() {
    assert_eq!(quoted("--target=path:/dev/shm"), "--target=path:/dev/shm");
    assert_eq!(quoted("a b"), "'a b'");
    assert_eq!(quoted(""), "''");
    assert_eq!(quoted("it's"), r"'it'\''s'");
}

#[test]
fn stolen_time_is_a_share_of_all_time() {
    let (stolen, all) = ticks("cpu  100 0 50 800 20 5 5 20 7 0");
    assert_eq!((stolen, all), (20, 1_000));
    let before = Theft { stolen: 20, all: 1_000, throttled: 0 };
    let after = Theft { stolen: 30, all: 1_100, throttled: 200_000 };
    // A tenth by the host; 0.2 s of 1 s by the limit.
    assert!((after.since(before, 1_000_000_000) - 0.3).abs() < 1e-9);
    assert_eq!(before.since(before, 1), 0.0);
    assert_eq!(ticks(""), (0, 0));
}

#[test]
fn this_machine_can_be_described() {
    let machine = Machine::this();
    assert!(machine.cpus >= 1 && machine.memory > 1 << 20 && !machine.cpu.is_empty());
    assert!(kernel().starts_with("Linux "), "{}", kernel());
    assert!(Mount::of(Path::new("/")).is_some());
}
