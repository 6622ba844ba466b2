//! The measured file systems, and their kinds of work.
//!
//! Every subject contains the same tree, and every kind of work uses the same paths in it, relative
//! to the root directory of the tree:
//!
//! ```text
//! file0 file1        a file for each thread
//! shared             a file for all threads
//! data               4 KiB
//! a/b/c/d/e/f        six deep
//! d0/ d1/            directories that both threads rename between; r0 and r1 are in them
//! ```

use vfscale_bench::Outcome;
use vfscale_bench::measure::{Act, Player};

/// Number of threads that the trees are made for.
pub const THREADS: usize = 2;

/// Bytes of `data`, and of a read.
pub const DATA_BYTES: usize = 4096;

/// Work of one thread, in the bench's measured loop. Its operation panics if it fails.
pub type Work = Box<dyn Repeat>;

/// A measured loop that can also run without measuring.
pub trait Repeat: Act + Send {
    /// Runs the operation `times` times.
    fn repeat(&mut self, times: u32);
}

/// An operation as work of the bench. A failure panics, so there is nothing to check.
struct Operation<F>(F);

impl<F: FnMut()> vfscale_bench::measure::Work for Operation<F> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        (self.0)();
        Ok(1)
    }

    fn end(&mut self) -> Outcome<()> {
        Ok(())
    }
}

impl<F: FnMut() + Send> Repeat for Player<Operation<F>> {
    fn repeat(&mut self, times: u32) {
        let operation = &mut self.work_mut().0;
        for _ in 0..times {
            operation();
        }
    }
}

/// A kind of operation. Each leaves the tree unchanged; a rename, every second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Opens and closes a file of the thread's own; all are in one directory.
    OpenOwn,
    /// Opens and closes the one file that all threads open.
    OpenShared,
    /// Like `OpenOwn`, by number in a descriptor table of the thread's own.
    DescriptorOwn,
    /// Like `OpenShared`, by number in a descriptor table of the thread's own.
    DescriptorShared,
    /// Creates, closes and removes a file; all in one directory.
    CreateOne,
    /// Creates, closes and removes a file in a directory of the thread's own.
    CreateOwn,
    /// Gets the attributes of a file six deep, by its path.
    Stat,
    /// Reads 4 KiB at the start of an open file.
    Read,
    /// Renames a file between two directories that all threads use.
    RenameShared,
    /// Renames a file between two directories of the thread's own.
    RenameOwn,
    /// Renames a file within the one directory that all threads use.
    RenameOne,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 11] = [
        Kind::OpenOwn,
        Kind::OpenShared,
        Kind::DescriptorOwn,
        Kind::DescriptorShared,
        Kind::CreateOne,
        Kind::CreateOwn,
        Kind::Stat,
        Kind::Read,
        Kind::RenameShared,
        Kind::RenameOwn,
        Kind::RenameOne,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OpenOwn => "open+close, own files",
            Kind::OpenShared => "open+close, one file",
            Kind::DescriptorOwn => "open+close by descriptor, own files",
            Kind::DescriptorShared => "open+close by descriptor, one file",
            Kind::CreateOne => "create+unlink, one directory",
            Kind::CreateOwn => "create+unlink, own directories",
            Kind::Stat => "stat, six deep",
            Kind::Read => "pread 4 KiB",
            Kind::RenameShared => "rename, two shared directories",
            Kind::RenameOwn => "rename, own directories",
            Kind::RenameOne => "rename, one directory",
        }
    }

    /// Returns the kind that replaces this one in a file system without descriptor tables.
    pub fn without_descriptors(self) -> Kind {
        match self {
            Kind::DescriptorOwn => Kind::OpenOwn,
            Kind::DescriptorShared => Kind::OpenShared,
            other => other,
        }
    }
}

/// A file system with the tree in it.
pub trait Subject {
    /// Returns the name in tables.
    fn name(&self) -> &'static str;

    /// Returns whether it checks permissions and records times, like a POSIX file system.
    fn is_posix_like(&self) -> bool {
        true
    }

    /// Returns the work of one kind for one of the [`THREADS`] threads; `None` if the file system
    /// has no such call.
    fn work(&self, kind: Kind, thread: usize) -> Option<Work>;
}

/// Makes [`Work`] of an operation, which is compiled into the loops: a call through the pointer
/// runs many operations.
pub fn repeat(operation: impl FnMut() + Send + 'static) -> Work {
    Box::new(Player::new(Operation(operation)))
}

/// Returns the value of a call, which must succeed.
#[inline]
pub(crate) fn expected<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("a call failed: {error:?}"),
    }
}

/// The directories of the tree, parents first.
pub const DIRECTORIES: [&str; 9] =
    ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e", "d0", "d1", "e0", "e1"];

/// The empty files of the tree.
pub const FILES: [&str; 10] = [
    "file0",
    "file1",
    "shared",
    "a/b/c/d/e/f",
    "d0/r0",
    "d1/r1",
    "d0/own",
    "d1/own",
    "d0/one0",
    "d0/one1",
];

/// The paths that one thread uses. Of two names to rename between, either may be the one that
/// exists.
#[derive(Clone, Copy, Debug)]
pub struct Paths {
    /// A file of the thread's own, to open.
    pub file: &'static str,
    /// A name of the thread's own in the common directory.
    pub new: &'static str,
    /// A name in the thread's own directory.
    pub own_new: &'static str,
    /// Two names in two shared directories.
    pub shared_rename: [&'static str; 2],
    /// Two names in two directories of the thread's own.
    pub own_rename: [&'static str; 2],
    /// Two names in one shared directory.
    pub one_rename: [&'static str; 2],
}

impl Paths {
    /// Returns the paths of a thread.
    pub fn of(thread: usize) -> Paths {
        if thread == 0 {
            Paths {
                file: "file0",
                new: "new0",
                own_new: "d0/new",
                shared_rename: ["d0/r0", "d1/r0"],
                own_rename: ["d0/own", "e0/own"],
                one_rename: ["d0/one0", "d0/uno0"],
            }
        } else {
            Paths {
                file: "file1",
                new: "new1",
                own_new: "d1/new",
                shared_rename: ["d1/r1", "d0/r1"],
                own_rename: ["d1/own", "e1/own"],
                one_rename: ["d0/one1", "d0/uno1"],
            }
        }
    }

    /// Returns the two names of a kind of rename.
    pub fn rename(self, kind: Kind) -> Option<[&'static str; 2]> {
        match kind {
            Kind::RenameShared => Some(self.shared_rename),
            Kind::RenameOwn => Some(self.own_rename),
            Kind::RenameOne => Some(self.one_rename),
            _ => None,
        }
    }
}

/// The file six deep.
pub const DEEP: &str = "a/b/c/d/e/f";
/// The file with data.
pub const DATA: &str = "data";
/// The file that all threads open.
pub const SHARED: &str = "shared";
