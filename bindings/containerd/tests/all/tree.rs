//! Trees on the host, to compare.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// A file: mode, owner, group, links (1 of a directory), device, and contents, names or
/// target.
type Found = (u32, u32, u32, u64, u64, Vec<u8>);

/// Reads a whole tree.
pub(crate) fn read(root: &Path) -> BTreeMap<String, Found> {
    let (mut found, mut left) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = left.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let contents = if stat.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if stat.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
            Vec::new()
        } else if stat.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        let links = if stat.is_dir() { 1 } else { stat.nlink() };
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let what = (stat.mode(), stat.uid(), stat.gid(), links, stat.rdev(), contents);
        found.insert(name, what);
    }
    found
}

/// Makes files of all kinds.
pub(crate) fn make(root: &Path) {
    fs::create_dir_all(root.join("usr/share/doc")).unwrap();
    fs::write(root.join("usr/tool"), vec![7; 300_000]).unwrap();
    fs::hard_link(root.join("usr/tool"), root.join("usr/same-tool")).unwrap();
    fs::set_permissions(root.join("usr/tool"), PermissionsExt::from_mode(0o4755)).unwrap();
    symlink("tool", root.join("usr/link")).unwrap();
    for number in 0..50 {
        let path = root.join(format!("usr/share/doc/{number}"));
        fs::write(&path, format!("text {number}\n")).unwrap();
    }
    std::os::unix::fs::chown(root.join("usr/share"), Some(12), Some(34)).unwrap();
    fs::set_permissions(root, PermissionsExt::from_mode(0o711)).unwrap();
}

/// Changes what [`make`] has made in most ways.
pub(crate) fn change(root: &Path) {
    fs::write(root.join("usr/same-tool"), "another\n").unwrap();
    fs::remove_file(root.join("usr/link")).unwrap();
    fs::rename(root.join("usr/share/doc"), root.join("usr/papers")).unwrap();
    fs::remove_file(root.join("usr/papers/7")).unwrap();
    fs::write(root.join("usr/papers/8"), "changed\n").unwrap();
    fs::set_permissions(root.join("usr/papers/9"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::create_dir(root.join("usr/share/doc")).unwrap();
    fs::write(root.join("usr/share/doc/new"), "new\n").unwrap();
}
