//! Invariants of a volume in use at moments without activity.
//!
//! A freeze makes such moments: no transaction is active, everything committed is on the device,
//! and the log has nothing to replay. So the volume's state in memory and the findings of a check
//! of its device describe one state. At the same time, unlinked files are open, data wait for
//! write-back, and threads wait for the thaw.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use vfscale::Volume;
use vfscale_block::Device;

use crate::subject::Subject;
use crate::subject::volume::Volumes;

/// Pause between two freezes.
const PAUSE: Duration = Duration::from_millis(3);
/// Number of attempts to compare counts that change without a transaction. Under load, a thread may
/// be preempted for a long time.
const ATTEMPTS: u32 = 200;

/// Compares a volume with its device until the work is over. Returns the number of comparisons.
///
/// # Errors
/// Describes the violation.
pub(super) fn watch<D: Device + 'static>(
    volume: &Volume,
    device: &Arc<D>,
    (growing, is_over): (&Mutex<()>, &AtomicBool),
) -> Result<u64, String> {
    let mut compared = 0;
    while !is_over.load(Ordering::Relaxed) {
        let grows = growing.lock().unwrap_or_else(PoisonError::into_inner);
        compare(volume, device.clone())?;
        drop(grows);
        compared += 1;
        thread::sleep(PAUSE);
    }
    Ok(compared)
}

fn compare(volume: &Volume, device: Arc<dyn Device>) -> Result<(), String> {
    let volume = volume.driver().volume();
    let journal = volume.journal().ok_or("it has no log")?;
    journal.freeze().map_err(|error| format!("freeze: {error}"))?;
    let result = log_is_empty(volume)
        .and_then(|()| figures_agree(volume))
        .and_then(|()| Volumes::default().check(&[device]));
    journal.thaw();
    result
}

/// Checks that all items are written back in place and no log space is reserved.
fn log_is_empty(volume: &vfscale_diskfs::Volume) -> Result<(), String> {
    let journal = volume.journal().ok_or("it has no log")?;
    // The count of active transactions is not checked: it temporarily includes refused ones.
    let stats = journal.stats();
    let is_empty = journal.is_cil_empty() && stats.ail_items == 0 && stats.grant_used == 0;
    if !is_empty {
        return Err(format!("frozen, and the log is not empty: {stats:?}"));
    }
    match volume.overruns() {
        0 => Ok(()),
        overruns => Err(format!("{overruns} transactions would have logged too much")),
    }
}

/// Checks that the marks of orphans agree with the groups, and that all reservable space is free
/// in the groups.
fn figures_agree(volume: &vfscale_diskfs::Volume) -> Result<(), String> {
    let mut text = String::new();
    // After the end of its transaction, a commit updates first its orphans and then its groups.
    // Blocks for data are reserved, claimed and released without any transaction.
    for _ in 0..ATTEMPTS {
        let counted = volume.orphans().len();
        let (totals, figures) = (volume.groups().totals(), volume.space().figures());
        if counted as u64 == totals.orphans && figures.free <= totals.available {
            return Ok(());
        }
        text = format!("{counted} orphans are counted in memory; {figures:?}, {totals:?}");
        thread::sleep(PAUSE);
    }
    Err(text)
}
