use super::*;

#[test]
fn the_default_disables_no_patch() {
    let machine = Scaling::default();
    assert_eq!(machine, Scaling::with_slots(cpu::slots() as usize));
    for patch in PATCHES {
        let before = Scaling::before(patch.name()).unwrap();
        assert_ne!(before, machine, "{} does nothing", patch.name());
        assert_eq!(before.and_before(patch.name()), Ok(before), "{} twice", patch.name());
    }
    assert_eq!(Scaling::with_slots(0).slots(), 1);
}

fn names() -> Vec<&'static str> {
    PATCHES.iter().map(Patch::name).collect()
}

#[test]
fn settings_combine_in_any_order() {
    let there = names().iter().try_fold(Scaling::default(), |s, name| s.and_before(name));
    let back = names().iter().rev().try_fold(Scaling::default(), |s, name| s.and_before(name));
    assert_eq!(there, Ok(Scaling::kernel_2_6()));
    assert_eq!(there, back);
}

#[test]
fn names_are_told_apart() {
    let error = Scaling::before("lockrefs").unwrap_err();
    assert_eq!(error, ScalingError::Unknown("lockrefs".into()));
    let text = error.to_string();
    assert!(names().iter().all(|name| text.contains(name)), "{text}");
}

#[test]
fn each_patch_has_a_line() {
    for patch in PATCHES {
        let line = patch.to_string();
        assert!(line.starts_with(patch.name()) && line.contains(patch.summary()));
        let document = patch.source().strip_prefix("beyond ").unwrap_or(patch.source());
        assert!(["Long 2013", "Kara 2014", "Chinner 2020", "Piggin 2009"].contains(&document));
        assert!(line.len() <= 100 && !line.contains('\n'), "{line}");
    }
}

#[test]
fn patches_of_volumes_are_told_apart() {
    let of_volumes: Vec<_> =
        PATCHES.iter().filter(|p| p.is_of_volumes()).map(Patch::name).collect();
    assert_eq!(
        of_volumes,
        [
            "read-mostly",
            "active-trans",
            "cil-counters",
            "cil-lists",
            "busy-extents",
            "orphan",
            "dirty-list",
            "cil-context",
            "log-space"
        ]
    );
}

/// A patch of a document can be had as it was: without what goes beyond it. To disable the patch is
/// to disable that as well.
#[test]
fn each_document_has_its_own_end_state() {
    let default = Scaling::with_slots(8);
    let [spread, retry, rcu] =
        ["lockref-spread", "path-retry", "mount-rcu"].map(|name| default.and_before(name).unwrap());
    assert!(spread.lockref() && spread.lockref_parts() == 1 && default.lockref_parts() == 8);
    assert!(retry.seqrwlock() && !retry.path_retry() && default.path_retry());
    assert_eq!((default.vfsmount_lock_slots(), rcu.vfsmount_lock_slots()), (0, 8));
    for (patch, beyond) in
        [("lockref", "lockref-spread"), ("seqrwlock", "path-retry"), ("brlock", "mount-rcu")]
    {
        let before = default.and_before(patch).unwrap();
        assert_eq!(before.and_before(beyond), Ok(before), "{beyond} without {patch}");
    }
    // These concern structures of their own.
    let before = ["seqrwlock", "brlock", "inode-list"]
        .iter()
        .try_fold(default, |scaling, name| scaling.and_before(name))
        .unwrap();
    assert!(before.dir_moves());
    assert_eq!((before.file_lock_slots(), before.dirty_lists()), (8, 8));
    assert_eq!(before.cil_context_slots() + before.log_space_slots(), 16);
}

/// `docs/SCALING.md` has a row and a section for each patch, in this order, and each section names
/// a test. So does the row of each setting that goes beyond them.
#[test]
fn the_document_has_every_patch() {
    let page = include_str!("../../../../docs/SCALING.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let rows: Vec<_> = rows.map(|(name, _)| name).collect();
    assert_eq!(rows, names());
    for patch in PATCHES.iter().filter(|patch| patch.goes_beyond()) {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` ", patch.name())));
        assert!(row.is_some_and(|row| row.contains(".rs::")), "{}", patch.name());
    }
    let of_documents = PATCHES.iter().filter(|patch| !patch.goes_beyond());
    let names: Vec<_> = of_documents.map(Patch::name).collect();
    let sections = page.split("\n## ").filter_map(|section| section.split_once('\n'));
    let sections: Vec<_> = sections.filter(|(name, _)| names.contains(name)).collect();
    assert_eq!(sections.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    for (name, text) in sections {
        assert!(text.contains("Price:") && text.contains(".rs::"), "{name}");
    }
}
