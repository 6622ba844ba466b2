//! Copies between the host and a tree.

use std::ffi::{c_char, c_int};

use vfscale::{Errno, Links, Owners, Transfer, Transferred};

use crate::args::{Place, given};
use crate::border::{Failure, border};
use crate::structs::{
    VFSCALE_TRANSFER_DEVICES, VFSCALE_TRANSFER_FIXED_OWNER, VFSCALE_TRANSFER_NO_TIMES,
    VFSCALE_TRANSFER_REFUSE_OUTER_LINKS, VFSCALE_TRANSFER_SKIP_OUTER_LINKS,
    VFSCALE_TRANSFER_SOURCE_OWNERS, VFSCALE_TRANSFER_XATTRS, vfscale_task,
    vfscale_transfer_options, vfscale_transferred,
};
use crate::task_handle::task;

/// Returns the copy that the options describe.
fn transfer(options: &vfscale_transfer_options) -> Result<Transfer<'static>, Failure> {
    let flag = |flag| options.flags & flag != 0;
    let known = VFSCALE_TRANSFER_SOURCE_OWNERS
        | VFSCALE_TRANSFER_FIXED_OWNER
        | VFSCALE_TRANSFER_XATTRS
        | VFSCALE_TRANSFER_NO_TIMES
        | VFSCALE_TRANSFER_DEVICES
        | VFSCALE_TRANSFER_SKIP_OUTER_LINKS
        | VFSCALE_TRANSFER_REFUSE_OUTER_LINKS;
    if options.flags & !known != 0 || options.reserved != 0 {
        return Err(Failure::new(Errno::INVAL, "unknown flags"));
    }
    let owners = match (flag(VFSCALE_TRANSFER_SOURCE_OWNERS), flag(VFSCALE_TRANSFER_FIXED_OWNER)) {
        (true, true) => return Err(Failure::new(Errno::INVAL, "two kinds of owners")),
        (true, false) => Owners::Source,
        (false, true) => Owners::Fixed(options.uid, options.gid),
        (false, false) => Owners::Copier,
    };
    let (skip, refuse) =
        (flag(VFSCALE_TRANSFER_SKIP_OUTER_LINKS), flag(VFSCALE_TRANSFER_REFUSE_OUTER_LINKS));
    let links = match (skip, refuse) {
        (true, true) => return Err(Failure::new(Errno::INVAL, "two rules for links")),
        (true, false) => Links::Skip,
        (false, true) => Links::Refuse,
        (false, false) => Links::Keep,
    };
    let (xattrs, times) = (flag(VFSCALE_TRANSFER_XATTRS), !flag(VFSCALE_TRANSFER_NO_TIMES));
    let transfer = Transfer::new().owners(owners).xattrs(xattrs).times(times);
    Ok(transfer.devices(flag(VFSCALE_TRANSFER_DEVICES)).links(links))
}

/// Stores what was copied, if the caller wants it.
fn report(copied: Transferred, place: Option<Place<'_, vfscale_transferred>>) {
    let Transferred { files, bytes, skipped, .. } = copied;
    if let Some(place) = place {
        place.set(vfscale_transferred { files, bytes, skipped, reserved: [0; 5] });
    }
}

/// Copies the file or directory `from` of the host to the new name `to` in the tree of the task,
/// with the rights of the task, and stores what it copied in `done`, which may be NULL. `options`
/// are `options_size` bytes; NULL means the default of each. Blocks for the I/O of the host.
///
/// A copy follows no symbolic link, not even one that takes the place of a directory meanwhile. It
/// gives nobody rights: without the owners of the source it has no set-id bits and no capabilities,
/// and it has no devices unless a flag asks for them. Links are copied as they are, so a program
/// that reads what a guest has made may be led out of it: refuse or skip such links.
///
/// Errors: EEXIST if `to` exists; EXDEV for a link that is refused; those of reading and writing.
/// Files that were copied before stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_import(
    task: *mut vfscale_task,
    from: *const c_char,
    to: *const c_char,
    options: *const vfscale_transfer_options,
    options_size: usize,
    done: *mut vfscale_transferred,
) -> c_int {
    border("vfscale_import", || {
        let (from, to) = (given!(path(from))?, given!(path(to))?);
        let transfer = transfer(&given!(options(options, options_size))?)?;
        let place = given!(optional_place(done))?;
        let copied = transfer.import(&*self::task(task)?, from, to)?;
        report(copied, place);
        Ok(())
    })
}

/// Copies the file or directory `from` in the tree of the task to the new name `to` on the host,
/// with the rights of this process; see vfscale_import.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_export(
    task: *mut vfscale_task,
    from: *const c_char,
    to: *const c_char,
    options: *const vfscale_transfer_options,
    options_size: usize,
    done: *mut vfscale_transferred,
) -> c_int {
    border("vfscale_export", || {
        let (from, to) = (given!(path(from))?, given!(path(to))?);
        let transfer = transfer(&given!(options(options, options_size))?)?;
        let place = given!(optional_place(done))?;
        let copied = transfer.export(&*self::task(task)?, from, to)?;
        report(copied, place);
        Ok(())
    })
}
