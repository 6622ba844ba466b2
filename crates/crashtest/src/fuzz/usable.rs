//! Tests whether volumes work, before and after a repair.

use std::sync::Arc;

use vfscale_block::Device;
use vfscale_diskfs::{check, copies};

use super::image::{copy, open};
use super::walk;

/// Opens a volume, reads and changes it, closes it, and checks it if all of that succeeded. If a
/// feature of the volume forbids changes, only reads it. Returns the errors of calls.
pub(super) fn use_it(device: &Arc<dyn Device>) -> Result<Vec<String>, String> {
    if copies::read(&**device).is_ok_and(|found| found.is_read_only()) {
        if open(copy(device)).is_ok() {
            return Err("it opens for changes, which a feature forbids".into());
        }
        return read_it(device);
    }
    let volume = open(device.clone())?;
    let task = volume.task();
    let mut errors = walk::everything(&task);
    errors.extend(walk::side_by_side(&volume));
    errors.extend(walk::work(&task));
    drop(task);
    errors.extend(volume.close().err().map(|e| format!("closing: {e}")));
    if errors.is_empty() {
        errors.extend(findings(device).err().map(|found| format!("checked then: {found}")));
    }
    Ok(errors)
}

/// Opens a volume read-only, and reads all of it. Returns the errors of calls.
pub(super) fn read_it(device: &Arc<dyn Device>) -> Result<Vec<String>, String> {
    let opened = vfscale::volume_on(device.clone()).read_only(true).open();
    let volume = opened.map_err(|e| e.to_string())?;
    let mut errors = walk::everything(&volume.task());
    errors.extend(volume.close().err().map(|e| format!("closing: {e}")));
    Ok(errors)
}

/// Checks that a volume has no findings.
pub(super) fn findings(device: &Arc<dyn Device>) -> Result<(), String> {
    let report = check::check(device.clone(), &check::Options::default(), &mut ())
        .map_err(|e| e.to_string())?;
    match report.findings.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} findings, such as {first:?}", report.count)),
    }
}

/// Repairs a copy. Returns 1 if nothing was left to repair, in which case the volume must work, and
/// 0 otherwise.
pub(super) fn repair(device: &Arc<dyn Device>) -> Result<u64, String> {
    let device = copy(device);
    let options = check::Options { repair: true, ..check::Options::default() };
    let Ok(report) = check::check(device.clone(), &options, &mut ()) else { return Ok(0) };
    if report.left > 0 {
        return Ok(0);
    }
    findings(&device).map_err(|found| format!("repaired, but then: {found}"))?;
    let errors = use_it(&device).map_err(|why| format!("repaired, but not opened: {why}"))?;
    if errors.is_empty() { Ok(1) } else { Err(format!("repaired, but: {}", errors.join("; "))) }
}
