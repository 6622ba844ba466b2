//! Tests of the namespace of a run.

use super::unshare;

/// A thread that has ended, but not given up yet what it shares, would be in the way sometimes.
#[test]
fn a_namespace_is_left_at_any_moment() {
    const TIMES: usize = 10_000;
    let go = || {
        let directory = std::env::current_dir().unwrap();
        for number in 0..TIMES {
            match unshare() {
                Ok(before) => before.enter().unwrap_or_else(|error| panic!("{number}: {error}")),
                Err(error) if number == 0 => return println!("######## SKIPPED: {error}"),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(std::env::current_dir().unwrap(), directory);
    };
    // Other tests keep their directories.
    std::thread::spawn(go).join().unwrap();
}
