//! A native run of a user who may mount no view: a mount of FUSE below, an overlay above.
//!
//! All of it is in namespaces of users and of mounts of the run, in which Linux lets the user
//! mount. The server of the mount is there, too, where no other process finds it: so until its end,
//! the image is that of the run alone.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use vfscale::block::Error;
use vfscale_command::signals::Blocked;

use super::overlay::{begin, end, give_up, image_file, lay, not_native, place, run_in};
use crate::device;
use crate::error::Failure;
use crate::native::mounts;
use crate::native::session::Upper;
use crate::options::MountOptions;
use crate::run::args::RunArgs;
use crate::run::front::Mounting;

/// Runs the command in an overlay above a mount. `None` if that can't be done, which is said.
pub(super) fn run(
    image: &Path,
    args: &RunArgs,
    options: &MountOptions,
    mounting: Mounting<'_>,
) -> Result<Option<ExitCode>, Failure> {
    // Its server could not serve mounts of these namespaces.
    if let Err(locked @ Error::Locked { .. }) = device::options(true).check_free(image) {
        return Ok(not_native(&locked));
    }
    let upper = Upper { place: place(args)?, userxattr: true };
    mounts::unshare_as_user().map_err(|error| Failure::System("unshare", error))?;
    let image = &image_file(image, args, options)?;
    let session = match begin(image, options, &upper, !args.discard) {
        Err(failure @ Failure::Unfit(_)) => return Ok(not_native(&failure)),
        begun => RefCell::new(begun?),
    };
    let lease = session.borrow().lease.clone();
    let has_begun = Cell::new(false);
    let inside = |lower: &Path, signals: Blocked| {
        let session = &mut *session.borrow_mut();
        let dir = match lay("a mount", session, lower, args.verbose) {
            Ok(dir) => dir,
            Err(failure) => {
                session.memory = None;
                signals.restore().map_err(|e| Failure::System("pthread_sigmask", e))?;
                return Err(failure);
            }
        };
        has_begun.set(true);
        let status = run_in(&dir, session, args, signals);
        if session.is_in_memory() {
            // Its descriptor is left, which the commit reads.
            let _ = mounts::end(&session.changes(), Duration::ZERO);
        }
        status
    };
    let (below, own) = (options.to_read(lease), std::process::id());
    let ran = mounting(&args.as_mount(), &below, &inside);
    if std::process::id() != own {
        // The server, which has ended.
        return ran.map(Some);
    }
    let session = session.into_inner();
    if !has_begun.get() {
        give_up(image, &session)?;
        return match ran {
            Err(failure) => Ok(not_native(&failure)),
            // Its server has said why.
            Ok(code) => Ok(Some(code)),
        };
    }
    let ended = end(image, &session, ran.is_ok() && !args.discard);
    let code = ran?;
    ended.map(|()| Some(code))
}
