//! Applying a layer or a patch to a branch.
//!
//! # Purpose
//!
//! Changes of a branch from the output of [`Pool::layer`], [`Pool::patch`] or other programs:
//! [`Pool::apply`] makes them by one commit.
//!
//! # How
//!
//! The input is a tar archive ([`layer`]), or else a patch ([`patch`], [`hunks`]). Its changes are
//! made in a temporary fork of the branch ([`tree`], [`files`]), which the branch adopts in the
//! end; until then an error or a crash changes nothing.
//!
//! # Invariants
//!
//! * No name of the input leads out of the tree or through a symbolic link.
//! * The whole input is applied, or nothing.
//! * Memory is taken for what was read, and not for what the input says of itself.

use std::io::{self, Read};

use vfscale_vfs::{Errno, Escaped, Task};

use crate::error::pool::PoolError;
use crate::ingest::free_name;
use crate::pool::{ForkOptions, Pool};
use crate::tar::BLOCK;
use crate::tar::reader::is_archive;

mod files;
mod hunks;
mod layer;
mod patch;
mod report;
mod stop;
mod tree;

pub use report::{Applied, ApplyOptions};
use stop::Stop;

/// The longest patch, in bytes.
const PATCH_MAX: u64 = 256 << 20;

impl Pool {
    /// Applies to a branch what `input` has: a layer, as [`layer`](Self::layer) and container
    /// engines write it (a tar archive that is not compressed), or a patch, as
    /// [`patch`](Self::patch), `git diff` and `diff -u` write it. All is done by one commit: after
    /// a power cut it is there whole, or not at all. SEMANTICS.md has the rules. The branch has to
    /// be closed, or open as a [`LiveVolume`](crate::volume::LiveVolume), unless this is a dry run.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("disk.vfs");
    /// # vfscale::volume(&path).create(64 << 20).open()?.close()?;
    /// # let pool = vfscale::pool(&path).convert(true).open()?;
    /// let patch = b"--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+line\n";
    /// let applied = pool.apply("main", &mut &patch[..], vfscale::ApplyOptions::new())?;
    /// assert_eq!((applied.written, applied.is_done), (1, true));
    /// let wrong = b"--- a/new\n+++ b/new\n@@ -1 +1 @@\n-other line\n+line\n";
    /// let error = pool.apply("main", &mut &wrong[..], vfscale::ApplyOptions::new()).unwrap_err();
    /// assert!(error.to_string().starts_with("new, line 3: can't be applied"));
    /// # pool.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Blocks for the input and for the I/O. The memory depends on the number of files in a layer,
    /// and on the length of a patch and of the files that it changes.
    ///
    /// # Errors
    /// [`PoolError::Apply`] names the file, and the line of a patch, that can't be applied;
    /// [`PoolError::MergeInUse`]; [`PoolError::HasChanged`] if the branch was changed meanwhile;
    /// [`PoolError::Branches`] if there is no such branch, it can only be read, or the pool is
    /// full. The branch is as before then.
    pub fn apply(
        &self,
        branch: &str,
        input: &mut dyn Read,
        options: ApplyOptions,
    ) -> Result<Applied, PoolError> {
        if !options.dry_run {
            self.check_closed(branch, true)?;
        }
        let name = free_name(self, "apply");
        self.fork_with(branch, &name, ForkOptions::new().temporary(true))?;
        let applied = self.apply_in(&name, input, options).and_then(|mut applied| {
            applied.is_done = !options.dry_run && applied.written + applied.removed > 0;
            if applied.is_done {
                self.adopt(branch, &name)?;
            }
            Ok(applied)
        });
        if !applied.as_ref().is_ok_and(|applied| applied.is_done) {
            // An error of this says no more than the first one; the next opening deletes it.
            let _ = self.delete(&name);
        }
        applied
    }

    /// Applies input in a fork.
    fn apply_in(
        &self,
        fork: &str,
        input: &mut dyn Read,
        options: ApplyOptions,
    ) -> Result<Applied, PoolError> {
        let whole = |stop: Stop| stop.at("the input".to_owned());
        let mut first = Vec::new();
        let read = input.take(BLOCK as u64).read_to_end(&mut first);
        read.map_err(|error| whole(error.into()))?;
        check_plain(&first).map_err(whole)?;
        let is_layer = is_archive(&first);
        let mut input = first.chain(input);
        let open = self.open(fork).map_err(|error| whole(vfscale_vfs::Error::from(error).into()));
        let volume = open?;
        let task = volume.task();
        let applied = match is_layer {
            true => layer::apply(&task, &mut input),
            false => apply_patch(&task, &mut input, options.strip),
        };
        drop(task);
        let closed = volume.close().map_err(|error| whole(vfscale_vfs::Error::from(error).into()));
        let applied = applied?;
        closed.map(|()| Applied { is_layer, ..applied })
    }
}

/// Refuses what is compressed.
fn check_plain(first: &[u8]) -> Result<(), Stop> {
    let forms: [(&[u8], &str); 4] = [
        (b"\x1f\x8b", "gzip -dc"),
        (b"\x28\xb5\x2f\xfd", "zstd -dc"),
        (b"\xfd7zXZ\0", "xz -dc"),
        (b"BZh", "bzip2 -dc"),
    ];
    match forms.iter().find(|(magic, _)| first.starts_with(magic)) {
        Some((_, command)) => {
            let what = format!("it is compressed; give what `{command}` prints");
            Err(Stop { what, errno: Errno::INVAL })
        }
        None => Ok(()),
    }
}

/// Applies a patch in a tree.
fn apply_patch(task: &Task, input: &mut dyn Read, strip: usize) -> Result<Applied, PoolError> {
    let whole = |stop: Stop| stop.at("the patch".to_owned());
    let mut text = Vec::new();
    let read: io::Result<usize> = input.take(PATCH_MAX + 1).read_to_end(&mut text);
    read.map_err(|error| whole(error.into()))?;
    if text.len() as u64 > PATCH_MAX {
        return Err(whole("it is longer than 256 MiB".into()));
    }
    let place = |name: &[u8], line: usize| match name {
        [] => format!("line {line}"),
        name => format!("{}, line {line}", Escaped::new(stop::path_of(name))),
    };
    let patch = patch::parse(&text, strip);
    let patch = patch.map_err(|(stop, name, line)| stop.at(place(&name, line)))?;
    let applied = files::apply(task, &patch.changes);
    let applied = applied.map_err(|(stop, name, line)| stop.at(place(&name, line)))?;
    Ok(Applied { untold: patch.untold, ..applied })
}

#[cfg(test)]
mod tests;
