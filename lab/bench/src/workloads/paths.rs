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

/// The workload `cat /proc/*/maps /proc/*/numa_maps`, or its equivalent on the target: each line of
/// a file is a path built by `d_path`.
pub(super) struct CatMaps;

/// Number of files that each worker maps.
const MAPPED: usize = 64;

impl CatMaps {
    fn file(n: usize) -> CString {
        name(format!("mapped/m{n}"))
    }
}

impl Workload for CatMaps {
    type Work<C: Calls> = CatMapsWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        calls.mkdir(c"mapped")?;
        for n in 0..MAPPED {
            write_file(calls, &Self::file(n), &[1; 4096])?;
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, _: usize) -> Outcome<CatMapsWork<C>> {
        let (mut maps, mut lines) = (Vec::new(), Vec::new());
        for n in 0..MAPPED {
            let file = calls.open(&Self::file(n), OFlags::RDONLY)?;
            // The whole path: other threads of this process may map files of the same name.
            let mut line = Vec::new();
            calls.path_of(&file, &mut line)?;
            line.push(b'\n');
            lines.push(line);
            maps.push(calls.map(&file)?);
        }
        Ok(CatMapsWork { calls, _maps: maps, lines, buf: Vec::with_capacity(1 << 20) })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        expect_names(calls, c"mapped", MAPPED)
    }
}

pub(super) struct CatMapsWork<C: Calls> {
    calls: C,
    /// The mappings, which live as long as the work.
    _maps: Vec<C::Map>,
    /// Ends of the lines that the table must contain.
    lines: Vec<Vec<u8>>,
    buf: Vec<u8>,
}

impl<C: Calls> Work for CatMapsWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        self.calls.read_maps(&mut self.buf)?;
        Ok(1)
    }

    fn end(&mut self) -> Outcome<()> {
        self.calls.read_maps(&mut self.buf)?;
        for due in &self.lines {
            if !self.buf.windows(due.len()).any(|seen| seen == due) {
                let due = String::from_utf8_lossy(due);
                return Err(Fault::wrong(format!("no mapping of {}", due.trim_end())));
            }
        }
        Ok(())
    }
}
