//! Jobs whose files are told with their paths, as by `perf record` (Long 2013).
//!
//! The kernel's `perf_event_mmap_event` calls `d_path` for each mapping of a file. A job is the
//! beginning of a program: it opens the program and its libraries, which all jobs share, and
//! builds the path of each. At its end it closes them. Nothing is mapped: the locks in question are
//! those of the path.

use std::ffi::CString;

use vfscale::posix::OFlags;

use super::expect::{expect_names, write_file};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// Three programs, as in Long's profile, and the libraries that each of them opens.
const PROGRAMS: [&str; 3] = ["usr/bin/reaim", "usr/bin/ls", "usr/bin/true"];
const LIBRARIES: [&str; 5] =
    ["ld-linux.so", "libc.so", "libm.so", "libpthread.so", "libselinux.so"];

fn library(file: &str) -> String {
    format!("usr/lib64/{file}")
}

/// The workload of jobs that open files and build their paths.
pub(super) struct PathJobs;

impl Workload for PathJobs {
    type Work<C: Calls> = PathJobsWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        for dir in [c"usr", c"usr/bin", c"usr/lib64"] {
            calls.mkdir(dir)?;
        }
        let all = PROGRAMS.map(str::to_owned).into_iter().chain(LIBRARIES.map(library));
        all.into_iter().try_for_each(|file| write_file(calls, &name(file), &[0x7f; 4096]))
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        Ok(PathJobsWork {
            calls,
            programs: PROGRAMS.map(name),
            libraries: LIBRARIES.map(|file| name(library(file))),
            opened: Vec::with_capacity(1 + LIBRARIES.len()),
            path: Vec::new(),
            next: worker,
        })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        expect_names(calls, c"usr/bin", PROGRAMS.len())?;
        expect_names(calls, c"usr/lib64", LIBRARIES.len())
    }
}

pub(super) struct PathJobsWork<C: Calls> {
    calls: C,
    programs: [CString; 3],
    libraries: [CString; 5],
    /// The open files of the job at work.
    opened: Vec<C::File>,
    /// The path that was told last.
    path: Vec<u8>,
    /// Number of the next job.
    next: usize,
}

impl<C: Calls> PathJobsWork<C> {
    /// Opens a file, and builds its path.
    fn open(&mut self, file: &CString) -> Outcome<()> {
        let opened = self.calls.open(file, OFlags::RDONLY)?;
        self.calls.path_of(&opened, &mut self.path)?;
        self.opened.push(opened);
        if !self.path.ends_with(file.to_bytes()) {
            let (seen, due) = (String::from_utf8_lossy(&self.path), file.to_string_lossy());
            return Err(Fault::wrong(format!("the path of {due} is told as {seen}")));
        }
        Ok(())
    }

    /// Begins a job, whose files stay open until the next.
    fn begin_job(&mut self) -> Outcome<()> {
        self.next = (self.next + 1) % PROGRAMS.len();
        let program = self.programs[self.next].clone();
        self.open(&program)?;
        for n in 0..LIBRARIES.len() {
            let library = self.libraries[n].clone();
            self.open(&library)?;
        }
        Ok(())
    }
}

impl<C: Calls> Work for PathJobsWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        self.begin_job()?;
        self.opened.clear();
        Ok(1)
    }

    fn end(&mut self) -> Outcome<()> {
        self.op().map(drop)
    }
}
