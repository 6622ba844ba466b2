//! `vfscale ls`: the files of an image, as lines or as JSON.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rustix::fs::{major, minor};
use serde_json::{Value, json};
use vfscale::block::calendar;
use vfscale::{Escaped, FileType, Metadata};

use super::place::{self, Place};
use super::tree::{Found, Tree, Walk};
use crate::error::Failure;
use crate::output::{file_members, path_members, written};

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Show type and permissions, number of names, owner and group, size, and time of the last
    /// change (UTC)
    #[arg(long, short)]
    long: bool,

    /// List what is in directories too, with paths, in the order of the directories
    #[arg(long, short = 'R')]
    recursive: bool,

    /// Print JSON instead of words: a list, one object a line. A path that is not UTF-8 has its
    /// bytes beside it, in hexadecimal ("path_bytes")
    #[arg(long, conflicts_with = "long")]
    json: bool,

    /// The device of the log, if it is not in the volume
    #[arg(long, value_name = "PATH")]
    log_device: Option<PathBuf>,

    /// The files or directories
    #[arg(value_name = place::FORM, required = true)]
    places: Vec<Place>,
}

/// Lists files.
pub(crate) fn ls(args: &LsArgs) -> Result<ExitCode, Failure> {
    let mut lines = Lines { out: io::BufWriter::new(io::stdout().lock()), args, count: 0 };
    for places in args.places.chunk_by(Place::is_beside) {
        places[0].read(args.log_device.as_deref(), |tree| {
            places.iter().try_for_each(|place| list(tree, place, &mut lines))
        })?;
    }
    written(lines.end())
}

fn list(tree: &Tree<'_>, place: &Place, lines: &mut Lines<'_>) -> Result<(), Failure> {
    let failed = &|error| place.failed(error);
    if lines.args.recursive {
        let each = &mut |file| lines.print(&file);
        return tree.walk(&place.path, Walk { depth: usize::MAX, each, failed });
    }
    let mut found = Vec::new();
    let each = &mut |file| {
        found.push(file);
        Ok(())
    };
    tree.walk(&place.path, Walk { depth: 1, each, failed })?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.iter().try_for_each(|file| lines.print(file))
}

/// The output.
struct Lines<'a> {
    out: io::BufWriter<io::StdoutLock<'static>>,
    args: &'a LsArgs,
    count: u64,
}

impl Lines<'_> {
    fn print(&mut self, file: &Found) -> Result<(), Failure> {
        let line = match (self.args.json, self.args.long) {
            (true, _) => {
                let before = if self.count == 0 { "[" } else { "," };
                format!("{before}\n{}", as_json(file))
            }
            (_, long) => {
                let whole = self.args.recursive || file.path.file_name().is_none();
                let name = file.path.file_name().filter(|_| !whole);
                let name = Escaped::new(name.unwrap_or(file.path.as_os_str()));
                if long {
                    format!("{}{name}{}\n", words(file), arrow(file))
                } else {
                    format!("{name}\n")
                }
            }
        };
        self.count += 1;
        written(self.out.write_all(line.as_bytes())).map(drop)
    }

    fn end(&mut self) -> io::Result<()> {
        if self.args.json {
            self.out.write_all(if self.count == 0 { b"[]\n" } else { b"\n]\n" })?;
        }
        self.out.flush()
    }
}

fn arrow(file: &Found) -> String {
    file.target.as_ref().map_or_else(String::new, |to| format!(" -> {}", Escaped::new(to)))
}

/// Returns the attributes in columns.
fn words(file: &Found) -> String {
    let found = &file.metadata;
    let size = match device(found) {
        Some((major, minor)) => format!("{major}, {minor}"),
        None => found.len().to_string(),
    };
    let time = calendar::moment(found.mtime.secs(), ' ');
    let (mode, links) = (permissions(found), found.nlink);
    format!("{mode} {links:>3} {:>5} {:>5} {size:>12} {time} ", found.uid, found.gid)
}

/// Returns type and permissions as ls(1) shows them.
fn permissions(found: &Metadata) -> String {
    let mut text = String::from(match found.file_type() {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        _ => '-',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = found.mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (found.mode & special == 0, bits & 1 == 0) {
            (true, true) => '-',
            (true, false) => 'x',
            (false, true) => letter.to_ascii_uppercase(),
            (false, false) => letter,
        });
    }
    text
}

/// Returns the numbers of a device, major and minor.
fn device(found: &Metadata) -> Option<(u32, u32)> {
    match found.file_type() {
        FileType::CharacterDevice | FileType::BlockDevice => {
            Some((major(found.rdev), minor(found.rdev)))
        }
        _ => None,
    }
}

fn as_json(file: &Found) -> Value {
    let found = &file.metadata;
    let (seconds, nanos) = (found.mtime.secs(), found.mtime.nanos());
    let mut value = json!({
        "inode": found.ino,
        "links": found.nlink,
        "uid": found.uid,
        "gid": found.gid,
        "mtime": format!("{}.{nanos:09}Z", calendar::moment(seconds, 'T')),
    });
    let target = |to: &PathBuf| path_members("target", to);
    let device = device(found).map(|(major, minor)| json!(format!("{major}:{minor}")));
    let members = path_members("path", &file.path).into_iter();
    let members = members.chain(file_members(found.mode, found.len()));
    let members = members.chain(file.target.iter().flat_map(target));
    for (key, member) in members.chain(device.map(|numbers| ("device".to_owned(), numbers))) {
        value[key] = member;
    }
    value
}
