use std::os::fd::AsFd;

use super::*;

#[test]
fn messages_arrive_as_they_were_sent() {
    let (one, other) = UnixStream::pair().unwrap();
    let bytes = OsString::from_vec(vec![b'a', 0xff, b'\n']);
    let long = "x".repeat(100_000);
    std::thread::scope(|scope| {
        scope.spawn(|| send(&one, &[&bytes, OsStr::new(""), OsStr::new(&long)]).unwrap());
        assert_eq!(receive(&other).unwrap(), [bytes.clone(), "".into(), long.clone().into()]);
    });
    send_fd(&one, other.as_fd()).unwrap();
    let same = UnixStream::from(receive_fd(&other).unwrap());
    say(&one, &["x"]).unwrap();
    assert_eq!(receive(&same).unwrap(), ["x"]);
    assert!(!is_gone(&other));
    drop(one);
    assert!(is_gone(&other));
    assert_eq!(receive(&other).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn wrong_messages_are_refused() {
    let wrong: [(&[u8], io::ErrorKind); 4] = [
        (&[0; 4], io::ErrorKind::InvalidData),
        (&[255; 4], io::ErrorKind::InvalidData),
        (&[1, 0, 0, 0, b'x'], io::ErrorKind::InvalidData),
        (&[9, 0, 0, 0, b'x', 0], io::ErrorKind::UnexpectedEof),
    ];
    for (bytes, kind) in wrong {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(bytes).unwrap();
        drop(one);
        assert_eq!(receive(&other).unwrap_err().kind(), kind, "{bytes:?}");
    }
    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(&[0]).unwrap();
    assert_eq!(receive_fd(&other).unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert_eq!(device_of(OsStr::new("1:")), None);
    assert_eq!(device_of(OsStr::new("0:49")), Some((0, 49)));
}
