//! Options of comparisons of branches.

use std::path::{Path, PathBuf};

/// Options of [`Pool::diff_with`](crate::Pool::diff_with) and
/// [`Pool::patch`](crate::Pool::patch).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffOptions {
    pub(super) with_base: bool,
    paths: Vec<PathBuf>,
}

impl DiffOptions {
    /// Returns the default options: all differences between both.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the second branch is compared with the last state that it had in common with
    /// the first one, and not with what that has now: so what it has changed is told.
    #[must_use]
    pub fn with_base(mut self, with_base: bool) -> Self {
        self.with_base = with_base;
        self
    }

    /// Sets that only what is at these paths from the root of the volume is told, or below them, or
    /// was moved from there. Without any, all is told.
    #[must_use]
    pub fn paths<P: AsRef<Path>>(mut self, paths: impl IntoIterator<Item = P>) -> Self {
        self.paths = paths.into_iter().map(|path| Path::new("/").join(path)).collect();
        self
    }

    pub(super) fn wants(&self, path: &Path) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|above| path.starts_with(above))
    }
}
