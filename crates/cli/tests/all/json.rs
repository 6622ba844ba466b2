//! The output of commands as JSON is that of docs/JSON.md, and docs/schema.json has the same.
//!
//! `VFSCALE_WRITE_SCHEMA=1` writes the schema from the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::{can_mount, vfscale};

const PAGE: &str = include_str!("../../../../docs/JSON.md");
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema.json");

/// The page: a definition for each command, and the keys that each always prints.
#[derive(Default)]
struct Documented {
    schema: Value,
    always: BTreeMap<String, BTreeSet<String>>,
}

/// Returns the name of the definition of a command.
fn definition(command: &str) -> String {
    command.to_lowercase().replace(' ', "_")
}

/// Returns the pieces of code in a text.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the schema of a key, below that of its command. Of `a?[].b` the elements of `a`, which
/// may be missing, are objects that have `b`. Nothing `is_required` of what may be damaged.
fn member<'s>(mut schema: &'s mut Value, key: &str, is_required: bool) -> &'s mut Value {
    for part in key.split('.') {
        let (name, is_list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
        if !name.is_empty() {
            let (name, is_optional) =
                name.strip_suffix('?').map_or((name, false), |name| (name, true));
            let is_snake = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(name.bytes().all(is_snake), "{key} is not in snake_case");
            if schema["type"].is_null() {
                schema["type"] = "object".into();
            }
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            if is_required && !is_optional && !required.contains(&name.into()) {
                schema["required"] = required.into_iter().chain([name.into()]).collect();
            }
            schema = &mut schema["properties"][name];
        }
        if is_list {
            schema["type"] = "array".into();
            schema = &mut schema["items"];
        }
    }
    schema
}

/// Returns the place of a key in a definition.
fn pointer(command: &str, key: &str) -> String {
    let mut to = format!("#/$defs/{}", definition(command));
    for part in key.split('.') {
        let name = part.trim_end_matches("[]").trim_end_matches('?');
        to += &if name.is_empty() { String::new() } else { format!("/properties/{name}") };
        to += if part.ends_with("[]") { "/items" } else { "" };
    }
    to
}

/// Adds to a schema what the row of a key says of its type.
fn add_type(schema: &mut Value, key: &str, kind: &str, value: &str) {
    let (kind, is_null) = kind.strip_suffix(" or null").map_or((kind, false), |it| (it, true));
    let typed = |name: &str| if is_null { json!([name, "null"]) } else { json!(name) };
    match kind {
        "text" => schema["type"] = typed("string"),
        "integer" | "boolean" | "object" => schema["type"] = typed(kind),
        "time" => {
            (schema["type"], schema["format"]) = (typed("string"), json!("date-time"));
        }
        "one of" => schema["enum"] = codes(value).collect(),
        kind => {
            let command = codes(kind).next().unwrap_or_else(|| panic!("{key}: the type {kind:?}"));
            if kind.ends_with("by name") {
                let of = json!({ "$ref": pointer(command, "") });
                let any = json!({ "anyOf": [of, { "required": ["error"] }] });
                *schema = json!({ "type": "object", "additionalProperties": any });
            } else {
                *schema = json!({ "$ref": pointer(command, key) });
            }
        }
    }
}

/// Reads the page: the tables below the heading of each command.
fn documented() -> Documented {
    let mut found = Documented::default();
    let mut commands: Vec<&str> = Vec::new();
    for line in PAGE.lines() {
        if line.starts_with("##") {
            commands = codes(line).collect();
        }
        let Some(row) = line.strip_prefix("| ").filter(|row| row.starts_with('`')) else {
            continue;
        };
        let [keys, kind, value] =
            row.trim_end_matches(" |").splitn(3, " | ").collect::<Vec<_>>().try_into().unwrap();
        for command in &commands {
            let schema = &mut found.schema["$defs"][definition(command)];
            for key in codes(keys) {
                let is_whole = !command.starts_with("dump");
                add_type(member(schema, key, is_whole), key, kind, value);
                // Lists of words may be empty, and there may be no reason to stop.
                let is_always = !key.contains('?') && !key.ends_with("[]");
                if is_always && !key.starts_with("stopped.") {
                    let always = found.always.entry((*command).to_owned()).or_default();
                    always.insert(key.to_owned());
                }
            }
        }
    }
    found
}

/// Returns the text of the schema: a line for each command.
fn text(schema: &Value) -> String {
    let line = |(name, schema): (&String, &Value)| format!("    {}: {schema}", json!(name));
    let lines: Vec<_> = schema["$defs"].as_object().unwrap().iter().map(line).collect();
    format!(
        "{{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \"What \
         commands of vfscale print with --json\",\n  \"$defs\": {{\n{}\n  }}\n}}\n",
        lines.join(",\n")
    )
}

/// Checks a value against a part of a schema. Keys that it does not have are refused, too.
fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(to) = schema["$ref"].as_str() {
        let schema = root.pointer(&to[1..]).ok_or_else(|| format!("{at}: {to} is nowhere"))?;
        return check(root, schema, value, at);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let failed: Result<Vec<_>, ()> =
            any.iter().map(|it| check(root, it, value, at).err().ok_or(())).collect();
        return failed.map_or(Ok(()), |failed| Err(failed.join("; ")));
    }
    let kind = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
    };
    let has = |list: &Value, it: &Value| {
        list.is_null() || list == it || list.as_array().is_some_and(|list| list.contains(it))
    };
    let is_time = value.as_str().is_none_or(|text| text.len() == 30 && text.ends_with('Z'));
    if !has(&schema["type"], &kind.into()) || !has(&schema["enum"], value) {
        return Err(format!("{at}: {value} is not in {schema}"));
    }
    if schema["format"] == "date-time" && !is_time {
        return Err(format!("{at}: {value} is no time"));
    }
    if let Some(members) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            if !members.contains_key(name.as_str().unwrap()) {
                return Err(format!("{at}: there is no {name}"));
            }
        }
        for (name, member) in members {
            let known = schema["properties"].get(name).or(schema.get("additionalProperties"));
            match known {
                Some(known) => check(root, known, member, &format!("{at}.{name}"))?,
                None if schema["properties"].is_null() => {}
                None => return Err(format!("{at}: {name} is not known")),
            }
        }
    }
    let items = value.as_array().into_iter().flatten();
    items.enumerate().try_for_each(|(number, item)| {
        check(root, &schema["items"], item, &format!("{at}[{number}]"))
    })
}

/// Adds the paths of the keys of a value.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    found.insert(path.to_owned());
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let dot = if path.is_empty() { "" } else { "." };
                paths(member, &format!("{path}{dot}{key}"), found);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| paths(item, &format!("{path}[]"), found));
        }
        _ => {}
    }
}

/// The values that the commands have printed.
struct Printed<'d> {
    dir: &'d Path,
    found: BTreeMap<String, Vec<Value>>,
}

impl Printed<'_> {
    /// Runs the command with words, and takes what it prints as that of `command`.
    fn run(&mut self, command: &str, words: &str) {
        self.run_with(command, words, Stdio::null());
    }

    fn run_with(&mut self, command: &str, words: &str, input: Stdio) {
        let mut run = vfscale();
        let (words, command_words) = words.split_once(" -- ").unwrap_or((words, ""));
        run.args(words.split(' ')).arg("--json").current_dir(self.dir).stdin(input);
        if !command_words.is_empty() {
            run.arg("--").args(command_words.split(' '));
        }
        let output = run.output().unwrap();
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
            panic!("{words}: {e}: {}", String::from_utf8_lossy(&output.stderr))
        });
        self.found.entry(command.to_owned()).or_default().push(value);
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

/// Runs the commands among them that need a mount.
fn print_mounted(printed: &mut Printed<'_>, dir: &Path) {
    fs::create_dir(dir.join("mnt")).unwrap();
    call(dir, "mount -b d.vfs mnt");
    fs::write(dir.join("mnt/new"), "").unwrap();
    printed.run("stat DIR", "stat mnt");
    printed.run("mounts", "mounts");
    call(dir, "umount mnt");
    let check = dir.join("check");
    fs::write(&check, "#!/bin/sh\ntest ! -e f || test -s f\n").unwrap();
    fs::set_permissions(&check, fs::Permissions::from_mode(0o755)).unwrap();
    let (check, small) = (check.display(), dir.join("in/small"));
    let words = format!("crashlab --check {check} -- cp {} f", small.display());
    printed.run("crashlab", &words);
}

/// Runs all commands that print JSON.
fn print_all(dir: &Path) -> BTreeMap<String, Vec<Value>> {
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
        print_mounted(&mut printed, dir);
    }
    fs::copy(dir.join("d.vfs"), dir.join("broken.vfs")).unwrap();
    let broken = fs::File::options().write(true).open(dir.join("broken.vfs")).unwrap();
    broken.write_all_at(&vec![0; 1016 * 4096], 8200 * 4096).unwrap();
    printed.run("fsck", "fsck --discard-log broken.vfs");

    call(dir, "branch create d.vfs trial");
    call(dir, "rm d.vfs:trial:/small");
    call(dir, "cp -q in/big d.vfs:trial:/link");
    call(dir, "checkpoint d.vfs -m text");
    printed.run("branch list", "branch list --all d.vfs");
    printed.run("diff", "diff d.vfs main trial");
    call(dir, "cp -q in/small d.vfs:main:/link");
    printed.run("merge", "merge --dry-run d.vfs trial");
    printed.run("merge", "merge d.vfs trial");
    printed.run("log", "log d.vfs");
    call(dir, "branch create d.vfs third");
    call(dir, "cp -q in/big d.vfs:third:/link");
    call(dir, "cp -q in/small d.vfs:main:/link");
    printed.run("rebase", "rebase d.vfs third --onto main");
    fs::write(dir.join("p"), "--- /dev/null\n+++ b/p\n@@ -0,0 +1 @@\n+p\n").unwrap();
    printed.run("apply", "apply d.vfs p");
    let file = fs::File::create(dir.join("stream")).unwrap();
    let mut send = vfscale();
    let sent = send.args(["branch", "send", "d.vfs"]).current_dir(dir).stdout(file).status();
    assert!(sent.unwrap().success());
    let stream = fs::File::open(dir.join("stream")).unwrap();
    printed.run_with("branch receive", "branch receive d.vfs came", stream.into());
    printed.run("stat IMAGE", "stat --branch trial d.vfs");
    printed.run("fsck POOL", "fsck d.vfs");
    printed.found
}

#[test]
fn the_page_and_the_schema_have_what_commands_print() {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path());
    let (Documented { schema, always }, printed) = (documented(), print_all(dir.path()));
    let text = text(&schema);
    if std::env::var_os("VFSCALE_WRITE_SCHEMA").is_some() {
        fs::write(SCHEMA, &text).unwrap();
    }
    let is_same = fs::read_to_string(SCHEMA).is_ok_and(|stored| stored == text);
    assert!(is_same, "docs/schema.json is another one: write it with VFSCALE_WRITE_SCHEMA=1");
    let schema: Value = serde_json::from_str(&text).unwrap();
    for (command, keys) in &always {
        let Some(values) = printed.get(command) else {
            let is_of_mount = ["stat DIR", "mounts", "crashlab"].contains(&&**command);
            assert!(is_of_mount && !can_mount(), "{command}: not tried");
            continue;
        };
        let (mut found, own) = (BTreeSet::new(), &schema["$defs"][definition(command)]);
        for value in values {
            paths(value, "", &mut found);
            check(&schema, own, value, command).unwrap();
        }
        let gone: Vec<_> = keys.difference(&found).collect();
        assert!(gone.is_empty(), "{command}: in docs/JSON.md and not printed: {gone:?}");
    }
    assert!(printed.keys().all(|command| always.contains_key(command)));
}

/// The check is one: a wrong type, word, time or key is found.
#[test]
fn what_is_not_in_the_schema_is_refused() {
    let schema = documented().schema;
    let found = |value: &Value| check(&schema, &schema["$defs"]["log"], value, "log");
    let good = json!([{
        "node": 1, "parent": null, "kind": "now", "time": null, "text": "", "branches": ["main"],
        "merges": [],
    }]);
    found(&good).unwrap();
    for (key, wrong) in [
        ("node", json!("1")),
        ("kind", json!("then")),
        ("time", json!("yesterday")),
        ("branches", json!([1])),
        ("merges", json!([{ "node": 1 }])),
        ("unknown", json!(1)),
    ] {
        let mut value = good.clone();
        value[0][key] = wrong;
        found(&value).unwrap_err();
    }
    let mut value = good.clone();
    value[0].as_object_mut().unwrap().remove("text");
    found(&value).unwrap_err();
}
