//! Tests of what all tools have in common, and of those on files, on a tree in memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use vfscale::Task;

use super::tool::checked_path;
use super::*;

fn tree() -> Task {
    let task = vfscale::memory().size(64 << 20).build().unwrap().task();
    for dir in ["/src/deep", "/docs"] {
        task.create_dir_all(dir).unwrap();
    }
    task.write("/src/a.rs", "fn a() {}\nfn b() {}\n").unwrap();
    task.write("/src/deep/c.rs", "// TODO c\n").unwrap();
    task.write("/docs/a.md", "todo\n").unwrap();
    task.symlink("/etc/passwd", "/out").unwrap();
    task
}

fn call(tree: &Task, name: &str, arguments: Value) -> std::result::Result<Value, String> {
    on_tree(name, &arguments, tree).map(|output| output.structured).map_err(|e| e.to_string())
}

#[track_caller]
fn refused(tree: &Task, name: &str, arguments: Value, words: &str) {
    let why = call(tree, name, arguments).unwrap_err();
    assert!(why.contains(words), "{why}");
}

fn paths(result: &Value, list: &str) -> Vec<String> {
    let list = result[list].as_array().unwrap();
    list.iter().map(|it| it["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_tool_has_a_schema_with_words() {
    let names: BTreeSet<_> = TABLE.iter().map(|tool| tool.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for tool in TABLE.iter() {
        let name = tool.name;
        assert!(!tool.description.contains('\n') && tool.description.len() < 200, "{name}");
        assert_eq!(tool.input["type"], "object", "{name}");
        assert_eq!(tool.input["additionalProperties"], false, "{name}");
        assert_eq!(tool.output["type"], "object", "{name}");
        for (key, property) in tool.input["properties"].as_object().unwrap() {
            assert!(property.get("description").is_some(), "{name}: {key}");
            // Not every client follows references.
            assert!(property.get("type").is_some(), "{name}: {key}");
        }
        let changes = tool.output["properties"].get("changes").is_some();
        let on_branches = name.starts_with("branch_") || name == "checkpoint";
        assert_eq!(changes, tool.effect != Effect::Reads && !on_branches, "{name}");
    }
}

#[test]
fn paths_stay_in_the_branch() {
    for (path, checked) in [("/a//b/./c", "/a/b/c"), ("a", "/a"), ("/", "/"), (".", "/")] {
        assert_eq!(checked_path(path).unwrap(), Path::new(checked));
    }
    for path in ["", "..", "/a/../b", "a\0b", &"x/".repeat(3000)] {
        assert!(checked_path(path).is_err(), "{path:?}");
    }
    let tree = tree();
    for path in ["/../etc/passwd", "/src/../../etc/passwd"] {
        refused(&tree, "read", json!({"path": path}), "it has `..`");
    }
    // Symbolic links lead to files of the branch.
    refused(&tree, "read", json!({"path": "/out"}), "No such file");
}

#[test]
fn parts_of_files_are_read() {
    let tree = tree();
    let whole = call(&tree, "read", json!({"path": "/src/a.rs"})).unwrap();
    let content = "fn a() {}\nfn b() {}\n";
    let expected = json!({"path": "/src/a.rs", "size": 20, "offset": 0, "length": 20,
        "encoding": "utf-8", "content": content});
    assert_eq!(whole, expected);
    let part = call(&tree, "read", json!({"path": "/src/a.rs", "offset": 3, "length": 4})).unwrap();
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("a() "), &json!(7)));
    let end = call(&tree, "read", json!({"path": "/src/a.rs", "offset": 99})).unwrap();
    assert_eq!((&end["content"], end.get("next_offset")), (&json!(""), None));
    let far = call(&tree, "read", json!({"path": "/src/a.rs", "offset": u64::MAX})).unwrap();
    assert_eq!(far["length"], 0);
    // A character is not cut.
    tree.write("/umlaut", "aäö").unwrap();
    let part = call(&tree, "read", json!({"path": "/umlaut", "length": 2})).unwrap();
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("a"), &json!(1)));
    tree.write("/bytes", [0xff, 0, 1]).unwrap();
    let bytes = call(&tree, "read", json!({"path": "/bytes"})).unwrap();
    assert_eq!((&bytes["encoding"], &bytes["content"]), (&json!("base64"), &json!("/wAB")));
    refused(&tree, "read", json!({"path": "/src"}), "it is a directory");
    refused(&tree, "read", json!({"path": "/a", "length": 0}), "`length` is 0");
    refused(&tree, "read", json!({"path": "/a", "length": 1 << 30}), "1 to 1048576");
}

#[test]
fn wrong_arguments_are_named() {
    let tree = tree();
    refused(&tree, "read", json!({}), "missing field `path`");
    refused(&tree, "read", json!({"path": 3}), "expected a string");
    refused(&tree, "read", json!({"path": "/a", "offset": -1}), "invalid value");
    refused(&tree, "read", json!({"path": "/a", "nonsense": 1}), "unknown field `nonsense`");
    refused(&tree, "read", json!([1, 2]), "wrong arguments");
    refused(&tree, "write", json!({"path": "/a", "content": "", "mode": "no"}), "unknown variant");
}

#[test]
fn lists_go_on_where_they_have_ended() {
    let tree = tree();
    let flat = call(&tree, "list", json!({})).unwrap();
    assert_eq!(paths(&flat, "entries"), ["/docs", "/out", "/src"]);
    assert_eq!(flat["entries"][1]["target"], "/etc/passwd");
    let all = ["/docs", "/docs/a.md", "/out", "/src", "/src/a.rs", "/src/deep", "/src/deep/c.rs"];
    for limit in 1..8 {
        let (mut found, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let arguments = json!({"depth": 9, "limit": limit, "cursor": cursor});
            let part = call(&tree, "list", arguments).unwrap();
            found.extend(paths(&part, "entries"));
            match part.get("next_cursor") {
                Some(next) => cursor = next.clone(),
                None => break,
            }
        }
        assert_eq!(found, all, "{limit}");
    }
    // The file where the list has ended may be gone.
    tree.remove_file("/docs/a.md").unwrap();
    let arguments = json!({"depth": 9, "cursor": "/docs/a.md"});
    assert_eq!(paths(&call(&tree, "list", arguments).unwrap(), "entries"), all[2..]);
    let file = call(&tree, "list", json!({"path": "/src/a.rs"})).unwrap();
    assert_eq!(paths(&file, "entries"), ["/src/a.rs"]);
    refused(&tree, "list", json!({"limit": 1001}), "1 to 1000");
}

#[test]
fn files_are_written_in_each_mode() {
    let tree = tree();
    let write = |arguments| call(&tree, "write", arguments);
    write(json!({"path": "/f", "content": "long content", "mode": "create"})).unwrap();
    let before = tree.metadata("/f").unwrap().ino;
    let size = write(json!({"path": "/f", "content": "ab"})).unwrap();
    assert_eq!(size, json!({"path": "/f", "size": 2}));
    assert_eq!(tree.metadata("/f").unwrap().ino, before);
    write(json!({"path": "/f", "content": "/w==", "encoding": "base64", "mode": "append"}))
        .unwrap();
    assert_eq!(tree.read("/f").unwrap(), [b'a', b'b', 0xff]);
    let again = json!({"path": "/f", "content": "", "mode": "create"});
    refused(&tree, "write", again, "File exists");
    refused(&tree, "write", json!({"path": "/x/y", "content": ""}), "`parents` makes");
    write(json!({"path": "/x/y/z", "content": "z", "parents": true})).unwrap();
    assert_eq!(tree.read("/x/y/z").unwrap(), b"z");
    let wrong = json!({"path": "/f", "content": "§", "encoding": "base64"});
    refused(&tree, "write", wrong, "no Base64");
    refused(&tree, "write", json!({"path": "/src", "content": ""}), "it is a directory");
    refused(&tree, "write", json!({"path": "/", "content": ""}), "it is a directory");
}

#[test]
fn a_piece_of_text_is_replaced_if_it_is_unique() {
    let tree = tree();
    let edit = |old: &str, new: &str| json!({"path": "/src/a.rs", "old": old, "new": new});
    let done = call(&tree, "edit", edit("b() {}", "b() { a() }")).unwrap();
    assert_eq!((&done["line"], &done["size"]), (&json!(2), &json!(25)));
    assert_eq!(tree.read("/src/a.rs").unwrap(), b"fn a() {}\nfn b() { a() }\n");
    refused(&tree, "edit", edit("fn", "fn x"), "in lines 1 and 2");
    refused(&tree, "edit", edit("nowhere", ""), "`old` is not in /src/a.rs");
    refused(&tree, "edit", edit("", "x"), "nothing would change");
    tree.write("/over", "aaa").unwrap();
    refused(&tree, "edit", json!({"path": "/over", "old": "aa", "new": "b"}), "more than once");
    tree.write("/bytes", [0xff]).unwrap();
    refused(&tree, "edit", json!({"path": "/bytes", "old": "a", "new": "b"}), "no UTF-8");
}

#[test]
fn directories_and_names_change() {
    let tree = tree();
    call(&tree, "mkdir", json!({"path": "/new"})).unwrap();
    refused(&tree, "mkdir", json!({"path": "/new"}), "File exists");
    refused(&tree, "mkdir", json!({"path": "/no/where"}), "`parents` makes");
    call(&tree, "mkdir", json!({"path": "/new/a/b", "parents": true})).unwrap();
    refused(&tree, "mkdir", json!({"path": "/src/a.rs/x", "parents": true}), "a part of the path");
    call(&tree, "move", json!({"from": "/src/a.rs", "to": "/new/a.rs"})).unwrap();
    refused(&tree, "move", json!({"from": "/docs/a.md", "to": "/new/a.rs"}), "File exists");
    call(&tree, "move", json!({"from": "/docs/a.md", "to": "/new/a.rs", "replace": true})).unwrap();
    assert_eq!(tree.read("/new/a.rs").unwrap(), b"todo\n");
    refused(&tree, "move", json!({"from": "/", "to": "/new/x"}), "the root directory stays");
    refused(&tree, "remove", json!({"path": "/new"}), "`recursive` removes");
    call(&tree, "remove", json!({"path": "/new", "recursive": true})).unwrap();
    assert!(!tree.exists("/new").unwrap());
    call(&tree, "remove", json!({"path": "/out"})).unwrap();
    refused(&tree, "remove", json!({"path": "/", "recursive": true}), "the root directory stays");
    refused(&tree, "remove", json!({"path": "/gone"}), "No such file");
}

#[test]
fn names_and_lines_are_found() {
    let tree = tree();
    let search = |arguments| call(&tree, "search", arguments).unwrap();
    let named = search(json!({"glob": "*.rs"}));
    assert_eq!(paths(&named, "matches"), ["/src/a.rs", "/src/deep/c.rs"]);
    assert_eq!(paths(&search(json!({"glob": "src/*.rs"})), "matches"), ["/src/a.rs"]);
    let deep = search(json!({"path": "/src", "glob": "**/*.rs"}));
    assert_eq!(paths(&deep, "matches"), ["/src/a.rs", "/src/deep/c.rs"]);
    let lines = search(json!({"content": "TODO", "ignore_case": true}));
    let found = json!([{"path": "/docs/a.md", "line": 1, "text": "todo"},
        {"path": "/src/deep/c.rs", "line": 1, "text": "// TODO c"}]);
    assert_eq!((&lines["matches"], &lines["searched"]), (&found, &json!(3)));
    let regex = search(json!({"content": "fn [ab]\\(", "regex": true, "limit": 1}));
    assert_eq!(regex["matches"].as_array().unwrap().len(), 1);
    assert_eq!(regex["more_in"], json!(["/src/a.rs"]));
    let rest = json!({"content": "TODO", "cursor": regex["next_cursor"]});
    assert_eq!(paths(&search(rest), "matches"), ["/src/deep/c.rs"]);
    tree.write("/binary", [b'T', b'O', b'D', b'O', 0]).unwrap();
    assert_eq!(search(json!({"content": "TODO"}))["skipped"], 1);
    refused(&tree, "search", json!({}), "say what to search for");
    refused(&tree, "search", json!({"content": "(", "regex": true}), "no regular expression");
    refused(&tree, "search", json!({"glob": "[a"}), "no glob");
    let huge = "x{1000}{1000}";
    refused(&tree, "search", json!({"content": huge, "regex": true}), "no regular expression");
}
