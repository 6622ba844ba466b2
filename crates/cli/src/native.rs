//! Views that Linux has mounted, and what commands have changed above them; `vfscale commit` and
//! `discard`.
//!
//! | module | contents |
//! | --- | --- |
//! | `session` | the uses of views: their files, leases and changes |
//! | `mounts` | the namespace of a run, a view, and an overlay above it |

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use vfscale::block::Error as DeviceError;
use vfscale::{BranchInfo, Escaped, Pool, PoolError};
use vfscale_command::say;

use crate::elsewhere::is_locked;
use crate::error::Failure;
use crate::{device, mounts as table};
use session::{Session, Upper};

pub(crate) mod mounts;
pub(crate) mod session;

/// Time for another process to close the image.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two tries to open it.
const STEP: Duration = Duration::from_millis(20);

/// Arguments of `commit` and `discard`.
#[derive(Debug, Args)]
pub(crate) struct LeftArgs {
    /// The image file, not mounted
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The branch of the run
    #[arg(value_name = "BRANCH", default_value = vfscale::pool::MAIN)]
    branch: String,
}

/// Opens the pool in an image, which a volume becomes if it may; waits for other processes that
/// have it open for a moment.
pub(crate) fn open(image: &Path, convert: bool) -> Result<Pool, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        let opened = device::pool(image).convert(convert).open();
        let Err(PoolError::Device(locked @ DeviceError::Locked { .. })) = opened else {
            return Ok(opened?);
        };
        if let [dir, ..] = &table::of(&table::table()?, image)[..] {
            let dir = Escaped::new(dir);
            let why = format!("it is mounted at {dir}; unmount it first: `vfscale umount {dir}`");
            return Err(Failure::Refused(image.to_owned(), why));
        }
        if Instant::now() >= end {
            return Err(PoolError::Device(locked).into());
        }
        std::thread::sleep(STEP);
    }
}

/// Opens the pool in an image to commit changes, which would be lost with this process if they are
/// `in_memory`: waits then as long as another process has it open.
fn open_to_commit(image: &Path, in_memory: bool) -> Result<Pool, Failure> {
    let mut is_told = false;
    loop {
        let opened = open(image, false);
        let is_mounted = matches!(opened, Err(Failure::Refused(..)));
        let is_busy = is_mounted || opened.as_ref().is_err_and(is_locked);
        if !in_memory || !is_busy {
            return opened;
        }
        if let (Err(failure), false) = (&opened, is_told) {
            is_told = true;
            say(format_args!("vfscale: waits to commit what is in memory: {failure}"));
        }
        std::thread::sleep(STEP);
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
pub(crate) fn commit_now(image: &Path, session: Session) -> Result<(), Failure> {
    let kept_in = session.upper_dir();
    let branch = session.branch.clone();
    let in_memory = matches!(session.upper, Some(Upper::Memory(_)));
    let committed = open_to_commit(image, in_memory).and_then(|pool| {
        let ingested = session.ingest(&pool).map_err(Failure::from);
        let ended = ingested.and_then(|kept| session.end(&pool).map(|()| kept));
        let closed = pool.close();
        let kept = ended?;
        closed?;
        Ok(kept)
    });
    match committed {
        Ok(None) => Ok(()),
        Ok(Some(kept)) => {
            let (branch, kept) = (Escaped::new(&branch), Escaped::new(&kept));
            let why = format!(
                "the branch `{branch}` has changed meanwhile, or is in use, and stays as it is; \
                 the changes of the run are in the branch `{kept}`"
            );
            Err(Failure::Refused(image.to_owned(), why))
        }
        Err(error) if in_memory => {
            say(format_args!("vfscale: the changes were in memory, and are lost"));
            Err(error)
        }
        Err(error) => {
            let (image, dir, branch) =
                (Escaped::new(image), Escaped::new(&kept_in), Escaped::new(&branch));
            say(format_args!(
                "vfscale: the changes are kept in {dir}; `vfscale commit {image} {branch}` tries \
                 again"
            ));
            Err(error)
        }
    }
}

/// Ends a session without its changes.
pub(crate) fn discard_now(image: &Path, session: Session) -> Result<(), Failure> {
    let pool = open(image, false)?;
    let ended = session.end(&pool);
    pool.close()?;
    ended
}

/// Returns what a run that was killed has left of a branch.
fn left(args: &LeftArgs) -> Result<(PathBuf, Session), Failure> {
    let image = image_file(&args.image)?;
    let pool = open(&image, false)?;
    let branches = pool.branches();
    let cleaned = session::clean(&image, &pool, None);
    pool.close()?;
    cleaned?;
    let mut left = runs_of(&image, &args.branch);
    let Some(session) = left.find(|it| it.has_changes(&branches) || it.is_in_use()) else {
        let why = format!("no run has left changes of `{}`", Escaped::new(&args.branch));
        return Err(Failure::Refused(image, why));
    };
    match session.is_in_use() {
        true => Err(refused(&image, &session)),
        false => Ok((image, session)),
    }
}

/// Keeps what a run that was killed has left.
pub(crate) fn commit(args: &LeftArgs) -> Result<ExitCode, Failure> {
    let (image, session) = left(args)?;
    commit_now(&image, session).map(|()| ExitCode::SUCCESS)
}

/// Drops what a run that was killed has left.
pub(crate) fn discard(args: &LeftArgs) -> Result<ExitCode, Failure> {
    let (image, session) = left(args)?;
    discard_now(&image, session).map(|()| ExitCode::SUCCESS)
}
