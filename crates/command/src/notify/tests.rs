//! Tests of messages to a service manager.

use super::*;

fn received(socket: &UnixDatagram) -> String {
    let mut lines = [0; 100];
    let length = socket.recv(&mut lines).unwrap();
    String::from_utf8(lines[..length].to_vec()).unwrap()
}

#[test]
fn sockets_have_paths_or_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    assert!(send(path.as_os_str(), "READY=1").is_err());
    let manager = UnixDatagram::bind(&path).unwrap();
    send(path.as_os_str(), "READY=1\nSTATUS=mounted").unwrap();
    assert_eq!(received(&manager), "READY=1\nSTATUS=mounted");
    let name = format!("vfscale-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = UnixDatagram::bind_addr(&address).unwrap();
    send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
    assert_eq!(received(&manager), "STOPPING=1");
}
