//! Files opened by their handles: the lookup of an inode by its number, whose lock Piggin (2009)
//! splits and then leaves out.

use vfscale::posix::OFlags;

use super::expect::{expect_equal, expect_names, write_file};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// Number of files of each worker.
const FILES: usize = 64;

/// The workload that opens files by their handles.
pub(super) struct OpenHandle;

fn file(worker: usize, n: usize) -> String {
    format!("w{worker}/h{n}")
}

impl Workload for OpenHandle {
    type Work<C: Calls> = OpenHandleWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..scene.workers {
            calls.mkdir(&name(format!("w{worker}")))?;
            for n in 0..FILES {
                let path = file(worker, n);
                write_file(calls, &name(path.as_str()), path.as_bytes())?;
            }
        }
        Ok(())
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        let mut files = Vec::new();
        for n in 0..FILES {
            let path = file(worker, n);
            files.push((calls.handle(&name(path.as_str()))?, path));
        }
        // A missing right is found out before any time is taken.
        drop(calls.open_handle(&files[0].0, OFlags::RDONLY)?);
        Ok(OpenHandleWork { calls, files, next: 0 })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for worker in 0..scene.workers {
            expect_names(calls, &name(format!("w{worker}")), FILES)?;
        }
        Ok(())
    }
}

pub(super) struct OpenHandleWork<C: Calls> {
    calls: C,
    /// The handles with the paths of their files.
    files: Vec<(C::Handle, String)>,
    next: usize,
}

impl<C: Calls> Work for OpenHandleWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        self.next = (self.next + 1) % FILES;
        drop(self.calls.open_handle(&self.files[self.next].0, OFlags::RDONLY)?);
        Ok(1)
    }

    /// Checks that each handle opens the file that it was made of.
    fn end(&mut self) -> Outcome<()> {
        for (handle, path) in &self.files {
            let opened = self.calls.open_handle(handle, OFlags::RDONLY)?;
            let mut bytes = [0; 64];
            let n = self.calls.pread(&opened, &mut bytes, 0)?;
            if bytes[..n] != *path.as_bytes() {
                return Err(Fault::wrong(format!("the handle of {path} opens another file")));
            }
            let named = self.calls.stat(&name(path.as_str()))?;
            expect_equal("the inode of a handle", self.calls.fstat(&opened)?.ino, named.ino)?;
        }
        Ok(())
    }
}
