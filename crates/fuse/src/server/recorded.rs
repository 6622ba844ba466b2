//! The changes that requests make, for a [`Recorder`].
//!
//! Requests that change something are served one at a time then: what is recorded is an order in
//! which they took effect. What was written is read back, since a write can be cut short.

use std::ffi::OsStr;
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
                let object = object(&server.node(linked)?.file.stat()?);
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
                let (file, stat) = server.seen(node)?;
                let path = server.tree().base.posix().path_of(&file)?;
                Change::Attributes { object: object(&stat), path, attributes: attributes(&stat) }
            }
            Op::SetXattr { name, value, .. } => server.xattr(node, name, Some(value))?,
            Op::RemoveXattr { name } => server.xattr(node, name, None)?,
            Op::FAllocate { offset, len, mode, .. } => {
                let (file, stat) = server.seen(node)?;
                let path = server.tree().base.posix().path_of(&file)?;
                let (object, mtime) = (object(&stat), stat.mtime);
                Change::Allocated { object, path, mode, offset, length: len, mtime }
            }
            Op::FSync { data_only, .. } | Op::FSyncDir { data_only, .. } => {
                let (file, stat) = server.seen(node)?;
                let path = server.tree().base.posix().path_of(&file)?;
                Change::Synced { object: object(&stat), path, data_only }
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
        let (file, stat) = server.seen(node)?;
        let path = server.tree().base.posix().path_of(&file)?;
        let reader = server.at_level(node, Level::Read)?;
        let (mut data, mut done) = (vec![0; length], 0);
        while done < length {
            match reader.pread(&mut data[done..], offset + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        data.truncate(done);
        let (object, size, mtime) = (object(&stat), self.size, stat.mtime);
        Ok(Change::Written { object, path, offset, data, size, mtime })
    }
}

impl Server {
    fn seen(&self, node: u64) -> Result<(File, Stat), Errno> {
        let file = self.node(node)?.file;
        let stat = file.stat()?;
        Ok((file, stat))
    }

    fn object_at(&self, dir: u64, name: &OsStr) -> Option<Object> {
        let dir = self.node(dir).ok()?.file;
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let opened = self.tree().base.posix().openat(At::File(&dir), name, flags, Mode::empty());
        Some(object(&opened.and_then(|file| file.stat()).ok()?))
    }

    fn name_in(&self, dir: u64, name: &OsStr) -> Result<Name, Errno> {
        let (file, stat) = self.seen(dir)?;
        let path = self.tree().base.posix().path_of(&file)?.join(name);
        Ok(Name { dir: object(&stat), name: name.to_owned(), path })
    }

    fn made(&self, node: Option<u64>, at: Option<Name>) -> Result<Change, Errno> {
        let (file, stat) = self.seen(node.ok_or(Errno::STALE)?)?;
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
        let (object, attributes, rdev) = (object(&stat), attributes(&stat), stat.rdev);
        Ok(Change::Made { object, at, attributes, rdev, target, xattrs })
    }

    fn resized(&self, node: u64, former: u64) -> Result<Change, Errno> {
        let (file, stat) = self.seen(node)?;
        let path = self.tree().base.posix().path_of(&file)?;
        let (object, size, mtime) = (object(&stat), stat.size, stat.mtime);
        Ok(Change::Resized { object, path, size, former, mtime })
    }

    fn xattr(&self, node: u64, name: &OsStr, value: Option<&[u8]>) -> Result<Change, Errno> {
        let (file, stat) = self.seen(node)?;
        let path = self.tree().base.posix().path_of(&file)?;
        let (name, value) = (name.to_owned(), value.map(<[u8]>::to_vec));
        let (object, attributes) = (object(&stat), attributes(&stat));
        Ok(Change::Xattr { object, path, name, value, attributes })
    }
}
