//! Applying the hunks of a patch to a text.
//!
//! A hunk has to match line by line, as git-apply(1) has it: at the line that it names, or else at
//! the nearest one where it does. One that begins at the first line, or that has no line behind its
//! changes, matches at that end of the text only, and one without any context only where it says.

use super::patch::Hunk;
use crate::diff::text::lines;

/// Applies hunks in order. Returns the new text, or the number of a hunk that does not match.
pub(super) fn apply(text: &[u8], hunks: &[Hunk<'_>]) -> Result<Vec<u8>, usize> {
    let lines = lines(text);
    let (mut out, mut done) = (Vec::with_capacity(text.len()), 0);
    for (number, hunk) in hunks.iter().enumerate() {
        let old: Vec<&[u8]> = side(hunk, b'-').collect();
        let at = place(&lines, done, hunk, &old).ok_or(number)?;
        out.extend(lines[done..at].iter().copied().flatten());
        out.extend(side(hunk, b'+').flatten());
        done = at + old.len();
    }
    out.extend(lines[done..].iter().copied().flatten());
    Ok(out)
}

/// Returns the lines of a hunk on one side: the context, and those with a sign.
fn side<'h>(hunk: &'h Hunk<'_>, sign: u8) -> impl Iterator<Item = &'h [u8]> {
    hunk.lines.iter().filter(move |(it, _)| *it == b' ' || *it == sign).map(|(_, line)| *line)
}

/// Returns the line, from 0 on, at which a hunk matches, at or behind `done`.
fn place(lines: &[&[u8]], done: usize, hunk: &Hunk<'_>, old: &[&[u8]]) -> Option<usize> {
    let matches =
        |at: usize| at >= done && lines.get(at..at + old.len()).is_some_and(|lines| lines == old);
    // A range without lines is named by the line before it.
    let named = hunk.start.saturating_sub(usize::from(hunk.count > 0)).min(lines.len());
    let is_context = |(sign, _): &(u8, &[u8])| *sign == b' ';
    if !hunk.lines.iter().any(is_context) {
        return Some(named).filter(|at| matches(*at));
    }
    let is_first = hunk.start <= 1;
    let is_last = !hunk.lines.last().is_some_and(is_context);
    let end = lines.len().checked_sub(old.len())?;
    match (is_first, is_last) {
        (true, _) => return Some(0).filter(|at| matches(*at) && (!is_last || *at == end)),
        (_, true) => return Some(end).filter(|at| matches(*at)),
        _ => {}
    }
    let both = |step: usize| [named.checked_add(step), named.checked_sub(step)];
    let near = (0..=lines.len()).flat_map(both).flatten();
    near.filter(|at| *at <= end).find(|at| matches(*at))
}
