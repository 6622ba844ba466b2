//! The introspection driver: the state of a tree as a file system, with text in the formats of the
//! kernel's files.
//!
//! # Purpose
//!
//! A [`ProcFs`] describes one tree. It can be mounted anywhere in that tree, any number of times
//! (one value each).
//!
//! | file | counterpart in Linux | contents |
//! | --- | --- | --- |
//! | `mounts` | `/proc/mounts` | the mounts, as seen from the root of the tree |
//! | `dentry-state` | `/proc/sys/fs/dentry-state` | number of dentries, unused and negative ones |
//! | `inode-state` | `/proc/sys/fs/inode-state` | number of inodes, and of unused ones |
//! | `file-nr` | `/proc/sys/fs/file-nr` | number of open files, and its limit |
//! | `lock_stat` | `/proc/lock_stat` | contention statistics of each lock class |
//! | `scaling` | | for each patch: `after` or `before` |
//! | `tasks/ID/fd/N` | `/proc/PID/fd/N` | a symbolic link for each descriptor |
//! | `tasks/ID/cwd` | `/proc/PID/cwd` | a symbolic link to the working directory |
//!
//! Only tasks passed to [`ProcFs::show`] are listed: a tree has no list of its tasks, because
//! maintaining it would cost time. The mode of `fd` restricts it to the task's owner.
//!
//! # Invariants
//!
//! * The file system maintains no counters for this driver: numbers are summed when a file is read.
//! * A reader gets the contents as of its read at offset 0 ([`vfscale_vfs::inode::InodeInit`],
//!   `text`).
//! * An inode's number identifies the object that the inode represents (`node::Node`). The driver
//!   stores nothing else but the targets of links.
//! * The driver owns neither its tree nor tasks. Ended tasks are not listed.
//!
//! # Locks
//!
//! `proc_tasks`, held for one access to the map. A task that is found is dropped after the lock is
//! released.

mod node;
mod texts;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use vfscale_sync::lock::Mutex;
use vfscale_sync::lock_class;
use vfscale_sync::rcu::{Guard, Rcu};
use vfscale_vfs::driver::{DirEntry, DirOps, FileOps, FileSystem, Found, Names};
use vfscale_vfs::inode::{Inode, InodeInit, InodeRef};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::{At, Fd, FileType, Mode, OFlags, StatFs, Task, Vfs, WeakVfs};

use node::{Access, Node};
pub use texts::{dentry_state, file_nr, inode_state, lock_stat, scaling};

lock_class! {
    /// The tasks that an introspection file system shows.
    pub ProcTasks = ("proc_tasks", 112);
}

/// The magic number that `statfs` returns.
const MAGIC: u64 = 0x5646_5350;

/// A file system whose files show the state of a tree as text: mounts, counts, locks, and the
/// descriptors of tasks. `Send` and `Sync`.
///
/// ```
/// # use vfscale_procfs::ProcFs;
/// # use vfscale_vfs::{MountFlags, Result, Vfs};
/// fn with_proc(vfs: &Vfs) -> Result<()> {
///     let task = vfs.task();
///     task.create_dir("/proc")?;
///     task.posix().mount(ProcFs::new(vfs), "/proc", MountFlags::empty())?;
///     println!("{}", task.read_to_string("/proc/mounts")?);
///     Ok(())
/// }
/// ```
pub struct ProcFs {
    vfs: WeakVfs,
    /// Owns what belongs to no task.
    owner: Owner,
    tasks: Mutex<BTreeMap<u64, Weak<Task>>, ProcTasks>,
}

/// The target of a symbolic link when it was last read.
struct Target(Rcu<Vec<u8>>);

/// Owner and group of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl ProcFs {
    /// Creates a driver that describes `vfs`, to be mounted in that tree or another. Does not own
    /// the tree. Its files belong to root, or to the user of the task that they describe.
    pub fn new(vfs: &Vfs) -> Arc<ProcFs> {
        ProcFs::owned_by(vfs, 0, 0)
    }

    /// Does what [`new`](Self::new) does, with a user and group in the place of root: for example
    /// the user who may read the statistics of the locks.
    pub fn owned_by(vfs: &Vfs, uid: u32, gid: u32) -> Arc<ProcFs> {
        let (vfs, owner) = (vfs.downgrade(), Owner { uid, gid });
        Arc::new(ProcFs { vfs, owner, tasks: Mutex::new(BTreeMap::new()) })
    }

    /// Lists a task under `tasks` until the task ends.
    pub fn show(&self, task: &Arc<Task>) {
        let mut tasks = self.tasks.lock();
        tasks.retain(|_, task| task.strong_count() > 0);
        tasks.insert(task.id(), Arc::downgrade(task));
    }

    fn task(&self, id: u64) -> Option<Arc<Task>> {
        let task = self.tasks.lock().get(&id).cloned();
        task?.upgrade()
    }

    /// Returns the node and owner of `name` in a directory.
    fn find(&self, dir: Node, name: &[u8]) -> Option<(Node, Owner)> {
        let name = std::str::from_utf8(name).ok()?;
        match dir {
            Node::Root => Some((node::find_in_root(name)?, self.owner)),
            Node::Tasks => {
                let id = node::parse(name)?;
                Some((Node::Task(id), self.owner(id)?))
            }
            Node::Task(id) => {
                let owner = self.owner(id)?;
                let found = node::TASK_ENTRIES.iter().find(|(own, _)| *own == name)?;
                Some(((found.1)(id), owner))
            }
            Node::Fds(id) => {
                let task = self.task(id)?;
                let fd = i32::try_from(node::parse(name)?).ok()?;
                let file = task.posix().file(Fd(fd)).ok()?;
                Some((Node::Fd(id, fd, Access::of(file.flags())), owner_of(&task)))
            }
            _ => None,
        }
    }

    fn owner(&self, id: u64) -> Option<Owner> {
        self.task(id).map(|task| owner_of(&task))
    }

    /// Returns the present target of a link.
    fn target(&self, node: Node) -> Result<Vec<u8>, Errno> {
        let (Node::Cwd(id) | Node::Fd(id, ..)) = node else { return Err(Errno::INVAL) };
        let task = self.task(id).ok_or(Errno::NOENT)?;
        let file = match node {
            Node::Fd(_, fd, _) => task.posix().file(Fd(fd)).map_err(|_| Errno::NOENT)?,
            _ => task.posix().openat(At::Cwd, ".", OFlags::PATH, Mode::empty())?,
        };
        Ok(task.posix().path_of(&file)?.into_os_string().into_vec())
    }

    /// Emits the entries from position `pos` on. The position after an entry is its own plus one.
    fn emit_all(
        dir: Node,
        pos: u64,
        names: impl Iterator<Item = (u64, String, Node)>,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) {
        debug_assert!(dir.is_dir());
        for (at, name, node) in names.skip_while(|(at, ..)| *at < pos) {
            let name = OsStr::from_bytes(name.as_bytes());
            let file_type = FileType::from_raw_mode(node.mode());
            if emit(DirEntry { ino: node.ino(), next: at + 1, file_type, name }).is_break() {
                return;
            }
        }
    }
}

fn owner_of(task: &Task) -> Owner {
    let credentials = task.credentials();
    Owner { uid: credentials.uid, gid: credentials.gid }
}

/// Returns the inode of a node, creating it if needed.
fn inode(sb: &SuperBlock, node: Node, owner: Owner) -> InodeRef {
    sb.iget(node.ino(), || InodeInit {
        mode: node.mode(),
        uid: owner.uid,
        gid: owner.gid,
        nlink: if node.is_dir() { 2 } else { 1 },
        text: node.is_text(),
        private: node.is_link().then(|| Box::new(Target(Rcu::new(Vec::new()))) as _),
        ..InodeInit::default()
    })
}

impl DirOps for ProcFs {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno> {
        let here = Node::of(dir.ino());
        let found = self.find(here, name);
        // Tasks and descriptors change without calls to this driver; the names in the root do not.
        Ok(Found {
            inode: found.map(|(node, owner)| inode(dir.sb(), node, owner)),
            check: here != Node::Root,
        })
    }

    fn read_dir(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let here = Node::of(dir.ino());
        let listed = |names: Vec<(&str, Node)>| {
            let all = (2..).zip(names).map(|(at, (name, node))| (at, name.to_owned(), node));
            all.collect::<Vec<_>>()
        };
        let all = match here {
            Node::Root => listed(node::root_entries().collect()),
            Node::Tasks => {
                let tasks = self.tasks.lock();
                let alive = tasks.iter().filter(|(_, task)| task.strong_count() > 0);
                alive.map(|(id, _)| (id + 2, id.to_string(), Node::Task(*id))).collect()
            }
            Node::Task(id) if self.task(id).is_some() => {
                listed(node::TASK_ENTRIES.iter().map(|(name, node)| (*name, node(id))).collect())
            }
            Node::Fds(id) => {
                let fds =
                    self.task(id).map(|task| task.posix().descriptor_list()).unwrap_or_default();
                let entry = |fd: Fd| {
                    (fd.0 as u64 + 2, fd.0.to_string(), Node::Fd(id, fd.0, Access::default()))
                };
                fds.into_iter().map(entry).collect()
            }
            _ => Vec::new(),
        };
        ProcFs::emit_all(here, pos, all.into_iter(), emit);
        Ok(())
    }

    /// Returns false: the objects that inodes represent, and their owners, change without calls to
    /// the inodes.
    fn caches_inodes(&self) -> bool {
        false
    }

    fn is_current(&self, dir: &Inode, name: &[u8], inode: Option<&Inode>) -> bool {
        match (self.find(Node::of(dir.ino()), name), inode) {
            (Some((node, owner)), Some(inode)) if node.ino() == inode.ino() => {
                // The task's credentials may have changed since.
                if owner != (Owner { uid: inode.uid(), gid: inode.gid() }) {
                    inode.set_owner(owner.uid, owner.gid);
                }
                true
            }
            (None, None) => true,
            _ => false,
        }
    }
}

impl FileSystem for ProcFs {
    fn name(&self) -> &'static str {
        "vfscale"
    }

    fn names(&self) -> Names<'_> {
        Names::Backed(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        Ok(inode(sb, Node::Root, self.owner))
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        StatFs { magic: MAGIC, block_size: 4096, name_max: 255, ..StatFs::default() }
    }
}

impl FileOps for ProcFs {
    fn text(&self, inode: &Inode) -> Result<Vec<u8>, Errno> {
        match Node::of(inode.ino()) {
            Node::Text(text) => {
                let vfs = self.vfs.upgrade().ok_or(Errno::NODEV)?;
                Ok(texts::text(text, &vfs).into_bytes())
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn get_link<'g>(&self, inode: &'g Inode, guard: &'g Guard) -> Result<&'g [u8], Errno> {
        let target = inode.private::<Target>().ok_or(Errno::INVAL)?;
        target.0.replace(self.target(Node::of(inode.ino()))?, guard);
        Ok(target.0.read(guard))
    }

    /// Reads nothing: the files contain only text, which [`text`](FileOps::text) returns.
    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Ok(0)
    }
}
