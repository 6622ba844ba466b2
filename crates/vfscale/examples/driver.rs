//! A driver in 60 lines: a read-only file system whose files are the squares of their names.
//!
//! ```sh
//! cargo run --example driver
//! ```
//!
//! The VFS walks paths, checks permissions, opens and locks files, and lists directories; a driver
//! answers which names there are and what bytes they have. `vfscale::driver` has all of the traits.

use std::ffi::OsStr;
use std::ops::ControlFlow;

use vfscale::driver::inode::{Inode, InodeInit, InodeRef};
use vfscale::driver::super_block::SuperBlock;
use vfscale::driver::{DirEntry, DirOps, FileOps, FileSystem, Found, Names};
use vfscale::posix::{MountFlags, StatFs};
use vfscale::{Errno, FileType};

/// Files `0` to `99`. The root is inode 1, the file of a number is inode 2 + number.
struct Squares;

impl DirOps for Squares {
    fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<Found, Errno> {
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse::<u64>().ok());
        let exact = number.filter(|n| *n < 100 && n.to_string().as_bytes() == name);
        let init = || InodeInit { mode: 0o100444, nlink: 1, text: true, ..InodeInit::default() };
        Ok(Found { inode: exact.map(|n| dir.sb().iget(n + 2, init)), check: false })
    }

    fn read_dir(
        &self,
        _: &Inode,
        pos: u64,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        // Positions 0 and 1 are `.` and `..`, which the VFS lists.
        for n in pos.max(2)..102 {
            let name = (n - 2).to_string();
            let name = OsStr::new(&name);
            let entry = DirEntry { ino: n, next: n + 1, file_type: FileType::RegularFile, name };
            if emit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl FileOps for Squares {
    fn text(&self, inode: &Inode) -> Result<Vec<u8>, Errno> {
        Ok(format!("{}\n", (inode.ino() - 2).pow(2)).into_bytes())
    }

    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Ok(0) // Of files that are no text.
    }
}

impl FileSystem for Squares {
    fn name(&self) -> &'static str {
        "squares"
    }

    fn names(&self) -> Names<'_> {
        Names::Backed(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        Ok(sb.iget(1, || InodeInit { mode: 0o040555, nlink: 2, ..InodeInit::default() }))
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        StatFs { block_size: 4096, name_max: 255, ..StatFs::default() }
    }
}

fn main() -> vfscale::Result<()> {
    let vfs = vfscale::memory().build()?;
    let task = vfs.task();
    task.create_dir("/squares")?;
    task.posix().mount(std::sync::Arc::new(Squares), "/squares", MountFlags::empty())?;
    print!("12 squared is {}", task.read_to_string("/squares/12")?);
    println!("{} files", task.read_dir("/squares")?.count());
    println!("{:?}", task.write("/squares/100", "10000").map_err(|error| error.to_string()));
    Ok(())
}
