//! Views that Linux has mounted, and what commands have changed above them; `vfscale commit` and
//! `discard`.
//!
//! | module | contents |
//! | --- | --- |
//! | `branches` | the branches of the image, in this process or by requests to its server |
//! | `session` | the uses of views: their files, leases and changes |
//! | `follower` | unmounts that reach the namespace of a run |
//! | `mounts` | the namespace of a run, a view, and an overlay above it |

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use vfscale::{BranchInfo, Escaped, PoolError};
use vfscale_command::say;

use crate::elsewhere::branches::Access;
use crate::error::Failure;
use branches::{Branches, with_branches};
use session::{Lock, Session};

pub(crate) mod branches;
mod follower;
pub(crate) mod mounts;
pub(crate) mod session;

/// Arguments of `commit` and `discard`.
#[derive(Debug, Args)]
pub(crate) struct LeftArgs {
    /// The image file, mounted or not
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The branch of the run
    #[arg(value_name = "BRANCH", default_value = vfscale::pool::MAIN)]
    branch: String,
}

/// Has `act` use the branches of an image to commit changes, which would be lost with this process
/// if they are `in_memory`: waits then as long as another process has it open and serves none.
fn to_commit<T>(
    image: &Path,
    in_memory: bool,
    act: impl Fn(&Branches<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut is_told = false;
    loop {
        match with_branches(image, Access::Write, &act) {
            Err(failure @ (Failure::Busy(_) | Failure::InUse(..))) if in_memory => {
                if !std::mem::replace(&mut is_told, true) {
                    say(format_args!("vfscale: waits to commit what is in memory: {failure}"));
                }
            }
            done => return done,
        }
    }
}

/// Returns the path of an image, which is one of the host.
pub(crate) fn image_file(image: &Path) -> Result<PathBuf, Failure> {
    image.canonicalize().map_err(|_| Failure::Pool(PoolError::Missing(image.to_owned())))
}

/// Returns the runs that have a branch, or have left changes of it.
pub(crate) fn runs_of<'b>(
    image: &Path,
    branch: &'b str,
) -> impl Iterator<Item = Session> + use<'b> {
    let all = session::all(image).into_iter();
    all.filter(move |it| it.branch == branch && it.upper.is_some())
}

/// Returns the failure for a branch that a run has.
pub(crate) fn refused(image: &Path, other: &Session) -> Failure {
    let branch = Escaped::new(&other.branch);
    let why = if other.is_in_use() {
        let pid = other.process();
        format!("the branch `{branch}` is that of another native run (process {pid}); name another")
    } else {
        let image = Escaped::new(image);
        format!(
            "a native run was killed and has left changes of the branch `{branch}`: `vfscale \
             commit {image} {branch}` keeps them, `vfscale discard {image} {branch}` drops them"
        )
    };
    Failure::Refused(image.to_owned(), why)
}

/// Tells of each run that was killed and has left changes.
pub(crate) fn tell_left(image: &Path, branches: &[BranchInfo]) {
    let left = session::all(image).into_iter();
    for session in left.filter(|it| it.has_changes(branches) && !it.is_in_use()) {
        say(format_args!("vfscale: {}", refused(image, &session)));
    }
}

/// Makes the changes of a session in its branch, and ends it.
pub(crate) fn commit_now(image: &Path, session: &Session) -> Result<(), Failure> {
    let (kept_in, in_memory) = (session.upper_dir(), session.is_in_memory());
    let (shown, branch) = (Escaped::new(image), Escaped::new(&session.branch));
    let ingested = to_commit(image, in_memory, |branches| session.ingest(branches));
    let kept = ingested.inspect_err(|_| match in_memory {
        true => say(format_args!("vfscale: the changes were in memory, and are lost")),
        false => say(format_args!(
            "vfscale: the changes are kept in {}; `vfscale commit {shown} {branch}` tries again",
            Escaped::new(&kept_in)
        )),
    })?;
    let end = |_lock| with_branches(image, Access::Write, |it| session.clone().end(it));
    session::lock(image).and_then(end).inspect_err(|_| {
        say(format_args!(
            "vfscale: the changes are in the branch `{}`; `vfscale discard {shown} {branch}` removes \
             what is left of the run",
            Escaped::new(kept.as_deref().unwrap_or(&session.branch))
        ));
    })?;
    let Some(kept) = kept else { return Ok(()) };
    let why = format!(
        "the branch `{branch}` has changed meanwhile, or is in use, and stays as it is; the changes \
         of the run are in the branch `{}`",
        Escaped::new(&kept)
    );
    Err(Failure::Refused(image.to_owned(), why))
}

/// Ends a session without its changes.
pub(crate) fn discard_now(image: &Path, session: &Session, _lock: &Lock) -> Result<(), Failure> {
    with_branches(image, Access::Write, |branches| session.clone().end(branches))
}

/// Returns what a run that was killed has left of a branch.
fn left(args: &LeftArgs) -> Result<(PathBuf, Session, Lock), Failure> {
    let image = image_file(&args.image)?;
    let lock = session::lock(&image)?;
    let branches = with_branches(&image, Access::Write, |branches| {
        let infos = branches.list()?;
        session::clean((&image, &lock), branches, None).map(|()| infos)
    })?;
    let mut left = runs_of(&image, &args.branch);
    let Some(session) = left.find(|it| it.has_changes(&branches) || it.is_in_use()) else {
        let why = format!("no run has left changes of `{}`", Escaped::new(&args.branch));
        return Err(Failure::Refused(image, why));
    };
    match session.is_in_use() {
        true => Err(refused(&image, &session)),
        false => Ok((image, session, lock)),
    }
}

/// Keeps what a run that was killed has left.
pub(crate) fn commit(args: &LeftArgs) -> Result<ExitCode, Failure> {
    if !rustix::process::geteuid().is_root() {
        // Otherwise a user may not read all that the command has written. An error tells of that.
        let _ = mounts::unshare_users(0);
    }
    let (image, mut session, lock) = left(args)?;
    session.take()?;
    // Others need not wait for the files: they find that the session is one of this process.
    drop(lock);
    commit_now(&image, &session).map(|()| ExitCode::SUCCESS)
}

/// Drops what a run that was killed has left.
pub(crate) fn discard(args: &LeftArgs) -> Result<ExitCode, Failure> {
    let (image, session, lock) = left(args)?;
    discard_now(&image, &session, &lock).map(|()| ExitCode::SUCCESS)
}
