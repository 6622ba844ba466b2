//! Where a Ceph cluster is, and as whom to use it.

use std::path::PathBuf;

/// A user of a Ceph cluster, and where its configuration is. By default, what Ceph's own programs
/// use: `CEPH_CONF` and `CEPH_ARGS`, `/etc/ceph/ceph.conf`, and the user `admin`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceph {
    /// The configuration file.
    pub conf: Option<PathBuf>,
    /// The name of the user, without `client.`.
    pub id: Option<String>,
}
