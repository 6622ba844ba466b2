//! Tests of what a server says, and of one that says nothing.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::*;

/// Clears the screen, and passes for another line.
const HOSTILE: &str = "no\u{1b}[2J\u{7}\nvfscale: it was \\x1b";
const SHOWN: &str = "no\\x1b[2J\\x07\\nvfscale: it was \\x1b";

/// Returns a socket at whose other end a server has said this, and goes on.
fn said(replies: &[&[&str]]) -> (UnixStream, UnixStream) {
    let (stream, server) = UnixStream::pair().unwrap();
    for reply in replies {
        wire::say(&server, reply).unwrap();
    }
    (stream, server)
}

#[test]
fn texts_of_a_server_steer_no_terminal() {
    let shown = |failure: Failure| failure.to_string();
    let image = PathBuf::from("disk.vfs");
    let (stream, _server) = said(&[&["refused", HOSTILE]]);
    let attachment = Attachment::default();
    let ready = Ready { stream, image: image.clone(), attachment };
    assert_eq!(shown(ready.expect("ready").unwrap_err()), format!("disk.vfs: {SHOWN}"));
    let (stream, _server) = said(&[&["failed", HOSTILE]]);
    let mount = Elsewhere { stream, image, dir: PathBuf::from("/"), device: (0, 0) };
    assert_eq!(shown(mount.wait(None).unwrap_err()), format!("disk.vfs: {SHOWN}"));
    let (stream, _server) = said(&[&["refused", HOSTILE]]);
    assert_eq!(converse(&stream, &[OsStr::new("x")], |_| false).unwrap_err(), SHOWN);
    let (stream, _server) = said(&[&["failed", HOSTILE]]);
    assert_eq!(Awaited(stream).wait(AT_ONCE), Ended::Failed(SHOWN.into()));
}

/// A server that has replied once, and then hangs.
#[test]
fn each_reply_is_waited_for_within_the_limit() {
    let (stream, _server) = said(&[&["added", "/f"]]);
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut taken = 0;
    let why = converse(&stream, &[OsStr::new("x")], |_| {
        taken += 1;
        true
    });
    assert_eq!(taken, 1);
    let why = why.unwrap_err();
    assert!(why.contains("does not reply any more; it may still do"), "{why}");
}

/// A server that accepts nobody, and whose queue of those who wait is full.
#[test]
fn a_full_queue_is_waited_for_within_the_limit() {
    let name = format!("vfscale-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let server = UnixListener::bind_addr(&address).unwrap();
    rustix::net::listen(&server, 0).unwrap();
    let limit = Duration::from_millis(50);
    let _first = connect(&name, limit).unwrap();
    let error = connect(&name, limit).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    assert_eq!(
        connect("vfscale-none", limit).unwrap_err().kind(),
        io::ErrorKind::ConnectionRefused
    );
}

/// The effect of a request may end with its process.
#[test]
fn the_process_of_a_request_lives_as_long_as_its_handle() {
    let pid = || Ok(std::process::id().to_le_bytes().to_vec());
    let (bytes, caller) = Caller::start(AT_ONCE, pid).unwrap();
    let process = format!("/proc/{}", u32::from_le_bytes(bytes.try_into().unwrap()));
    assert!(Path::new(&process).exists());
    drop(caller);
    assert!(!Path::new(&process).exists());
}
