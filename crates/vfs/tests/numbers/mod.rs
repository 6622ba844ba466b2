//! A backed driver without stored directories: a name exists if its number is small enough.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfscale_sync::lock::Mutex;
use vfscale_sync::lock_class;
use vfscale_vfs::driver::DirEntry;
use vfscale_vfs::inode::{Inode, InodeInit, InodeRef};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::{DirOps, Errno, FileOps, FileSystem, FileType, Found, Names, ParentName, StatFs};

lock_class! {
    /// The root inode that the driver holds.
    pub Root = ("root", 59999);
}

/// The name that appears and disappears by itself.
pub const TIDE: &[u8] = b"tide";

/// The names of a directory that moves by itself, one at a time, and its number.
pub const HERE: &[u8] = b"here";
pub const THERE: &[u8] = b"there";
const MOVING: u64 = 1 << 20;

const DIR: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
/// Inode numbers of files.
const FILES: u64 = 1 << 32;

/// `/d0/f0` to `/dN/fM`, `/tide`, and `/here` or `/there`.
#[derive(Default)]
pub struct Numbers {
    dirs: u64,
    files: u64,
    /// The number of lookups.
    pub lookups: AtomicU64,
    /// The number of evicted inodes.
    pub evicted: AtomicU64,
    /// The directory `/tide` exists while this is odd. Each value has another inode.
    pub tide: AtomicU64,
    /// Whether the driver caches no unused inodes.
    pub forgets: bool,
    /// Whether evictions block.
    pub stops: AtomicBool,
    /// Whether the directory is at `/there`, and no longer at `/here`.
    pub moved: AtomicBool,
    root: Mutex<Option<InodeRef>, Root>,
}

impl Numbers {
    pub fn new(dirs: u64, files: u64) -> Arc<Numbers> {
        Arc::new(Numbers { dirs, files, ..Numbers::default() })
    }

    /// Creates the file system without a cache of inodes.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn that_forgets(dirs: u64, files: u64) -> Arc<Numbers> {
        Arc::new(Numbers { dirs, files, forgets: true, ..Numbers::default() })
    }

    /// Returns the number of evicted inodes.
    #[allow(dead_code, reason = "not every test asks")]
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::SeqCst)
    }

    /// Runs `body` on the superblock.
    pub fn with_super<T>(&self, body: impl FnOnce(&SuperBlock) -> T) -> T {
        body(self.root().sb())
    }

    /// Returns the inode of the root.
    pub fn root(&self) -> InodeRef {
        self.root.lock().clone().expect("the driver is mounted")
    }

    fn number(name: &[u8], letter: u8, below: u64) -> Option<u64> {
        let digits = std::str::from_utf8(name.strip_prefix(&[letter])?).ok()?;
        digits.parse().ok().filter(|number: &u64| *number < below && digits == number.to_string())
    }

    /// Returns the number of the inode with this name.
    fn inode_of(&self, dir: &Inode, name: &[u8]) -> Option<u64> {
        match dir.ino() {
            1 if name == TIDE => self.tide_inode(),
            1 if name == HERE || name == THERE => {
                let there = self.moved.load(Ordering::SeqCst);
                (there == (name == THERE)).then_some(MOVING)
            }
            1 => Numbers::number(name, b'd', self.dirs).map(|dir| dir + 2),
            // `/tide` is a directory like the others.
            ino => {
                let file = Numbers::number(name, b'f', self.files)?;
                Some(FILES + ino * self.files + file)
            }
        }
    }

    fn tide_inode(&self) -> Option<u64> {
        let tide = self.tide.load(Ordering::SeqCst);
        (tide % 2 == 1).then(|| 2 + self.dirs + tide)
    }
}

/// Returns whether a name appears and disappears by itself.
fn moves(name: &[u8]) -> bool {
    [TIDE, HERE, THERE].contains(&name)
}

impl DirOps for Numbers {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        if name == b"broken" {
            return Err(Errno::IO);
        }
        let mode = if dir.ino() == 1 { DIR } else { FILE };
        let init = || InodeInit { mode, nlink: 1, ..InodeInit::default() };
        let inode = self.inode_of(dir, name).map(|ino| dir.sb().iget(ino, init));
        Ok(Found { inode, check: dir.ino() == 1 && moves(name) })
    }

    fn read_dir(
        &self,
        dir: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        let is_root = dir.ino() == 1;
        let (letter, count) = if is_root { ('d', self.dirs) } else { ('f', self.files) };
        let file_type = if is_root { FileType::Directory } else { FileType::RegularFile };
        for number in pos - 2..count {
            let name = format!("{letter}{number}");
            let ino = self.inode_of(dir, name.as_bytes()).unwrap_or_default();
            let name = OsStr::from_bytes(name.as_bytes());
            if emit(DirEntry { ino, next: number + 3, file_type, name }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn inode(&self, sb: &SuperBlock, ino: u64, _: u32) -> Result<Option<InodeRef>, Errno> {
        let mode = match ino {
            FILES.. => FILE,
            ino if ino < 2 + self.dirs => DIR,
            _ => return Ok(None),
        };
        let init = || InodeInit { mode, nlink: 1, ..InodeInit::default() };
        Ok(Some(sb.iget(ino, init)))
    }

    fn parent(&self, dir: &Inode) -> Result<Option<ParentName>, Errno> {
        let root = self.root.lock().clone();
        let name = format!("d{}", dir.ino() - 2).into_bytes().into();
        Ok(root.map(|parent| ParentName { parent, name }))
    }

    fn caches_inodes(&self) -> bool {
        !self.forgets
    }

    fn is_current(&self, dir: &Inode, name: &[u8], inode: Option<&Inode>) -> bool {
        assert!(moves(name), "checked a name that never changes");
        self.inode_of(dir, name) == inode.map(Inode::ino)
    }
}

impl FileSystem for Numbers {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn names(&self) -> Names<'_> {
        Names::Backed(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        let root = sb.iget(1, || InodeInit { mode: DIR, nlink: 2, ..InodeInit::default() });
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

    fn evict(&self, _: &Inode) {
        self.evicted.fetch_add(1, Ordering::SeqCst);
        while self.stops.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}

impl FileOps for Numbers {
    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Ok(0)
    }
}
