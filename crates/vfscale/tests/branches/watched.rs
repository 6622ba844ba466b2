//! A branch that counts the calls for which the pool had no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vfscale::block::{Error as DeviceError, OsError};
use vfscale_pool::Branch;
use vfscale_testkit::HookedDevice;

/// A branch that counts the writes which have found the pool full.
pub type Watched = HookedDevice<Arc<Branch>, Arc<AtomicU64>>;

pub fn watched(branch: Arc<Branch>, full: Arc<AtomicU64>) -> Watched {
    HookedDevice::new(branch, full, |branch, full, call| {
        let result = call.pass(branch);
        if matches!(result, Err(DeviceError::Io { source: OsError::NO_SPACE, .. })) {
            full.fetch_add(1, Ordering::Relaxed);
        }
        result
    })
}
