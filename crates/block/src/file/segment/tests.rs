use vfscale_sync::page::Page;

use super::*;

const DIRECT: Alignment = Alignment { memory: 512, offset: 512 };

fn ranges<'a>(segments: impl Iterator<Item = Segment<'a>>) -> Vec<(u64, u64)> {
    segments.map(|segment| segment.rest_range()).collect()
}

#[test]
fn an_aligned_segment_is_not_copied() {
    let mut buf = AlignedBuf::zeroed(3 * COPY_BYTES_MAX);
    let length = buf.len() as u64;
    assert_eq!(ranges(write_segments(DIRECT, 512, &buf)), [(512, length)]);
    assert_eq!(ranges(read_segments(DIRECT, 512, &mut buf)), [(512, length)]);
    assert_eq!(ranges(read_segments(Alignment::NONE, 5, &mut buf[3..])), [(5, length - 3)]);
    assert_eq!(ranges(read_segments(DIRECT, 512, &mut buf[..0])), []);
    assert_eq!(ranges(write_segments(DIRECT, 512, &[])), []);
}

#[test]
fn copies_are_whole_units_of_bounded_size() {
    let mut buf = AlignedBuf::zeroed(2 * COPY_BYTES_MAX + 1000);
    let most = COPY_BYTES_MAX as u64;
    let read = ranges(read_segments(DIRECT, 1000, &mut buf));
    let rest = (1000 + buf.len() as u64).next_multiple_of(512) - 2 * most - 512;
    assert_eq!(read, [(512, most), (512 + most, most), (512 + 2 * most, rest)]);
    let write = &buf[1..=2 * COPY_BYTES_MAX];
    assert_eq!(ranges(write_segments(DIRECT, 512, write)), [(512, most), (512 + most, most)]);
    for (_, rest) in
        write_segments(DIRECT, 0, write).map(|mut segment| (0, segment.rest().1.address()))
    {
        assert!(rest.is_multiple_of(512));
    }
}

impl Transfer<'_> {
    fn address(&self) -> usize {
        match self {
            Transfer::Read(bytes) => bytes.as_ptr().addr(),
            Transfer::Write(bytes) => bytes.as_ptr().addr(),
            Transfer::ReadPages(rest) | Transfer::WritePages(rest) => rest[0].iov_base.addr(),
        }
    }
}

#[test]
fn a_copy_gives_the_bytes_that_were_asked_for() {
    let mut buf = [0; 1000];
    let mut segments: Vec<_> = read_segments(DIRECT, 700, &mut buf).collect();
    let (offset, Transfer::Read(memory)) = segments[0].rest() else { panic!("a read") };
    assert_eq!((offset, memory.len()), (512, 1536));
    for (i, byte) in (512..).zip(memory.iter_mut()) {
        *byte = (i % 251) as u8;
    }
    assert_eq!(segments[0].advance(1000), Ok(false));
    assert_eq!(segments[0].rest_range(), (1024, 1024), "from the start of the unit");
    assert_eq!(segments[0].advance(1024), Ok(true));
    drop(segments);
    assert!(buf.iter().zip(700..).all(|(byte, i)| *byte == (i % 251) as u8));
}

#[test]
fn a_transfer_that_gets_no_further_fails() {
    let buf = AlignedBuf::zeroed(2048);
    let mut segments = write_segments(DIRECT, 0, &buf);
    let mut segment = segments.next().unwrap();
    assert_eq!(segment.advance(512), Ok(false));
    assert_eq!(segment.advance(0), Err(OsError::IO));
    assert_eq!(segment.advance(511), Err(OsError::IO));
    assert_eq!(segment.rest_range(), (512, 1536));
    assert_eq!(segment.advance(1536), Ok(true));
}

#[test]
fn alignments_that_no_copy_has_are_refused() {
    assert_eq!(Alignment::direct(4, 512), Some(Alignment { memory: 4, offset: 512 }));
    assert_eq!(Alignment::direct(0, 4096), Some(Alignment { memory: 1, offset: 4096 }));
    for (memory, offset) in [(8192, 512), (512, 8192), (3, 512), (512, 0), (512, 520)] {
        assert_eq!(Alignment::direct(memory, offset), None);
    }
}

/// Returns address and length of each listed part of memory.
fn named(rest: &Transfer<'_>) -> Vec<(usize, usize)> {
    let (Transfer::ReadPages(rest) | Transfer::WritePages(rest)) = rest else { panic!("pages") };
    rest.iter().map(|part| (part.iov_base.addr(), part.iov_len)).collect()
}

#[test]
fn pages_are_named_where_they_are() {
    let mut pages = Page::many_unfilled(600);
    pages[..300].reverse();
    let place = |page: &PageBox| page.as_ptr().addr();
    let mut segments = page_segments(DIRECT, 8192, &pages, false);
    let mut first = segments.next().unwrap();
    assert_eq!((first.operation(), first.rest_range()), (Operation::Write, (8192, 1 << 20)));
    let total = |named: &[(usize, usize)]| named.iter().map(|(_, len)| len).sum::<usize>();
    let whole = named(&first.rest().1);
    assert_eq!((whole[0].0, total(&whole)), (place(&pages[0]), 1 << 20));
    // Each run is listed once, and each page is in one.
    for page in &pages[..256] {
        let at = place(page);
        assert_eq!(
            whole.iter().filter(|(begin, len)| (*begin..begin + len).contains(&at)).count(),
            1
        );
    }
    // A part of it, which ends within a unit: it continues from the unit's start.
    assert_eq!(first.advance(3 * PAGE_SIZE + 1000), Ok(false));
    assert_eq!(first.rest_range().0, 8192 + 3 * 4096 + 512);
    let rest = named(&first.rest().1);
    assert_eq!(rest[0].0, place(&pages[3]) + 512);
    assert_eq!(total(&rest), (1 << 20) - 3 * PAGE_SIZE - 512);
    assert_eq!(first.advance((1 << 20) - 3 * PAGE_SIZE - 512), Ok(true));
    let last = segments.nth(1).unwrap();
    assert_eq!(last.rest_range(), (8192 + (2 << 20), 88 * 4096));
    assert!(segments.next().is_none());
    assert_eq!(page_segments(DIRECT, 0, &pages, true).next().unwrap().operation(), Operation::Read);
}
