//! `diff --tar`, `apply` and `rebase`, here and by the server of a mount.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::branches::Image;
use crate::common::{can_mount, vfscale};

const PATCH: &str = "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n base\n+more\n";

#[test]
fn layers_and_patches_go_from_branch_to_branch() {
    let image = Image::new(true);
    let [tar, patch] = ["d.tar", "d.patch"].map(|name| image.0.path().join(name));
    let [tar_name, patch_name] = [&tar, &patch].map(|path| path.to_str().unwrap());
    image.write("trial", "/new", "new\n");
    image.write("trial", "/f", "base\nmore\n");
    let into_file = format!("--tar={tar_name}");
    let told = image.call(&["diff", &into_file], &["main", "trial"]);
    assert_eq!((told.status.code(), told.stdout.len()), (Some(1), 0));
    let to_output = image.call(&["diff", "--tar"], &["main", "trial"]).stdout;
    assert_eq!(to_output, fs::read(&tar).unwrap());
    fs::write(&patch, image.call(&["diff", "--patch"], &["main", "trial"]).stdout).unwrap();
    // Nothing is left beside the file, and one that can't be written is an error.
    assert_eq!(fs::read_dir(image.0.path()).unwrap().count(), 3);
    let says = image.bad(2, &["diff", "--tar=/none/d.tar"], &["main", "trial"]);
    assert!(says.contains("/none/d.tar"), "{says}");

    let tried = image.good(&["apply", "--dry-run"], &[tar_name]);
    assert_eq!(tried, "tried: a layer, 3 written, 0 removed\n");
    assert_eq!(image.read("/f"), "base\n");
    assert_eq!(image.good(&["apply"], &[tar_name]), "done: a layer, 3 written, 0 removed\n");
    assert_eq!(image.read("/f"), "base\nmore\n");
    let names = image.call(&["diff", "--name-only"], &["main", "trial"]);
    assert_eq!(String::from_utf8(names.stdout).unwrap(), "/new\n", "another file");

    let place = format!("{}:main", image.path().display());
    let again = vfscale().args(["apply", &place, patch_name]).output().unwrap();
    let says = String::from_utf8(again.stderr).unwrap();
    assert_eq!(again.status.code(), Some(2), "{says}");
    let wrong = "f, line 4: can't be applied: the file is not as the patch has it";
    assert!(says.contains(wrong) && says.contains("nothing was changed"), "{says}");
    image.good(&["branch", "create", "--from", "trial"], &["other"]);
    let mut piped = vfscale();
    piped.args(["apply", "--json", &format!("{}:other", image.path().display()), "-"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = "--- a/new\n+++ /dev/null\n@@ -1 +0,0 @@\n-new\n# changed /x: binary\n";
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let value: serde_json::Value =
        serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(
        (&value["removed"], &value["untold"], &value["done"]),
        (&1.into(), &1.into(), &true.into())
    );
    assert!(image.bad(2, &["apply"], &["/none"]).contains("/none"));
    assert_eq!(image.names(), ["main", "other", "trial"]);
}

#[test]
fn a_branch_is_put_onto_another_one() {
    let image = Image::new(true);
    image.write("trial", "/t", "trial\n");
    image.write("main", "/m", "main\n");
    let planned = image.good(&["rebase", "--dry-run", "--onto", "main"], &["trial"]);
    assert!(planned.starts_with("planned: 1 added"), "{planned}");
    let done = image.good(&["rebase", "--onto", "main"], &["trial"]);
    assert!(done.starts_with("trial@1 has what the branch had\ndone: 1 added"), "{done}");
    assert_eq!(image.names(), ["main", "trial", "trial@1"]);
    let differs = image.call(&["diff", "--name-only"], &["main", "trial"]);
    assert_eq!(String::from_utf8(differs.stdout).unwrap(), "/t\n");
    let again = image.good(&["rebase", "--onto", "main"], &["trial"]);
    assert!(again.starts_with("nothing to do"), "{again}");
    image.write("trial", "/f", "trial\n");
    image.write("main", "/f", "main\n");
    let says = image.call(&["rebase", "--onto", "main", "--strategy", "fail"], &["trial"]);
    assert_eq!(says.status.code(), Some(1));
    assert!(String::from_utf8(says.stdout).unwrap().contains("nothing was changed"));
    assert!(image.bad(2, &["rebase", "--onto", "none"], &["trial"]).contains("none"));
    image.good(&["fsck"], &[]);
}

/// The process that serves the image writes and reads the files that the command has opened.
#[test]
fn the_server_of_a_mount_does_it() {
    if !can_mount() {
        return;
    }
    let image = Image::new(true);
    let (dir, tar) = (image.0.path().join("mnt"), image.0.path().join("d.tar"));
    fs::create_dir(&dir).unwrap();
    let mounted = dir.to_str().unwrap();
    image.good(&["mount", "-b", "--branch", "trial"], &[mounted]);
    fs::write(dir.join("new"), "new\n").unwrap();
    let into_file = format!("--tar={}", tar.display());
    assert_eq!(image.call(&["diff", &into_file], &["main", "trial"]).status.code(), Some(1));
    let listed = Command::new("tar").arg("-tf").arg(&tar).output();
    if let Ok(listed) = listed {
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), "./\nnew\n");
    }
    assert_eq!(
        image.good(&["apply"], &[tar.to_str().unwrap()]),
        "done: a layer, 2 written, 0 removed\n"
    );
    let patch = image.0.path().join("d.patch");
    fs::write(&patch, PATCH).unwrap();
    let place = format!("{}:trial", image.path().display());
    let tried = vfscale().args(["apply", "--dry-run", &place]).arg(&patch).output().unwrap();
    let says = String::from_utf8(tried.stdout).unwrap();
    assert_eq!(says, "tried: a patch, 1 written, 0 removed\n");
    // The mount goes on with what is applied below it.
    let done = vfscale().args(["apply", &place]).arg(&patch).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "base\nmore\n");
    image.good(&["branch", "create"], &["third"]);
    image.good(&["apply"], &[patch.to_str().unwrap()]);
    let done = image.good(&["rebase", "--onto", "main"], &["third"]);
    assert!(done.starts_with("third@1 has what the branch had\n"), "{done}");
    let refused = image.bad(2, &["rebase", "--onto", "main"], &["trial"]);
    assert!(refused.contains("in use"), "{refused}");
    assert!(vfscale().arg("umount").arg(&dir).status().unwrap().success());
    assert_eq!(image.read("/f"), "base\nmore\n");
    image.good(&["fsck"], &[]);
}
