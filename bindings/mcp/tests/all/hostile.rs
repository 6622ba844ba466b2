//! Arguments and messages that no honest client sends.

use serde_json::json;

use crate::client::{Client, Image};

#[test]
fn hostile_arguments_are_refused_and_the_server_goes_on() {
    let image = Image::new();
    let mut agent = image.serve(&[]);
    agent.call("write", json!({"path": "/f", "content": "f"}));
    for path in ["..", "/../../etc/passwd", "/a/../../b", "", "/\0", &"a/".repeat(4000)] {
        agent.refused("read", json!({"path": path}), "is no path in a branch");
        agent.refused("write", json!({"path": path, "content": ""}), "is no path in a branch");
    }
    agent.refused("read", json!({"path": format!("/{}", "n".repeat(300))}), "too long");
    agent.refused("read", json!({"path": ["/f"]}), "wrong arguments");
    agent.refused("read", json!({"path": "/f", "offset": 1e40}), "wrong arguments");
    agent.refused("write", json!({"path": "/f", "content": {"a": 1}}), "wrong arguments");
    for branch in ["nope", "", "--force", "-o", "main/../x", "a\nb", "\u{1}", "@", "main@99"] {
        agent.refused("read", json!({"branch": branch, "path": "/f"}), "");
        agent.refused("write", json!({"branch": branch, "path": "/f", "content": ""}), "");
        agent.refused("branch_delete", json!({"name": branch}), "");
        agent.refused("roll_back", json!({"to": branch}), "");
        agent.refused("merge", json!({"from": branch}), "");
        agent.refused("diff", json!({"b": branch}), "");
        agent.refused("run", json!({"branch": branch, "command": "true"}), "");
    }
    agent.refused("branch_fork", json!({"name": "a/b"}), "");
    agent.refused("branch_fork", json!({"name": "x".repeat(100_000)}), "");
    agent.refused("list", json!({"branch": 3}), "wrong arguments");
    agent.refused("nothing", json!({}), "no tool \"nothing\"");
    let unknown = agent.request("resources/read", json!({"uri": "file:///etc/passwd"}));
    assert!(unknown["error"]["message"].as_str().unwrap().contains("vfscale://audit"));
    assert_eq!(agent.call("read", json!({"path": "/f"}))["content"], "f");
    assert_eq!(agent.call("branch_list", json!({"checkpoints": true}))["total"], 1);
}

#[test]
fn large_contents_have_a_limit() {
    let image = Image::new();
    let mut agent = image.serve(&[]);
    let megabytes = "x".repeat(4 << 20);
    let written = agent.call("write", json!({"path": "/large", "content": megabytes}));
    assert_eq!(written["size"], 4 << 20);
    let read = agent.call("read", json!({"path": "/large", "length": 1 << 20}));
    assert_eq!(read["next_offset"], 1 << 20);
    let much = json!({"path": "/much", "content": "x".repeat(17 << 20)});
    agent.refused("write", much, "mode `append`");
    // More than the image has.
    let full = "x".repeat(12 << 20);
    let mut last = Ok(json!(null));
    for number in 0..12 {
        let arguments = json!({"path": format!("/full{number}"), "content": full});
        last = agent.try_call("write", arguments);
        if last.is_err() {
            break;
        }
    }
    let why = last.unwrap_err();
    assert!(why.contains("the image is full") && why.contains("`roll_back` to main@"), "{why}");
    agent.call("remove", json!({"path": "/full0"}));
}

#[test]
fn a_server_without_an_image_says_why() {
    let image = Image::new();
    let missing = image.dir.path().join("missing.vfs");
    let branch = ["--branch", "none"];
    for (options, path) in [(&[][..], missing), (&branch[..], image.path())] {
        let mut server = Client::start(options, &path);
        assert_eq!(server.child.wait().unwrap().code(), Some(1));
    }
}
