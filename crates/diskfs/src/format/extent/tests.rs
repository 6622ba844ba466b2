use super::*;

const INO: u64 = 77;

/// Decodes the list of extents in `bytes`, for file `ino`. Each extent is valid by itself and
/// starts at or after the end of the one before.
///
/// # Errors
/// Returns [`ExtentDamage`] if the bytes are no list, or for the first invalid extent.
fn decode_list(
    ino: u64,
    bytes: &[u8],
    is_possible: impl Fn(u64, u64) -> bool,
) -> Result<Vec<Extent>, ExtentDamage> {
    let (list, wrong) = decode_possible(ino, bytes, is_possible)?;
    wrong.map_or(Ok(list), Err)
}

fn extent(file_block: u64, start: u64, blocks: u32) -> Extent {
    Extent { file_block, start, blocks, is_unwritten: false }
}

fn fault_of(list: &[Extent]) -> u32 {
    let error =
        decode_list(INO, &encode_list(list), |start, blocks| start.saturating_add(blocks) <= 1000)
            .unwrap_err();
    assert_eq!(error.ino, INO);
    error.fault.number()
}

#[test]
fn format_md_has_every_field() {
    assert_eq!(crate::format::documented("### Extents"), FIELDS);
}

#[test]
fn format_md_has_every_number() {
    let faults = [
        ExtentFault::Order { before: 0 },
        ExtentFault::Overlap { end: 0 },
        ExtentFault::Outside { start: 0, blocks: 0 },
        ExtentFault::Empty,
        ExtentFault::TooFar { blocks: 0 },
        ExtentFault::List { bytes: 0 },
    ];
    crate::format::check_numbers(
        700,
        "inode 7: extent of block 3",
        faults.map(|fault| ExtentDamage { ino: 7, file_block: 3, fault }.into()),
    );
}

#[test]
fn a_list_comes_back_as_it_was() {
    let unwritten = Extent { is_unwritten: true, ..extent(9, 300, 4) };
    let list = [extent(0, 100, 3), extent(3, 200, 6), unwritten, extent(1 << 40, 999, 1)];
    let bytes = encode_list(&list);
    assert_eq!(bytes.len(), 4 * EXTENT_BYTES);
    assert_eq!(bytes[40..60], [9, 0, 0, 0, 0, 0, 0, 0, 44, 1, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x80]);
    assert_eq!(
        decode_list(INO, &bytes, |start, blocks| start.saturating_add(blocks) <= 1000).unwrap(),
        list
    );
    assert_eq!(decode_list(INO, &[], |_, _| false).unwrap(), []);
}

#[test]
fn extents_that_no_file_can_have_are_refused() {
    assert_eq!(fault_of(&[extent(5, 100, 1), extent(5, 200, 1)]), 700);
    assert_eq!(fault_of(&[extent(5, 100, 3), extent(7, 200, 1)]), 701);
    assert_eq!(fault_of(&[extent(5, 998, 3)]), 702);
    assert_eq!(fault_of(&[extent(5, 1000, 1)]), 702);
    assert_eq!(fault_of(&[extent(5, 0, 1)]), 702);
    assert_eq!(fault_of(&[extent(5, u64::MAX, 2)]), 702);
    assert_eq!(fault_of(&[extent(5, 100, 0)]), 703);
    assert_eq!(fault_of(&[extent(FILE_BLOCKS_MAX - 1, 100, 2)]), 704);
    assert_eq!(fault_of(&[extent(u64::MAX, 100, 1)]), 704);
    let many: Vec<_> = (0..21).map(|at| extent(at * 2, 100 + at * 2, 1)).collect();
    assert_eq!(fault_of(&many), 705);
    assert_eq!(decode_list(INO, &[0; 19], |_, _| true).unwrap_err().fault.number(), 705);
}

#[test]
fn neighbours_join_if_they_are_of_a_kind() {
    let first = extent(10, 100, 5);
    assert_eq!(first.joined(&extent(15, 105, 2)), Some(extent(10, 100, 7)));
    assert_eq!(first.joined(&extent(16, 105, 2)), None);
    assert_eq!(first.joined(&extent(15, 106, 2)), None);
    assert_eq!(first.joined(&Extent { is_unwritten: true, ..extent(15, 105, 2) }), None);
    assert_eq!(
        first.joined(&extent(15, 105, EXTENT_BLOCKS_MAX - 5)).unwrap().end(),
        10 + u64::from(EXTENT_BLOCKS_MAX)
    );
    assert_eq!(first.joined(&extent(15, 105, EXTENT_BLOCKS_MAX - 4)), None);
    assert_eq!(first.part(12, 14), Some(extent(12, 102, 2)));
    assert_eq!(first.part(0, 11), Some(extent(10, 100, 1)));
    assert_eq!(first.part(15, 20), None);
    assert_eq!(first.part(0, 10), None);
}
