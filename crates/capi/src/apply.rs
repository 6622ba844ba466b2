//! Patches and layers: differences of branches in files, and applying them.

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use libc::ssize_t;
use vfscale::{ApplyOptions, DiffOptions, Errno, Pool, PoolError};

use crate::args::given;
use crate::border::{Failure, border};
use crate::pool::{POOLS, branch, failure};
use crate::structs::{VFSCALE_APPLY_DRY_RUN, vfscale_applied, vfscale_pool};

/// The call that tells a difference in parts.
type Told = fn(&Pool, &str, &str, &DiffOptions, &mut dyn FnMut(&[u8]) -> bool) -> Parts;
type Parts = Result<u64, PoolError>;

/// Writes what a call tells to a file of the host.
fn store(pool: &Pool, told: Told, (a, b): (&str, &str), out: &Path) -> Result<usize, Failure> {
    let failed = |error: io::Error| failure(PoolError::Output { path: out.to_owned(), error });
    let (mut file, mut written) = (File::create(out).map_err(failed)?, Ok(()));
    let count = told(pool, a, b, &DiffOptions::new(), &mut |part| {
        written = file.write_all(part);
        written.is_ok()
    });
    written.map_err(failed)?;
    Ok(usize::try_from(count.map_err(failure)?).unwrap_or(usize::MAX))
}

/// Compares two branches, which may be open, and writes a patch that makes `b` of `a` to the file
/// `out` of the host, for `git apply`, `patch -p1` and vfscale_pool_apply. Returns the number of
/// files and directories that it tells of. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; ENOSPC if the pool is full; EUCLEAN, EIO and the
/// like; those of the file, which may have a part of the patch then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_patch(
    pool: *mut vfscale_pool,
    a: *const c_char,
    b: *const c_char,
    out: *const c_char,
) -> ssize_t {
    border("vfscale_pool_patch", || {
        let (a, b, out) = (branch!(a)?, branch!(b)?, given!(path(out))?);
        store(&*POOLS.get(pool as u64)?, Pool::patch, (a, b), out)
    })
}

/// Compares two branches, which may be open, and writes a layer that makes `b` of `a` to the file
/// `out` of the host: a tar archive as the OCI image specification has it. Returns the number of
/// files in it. Blocks for the I/O.
///
/// Errors: those of vfscale_pool_patch; EOVERFLOW if a layer can't have a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_layer(
    pool: *mut vfscale_pool,
    a: *const c_char,
    b: *const c_char,
    out: *const c_char,
) -> ssize_t {
    border("vfscale_pool_layer", || {
        let (a, b, out) = (branch!(a)?, branch!(b)?, given!(path(out))?);
        store(&*POOLS.get(pool as u64)?, Pool::layer, (a, b), out)
    })
}

/// Applies the layer or the patch in the file `input` of the host to the branch `name`, and stores
/// in `applied` what was done. `flags` are VFSCALE_APPLY_* flags. The branch must not be open,
/// unless this is a dry run. It is durable at the return, whole or not at all. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch or file; EBUSY if the branch is open, or was changed
/// meanwhile; EINVAL and others if it can't be applied: vfscale_error names the file and the line;
/// EINVAL for unknown flags, or if the branch can only be read; ENOSPC if the pool is full. The
/// branch is as before then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_apply(
    pool: *mut vfscale_pool,
    name: *const c_char,
    input: *const c_char,
    flags: u32,
    applied: *mut vfscale_applied,
) -> c_int {
    border("vfscale_pool_apply", || {
        let (name, path) = (branch!(name)?, given!(path(input))?);
        let place = given!(place(applied))?;
        if flags & !VFSCALE_APPLY_DRY_RUN != 0 {
            return Err(Failure::new(Errno::INVAL, "unknown flags"));
        }
        let options = ApplyOptions::new().dry_run(flags & VFSCALE_APPLY_DRY_RUN != 0);
        let failed = |error: io::Error| failure(PoolError::Output { path: path.into(), error });
        let mut input = File::open(path).map_err(failed)?;
        let pool = POOLS.get(pool as u64)?;
        let done = pool.apply(name, &mut input, options).map_err(failure)?;
        place.set(vfscale_applied {
            is_layer: u64::from(done.is_layer),
            written: done.written,
            removed: done.removed,
            untold: done.untold,
            done: u64::from(done.is_done),
            reserved: [0; 3],
        });
        Ok(())
    })
}
