use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::io::Errno;

use super::*;
use crate::base::types::{Mode, OFlags, StatFs};
use crate::mount::namespace::Vfs;
use crate::objects::driver::{DirEntry, DirOps, FileOps, FileSystem, Found, Names};
use crate::objects::inode::InodeInit;

/// A driver with an empty directory.
struct Empty;

impl FileSystem for Empty {
    fn name(&self) -> &'static str {
        "empty"
    }

    fn names(&self) -> Names<'_> {
        Names::Backed(self)
    }

    fn fill_super(&self, sb: &SuperBlock) -> Result<InodeRef, Errno> {
        Ok(sb.new_inode(InodeInit { mode: 0o040755, nlink: 2, ..InodeInit::default() }))
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        StatFs::default()
    }
}

impl FileOps for Empty {
    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::ISDIR)
    }
}

impl DirOps for Empty {
    fn lookup(&self, _: &Inode, _: &[u8]) -> Result<Found, Errno> {
        Ok(Found { inode: None, check: false })
    }

    fn read_dir(
        &self,
        _: &Inode,
        _: u64,
        _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), Errno> {
        Ok(())
    }
}

/// Negative dentries share one inode, whichever CPU looked the name up.
#[test]
fn a_name_that_does_not_exist_counts_no_reference_to_what_stands_for_no_inode() {
    let task = Vfs::new(Arc::new(Empty)).unwrap().task();
    let root = task.posix().open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(task.metadata(name).unwrap_err().errno(), Errno::NOENT);
    }
    let guard = rcu::pin();
    let dir = root.inode().sb().root();
    for name in [b"a", b"b", b"c"] {
        let (dentry, _) = dir.find(&Name::new(name), &guard).unwrap();
        assert!(dentry.is_negative());
        assert_eq!(dentry.inode().references(), 1);
    }
}
