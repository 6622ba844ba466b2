use super::*;

#[test]
fn there_is_memory() {
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
    fs::remove_dir_all(&root).unwrap();
}
