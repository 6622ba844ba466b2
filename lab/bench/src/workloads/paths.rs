//! Paths of open files, whose locks are the subject of Long's patches (2013).

use std::ffi::CString;
use std::hint::black_box;

use vfscale::posix::OFlags;

use super::expect::{expect_names, write_file};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// The workload that gets the path of a worker's own open file, eight directories down; all workers
/// share the directories.
pub(super) struct DPath;

const DIRS: [&str; 8] = ["one", "two", "three", "four", "five", "six", "seven", "eight"];

impl DPath {
    fn file(worker: usize) -> String {
        format!("{}/f{worker}", DIRS.join("/"))
    }
}

impl Workload for DPath {
    type Work<C: Calls> = DPathWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for depth in 1..=DIRS.len() {
            calls.mkdir(&name(DIRS[..depth].join("/")))?;
        }
        (0..scene.workers).try_for_each(|worker| write_file(calls, &name(Self::file(worker)), b""))
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<DPathWork<C>> {
        let path = Self::file(worker);
        let file = calls.open(&name(path.as_str()), OFlags::RDONLY)?;
        let end = format!("/{path}").into_bytes();
        Ok(DPathWork { calls, file, end, buf: Vec::new() })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, &name(DIRS.join("/")), scene.workers)
    }
}

pub(super) struct DPathWork<C: Calls> {
    calls: C,
    file: C::File,
    /// End of the path; its beginning depends on the target.
    end: Vec<u8>,
    buf: Vec<u8>,
}

impl<C: Calls> Work for DPathWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        self.calls.path_of(&self.file, &mut self.buf)?;
        black_box(&self.buf);
        Ok(1)
    }

    fn end(&mut self) -> Outcome<()> {
        self.calls.path_of(&self.file, &mut self.buf)?;
        if !self.buf.ends_with(&self.end) {
            let (seen, due) =
                (String::from_utf8_lossy(&self.buf), String::from_utf8_lossy(&self.end));
            return Err(Fault::wrong(format!("the path is {seen}, which should end with {due}")));
        }
        Ok(())
    }
}

/// The workload that gets the paths of 64 open files, which all workers have open; `cat` of
/// `/proc/PID/maps` gets such a path for each line.
pub(super) struct CatFds;

/// Number of files that each worker has open.
const OPEN: usize = 64;

impl CatFds {
    fn file(n: usize) -> CString {
        name(format!("open/f{n}"))
    }
}

impl Workload for CatFds {
    type Work<C: Calls> = CatFdsWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        calls.mkdir(c"open")?;
        (0..OPEN).try_for_each(|n| write_file(calls, &Self::file(n), b""))
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, _: usize) -> Outcome<CatFdsWork<C>> {
        let open = |n| calls.open(&Self::file(n), OFlags::RDONLY);
        let files = (0..OPEN).map(open).collect::<vfscale::Result<_>>()?;
        Ok(CatFdsWork { calls, files, buf: Vec::new() })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        expect_names(calls, c"open", OPEN)
    }
}

pub(super) struct CatFdsWork<C: Calls> {
    calls: C,
    files: Vec<C::File>,
    buf: Vec<u8>,
}

impl<C: Calls> Work for CatFdsWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        for file in &self.files {
            self.calls.path_of(file, &mut self.buf)?;
            black_box(&self.buf);
        }
        Ok(1)
    }

    fn end(&mut self) -> Outcome<()> {
        for (n, file) in self.files.iter().enumerate() {
            self.calls.path_of(file, &mut self.buf)?;
            let due = CatFds::file(n);
            if !self.buf.ends_with(due.to_bytes()) {
                let (seen, due) = (String::from_utf8_lossy(&self.buf), due.to_string_lossy());
                return Err(Fault::wrong(format!("the path of {due} is told as {seen}")));
            }
        }
        Ok(())
    }
}
