use super::*;

#[test]
fn a_program_that_does_not_mount_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image.vfs");
    for image in [None, Some(image)] {
        let spec = MountSpec { image, options: None };
        let error = Mounted::by(Path::new("/bin/false"), &spec).unwrap_err().to_string();
        assert!(error.contains("`vfscale`") && error.contains("exit status: 1"), "{error}");
    }
}

#[test]
fn an_image_that_was_there_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (there, new) = (dir.path().join("there.vfs"), dir.path().join("new.vfs"));
    std::fs::write(&there, "").unwrap();
    let spec = MountSpec { image: Some(there.clone()), options: None };
    Mounted::by(Path::new("/bin/false"), &spec).unwrap_err();
    assert!(there.exists());
    let mounted = Mounted {
        server: Command::new("true").stdin(Stdio::piped()).spawn().unwrap(),
        dir: PathBuf::new(),
        made: Some(new.clone()),
    };
    std::fs::write(&new, "").unwrap();
    drop(mounted);
    assert!(!new.exists());
}
