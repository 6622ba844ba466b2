//! Mounts for a time, of branches that another process serves.

use std::ffi::OsString;
use std::path::Path;

use super::temporary::{PATIENCE, TempDir, say_forced};
use super::{Asked, Elsewhere, Left, Wanted};
use crate::error::Failure;
use crate::options::MountOptions;
use crate::source;

/// Has `act` use the files of a branch at a directory where the process that has the image open
/// serves them for that time: a fork of the branch if they are only read, as of a trial, and else
/// the branch, as of a run. `None` if no process serves branches of the image.
pub(crate) fn visit<T>(
    image: &Path,
    branch: &str,
    read_only: bool,
    act: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let mut options = MountOptions::default();
    (options.branch, options.allow_other) = (Some(branch.to_owned()), Some(false));
    let kind = read_only.then_some("--discard");
    let words = ["vfscale", "run", "--branch", branch].into_iter().chain(kind);
    let path = image.canonicalize().unwrap_or_else(|_| image.to_owned()).into_os_string();
    let ends = [path, "--".into(), "true".into()];
    let arguments: Vec<OsString> = words.map(OsString::from).chain(ends).collect();
    let attachment = source::attachment(&options, Some(image));
    let wanted = Wanted { image, branch, arguments: &arguments, attachment, is_trial: read_only };
    let Some(asked) = wanted.ask_for_run(|| ())? else { return Ok(None) };
    let (mounted, dir) = mounted(asked, &options)?;
    let path = mounted.dir().to_owned();
    let done = act(&path);
    match mounted.leave(PATIENCE)? {
        Left::Used => dir.leave(),
        Left::Ended => {}
        Left::Forced => say_forced(&path),
    }
    done.map(Some)
}

/// Makes the mount of a run, or uses the one that another run has made.
pub(crate) fn mounted(
    asked: Asked,
    options: &MountOptions,
) -> Result<(Elsewhere, TempDir), Failure> {
    match asked {
        Asked::Ready(ready) => {
            let dir = TempDir::new(options.allow_other == Some(true))?;
            Ok((ready.mount(dir.path())?, dir))
        }
        Asked::Shared(mounted) => {
            let dir = TempDir::shared(mounted.dir());
            let dir = dir.map_err(|e| Failure::TempDir(mounted.dir().to_owned(), e))?;
            Ok((mounted, dir))
        }
    }
}
