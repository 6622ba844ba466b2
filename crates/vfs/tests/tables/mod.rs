//! A backed driver whose directories can be changed: it stores them in tables in memory, and is as
//! slow as a test requests.

#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use vfscale_sync::atomic::thread;
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::lock_class;
use vfscale_sync::rcu::Guard;
use vfscale_vfs::driver::DirEntry;
use vfscale_vfs::driver::NewInode;
use vfscale_vfs::inode::{Inode, InodeInit, InodeRef, InodeTimes};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::{
    AttrChange, DirOps, Errno, FileOps, FileSystem, FileType, Found, Names, ParentName, Rename,
    StatFs, Timestamp,
};

lock_class! {
    /// All stored inodes and names.
    pub Stored = ("stored", 60000);
    /// The root inode that the driver holds.
    pub Root = ("root", 59999);
}

const DIR: u32 = 0o040_000;
const ROOT: u64 = 1;
const SIZE_MAX: u64 = 1 << 20;
/// The maximum number of names of an inode.
const LINKS_MAX: u32 = 1000;

/// The stored part of an inode.
struct Node {
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: u64,
    nlink: u32,
    data: Vec<u8>,
    times: InodeTimes,
    xattrs: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// Of a directory: its names, with their positions and inodes.
    names: BTreeMap<Vec<u8>, (u64, u64)>,
    next_position: u64,
    parent: u64,
    /// Whether the VFS has an inode for it.
    in_core: bool,
}

impl Node {
    fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == DIR
    }
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<u64, Node>,
    last: u64,
}

/// The target of a symbolic link.
struct Target(Vec<u8>);

/// The driver.
#[derive(Default)]
pub struct Tables {
    state: Mutex<State, Stored>,
    root: Mutex<Option<InodeRef>, Root>,
    /// The number of times that a call yields to other threads, before and after its operation.
    pub pauses: AtomicU32,
    /// The error of the next change, if not 0.
    pub fail: AtomicI32,
    /// The number of lookups.
    pub lookups: AtomicU64,
    /// The number of calls of `dirtied`.
    pub dirtied: AtomicU64,
    /// The number of calls of `sync_fs`.
    pub syncs: AtomicU64,
}

impl Tables {
    pub fn new() -> Arc<Tables> {
        let fs = Tables::default();
        fs.state().add(DIR | 0o755, 0, 0, ROOT, 2);
        Arc::new(fs)
    }

    /// Runs `body` on the superblock.
    pub fn with_super<T>(&self, body: impl FnOnce(&SuperBlock) -> T) -> T {
        let root = self.root.lock().clone().expect("it is mounted");
        body(root.sb())
    }

    fn state(&self) -> MutexGuard<'_, State, Stored> {
        self.state.lock()
    }

    fn pause(&self) {
        for _ in 0..self.pauses.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }

    /// Begins a change.
    fn begin(&self) -> Result<(), Errno> {
        self.pause();
        match self.fail.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }

    fn inode_of(&self, sb: &SuperBlock, ino: u64) -> InodeRef {
        sb.iget(ino, || self.state().init(ino))
    }

    /// Returns whether the driver has stored this name in the root.
    pub fn is_stored(&self, name: &str) -> bool {
        self.state().nodes[&ROOT].names.contains_key(name.as_bytes())
    }

    /// Returns the number of stored inodes.
    pub fn stored(&self) -> usize {
        self.state().nodes.len()
    }

    /// Checks that the stored state is consistent: link counts are right, directories have the
    /// right parent, and no inode without a name is left.
    pub fn check(&self) {
        let state = self.state();
        let mut links: BTreeMap<u64, u32> = BTreeMap::from([(ROOT, 1)]);
        for (ino, dir) in &state.nodes {
            for (_, child) in dir.names.values() {
                *links.entry(*child).or_default() += 1;
                let child = state.nodes.get(child).expect("each name has an inode");
                if child.is_dir() {
                    assert_eq!(child.parent, *ino);
                    *links.entry(*ino).or_default() += 1;
                }
            }
        }
        for (ino, node) in &state.nodes {
            let counted = links.get(ino).copied().unwrap_or_default();
            // A removed directory has no links, although a task may still use it.
            let own = u32::from(node.is_dir() && counted > 0);
            assert_eq!(node.nlink, counted + own, "links of {ino}");
        }
    }
}

impl State {
    fn add(&mut self, mode: u32, uid: u32, gid: u32, parent: u64, nlink: u32) -> u64 {
        self.last += 1;
        let node = Node {
            mode,
            uid,
            gid,
            rdev: 0,
            nlink,
            data: Vec::new(),
            times: InodeTimes::all(Timestamp(0)),
            xattrs: BTreeMap::new(),
            names: BTreeMap::new(),
            next_position: 3,
            parent,
            in_core: false,
        };
        self.nodes.insert(self.last, node);
        self.last
    }

    fn node(&mut self, inode: &Inode) -> &mut Node {
        self.nodes.get_mut(&inode.ino()).expect("an inode in use is stored")
    }

    /// Returns a directory that was not removed.
    fn dir(&mut self, dir: &Inode) -> Result<&mut Node, Errno> {
        let node = self.node(dir);
        if node.nlink == 0 { Err(Errno::NOENT) } else { Ok(node) }
    }

    fn init(&mut self, ino: u64) -> InodeInit {
        let node = self.nodes.get_mut(&ino).expect("an inode with a name is stored");
        assert!(!node.in_core, "two inodes of one number, or the old one was not evicted");
        node.in_core = true;
        let is_link = FileType::from_raw_mode(node.mode) == FileType::Symlink;
        InodeInit {
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            nlink: node.nlink,
            size: node.data.len() as u64,
            blocks: node.data.len().div_ceil(512) as u64,
            times: Some(node.times),
            xattrs: node.xattrs.iter().map(|(n, v)| (n.clone(), v.clone())).collect(),
            private: is_link.then(|| Box::new(Target(node.data.clone())) as _),
            ..InodeInit::default()
        }
    }

    fn new_node(&mut self, dir: &Inode, new: &NewInode<'_>, nlink: u32) -> u64 {
        let now = dir.change_time();
        let ino = self.add(new.mode, new.uid, new.gid, dir.ino(), nlink);
        let node = self.nodes.get_mut(&ino).expect("just added");
        node.rdev = new.rdev;
        node.data = new.target.unwrap_or_default().to_vec();
        node.times = InodeTimes::all(now);
        node.xattrs = new.xattrs.iter().cloned().collect();
        ino
    }

    fn put(&mut self, dir: &Inode, name: &[u8], ino: u64) {
        let node = self.node(dir);
        let position = node.next_position;
        node.next_position += 1;
        assert!(node.names.insert(name.to_vec(), (position, ino)).is_none());
    }

    fn take(&mut self, dir: &Inode, name: &[u8], inode: &Inode) {
        let taken = self.node(dir).names.remove(name);
        assert_eq!(taken.map(|(_, ino)| ino), Some(inode.ino()), "the name was locked");
    }

    /// Changes the number of links in the store and in the VFS inode.
    fn links(&mut self, inode: &Inode, change: i32) {
        let node = self.node(inode);
        node.nlink = node.nlink.strict_add_signed(change);
        assert_eq!(
            inode.nlink().strict_add_signed(change),
            node.nlink,
            "the VFS inode agrees with the store"
        );
        inode.set_nlink(node.nlink);
    }

    /// Sets the times of the directory, and of files that get or lose a name.
    fn changed(&mut self, dir: &Inode, files: &[&Inode]) {
        let now = dir.change_time();
        let node = self.node(dir);
        (node.times.mtime, node.times.ctime) = (now, now);
        dir.changed_at(now);
        for file in files {
            let now = file.change_time();
            self.node(file).times.ctime = now;
            file.inode_changed_at(now);
        }
    }

    /// Removes an empty directory.
    fn mark_directory_dead(&mut self, parent: &Inode, dir: &Inode) -> Result<(), Errno> {
        if !self.node(dir).names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.links(parent, -1);
        self.links(dir, -2);
        Ok(())
    }
}

impl DirOps for Tables {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.pause();
        let ino = self.state().node(dir).names.get(name).map(|(_, ino)| *ino);
        let inode = ino.map(|ino| self.inode_of(dir.sb(), ino));
        self.pause();
        Ok(Found { inode, check: false })
    }

    fn read_dir(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        let names = state.node(dir).names.clone();
        let mut all: Vec<_> = names
            .into_iter()
            .filter(|(_, (at, _))| *at >= pos)
            .map(|(name, (at, ino))| {
                let file_type = FileType::from_raw_mode(state.nodes[&ino].mode);
                (at, ino, file_type, name)
            })
            .collect();
        drop(state);
        all.sort_unstable_by_key(|(at, ..)| *at);
        for (at, ino, file_type, name) in &all {
            let name = OsStr::from_bytes(name);
            let entry = DirEntry { ino: *ino, next: at + 1, file_type: *file_type, name };
            if emit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn inode(&self, sb: &SuperBlock, ino: u64, _: u32) -> Result<Option<InodeRef>, Errno> {
        let is_stored = self.state().nodes.get(&ino).is_some_and(|node| node.nlink > 0);
        Ok(is_stored.then(|| self.inode_of(sb, ino)))
    }

    fn parent(&self, dir: &Inode) -> Result<Option<ParentName>, Errno> {
        let (parent, name) = {
            let mut state = self.state();
            let parent = state.node(dir).parent;
            let names = &state.nodes[&parent].names;
            let name = names.iter().find(|(_, (_, ino))| *ino == dir.ino());
            (parent, name.map(|(name, _)| name.clone()))
        };
        let Some(name) = name else { return Ok(None) };
        let parent = self.inode_of(dir.sb(), parent);
        Ok(Some(ParentName { parent, name: name.into() }))
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn create_finds_names(&self) -> bool {
        true
    }

    fn create(&self, dir: &Inode, name: &[u8], new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        self.begin()?;
        assert_eq!(new.name_len, name.len());
        let ino = {
            let mut state = self.state();
            let parent = state.dir(dir)?;
            if parent.names.contains_key(name) {
                return Err(Errno::EXIST);
            }
            let is_dir = new.mode & 0o170_000 == DIR;
            let ino = state.new_node(dir, new, 1 + u32::from(is_dir));
            state.put(dir, name, ino);
            if is_dir {
                state.links(dir, 1);
            }
            state.changed(dir, &[]);
            ino
        };
        let inode = self.inode_of(dir.sb(), ino);
        self.pause();
        Ok(inode)
    }

    fn create_unnamed(&self, dir: &Inode, new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        self.begin()?;
        let ino = {
            let mut state = self.state();
            state.dir(dir)?;
            state.new_node(dir, new, 0)
        };
        Ok(self.inode_of(dir.sb(), ino))
    }

    fn link(&self, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<(), Errno> {
        self.begin()?;
        let mut state = self.state();
        state.dir(dir)?;
        match state.node(inode).nlink {
            0 if !inode.is_linkable() => return Err(Errno::NOENT),
            LINKS_MAX.. => return Err(Errno::MLINK),
            _ => {}
        }
        state.put(dir, name, inode.ino());
        state.links(inode, 1);
        state.changed(dir, &[inode]);
        drop(state);
        self.pause();
        Ok(())
    }

    fn unlink(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Errno> {
        self.begin()?;
        let mut state = self.state();
        state.take(dir, name, inode);
        state.links(inode, -1);
        state.changed(dir, &[inode]);
        drop(state);
        self.pause();
        Ok(())
    }

    fn rmdir(&self, dir: &Inode, name: &[u8], inode: &Inode) -> Result<(), Errno> {
        self.begin()?;
        let mut state = self.state();
        state.mark_directory_dead(dir, inode)?;
        state.take(dir, name, inode);
        state.changed(dir, &[inode]);
        drop(state);
        self.pause();
        Ok(())
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<(), Errno> {
        self.begin()?;
        let Rename { old_dir, old_name, source, new_dir, new_name, target, exchange, .. } = *rename;
        if rename.whiteout.is_some() {
            return Err(Errno::INVAL);
        }
        let mut state = self.state();
        state.dir(new_dir)?;
        if let Some(target) = target.filter(|_| !exchange) {
            assert_eq!(target.is_dir(), source.is_dir());
            if target.is_dir() {
                state.mark_directory_dead(new_dir, target)?;
            } else {
                state.links(target, -1);
            }
        }
        state.take(old_dir, old_name, source);
        if let Some(target) = target {
            state.take(new_dir, new_name, target);
            if exchange {
                state.put(old_dir, old_name, target.ino());
                state.comes(target, new_dir, old_dir);
            }
        }
        state.put(new_dir, new_name, source.ino());
        state.comes(source, old_dir, new_dir);
        let both = [source, target.unwrap_or(source)];
        state.changed(old_dir, &both[..1 + usize::from(target.is_some())]);
        state.changed(new_dir, &[]);
        drop(state);
        self.pause();
        Ok(())
    }
}

impl State {
    /// Notes that a directory moved from one parent to another.
    fn comes(&mut self, inode: &Inode, from: &Inode, to: &Inode) {
        if inode.is_dir() {
            self.node(inode).parent = to.ino();
            self.links(from, -1);
            self.links(to, 1);
        }
    }
}

impl FileSystem for Tables {
    fn name(&self) -> &'static str {
        "tables"
    }

    fn names(&self) -> Names<'_> {
        Names::Backed(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        let root = self.inode_of(sb, ROOT);
        *self.root.lock() = Some(root.clone());
        Ok(root)
    }

    fn put_super(&self) {
        let root = self.root.lock().take();
        drop(root);
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        StatFs::default()
    }

    fn size_max(&self) -> u64 {
        SIZE_MAX
    }

    fn evict(&self, inode: &Inode) {
        let mut state = self.state();
        let node = state.node(inode);
        assert!(node.in_core);
        assert_eq!(node.nlink, inode.nlink());
        node.in_core = false;
        let (atime, mtime, ctime) = (inode.atime(), inode.mtime(), inode.ctime());
        node.times = InodeTimes { atime, mtime, ctime, ..node.times };
        if node.nlink == 0 {
            state.nodes.remove(&inode.ino());
        }
    }

    fn dirtied(&self, _: &Inode) {
        self.dirtied.fetch_add(1, Ordering::Relaxed);
    }

    fn sync_fs(&self) -> Result<(), Errno> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl FileOps for Tables {
    fn set_attr(&self, inode: &Inode, change: &AttrChange<'_>) -> Result<(), Errno> {
        self.begin()?;
        let mut state = self.state();
        let node = state.node(inode);
        node.mode = change.mode.unwrap_or(node.mode);
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        let times = &mut node.times;
        times.atime = change.atime.unwrap_or(times.atime);
        times.mtime = change.mtime.unwrap_or(times.mtime);
        times.ctime = change.ctime.unwrap_or(times.ctime);
        for xattr in change.xattrs {
            match xattr.value {
                Some(value) => node.xattrs.insert(xattr.name.into(), value.into()),
                None => node.xattrs.remove(xattr.name),
            };
        }
        drop(state);
        self.pause();
        Ok(())
    }

    fn read_at(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        self.pause();
        let mut state = self.state();
        let left = state.node(inode).data.get(offset as usize..).unwrap_or_default();
        let len = left.len().min(buf.len());
        buf[..len].copy_from_slice(&left[..len]);
        Ok(len)
    }

    fn write_at(&self, inode: &Inode, offset: u64, buf: &[u8]) -> Result<usize, Errno> {
        self.begin()?;
        let mut state = self.state();
        let data = &mut state.node(inode).data;
        let end = offset as usize + buf.len();
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset as usize..end].copy_from_slice(buf);
        inode.set_size(data.len() as u64);
        inode.set_blocks(data.len().div_ceil(512) as u64);
        Ok(buf.len())
    }

    fn set_size(&self, inode: &Inode, size: u64) -> Result<(), Errno> {
        self.begin()?;
        let mut state = self.state();
        state.node(inode).data.resize(size as usize, 0);
        inode.set_size(size);
        inode.set_blocks(size.div_ceil(512));
        Ok(())
    }

    fn get_link<'g>(&self, inode: &'g Inode, _: &'g Guard) -> Result<&'g [u8], Errno> {
        inode.private::<Target>().map(|target| &target.0[..]).ok_or(Errno::INVAL)
    }
}
