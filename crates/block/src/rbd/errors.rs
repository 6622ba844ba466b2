//! The errors of opening images.

use std::sync::Arc;

use super::image::Code;
use super::name::Name;
use crate::{Error, Operation, OsError};

/// Returns the error of opening an image.
pub(super) fn error(name: &Arc<str>, source: OsError) -> Error {
    let (device, operation) = (Arc::clone(name), Operation::Open);
    Error::Io { device, operation, offset: 0, length: 0, source }
}

/// Returns the error of opening an image by its name.
pub(super) fn failed(name: &Name, code: Code) -> Error {
    let device: Arc<str> = name.to_string().into();
    if code.code() == libc::EPERM || code.code() == libc::EACCES {
        let why = format!(
            "the Ceph user may not open it: it needs the capabilities `mon 'profile rbd' osd \
             'profile rbd pool={}'`",
            name.pool()
        );
        return Error::Refused { device, why: why.into() };
    }
    error(&device, code)
}
