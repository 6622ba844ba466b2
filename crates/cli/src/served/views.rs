//! Requests of native runs: views of branches, and what was changed above them.
//!
//! A run has its own namespace of mounts, so it passes the directories.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use vfscale::{Errno, Overlay, Pool, PoolError};
use vfscale_fuse::control::{Connection, Reply, Request, Stage};

/// Does what a request asks for.
pub(super) fn answer(pool: &Pool, request: &Request, connection: &Connection) -> io::Result<()> {
    let done = match request {
        Request::State(branch) => pool.state(branch).map(|id| vec![Reply::State(id)]),
        Request::View(branch) => {
            connection.reply(&Reply::Stage(Stage::Ready))?;
            let (_dir, [out]) = received(connection)?;
            pool.view(branch, &out).map(|view| {
                let marked = view.marked.map(|path| Reply::Text(path.into()));
                let size = [Reply::Number(view.inodes), Reply::Number(view.bytes)];
                size.into_iter().chain(marked).collect()
            })
        }
        Request::Ingest { branch, base, userxattr } => {
            connection.reply(&Reply::Stage(Stage::Ready))?;
            let (_views, [view]) = received(connection)?;
            let (_above, [upper, work]) = received(connection)?;
            let (view, upper, work) = (&*view, &*upper, &*work);
            let overlay = Overlay { base, view, upper, work, userxattr: *userxattr };
            let done = pool.ingest(branch, overlay);
            done.map(|done| done.kept.map(Reply::Kept).into_iter().collect())
        }
        _ => return connection.refuse(Errno::PROTO, "this request is none of a native run"),
    };
    match done {
        Ok(replies) => {
            replies.iter().try_for_each(|reply| connection.reply(reply))?;
            connection.reply(&Reply::End)
        }
        Err(error) => connection.refuse(error.errno(), PoolError::to_string(&error)),
    }
}

/// Receives a directory, and returns the paths of names in it, which are right as long as it is
/// open.
fn received<const NAMES: usize>(
    connection: &Connection,
) -> io::Result<(OwnedFd, [PathBuf; NAMES])> {
    let (dir, names) = connection.receive_fd()?;
    let is_name = |name: &PathBuf| name.file_name() == Some(name.as_os_str());
    let names: Vec<_> = names.into_iter().map(PathBuf::from).filter(is_name).collect();
    let names: [PathBuf; NAMES] = names.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    let at = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    Ok((dir, names.map(|name| at.join(name))))
}
