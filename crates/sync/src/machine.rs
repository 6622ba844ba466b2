//! The memory that the process may use.

use std::fs;
use std::path::Path;

/// Returns the memory that this process may use, in bytes: the machine's, or the limit of its
/// control groups if that is less. Reads some files of `/proc` and `/sys`.
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

/// Returns the lowest limit of memory of the groups named in `groups` (the contents of
/// `/proc/self/cgroup`) and of their ancestors, below `root`: `memory.max` of the unified hierarchy
/// (v2), `memory.limit_in_bytes` of one of its own (v1).
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (top, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join(controllers), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a namespace of control groups the path may begin with `..`, and the top is that of the
        // namespace.
        Path::new(group.trim_start_matches('/'))
            .ancestors()
            .filter(|group| !group.starts_with(".."))
            .filter_map(|group| fs::read_to_string(top.join(group).join(file)).ok())
            .filter_map(|limit| limit.trim().parse().ok())
            .min()
    });
    limits.min()
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests;
