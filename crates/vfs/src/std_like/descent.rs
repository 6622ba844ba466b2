//! The way from the first directory of a tree down to the current one. The first is open, and the
//! nearest; so neither the depth of a tree nor the length of its paths matters.

use std::path::Path;

use rustix::io::Errno;

use crate::base::error::{Error, Result};
use crate::file::open_file::File;
use crate::std_like::read_dir::open_dir_nofollow;
use crate::task::task_struct::{At, Task};

/// The number of directories above the current one that are open, beside the first.
const OPEN_ABOVE: usize = 64;

/// The directories on the way, each with a state `L`.
#[derive(Debug)]
pub(crate) struct Descent<L>(Vec<Level<L>>);

#[derive(Debug)]
struct Level<L> {
    dir: Held,
    state: L,
}

#[derive(Debug)]
enum Held {
    Open(File),
    /// Device and inode number of a directory far above the current one.
    Far(u64, u64),
}

impl<L> Level<L> {
    fn open(&self) -> Option<&File> {
        match &self.dir {
            Held::Open(dir) => Some(dir),
            Held::Far(..) => None,
        }
    }
}

impl<L> Descent<L> {
    pub(crate) fn new() -> Self {
        Descent(Vec::new())
    }

    /// Returns the number of directories, the current one included.
    pub(crate) fn depth(&self) -> usize {
        self.0.len()
    }

    /// Returns the current directory; `None` outside of the tree.
    pub(crate) fn dir(&self) -> Option<&File> {
        self.0.last().and_then(Level::open)
    }

    /// Returns the place of names in the current directory.
    pub(crate) fn at(&self) -> At<'_> {
        self.dir().map_or(At::Cwd, At::File)
    }

    /// Returns the first directory.
    pub(crate) fn first(&self) -> Option<&File> {
        self.0.first().and_then(Level::open)
    }

    /// Returns the state of the current directory.
    pub(crate) fn state(&mut self) -> Option<&mut L> {
        self.0.last_mut().map(|level| &mut level.state)
    }

    /// Makes a directory in the current one the current one.
    pub(crate) fn enter(&mut self, dir: File, state: L) -> Result<()> {
        self.0.push(Level { dir: Held::Open(dir), state });
        let far = self.0.len().saturating_sub(OPEN_ABOVE + 1);
        if let Some(level @ Level { dir: Held::Open(_), .. }) = self.0.get_mut(far)
            && far > 0
            && let Some(dir) = level.open()
        {
            let found = dir.stat()?;
            level.dir = Held::Far(found.dev, found.ino);
        }
        Ok(())
    }

    /// Leaves the current directory, and returns it. The one above it is opened again if it was
    /// closed.
    ///
    /// # Errors
    /// `ESTALE` if the current directory has another parent meanwhile.
    pub(crate) fn leave(&mut self, task: &Task) -> Result<Option<(File, L)>> {
        let Some(Level { dir, state }) = self.0.pop() else { return Ok(None) };
        let stale = || Error::new("openat", Errno::STALE);
        let Held::Open(dir) = dir else { return Err(stale()) };
        if let Some(above) = self.0.last_mut()
            && let Held::Far(dev, ino) = above.dir
        {
            let opened = open_dir_nofollow(task, At::File(&dir), Path::new(".."))?;
            let found = opened.stat()?;
            if (found.dev, found.ino) != (dev, ino) {
                return Err(stale());
            }
            above.dir = Held::Open(opened);
        }
        Ok(Some((dir, state)))
    }

    /// Leaves the tree.
    pub(crate) fn end(&mut self) {
        self.0.clear();
    }
}
