//! Streams of files. No call waits for another: a read or write is done when it returns.

use bytes::Bytes;
use vfscale::Errno;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::READ_MAX;
use crate::node::Node;

/// Reads a file from a position on.
pub(super) struct Reader {
    file: Node,
    position: u64,
}

impl Reader {
    pub(super) fn new(file: Node, position: u64) -> Reader {
        Reader { file, position }
    }
}

#[async_trait]
impl Pollable for Reader {
    async fn ready(&mut self) {}
}

#[async_trait]
impl InputStream for Reader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if size == 0 {
            return Ok(Bytes::new());
        }
        let mut buf = vec![0; size.min(READ_MAX)];
        let n = self.file.pread(&mut buf, self.position).map_err(failed)?;
        if n == 0 {
            return Err(StreamError::Closed);
        }
        buf.truncate(n);
        self.position += n as u64;
        Ok(buf.into())
    }
}

/// Writes a file from a position on, or at its end if it was opened so. Ends with its first error.
pub(super) struct Writer {
    file: Node,
    position: u64,
    failed: bool,
}

impl Writer {
    pub(super) fn new(file: Node, position: u64) -> Writer {
        Writer { file, position, failed: false }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let n = self.file.pwrite(bytes, self.position)?;
            if n == 0 {
                return Err(Errno::NOSPC);
            }
            self.position += n as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }
}

#[async_trait]
impl Pollable for Writer {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Writer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.check_write()?;
        let written = self.write_all(&bytes);
        self.failed = written.is_err();
        written.map_err(failed)
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.check_write().map(|_| ())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if self.failed { Err(StreamError::Closed) } else { Ok(READ_MAX) }
    }
}

fn failed(errno: Errno) -> StreamError {
    StreamError::LastOperationFailed(errno.into())
}
