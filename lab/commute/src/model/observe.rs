//! Calls that observe the whole state.

use std::collections::BTreeSet;

use vfscale::Mode;
use vfscale::posix::{OFlags, Whence};

use super::state::{Body, DentryId, PAGE, ROOT, State};
use crate::case::{Call, Op};

/// A slot that no case uses, for files opened to be observed.
const SCRATCH: u8 = 15;

/// Extended attributes that are observed.
const XATTRS: [&str; 2] = ["user.k", "user.m"];

impl State {
    /// Returns calls whose outcomes reveal the whole state: names, files, their content, and the
    /// slots and directories of the processes. They drain the pipes and change nothing else.
    #[must_use]
    pub fn observations(&self) -> Vec<Call> {
        let mut ops = Vec::new();
        self.observe(ROOT, &mut ops);
        let mut calls: Vec<_> = ops.into_iter().map(|op| Call { process: 0, op }).collect();
        let mut seen = BTreeSet::new();
        for (process, slots) in self.slots.iter().enumerate() {
            let by = |op| Call { process: process as u8, op };
            calls.push(by(Op::Getcwd {}));
            calls.push(by(Op::Lookup { path: ".".into() }));
            for (slot, file) in slots.iter().enumerate() {
                if let Some(file) = *file {
                    self.observe_slot(slot as u8, file, &mut |op| calls.push(by(op)));
                    if seen.insert(file) {
                        self.observe_data(slot as u8, file, &mut |op| calls.push(by(op)));
                    }
                }
            }
        }
        calls
    }

    /// Observes a name and all below it.
    fn observe(&self, dentry: DentryId, ops: &mut Vec<Op>) {
        let seen = self.follow_mounts(dentry);
        let path = self.path_text(seen);
        ops.push(Op::Stat { path: path.clone(), follow: false });
        let open = |path: &str| Op::Open {
            path: path.into(),
            flags: OFlags::RDONLY,
            mode: Mode::empty(),
            slot: SCRATCH,
        };
        match self.body(seen) {
            Body::Symlink(_) => ops.push(Op::Readlink { path }),
            Body::Directory(entries) => {
                ops.push(Op::Lookup { path: path.clone() });
                ops.extend([
                    open(&path),
                    Op::Readdir { slot: SCRATCH },
                    Op::Close { slot: SCRATCH },
                ]);
                self.observe_xattrs(&path, ops);
                for &entry in entries.values() {
                    self.observe(entry, ops);
                }
            }
            Body::File(pages) => {
                ops.push(open(&path));
                ops.extend((0..=pages.len()).map(|page| pread(SCRATCH, page)));
                ops.push(Op::Close { slot: SCRATCH });
                self.observe_xattrs(&path, ops);
            }
            Body::Pipe(_) => {}
        }
    }

    fn observe_xattrs(&self, path: &str, ops: &mut Vec<Op>) {
        let get = |name: &str| Op::Getxattr { path: path.into(), name: name.into() };
        ops.extend(XATTRS.map(get));
    }

    fn observe_slot(&self, slot: u8, file: usize, push: &mut impl FnMut(Op)) {
        push(Op::Fstat { slot });
        push(Op::DPath { slot });
        push(Op::Lseek { slot, to: Whence::Current(0) });
        if let Body::File(pages) = &self.inodes[self.file(file).inode].body {
            for page in 0..=pages.len() {
                push(pread(slot, page));
            }
        }
    }

    /// Drains a pipe.
    fn observe_data(&self, slot: u8, file: usize, push: &mut impl FnMut(Op)) {
        if let Body::Pipe(queue) = &self.inodes[self.file(file).inode].body {
            for _ in 0..=queue.len() {
                push(Op::Read { slot, len: PAGE as usize });
            }
        }
    }
}

fn pread(slot: u8, page: usize) -> Op {
    Op::Pread { slot, len: PAGE as usize, offset: page as u64 * PAGE }
}
