//! Options of a merge, and its result.

use std::path::PathBuf;

/// The way in which a merge decides about what both branches have changed in different ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Keeps what INTO has, and puts the file that FROM has beside it, as `NAME.FROM`.
    #[default]
    Both,
    /// Keeps what INTO has. A directory, and a file that FROM has moved to a name that INTO has
    /// given to another one, stand beside it nevertheless.
    Ours,
    /// Takes what FROM has. A directory of INTO stands beside it, as `NAME.INTO`; of a loop of
    /// directories, INTO's moves stay.
    Theirs,
    /// Changes nothing at all.
    Fail,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 4] = [Self::Both, Self::Ours, Self::Theirs, Self::Fail];

    /// Returns the name, as the command has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Ours => "ours",
            Self::Theirs => "theirs",
            Self::Fail => "fail",
        }
    }
}

/// Options of [`Pool::merge`](crate::Pool::merge) and [`Pool::rebase`](crate::Pool::rebase).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeOptions {
    pub(super) strategy: Strategy,
    pub(super) dry_run: bool,
}

impl MergeOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what is done about conflicts.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets whether the merge is only planned. INTO may be open then.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }
}

/// The kind of a [`Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ConflictKind {
    /// Both have changed the contents: the same lines, lines next to each other, or contents that
    /// are no text of at most 4 MiB.
    Content,
    /// Both have changed permissions, owner, group or flags.
    Attributes,
    /// Both have changed an extended attribute, which access control lists are too.
    Xattrs,
    /// One has changed or renamed it, the other one has removed it.
    Removed,
    /// Both have renamed it.
    Renamed,
    /// Both have given the name to different files.
    Name,
    /// Both have moved directories, each into the other.
    Loop,
}

impl ConflictKind {
    /// All kinds.
    pub const ALL: [ConflictKind; 7] = [
        Self::Content,
        Self::Attributes,
        Self::Xattrs,
        Self::Removed,
        Self::Renamed,
        Self::Name,
        Self::Loop,
    ];

    /// Returns the name, as the command has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Attributes => "attributes",
            Self::Xattrs => "extended attributes",
            Self::Removed => "removed",
            Self::Renamed => "renamed",
            Self::Name => "name",
            Self::Loop => "loop",
        }
    }
}

/// A change that both branches have made in different ways.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The path in the result; of a file that the result does not have, one that it had.
    pub path: PathBuf,
    /// The kind.
    pub kind: ConflictKind,
    /// The path of what FROM has, if it stands beside.
    pub beside: Option<PathBuf>,
}

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Files and directories that INTO has got from FROM, and those that stand beside.
    pub added: u64,
    /// Names that were removed from INTO, of files that got no other one.
    pub removed: u64,
    /// Names that files of INTO have got.
    pub moved: u64,
    /// Files and directories of INTO whose contents or attributes were changed.
    pub changed: u64,
    /// Files among them that both have changed, and that were merged by lines.
    pub texts: u64,
    /// Changes that both have made in different ways, by path.
    pub conflicts: Vec<Conflict>,
    /// The branch that has what a branch had before a rebase, unless one that can only be read has
    /// it.
    pub kept: Option<String>,
    /// Whether INTO, or the rebased branch, was changed: not by a dry run, not if there was nothing
    /// to do, and not if there were conflicts and the strategy is [`Strategy::Fail`].
    pub is_done: bool,
}
