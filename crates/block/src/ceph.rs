//! Where a Ceph cluster is, and as whom to use it.

use std::path::PathBuf;

/// A user of a Ceph cluster, and where its configuration is. By default the one that Ceph's own
/// programs find: `CEPH_CONF`, or `/etc/ceph/ceph.conf`, with the options in `CEPH_ARGS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceph {
    /// The configuration file.
    pub conf: Option<PathBuf>,
    /// The name of the user, without `client.`; by default `admin`.
    pub id: Option<String>,
}
