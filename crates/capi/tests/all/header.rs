//! `vfscale.h` and `vfscale.map` are what the sources say.
//!
//! With `VFSCALE_WRITE_HEADER` in the environment the test writes them instead.

use std::path::{Path, PathBuf};
use std::{env, fs};

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

use crate::declarations::{code, functions};

/// The sources in the order of the header.
const SOURCES: &[&str] = &[
    "structs",
    "border",
    "fs",
    "cache_budget",
    "pool",
    "history",
    "view",
    "merge",
    "apply",
    "task",
    "credentials",
    "fd",
    "io",
    "attr",
    "names",
    "dir",
    "xattr",
    "lock",
    "token",
    "pipe",
    "mount",
    "watcher",
    "whole",
    "transfer",
    "idle_memory",
];

const TITLE: &str = "/* vfscale: a file system in user space, for C.
 *
 * A call returns what the call of POSIX returns, or a negative error number: -ENOENT, not -1.
 * vfscale_error() has the text of the last failure on this thread. Flags are those of the system's
 * headers: O_CREAT, AT_FDCWD, S_IFREG. Every call may be made from any thread.
 *
 * A handle (struct vfscale_task *) is a number in the form of a pointer. A handle that was freed is
 * -EBADF in every call, never a crash. A NULL path, buffer or place for a result is -EFAULT.
 *
 * Generated from crates/capi/src; docs/C.md is the manual. MIT or Apache-2.0, at your option. */";

/// Returns a path in this crate.
pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the committed header.
pub fn committed() -> String {
    fs::read_to_string(here("include/vfscale.h")).unwrap()
}

fn config() -> Config {
    let mut config = Config {
        language: Language::C,
        header: Some(TITLE.to_owned()),
        include_guard: Some("VFSCALE_H".to_owned()),
        no_includes: true,
        sys_includes: ["stddef.h", "stdint.h", "sys/types.h", "sys/uio.h", "time.h"]
            .map(str::to_owned)
            .to_vec(),
        // C99 without POSIX has none in <time.h>.
        after_includes: Some("\nstruct timespec;".to_owned()),
        cpp_compat: true,
        usize_is_size_t: true,
        style: Style::Tag,
        documentation_style: DocumentationStyle::Doxy,
        line_length: 100,
        ..Config::default()
    };
    for name in ["iovec", "timespec"] {
        config.export.rename.insert(name.to_owned(), format!("struct {name}"));
    }
    config
}

fn generated() -> String {
    let builder = SOURCES.iter().fold(Builder::new().with_config(config()), |builder, name| {
        builder.with_src(here(&format!("src/{name}.rs")))
    });
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    with_short_comments(&String::from_utf8(text).unwrap())
}

/// Returns a header with each comment of one line on one line.
fn with_short_comments(header: &str) -> String {
    let lines: Vec<&str> = header.lines().collect();
    let mut short = String::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let indent = &line[..line.len() - line.trim_start().len()];
        let ends = lines.get(at + 2).is_some_and(|end| end.trim() == "*/");
        let text = lines.get(at + 1).and_then(|text| text.trim().strip_prefix("* "));
        if let ("/**", true, Some(text)) = (line.trim(), ends, text) {
            short += &format!("{indent}/** {text} */\n");
            at += 3;
        } else {
            short += &format!("{line}\n");
            at += 1;
        }
    }
    short
}

/// Returns the version script of a header: all functions, and nothing else.
fn map_of(header: &str) -> String {
    let mut names: Vec<String> = functions(header).into_iter().map(|f| f.name).collect();
    names.sort();
    let names: String = names.iter().map(|name| format!("        {name};\n")).collect();
    format!("VFSCALE_0.1 {{\n    global:\n{names}    local:\n        *;\n}};\n")
}

fn compare(path: &str, text: &str) {
    let path = here(path);
    if env::var_os("VFSCALE_WRITE_HEADER").is_some() {
        return fs::write(path, text).unwrap();
    }
    let is = fs::read_to_string(&path).unwrap_or_default();
    let other = text.lines().zip(is.lines()).find(|(wants, is)| wants != is);
    assert!(
        text == is,
        "{}: VFSCALE_WRITE_HEADER=1 cargo test -p vfscale-capi writes it anew; first: {other:?}",
        path.display()
    );
}

#[test]
fn header_and_symbols_are_those_of_the_sources() {
    let header = generated();
    compare("include/vfscale.h", &header);
    compare("vfscale.map", &map_of(&header));
}

/// The program that runs with the address sanitizer makes every call: compilers refuse a function
/// of it that is not called.
#[test]
fn every_function_is_called_by_the_test_in_c() {
    let files = ["tests/c/every_call.c", "tests/c/branches.h"];
    let text = files.map(|name| code(&fs::read_to_string(here(name)).unwrap())).concat();
    let functions = functions(&committed());
    let missing = functions.iter().filter(|f| !text.contains(&format!("{}(", f.name)));
    let missing: Vec<_> = missing.map(|function| &function.name).collect();
    assert!(missing.is_empty(), "not called in tests/c/every_call.c: {missing:?}");
}

/// A source that is not in the list would be missing in the header.
#[test]
fn every_exported_function_is_in_the_header() {
    let header = generated();
    let all = fs::read_dir(here("src")).unwrap().map(|entry| entry.unwrap().path());
    for path in all.filter(|path| path.extension().is_some_and(|ending| ending == "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        for name in text.split("extern \"C\" fn ").skip(1).filter_map(|rest| rest.split('(').next())
        {
            let is_there = functions(&header).iter().any(|function| function.name == name);
            assert!(is_there, "{name} of {} is not in the header", path.display());
        }
    }
}
