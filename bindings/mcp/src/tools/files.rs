//! Tools that read and write files.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chrono::DateTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vfscale::{Errno, Error};

use super::tool::{Effect, Told, Tool, checked_path, in_range, on_files, shown};
use super::walk::{names_below, walk};
use crate::refusal::{Refusal, Result};
use crate::tree::{Kind, Stat, Tree, Writing};

/// The most bytes of one read.
const READ_MAX: u64 = 1 << 20;
/// The most bytes of a file that `edit` takes.
const EDIT_MAX: usize = 16 << 20;
/// The most bytes that a call writes.
const WRITE_MAX: usize = 16 << 20;
/// The most entries of a list.
const LIST_MAX: u64 = 1000;
/// The most directories that a list goes down.
const DEPTH_MAX: u64 = 64;

/// Returns the tools.
pub(super) fn tools() -> Vec<Tool> {
    vec![
        on_files(
            [
                "read",
                "Read a file",
                "Read a file of a branch, or a part of it by offset and length in bytes",
            ],
            Effect::Reads,
            read,
        ),
        on_files(
            [
                "list",
                "List a directory",
                "List the files in a directory of a branch with type, size and mode, or below it with `depth`",
            ],
            Effect::Reads,
            list,
        ),
        on_files(
            ["write", "Write a file", "Create, overwrite or append to a file of a branch"],
            Effect::Destroys,
            write,
        ),
        on_files(
            [
                "edit",
                "Edit a file",
                "Replace a piece of text in a file of a branch; it must stand there exactly once",
            ],
            Effect::Destroys,
            edit,
        ),
        on_files(
            ["mkdir", "Make a directory", "Make a directory in a branch"],
            Effect::Adds,
            mkdir,
        ),
        on_files(
            ["remove", "Remove a file", "Remove a file or directory of a branch"],
            Effect::Destroys,
            remove,
        ),
        on_files(
            [
                "move",
                "Move a file",
                "Rename a file or directory, or move it to another directory of the branch",
            ],
            Effect::Destroys,
            rename,
        ),
    ]
}

/// The encoding of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    /// Branch or checkpoint; default: the server's branch
    #[serde(rename = "branch")]
    _branch: Option<String>,
    /// Path from the root of the branch
    path: String,
    /// First byte that is read
    #[serde(default)]
    offset: u64,
    /// Number of bytes
    #[serde(default = "read_length")]
    #[schemars(range(min = 1, max = 1_048_576))]
    length: u64,
}

fn read_length() -> u64 {
    64 << 10
}

#[derive(Serialize, JsonSchema)]
struct ReadResult {
    path: String,
    /// Length of the whole file in bytes
    size: u64,
    offset: u64,
    /// Number of bytes that were read
    length: u64,
    /// Encoding of `content`: Base64 if the bytes are no text
    encoding: Encoding,
    content: String,
    /// Offset of the rest; absent at the end of the file
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

impl Told for ReadResult {
    fn text(&self) -> String {
        match self.next_offset {
            None => self.content.clone(),
            Some(next) => format!(
                "{}\n[bytes {} to {next} of {}; go on with offset {next}]",
                self.content, self.offset, self.size
            ),
        }
    }
}

fn read(args: ReadArgs, tree: &dyn Tree) -> Result<ReadResult> {
    let path = checked_path(&args.path)?;
    let length = in_range("length", args.length, 1, READ_MAX)?;
    let (mut bytes, size) = tree.read(&path, args.offset, length)?;
    // A character that the end cuts comes with the next part.
    if let Err(e) = str::from_utf8(&bytes)
        && e.error_len().is_none()
        && e.valid_up_to() > 0
    {
        bytes.truncate(e.valid_up_to());
    }
    let length = bytes.len() as u64;
    let next = args.offset.saturating_add(length);
    let (encoding, content) = match String::from_utf8(bytes) {
        Ok(text) => (Encoding::Utf8, text),
        Err(e) => (Encoding::Base64, BASE64_STANDARD.encode(e.as_bytes())),
    };
    let next_offset = (length > 0 && next < size).then_some(next);
    let (path, offset) = (shown(&path), args.offset);
    Ok(ReadResult { path, size, offset, length, encoding, content, next_offset })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListArgs {
    /// Branch or checkpoint; default: the server's branch
    #[serde(rename = "branch")]
    _branch: Option<String>,
    /// Directory, or one file
    #[serde(default = "root")]
    path: String,
    /// Number of directories to go down
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 64))]
    depth: u64,
    /// Most entries of the answer
    #[serde(default = "list_limit")]
    #[schemars(range(min = 1, max = 1000))]
    limit: u64,
    /// `next_cursor` of the answer before
    cursor: Option<String>,
}

pub(super) fn root() -> String {
    "/".to_owned()
}

fn one() -> u64 {
    1
}

fn list_limit() -> u64 {
    200
}

/// The type of a file.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Type {
    File,
    Directory,
    Symlink,
    Other,
}

/// A file that was found.
#[derive(Serialize, JsonSchema)]
struct Entry {
    path: String,
    /// `other` is a fifo, socket or device
    #[serde(rename = "type")]
    kind: Type,
    /// Length in bytes
    size: u64,
    /// Permission bits in octal
    mode: String,
    uid: u32,
    gid: u32,
    /// Last change of the contents, in universal time
    mtime: String,
    /// Where a symbolic link leads
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ListResult {
    path: String,
    entries: Vec<Entry>,
    /// `cursor` of the next call; absent at the end
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl Told for ListResult {
    fn text(&self) -> String {
        let line = |entry: &Entry| {
            let mut line = format!("{} {:>9} {}", entry.mode, entry.size, entry.path);
            match (&entry.kind, &entry.target) {
                (Type::Directory, _) => line.push('/'),
                (_, Some(target)) => line += &format!(" -> {target}"),
                _ => {}
            }
            line
        };
        let mut lines: Vec<String> = self.entries.iter().map(line).collect();
        if lines.is_empty() {
            lines.push(format!("nothing in {}", self.path));
        }
        if let Some(cursor) = &self.next_cursor {
            lines.push(format!("[more; go on with cursor {cursor:?}]"));
        }
        lines.join("\n")
    }
}

fn entry(tree: &dyn Tree, path: &Path, found: Stat) -> vfscale::Result<Entry> {
    let kind = match found.kind {
        Kind::File => Type::File,
        Kind::Directory => Type::Directory,
        Kind::Symlink => Type::Symlink,
        Kind::Other => Type::Other,
    };
    let target = match found.kind {
        Kind::Symlink => Some(shown(&tree.target(path)?)),
        _ => None,
    };
    let mtime = DateTime::from_timestamp(found.mtime, 0).unwrap_or_default();
    Ok(Entry {
        path: shown(path),
        kind,
        size: found.size,
        mode: format!("{:04o}", found.mode),
        uid: found.uid,
        gid: found.gid,
        mtime: mtime.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        target,
    })
}

fn list(args: ListArgs, tree: &dyn Tree) -> Result<ListResult> {
    let path = checked_path(&args.path)?;
    let limit = in_range("limit", args.limit, 1, LIST_MAX)?;
    in_range("depth", args.depth, 1, DEPTH_MAX)?;
    let after = args.cursor.as_deref().map(checked_path).transpose()?;
    let mut entries = Vec::new();
    let found = tree.stat(&path, true)?;
    if found.kind != Kind::Directory {
        entries.push(entry(tree, &path, found)?);
        return Ok(ListResult { path: shown(&path), entries, next_cursor: None });
    }
    let after = after.map(|after| names_below(&path, &after)).unwrap_or_default();
    let is_whole = walk(tree, &path, args.depth, &after, &mut |path, found| {
        if entries.len() == limit {
            return Ok(false);
        }
        entries.push(entry(tree, &path, found)?);
        Ok(true)
    })?;
    let last = entries.last().map(|entry| entry.path.clone());
    Ok(ListResult { path: shown(&path), next_cursor: last.filter(|_| !is_whole), entries })
}

/// The way in which a file is written.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Mode {
    #[default]
    Overwrite,
    Create,
    Append,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    /// Branch that is changed; default: the server's branch
    #[serde(rename = "branch")]
    _branch: Option<String>,
    /// Path from the root of the branch
    path: String,
    /// Text, or bytes in Base64
    #[schemars(length(max = 16_777_216))]
    content: String,
    /// Encoding of `content`
    #[serde(default)]
    encoding: Encoding,
    /// `overwrite` replaces the contents, `append` adds to them, `create` refuses an existing file
    #[serde(default)]
    mode: Mode,
    /// Make missing directories above the file
    #[serde(default)]
    parents: bool,
}

#[derive(Serialize, JsonSchema)]
struct WriteResult {
    path: String,
    /// Length of the file now, in bytes
    size: u64,
}

impl Told for WriteResult {
    fn text(&self) -> String {
        format!("{} has {} bytes", self.path, self.size)
    }
}

fn write(args: WriteArgs, tree: &dyn Tree) -> Result<WriteResult> {
    let path = checked_path(&args.path)?;
    let bytes = match args.encoding {
        Encoding::Utf8 => args.content.into_bytes(),
        Encoding::Base64 => BASE64_STANDARD
            .decode(&args.content)
            .map_err(|e| Refusal::new(format!("`content` is no Base64: {e}")))?,
    };
    if bytes.len() > WRITE_MAX {
        let why = format!("`content` has {} bytes, and a call writes 16 MiB at most", bytes.len());
        return Err(Refusal::new(why).and("write the rest with mode `append`"));
    }
    let writing = match args.mode {
        Mode::Overwrite => Writing::Overwrite,
        Mode::Create => Writing::Create,
        Mode::Append => Writing::Append,
    };
    if let Some(above) = path.parent().filter(|_| args.parents) {
        tree.mkdir_all(above)?;
    }
    let written = tree.write(&path, &bytes, writing);
    let size = written.map_err(|error| with_parents(error, args.parents))?;
    Ok(WriteResult { path: shown(&path), size })
}

/// Names the option that makes directories.
fn with_parents(error: Error, parents: bool) -> Refusal {
    match error.errno() {
        Errno::NOENT if !parents => {
            Refusal::new(error.to_string()).and("`parents` makes missing directories")
        }
        _ => error.into(),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditArgs {
    /// Branch that is changed; default: the server's branch
    #[serde(rename = "branch")]
    _branch: Option<String>,
    /// Path from the root of the branch
    path: String,
    /// Text that is replaced, with enough around it to stand in the file once
    old: String,
    /// Text in its place
    new: String,
}

#[derive(Serialize, JsonSchema)]
struct EditResult {
    path: String,
    /// Number of the line where the new text begins
    line: u64,
    /// Length of the file now, in bytes
    size: u64,
}

impl Told for EditResult {
    fn text(&self) -> String {
        format!("{} is changed in line {} and has {} bytes", self.path, self.line, self.size)
    }
}

fn edit(args: EditArgs, tree: &dyn Tree) -> Result<EditResult> {
    let EditArgs { old, new, .. } = &args;
    let path = checked_path(&args.path)?;
    if old.is_empty() || old == new {
        return Err(Refusal::new("`old` is empty or equal to `new`: nothing would change"));
    }
    let (bytes, size) = tree.read(&path, 0, EDIT_MAX)?;
    if size > bytes.len() as u64 {
        let why = format!("{} has {size} bytes, more than `edit` takes", shown(&path));
        return Err(Refusal::new(why).and("change it by `run`"));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        Refusal::new(format!("{} is no UTF-8", shown(&path))).and("write it in Base64")
    })?;
    let at = unique(&text, old, &path)?;
    let changed = [&text[..at], new, &text[at + old.len()..]].concat();
    let size = tree.write(&path, changed.as_bytes(), Writing::Overwrite)?;
    Ok(EditResult { path: shown(&path), line: line_of(&text, at), size })
}

/// Returns where a piece of text is, which must be one place.
fn unique(text: &str, old: &str, path: &Path) -> Result<usize> {
    let Some(at) = text.find(old) else {
        let why = format!("`old` is not in {}", shown(path));
        return Err(Refusal::new(why).and("`read` shows what is there, with its spaces"));
    };
    // Two places may share characters.
    let behind = at + text[at..].chars().next().map_or(1, char::len_utf8);
    match text[behind..].find(old) {
        None => Ok(at),
        Some(next) => {
            let [first, second] = [at, behind + next].map(|at| line_of(text, at));
            let why = format!(
                "`old` is in {} more than once, in lines {first} and {second}",
                shown(path)
            );
            Err(Refusal::new(why).and("give more of the lines around it"))
        }
    }
}

fn line_of(text: &str, at: usize) -> u64 {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MkdirArgs {
    /// Branch that is changed; default: the server's branch
    #[serde(rename = "branch")]
    _branch: Option<String>,
    /// Path from the root of the branch
    path: String,
    /// Make missing directories above it too; an existing directory is no error then
    #[serde(default)]
    parents: bool,
}

/// The path that a call was about.
#[derive(Serialize, JsonSchema)]
struct PathResult {
    path: String,
}

impl Told for PathResult {
    fn text(&self) -> String {
        self.path.clone()
    }
}

fn mkdir(args: MkdirArgs, tree: &dyn Tree) -> Result<PathResult> {
    let path = checked_path(&args.path)?;
    let made = if args.parents { tree.mkdir_all(&path) } else { tree.mkdir(&path) };
    made.map_err(|error| with_parents(error, args.parents))?;
    Ok(PathResult { path: shown(&path) })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RemoveArgs {
    /// Branch that is changed; default: the server's branch
    #[serde(rename = "branch")]
    _branch: Option<String>,
    /// Path from the root of the branch
    path: String,
    /// Remove a directory with all that is in it
    #[serde(default)]
    recursive: bool,
}

fn remove(args: RemoveArgs, tree: &dyn Tree) -> Result<PathResult> {
    let path = checked_path(&args.path)?;
    not_root(&path)?;
    tree.remove(&path, args.recursive)?;
    Ok(PathResult { path: shown(&path) })
}

fn not_root(path: &Path) -> Result<()> {
    match path.parent() {
        Some(_) => Ok(()),
        None => Err(Refusal::new("the root directory stays; name a file in it")),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MoveArgs {
    /// Branch that is changed; default: the server's branch
    #[serde(rename = "branch")]
    _branch: Option<String>,
    /// Path from the root of the branch
    from: String,
    /// New path, not only a directory
    to: String,
    /// Take the place of the file that has the new path
    #[serde(default)]
    replace: bool,
}

/// The paths of a move.
#[derive(Serialize, JsonSchema)]
struct MoveResult {
    from: String,
    to: String,
}

impl Told for MoveResult {
    fn text(&self) -> String {
        format!("{} is {} now", self.from, self.to)
    }
}

fn rename(args: MoveArgs, tree: &dyn Tree) -> Result<MoveResult> {
    let (from, to) = (checked_path(&args.from)?, checked_path(&args.to)?);
    not_root(&from)?;
    not_root(&to)?;
    tree.rename(&from, &to, args.replace)?;
    Ok(MoveResult { from: shown(&from), to: shown(&to) })
}
