//! `vfscale branch`: the branches of a volume, mounted or not.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use vfscale::{BranchInfo, Errno, Escaped, ForkOptions, Pool, PoolError};
use vfscale_fuse::control::Request;

use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::output::written;

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
    /// List the branches, with what each has for itself and where it comes from
    List(ListArgs),
    /// Delete a branch, and free its space
    Delete(NameArgs),
    /// Rename a branch
    Rename(RenameArgs),
    /// Give a branch the contents back that it had when it was forked last, or adopted another one
    ///
    /// Prints what goes by that. It becomes a branch of its own, BRANCH@1 or with the next number
    /// that is free: adopt it to undo the rollback, or delete it to free its space.
    Rollback(NameArgs),
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

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// The name of the new branch
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Print JSON instead of words
    #[arg(long)]
    json: bool,

    /// The image file or block device, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
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

/// Runs the command.
pub(crate) fn branch(args: &BranchArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        BranchCommand::Create(args) => create(args)?,
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
        BranchCommand::Rollback(args) => super::rollback::rollback(&args.image, &args.name)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    let &CreateArgs { read_only, as_synced, .. } = args;
    let (parent, name) = (args.from.clone(), args.name.clone());
    let request = Request::Fork { parent, name, read_only, as_synced, temporary: false };
    let ask = |dir: &Path| {
        if !as_synced {
            // First the data that the kernel holds back.
            elsewhere::sync_kernel(&args.image, dir)?;
        }
        elsewhere::ask(&args.image, dir, |connection| connection.tell(&request))
    };
    let here = || {
        with_pool(&args.image, Access::Convert, |pool| {
            let options = ForkOptions::new().read_only(read_only).as_synced(as_synced);
            pool.fork_with(&args.from, &args.name, options)
        })
    };
    at_server_or_here(&args.image, "branch", ask, here)
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
    let mut out = io::stdout().lock();
    written(if args.json {
        let text =
            serde_json::to_string_pretty(&json!(branches.iter().map(as_json).collect::<Vec<_>>()));
        text.map_err(io::Error::from).and_then(|text| writeln!(out, "{text}"))
    } else {
        branches.iter().try_for_each(|info| writeln!(out, "{}", words(info)))
    })
}

/// Lists the branches of the image of the mount at `dir`: none of a volume that is no pool.
fn branches(image: &Path, dir: &Path) -> Result<Vec<BranchInfo>, Failure> {
    elsewhere::ask(image, dir, |connection| match connection.branches() {
        Err(error) if error.errno() == Errno::OPNOTSUPP => Ok(Vec::new()),
        listed => listed,
    })
}

fn as_json(info: &BranchInfo) -> serde_json::Value {
    let BranchInfo { name, parent, size, read_only, depth, own } = info;
    json!({
        "name": name, "parent": parent, "size": size, "own": own, "read_only": read_only,
        "depth": depth,
    })
}

fn words(info: &BranchInfo) -> String {
    let access = if info.read_only { ", read-only" } else { "" };
    let from = info.parent.as_ref().map(|parent| format!(", from {}", Escaped::new(parent)));
    let (name, kib, from) = (Escaped::new(&info.name), info.own >> 10, from.unwrap_or_default());
    format!("{name}: {kib} KiB of its own{from}{access}")
}
