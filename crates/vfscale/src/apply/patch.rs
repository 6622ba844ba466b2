//! Reading a patch: the unified format of diff(1), and what git-diff(1) adds to it.

use std::path::PathBuf;

use super::stop::Stop;
use super::tree::clean;
use crate::diff::text::lines;

/// The change of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change<'p> {
    /// The line of the patch at which it begins, from 1 on.
    pub(super) line: usize,
    /// The path before and after; `None` if there is no such file.
    pub(super) old: Option<PathBuf>,
    pub(super) new: Option<PathBuf>,
    /// Type and permissions afterwards, if the patch tells them.
    pub(super) mode: Option<u32>,
    pub(super) is_copy: bool,
    pub(super) hunks: Vec<Hunk<'p>>,
}

/// A part of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hunk<'p> {
    /// The line of the patch, from 1 on.
    pub(super) line: usize,
    /// The first line of the old text, from 1 on, and how many there are.
    pub(super) start: usize,
    pub(super) count: usize,
    /// Lines with their signs: a space, a minus or a plus.
    pub(super) lines: Vec<(u8, &'p [u8])>,
}

/// A patch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Patch<'p> {
    pub(super) changes: Vec<Change<'p>>,
    /// The lines about what it does not tell.
    pub(super) untold: u64,
}

/// A reason with the name that it is about, if that is known, and the line of the patch.
pub(super) type Wrong = (Stop, Vec<u8>, usize);

/// The lines of a patch that are read.
struct Lines<'p> {
    all: Vec<&'p [u8]>,
    next: usize,
    strip: usize,
}

/// Reads a patch. `strip` directories are taken off its names.
///
/// # Errors
/// A reason, with its place.
pub(super) fn parse(text: &[u8], strip: usize) -> Result<Patch<'_>, Wrong> {
    let mut lines = Lines { all: lines(text), next: 0, strip };
    let mut patch = Patch::default();
    while let Some(line) = lines.peek() {
        if line.starts_with(b"diff --git ") {
            patch.changes.push(lines.git()?);
        } else if lines.is_names() {
            patch.changes.push(lines.plain()?);
        } else if let Some(what) = lost(line) {
            return Err((what.into(), Vec::new(), lines.next + 1));
        } else {
            patch.untold += u64::from(line.starts_with(b"# "));
            lines.next += 1;
        }
    }
    if patch.changes.is_empty() && patch.untold == 0 && !text.is_empty() {
        let what = "it is neither a tar archive nor a patch: it has no line that begins with ---";
        return Err((what.into(), Vec::new(), 1));
    }
    Ok(patch)
}

/// Returns what a line outside of all changes says that can't be applied.
fn lost(line: &[u8]) -> Option<&'static str> {
    if line.starts_with(b"@@ -") {
        Some("the names of the file are missing before it")
    } else if line.starts_with(b"GIT binary patch") {
        Some("a binary patch is not applied; use a layer (`vfscale diff --tar`)")
    } else if line.starts_with(b"Binary files ") && line.ends_with(b" differ\n") {
        Some("the patch does not have the contents, which are binary")
    } else if line.starts_with(b"Only in ") {
        Some("the patch does not have this file; make it with `diff -ruN`")
    } else {
        None
    }
}

/// Returns a line without its end.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Reads a name in quotes, as git quotes it. Returns it and what follows.
fn unquoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut name, mut rest) = (Vec::new(), text.strip_prefix(b"\"")?);
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (escape, after) = rest.split_first()?;
                if matches!(escape, b'0'..=b'3') {
                    let digits = str::from_utf8(rest.get(..3)?).ok()?;
                    name.push(u8::from_str_radix(digits, 8).ok()?);
                    rest = &rest[3..];
                    continue;
                }
                let letters = b"abtnvfr";
                let place = letters.iter().position(|letter| letter == escape);
                name.push(match place {
                    Some(place) => 7 + place as u8,
                    None if matches!(escape, b'"' | b'\\') => *escape,
                    None => return None,
                });
                rest = after;
            }
            byte => name.push(*byte),
        }
    }
}

/// Reads a name up to a tab or the end of the line. Returns it and what follows.
fn name(text: &[u8]) -> Result<(Vec<u8>, &[u8]), Stop> {
    if text.starts_with(b"\"") {
        return unquoted(text).ok_or_else(|| "the quotes of a name are wrong".into());
    }
    let end = text.iter().position(|byte| *byte == b'\t').unwrap_or(text.len());
    Ok((text[..end].to_vec(), &text[end..]))
}

/// Returns a name without so many directories.
fn stripped(name: &[u8], strip: usize) -> Result<PathBuf, Stop> {
    if name.starts_with(b"/") {
        return clean(name);
    }
    let rest = name.splitn(strip + 1, |byte| *byte == b'/').nth(strip);
    let path = clean(rest.ok_or("its name has too few directories to take one off")?)?;
    if path.as_os_str().is_empty() { Err("it has no name".into()) } else { Ok(path) }
}

/// Returns whether the time behind a name says that there is no such file.
fn is_epoch(stamp: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(stamp) else { return false };
    let mut words = text.split_whitespace();
    let (Some(day), Some(time), Some(zone)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let minutes = |text: &str| -> Option<i64> {
        Some(text.get(..2)?.parse::<i64>().ok()? * 60 + text.get(2..4)?.parse::<i64>().ok()?)
    };
    let (clock, rest) = time.split_at_checked(5).unwrap_or((time, ""));
    if rest.bytes().any(|byte| !matches!(byte, b'0' | b':' | b'.')) {
        return false;
    }
    let Some(clock) = minutes(&clock.replace(':', "")) else { return false };
    let zone = match (zone.strip_prefix('+'), zone.strip_prefix('-')) {
        (Some(zone), _) => minutes(zone),
        (_, Some(zone)) => minutes(zone).map(|minutes| -minutes),
        _ => None,
    };
    let day = match day {
        "1970-01-01" => 0,
        "1969-12-31" => -24 * 60,
        _ => return false,
    };
    zone.is_some_and(|zone| day + clock - zone == 0)
}

impl<'p> Lines<'p> {
    fn peek(&self) -> Option<&'p [u8]> {
        self.all.get(self.next).copied()
    }

    fn wrong(&self, what: impl Into<Stop>) -> Wrong {
        (what.into(), Vec::new(), self.next + 1)
    }

    /// Returns whether the names of both versions come next.
    fn is_names(&self) -> bool {
        let at = |ahead: usize, start: &[u8]| {
            self.all.get(self.next + ahead).is_some_and(|line| line.starts_with(start))
        };
        at(0, b"--- ") && at(1, b"+++ ") && at(2, b"@@ -")
    }

    /// Reads the names of both versions, of which one may be missing.
    fn names(&mut self) -> Result<[Option<PathBuf>; 2], Wrong> {
        let mut names = [None, None];
        for to in &mut names {
            let line = trimmed(&self.peek().unwrap_or_default()[4..]);
            let (name, stamp) = name(line).map_err(|stop| self.wrong(stop))?;
            if name != b"/dev/null" && !is_epoch(stamp) {
                let path = stripped(&name, self.strip);
                *to = Some(path.map_err(|stop| (stop, name, self.next + 1))?);
            }
            self.next += 1;
        }
        if names == [None, None] {
            return Err(self.wrong("it is about no file"));
        }
        Ok(names)
    }

    /// Reads the change of a file without a header of git. The new name counts.
    fn plain(&mut self) -> Result<Change<'p>, Wrong> {
        let line = self.next + 1;
        let [mut old, new] = self.names()?;
        if old.is_some() && new.is_some() {
            old.clone_from(&new);
        }
        Ok(Change { line, old, new, hunks: self.hunks()?, ..Change::default() })
    }

    /// Reads the change of a file with a header of git.
    fn git(&mut self) -> Result<Change<'p>, Wrong> {
        let first = self.next;
        let both = trimmed(&self.peek().unwrap_or_default()[b"diff --git ".len()..]);
        let mut change = Change { line: first + 1, ..Change::default() };
        let (mut old, mut new, mut is_new, mut is_gone) = (None, None, false, false);
        self.next += 1;
        while let Some(line) = self.peek().filter(|_| !self.is_names()) {
            let line = trimmed(line);
            let rest = |start: &str| line.strip_prefix(start.as_bytes());
            let mode = |text: &[u8]| {
                let mode = str::from_utf8(text).ok().and_then(|it| u32::from_str_radix(it, 8).ok());
                let mode = mode.filter(|it| matches!(it, 0o100_644 | 0o100_755 | 0o120_000));
                mode.ok_or_else(|| self.wrong("the mode is none of 100644, 100755 and 120000"))
            };
            let path = |text: &[u8]| {
                let (name, _) = name(text).map_err(|stop| self.wrong(stop))?;
                let strip = self.strip.saturating_sub(1);
                let path = stripped(&name, strip).map_err(|stop| (stop, name, self.next + 1))?;
                Ok::<_, Wrong>(Some(path))
            };
            if let Some(text) = rest("new file mode ") {
                (change.mode, is_new) = (Some(mode(text)?), true);
            } else if rest("deleted file mode ").is_some() {
                is_gone = true;
            } else if let Some(text) = rest("new mode ") {
                change.mode = Some(mode(text)?);
            } else if let Some(text) = rest("rename from ").or(rest("copy from ")) {
                (old, change.is_copy) = (path(text)?, line.starts_with(b"copy"));
            } else if let Some(text) = rest("rename to ").or(rest("copy to ")) {
                new = path(text)?;
            } else if let Some(what) = lost(self.peek().unwrap_or_default()) {
                return Err((what.into(), both.to_vec(), self.next + 1));
            } else if !["old mode ", "index ", "similarity index ", "dissimilarity index "]
                .iter()
                .any(|start| rest(start).is_some())
            {
                break;
            }
            self.next += 1;
        }
        if self.is_names() {
            let names = self.names()?;
            if names[0].is_none() && !is_new || names[1].is_none() && !is_gone {
                let what = "a name is missing, and the header does not say so";
                return Err((what.into(), both.to_vec(), first + 1));
            }
            if old.is_none() {
                [old, new] = names;
            }
            change.hunks = self.hunks()?;
        } else if old.is_none() {
            let path = self.equal(both).map_err(|stop| (stop, both.to_vec(), first + 1))?;
            (old, new) = (Some(path.clone()), Some(path));
        }
        change.old = old.filter(|_| !is_new);
        change.new = new.filter(|_| !is_gone);
        if change.old.is_none() && change.new.is_none() {
            return Err(("it is about no file".into(), both.to_vec(), first + 1));
        }
        Ok(change)
    }

    /// Returns the path that both names of a header have.
    fn equal(&self, both: &[u8]) -> Result<PathBuf, Stop> {
        if let Some((name, _)) = unquoted(both) {
            return stripped(&name, self.strip);
        }
        for (at, _) in both.iter().enumerate().filter(|(_, byte)| **byte == b' ') {
            let [one, other] =
                [&both[..at], &both[at + 1..]].map(|name| stripped(name, self.strip));
            if let (Ok(one), Ok(other)) = (&one, &other)
                && one == other
            {
                return Ok(one.clone());
            }
            if both[..at].len() == both[at + 1..].len() {
                one?;
            }
        }
        Err("the names in the header differ, and nothing says why".into())
    }

    /// Reads the hunks of a file.
    fn hunks(&mut self) -> Result<Vec<Hunk<'p>>, Wrong> {
        let mut hunks = Vec::new();
        while let Some(line) = self.peek().filter(|line| line.starts_with(b"@@ -")) {
            let ranges = ranges(line).ok_or_else(|| self.wrong("the ranges are wrong"))?;
            let [(start, count), (_, new_count)] = ranges;
            let mut hunk = Hunk { line: self.next + 1, start, count, lines: Vec::new() };
            let (mut old, mut new) = (count, new_count);
            self.next += 1;
            while old > 0 || new > 0 {
                let line = self.peek().ok_or_else(|| self.wrong("the patch is cut off here"))?;
                // Some programs cut the space off an empty line.
                let (sign, text) =
                    if matches!(line, b"\n") { (b' ', line) } else { (line[0], &line[1..]) };
                let taken = match sign {
                    b' ' => old.checked_sub(1).zip(new.checked_sub(1)),
                    b'-' => old.checked_sub(1).zip(Some(new)),
                    b'+' => Some(old).zip(new.checked_sub(1)),
                    b'\\' => Some((old, new)),
                    _ => None,
                };
                let wrong = "the lines are not as many as the hunk says";
                (old, new) = taken.ok_or_else(|| self.wrong(wrong))?;
                if sign == b'\\' {
                    without_end(&mut hunk);
                } else {
                    hunk.lines.push((sign, text));
                }
                self.next += 1;
            }
            if self.peek().is_some_and(|line| line.starts_with(b"\\")) {
                without_end(&mut hunk);
                self.next += 1;
            }
            hunks.push(hunk);
        }
        Ok(hunks)
    }
}

/// Takes the end off the last line of a hunk.
fn without_end(hunk: &mut Hunk<'_>) {
    if let Some((_, line)) = hunk.lines.last_mut() {
        *line = line.strip_suffix(b"\n").unwrap_or(line);
    }
}

/// Reads the ranges of a hunk: of each side the first line and how many there are.
fn ranges(line: &[u8]) -> Option<[(usize, usize); 2]> {
    let text = str::from_utf8(line.split(|byte| *byte == b'@').nth(2)?).ok()?;
    let range = |word: &str, sign: char| {
        let (start, count) = word
            .strip_prefix(sign)?
            .split_once(',')
            .map_or_else(|| Some((word.strip_prefix(sign)?, "1")), Some)?;
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    let mut words = text.split_whitespace();
    Some([range(words.next()?, '-')?, range(words.next()?, '+')?])
}
