//! Devices by the names that the command line gives them: paths, and images of Ceph RBD.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::Args;
use vfscale::PoolError;
use vfscale::block::{Ceph, DeviceOptions, Guarded};
use vfscale::pool::PoolBuilder;

use crate::error::Failure;
use crate::options::MountOptions;

/// Options for images of Ceph RBD, which every command and every helper has. Only the help of
/// `vfscale` itself shows them: see [`CEPH_HELP`].
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CephArgs {
    /// The configuration file of Ceph, for images named `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`
    /// (default: CEPH_CONF, or /etc/ceph/ceph.conf)
    #[arg(long, value_name = "FILE", global = true, hide = true)]
    pub(crate) ceph_conf: Option<PathBuf>,

    /// The user of Ceph, without `client.` (default: admin)
    #[arg(long, value_name = "USER", global = true, hide = true)]
    pub(crate) id: Option<String>,
}

/// The paragraph on these options in the help.
pub(crate) const CEPH_HELP: &str = "An image can be one of Ceph RBD, named \
    `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`. Every command then takes --ceph-conf FILE, the \
    configuration of the cluster (default: CEPH_CONF, or /etc/ceph/ceph.conf), and --id USER, the \
    user without `client.` (default: admin).";

/// The options of this process. Set once, before anything is opened.
static CEPH: OnceLock<Ceph> = OnceLock::new();

/// Sets the cluster and the user of all images that this process opens: those of `args`, or else
/// those of the options after `-o`.
pub(crate) fn use_ceph(args: &CephArgs, options: Option<MountOptions>) {
    let Ceph { conf, id } = options.map(|options| options.fs.ceph()).unwrap_or_default();
    let ceph = Ceph { conf: args.ceph_conf.clone().or(conf), id: args.id.clone().or(id) };
    CEPH.get_or_init(|| ceph);
}

/// Returns the cluster and the user of images.
pub(crate) fn ceph() -> Ceph {
    CEPH.get().cloned().unwrap_or_default()
}

/// Returns the options for opening a device by its name.
pub(crate) fn options(read_only: bool) -> DeviceOptions {
    DeviceOptions::new().ceph(ceph()).read_only(read_only)
}

/// Opens a device: exclusively, or shared with other readers if `read_only`.
pub(crate) fn open(name: &Path, read_only: bool) -> Result<Arc<dyn Guarded>, Failure> {
    options(read_only).open(name).map_err(|error| match error.is_missing() {
        true => Failure::Pool(PoolError::Missing(name.to_owned())),
        false => error.into(),
    })
}

/// Returns the options for opening the pool of branches on a device.
pub(crate) fn pool(name: &Path) -> PoolBuilder {
    vfscale::pool(name).ceph(ceph())
}
