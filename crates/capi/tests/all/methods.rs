//! Every call and every option of a volume has a counterpart in C.
//!
//! A method has one if a method of its name is called anywhere in the sources of this crate, or by
//! the table of options, whose names `text` takes. So a new method is seen if its name is new.

use std::fs;
use std::path::Path;

use crate::header::here;

/// Methods without a counterpart, other than what `docs/C.md` leaves out: C programs have
/// descriptors for open files, and tokens in each call that may wait.
const BY_OTHERS: &[&str] =
    &["install", "memfd_create", "open_fd", "openat2", "pipe2", "socketpair"];

/// Returns the text of every source of Rust below a folder.
fn sources(folder: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// Returns the public methods of a type in a source.
fn methods(text: &str, of: &str) -> Vec<String> {
    let mut found = Vec::new();
    for block in text.split(&format!("\nimpl {of} {{\n")).skip(1) {
        let block = block.split("\n}\n").next().unwrap();
        let names = block.lines().filter_map(|line| line.strip_prefix("    pub fn "));
        found.extend(names.map(|rest| rest.split(['(', '<']).next().unwrap().to_owned()));
    }
    found
}

/// Returns the methods of a type in the sources below a folder that no source of this crate calls
/// nor `table`, and that the manual does not name.
fn missing(folder: &str, of: &str, table: Option<&str>) -> Vec<String> {
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    sources(&here(folder), &mut theirs);
    sources(&here("src"), &mut ours);
    ours.extend(table.map(|table| fs::read_to_string(here(table)).unwrap()));
    let manual = fs::read_to_string(here("../../docs/C.md")).unwrap();
    let (_, left_out) = manual.split_once("With these exceptions:").unwrap();
    let words: Vec<&str> = left_out.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let all: Vec<String> = theirs.iter().flat_map(|text| methods(text, of)).collect();
    assert!(all.len() > 15, "{of}: {all:?}");
    let is_called = |name: &str| ours.iter().any(|text| text.contains(&format!(".{name}(")));
    let is_missing = |name: &&String| !is_called(name) && !words.contains(&name.as_str());
    let missing = all.iter().filter(is_missing).filter(|name| !BY_OTHERS.contains(&name.as_str()));
    missing.cloned().collect()
}

#[test]
fn every_call_and_every_option_has_a_counterpart() {
    assert_eq!(missing("../vfs/src/syscalls", "Calls<'_>", None), [""; 0]);
    // A device of the program's own, and the settings of scaling, are exceptions of the manual;
    // the heat of directories is for tests.
    let of_volumes = missing("../vfscale/src", "VolumeBuilder", Some("../vfscale/src/options.rs"));
    assert_eq!(of_volumes, ["dir_heat", "log_device", "scaling"]);
}

#[test]
fn methods_are_found_in_a_source() {
    let text = "\nimpl Calls<'_> {\n    pub fn one(&self) {\n    }\n\n    fn two() {}\n}\n\n\
                impl Calls<'_> {\n    pub fn three<T>(&self) {}\n}\n";
    assert_eq!(methods(text, "Calls<'_>"), ["one", "three"]);
}
