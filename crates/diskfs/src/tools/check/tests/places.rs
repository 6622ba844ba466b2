//! Places of names that inodes tell.

use super::damage::{name, no_name};
use super::flags::set_features;
use super::repairs::repair;
use super::sample::{BELOW, FIFO, FREE, ID, LIST, MANY, ORPHAN, SHORT_LINK, Sample, TREE_DIR};
use crate::dir::{Directory, NameHash};
use crate::format::dir::head_of;
use crate::format::inode::ROOT_INO;
use crate::format::superblock::Features;
use crate::inode::core::FileKind;
use crate::tools::check::{Finding, LogState, Problem};

/// Returns the sample with the feature, in which each inode tells where a name of it is.
fn placed() -> Sample {
    let sample = Sample::new();
    set_features(&sample, |features| features.incompat |= Features::PARENTS);
    for dir in [ROOT_INO, TREE_DIR, BELOW] {
        let (mut places, directory) = (Vec::new(), Directory::new(dir, NameHash::of(ID)));
        directory
            .read(&sample.media(), &sample.core(dir), 0, |entry| {
                places.push((entry.ino, head_of(entry.position)));
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        for (ino, head) in places {
            sample.inode(ino, |inode| (inode.parent, inode.name_head) = (dir, head));
        }
    }
    assert_eq!(sample.found(), [0; 0]);
    sample
}

fn problems(sample: &Sample) -> Vec<Problem> {
    sample.check().findings.into_iter().map(|finding| finding.problem).collect()
}

fn head(name: &str) -> u16 {
    NameHash::of(ID).head(name.as_bytes())
}

#[test]
fn a_wrong_place_is_found_and_written() {
    let sample = placed();
    let was: Vec<_> = [FIFO, SHORT_LINK, LIST, BELOW].map(|ino| sample.core(ino)).into();
    for ino in [FIFO, LIST] {
        sample.inode(ino, |inode| inode.parent = BELOW);
    }
    sample.inode(SHORT_LINK, |inode| inode.name_head ^= 1);
    sample.inode(BELOW, |inode| inode.name_head ^= 1 << 15);
    let expected = [LIST, SHORT_LINK, FIFO, BELOW].map(|ino| {
        let core = sample.core(ino);
        Problem::Place { ino, directory: core.parent, head: core.name_head }
    });
    assert_eq!(problems(&sample), expected);
    let report = repair(&sample);
    assert_eq!((report.count, report.left), (4, 0), "{report:#?}");
    let now: Vec<_> = [FIFO, SHORT_LINK, LIST, BELOW].map(|ino| sample.core(ino)).into();
    assert_eq!(now, was);
    assert_eq!((problems(&sample), sample.check().log), (vec![], LogState::Clean));
}

/// A place that is unknown is right, and so is that of any name.
#[test]
fn not_every_name_is_told() {
    let sample = placed();
    sample.inode(LIST, |inode| (inode.parent, inode.name_head) = (0, 0));
    sample.inode(MANY, |inode| (inode.parent, inode.name_head) = (ROOT_INO, head("many")));
    sample.inode(ORPHAN, |inode| (inode.parent, inode.name_head) = (TREE_DIR, 9));
    assert_eq!(problems(&sample), []);
    sample.inode(MANY, |inode| inode.name_head = head("much"));
    let found = sample.check().findings;
    assert_eq!(found.iter().map(Finding::number).collect::<Vec<_>>(), [1037]);
    assert_eq!(repair(&sample).left, 0);
    assert_ne!(sample.core(MANY).parent, 0);
    assert_eq!(problems(&sample), []);
}

/// Names that go leave no place behind, and `/lost+found` gives new ones.
#[test]
fn what_is_found_tells_its_new_place() {
    let sample = placed();
    no_name(&sample, ROOT_INO, b"fifo");
    no_name(&sample, TREE_DIR, b"below");
    sample.inode(TREE_DIR, |inode| inode.nlink -= 1);
    name(&sample, ROOT_INO, b"moved", SHORT_LINK, FileKind::Link);
    no_name(&sample, ROOT_INO, b"short");
    assert_eq!(sample.found(), [1021, 1037]);
    assert_eq!(repair(&sample).left, 0);
    assert_eq!(sample.found(), [0; 0]);
    let place = |ino| (sample.core(ino).parent, sample.core(ino).name_head);
    let found = FREE;
    assert_eq!(place(SHORT_LINK), (ROOT_INO, head("moved")));
    assert_eq!(place(found), (ROOT_INO, head("lost+found")));
    assert_eq!(place(FIFO), (found, head(&format!("#{FIFO}"))));
    assert_eq!(place(BELOW), (found, head(&format!("#{BELOW}"))));
}

/// Older programs take files with a parent for damaged, and may open this volume.
#[test]
fn without_the_feature_no_file_tells_a_place() {
    let sample = placed();
    set_features(&sample, |features| features.incompat &= !Features::PARENTS);
    let found = sample.check().findings;
    assert!(found.len() > 6 && found.iter().all(|finding| finding.number() == 1037));
    assert_eq!(repair(&sample).left, 0);
    assert_eq!((sample.core(FIFO).parent, sample.core(BELOW).parent), (0, TREE_DIR));
    assert_eq!(sample.found(), [0; 0]);
}
