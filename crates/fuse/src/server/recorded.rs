//! The changes that requests make, for a [`Recorder`].
//!
//! Requests that change something are served one at a time then: what is recorded is an order in
//! which they took effect. What was written is read back, since a write can be cut short.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};

use vfscale::posix::{At, AtFlags, OFlags, RenameFlags, Stat};
use vfscale::{Errno, File, FileType, Mode};

use super::Server;
use super::nodes::Level;
use crate::base::recording::{Attributes, Change, Name, Object, Recorder, Recording};
use crate::wire::reply::Reply;
use crate::wire::request::{CopyEnd, Operation, Request};

/// The objects that a request is about to change. No other one changes anything meanwhile.
pub(super) struct Recorded<'r> {
    recorder: &'r dyn Recorder,
    _turn: MutexGuard<'r, ()>,
    /// The object of the name that goes.
    object: Option<Object>,
    /// The object of the name that is replaced.
    replaced: Option<Object>,
    /// The length of the file.
    size: u64,
}

/// A node, after a change.
struct Seen {
    object: Object,
    /// Its path, which ends with ` (deleted)` if it has none.
    path: PathBuf,
    stat: Stat,
    file: File,
}

const ITSELF: AtFlags = AtFlags::EMPTY_PATH;

fn object(stat: &Stat) -> Object {
    Object { ino: stat.ino, generation: stat.generation }
}

fn attributes(stat: &Stat) -> Attributes {
    Attributes { mode: stat.mode, uid: stat.uid, gid: stat.gid, mtime: stat.mtime }
}

impl Server {
    /// Waits for the turn of a request, and looks at what it is about to change. `None` if nothing
    /// is recorded.
    pub(super) fn begin_recorded(&self, request: &Request<'_>) -> Option<Recorded<'_>> {
        use Operation as Op;
        let Recording { recorder, turn } = self.recording.as_ref()?;
        let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let node = request.header.node;
        let length = |node| self.node(node).and_then(|it| Ok(it.file.stat()?.size));
        let (mut object, mut replaced, mut size) = (None, None, 0);
        match request.operation {
            Op::Unlink { name } | Op::RmDir { name } => object = self.object_at(node, name),
            Op::Rename { name, to, to_name, .. } => {
                object = self.object_at(node, name);
                replaced = self.object_at(to, to_name);
            }
            Op::CopyFileRange { to, .. } => size = length(to.node).unwrap_or_default(),
            Op::Write(_) | Op::SetAttr(_) => size = length(node).unwrap_or_default(),
            _ => {}
        }
        Some(Recorded { recorder: &**recorder, _turn: turn, object, replaced, size })
    }
}

impl Recorded<'_> {
    /// Tells what a request has changed that was served. `made` is the node in its reply.
    pub(super) fn end(
        self,
        server: &Server,
        request: &Request<'_>,
        (made, reply): (Option<u64>, &Reply),
    ) {
        match self.change(server, request, (made, reply)) {
            Ok(Some(change)) => self.recorder.record(change),
            Ok(None) => {}
            Err(errno) => tracing::warn!("a change can't be recorded: {errno}"),
        }
    }

    fn change(
        &self,
        server: &Server,
        request: &Request<'_>,
        (made, reply): (Option<u64>, &Reply),
    ) -> Result<Option<Change>, Errno> {
        use Operation as Op;
        let node = request.header.node;
        let change = match request.operation {
            Op::Symlink { name, .. } | Op::MkNod { name, .. } | Op::MkDir { name, .. } => {
                server.made(made, Some(server.name_in(node, name)?))?
            }
            Op::Create(create) => server.made(made, Some(server.name_in(node, create.name)?))?,
            Op::TmpFile(_) => server.made(made, None)?,
            Op::Link { node: linked, name } => {
                let object = server.seen(linked)?.object;
                Change::Linked { object, at: server.name_in(node, name)? }
            }
            Op::Unlink { name } | Op::RmDir { name } => {
                let Some(object) = self.object else { return Ok(None) };
                Change::Removed { object, at: server.name_in(node, name)? }
            }
            Op::Rename { name, to, to_name, flags } => {
                let Some(object) = self.object else { return Ok(None) };
                let exchanged =
                    RenameFlags::from_bits_retain(flags).contains(RenameFlags::EXCHANGE);
                let (from, to) = (server.name_in(node, name)?, server.name_in(to, to_name)?);
                let replaced = self.replaced.filter(|it| *it != object);
                Change::Renamed { object, from, to, replaced, exchanged }
            }
            Op::Write(write) => self.written(server, node, (write.offset, write.data.len()))?,
            Op::CopyFileRange { to: CopyEnd { node, offset, .. }, wide, .. } => {
                self.written(server, node, (offset, reply.counted(wide) as usize))?
            }
            Op::SetAttr(set) if set.size.is_some() => server.resized(node, self.size)?,
            Op::SetAttr(_) => {
                let Seen { object, path, stat, .. } = server.seen(node)?;
                Change::Attributes { object, path, attributes: attributes(&stat) }
            }
            Op::SetXattr { name, value, .. } => server.xattr(node, name, Some(value))?,
            Op::RemoveXattr { name } => server.xattr(node, name, None)?,
            Op::FAllocate { offset, len, mode, .. } => {
                let Seen { object, path, stat, .. } = server.seen(node)?;
                let (length, mtime) = (len, stat.mtime);
                Change::Allocated { object, path, mode, offset, length, mtime }
            }
            Op::FSync { data_only, .. } | Op::FSyncDir { data_only, .. } => {
                let Seen { object, path, .. } = server.seen(node)?;
                Change::Synced { object, path, data_only }
            }
            _ => return Ok(None),
        };
        Ok(Some(change))
    }

    /// Reads back what was written.
    fn written(
        &self,
        server: &Server,
        node: u64,
        (offset, length): (u64, usize),
    ) -> Result<Change, Errno> {
        let Seen { object, path, stat, .. } = server.seen(node)?;
        let reader = server.at_level(node, Level::Read)?;
        let (mut data, mut done) = (vec![0; length], 0);
        while done < length {
            match reader.pread(&mut data[done..], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        data.truncate(done);
        Ok(Change::Written { object, path, offset, data, size: self.size, mtime: stat.mtime })
    }
}

impl Server {
    fn seen(&self, node: u64) -> Result<Seen, Errno> {
        let file = self.node(node)?.file;
        let stat = file.stat()?;
        let path = self.tree().base.posix().path_of(&file)?;
        Ok(Seen { object: object(&stat), path, stat, file })
    }

    fn object_at(&self, dir: u64, name: &OsStr) -> Option<Object> {
        let dir = self.node(dir).ok()?.file;
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let opened = self.tree().base.posix().openat(At::File(&dir), name, flags, Mode::empty());
        Some(object(&opened.and_then(|file| file.stat()).ok()?))
    }

    fn name_in(&self, dir: u64, name: &OsStr) -> Result<Name, Errno> {
        let Seen { object: dir, path, .. } = self.seen(dir)?;
        Ok(Name { dir, name: name.to_owned(), path: path.join(name) })
    }

    fn made(&self, node: Option<u64>, at: Option<Name>) -> Result<Change, Errno> {
        let Seen { object, stat, file, .. } = self.seen(node.ok_or(Errno::STALE)?)?;
        let tree = self.tree();
        let calls = tree.base.posix();
        let target = match stat.file_type() {
            FileType::Symlink => calls.readlinkat(At::File(&file), "")?,
            _ => Default::default(),
        };
        let mut xattrs = Vec::new();
        for name in calls.listxattrat(At::File(&file), "", ITSELF).unwrap_or_default() {
            let value = calls.getxattrat(At::File(&file), "", &name, ITSELF)?;
            xattrs.push((name, value));
        }
        let (attributes, rdev) = (attributes(&stat), stat.rdev);
        Ok(Change::Made { object, at, attributes, rdev, target, xattrs })
    }

    fn resized(&self, node: u64, former: u64) -> Result<Change, Errno> {
        let Seen { object, path, stat, .. } = self.seen(node)?;
        Ok(Change::Resized { object, path, size: stat.size, former, mtime: stat.mtime })
    }

    fn xattr(&self, node: u64, name: &OsStr, value: Option<&[u8]>) -> Result<Change, Errno> {
        let Seen { object, path, stat, .. } = self.seen(node)?;
        let (name, value) = (name.to_owned(), value.map(<[u8]>::to_vec));
        Ok(Change::Xattr { object, path, name, value, attributes: attributes(&stat) })
    }
}
