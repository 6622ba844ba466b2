//! What must be true of a volume that is in use, at every moment at which nothing is under way.
//!
//! A freeze makes such moments: no transaction is active, everything that was committed is on the device, and
//! the log has nothing to replay. So what the volume knows in memory and what a check finds on the
//! device are about the same state, while files are open that have no name any more, data waits to be
//! written, and threads wait for the thaw.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use vfscale::Volume;
use vfscale_block::Device;

use crate::subject::Subject;
use crate::volume::Volumes;

/// How long a volume works between two freezes.
const PAUSE: Duration = Duration::from_millis(3);
/// How often figures are compared that change without a transaction; under load a thread may not go
/// on for long.
const ATTEMPTS: u32 = 200;

/// Compares a volume with its device until the work is over. Gives how often it did.
///
/// # Errors
/// What must not be.
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

/// Everything is home, and nobody has log space.
fn log_is_empty(volume: &vfscale::diskfs::Volume) -> Result<(), String> {
    let journal = volume.journal().ok_or("it has no log")?;
    // The count of active transactions says nothing here: who is refused is in it for a moment.
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

/// The lists of orphans have those that the groups have, and what is free for reserving is free in
/// the groups.
fn figures_agree(volume: &vfscale::diskfs::Volume) -> Result<(), String> {
    let mut text = String::new();
    // A commit brings its lists and its groups up to date when its transaction is over already, one after the
    // other; and blocks for data are reserved, claimed and given back without any transaction.
    for _ in 0..ATTEMPTS {
        let listed: usize = volume.orphans().slots().iter().sum();
        let (totals, figures) = (volume.groups().totals(), volume.space().figures());
        if listed as u64 == totals.orphans && figures.free <= totals.available {
            return Ok(());
        }
        text = format!("{listed} orphans are on the lists; {figures:?}, {totals:?}");
        thread::sleep(PAUSE);
    }
    Err(text)
}
