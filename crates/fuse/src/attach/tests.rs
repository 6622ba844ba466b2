//! Tests of the error reported for a helper that fails.

use super::*;

#[test]
fn a_device_without_permission_is_reported() {
    let refused = || Some(io::Error::from(io::ErrorKind::PermissionDenied));
    let helper = |message: &str| MountError::Helper { message: message.into() };
    let closed = || helper("fusermount3: failed to open /dev/fuse: Permission denied");
    let error = blame_device(closed(), refused());
    assert!(matches!(error, MountError::Device { .. }), "{error:?}");
    assert!(error.to_string().contains("chmod 0666 /dev/fuse"), "{error}");
    // If the device was not refused, or the helper failed for another reason, its message is
    // reported.
    let others = [
        blame_device(closed(), None),
        blame_device(helper("fusermount3: user has no write access to mountpoint /"), refused()),
    ];
    assert!(others.iter().all(|error| matches!(error, MountError::Helper { .. })), "{others:?}");
}
