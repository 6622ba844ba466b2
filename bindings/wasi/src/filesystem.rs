//! The files that a guest may see.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use vfscale::Task;
use vfscale::posix::{OFlags, Stat};

use crate::node::Node;

/// The rights of a guest below a preopened directory. The credentials of the task and the options
/// of its mounts may allow less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only reading: every change fails with `read-only`.
    ReadOnly,
    /// Reading and changing.
    ReadWrite,
}

/// The preopened directories of a guest.
///
/// ```
/// # fn main() -> vfscale::Result<()> {
/// use std::sync::Arc;
/// use vfscale::Credentials;
/// use vfscale_wasi::{Access, Filesystem};
///
/// let tree = vfscale::memory().size(1 << 20).build()?;
/// tree.task().create_dir_all("/home/eve")?;
/// tree.task().chown("/home/eve", Some(1000), Some(1000))?;
/// let eve = Arc::new(tree.task_as(Credentials::user(1000, 1000)));
/// let mut files = Filesystem::new();
/// files.preopen(Arc::clone(&eve), "/home/eve", "/", Access::ReadWrite)?;
/// files.preopen(eve, "/", "/tree", Access::ReadOnly)?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Filesystem {
    preopens: Vec<(Node, String)>,
    /// Makes the hashes that guests get say nothing about inode numbers.
    secret: RandomState,
}

impl Filesystem {
    /// Returns one without preopened directories.
    pub fn new() -> Filesystem {
        Filesystem::default()
    }

    /// Adds the directory at `path`, which the guest sees as `name`. The task's credentials, umask
    /// and limits are those of the guest's calls.
    ///
    /// The guest can rename and link between two preopened directories if they are of one task, as
    /// `Arc::clone` gives it; otherwise that fails with `cross-device`.
    ///
    /// # Errors
    /// Those of opening a directory for reading.
    pub fn preopen(
        &mut self,
        task: Arc<Task>,
        path: impl AsRef<Path>,
        name: impl Into<String>,
        access: Access,
    ) -> vfscale::Result<&mut Filesystem> {
        let file = task.posix().open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        self.preopens.push((Node::new(task, file, access), name.into()));
        Ok(self)
    }

    pub(crate) fn preopens(&self) -> &[(Node, String)] {
        &self.preopens
    }

    /// Returns two hashes of a file's identity, which stay while it exists.
    pub(crate) fn identity(&self, stat: &Stat) -> [u64; 2] {
        [0u8, 1].map(|salt| self.secret.hash_one((salt, stat.dev, stat.ino, stat.generation)))
    }
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.preopens.iter().map(|(_, name)| name)).finish()
    }
}
