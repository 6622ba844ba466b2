//! The memory that the process may use.

use std::fs;
use std::path::Path;

/// Returns the memory that this process may use, in bytes: the machine's, or the limit of its
/// control groups (v2) if that is less.
pub(crate) fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limit(&groups, Path::new("/sys/fs/cgroup")).map_or(machine, |limit| machine.min(limit))
}

/// Returns the lowest `memory.max` of the group named in `groups` (the contents of
/// `/proc/self/cgroup`) and of its ancestors, below `root`.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    // The line of the unified hierarchy (v2).
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Path::new(group)
        .ancestors()
        .filter_map(|group| fs::read_to_string(root.join(group).join("memory.max")).ok())
        .filter_map(|limit| limit.trim().parse().ok())
        .min()
}

#[cfg(test)]
mod tests;
