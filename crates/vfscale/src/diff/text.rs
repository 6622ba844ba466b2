//! Texts by lines.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput, sources::byte_lines};

/// The largest text that is compared by lines, in bytes.
pub(crate) const TEXT_MAX: u64 = 4 << 20;
/// Lines before and behind a change in a patch.
const CONTEXT: usize = 3;

/// A change: lines of the first text, and the lines of the second one in their place.
pub(crate) type Hunk = (Range<usize>, Range<usize>);

/// Returns whether contents are text that is compared by lines: such without a zero byte.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0)
}

/// Returns the lines of a text, each with its end.
pub(crate) fn lines(text: &[u8]) -> Vec<&[u8]> {
    byte_lines(text).collect()
}

/// Returns the changes that lead from one text to another, in order.
pub(crate) fn hunks(before: &[u8], after: &[u8]) -> Vec<Hunk> {
    let input = InternedInput::new(byte_lines(before), byte_lines(after));
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    // Of changes that could lie at several places: always at the last one.
    diff.postprocess_no_heuristic(&input);
    let range = |range: Range<u32>| range.start as usize..range.end as usize;
    diff.hunks().map(|hunk| (range(hunk.before), range(hunk.after))).collect()
}

/// Appends the changes in the unified format.
pub(super) fn unified(before: &[u8], after: &[u8], out: &mut Vec<u8>) {
    let (hunks, old, new) = (hunks(before, after), lines(before), lines(after));
    for group in hunks.chunk_by(|one, next| next.0.start - one.0.end <= 2 * CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let start = first.0.start.saturating_sub(CONTEXT);
        let end = (last.0.end + CONTEXT).min(old.len());
        let new_start = first.1.start - (first.0.start - start);
        let new_end = last.1.end + (end - last.0.end);
        let (was, is) = (place(start..end), place(new_start..new_end));
        out.extend_from_slice(format!("@@ -{was} +{is} @@\n").as_bytes());
        let mut at = start;
        for (old_lines, new_lines) in group {
            old[at..old_lines.start].iter().for_each(|it| line(b' ', it, out));
            old[old_lines.clone()].iter().for_each(|it| line(b'-', it, out));
            new[new_lines.clone()].iter().for_each(|it| line(b'+', it, out));
            at = old_lines.end;
        }
        old[at..end].iter().for_each(|it| line(b' ', it, out));
    }
}

/// Returns the first line of a range, counted from 1, and how many there are; of an empty range,
/// the line before it.
fn place(range: Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        len => format!("{},{len}", range.start + 1),
    }
}

fn line(sign: u8, line: &[u8], out: &mut Vec<u8>) {
    out.push(sign);
    out.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        out.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}
