//! The driver of grace periods: one thread of the process at a time.
//!
//! A grace period begins with a number that threads see when they enter their next section, and
//! then report. So if all threads of the process enter sections all the time, it is over when each
//! has entered one. A thread that does not report within [`PATIENCE`] is suspected of being idle:
//! the driver marks it and has the system run a fence on the CPUs of the process, after which the
//! driver can tell whether the thread is in a section. If not, it need not report for later grace
//! periods, which therefore need no such fence either.

use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use super::protocol::{Epoch, Quiescent};
use super::record::{EPOCH, Record, Records};

/// Time from the beginning of a grace period to that of the next one, for which each thread keeps
/// what it frees.
const SPACING: Duration = Duration::from_micros(16);

/// An addition to that time for each record that the driver has looked at: some four times the time
/// of the look.
const SPACING_EACH: Duration = Duration::from_nanos(200);

/// Time from the beginning of a grace period after which threads are suspected.
const PATIENCE: Duration = Duration::from_micros(50);

/// Time from one fence to the next one, as a multiple of the time that the former took. It may
/// take 20 us in a virtual machine.
const FENCE_SPACING: u32 = 32;

/// Maximum of that time.
const FENCE_SPACING_MAX: Duration = Duration::from_millis(2);

/// Whether every caller is one that waits: in a model of shuttle time does not pass.
const EAGER: bool = cfg!(shuttle);

/// The right to drive grace periods.
static DRIVER: Mutex<Driver> = Mutex::new(Driver { current: None, next: None, next_fence: None });

struct Driver {
    current: Option<GracePeriod>,
    /// When the next grace period may begin, unless a caller waits for it.
    next: Option<Instant>,
    /// When the next fence may be run, unless a caller waits for it.
    next_fence: Option<Instant>,
}

/// A grace period that is not over.
struct GracePeriod {
    number: u64,
    /// The records that have not been looked at, of those that were known after it had begun.
    left: Records,
    /// Number of records that have been looked at.
    looked_at: u32,
    begun: Instant,
    suspicion: Suspicion,
}

/// The state of threads that have not reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    None,
    /// They were marked, but no fence has made that known.
    Marked,
    /// Their notes are readable.
    Readable,
}

/// Ends the current grace period if nothing delays it any more, or begins one, unless another
/// thread drives them at this moment. Unless the caller waits for it, a grace period begins only if
/// the latest one began long enough ago. `own` is the record of a caller that is in no section.
#[cold]
pub(super) fn drive(waits: bool, own: Option<&Record>) {
    let mut driver = match DRIVER.try_lock() {
        Ok(driver) => driver,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    let is_new = driver.current.is_none();
    if is_new && !driver.begin(waits || EAGER) {
        return;
    }
    if let Some(own) = own {
        EPOCH.report(&own.section);
    }
    driver.advance(waits && !is_new || EAGER);
}

/// Forgets the grace period that is not over, with the records that it waits for.
#[cfg(all(shuttle, not(loom)))]
pub(super) fn forget() {
    let mut driver = DRIVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *driver = Driver { current: None, next: None, next_fence: None };
}

impl Driver {
    fn begin(&mut self, waits: bool) -> bool {
        let begun = Instant::now();
        if !waits && self.next.is_some_and(|next| begun < next) {
            return false;
        }
        let number = EPOCH.begin();
        // The records are read after the fence: a thread that is not among them entered later.
        let left = Records::known();
        let suspicion = Suspicion::None;
        self.current = Some(GracePeriod { number, left, looked_at: 0, begun, suspicion });
        true
    }

    /// Ends the grace period if nothing delays it.
    fn advance(&mut self, waits: bool) {
        let Some(current) = &mut self.current else { return };
        if current.suspicion == Suspicion::None && !current.all_quiescent() {
            let now = Instant::now();
            let is_late = now >= current.begun + PATIENCE;
            let may_fence = waits || is_late && self.next_fence.is_none_or(|next| now >= next);
            if !may_fence {
                return;
            }
            current.suspect();
        }
        if current.suspicion == Suspicion::Marked {
            let before = Instant::now();
            if !Epoch::expedite() {
                return;
            }
            current.suspicion = Suspicion::Readable;
            let spacing = (before.elapsed() * FENCE_SPACING).min(FENCE_SPACING_MAX);
            self.next_fence = Some(before + spacing);
        }
        if current.suspicion == Suspicion::Readable && !current.none_delays() {
            return;
        }
        EPOCH.finish(current.number);
        self.next = Some(current.begun + SPACING + SPACING_EACH * current.looked_at);
        self.current = None;
    }
}

impl GracePeriod {
    /// Returns whether all threads have reported or are idle.
    fn all_quiescent(&mut self) -> bool {
        while let Some(record) = self.left.first() {
            if record.section.quiescent(self.number) == Quiescent::Unknown {
                return false;
            }
            self.left.next();
            self.looked_at += 1;
        }
        true
    }

    /// Marks the threads that have not reported.
    fn suspect(&mut self) {
        let number = self.number;
        self.left.again().for_each(|record| record.section.suspect(number));
        self.suspicion = Suspicion::Marked;
    }

    /// Returns whether no thread is in a section that began before the grace period.
    fn none_delays(&mut self) -> bool {
        while let Some(record) = self.left.first() {
            if record.section.delays(self.number) {
                return false;
            }
            self.left.next();
            self.looked_at += 1;
        }
        true
    }
}
