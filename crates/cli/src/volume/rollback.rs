//! `vfscale branch rollback`: back to the last fork or adoption, or to a checkpoint, and what goes
//! by that.

use std::io::{self, Write};
use std::path::Path;

use vfscale::Escaped;
use vfscale::pool::{Difference, MAIN};
use vfscale_fuse::control::{Reply, Request};

use super::diff::{take, words};
use crate::elsewhere;
use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::error::Failure;
use crate::output::written;

/// Most differences that are printed.
const SHOWN_MAX: usize = 10;

/// The branch that has what went, if there is one and the server tells it, and what that is.
type Gone = (Option<String>, Result<Vec<Difference>, Failure>);

/// Rolls a branch back, and prints what goes.
pub(super) fn rollback(image: &Path, name: &str, to: Option<&str>) -> Result<(), Failure> {
    let here = || {
        with_pool(image, Access::Write, |pool| {
            let kept = match to {
                Some(to) => pool.rollback_to(name, to)?,
                None => pool.rollback(name)?,
            };
            // The image is this process's alone, so this is what went.
            let gone = kept.as_ref().map(|kept| pool.diff(name, kept)).transpose();
            pool.reap()?;
            Ok((kept, gone.map(Option::unwrap_or_default).map_err(Failure::from)))
        })
    };
    let (kept, gone) =
        at_server_or_here(image, "branch", |dir| served(image, dir, (name, to)), here)?;
    if let Some(kept) = kept {
        written(print(image, name, &kept, gone.as_deref().ok()))?;
    }
    gone.map(drop)
}

/// Has the process that has the image open roll the branch back. Fails if that is not done.
fn served(image: &Path, dir: &Path, (name, to): (&str, Option<&str>)) -> Result<Gone, Failure> {
    let (mut kept, mut gone) = (None, Vec::new());
    let request = Request::Rollback(name.to_owned(), to.map(str::to_owned));
    // First the data that the kernel holds back.
    elsewhere::sync_kernel(image, dir)?;
    let done = elsewhere::ask(image, dir, |connection| {
        connection.ask(&request, |reply| match reply {
            Reply::Kept(name) => kept.replace(name).is_none(),
            reply => take(reply, &mut gone),
        })
    });
    match done {
        Err(failure) if kept.is_none() => Err(failure),
        done => Ok((kept, done.map(|()| gone))),
    }
}

fn print(image: &Path, name: &str, kept: &str, gone: Option<&[Difference]>) -> io::Result<()> {
    let (image, mut out) = (Escaped::new(image), io::stdout().lock());
    writeln!(out, "{name} is rolled back; what it had since then is branch {kept:?}:")?;
    if gone.is_some_and(<[_]>::is_empty) {
        writeln!(out, "  nothing but times")?;
    }
    let gone = gone.unwrap_or_default();
    for difference in gone.iter().take(SHOWN_MAX) {
        writeln!(out, "  {}", words(difference))?;
    }
    if let Some(more @ 1..) = gone.len().checked_sub(SHOWN_MAX) {
        writeln!(out, "  and {more} more: `vfscale diff {image} {name:?} {kept:?}`")?;
    }
    let parent = if name == MAIN { String::new() } else { format!("--parent {name:?} ") };
    writeln!(out, "to have it back: `vfscale adopt {parent}{image} {kept:?}`")?;
    writeln!(out, "to free its space: `vfscale branch delete {image} {kept:?}`")
}
