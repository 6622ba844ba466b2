//! The keys of what commands print as JSON are those of docs/JSON.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use serde_json::Value;

use crate::common::{can_mount, vfscale};

const PAGE: &str = include_str!("../../../../docs/JSON.md");

/// The keys of one command.
#[derive(Default)]
struct Keys {
    /// Keys that are always there.
    always: BTreeSet<String>,
    all: BTreeSet<String>,
}

/// Returns the documented keys of each command: the code in the first cells of the tables below its
/// heading.
fn documented() -> BTreeMap<String, Keys> {
    let mut found: BTreeMap<String, Keys> = BTreeMap::new();
    let mut commands: Vec<&str> = Vec::new();
    let codes = |text: &'static str| text.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    for line in PAGE.lines() {
        if line.starts_with("##") {
            commands = codes(line);
        } else if let Some(row) = line.strip_prefix("| `") {
            let cell = row.split(" | ").next().unwrap();
            for key in cell.split('`').step_by(2).filter(|key| !key.is_empty()) {
                let name = key.trim_end_matches('?');
                for command in &commands {
                    let keys = found.entry((*command).to_owned()).or_default();
                    keys.all.insert(name.to_owned());
                    if name == key {
                        keys.always.insert(name.to_owned());
                    }
                }
            }
        }
    }
    found
}

/// Adds the paths of the keys of a value.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let is_snake = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
                assert!(key.bytes().all(is_snake), "{path}: {key:?} is not in snake_case");
                let dot = if path.is_empty() { "" } else { "." };
                paths(member, &format!("{path}{dot}{key}"), found);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| paths(item, &format!("{path}[]"), found));
        }
        _ => _ = found.insert(path.to_owned()),
    }
}

/// The keys that the commands have printed.
struct Printed<'d> {
    dir: &'d Path,
    found: BTreeMap<String, BTreeSet<String>>,
}

impl Printed<'_> {
    fn add(&mut self, command: &str, value: &Value) {
        paths(value, "", self.found.entry(command.to_owned()).or_default());
    }

    /// Runs the command with words, and takes what it prints as that of `command`.
    fn run(&mut self, command: &str, words: &str) -> Value {
        let output =
            vfscale().args(words.split(' ')).arg("--json").current_dir(self.dir).output().unwrap();
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
            panic!("{words}: {e}: {}", String::from_utf8_lossy(&output.stderr))
        });
        if value.get("branches").is_none() {
            self.add(command, &value);
        }
        value
    }
}

fn call(dir: &Path, words: &str) {
    let output = vfscale().args(words.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an image with files of several kinds.
fn plant(dir: &Path) {
    let tree = dir.join("in");
    fs::create_dir_all(tree.join("many")).unwrap();
    fs::write(tree.join("small"), "contents").unwrap();
    fs::write(tree.join("big"), vec![7; 300_000]).unwrap();
    symlink("small", tree.join("link")).unwrap();
    for number in 0..300 {
        fs::write(tree.join(format!("many/a name that is not short {number}")), "").unwrap();
    }
    call(dir, "mkfs d.vfs --size 64M --from in -q");
    let volume = vfscale::volume(dir.join("d.vfs")).open().unwrap();
    let task = volume.task();
    let flags = vfscale::posix::XattrFlags::empty();
    let (at, follow) = (vfscale::posix::At::Cwd, vfscale::posix::AtFlags::empty());
    task.posix().setxattrat(at, "/small", "user.colour", b"blue", flags, follow).unwrap();
    drop(task);
    volume.close().unwrap();
}

/// Runs all commands that print JSON.
fn print_all(dir: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut printed = Printed { dir, found: BTreeMap::new() };
    printed.run("ls", "ls -R d.vfs");
    printed.run("cp", "cp in/small d.vfs:/copy");
    printed.run("import", "import in d.vfs:/again");
    printed.run("export", "export d.vfs:/many out");
    printed.run("stat IMAGE", "stat d.vfs");
    printed.run("fsck", "fsck d.vfs");
    for what in [
        "superblock",
        "group 0",
        "inode /small",
        "inode /big",
        "inode /many",
        "inode /link",
        "dir /many",
        "extents /big",
        "extents /small",
        "attributes /small",
        "block 0",
        "block 1",
        "block 2",
        "block 3",
        "block 8",
        "tree 2",
        "tree 3",
        "log",
    ] {
        let command = format!("dump {}", what.split(' ').next().unwrap());
        printed.run(&command, &format!("dump d.vfs {what}"));
    }
    if can_mount() {
        fs::create_dir(dir.join("mnt")).unwrap();
        call(dir, "mount -b d.vfs mnt");
        fs::write(dir.join("mnt/new"), "").unwrap();
        printed.run("stat DIR", "stat mnt");
        call(dir, "umount mnt");
    }
    fs::copy(dir.join("d.vfs"), dir.join("broken.vfs")).unwrap();
    let broken = fs::File::options().write(true).open(dir.join("broken.vfs")).unwrap();
    broken.write_all_at(&vec![0; 1016 * 4096], 8200 * 4096).unwrap();
    printed.run("fsck", "fsck --discard-log broken.vfs");

    call(dir, "branch create d.vfs trial");
    call(dir, "rm d.vfs:trial:/small");
    call(dir, "cp -q in/big d.vfs:trial:/link");
    printed.run("branch list", "branch list d.vfs");
    printed.run("diff", "diff d.vfs main trial");
    call(dir, "cp -q in/small d.vfs:main:/link");
    printed.run("merge", "merge --dry-run d.vfs trial");
    printed.run("stat IMAGE", "stat --branch trial d.vfs");
    let found = printed.run("fsck", "fsck d.vfs");
    printed.add("fsck", &found["branches"]["trial"]);
    let top: BTreeSet<_> = found.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(top, ["branches", "pool", "repaired"].into());
    printed.found
}

#[test]
fn the_page_has_the_keys_that_commands_print() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path());
    let (documented, printed) = (documented(), print_all(dir.path()));
    for (command, keys) in &documented {
        let Some(found) = printed.get(command) else {
            assert!(command == "stat DIR" && !can_mount(), "{command}: not tried");
            continue;
        };
        let is_unknown = |path: &&String| {
            let ends = path.match_indices(['.', '[']).map(|(at, _)| &path[..at]);
            !ends.chain([path.as_str()]).any(|part| keys.all.contains(part))
        };
        let unknown: Vec<_> = found.iter().filter(is_unknown).collect();
        assert!(unknown.is_empty(), "{command}: not in docs/JSON.md: {unknown:?}");
        let gone: Vec<_> = keys.always.difference(found).collect();
        assert!(gone.is_empty(), "{command}: in docs/JSON.md and not printed: {gone:?}");
    }
    assert!(printed.keys().all(|command| documented.contains_key(command)));
}
