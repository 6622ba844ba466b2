//! The descriptors of a guest.

use std::collections::BTreeSet;
use std::fmt;

use vfscale::Errno;

use super::Done;
use crate::filesystem::Filesystem;
use crate::node::Node;

/// The object of a descriptor.
pub(super) enum Entry {
    /// A standard stream, by the number that the rest of WASI has for it.
    Stdio(u32),
    Dir {
        node: Node,
        /// The name of a preopened directory.
        preopen: Option<String>,
    },
    File {
        node: Node,
        /// A flag that the guest sees. Files are never waited for.
        nonblock: bool,
    },
}

/// The descriptors, by number.
#[derive(Default)]
pub(super) struct Descriptors {
    entries: Vec<Option<Entry>>,
    free: BTreeSet<u32>,
}

impl Descriptors {
    /// Returns the standard streams and the preopened directories.
    pub(super) fn new(files: &Filesystem) -> Descriptors {
        let stdio = (0..3).map(Entry::Stdio);
        let dirs = files
            .preopens()
            .iter()
            .map(|(node, name)| Entry::Dir { node: node.clone(), preopen: Some(name.clone()) });
        Descriptors { entries: stdio.chain(dirs).map(Some).collect(), free: BTreeSet::new() }
    }

    pub(super) fn get(&self, fd: u32) -> Done<&Entry> {
        let entry = self.entries.get(fd as usize).and_then(Option::as_ref);
        Ok(entry.ok_or(Errno::BADF)?)
    }

    pub(super) fn get_mut(&mut self, fd: u32) -> Done<&mut Entry> {
        let entry = self.entries.get_mut(fd as usize).and_then(Option::as_mut);
        Ok(entry.ok_or(Errno::BADF)?)
    }

    /// Returns the number that the rest of WASI has for a standard stream.
    pub(super) fn stdio(&self, fd: u32) -> Option<i32> {
        match self.get(fd) {
            Ok(Entry::Stdio(stream)) => Some(stream.cast_signed()),
            _ => None,
        }
    }

    /// Returns a file or directory.
    pub(super) fn node(&self, fd: u32) -> Done<&Node> {
        match self.get(fd)? {
            Entry::Stdio(_) => Err(Errno::BADF.into()),
            Entry::Dir { node, .. } | Entry::File { node, .. } => Ok(node),
        }
    }

    /// Returns a file. Of a standard stream, `stdio` is the error.
    pub(super) fn file(&self, fd: u32, stdio: Errno) -> Done<&Node> {
        match self.get(fd)? {
            Entry::Stdio(_) => Err(stdio.into()),
            Entry::Dir { .. } => Err(Errno::BADF.into()),
            Entry::File { node, .. } => Ok(node),
        }
    }

    pub(super) fn dir(&self, fd: u32) -> Done<&Node> {
        match self.get(fd)? {
            Entry::Stdio(_) => Err(Errno::BADF.into()),
            Entry::Dir { node, .. } => Ok(node),
            Entry::File { .. } => Err(Errno::NOTDIR.into()),
        }
    }

    /// Fails if `node`'s task may not have one descriptor more.
    pub(super) fn check_room(&self, node: &Node) -> Done {
        let used = self.entries.len() - self.free.len();
        if used < node.task().posix().descriptors_max() { Ok(()) } else { Err(Errno::MFILE.into()) }
    }

    /// Adds an entry at the lowest free number.
    pub(super) fn push(&mut self, entry: Entry) -> Done<u32> {
        if let Some(fd) = self.free.pop_first() {
            self.entries[fd as usize] = Some(entry);
            return Ok(fd);
        }
        let fd = u32::try_from(self.entries.len()).map_err(|_| Errno::MFILE)?;
        self.entries.push(Some(entry));
        Ok(fd)
    }

    pub(super) fn close(&mut self, fd: u32) -> Done<Entry> {
        let slot = self.entries.get_mut(fd as usize).ok_or(Errno::BADF)?;
        let entry = slot.take().ok_or(Errno::BADF)?;
        self.free.insert(fd);
        Ok(entry)
    }

    /// Gives `from` the number `to`, whose entry is closed. Both have to be open.
    pub(super) fn renumber(&mut self, from: u32, to: u32) -> Done {
        self.get(from)?;
        self.get(to)?;
        if from != to {
            let entry = self.close(from)?;
            self.entries[to as usize] = Some(entry);
        }
        Ok(())
    }
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.entries.len() - self.free.len();
        f.debug_struct("Descriptors").field("open", &open).finish_non_exhaustive()
    }
}
