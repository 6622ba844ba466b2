//! Mounts: walks across them, which Piggin (2009) makes cheap, and the calls that pay for it.

use std::ffi::CString;
use std::hint::black_box;

use vfscale::Errno;
use vfscale::posix::OFlags;

use super::expect::{expect_equal, expect_gone, expect_names, write_file};
use super::workload::{Scene, Workload};
use crate::base::error::{Fault, Outcome};
use crate::measure::work::Work;
use crate::targets::{Calls, name};

/// The directory that is visible at other places, too.
const SOURCE: &std::ffi::CStr = c"real";
/// A file in it.
const FILE: &str = "f";

fn make_source<C: Calls>(calls: &C) -> Outcome<()> {
    calls.mkdir(SOURCE)?;
    write_file(calls, &name(format!("real/{FILE}")), b"mounted")
}

/// The workload whose walks cross a mount.
pub(super) struct MountCross;

impl Workload for MountCross {
    type Work<C: Calls> = MountCrossWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        make_source(calls)?;
        calls.mkdir(c"at")?;
        calls.bind(SOURCE, c"at")
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, _: usize) -> Outcome<Self::Work<C>> {
        Ok(MountCrossWork { calls, path: name(format!("at/{FILE}")) })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, _: &Scene) -> Outcome<()> {
        expect_names(calls, c"at", 1)?;
        calls.umount(c"at")?;
        // Below the mount there is nothing.
        expect_names(calls, c"at", 0)
    }
}

pub(super) struct MountCrossWork<C> {
    calls: C,
    path: CString,
}

impl<C: Calls> Work for MountCrossWork<C> {
    #[inline]
    fn op(&mut self) -> Outcome<u64> {
        black_box(self.calls.stat(&self.path)?);
        Ok(1)
    }

    /// Checks that the file across the mount is that of the source.
    fn end(&mut self) -> Outcome<()> {
        let real = self.calls.stat(&name(format!("real/{FILE}")))?;
        let seen = self.calls.stat(&self.path)?;
        expect_equal("the inode across a mount", seen.ino, real.ino)?;
        expect_equal("the size across a mount", seen.size, b"mounted".len() as u64)
    }
}

/// The workload that mounts and unmounts.
pub(super) struct BindUmount;

impl Workload for BindUmount {
    type Work<C: Calls> = BindUmountWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        make_source(calls)?;
        (0..scene.workers).try_for_each(|worker| Ok(calls.mkdir(&name(format!("at{worker}")))?))
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        let file = name(format!("at{worker}/{FILE}"));
        Ok(BindUmountWork { calls, target: name(format!("at{worker}")), file })
    }

    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        expect_names(calls, c".", scene.workers + 1)
    }
}

pub(super) struct BindUmountWork<C> {
    calls: C,
    target: CString,
    /// The file that a mount makes visible.
    file: CString,
}

impl<C: Calls> Work for BindUmountWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        self.calls.bind(SOURCE, &self.target)?;
        self.calls.umount(&self.target)?;
        Ok(1)
    }

    /// Checks that the file is visible while it is mounted, and only then.
    fn end(&mut self) -> Outcome<()> {
        expect_gone(&self.calls, &self.file)?;
        self.calls.bind(SOURCE, &self.target)?;
        let seen = self.calls.stat(&self.file);
        self.calls.umount(&self.target)?;
        let real = self.calls.stat(&name(format!("real/{FILE}")))?;
        expect_equal("the inode below a mount", seen?.ino, real.ino)?;
        expect_gone(&self.calls, &self.file)
    }
}

/// Number of files that each worker has open during remounts, for reading: a remount has to look at
/// them.
const OPEN: usize = 16;

/// The workload that makes the file system read-only, and writable again.
pub(super) struct Remount;

impl Workload for Remount {
    type Work<C: Calls> = RemountWork<C>;

    fn prepare<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        for n in 0..scene.workers * OPEN {
            write_file(calls, &name(format!("r{n}")), b"")?;
        }
        // A target without remounts is left out before time is taken.
        calls.remount(true)?;
        calls.remount(false)
    }

    fn work<C: Calls>(&self, calls: C, _: &Scene, worker: usize) -> Outcome<Self::Work<C>> {
        let open = |n| Ok(calls.open(&name(format!("r{}", worker * OPEN + n)), OFlags::RDONLY)?);
        let open = (0..OPEN).map(open).collect::<Outcome<Vec<_>>>()?;
        Ok(RemountWork { calls, open })
    }

    /// Checks that nothing can be created while the file system is read-only, and again afterwards.
    fn inspect<C: Calls>(&self, calls: &mut C, scene: &Scene) -> Outcome<()> {
        calls.remount(true)?;
        let made = calls.mkdir(c"new");
        calls.remount(false)?;
        match made {
            Err(e) if e.errno() == Errno::ROFS => {}
            Err(e) => return Err(e.into()),
            Ok(()) => return Err(Fault::wrong("a read-only file system was changed")),
        }
        calls.mkdir(c"new")?;
        calls.rmdir(c"new")?;
        expect_names(calls, c".", scene.workers * OPEN)
    }
}

pub(super) struct RemountWork<C: Calls> {
    calls: C,
    open: Vec<C::File>,
}

impl<C: Calls> Work for RemountWork<C> {
    fn op(&mut self) -> Outcome<u64> {
        self.calls.remount(true)?;
        self.calls.remount(false)?;
        Ok(1)
    }

    /// Checks that the open files are still those of their names.
    fn end(&mut self) -> Outcome<()> {
        for file in &self.open {
            expect_equal("the number of names of an open file", self.calls.fstat(file)?.nlink, 1)?;
        }
        Ok(())
    }
}
