use std::time::Instant;

use super::*;
use vfscale_block::MemoryDevice;

fn device(block_size: u32) -> FaultyDevice<MemoryDevice> {
    let inner = MemoryDevice::with_block_size(1 << 20, block_size).unwrap();
    inner.write_at(0, &[1; 16384]).unwrap();
    FaultyDevice::new(inner)
}

fn bytes(device: &impl Device, from: u64, count: usize) -> Vec<u8> {
    let mut buf = vec![0xEE; count];
    device.read_at(from, &mut buf).unwrap();
    buf
}

#[test]
fn the_nth_call_of_its_kind_fails() {
    let device = device(512);
    device.arm(Fault::on(Operation::Write).nth(2).fail(OsError::NO_SPACE));
    device.write_at(0, &[2; 512]).unwrap();
    device.flush().unwrap();
    bytes(&device, 0, 10);
    let error = device.write_at(512, &[2; 512]).unwrap_err();
    assert_eq!(error.os(), Some(OsError::NO_SPACE));
    assert_eq!(
        error.to_string(),
        "memory: write of 512 bytes at 512: No space left on device (os error 28)"
    );
    device.write_at(1024, &[2; 512]).unwrap();
    assert_eq!(bytes(&device, 0, 1536), [[2; 512], [1; 512], [2; 512]].concat());
    assert_eq!((device.calls(Operation::Write), device.fired()), (3, 1));
    assert_eq!((device.calls(Operation::Read), device.calls(Operation::Flush)), (2, 1));
}

#[test]
fn every_call_from_the_nth_on_fails_until_disarmed() {
    let device = device(512);
    device.arm(Fault::on_any().from(3));
    device.flush().unwrap();
    device.discard(0, 512).unwrap();
    assert!(device.read_at(0, &mut [0; 5]).is_err());
    assert!(device.flush().is_err());
    assert!(device.set_size(2 << 20).is_err());
    assert_eq!((device.fired(), device.size()), (3, 1 << 20));
    device.disarm();
    device.set_size(2 << 20).unwrap();
    assert_eq!(device.size(), 2 << 20);
}

#[test]
fn a_range_fails_and_the_rest_does_not() {
    let device = device(512);
    device.arm(Fault::on(Operation::Read).within(1000..1001));
    bytes(&device, 0, 1000);
    bytes(&device, 1001, 1000);
    assert!(device.read_at(0, &mut [0; 1001]).is_err());
    assert!(device.read_at(1000, &mut [0; 1]).is_err());
    bytes(&device, 1000, 0);
    device.flush().unwrap();
    device.arm(Fault::on(Operation::Discard).within(0..512));
    assert!(device.discard(0, 1024).is_err());
    device.discard(512, 512).unwrap();
}

#[test]
fn calls_that_were_never_valid_do_not_count() {
    let device = device(512);
    device.arm(Fault::on_any().nth(1));
    assert!(matches!(device.write_at(1, &[2; 512]), Err(Error::Misaligned { .. })));
    assert!(matches!(device.read_at(1 << 20, &mut [0]), Err(Error::OutOfRange { .. })));
    assert_eq!(device.fired(), 0);
}

#[test]
fn a_torn_write_leaves_its_first_sectors() {
    for block_size in [512, 4096] {
        let device = device(block_size);
        device.arm(Fault::on(Operation::Write).nth(1).tear(4096 + 1023));
        device.arm(Fault::on(Operation::Write).nth(2).tear_silently(512));
        device.arm(Fault::on(Operation::Write).nth(3).tear(0));
        assert!(device.write_at(0, &[2; 8192]).is_err());
        assert_eq!(bytes(&device, 0, 8192), [[2; 4608].as_slice(), &[1; 3584]].concat());
        device.write_at(8192, &[2; 4096]).unwrap();
        assert_eq!(bytes(&device, 8192, 4096), [[2; 512].as_slice(), &[1; 3584]].concat());
        assert!(device.write_at(12288, &[2; 4096]).is_err());
        assert_eq!(bytes(&device, 12288, 4096), [1; 4096]);
    }
}

#[test]
fn lies_are_not_noticed_at_once() {
    let inner = FaultyDevice::new(MemoryDevice::new(1 << 20).unwrap());
    let device = FaultyDevice::new(&inner);
    device.arm(Fault::on(Operation::Write).nth(1).lie());
    device.arm(Fault::on(Operation::Flush).nth(1).lie());
    device.arm(Fault::on(Operation::Read).nth(1).lie());
    device.write_at(0, &[2; 512]).unwrap();
    device.write_at(512, &[3; 512]).unwrap();
    device.flush().unwrap();
    assert_eq!(inner.calls(Operation::Flush), 0);
    assert_eq!(bytes(&device, 512, 512), [0; 512]);
    assert_eq!(bytes(&device, 0, 1024), [[0; 512], [3; 512]].concat());
    device.flush().unwrap();
    assert_eq!(inner.calls(Operation::Flush), 1);
}

#[test]
fn bits_flip_in_reads_of_their_byte() {
    let device = device(512);
    device.arm(Fault::on(Operation::Read).flip(700, 0x81));
    assert_eq!(bytes(&device, 0, 700), [1; 700]);
    assert_eq!(bytes(&device, 701, 700), [1; 700]);
    assert_eq!(bytes(&device, 699, 3), [1, 0x80, 1]);
    assert_eq!(bytes(device.inner(), 699, 3), [1, 1, 1]);
}

#[test]
fn a_delay_delays_and_does_no_harm() {
    let device = device(512);
    device.arm(Fault::on(Operation::Write).nth(1).delay(Duration::from_millis(20)));
    let start = Instant::now();
    device.write_at(0, &[2; 512]).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(bytes(&device, 0, 512), [2; 512]);
}

#[test]
fn a_batch_counts_as_its_elements() {
    let device = device(512);
    device.arm(Fault::on(Operation::Write).nth(3));
    let part = [2; 512];
    let batch = [0, 512, 1024, 1536].map(|offset| (offset, part.as_slice()));
    assert!(device.write_many(&batch).is_err());
    assert_eq!(bytes(&device, 0, 1536), [[2; 512], [2; 512], [1; 512]].concat());
}

#[test]
fn a_garbled_write_leaves_what_nobody_wrote() {
    let device = device(512);
    device.arm(Fault::on(Operation::Write).garble());
    device.arm(Fault::on(Operation::Flush).garble());
    assert!(device.write_at(512, &[2; 1024]).is_err());
    assert!(device.flush().is_err());
    assert_eq!(
        bytes(&device, 0, 2048),
        [[1; 512], [GARBAGE; 512], [GARBAGE; 512], [1; 512]].concat()
    );
}

#[test]
fn a_hook_runs_when_a_fault_is_met() {
    let (device, met) = (device(512), Arc::new(AtomicU64::new(0)));
    let count = met.clone();
    let hook = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    device.arm(Fault::on(Operation::Flush).from(2).run(hook));
    device.arm(Fault::on(Operation::Flush).nth(3));
    let flushed: Vec<bool> = (0..4).map(|_| device.flush().is_ok()).collect();
    assert_eq!(flushed, [true, true, false, true]);
    assert_eq!(met.load(Ordering::Relaxed), 3);
}
