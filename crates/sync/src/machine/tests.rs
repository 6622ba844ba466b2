use super::*;

#[test]
fn a_machine_has_memory() {
    assert!(memory_bytes() > 16 << 20);
}

#[test]
fn the_tightest_group_counts() {
    let root = std::env::temp_dir().join(format!("vfscale-cgroup-{}", std::process::id()));
    let group = root.join("outer/inner");
    fs::create_dir_all(&group).unwrap();
    fs::write(root.join("outer/memory.max"), "1000\n").unwrap();
    fs::write(group.join("memory.max"), "max\n").unwrap();
    let limit = |groups: &str| group_limit(groups, &root);
    assert_eq!(limit("12:pids:/x\n0::/outer/inner\n"), Some(1000));
    fs::write(group.join("memory.max"), "70\n").unwrap();
    assert_eq!(limit("0::/outer/inner\n"), Some(70));
    assert_eq!(limit("0::/\n"), None);
    assert_eq!(limit("3:memory:/outer\n"), None);
    // The first form, whose value without a limit is more than any machine has.
    let first = root.join("memory/docker/one");
    fs::create_dir_all(&first).unwrap();
    fs::write(root.join("memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
    fs::write(first.join("memory.limit_in_bytes"), "50\n").unwrap();
    assert_eq!(limit("3:memory:/docker/one\n0::/outer/inner\n"), Some(50));
    assert_eq!(limit("3:memory:/docker\n0::/outer\n"), Some(1000));
    // In a container the top is its own group.
    fs::write(root.join("memory/memory.limit_in_bytes"), "60\n").unwrap();
    assert_eq!(limit("3:memory:/docker/elsewhere\n"), Some(60));
    assert_eq!(limit("3:memory:/../one\n"), Some(60));
    assert_eq!(limit("3:cpu,cpuacct:/docker/one\n"), None);
    fs::remove_dir_all(&root).unwrap();
}
