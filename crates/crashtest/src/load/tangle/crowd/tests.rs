use super::*;

/// Returns a tree with a file of two names and data of the crowd.
fn tree() -> (Tree, u64) {
    let vfs = vfscale::memory().size(1 << 20).build().unwrap();
    let task = vfs.task();
    task.create_dir("/d").unwrap();
    task.write("/d/f", [vec![0; 4096], pattern::bytes(TAG, 4096, 64)].concat()).unwrap();
    task.hard_link("/d/f", "/g").unwrap();
    let tree = Tree::read(&task).unwrap();
    let file = tree.find("/g").unwrap();
    (tree, file)
}

#[test]
fn a_whole_tree_is_whole() {
    assert_eq!(whole(&tree().0), Ok(()));
}

#[test]
fn wrong_links_are_found() {
    let (mut tree, file) = tree();
    tree.nodes.get_mut(&file).unwrap().nlink = 3;
    assert_eq!(whole(&tree), Err("/g: 3 links instead of 2".into()));
    tree.nodes.get_mut(&file).unwrap().nlink = 2;
    let root = tree.root;
    tree.nodes.get_mut(&root).unwrap().nlink = 2;
    assert_eq!(whole(&tree), Err(": 2 links instead of 3".into()));
}

#[test]
fn bytes_of_others_are_found() {
    let (mut tree, file) = tree();
    let wrong = [pattern::bytes(TAG, 0, 16), pattern::bytes(TAG, 4096, 16)].concat();
    tree.nodes.get_mut(&file).unwrap().body = Body::File(wrong.into());
    let why = "/g: at 16: bytes of write 134217728 at 4096";
    assert_eq!(whole(&tree), Err(why.into()));
}
