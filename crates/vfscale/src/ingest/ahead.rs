//! Reading of what files of the base have, before an ingest compares it.
//!
//! The device answers one read after the other otherwise, which takes longer than all else for many
//! small files.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;

use vfscale_vfs::{OFlags, Task};

use super::plan::{Entry, Kind};

/// The threads that read.
const THREADS: usize = 4;
/// The files that a thread takes at a time: to hand one over costs as much as to read a small one.
const FILES: usize = 16;
/// The most bytes that are read of a file: of larger ones the tree itself reads ahead.
const BYTES: usize = 64 << 10;

/// Threads that read files of a tree into its caches.
pub(super) struct Ahead<'p> {
    entries: std::slice::Iter<'p, Entry>,
    /// The next files, which no thread has taken yet.
    next: Vec<&'p Path>,
    paths: SyncSender<Vec<&'p Path>>,
}

impl<'p> Ahead<'p> {
    /// Starts them. They end when this is dropped.
    pub(super) fn start<'s>(scope: &'s Scope<'s, '_>, task: &'s Task, entries: &'p [Entry]) -> Self
    where
        'p: 's,
    {
        let (paths, taken) = sync_channel(THREADS);
        let taken = std::sync::Arc::new(Mutex::new(taken));
        for _ in 0..THREADS {
            let taken = taken.clone();
            // Without threads, all is read when it is used.
            let builder = std::thread::Builder::new().name("vfscale-ahead".into());
            let _ = builder.spawn_scoped(scope, move || read(task, &taken));
        }
        Self { entries: entries.iter(), next: Vec::new(), paths }
    }

    /// Has the threads read the next files. Does not wait.
    pub(super) fn go_on(&mut self) {
        loop {
            if self.next.is_empty() {
                let is_read = |it: &&Entry| {
                    matches!(it.kind, Kind::File { is_in_place: true, has_contents: true, .. })
                };
                let files = self.entries.by_ref().filter(is_read).take(FILES);
                self.next.extend(files.map(|it| &*it.path));
            }
            if self.next.is_empty() {
                return;
            }
            match self.paths.try_send(std::mem::take(&mut self.next)) {
                Ok(()) => {}
                Err(TrySendError::Full(next) | TrySendError::Disconnected(next)) => {
                    self.next = next;
                    return;
                }
            }
        }
    }
}

fn read(task: &Task, paths: &Mutex<Receiver<Vec<&Path>>>) {
    let mut bytes = vec![0; BYTES];
    let next = || paths.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(paths) = next() {
        for path in paths {
            // Times of access are set by the ingest, perhaps before this has read.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOATIME;
            if let Ok(file) = task.posix().open(Path::new("/").join(path), flags, 0) {
                let _ = file.read_at(&mut bytes, 0);
            }
        }
    }
}
