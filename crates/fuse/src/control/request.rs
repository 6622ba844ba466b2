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
    /// Limit how many bytes a branch may have for itself, or end that.
    Limit(String, Option<u64>),
    /// Give a branch the contents of its last fork back, or of the second one, and tell what went.
    Rollback(String, Option<String>),
    /// Make a checkpoint of a branch, with a text, and tell its name.
    Checkpoint(String, String),
    /// Tell the history of a branch.
    Log(String),
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
        /// Whether `from` gets the result, and `into` stays
        /// ([`Pool::rebase`](vfscale::Pool::rebase)).
        is_rebase: bool,
    },
    /// Write the layer that leads from a branch to another one
    /// ([`Pool::layer`](vfscale::Pool::layer)) to a file, which follows.
    Layer {
        /// A branch.
        a: String,
        /// The one that it leads to.
        b: String,
        /// Whether that is compared with what both had in common.
        with_base: bool,
        /// The paths that are looked at, with what is below them; without any, all.
        paths: Vec<OsString>,
    },
    /// Apply a layer or a patch to a branch ([`Pool::apply`](vfscale::Pool::apply)), which is in a
    /// file that follows.
    Apply {
        /// The branch.
        branch: String,
        /// How many directories are taken off the names in a patch.
        strip: u64,
        /// Whether it is only tried.
        dry_run: bool,
    },
    /// Write a branch as a stream ([`Pool::send`](vfscale::Pool::send)) to a file, which follows.
    Send {
        /// The branch.
        branch: String,
        /// The branch to go on from.
        since: Option<String>,
        /// How many bytes of the stream are left out.
        skip: u64,
    },
    /// Make a branch of a stream ([`Pool::receive`](vfscale::Pool::receive)), which is in a file
    /// that follows, with this name or the one that it had.
    Receive(Option<String>),
    /// Compare two branches.
    Diff {
        /// A branch.
        a: String,
        /// The one that it is compared with.
        b: String,
        /// Whether that is compared with what both had in common.
        with_base: bool,
        /// Whether a patch is sent, and not the differences.
        as_patch: bool,
        /// The paths that are looked at, with what is below them; without any, all.
        paths: Vec<OsString>,
    },
    /// Check the volume in a branch as it is now, and tell so many findings at most.
    Check(String, u64),
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
        /// Whether the overlay is one with `userxattr`.
        userxattr: bool,
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
            Self::Limit(of, most) => {
                vec!["limit".into(), of.clone(), most.unwrap_or(0).to_string()]
            }
            Self::Rollback(name, to) => {
                ["rollback".into(), name.clone()].into_iter().chain(to.clone()).collect()
            }
            Self::Checkpoint(branch, text) => {
                vec!["checkpoint".into(), branch.clone(), text.clone()]
            }
            Self::Log(branch) => vec!["log".into(), branch.clone()],
            Self::Adopt(parent, child) => vec!["adopt".into(), parent.clone(), child.clone()],
            Self::Merge { from, into, strategy, dry_run, is_rebase } => {
                let options = [strategy.name().into(), dry_run.to_string(), is_rebase.to_string()];
                ["merge".into(), from.clone(), into.clone()].into_iter().chain(options).collect()
            }
            Self::Apply { branch, strip, dry_run } => {
                vec!["apply".into(), branch.clone(), strip.to_string(), dry_run.to_string()]
            }
            Self::Send { branch, since, skip } => {
                let words = ["send".into(), branch.clone(), skip.to_string()];
                words.into_iter().chain(since.clone()).collect()
            }
            Self::Receive(name) => ["receive".into()].into_iter().chain(name.clone()).collect(),
            Self::Layer { a, b, with_base, paths } => {
                let words = ["layer".to_owned(), a.clone(), b.clone(), with_base.to_string()];
                let fields = words.into_iter().map(OsString::from);
                return fields.chain(paths.iter().cloned()).collect();
            }
            Self::Check(branch, most) => vec!["check".into(), branch.clone(), most.to_string()],
            Self::Diff { a, b, with_base, as_patch, paths } => {
                let words = [a.clone(), b.clone(), with_base.to_string(), as_patch.to_string()];
                let words = words.into_iter().map(OsString::from);
                let fields = [OsString::from("diff")].into_iter().chain(words);
                return fields.chain(paths.iter().cloned()).collect();
            }
            Self::Wait(device) => vec!["wait".into(), device.clone()],
            Self::State(branch) => vec!["state".into(), branch.clone()],
            Self::View(branch) => vec!["view".into(), branch.clone()],
            Self::Ingest { branch, base, userxattr } => {
                vec!["ingest".into(), branch.clone(), base.clone(), userxattr.to_string()]
            }
            Self::Mount { branch, namespaces, arguments } => {
                let fields = ["mount".into(), branch.into(), namespaces.clone()];
                return fields.into_iter().chain(arguments.iter().cloned()).collect();
            }
        };
        words.into_iter().map(OsString::from).collect()
    }

    /// Returns the request that a message makes; `None` if this version knows none like it.
    pub(super) fn decode(fields: &[OsString]) -> Option<Request> {
        if let Some(request) = decode_bytes(fields) {
            return Some(request);
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
            ["limit", name, limit] => {
                Self::Limit(name.to_owned(), Some(limit.parse().ok()?).filter(|it| *it != 0))
            }
            ["rollback", name] => Self::Rollback(name.to_owned(), None),
            ["rollback", name, to] => Self::Rollback(name.to_owned(), Some(to.to_owned())),
            ["checkpoint", branch, text] => Self::Checkpoint(branch.to_owned(), text.to_owned()),
            ["log", branch] => Self::Log(branch.to_owned()),
            ["adopt", parent, child] => Self::Adopt(parent.to_owned(), child.to_owned()),
            ["apply", branch, strip, dry_run] => Self::Apply {
                branch: branch.to_owned(),
                strip: strip.parse().ok()?,
                dry_run: dry_run.parse().ok()?,
            },
            ["send", branch, skip] => {
                Self::Send { branch: branch.into(), since: None, skip: skip.parse().ok()? }
            }
            ["send", branch, skip, since] => Self::Send {
                branch: branch.to_owned(),
                since: Some(since.to_owned()),
                skip: skip.parse().ok()?,
            },
            ["receive"] => Self::Receive(None),
            ["receive", name] => Self::Receive(Some(name.to_owned())),
            ["merge", from, into, strategy, dry_run, is_rebase] => Self::Merge {
                from: from.to_owned(),
                into: into.to_owned(),
                strategy: Strategy::ALL.into_iter().find(|it| it.name() == strategy)?,
                dry_run: dry_run.parse().ok()?,
                is_rebase: is_rebase.parse().ok()?,
            },
            ["check", branch, findings] => Self::Check(branch.to_owned(), findings.parse().ok()?),
            ["wait", device] => Self::Wait(device.to_owned()),
            ["state", branch] => Self::State(branch.to_owned()),
            ["view", branch] => Self::View(branch.to_owned()),
            ["ingest", branch, base, userxattr] => Self::Ingest {
                branch: branch.to_owned(),
                base: base.to_owned(),
                userxattr: userxattr.parse().ok()?,
            },
            _ => return None,
        })
    }
}

/// Returns a request whose last fields need not be text.
fn decode_bytes(fields: &[OsString]) -> Option<Request> {
    if let [kind, branch, namespaces, arguments @ ..] = fields
        && kind == "mount"
    {
        let (branch, namespaces) = (branch.to_str()?.to_owned(), namespaces.clone());
        return Some(Request::Mount { branch, namespaces, arguments: arguments.to_vec() });
    }
    if let [kind, a, b, with_base, as_patch, paths @ ..] = fields
        && kind == "diff"
    {
        return Some(Request::Diff {
            a: a.to_str()?.to_owned(),
            b: b.to_str()?.to_owned(),
            with_base: with_base.to_str()?.parse().ok()?,
            as_patch: as_patch.to_str()?.parse().ok()?,
            paths: paths.to_vec(),
        });
    }
    if let [kind, a, b, with_base, paths @ ..] = fields
        && kind == "layer"
    {
        return Some(Request::Layer {
            a: a.to_str()?.to_owned(),
            b: b.to_str()?.to_owned(),
            with_base: with_base.to_str()?.parse().ok()?,
            paths: paths.to_vec(),
        });
    }
    None
}
