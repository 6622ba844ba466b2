use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::file::segment::{Alignment, read_segments};

const BYTES: usize = 512;
const ALL: usize = DEPTH as usize;

fn ring() -> Option<Ring> {
    match Ring::new() {
        Ok(ring) => Some(ring),
        Err(error) => {
            println!("######## SKIPPED: io_uring: {error}");
            None
        }
    }
}

/// Returns a segment for each of the buffers, which reads into it.
fn segments(bufs: &mut [[u8; BYTES]]) -> impl Iterator<Item = Segment<'_>> {
    bufs.iter_mut().flat_map(|buf| read_segments(Alignment::NONE, 0, buf))
}

/// A pipe is like a slow disk: a read of it is pending until the test writes.
///
/// Race: The kernel against the end of a batch.
///
/// Requests of an io_uring use their memory until they are complete, even if the thread that made
/// them has ended. Their owner does not end before that, even by a panic or a failure of the ring.
#[test]
fn a_batch_that_panics_waits_for_what_is_under_way() {
    let Some(mut ring) = ring() else { return };
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[1; REFILL * BYTES]).unwrap();
    let mut bufs = [[0; BYTES]; ALL + 1];
    let is_written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            vfscale_harness::pause(Duration::from_millis(100));
            is_written.store(true, Ordering::SeqCst);
            (REFILL..ALL).for_each(|_| writer.write_all(&[1; BYTES]).unwrap());
        });
        let caught = catch_unwind(AssertUnwindSafe(|| {
            // Completed requests make room for the segment that panics.
            let segments = segments(&mut bufs).zip(0..).map(|(segment, number)| {
                assert!(number < ALL, "no more segments");
                segment
            });
            ring.run(reader.as_fd(), segments)
        }));
        assert!(caught.is_err());
        assert!(is_written.load(Ordering::SeqCst), "it did not wait");
    });
    let filled = bufs.iter().filter(|buf| **buf == [1; BYTES]).count();
    assert_eq!(filled, ALL, "late data was written into memory that was returned");
}

#[test]
fn a_batch_that_fails_waits_for_what_is_under_way() {
    let Some(mut ring) = ring() else { return };
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut bufs = [[0; BYTES]; 5];
    // The end for writing can't be read.
    let failure = ring.run(writer.as_fd(), segments(&mut bufs)).unwrap_err();
    let BatchFailure::Request { operation, error, .. } = failure else { panic!("{failure:?}") };
    assert_eq!((operation, error), (Operation::Read, OsError::new(libc::EBADF)));
    // The ring still works, and an empty batch need not be waited for.
    ring.run(writer.as_fd(), segments(&mut [])).unwrap();
    drop(writer);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    let failure = ring.run(reader.as_fd(), segments(&mut bufs)).unwrap_err();
    assert!(matches!(failure, BatchFailure::Request { error: OsError::IO, .. }), "{failure:?}");
}

#[test]
fn a_ring_joins_parts_of_a_read() {
    let Some(mut ring) = ring() else { return };
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut bufs = [[0; BYTES]];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for part in [[1; BYTES / 4], [2; BYTES / 4], [3; BYTES / 4], [4; BYTES / 4]] {
                writer.write_all(&part).unwrap();
                vfscale_harness::pause(Duration::from_millis(10));
            }
        });
        ring.run(reader.as_fd(), segments(&mut bufs)).unwrap();
    });
    let expected: Vec<u8> = (1..=4).flat_map(|part| [part; BYTES / 4]).collect();
    assert_eq!(bufs[0], *expected);
}

#[test]
fn a_batch_of_any_length_is_done_once() {
    let Some(mut ring) = ring() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let bytes: Vec<u8> = (0..1000).flat_map(|i: u32| [i as u8; BYTES]).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = File::open(&path).unwrap();
    for count in [1, ALL - 1, ALL, ALL + 1, 1000] {
        let mut bufs = vec![[0; BYTES]; count];
        let offsets = (0..).step_by(BYTES);
        let segments = bufs.iter_mut().zip(offsets);
        let segments = segments.flat_map(|(buf, at)| read_segments(Alignment::NONE, at, buf));
        ring.run(file.as_fd(), segments).unwrap();
        assert!(bufs.as_flattened() == &bytes[..count * BYTES]);
    }
}

#[test]
fn rings_are_used_again() {
    let Ok(rings) = Rings::new() else { return drop(ring()) };
    let count = || rings.idle.iter().map(|idle| idle.lock().len()).sum::<usize>();
    let taken: Vec<_> = (0..3 * IDLE_MAX).map(|_| rings.take().unwrap()).collect();
    taken.into_iter().for_each(|ring| rings.put(ring));
    let idle = count();
    assert!(idle >= IDLE_MAX && idle <= IDLE_MAX * rings.idle.len() + 1, "{idle}");
}
