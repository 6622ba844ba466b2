//! Jobs that map files while each mapping is told with its path, as by `perf record` (Long 2013).
//!
//! The kernel's `perf_event_mmap_event` calls `d_path` for each mapping of a file. A job is the
//! beginning of a program: it maps the program and its libraries, which all jobs share, and whoever
//! records gets the path of each. At its end it unmaps them.

use std::ffi::CString;

use vfscale::posix::OFlags;

use super::expect::{expect_names, write_file};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// Three programs, as in Long's profile, and the libraries that each of them maps.
const PROGRAMS: [&str; 3] = ["usr/bin/reaim", "usr/bin/ls", "usr/bin/true"];
const LIBRARIES: [&str; 5] =
    ["ld-linux.so", "libc.so", "libm.so", "libpthread.so", "libselinux.so"];

fn library(file: &str) -> String {
    format!("usr/lib64/{file}")
}

/// The workload of jobs that map files.
pub(super) struct MapJobs;

impl Workload for MapJobs {
    type Work<C: Calls> = MapJobsWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        for dir in [c"usr", c"usr/bin", c"usr/lib64"] {
            calls.mkdir(dir)?;
        }
        let all = PROGRAMS.map(str::to_owned).into_iter().chain(LIBRARIES.map(library));
        all.into_iter().try_for_each(|file| write_file(calls, &name(file), &[0x7f; 4096]))
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        Ok(MapJobsWork {
            calls,
            programs: PROGRAMS.map(name),
            libraries: LIBRARIES.map(|file| name(library(file))),
            maps: Vec::with_capacity(1 + LIBRARIES.len()),
            path: Vec::new(),
            next: worker,
        })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        expect_names(calls, c"usr/bin", PROGRAMS.len())?;
        expect_names(calls, c"usr/lib64", LIBRARIES.len())
    }
}

pub(super) struct MapJobsWork<C: Calls> {
    calls: C,
    programs: [CString; 3],
    libraries: [CString; 5],
    /// The mappings of the job at work.
    maps: Vec<C::Map>,
    /// The path that was told last.
    path: Vec<u8>,
    /// Number of the next job.
    next: usize,
}

impl<C: Calls> MapJobsWork<C> {
    /// Maps a file, and tells its path.
    fn map(&mut self, file: &CString) -> Outcome<()> {
        let opened = self.calls.open(file, OFlags::RDONLY)?;
        self.maps.push(self.calls.map(&opened)?);
        self.calls.path_of(&opened, &mut self.path)?;
        if !self.path.ends_with(file.to_bytes()) {
            let (seen, due) = (String::from_utf8_lossy(&self.path), file.to_string_lossy());
            return Err(Fault::wrong(format!("a mapping of {due} is told as {seen}")));
        }
        Ok(())
    }

    /// Begins a job, whose mappings live until the next.
    fn begin_job(&mut self) -> Outcome<()> {
        self.next = (self.next + 1) % PROGRAMS.len();
        let program = self.programs[self.next].clone();
        self.map(&program)?;
        for n in 0..LIBRARIES.len() {
            let library = self.libraries[n].clone();
            self.map(&library)?;
        }
        Ok(())
    }
}

impl<C: Calls> Work for MapJobsWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        self.begin_job()?;
        self.maps.clear();
        Ok(1)
    }

    /// Checks that the files of a job are in the table of mappings under the paths that were told.
    fn end(&mut self) -> Outcome<()> {
        self.begin_job()?;
        let mut line = self.path.clone();
        line.push(b'\n');
        let mut table = Vec::new();
        self.calls.read_maps(&mut table)?;
        self.maps.clear();
        if !table.windows(line.len()).any(|seen| seen == line) {
            return Err(Fault::wrong(format!("no mapping of {}", String::from_utf8_lossy(&line))));
        }
        Ok(())
    }
}
