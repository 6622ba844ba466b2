//! Branches, what calls change in them, and the record of that.

use serde_json::{Value, json};

use crate::client::{Image, vfscale};

/// Returns the kinds and paths of changes.
fn changes(result: &Value) -> Vec<String> {
    let files = result["changes"]["files"].as_array().unwrap();
    let line =
        |it: &Value| format!("{} {}", it["kind"].as_str().unwrap(), it["path"].as_str().unwrap());
    files.iter().map(line).collect()
}

#[test]
fn a_session_forks_writes_compares_merges_and_rolls_back() {
    let image = Image::new();
    let mut agent = image.serve(&[]);
    let main = agent.call("branch_list", json!({}));
    assert_eq!((&main["total"], &main["branches"][0]["name"]), (&json!(1), &json!("main")));
    let base = json!({"path": "/src/a", "content": "one\ntwo\nthree\nfour\n", "parents": true});
    assert_eq!(changes(&agent.call("write", base)), ["added /src", "added /src/a"]);
    agent.call("branch_fork", json!({"name": "t"}));
    let edit = json!({"branch": "t", "path": "/src/a", "old": "four", "new": "4"});
    assert_eq!(changes(&agent.call("edit", edit)), ["changed /src/a"]);
    let edit = json!({"path": "/src/a", "old": "one", "new": "1"});
    agent.call("edit", edit);
    let diff = agent.call("diff", json!({"b": "t", "base": true, "patch": true}));
    assert_eq!((&diff["total"], &diff["kinds"]["changed"]), (&json!(1), &json!(1)));
    assert!(diff["patch"].as_str().unwrap().contains("-four\n+4\n"), "{diff}");
    let planned = agent.call("merge", json!({"from": "t", "dry_run": true}));
    assert_eq!((&planned["texts"], &planned["done"]), (&json!(1), &json!(false)));
    let point = agent.call("checkpoint", json!({"text": "before the merge"}));
    assert_eq!(point["name"], "main@1");
    let merged = agent.call("merge", json!({"from": "t"}));
    assert_eq!((&merged["texts"], &merged["done"]), (&json!(1), &json!(true)));
    assert_eq!(changes(&merged), ["changed /src/a"]);
    let now = agent.call("read", json!({"path": "/src/a"}));
    assert_eq!(now["content"], "1\ntwo\nthree\n4\n");
    let back = agent.call("roll_back", json!({"to": "main@1"}));
    assert_eq!(changes(&back), ["changed /src/a"]);
    let now = agent.call("read", json!({"path": "/src/a"}));
    assert_eq!(now["content"], "1\ntwo\nthree\nfour\n");
    // The state that was left is kept.
    let kept = back["changes"]["checkpoint"].as_str().unwrap();
    let lost = agent.call("read", json!({"branch": kept, "path": "/src/a"}));
    assert_eq!(lost["content"], "1\ntwo\nthree\n4\n");
    let log = agent.call("log", json!({"limit": 1}));
    assert_eq!(log["states"][0]["kind"], "now");
    assert!(log["omitted"].as_u64().unwrap() > 0);
    agent.call("branch_rename", json!({"name": "t", "to": "u"}));
    agent.call("branch_delete", json!({"name": "u"}));
    agent.refused("branch_delete", json!({"name": "u"}), "`branch_list` lists the branches");
    drop(agent);
    assert!(vfscale(&["fsck", "work.vfs"], image.dir.path()).contains("main"));
}

#[test]
fn a_conflict_is_listed_and_nothing_lost() {
    let image = Image::new();
    let mut agent = image.serve(&[]);
    agent.call("write", json!({"path": "/f", "content": "base\n"}));
    agent.call("branch_fork", json!({"name": "t"}));
    agent.call("write", json!({"path": "/f", "content": "ours\n"}));
    agent.call("write", json!({"branch": "t", "path": "/f", "content": "theirs\n"}));
    let refused = agent.call("merge", json!({"from": "t", "strategy": "fail"}));
    assert_eq!(
        (&refused["done"], refused["conflicts"].as_array().unwrap().len()),
        (&json!(false), 1)
    );
    assert_eq!(changes(&refused), Vec::<String>::new());
    let merged = agent.call("merge", json!({"from": "t"}));
    let conflict = &merged["conflicts"][0];
    assert_eq!((&conflict["path"], &conflict["beside"]), (&json!("/f"), &json!("/f.t")));
    assert_eq!(agent.call("read", json!({"path": "/f.t"}))["content"], "theirs\n");
}

#[test]
fn each_change_is_recorded_between_two_states() {
    let image = Image::new();
    let file = image.dir.path().join("audit.jsonl");
    let mut agent = image.serve(&["--audit", file.to_str().unwrap(), "--checkpoint-each"]);
    let long = "x".repeat(5000);
    let first = agent.call("write", json!({"path": "/a", "content": long}));
    let second = agent.call("write", json!({"path": "/b", "content": "b"}));
    agent.refused("remove", json!({"path": "/c"}), "No such file");
    agent.call("read", json!({"path": "/a"}));
    let records = agent.audit();
    let text = std::fs::read_to_string(&file).unwrap();
    let written: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(records, written);
    let tools: Vec<_> = records.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["write", "write", "remove"]);
    assert_eq!(records[0]["changes"], first["changes"]);
    assert!(records[0]["arguments"]["content"].as_str().unwrap().ends_with("… (5000 bytes)"));
    assert_eq!(records[0]["changes"]["node_after"], records[1]["changes"]["node_before"]);
    assert!(records[2]["error"].as_str().unwrap().contains("No such file"));
    assert_eq!(records[2]["changes"]["total"], 0);
    // Each step can be rolled back to, and one that has changed nothing has left nothing.
    let list = agent.call("branch_list", json!({"checkpoints": true}));
    let points: Vec<_> = list["branches"].as_array().unwrap().iter().collect();
    let points: Vec<_> = points.iter().filter(|it| it["read_only"] == true).collect();
    assert_eq!(points.len(), 2);
    assert!(points.iter().all(|point| point["text"] == "before write"));
    let to = second["changes"]["checkpoint"].clone();
    let back = agent.call("roll_back", json!({"to": to}));
    assert_eq!(changes(&back), ["removed /b"]);
}

#[test]
fn without_checkpoints_nothing_is_left_behind() {
    let image = Image::new();
    let mut agent = image.serve(&[]);
    let written = agent.call("write", json!({"path": "/a", "content": "a"}));
    assert_eq!(written["changes"].get("checkpoint"), None);
    agent.call("mkdir", json!({"path": "/d"}));
    assert_eq!(agent.call("branch_list", json!({"checkpoints": true}))["total"], 1);
}

#[test]
fn a_list_of_changes_is_bounded() {
    let image = Image::new();
    let mut agent = image.serve(&[]);
    let dir = tempfile::tempdir().unwrap();
    for number in 0..120 {
        std::fs::write(dir.path().join(number.to_string()), "x").unwrap();
    }
    let from = dir.path().to_str().unwrap();
    agent.call("checkpoint", json!({}));
    vfscale(&["import", "-q", from, "work.vfs:/many"], image.dir.path());
    let diff = agent.call("diff", json!({"a": "main@1", "b": "main", "limit": 3}));
    assert_eq!((&diff["total"], diff["files"].as_array().unwrap().len()), (&json!(121), 3));
    let removed = agent.call("remove", json!({"path": "/many", "recursive": true}));
    assert_eq!(removed["changes"]["total"], 121);
    assert_eq!(removed["changes"]["files"].as_array().unwrap().len(), 50);
    let patch = json!({"a": "main", "b": "main@1", "patch": true});
    assert_eq!(agent.call("diff", patch)["total"], 0);
}

#[test]
fn a_server_of_one_branch_changes_no_other() {
    let image = Image::new();
    vfscale(&["branch", "create", "work.vfs", "t"], image.dir.path());
    let mut agent = image.serve(&["--branch", "t"]);
    assert_eq!(changes(&agent.call("write", json!({"path": "/a", "content": ""}))), ["added /a"]);
    agent.refused(
        "write",
        json!({"branch": "main", "path": "/a", "content": ""}),
        "branch \"t\" only",
    );
    agent.refused("merge", json!({"from": "t", "into": "main"}), "branch \"t\" only");
    agent.refused("branch_fork", json!({"name": "x", "from": "main"}), "branch \"t\" only");
    agent.refused("branch_delete", json!({"name": "main"}), "branch \"t\" only");
    agent.refused("branch_delete", json!({"name": "t"}), "the branch of this server");
    agent.refused("branch_rename", json!({"name": "t", "to": "x"}), "the branch of this server");
    agent.refused("checkpoint", json!({"branch": "main"}), "branch \"t\" only");
    // Others can be read, and forks of its own be changed.
    agent.call("list", json!({"branch": "main"}));
    agent.call("branch_fork", json!({"name": "child"}));
    agent.call("write", json!({"branch": "child", "path": "/b", "content": ""}));
    drop(agent);
    let mut other = image.serve(&["--branch", "t"]);
    other.call("write", json!({"branch": "child", "path": "/c", "content": ""}));
    other.call("branch_fork", json!({"name": "second"}));
    other.call("merge", json!({"from": "child"}));
    other.call("branch_delete", json!({"name": "second"}));
    assert_eq!(other.call("list", json!({}))["entries"].as_array().unwrap().len(), 3);
}

#[test]
fn a_server_that_only_reads_offers_nothing_else() {
    let image = Image::new();
    let mut agent = image.serve(&["--read-only"]);
    let tools = agent.request("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["read", "list", "search", "diff", "branch_list", "log"]);
    assert!(tools.iter().all(|tool| tool["annotations"]["readOnlyHint"] == true));
    for tool in ["write", "run", "merge", "branch_fork", "roll_back"] {
        agent.refused(tool, json!({}), "no tool");
    }
    agent.call("list", json!({}));
    drop(agent);
    let mut agent = image.serve(&["--no-run"]);
    agent.refused("run", json!({"command": "true"}), "no tool \"run\"");
    // An image without branches stays one as long as it is only read.
    agent.call("branch_list", json!({}));
    agent.refused("log", json!({}), "`branch_fork` does that");
}
