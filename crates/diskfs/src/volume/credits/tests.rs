//! Tests of reservations, on a device that counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use vfscale_block::{Demand, Device, Error, MemoryDevice, Operation, OsError};

use crate::base::fault::Fault;
use crate::format::BLOCK_BYTES;
use crate::tools::mkfs::{self, MkfsOptions};
use crate::volume::tx::TxReservation;
use crate::volume::{Volume, VolumeOptions};

/// A device on which a number of blocks can be reserved.
#[derive(Debug)]
struct Limited {
    memory: MemoryDevice,
    left: AtomicI64,
    /// Only urgent reservations get the last ones.
    urgent: i64,
}

impl Device for Limited {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn describe(&self) -> String {
        self.memory.describe()
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn block_size(&self) -> u32 {
        self.memory.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), Error> {
        self.memory.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), Error> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), Error> {
        self.memory.discard(offset, len)
    }

    fn must_reserve(&self) -> bool {
        true
    }

    fn reserve(&self, demand: Demand, is_urgent: bool) -> Result<(), Error> {
        let least = if is_urgent { 0 } else { self.urgent };
        let blocks = demand.blocks as i64;
        if self.left.fetch_sub(blocks, Ordering::SeqCst) - blocks >= least {
            return Ok(());
        }
        self.left.fetch_add(blocks, Ordering::SeqCst);
        let (device, operation) = (self.name().into(), Operation::Write);
        Err(Error::Io { device, operation, offset: 0, length: 0, source: OsError::NO_SPACE })
    }

    fn unreserve(&self, demand: Demand) {
        self.left.fetch_add(demand.blocks as i64, Ordering::SeqCst);
    }
}

fn open(left: i64) -> (Arc<Limited>, Volume) {
    let memory = MemoryDevice::new(4096 * BLOCK_BYTES as u64).unwrap();
    let options = MkfsOptions { log_blocks: Some(256), ..MkfsOptions::default() };
    mkfs::format(&memory, &options).unwrap();
    let device = Arc::new(Limited { memory, left: left.into(), urgent: 100 });
    let volume = Volume::open(device.clone(), VolumeOptions::default()).unwrap();
    (device, volume)
}

fn need(log_blocks: u32, from_pool: bool) -> TxReservation {
    TxReservation { log_blocks, space: 0, from_pool }
}

#[test]
fn nothing_is_reserved_before_the_first_change() {
    let (device, volume) = open(1000);
    assert_eq!(device.left.load(Ordering::SeqCst), 1000);
    volume.changeable().unwrap();
    assert_eq!(device.left.load(Ordering::SeqCst), 1000 - 259 - 128);
    volume.close().unwrap();
}

#[test]
fn a_volume_whose_log_has_no_room_is_not_changed() {
    let (_, volume) = open(300);
    assert!(matches!(volume.changeable(), Err(Fault::NoSpace)));
    assert!(matches!(volume.begin(need(1, true)), Err(Fault::NoSpace)));
    volume.close().unwrap();
}

/// Transactions that have ended and left nothing to be written give all back.
#[test]
fn what_transactions_have_not_used_is_used_again() {
    let (device, volume) = open(1000);
    for _ in 0..1000 {
        drop(volume.begin(need(60, false)).unwrap());
    }
    volume.settle_credits();
    assert_eq!(device.left.load(Ordering::SeqCst), 1000 - 259 - 128);
    let credits = volume.credits();
    assert_eq!(credits.bound.load(Ordering::SeqCst), 0);
    volume.close().unwrap();
}

/// Transactions under way are refused when nothing is left; urgent ones get more.
#[test]
fn transactions_are_refused_and_the_log_is_not() {
    let (_, volume) = open(259 + 128 + 100 + 70);
    let first = volume.begin(need(60, false)).unwrap();
    assert!(matches!(volume.begin(need(60, false)), Err(Fault::NoSpace)));
    // From the urgent part.
    let urgent = volume.begin(need(60, true)).unwrap();
    drop((first, urgent));
    volume.roomy().unwrap();
    assert!(volume.failure().is_none());
    drop(volume.begin(need(60, false)).unwrap());
    volume.close().unwrap();
}
