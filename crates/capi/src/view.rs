//! Views of branches, and what was changed above them.

use std::ffi::{c_char, c_int};
use std::path::Path;

use libc::ssize_t;
use vfscale::{Errno, Overlay};

use crate::args::given;
use crate::border::{Failure, border};
use crate::pool::{POOLS, branch, check_name_room, failure};
use crate::structs::{VFSCALE_INGEST_USERXATTR, vfscale_pool};
use crate::task::fill_path;

/// Writes a view of the branch `name`, which can only be read, to the file `out`, whole or not at
/// all: metadata of EROFS, by which Linux reads all of the branch in place, if the image is its
/// device (`mount(2)` with the type `erofs` and the option `device=`). It is right as long as the
/// branch exists. Blocks for the I/O.
///
/// Errors: ENOENT if there is no such branch; EINVAL if it can be written; EOVERFLOW if it has
/// something that a view can't have; EUCLEAN, EIO and the like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_view(
    pool: *mut vfscale_pool,
    name: *const c_char,
    out: *const c_char,
) -> c_int {
    border("vfscale_pool_view", || {
        let (name, out) = (branch!(name)?, given!(path(out))?);
        POOLS.get(pool as u64)?.view(name, out).map(drop).map_err(failure)
    })
}

/// Takes over into the branch `name`, by one commit, what programs have changed in an overlay of
/// Linux: its lower layer is the view in the file `view`, of `base`, a read-only fork of the
/// branch; `upper` is the directory of its upper layer, and `work` the one for its work. `flags`
/// are VFSCALE_INGEST_* flags. The overlay has the options `index=on` and `xino=on`, or `userxattr`
/// and `xino=on` with VFSCALE_INGEST_USERXATTR. Nothing changes it meanwhile. Blocks for the I/O.
///
/// If the branch has changed since the fork, or is open, it stays as it is: the changes are another
/// branch then, whose name and a zero are written to `kept`, which has `size` bytes; 136 are
/// enough. Returns the length of the name, 0 if the branch has the changes.
///
/// Errors: ENOENT if there is no such branch or file; EUCLEAN and others for a file of the overlay
/// that can't be taken over, which vfscale_error names; EPERM if its attributes can't be read;
/// EINVAL for unknown flags; ENOSPC; ERANGE if the buffer has fewer than 136 bytes. Nothing was
/// changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_pool_ingest(
    pool: *mut vfscale_pool,
    name: *const c_char,
    base: *const c_char,
    view: *const c_char,
    upper: *const c_char,
    work: *const c_char,
    flags: u32,
    kept: *mut c_char,
    size: usize,
) -> ssize_t {
    border("vfscale_pool_ingest", || {
        let (name, base, kept) =
            (branch!(name)?, branch!(base)?, given!(buffer(kept.cast(), size))?);
        let (view, upper, work) = (given!(path(view))?, given!(path(upper))?, given!(path(work))?);
        if flags & !VFSCALE_INGEST_USERXATTR != 0 {
            return Err(Failure::new(Errno::INVAL, "unknown flags"));
        }
        check_name_room(kept)?;
        let userxattr = flags & VFSCALE_INGEST_USERXATTR != 0;
        let overlay = Overlay { base, view, upper, work, userxattr };
        let done = POOLS.get(pool as u64)?.ingest(name, overlay).map_err(failure)?;
        match done.kept {
            Some(branch) => fill_path(kept, Path::new(&branch)),
            None => Ok(0),
        }
    })
}
