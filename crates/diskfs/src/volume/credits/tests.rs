//! Tests of reservations, on a device that counts them.

use std::sync::Arc;
use std::thread;

use vfscale_block::MemoryDevice;
use vfscale_sync::atomic::Ordering;

use crate::Settings;
use crate::base::fault::Fault;
use crate::base::reserve::ReservePages;
use crate::format::BLOCK_BYTES;
use crate::tools::mkfs::{self, MkfsOptions};
use crate::volume::Volume;
use crate::volume::credits::Purpose;
use crate::volume::tx::TxReservation;
use vfscale_testkit::Limited;

/// The log, of 256 blocks, and the superblocks.
const FIXED: i64 = 256 + 3;
/// Blocks for write-back, and for removals.
const SUMS: i64 = 2 * 128;

fn open(left: i64) -> (Arc<Limited<MemoryDevice>>, Volume) {
    let memory = MemoryDevice::new(4096 * BLOCK_BYTES as u64).unwrap();
    let options = MkfsOptions { log_blocks: Some(256), ..MkfsOptions::default() };
    mkfs::format(&memory, &options).unwrap();
    let device = Arc::new(Limited { urgent: 100, ..Limited::new(memory, left) });
    let volume = Volume::open(device.clone(), Settings::default()).unwrap();
    (device, volume)
}

fn need(log_blocks: u32, from_pool: bool) -> TxReservation {
    TxReservation { log_blocks, space: 0, from_pool }
}

#[test]
fn a_volume_reserves_no_credits_before_its_first_change() {
    let (device, volume) = open(1000);
    assert_eq!(device.left.load(Ordering::SeqCst), 1000);
    volume.changeable().unwrap();
    assert_eq!(device.left.load(Ordering::SeqCst), 1000 - FIXED - SUMS);
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
fn unused_credits_of_transactions_are_used_again() {
    let (device, volume) = open(1000);
    for _ in 0..1000 {
        drop(volume.begin(need(60, false)).unwrap());
    }
    volume.settle_credits();
    assert_eq!(device.left.load(Ordering::SeqCst), 1000 - FIXED - SUMS);
    let credits = volume.credits();
    assert_eq!(credits.bound.load(Ordering::SeqCst), 0);
    volume.close().unwrap();
}

/// Removals get more when others don't.
#[test]
fn removals_get_what_is_urgent_and_what_is_set_aside() {
    let (device, volume) = open(1000);
    volume.changeable().unwrap();
    device.left.store(70, Ordering::SeqCst);
    assert!(matches!(volume.begin(need(60, false)), Err(Fault::NoSpace)));
    // From the urgent part, and from what is set aside.
    drop(volume.begin(need(60, true)).unwrap());
    let aside = volume.begin(need(100, true)).unwrap();
    assert_eq!(volume.credits().aside.missing(), 100);
    drop(aside);
    // All of it comes back, and calls that need space are accepted again.
    volume.roomy().unwrap();
    device.left.store(170, Ordering::SeqCst);
    drop(volume.begin(need(60, false)).unwrap());
    volume.close().unwrap();
}

/// Near the limit, a transaction gets what an earlier one has left, and reserves only the rest.
#[test]
fn spare_credits_count_near_the_limit() {
    let (device, volume) = open(FIXED + SUMS + 100 + 70);
    drop(volume.begin(need(50, false)).unwrap());
    assert_eq!(device.left.load(Ordering::SeqCst), 100 + 20);
    drop(volume.begin(need(60, false)).unwrap());
    assert!(matches!(volume.begin(need(71, false)), Err(Fault::NoSpace)));
    drop(volume.begin(need(70, false)).unwrap());
    volume.close().unwrap();
}

/// Near the limit, a transaction waits for those under way instead of being refused.
#[test]
fn a_transaction_waits_for_what_others_give_back() {
    let (_, volume) = open(FIXED + SUMS + 100 + 70);
    for _ in 0..100 {
        let first = volume.begin(need(60, false)).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| drop(volume.begin(need(60, false)).unwrap()));
            thread::yield_now();
            drop(first);
            second.join().unwrap();
        });
    }
    assert!(volume.failure().is_none());
    volume.close().unwrap();
}

/// The write-back of pages is certain, whatever removals have used.
#[test]
fn pages_bring_what_their_write_back_changes() {
    let (device, volume) = open(FIXED + SUMS + 100 + 70);
    volume.changeable().unwrap();
    let credits = volume.credits();
    credits.reserve_pages(20, false).unwrap();
    assert!(matches!(credits.reserve_pages(4, false), Err(Fault::NoSpace)));
    // Write-back has used all that is kept but for what pages have brought.
    assert!(credits.bind_for(Purpose::WriteBack, 128));
    assert!(credits.bind_for(Purpose::WriteBack, 40));
    assert!(!credits.bind_for(Purpose::WriteBack, 1));
    assert!(matches!(volume.roomy(), Ok(())), "what was bound is not used");
    credits.unreserve_pages(20);
    volume.settle_credits();
    assert_eq!(device.left.load(Ordering::SeqCst), 170);
    volume.close().unwrap();
}
