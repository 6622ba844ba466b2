//! `vfscale run --native`: a command at the kernel's speed in a branch.
//!
//! Linux reads the branch in place, by a view, and an overlay above it takes what the command
//! writes, in a directory of the host. When the command has ended, its changes are made in the
//! branch by one commit. The image is open at the beginning and at the end only, so any number of
//! such runs have branches of one image.

use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use vfscale_command::say;
use vfscale_command::signals::Blocked;

use super::args::RunArgs;
use super::front;
use super::temporary::PATIENCE;
use crate::child::exit_code;
use crate::error::Failure;
use crate::native::session::{self, Session, Upper};
use crate::native::{self, mounts};
use crate::options::MountOptions;
use crate::source;

/// Runs the command at the kernel's speed. `None` if that can't be done here, which is said; the
/// process has one thread then.
pub(crate) fn run(args: &RunArgs, options: &MountOptions) -> Result<Option<ExitCode>, Failure> {
    let Some(image) = &args.image else { return Ok(None) };
    if let Some(why) = mounts::missing() {
        say(format_args!("vfscale: not native: {why}; the branch is mounted instead"));
        return Ok(None);
    }
    let image = native::image_file(image)?;
    let upper = upper(args)?;
    let signals = Blocked::for_jobs().map_err(|e| Failure::System("pthread_sigmask", e))?;
    let mut session = begin(&image, options, upper)?;
    let ran = run_above(&mut session, &image, args, signals);
    let is_kept = ran.is_ok() && !args.discard;
    let ended = if is_kept {
        native::commit_now(&image, session)
    } else {
        native::discard_now(&image, session)
    };
    let status = ran?;
    ended.map(|()| Some(exit_code(status)))
}

/// Begins a session of a branch, which no other run may have.
fn begin(image: &Path, options: &MountOptions, upper: Upper) -> Result<Session, Failure> {
    let (branch, for_all) = (&source::branch_name(options), options.allow_other == Some(true));
    let pool = native::open(image, true)?;
    let begun = session::clean(image, &pool, None).and_then(|()| {
        if let Some(other) = native::runs_of(image, branch).next() {
            return Err(native::refused(image, &other));
        }
        Session::begin(&pool, image, branch, Some(upper), for_all)
    });
    let closed = pool.close();
    let session = begun?;
    closed?;
    Ok(session)
}

/// Mounts in a namespace of this process, runs the command there, and unmounts.
fn run_above(
    session: &mut Session,
    image: &Path,
    args: &RunArgs,
    signals: Blocked,
) -> Result<ExitStatus, Failure> {
    let [lower, above, dir] = &session.make_dirs()?;
    mounts::unshare()?;
    let run = || {
        mounts::view(&session.view(), image, lower)?;
        if let Some(Upper::Memory(size)) = &session.upper {
            mounts::memory(above, size.as_deref())?;
        }
        mounts::overlay(lower, above, dir)?;
        tracing::info!("an overlay above a view of the branch is at {}", dir.display());
        front::run_in(dir, &args.words.command, signals)
    };
    let status = run();
    // If it was not mounted, the first error says why.
    session.has_users = mounts::end(dir, PATIENCE).unwrap_or_default();
    if session.has_users {
        tracing::warn!(
            "processes that the command left behind use {}; what they change from now on is lost",
            dir.display()
        );
    }
    let _ = mounts::end(lower, Duration::ZERO);
    status
}

/// Returns where a run keeps its changes.
fn upper(args: &RunArgs) -> Result<Upper, Failure> {
    let Some(place) = &args.upper else { return Ok(Upper::Beside) };
    if let Some(size) = place.strip_prefix("tmpfs") {
        match size.strip_prefix('=') {
            None if size.is_empty() => return Ok(Upper::Memory(None)),
            Some(size) if size.chars().all(|it| it.is_ascii_alphanumeric() || it == '%') => {
                return Ok(Upper::Memory(Some(size.to_owned())));
            }
            _ => {}
        }
    }
    let dir = std::path::absolute(place).map_err(|e| Failure::Write(place.into(), e))?;
    if dir.to_str().is_none() {
        return Err(Failure::Usage("--upper: the path of the directory is not UTF-8".into()));
    }
    match dir.read_dir().map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(Upper::In(dir)),
        Ok(false) => Err(Failure::Usage(format!("--upper {place}: the directory is not empty"))),
        Err(error) => Err(Failure::Write(dir, error)),
    }
}
