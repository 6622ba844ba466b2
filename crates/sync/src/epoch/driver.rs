//! The driver of grace periods: one thread of the process at a time.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::record::{EPOCH, Records};

/// Time from the beginning of a grace period to that of the next one, as a multiple of the time
/// that its fence took.
const SPACING: u32 = 32;

/// Bounds of that time, for which each thread keeps what it frees.
const SPACING_MIN: Duration = Duration::from_micros(50);
const SPACING_MAX: Duration = Duration::from_millis(2);

/// The right to drive grace periods.
static DRIVER: Mutex<Driver> = Mutex::new(Driver { current: None, next: None });

struct Driver {
    current: Option<GracePeriod>,
    /// When the next grace period may begin, unless a caller waits for it.
    next: Option<Instant>,
}

/// A grace period that is not over.
struct GracePeriod {
    number: u64,
    /// The records that have not been looked at, of those that were known after it had begun.
    left: Records,
}

/// Ends the current grace period if no section delays it any more, or begins one, unless another
/// thread drives them at this moment. Unless the caller waits for it, a grace period begins only if
/// the latest one began long enough ago.
#[cold]
pub(super) fn drive(waits: bool) {
    let Ok(mut driver) = DRIVER.try_lock() else { return };
    if driver.current.is_none() {
        driver.begin(waits);
    }
    let Some(current) = &mut driver.current else { return };
    while let Some(record) = current.left.first() {
        if record.section.delays(current.number) {
            return;
        }
        current.left.next();
    }
    EPOCH.finish(current.number);
    driver.current = None;
}

impl Driver {
    fn begin(&mut self, waits: bool) {
        let begun = Instant::now();
        if !waits && self.next.is_some_and(|next| begun < next) {
            return;
        }
        let Some(number) = EPOCH.begin() else { return };
        // The records are read after the fence: a thread that is not among them entered later.
        self.current = Some(GracePeriod { number, left: Records::known() });
        self.next = Some(begun + (begun.elapsed() * SPACING).clamp(SPACING_MIN, SPACING_MAX));
    }
}
