//! Blocks that an opening can't read, or reads with a wrong byte, and that are well afterwards:
//! everything that was flushed is there then, or the opening has failed.

use std::sync::Arc;

use vfscale_block::{CowDevice, Device, Operation, OsError};
use vfscale_sync::random::seed;
use vfscale_testkit::{Fault, FaultyDevice};

use crate::Pool;
use crate::disk::format::PLACE_BYTES;
use crate::state::commit::Shared;
use crate::tests::crash::{Age, Run, spares};

const UNIT: u64 = PLACE_BYTES as u64;
const PLACES: u64 = 300;
const BLOCKS: u64 = 40;

/// Returns the faults of a block: it can't be read, or its first sector can't, or a byte is wrong.
/// Zeros stand for what can't be read if `is_absent`.
fn faults(place: u64, is_absent: bool) -> [(bool, Fault); 3] {
    let start = place * UNIT;
    let unreadable = |length| {
        let fault = Fault::on(Operation::Read).within(start..start + length);
        (false, if is_absent { fault.lie() } else { fault.fail(OsError::IO) })
    };
    let wrong = Fault::on(Operation::Read).flip(start + 200, 0x11);
    [unreadable(UNIT), unreadable(512), (true, wrong)]
}

/// Opens the pool of a run once for each block and fault. Returns how many openings met the fault,
/// and how many of them failed.
fn sweep(run: &Run, is_absent: bool) -> Result<(u64, u64), String> {
    let (mut met, mut refused) = (0, 0);
    let (device, marks): (Arc<dyn Device>, _) = (run.device.clone(), run.device.marks().len());
    let pool = Pool::open(Arc::new(CowDevice::new(device.clone()))).unwrap();
    run.explain(&pool, marks, Age::Flushed)?;
    for place in 0..PLACES {
        let mut bytes = [0; PLACE_BYTES];
        device.read_at(place * UNIT, &mut bytes).unwrap();
        // A wrong content of a last record was not there when power failed: nothing tells that it
        // was.
        let is_content = !bytes.starts_with(b"poo") && !bytes.starts_with(b"vfs");
        for (is_wrong, fault) in faults(place, is_absent) {
            let image = Arc::new(FaultyDevice::new(CowDevice::new(device.clone())));
            image.arm(fault.clone());
            let opened = Shared::open(image.clone(), 0, 1)
                .and_then(|shared| Pool::recovered(Arc::new(shared)));
            if image.fired() == 0 {
                break;
            }
            met += 1;
            refused += u64::from(opened.is_err());
            let told = format!("{:?}", opened.as_ref().err());
            drop(opened);
            image.disarm();
            let kind = String::from_utf8_lossy(&bytes[..4]);
            let tell =
                |what| format!("block {place} {kind:?}, {fault:?}: {what}; the opening: {told}");
            let again = Pool::open(image).map_err(|error| tell(error.to_string()))?;
            let age = if is_wrong && is_content { Age::Any } else { Age::Flushed };
            run.explain(&again, marks, age).map_err(tell)?;
        }
    }
    Ok((met, refused))
}

/// Plays rounds, each with a sweep. Returns how many openings met a fault, and how many failed.
fn rounds(seed: u64, is_absent: bool) -> Result<(u64, u64), String> {
    let (mut met, mut refused) = (0, 0);
    for round in 0..24 {
        let mut run = Run::new(PLACES, BLOCKS, seed.wrapping_add(round));
        let play = if round % 2 == 0 { spares } else { Run::tree };
        play(&mut run, 60);
        let swept = sweep(&run, is_absent).map_err(|why| format!("round {round}: {why}"));
        let (more, errors) = swept?;
        (met, refused) = (met + more, refused + errors);
    }
    Ok((met, refused))
}

#[test]
fn an_opening_with_a_bad_block_fails_or_loses_nothing() {
    let (met, refused) = rounds(seed(), false).unwrap();
    assert!(met > 500 && refused > 50, "{met} openings, {refused} failed");
}

#[test]
fn openings_that_take_unreadable_for_absent_are_found() {
    rounds(1, true).unwrap_err();
}
