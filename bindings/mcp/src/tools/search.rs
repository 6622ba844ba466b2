//! The tool that searches for names and contents.

use std::path::Path;
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::files::root;
use super::tool::{Effect, Told, Tool, checked_path, cut, in_range, on_files, shown};
use super::walk::{names_below, walk};
use crate::refusal::{Refusal, Result};
use crate::tree::{Kind, Stat, Tree};

/// The most matches of an answer.
const MATCHES_MAX: u64 = 1000;
/// The most matches in one file.
const MATCHES_OF_FILE: usize = 50;
/// The most bytes of a file that is searched.
const FILE_MAX: u64 = 16 << 20;
/// The bytes in which a zero byte makes a file one without text.
const LOOK_BYTES: usize = 8 << 10;
/// The most bytes that one call reads.
const BYTES_MAX: u64 = 512 << 20;
/// The longest time of one call.
const TIME_MAX: Duration = Duration::from_secs(20);
/// The most characters of a line in the answer.
const LINE_CHARS: usize = 300;
/// Number of directories to go down: all that a path can have.
const DEPTH: u64 = 2048;
/// The most bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// Returns the tool.
pub(super) fn tool() -> Tool {
    on_files(
        [
            "search",
            "Search files",
            "Find files of a branch by a glob on their names, by text or a regular expression in their lines, or by both",
        ],
        Effect::Reads,
        search,
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    /// Branch or checkpoint; default: the server's branch
    #[serde(rename = "branch")]
    _branch: Option<String>,
    /// Directory to search in
    #[serde(default = "root")]
    path: String,
    /// Files to look at: `*.rs` by name, `src/**/*.rs` by path below `path`; default: all
    glob: Option<String>,
    /// Text that a line has to contain; without it, names are searched only
    content: Option<String>,
    /// Whether `content` is a regular expression
    #[serde(default)]
    regex: bool,
    /// Whether upper and lower case are equal in `content`
    #[serde(default)]
    ignore_case: bool,
    /// Most matches of the answer
    #[serde(default = "limit")]
    #[schemars(range(min = 1, max = 1000))]
    limit: u64,
    /// `next_cursor` of the answer before
    cursor: Option<String>,
}

fn limit() -> u64 {
    100
}

/// A file, or a line in it.
#[derive(Serialize, JsonSchema)]
struct Match {
    path: String,
    /// Number of the line
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The line
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

#[derive(Default, Serialize, JsonSchema)]
struct SearchResult {
    matches: Vec<Match>,
    /// Files whose contents were searched
    searched: u64,
    /// Files that were left out: larger than 16 MiB, not readable, or without text
    skipped: u64,
    /// Files with more matches than the 50 that are told
    #[serde(skip_serializing_if = "Vec::is_empty")]
    more_in: Vec<String>,
    /// `cursor` of the next call; absent at the end
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl Told for SearchResult {
    fn text(&self) -> String {
        let line = |found: &Match| match (&found.line, &found.text) {
            (Some(line), Some(text)) => format!("{}:{line}: {text}", found.path),
            _ => found.path.clone(),
        };
        let mut lines: Vec<String> = self.matches.iter().map(line).collect();
        if lines.is_empty() {
            lines.push("no match".to_owned());
        }
        lines.extend(self.more_in.iter().map(|path| format!("[more in {path}]")));
        if self.skipped > 0 {
            lines.push(format!("[{} files left out: large, unreadable or no text]", self.skipped));
        }
        if let Some(cursor) = &self.next_cursor {
            lines.push(format!("[more; go on with cursor {cursor:?}]"));
        }
        lines.join("\n")
    }
}

/// The files and lines that are searched for.
struct Wanted<'w> {
    below: &'w Path,
    /// Whether the glob is one of paths, and not of names.
    has_path: bool,
    glob: Option<GlobMatcher>,
    content: Option<Regex>,
}

impl Wanted<'_> {
    fn has_name(&self, path: &Path) -> bool {
        let Some(glob) = &self.glob else { return true };
        let named = if self.has_path { path.strip_prefix(self.below).ok() } else { None };
        named.or_else(|| path.file_name().map(Path::new)).is_some_and(|name| glob.is_match(name))
    }
}

fn search(args: SearchArgs, tree: &dyn Tree) -> Result<SearchResult> {
    let path = checked_path(&args.path)?;
    let limit = in_range("limit", args.limit, 1, MATCHES_MAX)?;
    let after = args.cursor.as_deref().map(checked_path).transpose()?;
    let after = after.map(|after| names_below(&path, &after)).unwrap_or_default();
    if args.glob.is_none() && args.content.as_deref().unwrap_or_default().is_empty() {
        return Err(Refusal::new("`glob`, `content` or both say what to search for"));
    }
    let wanted = Wanted {
        below: &path,
        has_path: args.glob.as_ref().is_some_and(|glob| glob.contains('/')),
        glob: args.glob.as_deref().map(glob_of).transpose()?,
        content: args.content.as_deref().map(|text| pattern(text, &args)).transpose()?,
    };
    let mut result = SearchResult::default();
    let (began, mut bytes, mut last) = (Instant::now(), 0, None);
    let is_whole = walk(tree, &path, DEPTH, &after, &mut |path, found| {
        if result.matches.len() >= limit || bytes >= BYTES_MAX || began.elapsed() >= TIME_MAX {
            return Ok(false);
        }
        if wanted.has_name(&path) {
            let left = limit - result.matches.len();
            bytes += look(tree, &path, found, &wanted, left, &mut result);
        }
        last = Some(shown(&path));
        Ok(true)
    })?;
    result.next_cursor = last.filter(|_| !is_whole);
    Ok(result)
}

fn glob_of(glob: &str) -> Result<GlobMatcher> {
    let glob = glob.strip_prefix('/').unwrap_or(glob);
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    let built = built.map_err(|e| Refusal::new(format!("`glob` is no glob: {e}")))?;
    Ok(built.compile_matcher())
}

fn pattern(text: &str, args: &SearchArgs) -> Result<Regex> {
    let text = if args.regex { text.to_owned() } else { regex::escape(text) };
    let mut builder = RegexBuilder::new(&text);
    let built = builder.case_insensitive(args.ignore_case).size_limit(PATTERN_BYTES).build();
    built.map_err(|e| Refusal::new(format!("`content` is no regular expression: {e}")))
}

/// Looks at a file with the right name. Returns how many bytes were read.
fn look(
    tree: &dyn Tree,
    path: &Path,
    found: Stat,
    wanted: &Wanted<'_>,
    left: usize,
    result: &mut SearchResult,
) -> u64 {
    let Some(content) = &wanted.content else {
        result.matches.push(Match { path: shown(path), line: None, text: None });
        return 0;
    };
    if found.kind != Kind::File {
        return 0;
    }
    let read = match found.size {
        0..=FILE_MAX => tree.read(path, 0, FILE_MAX as usize).ok(),
        _ => None,
    };
    let is_text = |bytes: &[u8]| !bytes[..bytes.len().min(LOOK_BYTES)].contains(&0);
    let Some((bytes, _)) = read.filter(|(bytes, _)| is_text(bytes)) else {
        result.skipped += 1;
        return 0;
    };
    result.searched += 1;
    let most = left.min(MATCHES_OF_FILE);
    let lines = (1..).zip(bytes.split(|byte| *byte == b'\n'));
    let mut matching = lines.filter(|(_, line)| content.is_match(line));
    for (number, line) in matching.by_ref().take(most) {
        let text = cut(String::from_utf8_lossy(line).trim_end(), LINE_CHARS);
        result.matches.push(Match { path: shown(path), line: Some(number), text: Some(text) });
    }
    if matching.next().is_some() {
        result.more_in.push(shown(path));
    }
    bytes.len() as u64
}
