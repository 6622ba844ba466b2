//! Loads of many threads, and power cuts in the middle of them.
//!
//! | module | contents |
//! | --- | --- |
//! | [`churn`] | threads that free blocks, immediately reuse blocks, and make orphans |
//! | [`tangle`] | threads that make every call, in separate and in shared directories |
//! | [`kills`] | power cuts at random moments of both |
//! | [`names`] | threads that change delayed names side by side |
//! | [`syncs`] | concurrent syncs, background writes and remounts on a slow device |

pub mod churn;
pub mod kills;
pub mod names;
pub mod syncs;
pub mod tangle;

/// Returns the result of a thread; a panic becomes an error.
fn joined<T>(result: std::thread::Result<Result<T, String>>) -> Result<T, String> {
    result.unwrap_or_else(|_| Err("a thread panicked".into()))
}
