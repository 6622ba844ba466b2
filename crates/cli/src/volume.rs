//! The commands for volumes: mkfs, fsck, dump, tune and copy-out of an unmounted one, and grow,
//! trim and stat of any.
//!
//! | module | contents |
//! | --- | --- |
//! | `fsck` | `fsck`, with the exit status of `fsck(8)` |
//! | `show` | `dump` and `stat`, in words or as JSON |
//! | `mount_stat` | `stat` of a mount, in words, as JSON or for Prometheus |
//! | `grow` | `grow`, also of a mounted volume |
//! | `trim` | `trim`, also of a mounted volume |
//! | `reached` | the volume that `grow` and `trim` change, mounted or not |
//! | `make` | `mkfs` and `tune` |
//! | `copy_out` | `copy-out`, for a volume that will not mount |

use std::path::Path;
use std::sync::Arc;

use vfscale::block::Device;

use crate::device::open;
use crate::error::Failure;

pub(crate) mod copy_out;
pub(crate) mod fsck;
pub(crate) mod grow;
pub(crate) mod make;
mod mount_stat;
mod reached;
pub(crate) mod show;
pub(crate) mod trim;

/// Opens the device of an external log, if one is named.
fn open_log(path: Option<&Path>, read_only: bool) -> Result<Option<Arc<dyn Device>>, Failure> {
    let open = |path| open(path, read_only).map(|device| device as Arc<dyn Device>);
    path.map(open).transpose()
}
