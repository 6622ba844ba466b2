//! Layers and what they have; calls that are refused.

use std::collections::BTreeMap;
use std::fs;

use prost_types::FieldMask;
use tonic::Code;

use crate::api::{Info, Kind, Update};
use crate::client::{COPY_OF, Snapshotter, can_mount, refused};
use crate::tree;

#[test]
fn each_layer_has_the_files_of_those_below_and_its_changes() {
    if !can_mount() {
        return;
    }
    let it = Snapshotter::start();
    let first = it.prepare("a", "").unwrap();
    let made = it.within(&first, |root| {
        tree::make(root);
        tree::read(root)
    });
    it.commit("one", "a").unwrap();
    let second = it.prepare("b", "one").unwrap();
    let changed = it.within(&second, |root| {
        assert_eq!(tree::read(root), made);
        tree::change(root);
        tree::read(root)
    });
    it.commit("two", "b").unwrap();
    let third = it.prepare("c", "two").unwrap();
    assert_eq!(it.within(&third, tree::read), changed);
    let below = it.view("d", "one").unwrap();
    it.within(&below, |root| {
        assert_eq!(tree::read(root), made);
        assert!(fs::write(root.join("new"), "").is_err(), "a view can only be read");
    });
    let usage = it.usage("one").unwrap();
    assert!(usage.size >= 300_000 && usage.inodes == 56, "{usage:?}");
    assert!(it.usage("two").unwrap().size < 100_000);
    assert_eq!(it.usage("c").unwrap().inodes, 0);
    assert_eq!(it.list(vec![]).unwrap(), ["c", "d", "one", "two"]);
    let two = it.stat("two").unwrap();
    assert_eq!((two.kind(), &*two.parent), (Kind::Committed, "one"));
    assert_eq!(it.stat("c").unwrap().kind(), Kind::Active);
    assert_eq!(it.stat("d").unwrap().kind(), Kind::View);
}

#[test]
fn what_a_layer_had_goes_with_it() {
    if !can_mount() {
        return;
    }
    let mut it = Snapshotter::start();
    it.within(&it.prepare("a", "").unwrap(), tree::make);
    it.commit("one", "a").unwrap();
    it.prepare("b", "one").unwrap();
    refused(it.remove("one"), Code::FailedPrecondition);
    it.remove("b").unwrap();
    it.remove("one").unwrap();
    refused(it.stat("one"), Code::NotFound);
    for dir in ["active", "mounts", "views", "records"] {
        let left: Vec<_> = fs::read_dir(it.root().join(dir)).unwrap().flatten().collect();
        // The view of the empty tree stays.
        assert!(left.iter().all(|it| it.file_name() == "empty.erofs"), "{dir}: {left:?}");
    }
    it.end(rustix::process::Signal::TERM);
    assert_eq!(it.branches(), ["containerd empty", "main"]);
}

#[test]
fn calls_that_make_no_sense_are_refused_and_change_nothing() {
    if !can_mount() {
        return;
    }
    let it = Snapshotter::start();
    it.prepare("a", "").unwrap();
    refused(it.prepare("a", ""), Code::AlreadyExists);
    refused(it.view("a", ""), Code::AlreadyExists);
    refused(it.prepare("", ""), Code::InvalidArgument);
    refused(it.prepare("b", "missing"), Code::NotFound);
    refused(it.prepare("b", "a"), Code::FailedPrecondition);
    refused(it.commit("a", "a"), Code::AlreadyExists);
    refused(it.commit("one", "missing"), Code::NotFound);
    it.view("v", "").unwrap();
    refused(it.commit("one", "v"), Code::FailedPrecondition);
    refused(it.commit("v", "a"), Code::AlreadyExists);
    it.commit("one", "a").unwrap();
    refused(it.commit("two", "one"), Code::FailedPrecondition);
    refused(it.mounts("one"), Code::FailedPrecondition);
    refused(it.mounts("missing"), Code::NotFound);
    refused(it.remove("missing"), Code::NotFound);
    refused(it.usage("missing"), Code::NotFound);
    refused(it.list(vec!["kind==active".into()]), Code::Unimplemented);
    let copy = BTreeMap::from([(COPY_OF.to_owned(), "one".to_owned())]);
    refused(it.begin_with("Prepare", ("c", ""), copy), Code::FailedPrecondition);
    assert_eq!(it.list(vec![]).unwrap(), ["one", "v"]);
}

#[test]
fn labels_are_changed_one_by_one_or_all() {
    if !can_mount() {
        return;
    }
    let mut it = Snapshotter::start();
    let labels = |text: &[(&str, &str)]| -> BTreeMap<String, String> {
        text.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    it.begin_with("Prepare", ("a", ""), labels(&[("x", "1"), ("y", "2")])).unwrap();
    let update = |to: &[(&str, &str)], paths: &[&str]| {
        let info = Info { name: "a".into(), labels: labels(to), ..Info::default() };
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let (info, update_mask) = (Some(info), Some(FieldMask { paths }));
        it.update(Update { snapshotter: String::new(), info, update_mask })
    };
    let one = update(&[("x", "3")], &["labels.x"]).unwrap();
    assert_eq!(one.labels, labels(&[("x", "3"), ("y", "2")]));
    assert_eq!(update(&[], &["labels.y"]).unwrap().labels, labels(&[("x", "3")]));
    refused(update(&[], &["parent"]), Code::InvalidArgument);
    assert_eq!(update(&[("z", "4")], &[]).unwrap().labels, labels(&[("z", "4")]));
    it.end(rustix::process::Signal::TERM);
    it.start_again();
    assert_eq!(it.stat("a").unwrap().labels, labels(&[("z", "4")]));
}

#[test]
fn a_copy_begins_with_the_files_of_a_container_and_goes_its_own_way() {
    if !can_mount() {
        return;
    }
    let it = Snapshotter::start();
    it.within(&it.prepare("a", "").unwrap(), tree::make);
    it.commit("one", "a").unwrap();
    let original = it.prepare("default/4/original", "one").unwrap();
    let labels = BTreeMap::from([(COPY_OF.to_owned(), "original".to_owned())]);
    // The container runs.
    let (copied, kept) = it.within(&original, |root| {
        tree::change(root);
        let copied = tree::read(root);
        let copy = it.begin_with("Prepare", ("default/5/copy", "one"), labels).unwrap();
        fs::write(root.join("only-here"), "later\n").unwrap();
        let kept = it.within(&copy, |root| {
            let found = tree::read(root);
            fs::write(root.join("only-there"), "later\n").unwrap();
            found
        });
        (copied, kept)
    });
    assert_eq!(kept, copied);
    it.commit("two", "default/5/copy").unwrap();
    let two = it.within(&it.view("v", "two").unwrap(), tree::read);
    assert!(two.contains_key("only-there") && !two.contains_key("only-here"));
    let original = it.within(&original, tree::read);
    assert!(original.contains_key("only-here") && !original.contains_key("only-there"));
}
