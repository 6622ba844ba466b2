//! The tree of an image that this process has open.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vfscale::posix::{At, OFlags, RenameFlags};
use vfscale::{Errno, Error, Metadata, OpenOptions, Result, Task};

use super::{Kind, Stat, Tree, Writing};

/// The most bytes of one read.
const STEP_BYTES: usize = 1 << 20;

impl Tree for Task {
    fn stat(&self, path: &Path, follow: bool) -> Result<Stat> {
        let found = if follow { self.metadata(path) } else { self.symlink_metadata(path) };
        found.map(|found| stat_of(&found))
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>> {
        self.read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn target(&self, path: &Path) -> Result<PathBuf> {
        self.read_link(path)
    }

    fn read(&self, path: &Path, offset: u64, len: usize) -> Result<(Vec<u8>, u64)> {
        self.check_regular("read", path)?;
        let file = self.posix().open(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
        let failed = |error: Error| Error::at("read", error.errno(), path);
        let size = file.metadata().map_err(failed)?.len();
        let (mut bytes, mut at) = (Vec::new(), offset);
        // Linux refuses offsets beyond what a file can have.
        while bytes.len() < len && offset < size {
            let had = bytes.len();
            bytes.resize(had + STEP_BYTES.min(len - had), 0);
            let n = file.read_at(&mut bytes[had..], at).map_err(failed)?;
            bytes.truncate(had + n);
            at += n as u64;
            if n == 0 {
                break;
            }
        }
        Ok((bytes, size))
    }

    fn write(&self, path: &Path, bytes: &[u8], writing: Writing) -> Result<u64> {
        match self.check_regular("write", path) {
            Err(error) if error.errno() == Errno::NOENT => {}
            checked => checked?,
        }
        let options = OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK);
        let options = match writing {
            Writing::Create => options.create_new(true),
            Writing::Overwrite => options.create(true),
            Writing::Append => options.create(true).append(true),
        };
        let file = self.open_with(path, &options)?;
        let failed = |error: Error| Error::at("write", error.errno(), path);
        file.write_all(bytes).map_err(failed)?;
        if writing == Writing::Overwrite {
            // Only now, since a full image leaves more of what was there then.
            file.set_len(bytes.len() as u64).map_err(failed)?;
        }
        file.metadata().map(|found| found.len()).map_err(failed)
    }

    fn mkdir(&self, path: &Path) -> Result<()> {
        self.create_dir(path)
    }

    fn remove(&self, path: &Path, recursive: bool) -> Result<()> {
        match self.symlink_metadata(path)?.is_dir() {
            true if recursive => self.remove_dir_all(path),
            true => self.remove_dir(path),
            false => self.remove_file(path),
        }
    }

    fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<()> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        self.posix().renameat2(At::Cwd, from, At::Cwd, to, flags)
    }
}

fn stat_of(found: &Metadata) -> Stat {
    Stat {
        kind: Kind::of(found.is_file(), found.is_dir(), found.is_symlink()),
        mode: found.mode & 0o7777,
        uid: found.uid,
        gid: found.gid,
        size: found.len(),
        mtime: found.mtime.secs(),
    }
}
