//! Trees: in memory, and on volumes.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::time::Duration;

use vfscale::options::{Options, Size};
use vfscale::{Errno, Limits, Vfs, Volume, VolumeBuilder};
use vfscale_sync::lock::Mutex;

use crate::args::{Place, given};
use crate::border::{Failure, border};
use crate::cache_budget::budget;
use crate::handles::{Kind, Table, Used};
use crate::ranks::TreeLock;
use crate::structs::{
    VFSCALE_VOLUME_DISCARD, VFSCALE_VOLUME_NO_AUTO_DA_ALLOC, VFSCALE_VOLUME_NO_DISCARD,
    VFSCALE_VOLUME_NO_RECOVERY, VFSCALE_VOLUME_READ_ONLY, VFSCALE_VOLUME_REMOUNT_RO,
    VFSCALE_VOLUME_TAKE_OVER, vfscale_fs, vfscale_limits, vfscale_memory_options, vfscale_usage,
    vfscale_volume_options,
};

static TREES: Table<Fs> = Table::new(Kind::Fs, false);

/// The tree of a handle; `None` while a call closes it.
pub(crate) struct Fs(Mutex<Option<Tree>, TreeLock>);

enum Tree {
    Memory(Vfs),
    Volume(Volume),
}

impl Tree {
    fn vfs(&self) -> &Vfs {
        match self {
            Tree::Memory(vfs) => vfs,
            Tree::Volume(volume) => volume.vfs(),
        }
    }
}

impl Fs {
    fn with<T>(&self, body: impl FnOnce(&Tree) -> Result<T, Failure>) -> Result<T, Failure> {
        match &*self.0.lock() {
            Some(tree) => body(tree),
            None => Err(Failure::new(Errno::BADF, "another call is closing the tree")),
        }
    }

    /// Returns the tree of mounts.
    pub(crate) fn vfs(&self) -> Result<Vfs, Failure> {
        self.with(|tree| Ok(tree.vfs().clone()))
    }
}

/// Returns the tree of a handle.
pub(crate) fn tree(fs: *mut vfscale_fs) -> Result<Used<Fs>, Failure> {
    TREES.get(fs as u64)
}

fn insert(tree: Tree) -> Result<*mut vfscale_fs, Failure> {
    Ok(TREES.insert(Fs(Mutex::new(Some(tree))))? as *mut vfscale_fs)
}

/// Returns limits: those of `from`, or where these are 0, the default ones.
fn limits(from: &vfscale_limits, default: Limits) -> Result<Limits, Failure> {
    let mut limits = default;
    if from.reserved != [0; 2] {
        let text = "the limits have values that this version does not know";
        return Err(Failure::new(Errno::INVAL, text));
    }
    if from.open_files != 0 {
        limits = limits.open_files(from.open_files);
    }
    if from.descriptors != 0 {
        limits = limits.descriptors(usize::try_from(from.descriptors).unwrap_or(usize::MAX));
    }
    match (from.pipe_pages_soft, from.pipe_pages_hard) {
        (0, 0) => {}
        (0, hard) => limits = limits.pipe_pages(hard, hard),
        (soft, hard) => limits = limits.pipe_pages(soft, hard),
    }
    if from.socket_bytes != 0 {
        limits = limits.socket_bytes(from.socket_bytes);
    }
    if from.locks != 0 {
        limits = limits.locks(from.locks);
    }
    Ok(limits)
}

/// Returns whether no limit is set.
fn is_default(limits: &vfscale_limits) -> bool {
    let vfscale_limits { open_files, descriptors, pipe_pages_soft, pipe_pages_hard, .. } = limits;
    [*open_files, *descriptors, *pipe_pages_soft, *pipe_pages_hard] == [0; 4]
        && [limits.socket_bytes, limits.locks] == [0; 2]
        && limits.reserved == [0; 2]
}

/// Makes a tree whose files are in memory, and stores its handle in `fs`. `options` are
/// `options_size` bytes, sizeof *options; NULL means the default of each.
///
/// Errors: ENOSPC if the size does not suffice for the root directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fs_memory(
    options: *const vfscale_memory_options,
    options_size: usize,
    fs: *mut *mut vfscale_fs,
) -> c_int {
    border("vfscale_fs_memory", || {
        let fs = given!(place(fs))?;
        let from = given!(options(options, options_size))?;
        let text = given!(optional_text(from.text, "the options"))?;
        let options = memory_options(&from, text.as_deref())?;
        let mut builder = options.memory(vfscale::memory()).map_err(vfscale::Error::from)?;
        if !is_default(&from.limits) {
            let size = options.size.map(Size::on_this_machine);
            let default = size.map_or_else(Limits::default, Limits::for_size);
            builder = builder.limits(limits(&from.limits, default)?);
        }
        fs.set(insert(Tree::Memory(builder.build()?))?);
        Ok(())
    })
}

/// Returns a number that was given; 0 is the default.
fn set<T: Default + PartialEq>(number: T) -> Option<T> {
    (number != T::default()).then_some(number)
}

/// Reads the options in a text, which win over those in fields.
fn with_text(mut options: Options, text: Option<&str>) -> Result<Options, Failure> {
    options.read(text.unwrap_or_default()).map_err(vfscale::Error::from)?;
    Ok(options)
}

/// Returns the options of a file system in memory, but for its limits.
pub(crate) fn memory_options(
    from: &vfscale_memory_options,
    text: Option<&str>,
) -> Result<Options, Failure> {
    if from.flags != 0 {
        return Err(Failure::new(Errno::INVAL, "unknown flags"));
    }
    let mut options = Options::default();
    options.size = set(from.size).map(Size::Bytes);
    options.inodes = set(from.inodes);
    options.memory_files = set(from.memory_files).map(Size::Bytes);
    options.mode = set(from.mode);
    (options.uid, options.gid) = (Some(from.uid), Some(from.gid));
    with_text(options, text)
}

/// The flags of a volume, each with its option.
const VOLUME_FLAGS: [(u32, &str); 7] = [
    (VFSCALE_VOLUME_READ_ONLY, "ro"),
    (VFSCALE_VOLUME_NO_RECOVERY, "norecovery"),
    (VFSCALE_VOLUME_REMOUNT_RO, "errors=remount-ro"),
    (VFSCALE_VOLUME_NO_AUTO_DA_ALLOC, "noauto_da_alloc"),
    (VFSCALE_VOLUME_DISCARD, "discard"),
    (VFSCALE_VOLUME_NO_DISCARD, "nodiscard"),
    (VFSCALE_VOLUME_TAKE_OVER, "take_over"),
];

fn with_flags(options: Options, flags: u32) -> Result<Options, Failure> {
    const BOTH: u32 = VFSCALE_VOLUME_DISCARD | VFSCALE_VOLUME_NO_DISCARD;
    if flags & BOTH == BOTH {
        let text = "the flags both ask for discards and forbid them";
        return Err(Failure::new(Errno::INVAL, text));
    }
    if VOLUME_FLAGS.iter().fold(flags, |left, (flag, _)| left & !flag) != 0 {
        return Err(Failure::new(Errno::INVAL, "unknown flags"));
    }
    let set = VOLUME_FLAGS.iter().filter(|(flag, _)| flags & flag != 0);
    set.map(|(_, text)| *text).try_fold(options, |options, text| with_text(options, Some(text)))
}

/// Applies the options of a volume; `options` has those whose fields are pointers.
fn apply(
    builder: VolumeBuilder,
    from: &vfscale_volume_options,
    options: Options,
    text: Option<&str>,
) -> Result<VolumeBuilder, Failure> {
    if from.reserved != 0 {
        return Err(Failure::new(Errno::INVAL, "the reserved field is not 0"));
    }
    let mut options = with_flags(options, from.flags)?;
    options.create = set(from.create_size);
    options.log_size = set(from.log_size);
    options.cache_size = set(from.cache_size).map(Size::Bytes);
    options.mode = set(from.mode);
    (options.uid, options.gid) = (Some(from.uid), Some(from.gid));
    options.patience = set(from.patience_s).map(|time| Duration::from_secs(time.into()));
    options.sync_interval = match from.sync_interval_ms {
        0 => None,
        -1 => Some(None),
        time => {
            let time = u64::try_from(time).map_err(|_| {
                Failure::new(Errno::INVAL, "the time between syncs is negative, and not -1")
            })?;
            Some(Some(Duration::from_millis(time)))
        }
    };
    let options = with_text(options, text)?;
    let builder = options.volume(builder).map_err(vfscale::Error::from)?;
    let builder = builder.limits(limits(&from.limits, Limits::default())?);
    if from.cache_budget.is_null() {
        return Ok(builder);
    }
    let budget = budget(from.cache_budget)?;
    Ok(builder.cache_budget(&budget))
}

/// Applies the options of a caller to a volume.
///
/// # Safety
/// The promise of [`args::options`](crate::args::options), and for each pointer in them.
pub(crate) unsafe fn configured(
    builder: VolumeBuilder,
    options: *const vfscale_volume_options,
    options_size: usize,
) -> Result<VolumeBuilder, Failure> {
    let from = given!(options(options, options_size))?;
    let mut options = Options::default();
    options.log_device = given!(optional_path(from.log_path)).map(Path::to_owned);
    options.ceph_conf = given!(optional_path(from.ceph_conf)).map(Path::to_owned);
    options.ceph_id = given!(optional_text(from.ceph_id, "the user of Ceph"))?;
    let text = given!(optional_text(from.text, "the options"))?;
    apply(builder, &from, options, text.as_deref())
}

/// Opens a volume, and stores the handle of its tree.
pub(crate) fn open(builder: VolumeBuilder, fs: Place<'_, *mut vfscale_fs>) -> Result<(), Failure> {
    let volume = builder.open().map_err(vfscale::Error::from)?;
    fs.set(insert(Tree::Volume(volume))?);
    Ok(())
}

/// Opens the volume in the image file or on the device at `path`, recovers it if it was not closed,
/// and stores the handle of its tree in `fs`. `options` are `options_size` bytes, sizeof *options;
/// NULL means the default of each. Blocks for the I/O. A path that begins with `rbd:` names an
/// image of Ceph RBD, rbd:POOL[/NAMESPACE]/IMAGE[@SNAP], which needs the library librbd at run
/// time.
///
/// Errors: ENOENT if there is no image and no create_size; EBUSY if it is in use; EIO and the like
/// of the device; EUCLEAN if it is damaged. vfscale_error names the cause and the remedy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fs_volume(
    path: *const c_char,
    options: *const vfscale_volume_options,
    options_size: usize,
    fs: *mut *mut vfscale_fs,
) -> c_int {
    border("vfscale_fs_volume", || {
        let (path, fs) = (given!(path(path))?, given!(place(fs))?);
        // SAFETY: the caller has promised what the header says about its pointers.
        let builder = unsafe { configured(vfscale::volume(path), options, options_size) }?;
        open(builder, fs)
    })
}

/// Returns 1 if the image of the volume was created when it was opened, and 0 otherwise and for a
/// tree in memory.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fs_is_new(fs: *mut vfscale_fs) -> c_int {
    border("vfscale_fs_is_new", || {
        tree(fs)?.with(|tree| Ok(matches!(tree, Tree::Volume(volume) if volume.is_new())))
    })
}

/// Makes all changes so far durable. Blocks for the I/O. Does nothing in memory.
///
/// Errors: EIO and the like if not all changes became durable.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fs_sync(fs: *mut vfscale_fs) -> c_int {
    border("vfscale_fs_sync", || {
        tree(fs)?.with(|tree| match tree {
            Tree::Memory(_) => Ok(()),
            Tree::Volume(volume) => Ok(volume.sync().map_err(vfscale::Error::from)?),
        })
    })
}

/// Asks the devices of a volume whether this process still has them. If another machine has taken
/// one over, shuts the volume down at once: nothing is written any more, and calls fail with EIO.
/// Returns 0 for a tree in memory and for an image in a file, and also if that can't be found out
/// at present. Blocks for the I/O.
///
/// Errors: ESHUTDOWN if the volume was taken over.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fs_prove(fs: *mut vfscale_fs) -> c_int {
    border("vfscale_fs_prove", || {
        let fence = tree(fs)?.with(|tree| match tree {
            Tree::Memory(_) => Ok(None),
            Tree::Volume(volume) => Ok(Some(volume.fence())),
        })?;
        let lost = |error: vfscale::block::Error| Failure::new(Errno::SHUTDOWN, error.to_string());
        fence.map_or(Ok(()), |fence| fence.check().map_err(lost))
    })
}

/// Stores in `usage` how many tasks and open files a tree has, and how much of its limits is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfscale_fs_usage(fs: *mut vfscale_fs, usage: *mut vfscale_usage) -> c_int {
    border("vfscale_fs_usage", || {
        let usage = given!(place(usage))?;
        let both = |tree: &Tree| Ok((tree.vfs().users(), tree.vfs().usage()));
        let (users, used) = tree(fs)?.with(both)?;
        usage.set(vfscale_usage {
            tasks: users.tasks as u64,
            open_files: users.open_files as u64,
            pipe_pages: used.pipe_pages,
            socket_bytes: used.socket_bytes,
            locks: used.locks,
            reserved: [0; 3],
        });
        Ok(())
    })
}

/// Makes all changes durable, ends a tree, and frees its handle; its image can be opened again.
/// Blocks for the I/O.
///
/// Errors: EBUSY if it has tasks or open files: it stays as it is, and can be closed again. EIO and
/// the like if not all changes became durable: the handle is freed, unless the tree is in use too.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fs_close(fs: *mut vfscale_fs) -> c_int {
    border("vfscale_fs_close", || {
        let used = tree(fs)?;
        let taken = used.0.lock().take();
        let (back, closed) = match taken {
            None => return Err(Failure::new(Errno::BADF, "another call is closing the tree")),
            Some(Tree::Memory(vfs)) => match vfs.end() {
                Ok(()) => (None, Ok(())),
                Err(vfs) => {
                    let users = vfs.users();
                    let text = format!("{} tasks, {} open files", users.tasks, users.open_files);
                    let busy = Failure::new(Errno::BUSY, format!("it is in use: {text}"));
                    (Some(Tree::Memory(vfs)), Err(busy))
                }
            },
            Some(Tree::Volume(volume)) => match volume.close() {
                Ok(()) => (None, Ok(())),
                Err(error) => {
                    let failure = Failure::new(error.error().errno(), error.to_string());
                    (error.into_volume().map(Tree::Volume), Err(failure))
                }
            },
        };
        if back.is_some() {
            *used.0.lock() = back;
        } else {
            TREES.remove(fs as u64)?;
        }
        closed
    })
}

/// Drops a volume without a sync, and frees its handle, as a crash of this process would: the next
/// opening recovers all synced changes, and perhaps some later ones. If it has tasks, it stays open
/// until the last of them is freed. A tree in memory ends with its last task too.
#[unsafe(no_mangle)]
pub extern "C" fn vfscale_fs_abandon(fs: *mut vfscale_fs) -> c_int {
    border("vfscale_fs_abandon", || {
        let used = tree(fs)?;
        let Some(tree) = used.0.lock().take() else {
            return Err(Failure::new(Errno::BADF, "another call is closing the tree"));
        };
        if let Tree::Volume(volume) = tree {
            volume.abandon();
        }
        TREES.remove(fs as u64)
    })
}

#[cfg(test)]
mod tests;
