//! The overlay of a native run, whatever is below it.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;

use vfscale_command::say;
use vfscale_command::signals::Blocked;

use crate::elsewhere::apart;
use crate::elsewhere::branches::Access;
use crate::elsewhere::temporary::PATIENCE;
use crate::error::Failure;
use crate::native;
use crate::native::branches::with_branches;
use crate::native::mounts;
use crate::native::session::{self, Place, Session, Upper};
use crate::options::MountOptions;
use crate::run::args::RunArgs;
use crate::run::front;
use crate::source;

/// Says why a run is one in a mount.
pub(super) fn not_native(why: &dyn fmt::Display) -> Option<ExitCode> {
    say(format_args!("vfscale: not native: {why}; the branch is mounted instead"));
    None
}

/// Ends a session, with its changes if they are kept.
pub(super) fn end(image: &Path, session: &Session, is_kept: bool) -> Result<(), Failure> {
    if is_kept { native::commit_now(image, session) } else { discard(image, session) }
}

pub(super) fn discard(image: &Path, session: &Session) -> Result<(), Failure> {
    session::lock(image).and_then(|lock| native::discard_now(image, session, &lock))
}

/// Ends a session of a run that goes on as one in a mount, for which this process forks.
pub(super) fn give_up(image: &Path, session: &Session) -> Result<(), Failure> {
    apart(|| discard(image, session).map(|()| Vec::new())).map(drop)
}

/// Returns the path of the image. Makes a missing one, as a run by a mount does.
pub(super) fn image_file(
    image: &Path,
    args: &RunArgs,
    options: &MountOptions,
) -> Result<PathBuf, Failure> {
    let makes = !args.discard && options.branch.is_none() && !options.is_read_only();
    if makes {
        source::make_missing(image, args.source.size)?;
    }
    native::image_file(image)
}

/// Begins a session of a branch, which no other run may have. This process may fork then.
pub(super) fn begin(
    image: &Path,
    options: &MountOptions,
    upper: &Upper,
    is_kept: bool,
) -> Result<Session, Failure> {
    let own = std::process::id();
    let dir = apart(|| {
        let session = begin_for(own, image, options, upper, is_kept)?;
        Ok(session.dir.into_os_string().into_vec())
    })?;
    let dir = PathBuf::from(OsString::from_vec(dir));
    let lost = || Failure::Read(dir.join("session"), io::ErrorKind::NotFound.into());
    Session::read(dir.clone()).ok_or_else(lost)
}

fn begin_for(
    owner: u32,
    image: &Path,
    options: &MountOptions,
    upper: &Upper,
    is_kept: bool,
) -> Result<Session, Failure> {
    let (branch, for_all) = (&source::branch_name(options), options.allow_other == Some(true));
    let lock = &session::lock(image)?.made_for(owner);
    with_branches(image, Access::Convert, |branches| {
        session::clean((image, lock), branches, None)?;
        if let Some(other) = native::runs_of(image, branch).next() {
            return Err(native::refused(image, &other));
        }
        if is_kept {
            branches.check_closed(branch)?;
        }
        Session::begin(branches, (image, lock), branch, Some(upper.clone()), for_all)
    })
}

/// Mounts an overlay above a lower layer, which is `what`, and returns its directory. Says how, if
/// that `is_told`.
pub(super) fn lay(
    what: &str,
    session: &mut Session,
    lower: &Path,
    is_told: bool,
) -> Result<PathBuf, Failure> {
    let [_, above, dir] = session.make_dirs()?;
    let Some(upper) = session.upper.clone() else { return Ok(dir) };
    if let Place::Memory(size) = &upper.place {
        mounts::memory(&above, size.as_deref())?;
        let memory = File::open(&above).map_err(|e| Failure::Read(above.clone(), e))?;
        session.memory = Some(Arc::new(memory));
    }
    let refused = mounts::overlay(lower, &above, &dir, upper.userxattr)?;
    let tell = |line: String| match is_told {
        true => say(format_args!("vfscale: {line}")),
        false => tracing::info!("{line}"),
    };
    tell(format!("native: an overlay above {what} of the branch is at {}", dir.display()));
    for option in refused {
        tell(format!("native: Linux refuses the option {option}: changes copy whole files"));
    }
    Ok(dir)
}

/// Runs the command in the overlay of a session, and unmounts that.
pub(super) fn run_in(
    dir: &Path,
    session: &mut Session,
    args: &RunArgs,
    signals: Blocked,
) -> Result<ExitStatus, Failure> {
    let status = front::run_in(dir, &args.words.command, signals, None);
    // If it is not mounted any more, nobody uses it.
    session.has_users = mounts::end(dir, PATIENCE).unwrap_or_default();
    if session.has_users {
        tracing::warn!(
            "processes that the command left behind use {}; what they change from now on is lost",
            dir.display()
        );
    }
    status
}

/// Returns where a run keeps its changes.
pub(super) fn place(args: &RunArgs) -> Result<Place, Failure> {
    let Some(place) = &args.upper else { return Ok(Place::Beside) };
    if let Some(size) = place.strip_prefix("tmpfs") {
        match size.strip_prefix('=') {
            None if size.is_empty() => return Ok(Place::Memory(None)),
            Some(size) if size.chars().all(|it| it.is_ascii_alphanumeric() || it == '%') => {
                return Ok(Place::Memory(Some(size.to_owned())));
            }
            _ => {}
        }
    }
    let dir = std::path::absolute(place).map_err(|e| Failure::Write(place.into(), e))?;
    if dir.to_str().is_none() {
        return Err(Failure::Usage("--upper: the path of the directory is not UTF-8".into()));
    }
    match dir.read_dir().map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(Place::In(dir)),
        Ok(false) => Err(Failure::Usage(format!("--upper {place}: the directory is not empty"))),
        Err(error) => Err(Failure::Write(dir, error)),
    }
}
