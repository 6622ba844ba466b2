//! Tests of the judge: trees and contents that it must accept, and others that it must reject.

use super::*;
use vfscale_testkit::calls::compound::Compound;
use vfscale_testkit::calls::pattern::bytes;

fn old() -> Vec<u8> {
    bytes(1, 0, 2000)
}

/// Joins the parts of a file.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn sectors_are_old_or_new() {
    let mut data = PossibleData::new(&old());
    let new = bytes(2, 0, 1024);
    data.change(&Change::Write(0, new.clone()), false);
    assert_eq!(data.judge(&old()), Ok(()));
    assert_eq!(data.judge(&joined(&[&new, &old()[1024..]])), Ok(()));
    assert_eq!(data.judge(&joined(&[&new[..512], &old()[512..]])), Ok(()));
    let torn = joined(&[&new[..100], &old()[100..]]);
    assert!(data.judge(&torn).is_err(), "a torn sector");
    let zeros = joined(&[&[0; 512], &old()[512..]]);
    assert!(data.judge(&zeros).is_err(), "zeros that were not written");
    let foreign = joined(&[&bytes(9, 0, 512), &old()[512..]]);
    let why = data.judge(&foreign).unwrap_err();
    assert!(why.contains("bytes of write 9 at 0"), "{why}");
}

/// A write-back may come between the parts of a vectored write.
#[test]
fn a_sector_has_whole_parts_of_a_write() {
    let writev = Compound::pwritev("/f", &[100, 924], 0, 2);
    let new = bytes(2, 0, 1024);
    let mut data = PossibleData::new(&old());
    for part in Change::Write(0, new.clone()).parts(&writev.seams()) {
        data.change(&part, false);
    }
    let torn = |at: usize| joined(&[&new[..at], &old()[at..]]);
    assert_eq!(data.judge(&torn(100)), Ok(()));
    assert_eq!(data.judge(&torn(1024)), Ok(()));
    assert!(data.judge(&torn(60)).is_err() && data.judge(&torn(200)).is_err());
    let only_the_second = joined(&[&old()[..100], &new[100..], &old()[1024..]]);
    assert!(data.judge(&only_the_second).is_err());
}

#[test]
fn an_append_arrives_from_its_front() {
    let mut data = PossibleData::new(&old());
    let new = bytes(2, 2000, 3000);
    data.change(&Change::Write(2000, new.clone()), false);
    let whole = joined(&[&old(), &new]);
    assert_eq!(data.judge(&old()), Ok(()));
    assert_eq!(data.judge(&whole), Ok(()));
    assert_eq!(data.judge(&whole[..4096]), Ok(()));
    let zeros = joined(&[&old(), &[0; 3000]]);
    assert!(data.judge(&zeros).is_err(), "a size that precedes its data");
    assert!(data.judge(&old()[..1999]).is_err(), "less than was durable");
    assert!(data.judge(&joined(&[&whole, &[0]])).is_err(), "more than was written");
}

/// Truncated bytes do not reappear when the file grows again.
#[test]
fn a_cut_is_for_good() {
    let mut data = PossibleData::new(&old());
    data.change(&Change::Cut(600), true);
    data.change(&Change::Write(600, vec![0; 1400]), true);
    let zeros = joined(&[&old()[..600], &[0; 1400]]);
    assert_eq!(data.judge(&zeros), Ok(()));
    assert_eq!(data.judge(&old()[..600]), Ok(()));
    assert!(data.judge(&old()).is_err(), "truncated bytes reappeared");
    // If the truncation may not have happened, all old bytes are possible.
    let mut data = PossibleData::new(&old());
    data.change(&Change::Cut(600), false);
    assert_eq!(data.judge(&old()), Ok(()));
    assert!(data.judge(&old()[..600]).is_err());
    let zeroed = joined(&[&old()[..600], &[0; 1400]]);
    assert_eq!(data.judge(&zeroed), Ok(()), "the rest of the block may be zeros");
}

#[test]
fn a_hole_may_be_there_or_not() {
    let mut data = PossibleData::new(&old());
    data.change(&Change::Write(512, vec![0; 512]), false);
    let punched = joined(&[&old()[..512], &[0; 512], &old()[1024..]]);
    assert_eq!(data.judge(&old()), Ok(()));
    assert_eq!(data.judge(&punched), Ok(()));
    assert!(data.judge(&joined(&[&[0; 512], &old()[512..]])).is_err());
}

fn script() -> (Vec<Compound>, Vec<Compound>) {
    let setup =
        vec![Compound::mkdir("/d"), Compound::create("/d/f"), Compound::write("/d/f", 0, 3000, 1)];
    let ops = vec![
        Compound::create("/d/g"),
        Compound::append("/d/f", 1000, 2),
        Compound::link("/d/f", "/h"),
        Compound::fsync_dir("/d"),
        Compound::rename("/d/f", "/d/g", 0),
        Compound::sync(),
        Compound::truncate("/h", 10),
    ];
    (setup, ops)
}

/// The model's tree after a prefix is accepted exactly while that prefix is possible.
#[test]
fn every_prefix_is_right_in_its_time() {
    let (setup, ops) = script();
    let history = History::of(&setup, &ops).unwrap();
    for done in 0..=ops.len() {
        for (prefix, tree) in history.trees.iter().enumerate() {
            let judged = judge(&history, None, done, tree);
            // `sync` changes nothing. Apart from data, neither do `fsync` and appends: the trees
            // before and after look equal.
            let same = |at: usize| tree.match_shape(&history.trees[at]).is_ok();
            let allowed = (history.floor(done)..=(done + 1).min(ops.len())).any(same);
            let is_data = matches!(prefix, 1 | 2 | 6 | 7);
            if !is_data {
                assert_eq!(judged.is_ok(), allowed, "{prefix} after {done}: {judged:?}");
            }
        }
    }
    assert!(
        judge(&history, None, 4, &history.trees[0]).is_err(),
        "fsync of the directory was ignored"
    );
    assert!(judge(&history, None, 6, &history.trees[4]).is_err(), "sync was ignored");
    assert!(judge(&history, None, 6, &history.trees[7]).is_ok());
    assert!(judge(&history, None, 5, &history.trees[7]).is_err(), "truncated too early");
}

/// Reordered changes are no prefix.
#[test]
fn order_is_kept() {
    let (setup, mut ops) = script();
    ops.truncate(3);
    let history = History::of(&setup, &ops).unwrap();
    let swapped = History::of(&setup, &ops[2..]).unwrap();
    let tree = swapped.trees.last().unwrap();
    assert!(
        judge(&history, None, 3, tree).is_err(),
        "the link exists, and the earlier file does not"
    );
}
