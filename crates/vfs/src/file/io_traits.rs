//! The I/O traits of the standard library for open files.

use std::io::{IoSlice, IoSliceMut};

use crate::file::open_file::File;

impl std::io::Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        Ok(File::read(self, buf)?)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> std::io::Result<usize> {
        Ok(File::readv(self, bufs)?)
    }
}

impl std::io::Write for &File {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        Ok(File::write(self, buf)?)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> std::io::Result<usize> {
        Ok(File::writev(self, bufs)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::io::Seek for &File {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        Ok(File::seek(self, to)?)
    }
}

impl std::io::Read for File {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        std::io::Read::read(&mut &*self, buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> std::io::Result<usize> {
        std::io::Read::read_vectored(&mut &*self, bufs)
    }
}

impl std::io::Write for File {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        std::io::Write::write(&mut &*self, buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> std::io::Result<usize> {
        std::io::Write::write_vectored(&mut &*self, bufs)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl std::io::Seek for File {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        std::io::Seek::seek(&mut &*self, to)
    }
}
