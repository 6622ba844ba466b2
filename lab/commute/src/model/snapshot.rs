//! All that later calls can observe of a state.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::state::{Body, DentryId, FileId, InodeId, ROOT, State};
use crate::case::Outcome;

/// The observable state as a text, which is equal for two states if no call can distinguish them.
/// Inodes from a given number on are *fresh*: they are renumbered in the order in which the text
/// reaches them.
#[derive(Clone, Debug)]
pub struct Snapshot {
    text: String,
    fresh: BTreeMap<InodeId, usize>,
}

impl Snapshot {
    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Renumbers the fresh inodes of an outcome as in the snapshot. An inode that is no longer
    /// reachable gets `u64::MAX`.
    #[must_use]
    pub fn renumber(&self, outcome: Outcome, first_fresh: usize) -> Outcome {
        let new = |ino: u64| match ino as usize {
            old if old < first_fresh => ino,
            fresh => self.fresh.get(&fresh).map_or(u64::MAX, |&number| number as u64),
        };
        match outcome {
            Outcome::Attributes(mut attributes) => {
                attributes.ino = new(attributes.ino);
                Outcome::Attributes(attributes)
            }
            Outcome::Entries(mut entries) => {
                for entry in &mut entries {
                    entry.ino = new(entry.ino);
                }
                Outcome::Entries(entries)
            }
            other => other,
        }
    }
}

impl State {
    /// Takes a snapshot in which inodes from `first_fresh` on are fresh.
    #[must_use]
    pub fn snapshot(&self, first_fresh: usize) -> Snapshot {
        let mut writer = Writer {
            state: self,
            first_fresh,
            fresh: BTreeMap::new(),
            shown: BTreeMap::new(),
            files: BTreeMap::new(),
            text: String::with_capacity(256),
        };
        writer.all();
        Snapshot { text: writer.text, fresh: writer.fresh }
    }
}

struct Writer<'a> {
    state: &'a State,
    first_fresh: usize,
    fresh: BTreeMap<InodeId, usize>,
    /// Inodes that are already described.
    shown: BTreeMap<InodeId, ()>,
    /// Open files that are already described, with their numbers.
    files: BTreeMap<FileId, usize>,
    text: String,
}

impl Writer<'_> {
    fn all(&mut self) {
        self.name(ROOT);
        for process in 0..self.state.slots.len() {
            let cwd = self.state.cwd[process];
            let _ = write!(self.text, "cwd {} ", self.state.d_path(cwd));
            self.name(cwd);
            for slot in 0..self.state.slots[process].len() {
                if let Some(file) = self.state.slots[process][slot] {
                    let _ = write!(self.text, "slot {slot} ");
                    self.file(file);
                }
            }
        }
    }

    /// Describes a dentry with all below it and mounted on it.
    fn name(&mut self, dentry: DentryId) {
        self.inode(self.state.dentries[dentry].inode);
        for &(covered, root) in &self.state.mounts {
            if covered == dentry {
                self.text.push_str("covered ");
                self.name(root);
            }
        }
    }

    fn inode(&mut self, id: InodeId) {
        let count = self.fresh.len();
        let number = match id {
            old if old < self.first_fresh => old,
            fresh => *self.fresh.entry(fresh).or_insert(self.first_fresh + count),
        };
        if self.shown.insert(id, ()).is_some() {
            let _ = writeln!(self.text, "{number}");
            return;
        }
        let inode = &self.state.inodes[id];
        let _ = write!(
            self.text,
            "{number} device {} mode {:o} nlink {} {:?} ",
            inode.device, inode.mode, inode.nlink, inode.xattrs
        );
        if self.state.notes_times {
            let _ = write!(self.text, "times {} {} ", inode.mtime_changed, inode.ctime_changed);
        }
        match &inode.body {
            Body::Directory(entries) => {
                self.text.push_str("{\n");
                for (name, &dentry) in entries {
                    let _ = write!(self.text, "{name} ");
                    self.name(dentry);
                }
                self.text.push_str("}\n");
            }
            body => {
                let _ = writeln!(self.text, "{body:?}");
            }
        }
    }

    fn file(&mut self, id: FileId) {
        let count = self.files.len();
        let number = *self.files.entry(id).or_insert(count);
        let _ = write!(self.text, "open {number} ");
        if number < count {
            return;
        }
        let file = self.state.file(id);
        let path = self.state.d_path(file.dentry);
        let _ = write!(self.text, "{path} {:x} at {} ", file.flags.bits(), file.position);
        self.inode(file.inode);
    }
}
