//! Options of an application, and its result.

/// Options of [`Pool::apply`](crate::Pool::apply).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyOptions {
    pub(super) dry_run: bool,
    pub(super) strip: usize,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self { dry_run: false, strip: 1 }
    }
}

impl ApplyOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether everything is only tried, in a fork that is dropped. The branch may be open
    /// then.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets how many directories are taken off the names in a patch, as `-p` does of `git apply`
    /// and `patch`: one by default, since these names begin with `a/` and `b/`.
    #[must_use]
    pub fn strip(mut self, strip: usize) -> Self {
        self.strip = strip;
        self
    }
}

/// The result of [`Pool::apply`](crate::Pool::apply).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether the input was a layer; else it was a patch.
    pub is_layer: bool,
    /// The files and directories that were made, changed or renamed.
    pub written: u64,
    /// The names that were removed.
    pub removed: u64,
    /// The lines of a patch that begin with `#`: what it could not tell, so what is missing.
    pub untold: u64,
    /// Whether the branch was changed: not by a dry run, and not if there was nothing to do.
    pub is_done: bool,
}
