//! The introspection driver: a tree's own state as a file system, with text as in the kernel's files.
//!
//! # Purpose
//!
//! [`ProcFs`] is mounted anywhere in the tree that it tells of, as often as one likes (one value each).
//!
//! | file | as the kernel's | tells |
//! | --- | --- | --- |
//! | `mounts` | `/proc/mounts` | what is mounted where, seen from the root of the tree |
//! | `dentry-state` | `/proc/sys/fs/dentry-state` | dentries: all, unused, negative ones |
//! | `inode-state` | `/proc/sys/fs/inode-state` | inodes: all, free |
//! | `file-nr` | `/proc/sys/fs/file-nr` | open files: all, free, at most |
//! | `lock_stat` | `/proc/lock_stat` | what happened to the locks of each class |
//! | `scaling` | | each patch: `after` it or `before` it |
//! | `tasks/ID/fd/N` | `/proc/PID/fd/N` | a symbolic link for each descriptor |
//! | `tasks/ID/cwd` | `/proc/PID/cwd` | a symbolic link to the working directory |
//! | `tasks/ID/maps` | `/proc/PID/maps` | what is mapped: a line for each entry of the task's table ([`vfscale_vfs::maps`]) |
//!
//! Tasks are the ones that were given to [`ProcFs::show`]: a tree knows of no tasks, as making one should
//! cost nothing. What of a task is told only to its owner (`fd`, `maps`) has a mode that says so.
//!
//! # Invariants
//!
//! * Nothing is counted for the sake of this: numbers are summed when a file is read.
//! * A file is read as it was when its beginning was read ([`vfscale_vfs::inode::InodeInit`], `text`).
//! * The number of an inode tells what it is (`node::Node`); a driver keeps nothing of its own but the
//!   links' text.
//! * The driver does not keep its tree, nor tasks. What has ended is not there.
//!
//! # Locks
//!
//! `proc_tasks`, held for a look at the map; a task that is found is dropped outside of it.

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
use vfscale_vfs::driver::{Directories, FileSystem, Found};
use vfscale_vfs::inode::{Inode, InodeInit, InodeRef};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::{At, DirEntry, Fd, FileType, Mode, OFlags, StatFs, Task, Vfs, WeakVfs};

use node::{Access, Node};
pub use texts::{dentry_state, file_nr, inode_state, lock_stat, maps, scaling};

lock_class! {
    /// The tasks that an introspection file system shows.
    pub ProcTasks = ("proc_tasks", 112);
}

/// What `statfs` says it is.
const MAGIC: u64 = 0x5646_5350;

/// The introspection driver; see the [module](self). `Send` and `Sync`.
pub struct ProcFs {
    vfs: WeakVfs,
    tasks: Mutex<BTreeMap<u64, Weak<Task>>, ProcTasks>,
}

/// What a symbolic link held when it was last asked.
struct Target(Rcu<Vec<u8>>);

/// Who owns a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
}

const ROOT: Owner = Owner { uid: 0, gid: 0 };

impl ProcFs {
    /// A driver that tells of `vfs`, to be mounted there or elsewhere. It does not keep the tree.
    #[must_use]
    pub fn new(vfs: &Vfs) -> Arc<ProcFs> {
        Arc::new(ProcFs { vfs: vfs.downgrade(), tasks: Mutex::new(BTreeMap::new()) })
    }

    /// Shows a task under `tasks`, as long as it lives.
    pub fn show(&self, task: &Arc<Task>) {
        let mut tasks = self.tasks.lock();
        tasks.retain(|_, task| task.strong_count() > 0);
        tasks.insert(task.id(), Arc::downgrade(task));
    }

    fn task(&self, id: u64) -> Option<Arc<Task>> {
        let task = self.tasks.lock().get(&id).cloned();
        task?.upgrade()
    }

    /// What `name` stands for in a directory, and whose it is.
    fn find(&self, dir: Node, name: &[u8]) -> Option<(Node, Owner)> {
        let name = std::str::from_utf8(name).ok()?;
        match dir {
            Node::Root => Some((node::in_root(name)?, ROOT)),
            Node::Tasks => {
                let id = node::parse(name)?;
                Some((Node::Task(id), self.owner(id)?))
            }
            Node::Task(id) => {
                let owner = self.owner(id)?;
                let found = node::IN_TASK.iter().find(|(own, _)| *own == name)?;
                Some(((found.1)(id), owner))
            }
            Node::Fds(id) => {
                let task = self.task(id)?;
                let fd = i32::try_from(node::parse(name)?).ok()?;
                let file = task.file(Fd(fd)).ok()?;
                Some((Node::Fd(id, fd, Access::of(file.flags())), owner_of(&task)))
            }
            _ => None,
        }
    }

    fn owner(&self, id: u64) -> Option<Owner> {
        self.task(id).map(|task| owner_of(&task))
    }

    /// Where a link leads at the moment.
    fn target(&self, node: Node) -> Result<Vec<u8>, Errno> {
        let (Node::Cwd(id) | Node::Fd(id, ..)) = node else { return Err(Errno::INVAL) };
        let task = self.task(id).ok_or(Errno::NOENT)?;
        let file = match node {
            Node::Fd(_, fd, _) => task.file(Fd(fd)).map_err(|_| Errno::NOENT)?,
            _ => task.openat(At::Cwd, ".", OFlags::PATH, Mode::empty())?,
        };
        Ok(task.path_of(&file)?.into_os_string().into_vec())
    }

    /// Emits entries with these positions (those behind them are one more).
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

/// The inode of a node.
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

impl Directories for ProcFs {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno> {
        let here = Node::of(dir.ino());
        let found = self.find(here, name);
        // Tasks and descriptors come and go by themselves; what is in the root does not.
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
            Node::Root => listed(node::all_in_root().collect()),
            Node::Tasks => {
                let tasks = self.tasks.lock();
                let alive = tasks.iter().filter(|(_, task)| task.strong_count() > 0);
                alive.map(|(id, _)| (id + 2, id.to_string(), Node::Task(*id))).collect()
            }
            Node::Task(id) if self.task(id).is_some() => {
                listed(node::IN_TASK.iter().map(|(name, node)| (*name, node(id))).collect())
            }
            Node::Fds(id) => {
                let fds = self.task(id).map(|task| task.descriptor_list()).unwrap_or_default();
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

    /// What they tell of, and its owner, changes without them.
    fn caches_inodes(&self) -> bool {
        false
    }

    fn is_current(&self, dir: &Inode, name: &[u8], inode: Option<&Inode>) -> bool {
        match (self.find(Node::of(dir.ino()), name), inode) {
            (Some((node, owner)), Some(inode)) if node.ino() == inode.ino() => {
                // A task may have taken other credentials since.
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

    fn directories(&self) -> Option<&dyn Directories> {
        Some(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        Ok(inode(sb, Node::Root, ROOT))
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        StatFs { magic: MAGIC, block_size: 4096, name_max: 255, ..StatFs::default() }
    }

    fn text(&self, inode: &Inode) -> Result<Vec<u8>, Errno> {
        match Node::of(inode.ino()) {
            Node::Text(text) => {
                let vfs = self.vfs.upgrade().ok_or(Errno::NODEV)?;
                Ok(texts::text(text, &vfs).into_bytes())
            }
            Node::Maps(id) => Ok(texts::maps(&*self.task(id).ok_or(Errno::SRCH)?)),
            _ => Err(Errno::INVAL),
        }
    }

    fn get_link<'g>(&self, inode: &'g Inode, guard: &'g Guard) -> Result<&'g [u8], Errno> {
        let target = inode.private::<Target>().ok_or(Errno::INVAL)?;
        target.0.replace(self.target(Node::of(inode.ino()))?, guard);
        Ok(target.0.read(guard))
    }

    /// All there is to read is text, and lies past the end.
    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Ok(0)
    }
}
