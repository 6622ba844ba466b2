//! Starting states: the calls that lead to them, and their description.

use vfscale::Mode;
use vfscale::posix::{OFlags, Whence};

use super::symbolic_path::{self, SymbolicPath};
use super::template::{DIR_MODE, FILE_MODE, OLD, XATTR, pwrite, setxattr};
use crate::case::{Call, Op};
use crate::model::PAGE;

/// The file at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupant {
    Absent,
    /// A file of this many pages.
    File(u64),
    /// A file of two pages, the first of which is a hole.
    Sparse,
    /// Another link of the file at an earlier name, given by its index.
    LinkOf(usize),
    Directory,
    /// A directory that contains `x`.
    FullDirectory,
    /// A directory with a file system mounted on it that contains `x`.
    MountPoint,
    /// A symbolic link to the next name, or to a directory if there is only one name.
    Symlink,
    /// A symbolic link to a missing name.
    Dangling,
}

/// The file that is open in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The file at a name, given by its index.
    Leaf(usize),
    /// The directory `d0`.
    Dir,
    /// A separate file, `f0` or `f1`, of this many pages.
    Own(u64),
    /// A separate file of two pages, the first of which is a hole.
    OwnSparse,
    /// A file whose name was removed.
    Orphan,
    /// A file that never had a name (`O_TMPFILE`).
    Nameless,
    /// One end of a pipe that holds `pages` pages. The other end is closed if `alone` is set.
    Pipe { writer: bool, pages: u8, alone: bool },
    /// The file of slot 0, opened a second time.
    Again,
    /// The other end of the pipe of slot 0.
    OtherEnd,
}

/// An open file of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) source: Source,
    pub(super) flags: OFlags,
    /// File position in pages.
    pub(super) position: u64,
}

/// Working directory of both processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cwd {
    Root,
    /// `d0`; paths are relative to it.
    InDir,
    /// A removed directory.
    Removed,
}

/// The choices that define a starting state.
pub(super) struct Choice<'a> {
    pub(super) spots: &'a [SymbolicPath],
    /// The occupant of each name that the paths need.
    pub(super) occupants: &'a [Occupant],
    /// Bitmap of the names whose files have an extended attribute.
    pub(super) xattrs: u64,
    /// The process and open file of slot 0 and of slot 1, as far as they are used.
    pub(super) slots: &'a [(u8, Opened)],
    /// Whether process 1 holds the open file of slot 0 too.
    pub(super) passed: bool,
    pub(super) cwd: Cwd,
    /// The directory that is a mount of its own.
    pub(super) mounted: Option<u8>,
}

/// The calls that lead to a starting state, and its description.
pub(super) struct Fixture {
    pub(super) setup: Vec<Call>,
    pub(super) notes: Vec<String>,
    /// Path and flags of the open file of slot 0, for [`Source::Again`].
    opened_first: Option<(String, OFlags)>,
}

/// Slot of files that are closed again immediately.
const SCRATCH: u8 = 12;
/// Slot of the other end of a pipe.
const HIDDEN: u8 = 8;

impl Fixture {
    /// Builds the calls for a choice, or returns `None` if the choice contradicts itself.
    pub(super) fn build(choice: &Choice<'_>) -> Option<Fixture> {
        let mut fixture = Fixture { setup: Vec::new(), notes: Vec::new(), opened_first: None };
        fixture.dirs(choice)?;
        let leaves = symbolic_path::leaves(choice.spots);
        for at in 0..leaves.len() {
            fixture.leaf(choice, &leaves, at)?;
        }
        for (slot, (process, opened)) in choice.slots.iter().enumerate() {
            fixture.open(choice, &leaves, slot as u8, *process, opened)?;
        }
        if choice.passed {
            fixture.run(0, Op::Pass { slot: 0 });
            fixture.note("both processes have #0");
        }
        fixture.cwd(choice.cwd);
        Some(fixture)
    }

    fn run(&mut self, process: u8, op: Op) {
        self.setup.push(Call { process, op });
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Makes the directories that the choice uses.
    fn dirs(&mut self, choice: &Choice<'_>) -> Option<()> {
        let in_first =
            |(_, opened): &(u8, Opened)| matches!(opened.source, Source::Dir | Source::Nameless);
        let needs_first = choice.cwd == Cwd::InDir || choice.slots.iter().any(in_first);
        let dirs = symbolic_path::dirs(choice.spots).max(needs_first.into());
        for dir in 0..dirs {
            let path = SymbolicPath::Dir(dir).to_string();
            self.run(0, mkdir(&path));
            if choice.mounted == Some(dir) {
                self.note(format!("{path} is a mount"));
                self.run(0, Op::Mount { path });
            }
        }
        choice.mounted.is_none_or(|mounted| mounted < dirs).then_some(())
    }

    fn cwd(&mut self, cwd: Cwd) {
        let path = match cwd {
            Cwd::Root => return,
            Cwd::InDir => "d0",
            Cwd::Removed => "gone",
        };
        if cwd == Cwd::Removed {
            self.run(0, mkdir(path));
        }
        for process in 0..2 {
            self.run(process, Op::Chdir { path: path.into() });
        }
        if cwd == Cwd::Removed {
            self.run(0, Op::Rmdir { path: "/gone".into() });
            self.note("the working directory is removed");
        } else {
            self.note("in d0");
        }
    }

    fn leaf(&mut self, choice: &Choice<'_>, leaves: &[SymbolicPath], at: usize) -> Option<()> {
        let path = leaves[at].to_string();
        let occupant = *choice.occupants.get(at)?;
        let has_xattr = choice.xattrs >> at & 1 == 1;
        let what = match occupant {
            Occupant::Absent => "is absent".into(),
            Occupant::File(pages) => {
                self.create(&path, pages, false, SCRATCH);
                format!("is a file of {}", count(pages))
            }
            Occupant::Sparse => {
                self.create(&path, 2, true, SCRATCH);
                "is a file of a hole and a page".into()
            }
            Occupant::LinkOf(other) => {
                let is_file = matches!(
                    choice.occupants.get(other),
                    Some(Occupant::File(_) | Occupant::Sparse)
                );
                if other >= at || !is_file {
                    return None;
                }
                let old = leaves[other].to_string();
                self.run(0, Op::Link { old: old.clone(), new: path.clone() });
                format!("is a link of {old}")
            }
            Occupant::Directory => {
                self.run(0, mkdir(&path));
                "is an empty directory".into()
            }
            Occupant::FullDirectory | Occupant::MountPoint => {
                self.run(0, mkdir(&path));
                let is_mount = occupant == Occupant::MountPoint;
                if is_mount {
                    self.run(0, Op::Mount { path: path.clone() });
                }
                self.create(&format!("{path}/x"), 0, false, SCRATCH);
                if is_mount { "is a mount with x".into() } else { "is a directory with x".into() }
            }
            Occupant::Symlink => {
                let next = leaves.get((at + 1) % leaves.len()).filter(|_| leaves.len() > 1);
                let target = next.map_or("/d0".into(), |next| format!("/{next}"));
                self.run(0, Op::Symlink { target: target.clone(), path: path.clone() });
                format!("is a symlink to {target}")
            }
            Occupant::Dangling => {
                self.run(0, Op::Symlink { target: "gone".into(), path: path.clone() });
                "is a dangling symlink".into()
            }
        };
        self.note(format!("{path} {what}"));
        if has_xattr {
            if !matches!(occupant, Occupant::File(_) | Occupant::Directory) {
                return None;
            }
            self.note(format!("{path} has {XATTR}"));
            self.run(0, setxattr(path, XATTR, OLD, vfscale::posix::XattrFlags::empty()));
        }
        Some(())
    }

    /// Creates a file with filled pages. It uses the slot and closes it again.
    fn create(&mut self, path: &str, pages: u64, sparse: bool, slot: u8) {
        self.run(0, open(path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, slot));
        self.fill(pages, sparse, slot);
        self.run(0, Op::Close { slot });
    }

    fn fill(&mut self, pages: u64, sparse: bool, slot: u8) {
        for page in u64::from(sparse)..pages {
            self.run(0, pwrite(page, OLD).with_slots(slot, slot));
        }
    }

    fn open(
        &mut self,
        choice: &Choice<'_>,
        leaves: &[SymbolicPath],
        slot: u8,
        process: u8,
        opened: &Opened,
    ) -> Option<()> {
        let Opened { source, mut flags, position } = *opened;
        let own = format!("f{slot}");
        let path = match source {
            Source::Leaf(at) => {
                let is_dir = match choice.occupants.get(at)? {
                    Occupant::File(_) | Occupant::Sparse | Occupant::LinkOf(_) => false,
                    Occupant::Directory | Occupant::FullDirectory | Occupant::MountPoint => true,
                    _ => return None,
                };
                if is_dir {
                    flags = as_dir(flags)?;
                }
                leaves[at].to_string()
            }
            Source::Dir => {
                flags = as_dir(flags)?;
                "d0".into()
            }
            Source::Own(pages) => {
                self.create(&own, pages, false, SCRATCH);
                self.note(format!("{own} is a file of {}", count(pages)));
                own
            }
            Source::OwnSparse => {
                self.create(&own, 2, true, SCRATCH);
                self.note(format!("{own} is a file of a hole and a page"));
                own
            }
            Source::Orphan => {
                self.create(&own, 1, false, SCRATCH);
                self.run(process, open(&own, flags, slot));
                self.run(0, Op::Unlink { path: own });
                self.note(format!("#{slot} is a removed file of 1 page{}", how(flags, position)));
                return self.seek(process, slot, position);
            }
            Source::Nameless => {
                if flags & OFlags::ACCMODE == OFlags::RDONLY {
                    return None;
                }
                self.run(process, open("d0", flags | OFlags::TMPFILE, slot));
                self.note(format!("#{slot} is a file without a name{}", how(flags, position)));
                return self.seek(process, slot, position);
            }
            Source::Pipe { writer, pages, alone } => {
                return self.pipe(process, slot, (writer, pages, alone), opened);
            }
            Source::Again => {
                let (path, first_flags) = self.opened_first.clone()?;
                if choice.slots[0].1.flags != first_flags {
                    // The file is a directory.
                    flags = as_dir(flags)?;
                }
                path
            }
            Source::OtherEnd => return self.other_end(choice, process, slot, opened),
        };
        self.note(format!("#{slot} is {path}{}", how(flags, position)));
        self.opened_first.get_or_insert_with(|| (path.clone(), flags));
        self.run(process, open(&path, flags, slot));
        self.seek(process, slot, position)
    }

    fn seek(&mut self, process: u8, slot: u8, position: u64) -> Option<()> {
        if position > 0 {
            self.run(process, Op::Lseek { slot, to: Whence::Set(position * PAGE) });
        }
        Some(())
    }

    fn pipe(
        &mut self,
        process: u8,
        slot: u8,
        (writer, pages, alone): (bool, u8, bool),
        opened: &Opened,
    ) -> Option<()> {
        plain(opened)?;
        let hidden = slot + HIDDEN;
        let (read, write) = if writer { (hidden, slot) } else { (slot, hidden) };
        self.run(process, Op::Pipe { reader: read, writer: write });
        for _ in 0..pages {
            let op = Op::Write { slot: write, len: PAGE as usize, byte: OLD };
            self.run(process, op);
        }
        if alone {
            self.run(process, Op::Close { slot: hidden });
        }
        let (end, other) = if writer { ("writer", "reader") } else { ("reader", "writer") };
        let closed = if alone { format!(", whose {other} is closed") } else { String::new() };
        self.note(format!("#{slot} is the {end} of a pipe with {}{closed}", count(pages.into())));
        Some(())
    }

    /// Opens the end of slot 0's pipe that slot 0 does not hold. It was made for process 0.
    fn other_end(
        &mut self,
        choice: &Choice<'_>,
        process: u8,
        slot: u8,
        opened: &Opened,
    ) -> Option<()> {
        plain(opened)?;
        let Source::Pipe { alone: false, .. } = choice.slots[0].1.source else { return None };
        self.run(0, Op::Dup { slot: HIDDEN, to: slot });
        self.run(0, Op::Close { slot: HIDDEN });
        if process != 0 {
            self.run(0, Op::Pass { slot });
            self.run(0, Op::Close { slot });
        }
        self.note(format!("#{slot} is its other end"));
        Some(())
    }
}

/// Checks that the options of an open pipe are the only possible ones.
fn plain(opened: &Opened) -> Option<()> {
    (opened.position == 0 && opened.flags == OFlags::RDWR).then_some(())
}

/// Replaces the flags for a directory. One set of flags represents all, to avoid duplicates.
fn as_dir(flags: OFlags) -> Option<OFlags> {
    (flags == OFlags::RDWR).then_some(OFlags::RDONLY)
}

/// Describes access and position of an open file, if they are not the default.
fn how(flags: OFlags, position: u64) -> String {
    let access = match flags & OFlags::ACCMODE {
        OFlags::RDONLY => " for reading",
        OFlags::WRONLY => " for writing",
        _ => "",
    };
    let append = if flags.contains(OFlags::APPEND) { " to append" } else { "" };
    let at = if position > 0 { format!(" at page {position}") } else { String::new() };
    format!("{access}{append}{at}")
}

fn count(pages: u64) -> String {
    if pages == 1 { "1 page".into() } else { format!("{pages} pages") }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: DIR_MODE }
}

fn open(path: &str, flags: OFlags, slot: u8) -> Op {
    let mode = if flags.intersects(OFlags::CREATE | OFlags::TMPFILE) { FILE_MODE } else { NO_MODE };
    Op::Open { path: path.into(), flags, mode, slot }
}

const NO_MODE: Mode = Mode::empty();

/// Returns a path relative to the working directory.
pub(super) fn written(spot: SymbolicPath, cwd: Cwd) -> String {
    match (cwd, spot) {
        (Cwd::Root, _) => spot.to_string(),
        (Cwd::Removed, _) => format!("/{spot}"),
        (Cwd::InDir, SymbolicPath::Name(0, _) | SymbolicPath::Child(0, _)) => {
            spot.to_string().trim_start_matches("d0/").into()
        }
        (Cwd::InDir, _) => format!("../{spot}"),
    }
}
