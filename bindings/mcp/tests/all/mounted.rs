//! Tools while branches are mounted, and commands in them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use vfscale_harness::wait_until;

use crate::client::{Image, can_mount, outcome, vfscale};

/// A command that runs until a file has contents.
const UNTIL_END: &str = "touch begun; until test -s end; do sleep 0.02; done; cat end";

/// A directory at which `main` is mounted, until this is dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(image: &Image) -> Mount {
        let dir = image.dir.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let words = ["mount", "--background", "work.vfs", dir.to_str().unwrap()];
        vfscale(&words, image.dir.path());
        Mount(dir)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        vfscale(&["umount", self.0.to_str().unwrap()], Path::new("/"));
    }
}

#[test]
fn a_command_runs_with_limits() {
    if !can_mount() {
        return;
    }
    let image = Image::new();
    let mut agent = image.serve(&[]);
    agent.call("mkdir", json!({"path": "/sub"}));
    let command = "pwd | grep -c sub; echo wrong >&2; echo new >file; exit 3";
    let ran = agent.call("run", json!({"command": command, "directory": "/sub"}));
    assert_eq!(
        (&ran["status"], &ran["stdout"], &ran["stderr"]),
        (&json!(3), &json!("1\n"), &json!("wrong\n"))
    );
    assert_eq!(
        (&ran["ended"], &ran["changes"]["files"][0]["path"]),
        (&json!("itself"), &json!("/sub/file"))
    );
    let large =
        agent.call("run", json!({"command": "seq 1 100000; seq 1 10 >&2", "output_bytes": 100}));
    let stdout = large["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("1\n2\n") && stdout.ends_with("100000\n") && stdout.len() < 200);
    assert_eq!(large["omitted_bytes"].as_u64().unwrap() + 100, 588_895);
    let late = agent.call("run", json!({"command": "echo a; sleep 1000", "timeout_seconds": 1}));
    assert_eq!((&late["ended"], &late["stdout"]), (&json!("timed_out"), &json!("a\n")));
    let dropped = agent.call("run", json!({"command": "rm -r sub; ls", "discard": true}));
    assert_eq!((&dropped["stdout"], dropped.get("changes")), (&json!(""), None));
    assert_eq!(agent.call("list", json!({}))["entries"].as_array().unwrap().len(), 1);
    let missing = agent.call("run", json!({"command": "true", "directory": "/none"}));
    assert_ne!(missing["status"], 0);
    agent.refused("run", json!({"command": "true", "timeout_seconds": 0}), "1 to 3600");
    agent.refused("run", json!({"command": "a\0b"}), "");
    agent.call("checkpoint", json!({}));
    agent.refused("run", json!({"branch": "main@1", "command": "true"}), "can only be read");
}

#[test]
fn a_call_that_is_cancelled_ends_its_command() {
    if !can_mount() {
        return;
    }
    let image = Image::new();
    let (mut agent, mut other) = (image.serve(&[]), image.serve(&[]));
    let call = json!({"name": "run", "arguments": {"command": "touch begun; sleep 1000"}});
    let id = agent.ask("tools/call", call);
    wait_until("the command", || other.try_call("read", json!({"path": "/begun"})).is_ok());
    let params = json!({"requestId": id, "reason": "test"});
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    // A later call of the branch comes after it.
    agent.call("write", json!({"path": "/after", "content": ""}));
    let records = agent.audit();
    assert_eq!((&records[0]["tool"], &records[1]["tool"]), (&json!("run"), &json!("write")));
    assert_eq!(records[0]["changes"]["files"][0]["path"], "/begun");
}

#[test]
fn all_tools_work_while_commands_run_in_branches() {
    if !can_mount() {
        return;
    }
    let image = Image::new();
    let (mut agent, mut other) = (image.serve(&[]), image.serve(&[]));
    for name in ["x", "y"] {
        agent.call("branch_fork", json!({"name": name}));
    }
    let call = json!({"name": "run", "arguments": {"branch": "x", "command": UNTIL_END}});
    let id = agent.ask("tools/call", call);
    let begun = json!({"branch": "x", "path": "/begun"});
    wait_until("the command", || other.try_call("read", begun.clone()).is_ok());
    // In the other branch, which nobody has mounted.
    let write = json!({"branch": "y", "path": "/d/f", "content": "a\nb\n", "parents": true});
    assert_eq!(other.call("write", write)["changes"]["total"], 2);
    let edit = json!({"branch": "y", "path": "/d/f", "old": "b", "new": "c"});
    assert_eq!(other.call("edit", edit)["line"], 2);
    other.call("move", json!({"branch": "y", "from": "/d/f", "to": "/g"}));
    other.call("mkdir", json!({"branch": "y", "path": "/e"}));
    other.call("remove", json!({"branch": "y", "path": "/d"}));
    let found = other.call("search", json!({"branch": "y", "content": "c"}));
    assert_eq!(found["matches"][0]["path"], "/g");
    other.refused("read", json!({"branch": "y", "path": "/d/f"}), "No such file");
    other.call("checkpoint", json!({"branch": "y"}));
    assert_eq!(other.call("read", json!({"branch": "y@1", "path": "/g"}))["content"], "a\nc\n");
    assert_eq!(other.call("diff", json!({"b": "y"}))["total"], 2);
    other.call("merge", json!({"from": "y"}));
    // The tree of the command goes on with what is merged into its branch.
    other.call("merge", json!({"from": "y", "into": "x"}));
    assert_eq!(other.call("read", json!({"branch": "x", "path": "/g"}))["content"], "a\nc\n");
    other.call("write", json!({"branch": "x", "path": "/end", "content": "bye"}));
    let ran = outcome(&agent.reply(id)).unwrap();
    assert_eq!((&ran["status"], &ran["stdout"]), (&json!(0), &json!("bye")));
    drop((agent, other));
    assert!(vfscale(&["fsck", "work.vfs"], image.dir.path()).contains('y'));
}

#[test]
fn links_in_a_mount_lead_to_no_file_of_the_host() {
    if !can_mount() {
        return;
    }
    let image = Image::new();
    let mut agent = image.serve(&[]);
    let link = "ln -s /etc/hostname abs; ln -s ../../../../../../etc/hostname rel; ln -s /etc dir";
    agent.call("run", json!({"command": link}));
    let mount = Mount::new(&image);
    for path in ["/abs", "/rel", "/dir/hostname"] {
        agent.refused("read", json!({"path": path}), "No such file");
    }
    agent.refused("write", json!({"path": "/dir/x", "content": ""}), "No such file");
    // A branch that somebody has mounted is used where it is.
    agent.call("write", json!({"path": "/here", "content": "here"}));
    assert_eq!(std::fs::read_to_string(mount.0.join("here")).unwrap(), "here");
    agent.refused("run", json!({"command": "true"}), "mounted at");
    agent.call("remove", json!({"path": "/abs"}));
    drop(mount);
    assert_eq!(agent.call("list", json!({}))["entries"].as_array().unwrap().len(), 3);
}

#[test]
fn a_server_that_is_ended_ends_its_commands() {
    if !can_mount() {
        return;
    }
    let image = Image::new();
    let (mut agent, mut other) = (image.serve(&[]), image.serve(&[]));
    let call = json!({"name": "run", "arguments": {"command": "touch begun; sleep 1000"}});
    agent.ask("tools/call", call);
    wait_until("the command", || other.try_call("read", json!({"path": "/begun"})).is_ok());
    let pid = agent.child.id().to_string();
    let mut kill = Command::new("kill");
    assert!(kill.arg(&pid).stdout(Stdio::null()).status().unwrap().success());
    assert!(agent.child.wait().unwrap().success());
    // The mount has gone with the command.
    let path = image.path().canonicalize().unwrap();
    let is_mounted = || vfscale(&["mounts"], image.dir.path()).contains(path.to_str().unwrap());
    wait_until("the end of the mount", || !is_mounted());
    assert_eq!(other.call("read", json!({"path": "/begun"}))["content"], "");
}

/// Race: servers of one image open it by turns, and run commands in branches beside each other; a
/// merge into `main` meets reads of it. Each call waits for its turn.
#[test]
fn many_agents_work_in_one_image() {
    let image = Image::new();
    let runs = can_mount();
    std::thread::scope(|scope| {
        for agent in 0..4 {
            let image = &image;
            scope.spawn(move || {
                let (mut client, branch) = (image.serve(&[]), format!("b{agent}"));
                client.call("branch_fork", json!({"name": branch}));
                for file in 0..4 {
                    let path = format!("/{agent}-{file}");
                    let write = json!({"branch": branch, "path": path, "content": path});
                    assert_eq!(client.call("write", write)["changes"]["total"], 1);
                    client.call("list", json!({}));
                    if runs && file == agent {
                        let run = json!({"branch": branch, "command": "ls | wc -l"});
                        assert_eq!(client.call("run", run)["stdout"], format!("{}\n", file + 1));
                    }
                    let read = client.call("read", json!({"branch": branch, "path": path}));
                    assert_eq!(read["content"], path);
                }
                assert_eq!(client.call("merge", json!({"from": branch}))["added"], 4);
            });
        }
    });
    let mut agent = image.serve(&[]);
    assert_eq!(agent.call("list", json!({}))["entries"].as_array().unwrap().len(), 16);
    assert_eq!(agent.call("branch_list", json!({"checkpoints": true}))["total"], 5);
    drop(agent);
    vfscale(&["fsck", "work.vfs"], image.dir.path());
}
