//! Reads of text that the driver generates when it is first read.

use rustix::io::Errno;

use crate::base::error::Stop;
use crate::file::open_file::File;
use crate::objects::inode_ext::InodeExt;
use crate::objects::seq_file::{ReadResult, Unread};

impl File {
    /// Returns whether its text is generated when it is read, so its size has no meaning.
    pub fn is_text(&self) -> bool {
        matches!(self.inode().stream(), Some(InodeExt::Text(_)))
    }

    /// Reads beyond the end of the file, which is the offset of generated text. Reads nothing of
    /// other files.
    #[cold]
    pub(crate) fn read_text(&self, offset: u64, buf: &mut [u8]) -> ReadResult<usize> {
        match self.inode().stream() {
            Some(InodeExt::Text(text)) if !buf.is_empty() => text.read(self.id(), offset, buf),
            _ => Ok(0),
        }
    }

    /// Runs `read`; if the text must first be generated, generates it and runs `read` again. The
    /// caller holds nothing.
    #[inline]
    pub(crate) fn with_text<T>(&self, mut read: impl FnMut() -> ReadResult<T>) -> Result<T, Errno> {
        loop {
            match read() {
                Ok(value) => return Ok(value),
                Err(Stop::Errno(errno)) => return Err(errno),
                Err(Stop::Deferred(Unread)) => self.make_text()?,
            }
        }
    }

    #[cold]
    fn make_text(&self) -> Result<(), Errno> {
        let inode = self.inode();
        let Some(InodeExt::Text(text)) = inode.stream() else { return Err(Errno::INVAL) };
        let bytes = inode.sb().fs().text(inode)?;
        // Noted before the text is stored, which the close must drop.
        self.0.note_stream();
        text.keep(self.id(), bytes);
        Ok(())
    }
}
