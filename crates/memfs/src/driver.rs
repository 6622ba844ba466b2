//! The driver: inodes, links, space and data for the VFS.
//!
//! # Charges
//!
//! | object | bytes |
//! | --- | --- |
//! | an inode | [`INODE_BYTES`] |
//! | a name | [`NAME_BYTES`], and its length if it does not fit into a dentry |
//! | a directory | [`DIRECTORY_BYTES`] more |
//! | a symbolic link | the length of its target more |
//! | a file with data | its pages and nodes, as described in [`pages`](crate::pages) |
//! | extended attributes, ACLs | as the VFS charges |
//!
//! `statfs` reports the uncharged bytes as free. It reports as available as many pages as a new
//! file can have, together with the nodes above them.
//!
//! An inode with one name is charged [`INODE_BYTES`]` + `[`NAME_BYTES`]; a test compares that with
//! the memory it occupies.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::cpu;
use vfscale_sync::machine;
use vfscale_sync::percpu::Budget;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::reclaim;
use vfscale_vfs::driver::{
    FIRST_TABLE_BYTES, FileOps, FileSystem, NameAccounting, Names, NewInode, Reclaimed,
};
use vfscale_vfs::inode::{Inode, InodeInit, InodeRef};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::types::{FallocateFlags, FileType, InodeFlags, StatFs};

use crate::page_locks::PageLocks;
use crate::pages::{MALLOC_BYTES, PAGE, PAGE_BYTES, PageTree, pages_within};
use crate::space::Space;

/// Charge of an inode: its memory and its share of the slab.
pub(crate) const INODE_BYTES: u64 = 264;

/// Charge of a name: a dentry, its share of the slab, and its share of the directory's table at its
/// lowest load.
pub(crate) const NAME_BYTES: u64 = 248;

/// Maximum length of a name that is stored in its dentry.
const NAME_INLINE: usize = 63;

/// Additional charge of a directory: the first buckets of its table of children, and the overhead
/// of allocating them on a cache line of their own.
const DIRECTORY_BYTES: u64 = FIRST_TABLE_BYTES as u64 + 96;

/// Number of pages that a thread cuts off before it hands their memory over: a MiB.
const BIG_PAGES: u64 = 256;

/// Size of the blocks in `st_blocks`.
const SECTOR: u64 = 512;

/// The magic number of tmpfs, by which programs recognise files in memory.
const MAGIC: u64 = 0x0102_1994;

const NAME_MAX: u32 = 255;

/// The target of a symbolic link.
struct Target(Box<[u8]>);

/// Options of a [`MemFs`].
///
/// ```
/// # mod vfscale { pub use vfscale_memfs::MemFs; pub use vfscale_vfs::Vfs; }
/// use vfscale::{MemFs, Vfs};
///
/// let vfs = Vfs::new(MemFs::builder().size(1 << 20).mode(0o1777).build())?;
/// vfs.task().write("/f", "x")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemFsBuilder {
    size_bytes: Option<u64>,
    inodes_max: Option<u64>,
    mode: u32,
    uid: u32,
    gid: u32,
    slots: Option<usize>,
}

impl MemFsBuilder {
    /// Sets the maximum memory of the file system, in bytes. Default: half of what the process may
    /// use.
    #[must_use]
    pub fn size(mut self, bytes: u64) -> Self {
        self.size_bytes = Some(bytes);
        self
    }

    /// Returns the maximum memory of the file system, in bytes, as set or by default.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.unwrap_or_else(|| machine::memory_bytes() / 2)
    }

    /// Sets the maximum number of inodes, including the root. Default: as many as fit into the
    /// memory.
    #[must_use]
    pub fn inodes(mut self, inodes_max: u64) -> Self {
        self.inodes_max = Some(inodes_max);
        self
    }

    /// Sets the permission bits of the root directory. Default: 0755, as on a newly formatted disk.
    /// Other bits are ignored.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode & 0o7777;
        self
    }

    /// Sets the owner and group of the root directory. Default: 0 and 0.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    /// Sets the number of slots of its per-CPU budgets, at least one. Default: the number of CPUs.
    /// One slot is a budget that all CPUs share.
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Creates the file system. It must then be mounted.
    #[must_use]
    pub fn build(self) -> Arc<MemFs> {
        let slots = self.slots.unwrap_or_else(|| cpu::slots() as usize);
        Arc::new(MemFs {
            space: Space::new(self.size_bytes(), slots),
            page_locks: PageLocks::new(slots),
            inodes: self.inodes_max.map(|inodes_max| Budget::new(inodes_max, slots)),
            root_mode: self.mode,
            root_uid: self.uid,
            root_gid: self.gid,
            is_mounted: AtomicBool::new(false),
        })
    }
}

/// A file system in memory, as the kernel's tmpfs is one.
///
/// `Send` and `Sync`. It can be mounted once. When that mount and all binds of it have ended, its
/// files are freed and its space is returned.
pub struct MemFs {
    space: Space,
    /// One unit for each inode, if their number is limited.
    inodes: Option<Budget>,
    page_locks: PageLocks,
    root_mode: u32,
    root_uid: u32,
    root_gid: u32,
    is_mounted: AtomicBool,
}

impl MemFs {
    /// Returns options for a new file system.
    pub fn builder() -> MemFsBuilder {
        MemFsBuilder {
            size_bytes: None,
            inodes_max: None,
            mode: 0o755,
            uid: 0,
            gid: 0,
            slots: None,
        }
    }

    /// Returns the charged bytes; exact while no other thread changes the file system.
    pub fn used_bytes(&self) -> u64 {
        self.space.used()
    }

    /// Returns the maximum of charged bytes.
    pub fn size_bytes(&self) -> u64 {
        self.space.total()
    }

    /// Charges an inode and `bytes`, or neither.
    #[inline]
    fn take_inode(&self, bytes: u64) -> Result<(), Errno> {
        if self.inodes.as_ref().is_some_and(|inodes| !inodes.take(1)) {
            return Err(Errno::NOSPC);
        }
        self.space.take(bytes).map_err(|full| {
            self.give_inode();
            full.into()
        })
    }

    fn give_inode(&self) {
        if let Some(inodes) = &self.inodes {
            inodes.give(1);
        }
    }

    /// Returns the data of a file that is about to be written, creating it if there is none.
    fn data_or_init<'i>(&self, inode: &'i Inode) -> Result<&'i PageTree, Errno> {
        // The inode's lock is held, so no other thread creates the data concurrently.
        inode.private_or_init(PageTree::default).ok_or(Errno::INVAL)
    }

    fn zero_range(&self, inode: &Inode, offset: u64, len: u64) -> Result<(), Errno> {
        let added = self.data_or_init(inode)?.zero_range(offset..offset + len, &self.space)?;
        add_pages(inode, added);
        Ok(())
    }

    fn allocate(&self, inode: &Inode, offset: u64, len: u64) -> Result<(), Errno> {
        let added = self.data_or_init(inode)?.allocate(offset..offset + len, &self.space)?;
        add_pages(inode, added);
        Ok(())
    }

    fn punch(&self, inode: &Inode, offset: u64, len: u64) {
        if let Some(data) = inode.private::<PageTree>() {
            let cut = data.punch(offset..offset + len, &self.space);
            sub_pages(inode, cut);
            note_cut(cut);
        }
    }
}

impl fmt::Debug for MemFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemFs")
            .field("used_bytes", &self.used_bytes())
            .field("size_bytes", &self.size_bytes())
            .finish_non_exhaustive()
    }
}

fn add_pages(inode: &Inode, pages: u64) {
    if pages > 0 {
        inode.add_blocks((pages * (PAGE / SECTOR)) as i64);
    }
}

fn sub_pages(inode: &Inode, pages: u64) {
    if pages > 0 {
        inode.add_blocks(-((pages * (PAGE / SECTOR)) as i64));
    }
}

thread_local! {
    /// Number of pages that this thread has cut off since it handed its deferred work over.
    static CUT: Cell<u64> = const { Cell::new(0) };
}

/// Notes that this thread has cut off `pages`, and hands their memory over if there are many: this
/// thread may free nothing more for a long time, and no other thread may make a call. The caller
/// may hold the inode's lock.
fn note_cut(pages: u64) {
    let cut = CUT.get() + pages;
    CUT.set(if cut < BIG_PAGES { cut } else { 0 });
    if cut >= BIG_PAGES {
        rcu::pin().hand_over();
        reclaim::attend();
    }
}

/// Returns the charge of a name of `len` bytes.
fn name_bytes(len: usize) -> u64 {
    if len <= NAME_INLINE { NAME_BYTES } else { NAME_BYTES + len as u64 + MALLOC_BYTES }
}

/// Returns the charge of an inode of this kind, without names and data.
fn inode_bytes(is_dir: bool, target_len: usize) -> u64 {
    let directory = if is_dir { DIRECTORY_BYTES } else { 0 };
    let target = if target_len > 0 { target_len as u64 + 2 * MALLOC_BYTES } else { 0 };
    INODE_BYTES + directory + target
}

impl FileSystem for MemFs {
    fn name(&self) -> &'static str {
        "memfs"
    }

    fn names(&self) -> Names<'_> {
        Names::Cached(self)
    }

    fn options(&self) -> String {
        let mut options = format!("size={}k", self.space.total() / 1024);
        if let Some(inodes) = &self.inodes {
            options += &format!(",nr_inodes={}", inodes.total());
        }
        options
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        if self.is_mounted.swap(true, Ordering::AcqRel) {
            return Err(Errno::BUSY);
        }
        self.take_inode(inode_bytes(true, 0))?;
        Ok(sb.new_inode(InodeInit {
            mode: FileType::Directory.as_raw_mode() | self.root_mode,
            uid: self.root_uid,
            gid: self.root_gid,
            nlink: 2,
            ..InodeInit::default()
        }))
    }

    fn put_super(&self) {
        self.space.end();
    }

    fn statfs(&self, sb: &SuperBlock) -> StatFs {
        let free = self.space.total().saturating_sub(self.space.used());
        let inodes_free = free / (INODE_BYTES + NAME_BYTES);
        // Free bytes are for any purpose. Available bytes are those that a program can rely on for
        // data: as much as fits into one new file, whatever its name.
        let new_file = INODE_BYTES + name_bytes(NAME_MAX as usize);
        let (files, files_free) = match &self.inodes {
            Some(inodes) => (inodes.total(), inodes.available()),
            None => (sb.inodes_in_use() as u64 + inodes_free, inodes_free),
        };
        StatFs {
            magic: MAGIC,
            block_size: PAGE as u32,
            blocks: self.space.total() / PAGE,
            blocks_free: free / PAGE,
            blocks_available: pages_within(free.saturating_sub(new_file)),
            files,
            files_free,
            name_max: NAME_MAX,
            ..StatFs::default()
        }
    }

    fn reclaim(&self) -> Reclaimed {
        self.space.reclaim()
    }

    fn evict(&self, inode: &Inode) {
        let target_len = inode.private::<Target>().map_or(0, |target| target.0.len());
        let bytes = inode_bytes(inode.is_dir(), target_len);
        let mut cut = 0;
        if let Some(data) = inode.private::<PageTree>() {
            // When the whole file system is dropped, a small file is dropped with its inode. With a
            // large one that would take long.
            let is_small = inode.blocks() < BIG_PAGES * (PAGE / SECTOR);
            let pages = if is_small && inode.sb().is_alone() {
                data.give_up(&self.space)
            } else {
                cut = data.truncate(0, &self.space);
                cut
            };
            sub_pages(inode, pages);
        }
        self.space.give_deferred(bytes);
        self.give_inode();
        note_cut(cut);
    }
}

impl FileOps for MemFs {
    fn inode_flags(&self) -> InodeFlags {
        // As `tmpfs`, without the flags that make changes durable.
        InodeFlags::PRIVILEGED | InodeFlags::NODUMP | InodeFlags::NOATIME
    }

    fn read_at(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let left = inode.size().saturating_sub(offset);
        let len = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        let buf = &mut buf[..len];
        match inode.private::<PageTree>() {
            Some(data) => data.read(offset, buf),
            None => buf.fill(0),
        }
        Ok(len)
    }

    fn write_at(&self, inode: &Inode, offset: u64, buf: &[u8]) -> Result<usize, Errno> {
        if buf.is_empty() {
            return Ok(0);
        }
        let written = self.data_or_init(inode)?.write(offset, buf, &self.space);
        if written.bytes == 0 {
            return Err(Errno::NOSPC);
        }
        add_pages(inode, written.pages);
        // After the data, so no reader accesses a byte that has not been written.
        let end = offset + written.bytes as u64;
        if end > inode.size() {
            inode.set_size(end);
        }
        Ok(written.bytes)
    }

    fn overwrite(&self, inode: &Inode, offset: u64, buf: &[u8]) -> bool {
        let data = inode.private::<PageTree>();
        data.is_some_and(|data| data.overwrite(offset, buf, inode.ino(), &self.page_locks))
    }

    fn has_space_beyond(&self, inode: &Inode, size: u64) -> bool {
        inode.private::<PageTree>().is_some_and(|data| data.reaches_beyond(size))
    }

    fn set_size(&self, inode: &Inode, size: u64) -> Result<(), Errno> {
        let before = inode.size();
        // Before the pages are freed, so a reader that starts afterwards does not access them.
        if size != before {
            inode.set_size(size);
        }
        // A truncation to the same size also frees the space reserved beyond it.
        if size <= before
            && let Some(data) = inode.private::<PageTree>()
        {
            let cut = data.truncate(size, &self.space);
            sub_pages(inode, cut);
            note_cut(cut);
        }
        Ok(())
    }

    fn fallocate(
        &self,
        inode: &Inode,
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        const KEEP_SIZE: FallocateFlags = FallocateFlags::KEEP_SIZE;
        let keeps_size = mode.contains(KEEP_SIZE);
        match mode - KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE if keeps_size => self.punch(inode, offset, len),
            FallocateFlags::ZERO_RANGE => self.zero_range(inode, offset, len)?,
            rest if rest.is_empty() => self.allocate(inode, offset, len)?,
            _ => return Err(Errno::OPNOTSUPP),
        }
        if !keeps_size && offset + len > inode.size() {
            inode.set_size(offset + len);
        }
        Ok(())
    }

    fn seek_data(&self, inode: &Inode, offset: u64) -> Result<u64, Errno> {
        let data = inode.private::<PageTree>().ok_or(Errno::NXIO)?;
        data.seek_data(offset, inode.size()).ok_or(Errno::NXIO)
    }

    fn seek_hole(&self, inode: &Inode, offset: u64) -> Result<u64, Errno> {
        let size = inode.size();
        if offset >= size {
            return Err(Errno::NXIO);
        }
        Ok(inode.private::<PageTree>().map_or(offset, |data| data.seek_hole(offset, size)))
    }

    fn sync(&self, _inode: &Inode, _data_only: bool) -> Result<(), Errno> {
        Ok(())
    }

    fn get_link<'g>(&self, inode: &'g Inode, _guard: &'g Guard) -> Result<&'g [u8], Errno> {
        inode.private::<Target>().map(|target| &*target.0).ok_or(Errno::INVAL)
    }
}

impl NameAccounting for MemFs {
    fn create(&self, sb: &SuperBlock, new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        let is_dir = FileType::from_raw_mode(new.mode) == FileType::Directory;
        let has_name = new.name_len > 0;
        let name = if has_name { name_bytes(new.name_len) } else { 0 };
        let target_len = new.target.map_or(0, <[u8]>::len);
        self.take_inode(inode_bytes(is_dir, target_len) + name)?;
        let inode = sb.new_inode(InodeInit {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            nlink: u32::from(has_name) + u32::from(is_dir),
            size: target_len as u64,
            private: new.target.map(|target| Box::new(Target(target.into())) as _),
            ..InodeInit::default()
        });
        Ok(inode)
    }

    fn link(&self, _inode: &Inode, name_len: usize) -> Result<(), Errno> {
        Ok(self.space.take(name_bytes(name_len))?)
    }

    fn unlinked(&self, _inode: &Inode, name_len: usize) {
        self.space.give_deferred(name_bytes(name_len));
    }

    fn renamed(&self, _inode: &Inode, old_len: usize, new_len: usize) -> Result<(), Errno> {
        let (old, new) = (name_bytes(old_len), name_bytes(new_len));
        if new > old {
            self.space.take(new - old)?;
        } else if new < old {
            self.space.give_deferred(old - new);
        }
        Ok(())
    }

    fn charge(&self, bytes: u64) -> Result<(), Errno> {
        Ok(self.space.take(bytes)?)
    }

    fn uncharge(&self, bytes: u64) {
        if bytes > 0 {
            self.space.give_deferred(bytes);
        }
    }
}

/// A bound on the charge of a small file.
const _: () = assert!(INODE_BYTES + NAME_BYTES <= 512 && PAGE_BYTES > PAGE);

#[cfg(test)]
mod tests;
