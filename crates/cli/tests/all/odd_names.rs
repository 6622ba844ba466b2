//! Names that could steer a terminal, or that are no text.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde_json::Value;

use crate::branches::Image;
use crate::common::vfscale;

const NAMES: [&[u8]; 9] = [
    b"new\nline",
    b"esc\x1b[2J",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\\n",
    b"\\xff",
    b"del\x7f",
    "c1\u{9b}2J".as_bytes(),
    b"a\radded: x",
];

fn image() -> Image {
    let image = Image::new(true);
    for name in NAMES {
        image.write("trial", Path::new("/").join(OsStr::from_bytes(name)), "");
    }
    image
}

/// Asserts that there are as many lines as names, all different, with nothing for a terminal.
fn assert_lines(text: &[u8]) {
    let text = str::from_utf8(text).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{text}");
    assert_eq!(lines.len(), NAMES.len(), "{text}");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), NAMES.len(), "{text}");
}

#[test]
fn a_comparison_shows_and_tells_them_exactly() {
    let image = image();
    assert_lines(&image.call(&["diff"], &["main", "trial"]).stdout);
    assert_json(&image.call(&["diff", "--json"], &["main", "trial"]).stdout);
}

/// Asserts that a list has exactly the names, as paths in the root directory.
fn assert_json(text: &[u8]) {
    let found: Value = serde_json::from_slice(text).unwrap();
    let bytes = |item: &Value| match item["path_bytes"].as_str() {
        None => item["path"].as_str().unwrap().as_bytes().to_vec(),
        Some(digits) => {
            let digit = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
            (0..digits.len()).step_by(2).map(digit).collect()
        }
    };
    let mut told: Vec<_> = found.as_array().unwrap().iter().map(bytes).collect();
    let mut names = NAMES.map(|name| [b"/", name].concat());
    told.sort();
    names.sort();
    assert_eq!(told, names);
}

#[test]
fn a_list_shows_and_tells_them_exactly() {
    let image = image();
    let place = format!("{}:trial", image.path().display());
    assert!(vfscale().args(["rm", &format!("{place}:/f")]).status().unwrap().success());
    let list = |option: &str| vfscale().args(["ls", option, &place]).output().unwrap().stdout;
    assert_lines(&list("-R"));
    assert_lines(&list("-l"));
    assert_json(&list("--json"));
    let none = vfscale().args(["cat", &format!("{place}:/none\x1b[2J")]).output().unwrap();
    let says = String::from_utf8(none.stderr).unwrap();
    assert!(says.contains("none\\x1b[2J") && !says.contains('\x1b'), "{says}");
}

/// A rescue of an image that somebody else has made.
#[test]
fn a_rescue_shows_them_escaped() {
    let image = image();
    // A file where the directory is to be: the message has its name.
    let name = OsStr::from_bytes(b"out\x1b[2J");
    let target = image.0.path().join(name);
    fs::write(&target, "").unwrap();
    let mut command = vfscale();
    command.args(["copy-out", "--branch=trial"]).arg(image.path()).arg(&target);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(says.contains("out\\x1b[2J") && !says.contains('\x1b'), "{says}");

    let target = image.0.path().join("out");
    let mut command = vfscale();
    command.args(["copy-out", "--branch=trial"]).arg(image.path()).arg(&target);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut copied: Vec<_> =
        fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().file_name().into_vec()).collect();
    copied.retain(|name| name != b"f");
    copied.sort();
    let mut names = NAMES.map(<[u8]>::to_vec);
    names.sort();
    assert_eq!(copied, names);
}

#[test]
fn a_dump_shows_them_escaped() {
    let image = image();
    image.good(&["adopt"], &["trial"]);
    let text = image.good(&["dump"], &["dir", "/"]);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text}");
    for shown in ["esc\\x1b[2J", "\\xff\\xfe", "\\\\xff", "c1\\xc2\\x9b2J"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    let says = image.bad(1, &["dump"], &["inode", "/none\x1b[2J"]);
    assert!(says.contains("none\\x1b[2J") && !says.contains('\x1b'), "{says}");
}
