//! The requests to the server of a mount.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use vfscale::Strategy;
use vfscale::posix::FstrimRange;

use super::message::Fields;

/// How large something becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// As many bytes.
    To(u64),
    /// More than it has, by so many bytes.
    By(u64),
}

impl Growth {
    /// Returns the new size of something with this size.
    #[must_use]
    pub fn of(self, size: u64) -> u64 {
        match self {
            Self::To(bytes) => bytes,
            Self::By(more) => size.saturating_add(more),
        }
    }

    fn encode(self) -> String {
        match self {
            Self::To(bytes) => bytes.to_string(),
            Self::By(more) => format!("+{more}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        match text.strip_prefix('+') {
            Some(more) => more.parse().ok().map(Self::By),
            None => text.parse().ok().map(Self::To),
        }
    }
}

/// A request to the server of a mount.
///
/// Data that the kernel holds back ([`writeback`](crate::Builder::writeback)) is part of none,
/// unless it was synced before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Grow the volume in a branch of the image, or the one that is mounted, to a size that is
    /// rounded down to one that it can have.
    Grow(Option<String>, Growth),
    /// Grow the space that the branches of the image share, without a size to all of its device.
    GrowSpace(Option<Growth>),
    /// Discard the free blocks of a range.
    Trim(FstrimRange),
    /// Tell the statistics of the mount.
    Statistics,
    /// Hold the volume still until the connection ends, and for at most this time, in milliseconds.
    Freeze(Duration),
    /// List the branches of the image.
    Branches,
    /// Make a branch. The first one makes the image a pool
    /// ([`Volume::make_pool`](vfscale::Volume::make_pool)).
    Fork {
        /// The branch that it is a copy of.
        parent: String,
        /// Its name.
        name: String,
        /// Whether it can only be read.
        read_only: bool,
        /// Whether it has what a power cut would leave of the parent.
        as_synced: bool,
        /// Whether whoever opens the image next deletes it. Such a branch is not read-only.
        temporary: bool,
    },
    /// Delete a branch.
    Delete(String),
    /// Rename a branch to the second name.
    Rename(String, String),
    /// Give a branch the contents of its last fork back, and tell what went.
    Rollback(String),
    /// Give a branch the contents of the second one, which was forked from it.
    Adopt(String, String),
    /// Make in a branch what another one has changed, and tell what was done.
    Merge {
        /// The branch whose changes are taken.
        from: String,
        /// The branch that takes them.
        into: String,
        /// The way to decide conflicts.
        strategy: Strategy,
        /// Whether it is only told.
        dry_run: bool,
    },
    /// Compare two branches.
    Diff(String, String),
    /// Tell an id of what a branch has now ([`Pool::state`](vfscale::Pool::state)). That of `main`
    /// makes the image a pool.
    State(String),
    /// Write a view of a branch ([`Pool::view`](vfscale::Pool::view)). A directory follows, with
    /// the name of the file.
    View(String),
    /// Take over into a branch what was changed above a view
    /// ([`Pool::ingest`](vfscale::Pool::ingest)). The directory with the view follows, and the one
    /// with the upper layer and that for its work; each with the names.
    Ingest {
        /// The branch that is changed.
        branch: String,
        /// The branch of the view.
        base: String,
    },
    /// Serve a further branch of the image, whose `/dev/fuse` follows. The mount of a run lasts
    /// until its program [finishes](super::Connection::finish) or is gone; several programs may
    /// share it ([`Reply::Place`](super::Reply::Place)), and the last one unmounts it.
    Mount {
        /// The branch.
        branch: String,
        /// The namespaces of users and of processes of the program.
        namespaces: OsString,
        /// Its command line.
        arguments: Vec<OsString>,
    },
    /// Tell which mounts the process serves.
    Places,
    /// Tell when the mount with this device number (`MAJOR:MINOR`) is ended, and its volume closed.
    Wait(String),
}

impl Request {
    /// Returns the fields of a message.
    pub(super) fn encode(&self) -> Fields {
        let words: Vec<String> = match self {
            Self::Grow(branch, growth) => {
                ["grow".into(), growth.encode()].into_iter().chain(branch.clone()).collect()
            }
            Self::GrowSpace(growth) => {
                let growth = growth.map(Growth::encode);
                ["grow-space".into()].into_iter().chain(growth).collect()
            }
            Self::Trim(FstrimRange { start, len, minlen }) => ["trim".into()]
                .into_iter()
                .chain([start, len, minlen].map(u64::to_string))
                .collect(),
            Self::Statistics => vec!["statistics".into()],
            Self::Freeze(limit) => vec!["freeze".into(), limit.as_millis().to_string()],
            Self::Branches => vec!["branches".into()],
            Self::Places => vec!["places".into()],
            Self::Fork { parent, name, read_only, as_synced, temporary } => {
                let flags = [*read_only, *as_synced, *temporary].map(|it| it.to_string());
                ["fork".into(), parent.clone(), name.clone()].into_iter().chain(flags).collect()
            }
            Self::Delete(name) => vec!["delete".into(), name.clone()],
            Self::Rename(name, to) => vec!["rename".into(), name.clone(), to.clone()],
            Self::Rollback(name) => vec!["rollback".into(), name.clone()],
            Self::Adopt(parent, child) => vec!["adopt".into(), parent.clone(), child.clone()],
            Self::Merge { from, into, strategy, dry_run } => {
                let options = [strategy.name().into(), dry_run.to_string()];
                ["merge".into(), from.clone(), into.clone()].into_iter().chain(options).collect()
            }
            Self::Diff(a, b) => vec!["diff".into(), a.clone(), b.clone()],
            Self::Wait(device) => vec!["wait".into(), device.clone()],
            Self::State(branch) => vec!["state".into(), branch.clone()],
            Self::View(branch) => vec!["view".into(), branch.clone()],
            Self::Ingest { branch, base } => vec!["ingest".into(), branch.clone(), base.clone()],
            Self::Mount { branch, namespaces, arguments } => {
                let fields = ["mount".into(), branch.into(), namespaces.clone()];
                return fields.into_iter().chain(arguments.iter().cloned()).collect();
            }
        };
        words.into_iter().map(OsString::from).collect()
    }

    /// Returns the request that a message makes; `None` if this version knows none like it.
    pub(super) fn decode(fields: &[OsString]) -> Option<Request> {
        if let [kind, branch, namespaces, arguments @ ..] = fields
            && kind == "mount"
        {
            let (branch, namespaces) = (branch.to_str()?.to_owned(), namespaces.clone());
            return Some(Self::Mount { branch, namespaces, arguments: arguments.to_vec() });
        }
        let words: Vec<&str> =
            fields.iter().map(OsString::as_os_str).map(OsStr::to_str).collect::<Option<_>>()?;
        Some(match words[..] {
            ["grow", growth] => Self::Grow(None, Growth::decode(growth)?),
            ["grow", growth, branch] => Self::Grow(Some(branch.into()), Growth::decode(growth)?),
            ["grow-space"] => Self::GrowSpace(None),
            ["grow-space", growth] => Self::GrowSpace(Some(Growth::decode(growth)?)),
            ["trim", start, len, minlen] => {
                let (start, len) = (start.parse().ok()?, len.parse().ok()?);
                Self::Trim(FstrimRange { start, len, minlen: minlen.parse().ok()? })
            }
            ["statistics"] => Self::Statistics,
            ["freeze", limit] => Self::Freeze(Duration::from_millis(limit.parse().ok()?)),
            ["branches"] => Self::Branches,
            ["places"] => Self::Places,
            ["fork", parent, name, read_only, as_synced, temporary] => Self::Fork {
                parent: parent.to_owned(),
                name: name.to_owned(),
                read_only: read_only.parse().ok()?,
                as_synced: as_synced.parse().ok()?,
                temporary: temporary.parse().ok()?,
            },
            ["delete", name] => Self::Delete(name.to_owned()),
            ["rename", name, to] => Self::Rename(name.to_owned(), to.to_owned()),
            ["rollback", name] => Self::Rollback(name.to_owned()),
            ["adopt", parent, child] => Self::Adopt(parent.to_owned(), child.to_owned()),
            ["merge", from, into, strategy, dry_run] => Self::Merge {
                from: from.to_owned(),
                into: into.to_owned(),
                strategy: Strategy::ALL.into_iter().find(|it| it.name() == strategy)?,
                dry_run: dry_run.parse().ok()?,
            },
            ["diff", a, b] => Self::Diff(a.to_owned(), b.to_owned()),
            ["wait", device] => Self::Wait(device.to_owned()),
            ["state", branch] => Self::State(branch.to_owned()),
            ["view", branch] => Self::View(branch.to_owned()),
            ["ingest", branch, base] => {
                Self::Ingest { branch: branch.to_owned(), base: base.to_owned() }
            }
            _ => return None,
        })
    }
}
