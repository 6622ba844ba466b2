//! Three personalities of filebench, as FxMark runs them.

use std::ffi::CString;

use vfscale::posix::OFlags;

use super::PAGE;
use crate::base::error::Outcome;
use crate::base::stats::Rng;
use crate::measure::work::Work;
use crate::targets::{Calls, name};
use crate::workloads::expect::{expect_equal, expect_gone, expect_names, write_at, write_file};
use crate::workloads::workload::{Scene, Workload};

/// Bytes of a read.
const IO: usize = 1 << 20;
/// Mean bytes of an append.
const APPEND: u64 = 16 << 10;
/// Files that a worker has at least.
const FILES_MIN: u64 = 10;
/// Files whose size a worker checks after each round.
const CHECKED: usize = 32;
/// Times that a web server sends a file before it writes to its log.
const SENT: usize = 10;

/// A personality: the calls of a kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filebench {
    /// Deletes, creates, appends with fsync and reads the small files of one directory.
    Varmail,
    /// Creates, appends, reads, deletes and stats files in directories of 20.
    Fileserver,
    /// Reads ten files in directories of 20, and appends to a log.
    Webserver,
}

/// The numbers of a personality.
struct Fileset {
    files: u64,
    /// Files of a directory.
    width: u64,
    /// Mean bytes of a file.
    size: u64,
    /// Of ten files, how many exist at first.
    present: u64,
}

impl Filebench {
    fn fileset(self) -> Fileset {
        let set = |files, width, size, present| Fileset { files, width, size, present };
        match self {
            Filebench::Varmail => set(1_000, 1_000_000, 16 << 10, 8),
            Filebench::Fileserver => set(10_000, 20, 128 << 10, 8),
            Filebench::Webserver => set(1_000, 20, 16 << 10, 10),
        }
    }

    /// Returns the number of files of each worker.
    fn files_of_worker(self, scene: &Scene) -> u64 {
        let part = self.fileset().files / scene.workers.max(1) as u64;
        part.min(scene.files).max(FILES_MIN)
    }

    /// Returns how many of them exist at first, and again after each operation.
    fn present(self, scene: &Scene) -> u64 {
        self.files_of_worker(scene) * self.fileset().present / 10
    }

    /// Returns the name of a worker's file. The files of the workers take turns.
    fn file(self, scene: &Scene, worker: usize, n: u64) -> String {
        let number = n * scene.workers as u64 + worker as u64;
        format!("d{}/f{number}", number / self.fileset().width)
    }

    fn dirs(self, scene: &Scene) -> u64 {
        let all = self.files_of_worker(scene) * scene.workers as u64;
        all.div_ceil(self.fileset().width)
    }
}

impl Workload for Filebench {
    type Work<C: Calls> = FilebenchWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for dir in 0..self.dirs(scene) {
            calls.mkdir(&name(format!("d{dir}")))?;
        }
        write_file(calls, c"log", &[])
    }

    fn work<C: Calls>(&self, calls: C, scene: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        let files = self.files_of_worker(scene);
        let mut work = FilebenchWork {
            personality: *self,
            log: calls.open(c"log", OFlags::WRONLY | OFlags::APPEND)?,
            files: (0..files).map(|n| name(self.file(scene, worker, n))).collect(),
            sizes: vec![0; files as usize],
            present: Vec::new(),
            absent: (0..files as usize).rev().collect(),
            rng: Rng::new(scene.random_seed ^ (worker as u64) << 32),
            buffer: vec![7; IO],
            is_first: worker == 0,
            calls,
        };
        for _ in 0..self.present(scene) {
            let n = work.choose_absent();
            let size = work.size_about(self.fileset().size);
            work.create(n, size)?;
        }
        Ok(work)
    }

    /// Checks the number of all names.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        let dirs = self.dirs(scene);
        expect_names(calls, c".", dirs as usize + 1)?;
        let mut seen = 0;
        for dir in 0..dirs {
            calls.list(&name(format!("d{dir}")), |_, _| seen += 1)?;
        }
        expect_equal("the number of files", seen, self.present(scene) * scene.workers as u64)
    }
}

pub(crate) struct FilebenchWork<C: Calls> {
    personality: Filebench,
    log: C::File,
    files: Vec<CString>,
    sizes: Vec<u64>,
    /// Numbers of the files that exist, and of those that don't.
    present: Vec<usize>,
    absent: Vec<usize>,
    rng: Rng,
    buffer: Vec<u8>,
    /// Whether this worker empties the log before a round.
    is_first: bool,
    calls: C,
}

impl<C: Calls> FilebenchWork<C> {
    /// Draws a size from 1 byte to twice the mean.
    fn size_about(&mut self, mean: u64) -> u64 {
        1 + self.rng.below(2 * mean - 1)
    }

    fn choose(&mut self) -> usize {
        self.present[self.rng.below(self.present.len() as u64) as usize]
    }

    fn choose_absent(&mut self) -> usize {
        let at = self.rng.below(self.absent.len() as u64) as usize;
        self.absent.swap_remove(at)
    }

    fn create(&mut self, n: usize, size: u64) -> Outcome<()> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = self.calls.open(&self.files[n], flags)?;
        self.sizes[n] = 0;
        self.present.push(n);
        self.append_to(n, &file, size)
    }

    fn append_to(&mut self, n: usize, file: &C::File, bytes: u64) -> Outcome<()> {
        write_at(&self.calls, file, &self.buffer[..bytes as usize], self.sizes[n])?;
        self.sizes[n] += bytes;
        Ok(())
    }

    fn delete(&mut self) -> Outcome<()> {
        let at = self.rng.below(self.present.len() as u64) as usize;
        let n = self.present.swap_remove(at);
        self.absent.push(n);
        Ok(self.calls.unlink(&self.files[n])?)
    }

    /// Opens a file, reads all of it, and closes it unless it is to be appended to.
    fn read_whole(&mut self, flags: OFlags) -> Outcome<(usize, C::File)> {
        let n = self.choose();
        let file = self.calls.open(&self.files[n], flags)?;
        let mut seen = 0;
        loop {
            match self.calls.pread(&file, &mut self.buffer, seen)? as u64 {
                0 => break,
                read => seen += read,
            }
        }
        expect_equal("the bytes of a file", seen, self.sizes[n])?;
        Ok((n, file))
    }

    /// Makes the 13 calls of a mail server, on files that have a message or get one.
    fn varmail(&mut self) -> Outcome<u64> {
        self.delete()?;
        let n = self.choose_absent();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = self.calls.open(&self.files[n], flags)?;
        self.sizes[n] = 0;
        self.present.push(n);
        let bytes = self.size_about(APPEND);
        self.append_to(n, &file, bytes)?;
        self.calls.sync(&file)?;
        drop(file);
        let (n, file) = self.read_whole(OFlags::RDWR)?;
        let bytes = self.size_about(APPEND);
        self.append_to(n, &file, bytes)?;
        self.calls.sync(&file)?;
        drop(file);
        self.read_whole(OFlags::RDONLY)?;
        Ok(13)
    }

    /// Makes the 11 calls of a file server.
    fn fileserver(&mut self) -> Outcome<u64> {
        let (n, size) =
            (self.choose_absent(), self.size_about(Filebench::Fileserver.fileset().size));
        self.create(n, size)?;
        let n = self.choose();
        let (file, bytes) =
            (self.calls.open(&self.files[n], OFlags::WRONLY)?, self.size_about(APPEND));
        self.append_to(n, &file, bytes)?;
        drop(file);
        self.read_whole(OFlags::RDONLY)?;
        self.delete()?;
        let n = self.choose();
        let seen = self.calls.stat(&self.files[n])?.size;
        expect_equal("the size of a file", seen, self.sizes[n])?;
        Ok(11)
    }

    /// Makes the 31 calls of a web server.
    fn webserver(&mut self) -> Outcome<u64> {
        for _ in 0..SENT {
            self.read_whole(OFlags::RDONLY)?;
        }
        let bytes = self.size_about(APPEND) as usize;
        let written = self.calls.write(&self.log, &self.buffer[..bytes])?;
        expect_equal("the bytes written to the log", written as u64, bytes as u64)?;
        Ok(3 * SENT as u64 + 1)
    }
}

impl<C: Calls> Work for FilebenchWork<C> {
    fn begin(&mut self) -> Outcome<()> {
        if self.is_first {
            self.calls.truncate(&self.log, 0)?;
        }
        Ok(())
    }

    fn op(&mut self) -> Outcome<u64> {
        match self.personality {
            Filebench::Varmail => self.varmail(),
            Filebench::Fileserver => self.fileserver(),
            Filebench::Webserver => self.webserver(),
        }
    }

    /// Checks some files that exist, some that don't, and that the log has grown.
    fn end(&mut self) -> Outcome<()> {
        for n in self.present.iter().take(CHECKED) {
            let seen = self.calls.stat(&self.files[*n])?.size;
            expect_equal("the size of a file", seen, self.sizes[*n])?;
        }
        for n in self.absent.iter().take(CHECKED) {
            expect_gone(&self.calls, &self.files[*n])?;
        }
        if self.personality == Filebench::Webserver {
            let mut page = [0; PAGE];
            let log = self.calls.open(c"log", OFlags::RDONLY)?;
            let n = self.calls.pread(&log, &mut page, 0)?;
            expect_equal("the first byte of the log", u64::from(page[..n.min(1)] == [7]), 1)?;
        }
        Ok(())
    }
}
