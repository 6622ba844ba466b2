//! The file system's side of a connection: every FUSE operation, by calls on a [`Vfs`].
//!
//! One module per subject implements the operations: `names`, `attrs`, `data`, `dirs`, `xattrs`,
//! `locks`, `flags`, `control`. They share the tables of [`nodes`] and [`files`], and act with the
//! credentials of [`caller`].

use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use vfscale::driver::super_block::is_for_space;
use vfscale::pool::PoolMaker;
use vfscale::posix::{AtFlags, OFlags, Stat};
use vfscale::volume::Freezer;
use vfscale::{Errno, File, Pool, Task, Vfs};
use vfscale_sync::brlock::BrLock;
use vfscale_sync::{clock, cpu};

use self::caller::{Caller, Callers, Checks, Rights};
use self::files::{Files, Target};
use self::nodes::{Handle, Level, Nodes};
use self::reclaim::Reclaim;
use self::tree::{MountGate, Tree};
use self::unsent::Unsent;
use self::waiting::Waiting;
use crate::base::floor::Floor;
use crate::base::recording::{Recorder, Recording};
use crate::base::sharing::Sharing;
use crate::base::syncing::Syncing;
use crate::control::listening::{Control, Host};
use crate::session::{DeferredReply, Served, Service};
use crate::statistics::{Counters, Statistics, Stats};
use crate::wire::InitFlags;
use crate::wire::reply::{Entry, Reply, Validity};
use crate::wire::request::{Offer, Operation, Reading, Request};

mod attrs;
mod caller;
mod control;
mod copying;
mod data;
mod dirs;
mod durable;
pub(crate) mod files;
mod flags;
mod locks;
mod long;
mod names;
pub(crate) mod nodes;
mod reclaim;
mod recorded;
mod switch;
mod tree;
pub(crate) mod unsent;
mod waiting;
mod xattrs;

/// Validity of cached data that only the mount's users can change.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Options of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) sharing: Sharing,
    pub(crate) volatile: bool,
    pub(crate) writeback: bool,
    pub(crate) has_xattrs: bool,
    pub(crate) syncing: Syncing,
    /// Whether the kernel sends `OPEN` in exclusive use, too: inode flags decide who may open.
    pub(crate) checks_open: bool,
    /// Whether mounts may be id-mapped: requests have no caller, or the owner of a new file.
    pub(crate) idmap: bool,
    /// Whether the kernel is known to check permissions, with the option `default_permissions`.
    pub(crate) is_permitted: bool,
}

impl Config {
    fn validity(&self) -> Validity {
        match self.sharing {
            Sharing::Exclusive => Validity { entry: FOREVER, attr: FOREVER },
            Sharing::Shared { cache } => Validity { entry: cache, attr: cache },
        }
    }

    /// Returns whether the kernel gathers writes. Then it keeps sizes and times of regular files.
    fn gathers(&self) -> bool {
        self.writeback && self.is_exclusive()
    }

    fn is_exclusive(&self) -> bool {
        self.sharing == Sharing::Exclusive
    }

    /// Returns who checks permissions. The kernel checks them with what it has cached, which is
    /// right in exclusive use.
    fn checks(&self) -> Checks {
        match (self.idmap, self.is_permitted && self.is_exclusive()) {
            (true, _) => Checks::Kernel,
            (false, true) => Checks::Shared,
            (false, false) => Checks::Server,
        }
    }

    /// Returns whether the kernel sends a message for each open of a file.
    fn sends_open(&self) -> bool {
        !self.is_exclusive() || self.checks_open
    }
}

/// The volume behind a mount, as far as requests to the mount may change it.
#[derive(Clone, Default)]
pub(crate) struct VolumeRights {
    /// The branches of its image, if it was opened as one.
    pub(crate) pool: Option<Pool>,
    /// Makes the first branch of its image, if it was not.
    pub(crate) maker: Option<PoolMaker>,
    /// Its handle for freezes, if it can be frozen.
    pub(crate) freezer: Option<Freezer>,
    /// Serves requests about this process.
    pub(crate) host: Option<Host>,
    /// The name by which requests know its image; empty if there is none.
    pub(crate) image: OsString,
}

/// A file system behind a connection.
pub(crate) struct Server {
    tree: RwLock<Arc<Tree>>,
    /// The era of the tree.
    era: AtomicU64,
    /// A request is served inside; a [switch] is made alone.
    gate: BrLock<MountGate>,
    pub(crate) nodes: Nodes,
    pub(crate) files: Files,
    pub(crate) waiting: Waiting,
    pub(crate) unsent: Unsent,
    reclaim: Reclaim,
    floor: Floor,
    recording: Option<Recording>,
    config: Config,
    volume: VolumeRights,
    control: Arc<Control>,
    valid: Validity,
    /// The mounting user.
    owner: u32,
    counters: Arc<Counters>,
}

/// State of one worker.
#[derive(Default)]
pub(crate) struct Worker {
    /// The tree of the last request, so that requests write no line that all share.
    tree: Option<Arc<Tree>>,
    callers: Callers,
    /// Lookups and a file handle that the reply under construction passes to the kernel.
    granted: Vec<u64>,
    opened: Option<u64>,
    listing: Listing,
}

/// Entries of a directory in a reply whose attributes are not yet filled in.
#[derive(Debug, Default)]
struct Listing {
    /// The names, concatenated.
    names: Vec<u8>,
    /// For each entry: its offset in the reply, and the end of its name in `names`.
    entries: Vec<(usize, usize)>,
}

/// Context of the request being served.
struct RequestCtx<'a> {
    node: u64,
    caller: Caller,
    worker: &'a mut Worker,
    reply: &'a mut Reply,
}

impl Server {
    /// Opens the root of `vfs`. The workers count requests in `counters`.
    pub(crate) fn new(
        vfs: &Vfs,
        config: Config,
        volume: VolumeRights,
        recorder: Option<Arc<dyn Recorder>>,
        counters: Arc<Counters>,
    ) -> vfscale::Result<Arc<Server>> {
        let (tree, root) = Tree::new(vfs, 0)?;
        let stat = root.stat()?;
        let checks_open = config.checks_open || root.may_have_immutable();
        let config = Config { checks_open, ..config };
        let (host, image) = (volume.host.clone(), volume.image.clone());
        Ok(Arc::new_cyclic(|server: &Weak<Server>| Server {
            tree: RwLock::new(tree),
            era: AtomicU64::new(0),
            gate: BrLock::new(cpu::slots() as usize),
            nodes: Nodes::new(root, &stat),
            files: Files::new(),
            waiting: Waiting::default(),
            unsent: Unsent::default(),
            reclaim: Reclaim::new(),
            floor: Floor::new(),
            recording: recorder.map(Recording::new),
            config,
            volume,
            control: Control::new(server.clone(), host, image),
            valid: config.validity(),
            owner: rustix::process::getuid().as_raw(),
            counters,
        }))
    }

    pub(crate) fn stats(&self) -> Stats {
        let (nodes, lookups) = self.nodes.totals();
        let (polls, polls_found) = self.counters.polls();
        let (transport, queues) = self.counters.transport();
        Stats {
            nodes,
            lookups,
            open_files: self.files.count(),
            waiting: self.waiting.count(),
            requests: self.counters.served(),
            polling: self.counters.polling(),
            polls,
            polls_found,
            transport,
            queues,
            workers: self.counters.workers(),
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics {
            mount: self.stats(),
            counts: self.tree().base.vfs().counts(),
            storage: self.tree().base.vfs().storage_counts(),
            pool: self.present_pool().map(|pool| pool.usage()),
            operations: self.counters.operations(),
        }
    }

    /// Returns a handle of a node that can be read or written.
    fn at_level(&self, node: u64, level: Level) -> Result<File, Errno> {
        let handle = self.node(node)?;
        if handle.level >= level {
            return Ok(handle.file);
        }
        let file = if level == Level::Write {
            // For a writer that was permitted to open it, perhaps before it became immutable.
            self.tree()
                .base
                .posix()
                .reopen_permitted(&handle.file, OFlags::RDWR | OFlags::NONBLOCK)?
        } else {
            self.tree().base.posix().reopen(&handle.file, OFlags::RDONLY | OFlags::NONBLOCK)?
        };
        self.nodes.improve(node, &Handle { file: file.clone(), level });
        Ok(file)
    }

    /// Returns the open file of a handle, or that of the node if files are opened without a
    /// message.
    fn open_file(&self, node: u64, fh: u64, level: Level) -> Result<Target, Errno> {
        if fh == 0 {
            self.at_level(node, level).map(Target::Node)
        } else {
            self.files.get(fh).map(Target::Handle)
        }
    }

    /// Returns the open file to read from. The kernel sends the reader's present `O_NOATIME` with
    /// each read, but the file of a node, or one opened before the flag was set, updates the access
    /// time. Then the file is reopened.
    fn file_to_read(&self, node: u64, at: Reading) -> Result<Target, Errno> {
        let file = self.open_file(node, at.fh, Level::Read)?;
        // A text belongs to the open file through which it was first read.
        if !at.keeps_atime || file.flags().contains(OFlags::NOATIME) || file.is_text() {
            return Ok(file);
        }
        let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK;
        Ok(Target::Node(self.tree().base.posix().reopen(&file, flags)?))
    }

    /// Adds a node to the reply, counting a lookup.
    fn put_entry(&self, ctx: &mut RequestCtx<'_>, file: File, level: Level) -> Result<(), Errno> {
        let stat = file.stat()?;
        let node = self.grant(ctx.worker, file, level, &stat);
        ctx.reply.entry(&self.entry(node, &stat));
        Ok(())
    }

    fn grant(&self, worker: &mut Worker, file: File, level: Level, stat: &Stat) -> u64 {
        let node = self.nodes.grant(Handle { file, level }, stat);
        worker.granted.push(node);
        node
    }

    fn entry<'a>(&self, node: u64, stat: &'a Stat) -> Entry<'a> {
        Entry {
            node,
            generation: u64::from(stat.generation),
            ino: self.nodes.shown_ino(node, stat),
            stat,
            valid: self.valid,
        }
    }

    fn act<T>(
        &self,
        ctx: &mut RequestCtx<'_>,
        rights: Rights,
        call: impl Fn(&Task) -> vfscale::Result<T>,
    ) -> Result<T, Errno> {
        let Worker { tree, callers, .. } = &mut *ctx.worker;
        let era = self.era.load(Ordering::Acquire);
        if tree.as_ref().is_some_and(|tree| tree.era != era) {
            (*tree, *callers) = (None, Callers::default());
        }
        let tree = tree.get_or_insert_with(|| self.tree());
        callers.act(&tree.base, ctx.caller, rights, call)
    }

    fn serve_once(
        &self,
        worker: &mut Worker,
        request: &Request<'_>,
        reply: &mut Reply,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno> {
        reply.clear();
        worker.granted.clear();
        worker.opened = None;
        let caller = Caller::of(request, self.config.checks());
        let mut ctx = RequestCtx { node: request.header.node, caller, worker, reply };
        let mut served = self.dispatch(&mut ctx, &request.operation, later);
        // A reply that is sent later makes no change, or none that is not durable already.
        if served == Ok(Served::Reply)
            && let Err(errno) = self.keep_promise(&ctx, &request.operation)
        {
            served = Err(errno);
        }
        if served.is_err() {
            // The error is sent without the lookups and handle granted for the reply, so they are
            // taken back.
            self.undelivered(worker);
        }
        served
    }

    /// Calls `serve` for a request that may need space, again if some could be made.
    fn change(&self, mut serve: impl FnMut() -> Result<Served, Errno>) -> Result<Served, Errno> {
        let served = serve();
        let is_refused = |served: &_| matches!(served, Err(errno) if is_for_space(*errno));
        if !is_refused(&served) {
            return served;
        }
        let again = || Some(serve()).filter(|served| !is_refused(served));
        self.reclaim.retry(again).unwrap_or(served)
    }

    fn dispatch(
        &self,
        ctx: &mut RequestCtx<'_>,
        operation: &Operation<'_>,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno> {
        use Operation as Op;
        match *operation {
            Op::Forget { count } => {
                let _working = self.reclaim.work();
                self.nodes.forget(ctx.node, count);
                return Ok(Served::Silent);
            }
            Op::BatchForget(forgets) => {
                let _working = self.reclaim.work();
                forgets.for_each(|(node, count)| self.nodes.forget(node, count));
                return Ok(Served::Silent);
            }
            Op::Interrupt { unique } => {
                self.waiting.interrupt(unique);
                return Ok(Served::Silent);
            }
            Op::SetLk { ref lock, wait } => return self.setlk(lock, wait, later),
            Op::LSeek { fh, offset, whence } => return self.lseek(ctx, fh, offset, whence, later),
            Op::SetAttr(ref set) => return self.setattr(ctx, set, later),
            Op::GetLk(ref lock) => self.getlk(ctx, lock)?,
            Op::Lookup { name } => self.lookup(ctx, name)?,
            Op::Symlink { name, target } => self.symlink(ctx, name, target)?,
            Op::MkNod { name, mode, rdev, umask } => self.mknod(ctx, name, mode, rdev, umask)?,
            Op::MkDir { name, mode, umask } => self.mkdir(ctx, name, mode, umask)?,
            Op::Unlink { name } => self.unlink(ctx, name, AtFlags::empty())?,
            Op::RmDir { name } => self.unlink(ctx, name, AtFlags::REMOVEDIR)?,
            Op::Rename { name, to, to_name, flags } => {
                self.rename(ctx, name, to, to_name, flags)?;
            }
            Op::Link { node, name } => self.link(ctx, node, name)?,
            Op::Create(create) => self.create(ctx, &create)?,
            Op::TmpFile(create) => self.tmpfile(ctx, &create)?,
            Op::GetAttr { fh } => self.getattr(ctx, fh)?,
            Op::Statx { fh } => self.statx(ctx, fh)?,
            Op::ReadLink => self.readlink(ctx)?,
            Op::Access { mask } => self.access(ctx, mask)?,
            Op::StatFs => self.statfs(ctx)?,
            _ => self.dispatch_open(ctx, operation)?,
        }
        Ok(Served::Reply)
    }

    /// Serves operations on open files and extended attributes.
    fn dispatch_open(
        &self,
        ctx: &mut RequestCtx<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), Errno> {
        use Operation as Op;
        match *operation {
            Op::Open { flags, kill_priv } => self.open(ctx, flags, kill_priv),
            Op::Read(at) => self.read(ctx, at),
            Op::Write(write) => self.write(ctx, write),
            Op::Flush { fh, owner } => self.flush(fh, owner),
            Op::Release { fh } | Op::ReleaseDir { fh } => self.release(fh),
            Op::FSync { fh, data_only } => self.fsync(ctx, fh, data_only),
            Op::FAllocate { fh, offset, len, mode } => self.fallocate(ctx, fh, offset, len, mode),
            Op::CopyFileRange { from, to, len, wide } => {
                self.copy_file_range(ctx, from, to, len, wide)
            }
            Op::OpenDir { flags } => self.opendir(ctx, flags),
            Op::ReadDir(at) => self.readdir(ctx, at),
            Op::ReadDirPlus(at) => self.readdirplus(ctx, at),
            Op::FSyncDir { fh, data_only } => self.fsync(ctx, fh, data_only),
            Op::SyncFs => self.syncfs(),
            Op::SetXattr { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::RemoveXattr { .. }
                if !self.config.has_xattrs =>
            {
                // The kernel remembers this reply, and answers such calls itself from then on.
                Err(Errno::NOSYS)
            }
            Op::SetXattr { name, value, flags, kill_sgid } => {
                self.setxattr(ctx, name, value, flags, kill_sgid)
            }
            Op::GetXattr { name, size } => self.getxattr(ctx, name, size),
            Op::ListXattr { size } => self.listxattr(ctx, size),
            Op::RemoveXattr { name } => self.removexattr(ctx, name),
            Op::Ioctl { command, data, room } => self.ioctl(ctx, command, data, room),
            _ => Err(Errno::NOSYS),
        }
    }
}

impl Service for Server {
    type Worker = Worker;

    fn settings(&self, offer: &Offer) -> InitFlags {
        // Not `FUSE_ASYNC_DIO`: after a direct write that the kernel does not wait for, it does not
        // drop the pages that a reader cached during the write. They would stay stale for ever.
        let mut flags = InitFlags::DONT_MASK
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::CACHE_SYMLINKS
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::SETXATTR_EXT
            | InitFlags::CREATE_SUPP_GROUP;
        if self.config.has_xattrs {
            flags |= InitFlags::POSIX_ACL;
        }
        if self.config.is_exclusive() {
            // Cached data is never stale, so it is never dropped.
            flags |= InitFlags::EXPLICIT_INVAL_DATA
                | InitFlags::NO_OPEN_SUPPORT
                | InitFlags::NO_OPENDIR_SUPPORT;
            if self.config.gathers() {
                flags |= InitFlags::WRITEBACK_CACHE;
            }
        } else {
            flags |= InitFlags::AUTO_INVAL_DATA
                | InitFlags::ATOMIC_O_TRUNC
                | InitFlags::POSIX_LOCKS
                | InitFlags::FLOCK_LOCKS;
        }
        flags & offer.flags
    }

    fn needed(&self) -> InitFlags {
        if self.config.idmap { InitFlags::ALLOW_IDMAP } else { InitFlags::empty() }
    }

    fn serve(
        &self,
        worker: &mut Worker,
        request: &Request<'_>,
        reply: &mut Reply,
        later: &dyn Fn() -> DeferredReply,
    ) -> Result<Served, Errno> {
        let _inside = self.gate.read();
        if let Some(errno) = self.refused_for_space(request.header.node, &request.operation) {
            worker.granted.clear();
            worker.opened = None;
            return Err(errno);
        }
        if request.operation.only_reads() {
            return self.serve_once(worker, request, reply, later);
        }
        let recorded = self.begin_recorded(request);
        let serve = || self.serve_once(worker, request, reply, later);
        let (served, is_ahead) = clock::in_system_order(|| self.change(serve));
        if is_ahead {
            self.floor.raise();
        }
        if let (Some(recorded), Ok(_)) = (recorded, &served) {
            recorded.end(self, request, (worker.granted.last().copied(), reply));
        }
        served
    }

    fn is_long(&self, operation: &Operation<'_>) -> bool {
        self.takes_long(operation)
    }

    fn undelivered(&self, worker: &mut Worker) {
        for node in worker.granted.drain(..) {
            self.nodes.forget(node, 1);
        }
        if let Some(fh) = worker.opened.take() {
            self.files.remove(fh);
        }
    }

    fn ended(&self) {
        self.control.end();
        self.end_files();
        self.unsent.end();
    }
}

#[cfg(test)]
mod tests;
