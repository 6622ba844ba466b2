//! The credentials of tasks.

use std::ffi::c_int;

use vfscale::{Capabilities, Credentials, Errno};

use crate::args::given;
use crate::border::{Failure, border};
use crate::structs::{vfscale_credentials, vfscale_task};
use crate::task_handle::task;

/// Largest number of supplementary groups, as in Linux.
const GROUPS_MAX: u64 = 65_536;

/// Reads credentials; those of user 0 with every privilege for a null pointer.
///
/// # Safety
/// The pointer is null, or that of `size` bytes, in which `groups` points to as many as they say.
pub(crate) unsafe fn credentials(
    pointer: *const vfscale_credentials,
    size: usize,
) -> Result<Credentials, Failure> {
    if pointer.is_null() {
        return Ok(Credentials::root());
    }
    // SAFETY: the caller promises `size` bytes.
    let from = unsafe { crate::args::options(pointer, size) }?;
    if from.group_count > GROUPS_MAX {
        return Err(Failure::new(Errno::INVAL, "more than 65,536 supplementary groups"));
    }
    // SAFETY: the caller promises as many groups as the structure says.
    let groups = unsafe { crate::args::values(from.groups, from.group_count as usize) }?;
    let mut credentials = Credentials::user(from.uid, from.gid).with_groups(groups);
    credentials.caps = Capabilities::from_bits_truncate(from.capabilities);
    (credentials.real_uid, credentials.real_gid) = (from.real_uid, from.real_gid);
    Ok(credentials)
}

/// Changes the credentials of a task; `credentials` are `size` bytes, sizeof *credentials. NULL
/// means user 0 with every privilege. Running calls continue with the old ones. The program decides
/// who may do this: there is no check.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_set_credentials(
    task: *mut vfscale_task,
    credentials: *const vfscale_credentials,
    size: usize,
) -> c_int {
    border("vfscale_set_credentials", || {
        // SAFETY: the caller has promised what the header says.
        let credentials = unsafe { self::credentials(credentials, size) }?;
        self::task(task)?.set_credentials(credentials);
        Ok(())
    })
}

/// Stores the credentials of a task in `credentials`, and up to `groups_max` of its supplementary
/// groups in `groups`, which may be NULL. group_count is the number that the task has; the pointer
/// is `groups`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_get_credentials(
    task: *mut vfscale_task,
    credentials: *mut vfscale_credentials,
    groups: *mut u32,
    groups_max: usize,
) -> c_int {
    border("vfscale_get_credentials", || {
        let place = given!(place(credentials))?;
        let room = if groups.is_null() { 0 } else { groups_max };
        let bytes = room.checked_mul(size_of::<u32>());
        let bytes = bytes.ok_or_else(|| Failure::new(Errno::INVAL, "groups_max is too large"))?;
        let room = given!(buffer(groups.cast(), bytes))?;
        let from = self::task(task)?.credentials();
        for (to, group) in room.chunks_exact_mut(size_of::<u32>()).zip(&from.groups) {
            to.copy_from_slice(&group.to_ne_bytes());
        }
        place.set(vfscale_credentials {
            uid: from.uid,
            gid: from.gid,
            real_uid: from.real_uid,
            real_gid: from.real_gid,
            capabilities: from.caps.bits(),
            groups,
            group_count: from.groups.len() as u64,
        });
        Ok(())
    })
}
