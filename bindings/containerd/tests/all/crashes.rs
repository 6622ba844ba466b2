//! Ends of the program at any time, and several calls at once.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::client::{Snapshotter, can_mount, within};
use crate::tree;

#[test]
fn containers_go_on_over_ends_of_the_program_and_of_the_machine() {
    if !can_mount() {
        return;
    }
    let mut it = Snapshotter::start();
    it.within(&it.prepare("a", "").unwrap(), tree::make);
    it.commit("one", "a").unwrap();
    let mount = it.prepare("b", "one").unwrap();
    let changed = it.within(&mount, |root| {
        tree::change(root);
        tree::read(root)
    });
    it.end(Signal::KILL);
    it.within(&mount, |root| assert_eq!(tree::read(root), changed));
    it.start_again();
    assert_eq!(it.list(vec![]).unwrap(), ["b", "one"]);
    it.end(Signal::TERM);
    it.unmount_views();
    it.start_again();
    let mount = it.mounts("b").unwrap();
    it.within(&mount, |root| assert_eq!(tree::read(root), changed));
    it.end(Signal::TERM);
    it.unmount_views();
    it.start_again();
    it.commit("two", "b").unwrap();
    let two = it.view("v", "two").unwrap();
    assert_eq!(it.within(&two, tree::read), changed);
}

#[test]
fn a_kill_in_the_midst_of_calls_leaves_each_snapshot_as_before_or_after() {
    if !can_mount() {
        return;
    }
    let mut it = Snapshotter::start();
    it.within(&it.prepare("a", "").unwrap(), tree::make);
    it.commit("one", "a").unwrap();
    let made = it.within(&it.view("v", "one").unwrap(), tree::read);
    for round in 0..6 {
        let (key, name) = (format!("key {round}"), format!("name {round}"));
        let mount = it.prepare(&key, "one").unwrap();
        let changed = it.within(&mount, |root| {
            tree::change(root);
            tree::read(root)
        });
        let pid = it.process();
        let has_ended = AtomicBool::new(false);
        let committed = thread::scope(|scope| {
            let killer = scope.spawn(|| {
                vfscale_harness::pause(std::time::Duration::from_millis(round * 4));
                rustix::process::kill_process(pid, Signal::KILL).unwrap();
                has_ended.store(true, Ordering::SeqCst);
            });
            let committed = it.commit(&name, &key).is_ok();
            killer.join().unwrap();
            committed
        });
        assert!(has_ended.load(Ordering::SeqCst));
        it.end(Signal::KILL);
        it.start_again();
        let names = it.list(vec![]).unwrap();
        let is_there = |it: &str| names.iter().any(|name| name == it);
        assert!(is_there(&name) != is_there(&key), "{names:?}");
        assert!(!committed || is_there(&name), "an acknowledged commit is kept");
        if is_there(&key) {
            it.commit(&name, &key).unwrap();
        }
        let view = it.view(&format!("view {round}"), &name).unwrap();
        assert_eq!(it.within(&view, tree::read), changed);
        let view = it.mounts("v").unwrap();
        assert_eq!(it.within(&view, tree::read), made);
    }
    it.clean_up().unwrap();
    let left = fs::read_dir(it.root().join("active")).unwrap().count();
    assert_eq!(left, 0);
    it.end(Signal::TERM);
    // The empty tree, `main`, `one`, and those of the rounds.
    assert_eq!(it.branches().len(), 9);
}

#[test]
fn many_calls_at_once_disturb_each_other_not() {
    if !can_mount() {
        return;
    }
    let it = Snapshotter::start();
    it.within(&it.prepare("a", "").unwrap(), tree::make);
    it.commit("one", "a").unwrap();
    thread::scope(|scope| {
        for worker in 0..6 {
            let it = &it;
            scope.spawn(move || {
                let mut parent = "one".to_owned();
                for round in 0..4 {
                    let (key, name) = (format!("{worker} {round}"), format!("c{worker} {round}"));
                    let mount = it.prepare(&key, &parent).unwrap();
                    it.within(&mount, |root| {
                        fs::write(root.join(format!("{worker}-{round}")), &key).unwrap();
                    });
                    it.clean_up().unwrap();
                    it.commit(&name, &key).unwrap();
                    parent = name;
                }
                let view = it.view(&format!("v{worker}"), &parent).unwrap();
                let found = it.within(&view, tree::read);
                let own = |name: &&String| name.starts_with(&format!("{worker}-"));
                let others = |name: &&String| name.contains('-') && !name.starts_with("usr");
                assert_eq!(found.keys().filter(own).count(), 4);
                assert_eq!(found.keys().filter(others).count(), 4);
            });
        }
    });
}

#[test]
fn a_branch_stays_as_long_as_a_container_has_its_view() {
    if !can_mount() {
        return;
    }
    let mut it = Snapshotter::start();
    it.within(&it.prepare("a", "").unwrap(), tree::make);
    it.commit("one", "a").unwrap();
    let view = it.view("v", "one").unwrap();
    within(&view, |root| {
        let made = tree::read(root);
        // Containerd ends mounts before it removes snapshots; another user of them may not.
        it.remove("v").unwrap();
        it.remove("one").unwrap();
        it.clean_up().unwrap();
        it.end(Signal::KILL);
        assert!(it.branches().contains(&"containerd 0".to_owned()));
        it.start_again();
        it.within(&it.prepare("b", "").unwrap(), |root| {
            fs::write(root.join("large"), vec![1; 4 << 20]).unwrap();
        });
        it.commit("two", "b").unwrap();
        rustix::fs::sync();
        assert_eq!(tree::read(root), made);
    });
    it.clean_up().unwrap();
    it.end(Signal::TERM);
    assert_eq!(it.branches().len(), 3, "the empty tree, `main` and `two`");
}
