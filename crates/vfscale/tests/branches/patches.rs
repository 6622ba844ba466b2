//! Patches, which git applies.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vfscale::posix::{At, RenameFlags};
use vfscale::{DiffOptions, Pool, Task};
use vfscale_sync::random::{Random, seed};

use crate::common::{image, within};
use crate::tree_common::read_tree;

/// The files and links of a tree: whether each can be executed or is a link, and what it has.
type Files = BTreeMap<PathBuf, (bool, bool, Vec<u8>)>;

fn files(task: &Task) -> Files {
    let tree = read_tree(task).unwrap().into_iter().filter(|(_, known)| !known.is_dir());
    let told = tree.map(|(path, known)| {
        let (mode, is_link) = (known.attributes.0, known.object.2 == 0o120_000);
        (path, (is_link || mode & 0o100 != 0, is_link, known.content))
    });
    told.collect()
}

/// Writes files to a directory of the host.
fn store(dir: &Path, files: &Files) {
    for (path, (can_execute, is_link, content)) in files {
        let path = dir.join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if *is_link {
            symlink(str::from_utf8(content).unwrap(), &path).unwrap();
        } else {
            fs::write(&path, content).unwrap();
            let mode = if *can_execute { 0o755 } else { 0o644 };
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
    }
}

/// Reads the files in a directory of the host.
fn load(dir: &Path) -> Files {
    let (mut found, mut dirs) = (Files::new(), vec![dir.to_owned()]);
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let data = fs::symlink_metadata(&path).unwrap();
            let name = Path::new("/").join(path.strip_prefix(dir).unwrap());
            if data.is_dir() {
                dirs.push(path);
            } else if data.is_symlink() {
                let target = fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
                found.insert(name, (true, true, target));
            } else {
                let can_execute = data.permissions().mode() & 0o100 != 0;
                found.insert(name, (can_execute, false, fs::read(&path).unwrap()));
            }
        }
    }
    found
}

fn patch(pool: &Pool, a: &str, b: &str, options: &DiffOptions) -> (u64, Vec<u8>) {
    let mut patch = Vec::new();
    let count = pool.patch(a, b, options, &mut |part| {
        patch.extend_from_slice(part);
        true
    });
    (count.unwrap(), patch)
}

/// Applies a patch to files by a program. `None` if that is not installed.
fn applied(program: &[&str], files: &Files, patch: &[u8]) -> Option<Files> {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path(), files);
    let stored = tempfile::NamedTempFile::new().unwrap();
    fs::write(stored.path(), patch).unwrap();
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).current_dir(dir.path()).stdout(Stdio::null());
    command.stdin(fs::File::open(stored.path()).unwrap());
    match command.env("GIT_CEILING_DIRECTORIES", "/").output() {
        Err(_) => {
            println!("skipped: {} is not installed", program[0]);
            None
        }
        Ok(output) => {
            let (says, text) = (String::from_utf8_lossy(&output.stderr), text(patch));
            assert!(output.status.success(), "{says}\n{text}");
            Some(load(dir.path()))
        }
    }
}

/// Programs that write a patch.
const DIFF: &[&str] = &["diff", "-ruN", "a", "b"];
const GIT_DIFF: &[&str] = &["git", "diff", "--no-index", "--no-prefix", "--no-renames", "a", "b"];

/// Returns the patch that a program writes. `None` if it is not installed.
fn written(program: &[&str], before: &Files, after: &Files) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    for (name, files) in [("a", before), ("b", after)] {
        fs::create_dir(dir.path().join(name)).unwrap();
        store(&dir.path().join(name), files);
    }
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).current_dir(dir.path());
    let output = command.env("GIT_CEILING_DIRECTORIES", "/").output();
    if output.is_err() {
        println!("skipped: {} is not installed", program[0]);
    }
    Some(output.ok()?.stdout)
}

/// Returns whether diff(1) tells all of these files: no links, which it follows, nothing that can
/// be executed, and nothing empty, which is as a missing one to it.
fn is_plain(files: &Files) -> bool {
    let is_told = |(can_execute, is_link, bytes): &(bool, bool, Vec<u8>)| {
        !can_execute && !is_link && !bytes.is_empty()
    };
    files.values().all(is_told)
}

/// Applies a patch to a fork of a branch, and compares.
fn apply(pool: &Pool, name: &str, patch: &[u8], expected: &Files, context: &str) {
    pool.fork(name, "applied").unwrap();
    let done = pool.apply("applied", &mut &patch[..], vfscale::ApplyOptions::new());
    let done = done.unwrap_or_else(|error| panic!("{error}\n{context}\n{}", text(patch)));
    assert!(!done.is_layer);
    assert_eq!(within(pool, "applied", files), *expected, "{context}\n{}", text(patch));
    pool.delete("applied").unwrap();
}

fn text(patch: &[u8]) -> String {
    String::from_utf8_lossy(patch).into_owned()
}

/// Makes a random change; names of directories and of files differ. Calls that fail change nothing.
fn change(task: &Task, random: &mut Random) {
    let tree = read_tree(task).unwrap();
    let mut any = |is_dir| {
        let paths: Vec<_> = tree.iter().filter(|(_, known)| known.is_dir() == is_dir).collect();
        let none = PathBuf::from("/none");
        let at = random.below(paths.len().max(1) as u64) as usize;
        paths.get(at).map_or(none, |(path, _)| (*path).clone())
    };
    let (dir, other, file, target) = (any(true), any(true), any(false), any(false));
    let names = ["f", "f 1", "f\"2\\", "f\n\t3", "fä", "f6"];
    let new = dir.join(random.one(&names));
    let mut lines: Vec<_> = (0..30).map(|number| format!("line {number}\n")).collect();
    for _ in 0..random.below(4) {
        let at = random.below(lines.len() as u64) as usize;
        lines[at] = random.one(&["", "new\n", "+\n", "two\nlines\n"]).to_owned();
    }
    let mut bytes = lines.concat().into_bytes();
    match random.below(4) {
        0 => bytes.truncate(bytes.len() - 1),
        1 => bytes.truncate(random.below(20) as usize),
        2 => bytes.extend_from_slice(b"\xff\r\n"),
        _ => {}
    }
    let calls = task.posix();
    let _ = match random.below(12) {
        0 | 1 => task.write(&new, bytes),
        2 | 3 => task.write(&file, bytes),
        4 => task.create_dir(dir.join(random.one(&["d", "d 1", "d2"]))),
        5 => task.remove_file(&file),
        6 => task.remove_dir_all(&dir),
        7 => task.rename(&file, &new),
        8 => task.rename(&dir, other.join(random.one(&["d", "d 1", "d2"]))),
        9 => task.set_permissions(&file, random.one(&[0o600, 0o755])),
        10 => task.symlink(random.one(&["f", "to\nwhere"]), &new),
        _ => calls.renameat2(At::Cwd, &file, At::Cwd, &target, RenameFlags::EXCHANGE),
    };
}

#[test]
fn git_makes_one_branch_of_the_other_by_a_patch() {
    let (seed, dir) = (seed(), tempfile::tempdir().unwrap());
    let mut random = Random::new(seed);
    let pool = vfscale::pool(image(dir.path(), |_| ())).convert(true).open().unwrap();
    for round in 0..25 {
        pool.fork("main", "a").unwrap();
        within(&pool, "a", |task| (0..40).for_each(|_| change(task, &mut random)));
        pool.fork("a", "b").unwrap();
        let count = random.below(20);
        within(&pool, "b", |task| (0..count).for_each(|_| change(task, &mut random)));
        let [a, b] = ["a", "b"].map(|name| within(&pool, name, files));
        for (names, before, after) in [(("a", "b"), &a, &b), (("b", "a"), &b, &a)] {
            let (count, patch) = patch(&pool, names.0, names.1, &DiffOptions::new());
            assert_eq!(count == 0, pool.diff(names.0, names.1).unwrap().is_empty());
            // Nothing to apply is an error of git.
            let is_empty = !patch.split(|byte| *byte == b'\n').any(|it| it.starts_with(b"diff "));
            if is_empty {
                assert_eq!(before, after);
                continue;
            }
            let Some(found) = applied(&["git", "apply"], before, &patch) else { return };
            let context = format!("seed {seed}, round {round}, {names:?}: {}", text(&patch));
            assert_eq!(found, *after, "{context}");
            apply(&pool, names.0, &patch, after, &context);
            let is_plain = is_plain(before) && is_plain(after);
            for program in [DIFF, GIT_DIFF].into_iter().filter(|it| is_plain || it[0] == "git") {
                let Some(patch) = written(program, before, after) else { return };
                apply(&pool, names.0, &patch, after, &format!("{program:?} {context}"));
            }
        }
        ["a", "b"].iter().for_each(|name| pool.delete(name).unwrap());
    }
    pool.close().unwrap();
}

/// A patch names what it can't tell, is restricted by options, and patch(1) applies it as well.
#[test]
fn a_patch_tells_what_it_leaves_out() {
    let dir = tempfile::tempdir().unwrap();
    let fill = |task: &Task| {
        task.write("/binary", b"a\0b").unwrap();
        task.write("/text", "1\n2\n3\n").unwrap();
        task.create_dir("/d").unwrap();
        task.write("/d/moved", b"\0").unwrap();
    };
    let pool = vfscale::pool(image(dir.path(), fill)).convert(true).open().unwrap();
    pool.fork("main", "a").unwrap();
    pool.fork("main", "b").unwrap();
    within(&pool, "a", |task| task.write("/only a", "a").unwrap());
    within(&pool, "b", |task| {
        task.write("/binary", b"b\0b").unwrap();
        task.write("/text", "1\ntwo\n3").unwrap();
        task.rename("/d", "/e").unwrap();
        task.create_dir("/empty").unwrap();
        task.write("/large", "line\n".repeat(1 << 20)).unwrap();
    });
    let options = DiffOptions::new().with_base(true);
    let (count, found) = patch(&pool, "a", "b", &options);
    let expected = "# changed /binary: binary\n\
                    # moved /d to /e: a directory\n\
                    diff --git a/d/moved b/e/moved\nrename from d/moved\nrename to e/moved\n\
                    # added /empty: a directory\n\
                    # added /large: larger than 4 MiB\n\
                    diff --git a/text b/text\n--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n 1\n-2\n-3\n\
                    +two\n+3\n\\ No newline at end of file\n";
    assert_eq!((count, text(&found).as_str()), (6, expected));
    assert_eq!(pool.diff_with("a", "b", &options).unwrap().len(), 5);
    assert_eq!(pool.diff("a", "b").unwrap().len(), 6);
    let (count, found) = patch(&pool, "a", "b", &options.clone().paths(["text", "/none"]));
    assert_eq!((count, text(&found).starts_with("diff --git a/text")), (1, true));
    let before = within(&pool, "a", files);
    if let Some(after) = applied(&["patch", "-p1"], &before, &found) {
        assert_eq!(after[Path::new("/text")].2, b"1\ntwo\n3");
    }
    assert_eq!(patch(&pool, "a", "a", &options), (0, Vec::new()));
    let mut calls = 0;
    let stopped = pool.patch("a", "b", &options, &mut |_| {
        calls += 1;
        false
    });
    assert_eq!((stopped.unwrap(), calls), (1, 1));
    pool.close().unwrap();
}
