//! The errors of opening images.

use std::sync::Arc;

use super::name::Name;
use crate::{Error, Operation, OsError};

/// Returns the error of opening an image.
pub(super) fn error(name: &Arc<str>, source: OsError) -> Error {
    let (device, operation) = (Arc::clone(name), Operation::Open);
    Error::Io { device, operation, offset: 0, length: 0, source }
}

/// Returns the error of opening an image by its name.
pub(super) fn failed(name: &Name, code: OsError) -> Error {
    if code.code() == libc::EPERM || code.code() == libc::EACCES {
        let why = format!(
            "the Ceph user may not open it: it needs the capabilities `mon 'profile rbd' osd \
             'profile rbd pool={}'`",
            name.pool()
        );
        return refused(name, why);
    }
    error(&name.to_string().into(), code)
}

/// Returns the error of an opening that the cluster, or this program, refuses.
pub(super) fn refused(name: &Name, why: String) -> Error {
    Error::Refused { device: name.to_string().into(), why: why.into() }
}

/// Returns the error of an opening to which the cluster has not answered; a later one may succeed.
pub(super) fn unreachable(name: &Name) -> Error {
    let why = "no monitor of the Ceph cluster answers";
    Error::Unreachable { device: name.to_string().into(), why }
}
