//! The memory of the process, for tests that run alone in their process.

/// Returns the resident memory of the process in bytes.
pub fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
