//! The memory of the process, for tests that are alone in theirs.

/// Returns how many bytes of memory are resident.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
