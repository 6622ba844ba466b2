use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn pages_of_a_range() {
    let all = |offset, length| pages(offset, length).collect::<Vec<_>>();
    assert_eq!(all(0, 0), []);
    assert_eq!(all(4096, 0), []);
    assert_eq!(all(0, 1), [(0, 0..1)]);
    assert_eq!(all(4095, 2), [(0, 4095..4096), (1, 0..1)]);
    assert_eq!(all(8192, 4096), [(2, 0..4096)]);
    assert_eq!(all(512, 8192), [(0, 512..4096), (1, 0..4096), (2, 0..512)]);
}

#[test]
fn the_largest_device_is_sparse() {
    let device = MemoryDevice::with_block_size(SIZE_MAX, 4096).unwrap();
    let last = SIZE_MAX - 4096;
    device.write_at(last, &[7; 4096]).unwrap();
    device.write_at(5 << 40, &[8; 4096]).unwrap();
    let mut buf = [1; 8192];
    device.read_at(last - 4096, &mut buf).unwrap();
    assert_eq!(buf[..4096], [0; 4096]);
    assert_eq!(buf[4096..], [7; 4096]);
    assert_eq!(device.bytes_used(), 8192);
    device.discard(5 << 40, 4096).unwrap();
    assert_eq!(device.bytes_used(), 4096);
    assert!(matches!(MemoryDevice::new(SIZE_MAX + 512), Err(Error::Unsupported { .. })));
    assert!(matches!(device.set_size(SIZE_MAX + 4096), Err(Error::Unsupported { .. })));
}

#[test]
fn a_discard_of_parts_of_blocks_leaves_them() {
    let device = MemoryDevice::new(MIB).unwrap();
    device.write_at(0, &[9; 8192]).unwrap();
    device.discard(1, 1022).unwrap();
    device.discard(1, 100).unwrap();
    device.discard(5000, 2000).unwrap();
    let mut buf = [0; 8192];
    device.read_at(0, &mut buf).unwrap();
    assert_eq!(buf[..512], [9; 512]);
    assert_eq!(buf[512..1023], [9; 511], "neither block was wholly in the range");
    assert_eq!(buf[4096..5120], [9; 1024]);
    assert_eq!(buf[5120..6656], [0; 1536]);
    assert_eq!(buf[6656..], [9; 1536]);
}

#[test]
fn a_device_grows_and_does_not_shrink() {
    let device = MemoryDevice::new(MIB + 100).unwrap();
    assert_eq!(device.size(), MIB);
    assert!(device.write_at(MIB, &[1; 512]).is_err());
    device.set_size(2 * MIB).unwrap();
    device.write_at(MIB, &[1; 512]).unwrap();
    assert!(matches!(device.set_size(MIB), Err(Error::Unsupported { .. })));
    assert!(matches!(device.set_size(3 * MIB + 1), Err(Error::Misaligned { .. })));
    assert_eq!(device.size(), 2 * MIB);
}
