//! The branches of an image as native runs use them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use vfscale::pool::View;
use vfscale::{BranchInfo, Errno, Escaped, ForkOptions, Overlay, Pool, PoolError};
use vfscale_fuse::control::{Connection, Error, Reply, Request};

use crate::elsewhere::branches::{Access, at_server_or_here, with_pool};
use crate::elsewhere::{self, ask, refused, try_ask};
use crate::error::Failure;

/// The command to use if another process has the image open, and no mount of it is found.
const COMMAND: &str = "umount DIR";

/// The branches of an image.
pub(crate) enum Branches<'b> {
    /// No other process has the image open.
    Here(&'b Pool),
    /// Another one has it open, and a mount of it is at `dir`.
    There { image: &'b Path, dir: &'b Path },
}

/// Has `act` use the branches of an image. Calls it again if the server ends meanwhile.
pub(crate) fn with_branches<T>(
    image: &Path,
    access: Access,
    act: impl Fn(&Branches<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let here = || with_pool(image, access, |pool| Ok(act(&Branches::Here(pool)))).flatten();
    at_server_or_here(image, COMMAND, |dir| act(&Branches::There { image, dir }), here)
}

/// Opens the directory of a file, to pass it with the name.
fn place(path: &Path) -> Result<(File, &OsStr), Failure> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let opened = File::open(dir).map_err(|error| Failure::Read(dir.to_owned(), error))?;
    Ok((opened, path.file_name().unwrap_or_default()))
}

/// Fails if a server has less rights than this process: it would not see all of an overlay.
fn check(connection: &Connection) -> Result<&Connection, Error> {
    match connection.user()? == rustix::process::geteuid().as_raw() {
        true => Ok(connection),
        false => Err(Error::new(
            Errno::OPNOTSUPP,
            "another user has it mounted; unmount it for a native run",
        )),
    }
}

impl Branches<'_> {
    /// Lists the branches: none of a volume that is no pool.
    pub(crate) fn list(&self) -> Result<Vec<BranchInfo>, Failure> {
        match *self {
            Self::Here(pool) => Ok(pool.branches()),
            Self::There { image, dir } => ask(image, dir, |it| match it.branches() {
                Err(error) if error.errno() == Errno::OPNOTSUPP => Ok(Vec::new()),
                listed => listed,
            }),
        }
    }

    /// Fails if a branch is mounted, which could not take over what a run changes.
    pub(crate) fn check_closed(&self, branch: &str) -> Result<(), Failure> {
        let Self::There { image, dir } = *self else { return Ok(()) };
        let mut at = None;
        ask(image, dir, |connection| {
            connection.ask(&Request::Places, |reply| match reply {
                Reply::Place { branch: other, dir, .. } => {
                    at = at.take().or((other == branch).then_some(dir));
                    true
                }
                _ => false,
            })
        })?;
        let Some(at) = at else { return Ok(()) };
        let (branch, dir) = (Escaped::new(branch), Escaped::new(&at));
        let why = format!(
            "the branch `{branch}` is mounted at {dir}; unmount it first: `vfscale umount {dir}`, \
             or name another branch"
        );
        Err(Failure::Refused(image.to_owned(), why))
    }

    /// Returns the id of what a branch has.
    pub(crate) fn state(&self, branch: &str) -> Result<[u8; 16], Failure> {
        match *self {
            Self::Here(pool) => Ok(pool.state(branch)?),
            Self::There { image, dir } => ask(image, dir, |it| check(it)?.state(branch)),
        }
    }

    /// Makes a branch that can only be read.
    pub(crate) fn fork(&self, parent: &str, name: &str) -> Result<(), Failure> {
        match *self {
            Self::Here(pool) => {
                Ok(pool.fork_with(parent, name, ForkOptions::new().read_only(true))?)
            }
            Self::There { image, dir } => {
                // First the data that the kernel holds back.
                elsewhere::sync_kernel(image, dir)?;
                let (parent, name) = (parent.to_owned(), name.to_owned());
                let (read_only, as_synced, temporary) = (true, false, false);
                let request = Request::Fork { parent, name, read_only, as_synced, temporary };
                ask(image, dir, |it| it.tell(&request))
            }
        }
    }

    /// Writes a view.
    ///
    /// # Errors
    /// [`Failure::Unfit`] names the file that can't be in a view.
    pub(crate) fn view(&self, branch: &str, out: &Path) -> Result<View, Failure> {
        match *self {
            Self::Here(pool) => pool.view(branch, out).map_err(|error| match error {
                PoolError::View { .. } => Failure::Unfit(error.to_string()),
                error => error.into(),
            }),
            Self::There { image, dir } => {
                let (views, name) = place(out)?;
                let view = |it: &Connection| check(it)?.view(branch, (views.as_fd(), name));
                try_ask(image, dir, view)?.map_err(|error| match error.errno() {
                    Errno::OVERFLOW => {
                        Failure::Unfit(Escaped::message(&error.to_string()).to_string())
                    }
                    _ => refused(dir, &error),
                })
            }
        }
    }

    /// Takes over an overlay, whose directories are in one. Returns the branch that has the
    /// changes, if `branch` could not take them.
    pub(crate) fn ingest(
        &self,
        branch: &str,
        overlay: Overlay<'_>,
    ) -> Result<Option<String>, Failure> {
        match *self {
            Self::Here(pool) => Ok(pool.ingest(branch, overlay)?.kept),
            Self::There { image, dir } => {
                let ((views, view), (above, upper)) = (place(overlay.view)?, place(overlay.upper)?);
                let names = [upper, overlay.work.file_name().unwrap_or_default()];
                ask(image, dir, |it| {
                    let it = check(it)?;
                    // As long as its files take.
                    it.limit(None)?;
                    let (views, above) = (views.as_fd(), above.as_fd());
                    let userxattr = overlay.userxattr;
                    it.ingest((branch, overlay.base), (views, view), (above, names), userxattr)
                })
            }
        }
    }

    /// Deletes a branch, and frees its space.
    pub(crate) fn delete(&self, name: &str) -> Result<(), Failure> {
        match *self {
            Self::Here(pool) => {
                pool.delete(name)?;
                Ok(pool.reap()?)
            }
            Self::There { image, dir } => {
                ask(image, dir, |it| it.tell(&Request::Delete(name.to_owned())))
            }
        }
    }
}
