//! The dump of the sample.

use super::log::change_header;
use super::sample::{BELOW, GROUP, MANY, Sample, TREE_DIR};
use crate::format::group::HEADER_AT;
use crate::format::inode::ROOT_INO;
use crate::tools::dump::{Dump, DumpError, What};

fn dump(sample: &Sample) -> Dump {
    Dump::open(sample.device.clone(), None, false).unwrap()
}

#[test]
fn inodes_are_found_by_their_paths() {
    let dump = dump(&Sample::new());
    for (path, ino) in [
        ("/", ROOT_INO),
        ("", ROOT_INO),
        ("/many", MANY),
        ("tree//below/", BELOW),
        ("/tree/below/..", TREE_DIR),
        ("/tree/./few/../../many", 0),
        ("/..", ROOT_INO),
    ] {
        match dump.find(path.as_bytes()) {
            Ok(found) => assert_eq!(found, ino, "{path}"),
            // A file contains no names.
            Err(DumpError::NoSuch(why)) => {
                assert!(ino == 0 && why.contains("no directory"), "{why}")
            }
            Err(error) => panic!("{path}: {error}"),
        }
    }
    let error = dump.find(b"/tree/none").unwrap_err().to_string();
    assert_eq!(error, format!("none: there is no such name in directory {TREE_DIR}"));
}

#[test]
fn a_log_is_shown_record_by_record() {
    let sample = Sample::new().copied();
    change_header(&sample, |header| header.free -= 1);
    let log = serde_json::to_value(dump(&sample).show(What::Log).unwrap()).unwrap();
    let kinds: Vec<_> = log["records"].as_array().unwrap().iter().map(|r| &r["kind"]).collect();
    assert!(kinds.iter().any(|kind| *kind == "data"), "{kinds:?}");
    let operation = &log["checkpoints"][0]["operations"][0];
    assert_eq!((&operation["kind"], &operation["magic"]), (&"block".into(), &"vfsG".into()));
    assert_eq!(operation["block"], GROUP + HEADER_AT);
}
