//! A native run whose overlay is above a view.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use vfscale_command::say;
use vfscale_command::signals::Blocked;

use super::overlay::{begin, end, give_up, image_file, lay, not_native, place, run_in};
use crate::child::exit_code;
use crate::error::Failure;
use crate::native::mounts;
use crate::native::session::{Session, Upper};
use crate::options::MountOptions;
use crate::run::args::RunArgs;

/// Runs the command in an overlay above a view. `None` if that can't be done, which is said.
pub(super) fn run(
    image: &Path,
    args: &RunArgs,
    options: &MountOptions,
) -> Result<Option<ExitCode>, Failure> {
    let image = &image_file(image, args, options)?;
    let signals = Blocked::for_jobs().map_err(|e| Failure::System("pthread_sigmask", e))?;
    let upper = Upper { place: place(args)?, userxattr: false };
    let in_mount = |failure| {
        signals.restore().map_err(|e| Failure::System("pthread_sigmask", e))?;
        Ok(not_native(&failure))
    };
    let mut session = match begin(image, options, &upper, !args.discard) {
        Err(failure @ Failure::Unfit(_)) => return in_mount(failure),
        begun => begun?,
    };
    let above = match mount(&mut session, image, args.verbose) {
        Ok(above) => above,
        Err(failure) => {
            give_up(image, &session)?;
            return in_mount(failure);
        }
    };
    let ran = above.run(&mut session, args, signals);
    let ended = end(image, &session, ran.is_ok() && !args.discard);
    let status = ran?;
    ended.map(|()| Some(exit_code(status)))
}

/// An overlay above a view, in a namespace of this process.
struct Above {
    before: mounts::Before,
    lower: PathBuf,
    dir: PathBuf,
}

/// Mounts in a namespace of this process, which it leaves if that fails.
fn mount(session: &mut Session, image: &Path, is_told: bool) -> Result<Above, Failure> {
    let [lower, ..] = session.make_dirs()?;
    let before = mounts::unshare()?;
    let mounted = mounts::view(&session.view(), image, &lower);
    match mounted.and_then(|()| lay("a view", session, &lower, is_told)) {
        Ok(dir) => Ok(Above { before, lower, dir }),
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
        let status = run_in(&dir, session, args, signals);
        let _ = mounts::end(&lower, Duration::ZERO);
        if let Err(failure) = before.enter() {
            // The command has run: its changes are not dropped for this.
            say(format_args!("vfscale: {failure}; mounts of this moment are not seen"));
        }
        status
    }
}
