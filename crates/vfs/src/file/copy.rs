//! Copies between open files: `copy_file_range(2)`.

use std::io::IoSlice;

use rustix::io::Errno;

use crate::base::error::{Outcome, Result, check_fork};
use crate::base::types::OFlags;
use crate::file::failed::OnFile;
use crate::file::open_file::{File, check_offset};

/// The number of bytes that one step of a copy moves.
const COPY_STEP: usize = 128 * 1024;

fn copy_file_range(
    from: &File,
    from_offset: u64,
    to: &File,
    to_offset: u64,
    len: u64,
) -> Outcome<u64> {
    check_fork()?;
    if from.is_path() || to.is_path() {
        return Err(Errno::BADF);
    }
    let (source, target) = (from.inode(), to.inode());
    if source.is_dir() || target.is_dir() {
        return Err(Errno::ISDIR);
    }
    if !source.is_file() || !target.is_file() {
        return Err(Errno::INVAL);
    }
    from.check_read(0, 0)?;
    to.check_write()?;
    if to.flags().contains(OFlags::APPEND) {
        return Err(Errno::BADF);
    }
    if !std::ptr::eq(source.sb(), target.sb()) {
        return Err(Errno::XDEV);
    }
    if target.is_immutable() {
        return Err(Errno::PERM);
    }
    if from_offset.checked_add(len).is_none() || to_offset.checked_add(len).is_none() {
        return Err(Errno::OVERFLOW);
    }
    let size_max = source.sb().fs().size_max();
    if (size_max..=i64::MAX as u64).contains(&to_offset) {
        return Err(Errno::FBIG);
    }
    check_offset(from_offset)?;
    check_offset(to_offset)?;
    let len = len.min(source.size().saturating_sub(from_offset)).min(size_max - to_offset);
    let disjoint = from_offset + len <= to_offset || to_offset + len <= from_offset;
    if std::ptr::eq(source, target) && !disjoint {
        return Err(Errno::INVAL);
    }
    let mut buf = vec![0; COPY_STEP.min(usize::try_from(len).unwrap_or(COPY_STEP))];
    let mut done = 0;
    while done < len {
        let step = buf.len().min(usize::try_from(len - done).unwrap_or(usize::MAX));
        let n = from.with_text(|| from.read_inner(from_offset + done, &mut buf[..step]))?;
        if n == 0 {
            break;
        }
        match to.write_whole(to_offset + done, &[IoSlice::new(&buf[..n])]) {
            Ok((_, written)) => {
                done += written as u64;
                if written < n {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

impl File {
    /// Copies up to `len` bytes to another file of the same file system (`copy_file_range`). If the
    /// caller passes an offset, the copy uses and advances it instead of the file's position.
    /// Returns the number of bytes; 0 at the end of this file.
    ///
    /// # Errors
    /// `EBADF` for the wrong access mode or a target that appends, `EISDIR`, `EINVAL` for other
    /// types and overlapping ranges of one file, `EPERM` for an immutable target, `EFBIG`,
    /// `ENOSPC`, `EOVERFLOW`, `EXDEV`.
    pub fn copy_range(
        &self,
        offset_in: Option<&mut u64>,
        to: &File,
        offset_out: Option<&mut u64>,
        len: u64,
    ) -> Result<u64> {
        let from = offset_in.as_deref().copied().unwrap_or_else(|| self.0.pos.get());
        let into = offset_out.as_deref().copied().unwrap_or_else(|| to.0.pos.get());
        let copied = copy_file_range(self, from, to, into, len).of("copy_file_range", &self.0)?;
        match offset_in {
            Some(offset) => *offset = from + copied,
            None => self.0.pos.lock().set(from + copied),
        }
        match offset_out {
            Some(offset) => *offset = into + copied,
            None => to.0.pos.lock().set(into + copied),
        }
        Ok(copied)
    }
}
