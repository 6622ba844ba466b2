//! The interface of the last release, which later versions keep.
//!
//! A line of `abi/0.1.txt` is a function, a constant, or a field with its offset. Additions are
//! allowed, and `VFSCALE_WRITE_ABI` in the environment makes the test write them into the file. A
//! line that no longer holds breaks programs: it needs a new soname.

use std::collections::BTreeSet;
use std::{env, fs};

use crate::declarations::{constants, functions, structures};
use crate::header::{committed, here};

const FILE: &str = "abi/0.1.txt";

/// Returns the lines of a header. Room for later fields is none of its interface.
fn lines(header: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    lines.extend(functions(header).into_iter().map(|function| function.declaration));
    lines.extend(constants(header).into_iter().map(|(name, value)| format!("{name} = {value}")));
    for (name, (fields, size)) in structures(header) {
        // Options are passed with their size, and may grow.
        if !name.ends_with("_options") && name != "vfscale_open_how" {
            lines.insert(format!("struct {name}: {size} bytes"));
        }
        for field in fields.iter().filter(|field| field.name != "reserved") {
            let (offset, size) = (field.offset, field.size);
            let (c_type, field) = (&field.c_type, &field.name);
            lines.insert(format!("struct {name}: {c_type} {field}, {size} bytes at {offset}"));
        }
    }
    lines
}

#[test]
fn nothing_of_the_last_release_is_missing() {
    let now = lines(&committed());
    assert!(now.len() > 150, "only {} lines", now.len());
    let path = here(FILE);
    let released = fs::read_to_string(&path).unwrap_or_default();
    let gone: Vec<&str> = released.lines().filter(|line| !now.contains(*line)).collect();
    assert!(gone.is_empty(), "{FILE} has lines that no longer hold:\n{}", gone.join("\n"));
    let text: String = now.iter().map(|line| format!("{line}\n")).collect();
    if env::var_os("VFSCALE_WRITE_ABI").is_some() {
        return fs::write(path, text).unwrap();
    }
    let new: Vec<_> = now.iter().filter(|line| !released.lines().any(|is| is == *line)).collect();
    assert!(new.is_empty(), "VFSCALE_WRITE_ABI=1 cargo test -p vfscale-capi adds: {new:#?}");
}

/// The names and numbers of the header are those that a C compiler sees; this is what the library
/// has.
#[test]
fn changes_and_removals_are_seen() {
    let header = committed();
    let before = lines(&header);
    for (from, to) in [
        ("vfscale_close(struct vfscale_task *task, int fd)", "vfscale_close(int fd)"),
        ("int vfscale_dup2(", "long vfscale_dup2("),
        ("uint64_t st_ino;", "uint32_t st_ino;"),
        ("#define VFSCALE_EVENT_CREATED 1", "#define VFSCALE_EVENT_CREATED 3"),
    ] {
        let changed = header.replace(from, to);
        assert_ne!(changed, header, "{from}");
        let now = lines(&changed);
        assert!(before.difference(&now).next().is_some(), "{from}");
    }
}
