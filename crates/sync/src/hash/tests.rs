use super::*;

/// Consecutive numbers fall into all of 1,024 buckets, and at most two of 1,024 into one.
#[test]
fn consecutive_numbers_are_distributed_evenly() {
    let mut buckets = [0; 1024];
    for number in 5_000_000..5_001_024 {
        buckets[(fibonacci(number) >> 54) as usize] += 1;
    }
    assert!(buckets.iter().all(|count| *count <= 2), "{buckets:?}");
}
