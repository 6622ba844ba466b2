//! Helpers of workloads that write files and check them.

use std::ffi::CStr;

use vfscale::Errno;
use vfscale::posix::OFlags;

use crate::base::error::{Fault, Outcome};
use crate::targets::Calls;

/// Creates a file with these bytes.
pub(crate) fn write_file<C: Calls>(calls: &C, name: &CStr, bytes: &[u8]) -> Outcome<()> {
    let file = calls.open(name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
    write_at(calls, &file, bytes, 0)
}

/// Stores the number of a part of a file at the beginning of the part.
pub(super) fn mark(part: &mut [u8], number: u64) {
    part[..8].copy_from_slice(&number.to_le_bytes());
}

/// Writes all bytes, in several calls if need be.
pub(crate) fn write_at<C: Calls>(
    calls: &C,
    file: &C::File,
    bytes: &[u8],
    offset: u64,
) -> Outcome<()> {
    let mut done = 0;
    while done < bytes.len() {
        match calls.pwrite(file, &bytes[done..], offset + done as u64)? {
            0 => return Err(Fault::wrong("a write of some bytes wrote none")),
            n => done += n,
        }
    }
    Ok(())
}

/// Checks that a file contains exactly these bytes.
pub(crate) fn expect_content<C: Calls>(calls: &C, name: &CStr, bytes: &[u8]) -> Outcome<()> {
    let file = calls.open(name, OFlags::RDONLY)?;
    let mut seen = vec![0; bytes.len() + 1];
    let n = calls.pread(&file, &mut seen, 0)?;
    if seen[..n] != *bytes {
        return Err(Fault::wrong(format!(
            "{} holds {:?} instead of {:?}",
            name.to_string_lossy(),
            String::from_utf8_lossy(&seen[..n]),
            String::from_utf8_lossy(bytes)
        )));
    }
    Ok(())
}

/// Checks that a name does not exist.
pub(crate) fn expect_gone<C: Calls>(calls: &C, name: &CStr) -> Outcome<()> {
    match calls.lstat(name) {
        Err(e) if e.errno() == Errno::NOENT => Ok(()),
        Err(e) => Err(e.into()),
        Ok(_) => {
            let name = name.to_string_lossy();
            Err(Fault::wrong(format!("{name} exists, though it was removed or never made")))
        }
    }
}

/// Checks the number of names in a directory.
pub(crate) fn expect_names<C: Calls>(calls: &C, dir: &CStr, count: usize) -> Outcome<()> {
    let mut seen = 0;
    calls.list(dir, |_, _| seen += 1)?;
    if seen != count {
        return Err(Fault::wrong(format!(
            "{seen} names in {}, not {count}",
            dir.to_string_lossy()
        )));
    }
    Ok(())
}

/// Checks a number.
pub(crate) fn expect_equal(what: &str, seen: u64, due: u64) -> Outcome<()> {
    if seen != due {
        return Err(Fault::wrong(format!("{what} is {seen}, not {due}")));
    }
    Ok(())
}
