//! Comparisons of branches.

use std::path::Path;

use super::{DiffOptions, Difference, Pool, PoolError};
use crate::diff;
use crate::tar::writer::END;

impl Pool {
    /// Compares two branches, and returns the differences, sorted by path: what has to be done to
    /// the first to get the second. Contents are compared, not times; blocks that both share are
    /// not read. A branch is compared as it is at the beginning of the call; it may be open, and be
    /// opened meanwhile.
    ///
    /// Blocks for the I/O: two flushes for each branch that has changed since its last fork, and
    /// the reading, which takes the time of the differences and not of all files. The memory
    /// depends on the differences and on the largest directory.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use vfscale::pool::DifferenceKind;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// pool.fork("main", "trial")?;
    /// let trial = pool.open("trial")?;
    /// trial.task().write("/new", "contents")?;
    /// let differences = pool.diff("main", "trial")?;
    /// assert_eq!(differences.len(), 1);
    /// assert_eq!(differences[0].path.to_str(), Some("/new"));
    /// assert_eq!(differences[0].kind, DifferenceKind::Added);
    /// # trial.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PoolError::Branches`] if there is no such branch, or the pool is full;
    /// [`PoolError::Damage`], [`PoolError::Sync`].
    pub fn diff(&self, a: &str, b: &str) -> Result<Vec<Difference>, PoolError> {
        self.diff_with(a, b, &DiffOptions::new())
    }

    /// Compares two branches as [`diff`](Self::diff) does, with options.
    ///
    /// # Errors
    /// Errors of `diff`, and [`PoolError::Branches`] if the branches have no state in common.
    pub fn diff_with(
        &self,
        a: &str,
        b: &str,
        options: &DiffOptions,
    ) -> Result<Vec<Difference>, PoolError> {
        let mut found = self.shared.compared((a, b), options.with_base, diff::diff)?;
        found.retain(|difference| difference.paths().any(|path| options.wants(path)));
        Ok(found)
    }

    /// Compares two branches, and calls `each` with the parts of a patch that makes `b` of `a`, one
    /// for each file and directory, until that returns false. Returns the number of parts.
    ///
    /// `git apply` and `patch -p1` apply it: contents of files that are text of at most 4 MiB,
    /// targets of links, names, and whether files can be executed. What it can't tell is named, in
    /// lines that begin with `#`.
    ///
    /// Blocks for the I/O: that of a comparison, and the reading of what has changed. The memory
    /// also depends on the largest text.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// pool.fork("main", "trial")?;
    /// let trial = pool.open("trial")?;
    /// trial.task().write("/new", "line\n")?;
    /// trial.close()?;
    /// let mut patch = Vec::new();
    /// let each = &mut |part: &[u8]| {
    ///     patch.extend_from_slice(part);
    ///     true
    /// };
    /// assert_eq!(pool.patch("main", "trial", &vfscale::DiffOptions::new(), each)?, 1);
    /// assert!(patch.ends_with(b"--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+line\n"));
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of [`diff_with`](Self::diff_with).
    pub fn patch(
        &self,
        a: &str,
        b: &str,
        options: &DiffOptions,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64, PoolError> {
        let is_wanted = |path: &Path| options.wants(path);
        let compare = |one: &_, other: &_| diff::patch((one, other), &is_wanted, each);
        self.shared.compared((a, b), options.with_base, compare)
    }

    /// Compares two branches, and calls `each` with the parts of a *layer* that makes `b` of `a`,
    /// until that returns false. Returns the number of files in it, with those that are gone. The
    /// same branches always give the same bytes.
    ///
    /// A layer is a tar archive as the OCI image specification has it, so container engines and
    /// `tar` read it, and [`apply`](Self::apply) applies it: files of every type but sockets, with
    /// names, links, permissions, owners, times, extended attributes and holes. A file
    /// `.wh.NAME` says that `NAME` is gone, `.wh..wh..opq` that nothing below its directory is
    /// left. Times of access are not in it.
    ///
    /// Blocks for the I/O: that of a comparison, and the reading of what is written. The memory
    /// depends on the number of files in it. Of a directory that was moved, and of a file with
    /// several names, all is written.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// pool.fork("main", "trial")?;
    /// let trial = pool.open("trial")?;
    /// trial.task().write("/new", "contents")?;
    /// trial.close()?;
    /// let mut layer = Vec::new();
    /// pool.layer("main", "trial", &vfscale::DiffOptions::new(), &mut |part: &[u8]| {
    ///     layer.extend_from_slice(part);
    ///     true
    /// })?;
    /// pool.fork("main", "other")?;
    /// let applied = pool.apply("other", &mut &layer[..], vfscale::ApplyOptions::new())?;
    /// assert!(applied.is_done);
    /// assert!(pool.diff("trial", "other")?.iter().all(|it| it.size == 8));
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of [`diff_with`](Self::diff_with); [`PoolError::Layer`] names a file that a layer
    /// can't have.
    pub fn layer(
        &self,
        a: &str,
        b: &str,
        options: &DiffOptions,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64, PoolError> {
        let (is_wanted, mut is_over) = (|path: &Path| options.wants(path), false);
        let mut part = |part: &[u8]| {
            is_over = !each(part);
            !is_over
        };
        let compare = |one: &_, other: &_| diff::layer((one, other), &is_wanted, &mut part);
        let count = self.shared.compared((a, b), options.with_base, compare)?;
        if !is_over {
            each(&END);
        }
        Ok(count)
    }
}
