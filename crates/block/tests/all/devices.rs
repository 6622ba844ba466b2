//! All devices compared with a model of bytes, and with many threads.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use vfscale_block::{AlignedBuf, CowDevice, Device, Error, FileDevice, FileOptions, MemoryDevice};
use vfscale_testkit::{FaultyDevice, RecordingDevice};

use vfscale_sync::page::{PAGE_SIZE, Page, read_pages};

const SIZE: u64 = 192 << 10;

/// Returns all devices, empty, with their names.
fn devices(folder: &Path) -> Vec<(&'static str, Arc<dyn Device>)> {
    let memory = |block_size| MemoryDevice::with_block_size(SIZE, block_size).unwrap();
    let file = |name: &str, options: FileOptions| -> Arc<dyn Device> {
        Arc::new(options.create(folder.join(name), SIZE).unwrap())
    };
    let options = FileOptions::new;
    let shared = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let in_memory = FileDevice::create(shared.path().join("image"), SIZE).unwrap();
    let devices: Vec<(&'static str, Arc<dyn Device>)> = vec![
        ("memory in 512", Arc::new(memory(512))),
        ("memory in 4096", Arc::new(memory(4096))),
        ("boxed memory", Arc::new(Box::new(memory(512)))),
        ("copy", Arc::new(CowDevice::new(Arc::new(memory(512))))),
        ("recording", Arc::new(RecordingDevice::new(memory(4096)))),
        ("without faults", Arc::new(FaultyDevice::new(memory(512)))),
        ("file", file("1", options())),
        ("file without rings", file("2", options().io_uring(false))),
        ("buffered file", file("3", options().direct(false))),
        ("buffered file without rings", file("4", options().direct(false).io_uring(false))),
        ("file on tmpfs", Arc::new(in_memory)),
    ];
    #[cfg(feature = "rbd")]
    let devices = devices.into_iter().chain(crate::rbd::device(SIZE)).collect();
    devices
}

#[derive(Clone, Debug)]
enum Call {
    Read(u64, usize),
    ReadMany(Vec<(u64, usize)>),
    Write(u64, usize),
    /// In blocks of 4096.
    WriteMany(Vec<(u64, usize)>),
    /// The first block, and the number of pages.
    ReadPages(u64, usize),
    WritePages(u64, usize),
    Discard(u64, u64),
    Flush,
    Grow(u64),
}

fn call() -> impl Strategy<Value = Call> {
    // Some of the ranges are outside of the device.
    let (offset, length) = (0..SIZE + 8192, 0..20_000_usize);
    let unit = prop_oneof![4 => Just(4096_u64), 2 => Just(512), 1 => Just(1)];
    let blocks = prop::collection::vec((0..SIZE / 4096 + 1, 0..4_usize), 0..90);
    let ranges = prop::collection::vec((0..SIZE, 0..9000_usize), 0..80);
    prop_oneof![
        3 => (offset.clone(), length.clone()).prop_map(|(at, len)| Call::Read(at, len)),
        1 => ranges.prop_map(Call::ReadMany),
        4 => (offset.clone(), length.clone(), unit).prop_map(|(at, len, unit)| {
            Call::Write(at / unit * unit, len / unit as usize * unit as usize)
        }),
        2 => blocks.prop_map(Call::WriteMany),
        2 => (0..SIZE / 4096, 0..20_usize).prop_map(|(at, count)| Call::WritePages(at, count)),
        2 => (0..SIZE / 4096, 0..20_usize).prop_map(|(at, count)| Call::ReadPages(at, count)),
        1 => (offset, length).prop_map(|(at, len)| Call::Discard(at, len as u64)),
        1 => Just(Call::Flush),
        1 => (0..12_u64).prop_map(|blocks| Call::Grow(SIZE + blocks * 2048)),
    ]
}

/// The expected contents of a device; an undefined byte is `None`.
struct Model<'d> {
    device: &'d dyn Device,
    bytes: Vec<Option<u8>>,
    /// Number of writes, which makes each write different.
    writes: u8,
}

impl Model<'_> {
    fn fits(&self, offset: u64, length: usize) -> bool {
        offset + length as u64 <= self.bytes.len() as u64
    }

    fn is_aligned(&self, offset: u64, length: usize) -> bool {
        (offset | length as u64).is_multiple_of(u64::from(self.device.block_size()))
    }

    fn matches(&self, offset: u64, found: &[u8]) -> bool {
        let expected = &self.bytes[offset as usize..][..found.len()];
        expected.iter().zip(found).all(|(expected, found)| expected.is_none_or(|b| b == *found))
    }

    fn read(&self, offset: u64, length: usize, skew: usize) {
        let mut memory = AlignedBuf::zeroed(length + skew);
        let buf = &mut memory[skew..];
        match self.device.read_at(offset, buf) {
            Ok(()) => {
                assert!(self.fits(offset, length));
                assert!(self.matches(offset, buf), "read of {length} at {offset}");
            }
            Err(Error::OutOfRange { .. }) => assert!(!self.fits(offset, length)),
            Err(error) => panic!("{error}"),
        }
    }

    fn read_many(&self, ranges: &[(u64, usize)], skew: usize) {
        let mut memory: Vec<_> =
            ranges.iter().map(|(_, length)| AlignedBuf::zeroed(length + skew)).collect();
        let bufs = memory.iter_mut().zip(ranges);
        let mut reads: Vec<_> = bufs.map(|(buf, (at, _))| (*at, &mut buf[skew..])).collect();
        let fits = ranges.iter().all(|(at, length)| self.fits(*at, *length));
        match self.device.read_many(&mut reads) {
            Ok(()) => {
                assert!(fits);
                assert!(reads.iter().all(|(offset, buf)| self.matches(*offset, buf)));
            }
            Err(Error::OutOfRange { .. }) => assert!(!fits),
            Err(error) => panic!("{error}"),
        }
    }

    fn bytes_to_write(&mut self, length: usize, skew: usize) -> AlignedBuf {
        self.writes = self.writes.wrapping_add(1);
        let mut memory = AlignedBuf::zeroed(length + skew);
        for (byte, i) in memory[skew..].iter_mut().zip(0_usize..) {
            *byte = self.writes ^ (i / 7) as u8;
        }
        memory
    }

    fn note(&mut self, offset: u64, bytes: &[u8]) {
        let cells = &mut self.bytes[offset as usize..][..bytes.len()];
        cells.iter_mut().zip(bytes).for_each(|(cell, byte)| *cell = Some(*byte));
    }

    fn write(&mut self, offset: u64, length: usize, skew: usize) {
        let memory = self.bytes_to_write(length, skew);
        match self.device.write_at(offset, &memory[skew..]) {
            Ok(()) => {
                assert!(self.fits(offset, length) && self.is_aligned(offset, length));
                self.note(offset, &memory[skew..]);
            }
            Err(Error::OutOfRange { .. }) => assert!(!self.fits(offset, length)),
            Err(Error::Misaligned { .. }) => assert!(!self.is_aligned(offset, length)),
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes a batch. Ranges of a batch do not overlap, so overlapping ones are left out.
    fn write_many(&mut self, blocks: &[(u64, usize)], skew: usize) {
        let mut ranges: Vec<(u64, usize)> = Vec::new();
        for (block, length) in blocks {
            let (start, end) = (block * 4096, block * 4096 + *length as u64 * 4096);
            let meets = |(at, len): &(u64, usize)| start < at + *len as u64 && *at < end;
            if self.fits(start, length * 4096) && !ranges.iter().any(meets) {
                ranges.push((start, length * 4096));
            }
        }
        let memory: Vec<_> =
            ranges.iter().map(|(_, length)| self.bytes_to_write(*length, skew)).collect();
        let writes = ranges.iter().zip(&memory).map(|((at, _), memory)| (*at, &memory[skew..]));
        let writes: Vec<_> = writes.collect();
        self.device.write_many(&writes).unwrap();
        writes.iter().for_each(|(offset, bytes)| self.note(*offset, bytes));
    }

    fn read_pages(&self, offset: u64, count: usize) {
        let mut pages = Page::many_unfilled(count);
        // Runs of one page.
        pages.reverse();
        match self.device.read_pages(offset, &pages) {
            Ok(()) => {
                let mut found = vec![0; count * PAGE_SIZE];
                read_pages(pages.iter().map(|page| &**page), 0, &mut found);
                assert!(self.fits(offset, found.len()));
                assert!(self.matches(offset, &found), "{count} pages at {offset}");
            }
            Err(Error::OutOfRange { .. }) => assert!(!self.fits(offset, count * PAGE_SIZE)),
            Err(error) => panic!("{error}"),
        }
    }

    fn write_pages(&mut self, offset: u64, count: usize) {
        let memory = self.bytes_to_write(count * PAGE_SIZE, 0);
        let pages = Page::many_with(count, 0, &memory);
        match self.device.write_pages(offset, &pages) {
            Ok(()) => {
                assert!(self.fits(offset, memory.len()));
                self.note(offset, &memory);
            }
            // Either nothing or a beginning is written; these tests do not depend on it.
            Err(Error::OutOfRange { .. }) => assert!(!self.fits(offset, memory.len())),
            Err(error) => panic!("{error}"),
        }
    }

    fn discard(&mut self, offset: u64, length: u64) {
        match self.device.discard(offset, length) {
            Ok(()) => {
                let unit = u64::from(self.device.block_size());
                let end = (offset + length) / unit * unit;
                for at in offset.next_multiple_of(unit)..end {
                    self.bytes[at as usize] = None;
                }
            }
            Err(Error::OutOfRange { .. }) => assert!(!self.fits(offset, length as usize)),
            Err(error) => panic!("{error}"),
        }
    }

    fn grow(&mut self, size: u64) {
        let before = self.device.size();
        match self.device.set_size(size) {
            Ok(()) => self.bytes.resize(size as usize, Some(0)),
            Err(Error::Misaligned { .. }) => assert!(!self.is_aligned(size, 0)),
            Err(Error::Unsupported { .. }) => assert!(size < before),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(self.device.size(), self.bytes.len() as u64);
    }

    fn call(&mut self, call: &Call, skew: usize) {
        match call {
            Call::Read(offset, length) => self.read(*offset, *length, skew),
            Call::ReadMany(ranges) => self.read_many(ranges, skew),
            Call::Write(offset, length) => self.write(*offset, *length, skew),
            Call::WriteMany(blocks) => self.write_many(blocks, skew),
            Call::ReadPages(block, count) => self.read_pages(block * 4096, *count),
            Call::WritePages(block, count) => self.write_pages(block * 4096, *count),
            Call::Discard(offset, length) => self.discard(*offset, *length),
            Call::Flush => self.device.flush().unwrap(),
            Call::Grow(size) => self.grow(*size),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_device_holds_what_was_written(
        calls in prop::collection::vec((call(), prop_oneof![Just(0_usize), 1..9_usize]), 1..30),
    ) {
        let folder = tempfile::tempdir().unwrap();
        for (name, device) in devices(folder.path()) {
            let bytes = vec![Some(0); SIZE as usize];
            let mut model = Model { device: &device, bytes, writes: 0 };
            // Shown only if a later check fails.
            println!("{name}");
            for (call, skew) in &calls {
                model.call(call, *skew);
            }
            model.read(0, model.bytes.len(), 0);
        }
    }
}

#[test]
fn threads_with_ranges_of_their_own_do_not_meet() {
    const THREADS: u64 = 4;
    let folder = tempfile::tempdir().unwrap();
    for (name, device) in devices(folder.path()) {
        let unit = u64::from(device.block_size());
        let blocks = SIZE / unit / THREADS;
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let device = &device;
                // Interleaved blocks: the neighbours belong to other threads.
                let place = move |i: u64| (i * THREADS + thread) * unit;
                scope.spawn(move || {
                    for round in 0..6_u64 {
                        let bytes = |i| (thread + THREADS * (round + i)) as u8;
                        let written: Vec<_> =
                            (0..blocks).map(|i| vec![bytes(i); unit as usize]).collect();
                        let batch: Vec<_> = written
                            .iter()
                            .zip(0..)
                            .map(|(bytes, i)| (place(i), bytes.as_slice()))
                            .collect();
                        if round % 2 == 0 {
                            device.write_many(&batch).unwrap();
                        } else {
                            batch.iter().for_each(|(at, b)| device.write_at(*at, b).unwrap());
                        }
                        let mut read: Vec<_> =
                            (0..blocks).map(|_| vec![0; unit as usize]).collect();
                        let mut batch: Vec<_> = read
                            .iter_mut()
                            .zip(0..)
                            .map(|(buf, i)| (place(i), buf.as_mut_slice()))
                            .collect();
                        device.read_many(&mut batch).unwrap();
                        assert!(read == written, "{name}, thread {thread}");
                        device.flush().unwrap();
                    }
                });
            }
        });
    }
}

#[test]
fn devices_and_errors_can_be_shared() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Arc<dyn Device>>();
    shared::<FileDevice>();
    shared::<RecordingDevice<FaultyDevice<Arc<dyn Device>>>>();
    shared::<Error>();
    shared::<AlignedBuf>();
}
