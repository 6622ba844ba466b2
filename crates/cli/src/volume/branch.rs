//! `vfscale branch`: the branches of a volume, mounted or not.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use vfscale::pool::{LIMIT_MIN, MAIN};
use vfscale::{BranchInfo, Errno, Escaped, ForkOptions, Pool, PoolError};
use vfscale_fuse::control::Request;

use super::log::{json_moment, moment};
use super::travel::{self, ReceiveArgs, SendArgs};
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::output::written;
use crate::{elsewhere, mounts, options};

#[derive(Debug, Args)]
pub(crate) struct BranchArgs {
    #[command(subcommand)]
    command: BranchCommand,
}

/// The commands, by name.
#[derive(Debug, Subcommand)]
enum BranchCommand {
    /// Make a branch: a copy that shares all blocks until they are changed
    ///
    /// Takes the same short time for all sizes. The first branch of an image makes it a pool, which
    /// can't be undone: the volume is the branch `main` from then on, and programs that do not know
    /// branches refuse the image. The image gets twice the size, and stays sparse. If it is
    /// mounted, calls that change it wait until all changes are written.
    Create(CreateArgs),
    /// List the branches: what deleting each frees, where it comes from, when it was made, and
    /// where it is mounted
    List(ListArgs),
    /// Delete a branch, and free its space
    Delete(NameArgs),
    /// Rename a branch
    Rename(RenameArgs),
    /// Limit the space that a branch may have for itself
    ///
    /// All that it has written since it was forked counts, its checkpoints included, until it gives
    /// that up. At the limit, changes that need more space fail with EDQUOT; reads, removals and
    /// other branches notice nothing. A branch that has more already loses nothing. The limit stays
    /// with the name; a rollback, a merge or an adoption begins the count anew.
    Limit(LimitArgs),
    /// Give a branch the contents back that it had when it was forked last, or adopted another one
    ///
    /// With --to, those of a checkpoint or another branch that can only be read. Prints what goes
    /// by that. It becomes a branch of its own, BRANCH@1 or with the next number that is free:
    /// adopt it to undo the rollback, or delete it to free its space. If the branch is mounted, its
    /// users go on: calls wait meanwhile, and open files that differ fail with ESTALE.
    Rollback(RollbackArgs),
    /// Write a branch to the standard output, for `branch receive` on another image
    ///
    /// With --since, only the blocks that differ from a branch which the receiver has: it takes the
    /// time and the size of the difference. A mounted branch is sent as a fork would have it. What
    /// was received is the same tree, with the same inode numbers. Each part has a checksum.
    ///
    /// Example: vfscale branch send disk.vfs:main@2 --since main@1 | ssh host vfscale branch
    /// receive copy.vfs
    Send(SendArgs),
    /// Make a branch of what `branch send` has written, from the standard input, and print its name
    ///
    /// The branch can only be read: fork it to change it, and leave it as long as streams are to
    /// come that go on from it. It is there when all of the stream has come; a stream that is
    /// damaged or cut leaves nothing, and so does a power cut.
    Receive(ReceiveArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// The branch that the new one is a copy of
    #[arg(long, value_name = "PARENT", default_value = vfscale::pool::MAIN)]
    from: String,

    /// The new branch can't be changed
    #[arg(long)]
    read_only: bool,

    /// Take what a power cut at this moment would leave of the parent, instead of everything that
    /// was done in it; faster, and the same unless the parent is mounted
    #[arg(long)]
    as_synced: bool,

    /// The space that the new branch may have for itself, see `vfscale branch limit`
    #[arg(long, value_name = "SIZE", value_parser = parse_limit, conflicts_with = "read_only")]
    limit: Option<u64>,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The name of the new branch
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// List the checkpoints as well
    #[arg(short, long)]
    all: bool,

    /// Print JSON instead of words
    #[arg(long)]
    json: bool,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

#[derive(Debug, Args)]
struct RollbackArgs {
    /// The checkpoint that the branch is rolled back to
    #[arg(long, value_name = "CHECKPOINT")]
    to: Option<String>,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The branch, mounted or not
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The branch, which must not be in use
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
struct RenameArgs {
    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The branch, which must not be in use
    #[arg(value_name = "NAME")]
    name: String,

    /// Its new name
    #[arg(value_name = "TO")]
    to: String,
}

#[derive(Debug, Args)]
struct LimitArgs {
    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The branch, mounted or not
    #[arg(value_name = "NAME")]
    name: String,

    /// At least 16M; `none` for no limit
    #[arg(value_name = "SIZE", value_parser = parse_limit_or_none)]
    limit: NewLimit,
}

/// A limit, or that there is none any more.
#[derive(Clone, Copy, Debug)]
struct NewLimit(Option<u64>);

fn parse_limit_or_none(text: &str) -> Result<NewLimit, String> {
    if text == "none" { Ok(NewLimit(None)) } else { parse_limit(text).map(|it| NewLimit(Some(it))) }
}

/// Parses the limit of a branch.
pub(crate) fn parse_limit(text: &str) -> Result<u64, String> {
    match options::parse_bytes(text)? {
        bytes if bytes < LIMIT_MIN => Err("a branch needs 16M at least".into()),
        bytes => Ok(bytes),
    }
}

/// Runs the command.
pub(crate) fn branch(args: &BranchArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        BranchCommand::Create(args) => {
            fork(&args.image, &args.from, &args.name, (args.read_only, args.as_synced))?;
            if args.limit.is_some() {
                limit(&args.image, &args.name, args.limit)?;
            }
        }
        BranchCommand::List(args) => return list(args),
        BranchCommand::Delete(args) => {
            let request = Request::Delete(args.name.clone());
            change(&args.image, &request, |pool| {
                pool.delete(&args.name)?;
                pool.reap()
            })?;
        }
        BranchCommand::Rename(args) => {
            let request = Request::Rename(args.name.clone(), args.to.clone());
            change(&args.image, &request, |pool| pool.rename(&args.name, &args.to))?;
        }
        BranchCommand::Limit(args) => limit(&args.image, &args.name, args.limit.0)?,
        BranchCommand::Send(args) => return travel::send(args),
        BranchCommand::Receive(args) => return travel::receive(args),
        BranchCommand::Rollback(RollbackArgs { to, image, name }) => {
            super::rollback::rollback(image, name, to.as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a branch, in the image or through its mount.
pub(crate) fn fork(
    image: &Path,
    parent: &str,
    name: &str,
    (read_only, as_synced): (bool, bool),
) -> Result<(), Failure> {
    let (from, new) = (parent.to_owned(), name.to_owned());
    let request = Request::Fork { parent: from, name: new, read_only, as_synced, temporary: false };
    let ask = |dir: &Path| {
        if !as_synced {
            // First the data that the kernel holds back.
            elsewhere::sync_kernel(image, dir)?;
        }
        elsewhere::ask(image, dir, |connection| connection.tell(&request))
    };
    let here = || {
        with_pool(image, Access::Convert, |pool| {
            let options = ForkOptions::new().read_only(read_only).as_synced(as_synced);
            pool.fork_with(parent, name, options)
        })
    };
    at_server_or_here(image, "branch", ask, here)
}

/// Limits the space of a branch, in the image or through its mount.
pub(crate) fn limit(image: &Path, name: &str, limit: Option<u64>) -> Result<(), Failure> {
    let request = Request::Limit(name.to_owned(), limit);
    change(image, &request, |pool| pool.set_limit(name, limit))
}

/// Makes a change, in the image or through its mount.
fn change(
    image: &Path,
    request: &Request,
    change: impl Fn(&Pool) -> Result<(), PoolError>,
) -> Result<(), Failure> {
    let ask = |dir: &Path| elsewhere::ask(image, dir, |connection| connection.tell(request));
    at_server_or_here(image, "branch", ask, || with_pool(image, Access::Write, &change))
}

fn list(args: &ListArgs) -> Result<ExitCode, Failure> {
    let ask = |dir: &Path| branches(&args.image, dir);
    let here = || match with_pool(&args.image, Access::Read, |pool| Ok(pool.branches())) {
        Err(Failure::Pool(PoolError::NoPool { .. })) => Ok(Vec::new()),
        listed => listed,
    };
    let branches = at_server_or_here(&args.image, "branch", ask, here)?;
    crate::native::tell_left(&args.image, &branches);
    let mounted = mounted(&args.image);
    let shown = branches.iter().filter(|info| args.all || !info.is_checkpoint());
    let shown: Vec<_> = shown.map(|info| (info, dirs_of(info, &mounted))).collect();
    let mut out = io::stdout().lock();
    written(if args.json {
        let text =
            serde_json::to_string_pretty(&json!(shown.iter().map(as_json).collect::<Vec<_>>()));
        text.map_err(io::Error::from).and_then(|text| writeln!(out, "{text}"))
    } else {
        shown.iter().try_for_each(|shown| writeln!(out, "{}", words(shown)))
    })
}

/// Lists the branches of the image of the mount at `dir`: none of a volume that is no pool.
fn branches(image: &Path, dir: &Path) -> Result<Vec<BranchInfo>, Failure> {
    elsewhere::ask(image, dir, |connection| match connection.branches() {
        Err(error) if error.errno() == Errno::OPNOTSUPP => Ok(Vec::new()),
        listed => listed,
    })
}

/// Returns where the image is mounted, which may be named by one of its mounts, and which branch is
/// served there; nothing without a table of mounts.
fn mounted(image: &Path) -> Vec<(PathBuf, String)> {
    let table = mounts::table().unwrap_or_default();
    let source = mounts::is_dir(image).then(|| mounts::source_around(&table, image)).flatten();
    let dirs = mounts::of(&table, source.as_deref().unwrap_or(image)).into_iter();
    let served = dirs.filter_map(|dir| {
        let branch = elsewhere::serving(&dir).ok()?.branch;
        Some((dir, branch.unwrap_or_else(|| MAIN.to_owned())))
    });
    served.collect()
}

/// A branch, with the directories at which it is mounted.
type Shown<'s> = (&'s BranchInfo, Vec<&'s Path>);

fn dirs_of<'s>(info: &BranchInfo, mounted: &'s [(PathBuf, String)]) -> Vec<&'s Path> {
    mounted.iter().filter(|(_, branch)| *branch == info.name).map(|(dir, _)| &**dir).collect()
}

fn as_json((info, dirs): &Shown<'_>) -> serde_json::Value {
    let BranchInfo { name, parent, size, read_only, depth, own, limit, made, text } = info;
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.to_string_lossy()).collect();
    json!({
        "name": name, "parent": parent, "size": size, "own": own, "limit": limit,
        "read_only": read_only, "depth": depth, "made": json_moment(*made), "text": text, "mounted": dirs,
    })
}

fn words((info, dirs): &Shown<'_>) -> String {
    let mut line = format!("{}: {} KiB of its own", Escaped::new(&info.name), info.own >> 10);
    let mut add = |before: &str, what: String| line += &format!(", {before}{what}");
    if let Some(limit) = info.limit {
        add("limited to ", format!("{} KiB", limit >> 10));
    }
    if let Some(parent) = &info.parent {
        add("from ", Escaped::new(parent).to_string());
    }
    if info.read_only {
        add("", "read-only".into());
    }
    if let Some(made) = info.made {
        add("made ", moment(made));
    }
    for dir in dirs {
        add("mounted at ", Escaped::new(dir).to_string());
    }
    if !info.text.is_empty() {
        line += &format!(": {}", Escaped::message(&info.text));
    }
    line
}
