use super::*;

#[test]
fn a_name_is_an_rbd_image_only_by_its_prefix() {
    assert!(is_rbd("rbd:pool/image"));
    assert!(!is_rbd("./rbd:pool/image"));
    assert!(!is_rbd("disk.vfs"));
}

#[test]
fn a_file_is_opened_created_and_removed_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (path, options) = (folder.path().join("a"), DeviceOptions::new());
    assert!(!options.exists(&path).unwrap());
    let device = options.create(&path, 1 << 20).unwrap();
    assert!(options.exists(&path).unwrap());
    assert!(matches!(options.open(&path), Err(Error::Locked { .. })));
    assert!(matches!(options.check_free(&path), Err(Error::Locked { .. })));
    device.prove().unwrap();
    device.release();
    options.check_free(&path).unwrap();
    options.remove(&path).unwrap();
    assert!(!options.exists(&path).unwrap());
}

#[test]
fn a_file_is_not_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    DeviceOptions::new().create(&path, 1 << 20).unwrap().release();
    let refused = DeviceOptions::new().take_over(true).open(&path).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
}
