//! The memory that the process may use.

use std::fs;
use std::path::Path;

/// Returns the memory that this process may use, in bytes: the machine's, or the limit of its
/// control groups (v2) if that is less. Reads some files of `/proc` and `/sys`.
#[must_use]
pub fn memory_bytes() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(&groups, Path::new("/sys/fs/cgroup")).unwrap_or(u64::MAX);
    ram_bytes().min(limit)
}

/// Returns the memory of the machine in bytes.
fn ram_bytes() -> u64 {
    // SAFETY: the call only returns a number.
    let of = |name| u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0);
    of(libc::_SC_PHYS_PAGES).saturating_mul(of(libc::_SC_PAGESIZE))
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

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
