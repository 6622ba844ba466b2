//! The commands for a volume: mkfs, fsck, dump, stat, tune and copy-out, while nobody has mounted it; and
//! grow.
//!
//! | module | does |
//! | --- | --- |
//! | `fsck` | checks and repairs, with the exit status of `fsck(8)` |
//! | `show` | `dump` and `stat`, in words or as JSON |
//! | `grow` | `grow`, also of one that is mounted |
//! | `make` | `mkfs` and `tune` |
//! | `copy_out` | `copy-out`, of what can be read of a volume that will not mount |

use std::path::Path;
use std::sync::Arc;

use vfscale::block::{Device, FileDevice, FileOptions};

use crate::error::Failure;

pub(crate) mod copy_out;
pub(crate) mod fsck;
pub(crate) mod grow;
pub(crate) mod make;
pub(crate) mod show;

/// Opens an image file or a block device, alone or together with others that only read.
fn open(path: &Path, read_only: bool) -> Result<Arc<FileDevice>, Failure> {
    Ok(Arc::new(FileOptions::new().read_only(read_only).open(path)?))
}

/// The device of a log outside of the volume, if one is named.
fn open_log(path: Option<&Path>, read_only: bool) -> Result<Option<Arc<dyn Device>>, Failure> {
    let open = |path| open(path, read_only).map(|device| device as Arc<dyn Device>);
    path.map(open).transpose()
}
