//! Tests of reading and comparing trees.

use vfscale::Mode;

use super::*;

fn tree(change: impl FnOnce(&Task)) -> Tree {
    let task = vfscale::memory().size(16 << 20).build().unwrap().task();
    task.create_dir_all("/a/b").unwrap();
    task.write("/a/file", "data").unwrap();
    task.hard_link("/a/file", "/a/b/link").unwrap();
    task.symlink("file", "/a/symlink").unwrap();
    change(&task);
    Tree::read(&task).unwrap()
}

#[test]
fn everything_is_read() {
    let tree = tree(|_| {});
    assert_eq!(tree.nodes.len(), 5);
    let file = tree.find("/a/file").unwrap();
    assert_eq!(tree.find("/a/b/link"), Some(file));
    assert_eq!(tree.find("/a/symlink/x"), None);
    assert_eq!(tree.nodes[&file].data(), Some(&b"data"[..]));
    assert_eq!(tree.nodes[&file].names.len(), 2);
    assert_eq!(tree.path_of(tree.find("/a/b").unwrap()), "/a/b");
}

/// Inode numbers differ and data are ignored; every other difference is detected.
#[test]
fn shapes_are_compared() {
    let plain = tree(|_| {});
    let same = tree(|task| {
        task.write("/a/gone", "").unwrap();
        task.remove_file("/a/gone").unwrap();
        task.write("/a/file", "other").unwrap();
    });
    assert_eq!(plain.match_shape(&same).unwrap().len(), 5);
    let changes: [fn(&Task); 6] = [
        |task| task.write("/new", "").unwrap(),
        |task| task.remove_file("/a/b/link").unwrap(),
        |task| {
            task.remove_file("/a/b/link").unwrap();
            task.write("/a/b/link", "data").unwrap();
        },
        |task| {
            let mode = Mode::from(0o600);
            task.set_permissions("/a", mode).unwrap();
        },
        |task| {
            task.remove_file("/a/symlink").unwrap();
            task.symlink("other", "/a/symlink").unwrap();
        },
        |task| {
            let how = vfscale::posix::XattrFlags::empty();
            task.posix().setxattrat(At::Cwd, "/a", "user.a", b"v", how, AtFlags::empty()).unwrap();
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let other = tree(change);
        assert!(plain.match_shape(&other).is_err(), "change {number}");
        assert!(other.match_shape(&plain).is_err(), "change {number}");
    }
}

/// After an exchange, two files have their old names and attributes, but other links.
#[test]
fn links_tell_files_apart() {
    let linked = |to: &str| {
        tree(|task| {
            task.write("/a/other", "").unwrap();
            task.hard_link(to, "/x").unwrap();
        })
    };
    assert!(linked("/a/other").match_shape(&linked("/a/symlink")).is_err());
    assert!(linked("/a/other").match_shape(&linked("/a/other")).is_ok());
}

/// Damage can give any file any size.
#[test]
fn a_file_that_is_larger_than_memory_is_read() {
    let trees = [b"x", b"y"].map(|byte| {
        let task = vfscale::memory().build().unwrap().task();
        let file = task.create("/file").unwrap();
        file.set_len(1 << 50).unwrap();
        file.pwrite(byte, 1 << 40).unwrap();
        file.pwrite(&[0], 1 << 41).unwrap();
        Tree::read(&task).unwrap()
    });
    let data = trees.each_ref().map(|tree| {
        let files: Vec<_> = tree.nodes.values().filter_map(Node::data).collect();
        assert_eq!((files.len(), files[0].len()), (1, 8 + 4096));
        files[0].to_vec()
    });
    assert_eq!(data[0][..8], (1_u64 << 40).to_le_bytes());
    assert_ne!(data[0], data[1]);
}
