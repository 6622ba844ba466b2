//! The commands for volumes: mkfs, fsck, dump, tune and copy-out of an unmounted one, and grow,
//! trim and stat of any; and those for branches.
//!
//! | module | contents |
//! | --- | --- |
//! | `fsck` | `fsck`, with the exit status of `fsck(8)` |
//! | `show` | `dump` and `stat`, in words or as JSON |
//! | `mount_stat` | `stat` of a mount, in words, as JSON or for Prometheus |
//! | `grow` | `grow`, also of a mounted volume |
//! | `trim` | `trim`, also of a mounted volume |
//! | `reached` | the volume that `grow` and `trim` change, mounted or not |
//! | `apply` | `apply`: a layer or a patch |
//! | `branch` | `branch`, also of a mounted volume |
//! | `travel` | `branch send` and `branch receive` |
//! | `rollback` | `branch rollback`, and what goes by it |
//! | `checkpoint` | `checkpoint` |
//! | `log` | `log` |
//! | `diff` | `diff` and `adopt` |
//! | `merge` | `merge` and `rebase` |
//! | `view` | `view` |
//! | `make` | `mkfs` and `tune` |
//! | `copy_out` | `copy-out`, for a volume that will not mount |

use std::path::Path;
use std::sync::Arc;

use vfscale::Pool;
use vfscale::block::Device;
use vfscale_diskfs::{OpenError, copies};

use crate::device::open;
use crate::error::Failure;

pub(crate) mod apply;
pub(crate) mod branch;
pub(crate) mod checkpoint;
pub(crate) mod copy_out;
pub(crate) mod diff;
pub(crate) mod fsck;
pub(crate) mod grow;
pub(crate) mod log;
pub(crate) mod make;
pub(crate) mod merge;
mod mount_stat;
pub(crate) mod reached;
mod rollback;
pub(crate) mod show;
pub(crate) mod travel;
pub(crate) mod trim;
pub(crate) mod view;

/// Opens the device of a volume: that of an image without branches, or of a branch, `main` if none
/// is named, with the pool, which the device holds open.
fn open_branch(
    path: &Path,
    read_only: bool,
    branch: Option<&str>,
) -> Result<(Arc<dyn Device>, Option<Pool>), Failure> {
    let device = open(path, read_only)?;
    let is_pool = matches!(copies::read(&*device), Err(OpenError::Pool { .. }));
    if !is_pool && branch.is_none() {
        return Ok((device, None));
    }
    drop(device);
    let pool = crate::device::pool(path).read_only(read_only).open()?;
    let device = pool.device(branch.unwrap_or(vfscale::pool::MAIN))?;
    Ok((device, Some(pool)))
}

/// Opens the device of an external log, if one is named.
fn open_log(path: Option<&Path>, read_only: bool) -> Result<Option<Arc<dyn Device>>, Failure> {
    let open = |path| open(path, read_only).map(|device| device as Arc<dyn Device>);
    path.map(open).transpose()
}
