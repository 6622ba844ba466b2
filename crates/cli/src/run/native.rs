//! `vfscale run --native`: a command at the kernel's speed in a branch.
//!
//! Linux reads the branch in place, by a view, and an overlay above it takes what the command
//! writes, in a directory of the host. When the command has ended, its changes are made in the
//! branch by one commit. The image is open at the beginning and at the end only, or the process
//! that has it open does what is to be done, so any number of such runs have branches of one image.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::Duration;

use vfscale_command::say;
use vfscale_command::signals::Blocked;

use super::args::RunArgs;
use super::front;
use super::temporary::PATIENCE;
use crate::child::exit_code;
use crate::elsewhere::branches::Access;
use crate::error::Failure;
use crate::native::branches::with_branches;
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
    let signals = Blocked::for_jobs().map_err(|e| Failure::System("pthread_sigmask", e))?;
    let mut session = begin(&image, options, &upper(args)?, !args.discard)?;
    let discard = |session: &Session| {
        session::lock(&image).and_then(|lock| native::discard_now(&image, session, &lock))
    };
    let above = match mount(&mut session, &image) {
        Ok(above) => above,
        Err(failure) => {
            discard(&session)?;
            signals.restore().map_err(|e| Failure::System("pthread_sigmask", e))?;
            say(format_args!("vfscale: not native: {failure}; the branch is mounted instead"));
            return Ok(None);
        }
    };
    let ran = above.run(&mut session, args, signals);
    let ended = match ran.is_ok() && !args.discard {
        true => native::commit_now(&image, &session, None),
        false => discard(&session),
    };
    let status = ran?;
    ended.map(|()| Some(exit_code(status)))
}

/// Begins a session of a branch, which no other run may have.
fn begin(
    image: &Path,
    options: &MountOptions,
    upper: &Upper,
    is_kept: bool,
) -> Result<Session, Failure> {
    let (branch, for_all) = (&source::branch_name(options), options.allow_other == Some(true));
    let lock = &session::lock(image)?;
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

/// An overlay above a view, in a namespace of this process.
struct Above {
    before: mounts::Before,
    lower: PathBuf,
    dir: PathBuf,
}

/// Mounts in a namespace of this process, which it leaves if that fails.
fn mount(session: &mut Session, image: &Path) -> Result<Above, Failure> {
    let [lower, above, dir] = session.make_dirs()?;
    let before = mounts::unshare()?;
    let mut make = || {
        mounts::view(&session.view(), image, &lower)?;
        if let Some(Upper::Memory(size)) = &session.upper {
            mounts::memory(&above, size.as_deref())?;
            let memory = File::open(&above).map_err(|e| Failure::Read(above.clone(), e))?;
            session.memory = Some(Arc::new(memory));
        }
        mounts::overlay(&lower, &above, &dir)
    };
    match make() {
        Ok(()) => Ok(Above { before, lower, dir }),
        Err(failure) => {
            session.memory = None;
            // The namespace goes, and its mounts with it, when the process has left it.
            before.enter()?;
            Err(failure)
        }
    }
}

impl Above {
    /// Runs the command there, and unmounts.
    fn run(
        self,
        session: &mut Session,
        args: &RunArgs,
        signals: Blocked,
    ) -> Result<ExitStatus, Failure> {
        let Self { before, lower, dir } = self;
        tracing::info!("an overlay above a view of the branch is at {}", dir.display());
        let status = front::run_in(&dir, &args.words.command, signals);
        // If it is not mounted any more, nobody uses it.
        session.has_users = mounts::end(&dir, PATIENCE).unwrap_or_default();
        if session.has_users {
            tracing::warn!(
                "processes that the command left behind use {}; what they change from now on is \
                 lost",
                dir.display()
            );
        }
        let _ = mounts::end(&lower, Duration::ZERO);
        if let Err(failure) = before.enter() {
            // The command has run: its changes are not dropped for this.
            say(format_args!("vfscale: {failure}; mounts of this moment are not seen"));
        }
        status
    }
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
