//! `branch send` and `branch receive`, here and by the server of a mount.

use std::fs::{self, File};
use std::process::{Output, Stdio};

use crate::branches::Image;
use crate::common::{can_mount, vfscale};

/// Sends a branch of an image, with options.
fn send(image: &Image, branch: &str, options: &[&str]) -> Output {
    let place = format!("{}:{branch}", image.path().display());
    vfscale().args(["branch", "send", &place]).args(options).output().unwrap()
}

/// Returns the stream of a branch.
fn stream(image: &Image, branch: &str, options: &[&str]) -> Vec<u8> {
    let output = send(image, branch, options);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Receives a stream, which is put in a file first.
fn receive(image: &Image, stream: &[u8], options: &[&str]) -> Output {
    let file = image.0.path().join("stream");
    fs::write(&file, stream).unwrap();
    let mut command = vfscale();
    command.args(["branch", "receive"]).arg(image.path()).args(options);
    command.stdin(File::open(&file).unwrap()).output().unwrap()
}

fn received(image: &Image, stream: &[u8], options: &[&str]) -> String {
    let Output { status, stdout, stderr } = receive(image, stream, options);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// Returns what is said about a stream that is refused.
fn refused(image: &Image, stream: &[u8]) -> String {
    let Output { status, stderr, .. } = receive(image, stream, &[]);
    assert_eq!(status.code(), Some(1));
    String::from_utf8(stderr).unwrap()
}

#[test]
fn a_branch_travels_to_another_image() {
    let (image, other) = (Image::new(true), Image::new(true));
    assert_eq!(image.good(&["checkpoint"], &[]), "main@1\n");
    let whole = stream(&image, "main@1", &[]);
    image.write("main", "/f", "changed\n");
    assert_eq!(image.good(&["checkpoint"], &["-m", "a text"]), "main@2\n");
    let since = stream(&image, "main@2", &["--since", "main@1"]);
    assert!(since.len() < 1 << 20, "{} bytes", since.len());

    assert!(refused(&other, &since).contains("goes on from \"main@1\", which has not come"));
    assert_eq!(received(&other, &whole, &[]), "main@1\n");
    // A stream that was cut goes on at its end.
    let (cut, rest) = since.split_at(5000);
    assert!(refused(&other, cut).contains("it was cut"));
    let skip = cut.len().to_string();
    assert_eq!(stream(&image, "main@2", &["--since", "main@1", "--skip", &skip]), rest);
    let told = received(&other, &since, &["--json", "second"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["branch"], &told["bytes"]), (&"second".into(), &since.len().into()));
    assert_eq!(other.names(), ["main", "second", "trial"]);
    assert!(refused(&other, &since).contains("\"second\" has what the stream has"));
    let list = other.good(&["branch", "list"], &[]);
    assert!(list.contains("second: ") && list.contains(": a text\n"), "{list}");
    let cat = |branch| other.good(&["run", "--branch", branch, "--read-only"], &["--", "cat", "f"]);
    if can_mount() {
        assert_eq!([cat("main@1"), cat("second")], ["base\n", "changed\n"]);
    }
    assert!(refused(&other, &whole).contains("branch \"main@1\" exists"));
    assert!(
        refused(&other, b"a letter, and no stream: it is longer than a header").contains("none")
    );
    for (why, branch, options) in [
        ("no branch", "none", &[][..]),
        ("no branch", "main@2", &["--since", "none"]),
        ("can be written", "main@2", &["--since", "main"]),
        ("another one each time", "main", &["--skip", "1"]),
    ] {
        let output = send(&image, branch, options);
        let says = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && says.contains(why), "{says}");
        assert!(output.stdout.is_empty());
    }
    other.good(&["fsck"], &[]);
}

/// A volume without branches is not made a pool by a stream.
#[test]
fn a_volume_without_branches_stays_one() {
    let (image, plain) = (Image::new(true), Image::new(false));
    let whole = stream(&image, "main", &[]);
    assert!(refused(&plain, &whole).contains("`vfscale branch create` makes the first one"));
    assert_eq!(plain.names(), [""; 0]);
}

#[test]
fn the_server_of_a_mount_sends_and_receives() {
    if !can_mount() {
        return;
    }
    let (image, other) = (Image::new(true), Image::new(true));
    let dirs = [&image, &other].map(|image| image.0.path().join("mnt"));
    for (image, dir) in [&image, &other].into_iter().zip(&dirs) {
        fs::create_dir(dir).unwrap();
        image.good(&["mount", "-b"], &[dir.to_str().unwrap()]);
    }
    fs::write(dirs[0].join("new"), "not synced\n").unwrap();
    image.good(&["checkpoint"], &[]);
    let whole = stream(&image, "main@1", &[]);
    fs::write(dirs[0].join("new"), "second\n").unwrap();
    image.good(&["checkpoint"], &[]);
    assert_eq!(received(&other, &whole, &[]), "main@1\n");
    // From process to process, without a file.
    let place = format!("{}:main@2", image.path().display());
    let mut sender = vfscale();
    sender.args(["branch", "send", &place, "--since", "main@1"]);
    let mut sender = sender.stdout(Stdio::piped()).spawn().unwrap();
    let mut receiver = vfscale();
    receiver.args(["branch", "receive"]).arg(other.path()).stdin(sender.stdout.take().unwrap());
    let told = receiver.output().unwrap();
    assert!(sender.wait().unwrap().success());
    assert_eq!(String::from_utf8(told.stdout).unwrap(), "main@2\n");
    other.good(&["branch", "create", "--from", "main@2"], &["copy"]);
    assert!(refused(&other, &whole).contains("branch \"main@1\" exists"));
    other.good(&["branch", "delete"], &["main@1"]);
    assert!(refused(&other, &whole[..whole.len() - 1]).contains("it was cut"));
    assert_eq!(other.names(), ["copy", "main", "trial"]);
    for dir in &dirs {
        assert!(vfscale().arg("umount").arg(dir).status().unwrap().success());
    }
    let copy = format!("{}:copy:/new", other.path().display());
    let read = vfscale().args(["cat", &copy]).output().unwrap();
    assert_eq!(String::from_utf8(read.stdout).unwrap(), "second\n");
    other.good(&["fsck"], &[]);
}
