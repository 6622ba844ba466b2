//! Tests of the point in time from which a call is guaranteed.

use vfscale_testkit::calls::pattern;

use super::*;

fn ops() -> Vec<Compound> {
    let write = |offset, tag| Compound::write("/f", offset, 10, tag);
    vec![
        Compound::create("/f"),
        write(0, 1),
        Compound::mkdir("/d"),
        Compound::fsync("/f"),
        Compound::create("/d/x"),
        Compound::create("/d/x"),
        write(10, 2),
        Compound::fsync_dir("/d"),
        Compound::chmod("/f", 0o600),
        Compound::sync(),
        Compound::truncate("/f", 5),
    ]
}

#[test]
fn a_sync_promises_what_came_before_it() {
    let history = History::of(&[], &ops()).unwrap();
    let floors: Vec<usize> = (0..=11).map(|done| history.floor(done)).collect();
    // The last change of the file's own names and attributes is its creation; that of the directory
    // is the new name in it; `sync` covers everything.
    assert_eq!(floors, [0, 0, 0, 0, 1, 1, 1, 1, 5, 5, 10, 10]);
    assert_eq!(history.steps[5].result, Err(Errno::EXIST));
}

#[test]
fn data_is_durable_from_its_sync_on() {
    let history = History::of(&[], &ops()).unwrap();
    let file = history.trees[1].find("/f").unwrap();
    let durable: Vec<usize> = (0..=11).map(|done| history.durable_data(file, done)).collect();
    assert_eq!(durable, [1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 9, 9]);
}

#[test]
fn changes_of_data_are_known() {
    let history = History::of(&[], &ops()).unwrap();
    let file = history.trees[1].find("/f").unwrap();
    let change = |step: usize| history.steps[step].change.clone();
    assert_eq!(change(1), Some((file, Change::Write(0, pattern::bytes(1, 0, 10)))));
    assert_eq!(change(6), Some((file, Change::Write(10, pattern::bytes(2, 10, 10)))));
    assert_eq!(change(10), Some((file, Change::Cut(5))));
    assert_eq!(change(0), None);
}

#[test]
fn a_change_has_a_part_for_each_seam_in_it() {
    let write = |at, text: &str| Change::Write(at, text.into());
    assert_eq!(write(3, "abcd").parts(&[]), [write(3, "abcd")]);
    assert_eq!(
        write(3, "abcd").parts(&[3, 4, 6, 7, 9]),
        [write(3, "a"), write(4, "bc"), write(6, "d")]
    );
    assert_eq!(Change::Cut(5).parts(&[4]), [Change::Cut(5)]);
}

#[test]
fn a_change_leads_from_one_content_to_the_other() {
    let between = |old: &str, new: &str| Change::between(old.as_bytes(), new.as_bytes());
    let write = |at, text: &str| Some(Change::Write(at, text.into()));
    assert_eq!(between("same", "same"), None);
    assert_eq!(between("abcde", "abXYe"), write(2, "XY"));
    assert_eq!(between("abc", "abc\0\0"), write(3, "\0\0"));
    assert_eq!(between("abc", "Xbcd"), write(0, "Xbcd"));
    assert_eq!(between("abc", "ab"), Some(Change::Cut(2)));
}

#[test]
fn a_setup_has_to_succeed() {
    assert!(History::of(&[Compound::rmdir("/none")], &[]).is_err());
}
