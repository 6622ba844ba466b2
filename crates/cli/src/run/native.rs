//! `vfscale run --native`: a command at the kernel's speed in a branch.
//!
//! Linux reads the branch in place, by a view, and an overlay above it takes what the command
//! writes, in a directory of the host. When the command has ended, its changes are made in the
//! branch by one commit. The image is open at the beginning and at the end only, or the process
//! that has it open does what is to be done, so any number of such runs have branches of one image.

use std::process::ExitCode;

use crate::error::Failure;
use crate::native::mounts::{self, Means};
use crate::options::MountOptions;
use crate::run::args::RunArgs;
use crate::run::front::Mounting;

mod overlay;
mod user;
mod view;

/// Runs the command at the kernel's speed. `None` if that can't be done here, which is said; the
/// process has one thread then.
pub(crate) fn run(
    args: &RunArgs,
    options: &MountOptions,
    mounting: Mounting<'_>,
) -> Result<Option<ExitCode>, Failure> {
    let Some(image) = &args.image else { return Ok(None) };
    match mounts::means() {
        Means::View => view::run(image, args, options),
        Means::Mount => user::run(image, args, options, mounting),
        Means::None(why) => Ok(overlay::not_native(&why)),
    }
}
