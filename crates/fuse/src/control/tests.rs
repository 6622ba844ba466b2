use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, SystemTime};

use vfscale::BranchInfo;
use vfscale::pool::{Changes, Difference, DifferenceKind, LogEntry, LogKind, LogMerge};

use super::message::{receive, receive_fd, send, send_fd};
use super::*;

const AT_ONCE: Duration = Duration::from_secs(10);

#[test]
fn messages_arrive_as_they_were_sent() {
    let (one, other) = UnixStream::pair().unwrap();
    let sent = [OsString::from_vec(vec![b'a', 0xff, b'\n']), "".into(), "x".repeat(100_000).into()];
    std::thread::scope(|scope| {
        scope.spawn(|| send(&one, &sent).unwrap());
        assert_eq!(receive(&other).unwrap(), sent);
    });
    send_fd(&one, other.as_fd()).unwrap();
    let same = UnixStream::from(receive_fd(&other).unwrap());
    send(&one, &["x".into()]).unwrap();
    assert_eq!(receive(&same).unwrap(), ["x"]);
    let other = Connection::accepted(other, AT_ONCE).unwrap();
    assert!(!other.is_gone());
    drop(one);
    assert!(other.is_gone() && other.await_end(Some(AT_ONCE)));
    assert_eq!(other.next().unwrap_err().errno(), Errno::PIPE);
}

#[test]
fn wrong_messages_are_refused() {
    let wrong: [(&[u8], Errno); 5] = [
        (&[0; 4], Errno::PROTO),
        (&[255; 4], Errno::PROTO),
        (&[1, 0, 0, 0, b'x'], Errno::PROTO),
        (&[2, 0, 0, 0, b'x', 0], Errno::PROTO),
        (&[9, 0, 0, 0, b'x', 0], Errno::PIPE),
    ];
    for (bytes, errno) in wrong {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(bytes).unwrap();
        drop(one);
        let other = Connection::accepted(other, AT_ONCE).unwrap();
        assert_eq!(other.next().unwrap_err().errno(), errno, "{bytes:?}");
    }
    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(&[0]).unwrap();
    assert_eq!(receive_fd(&other).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn requests_are_decoded_as_they_were_encoded() {
    let name = || String::from("a b");
    let odd = OsString::from_vec(vec![0xff]);
    let diff = |with_base: bool, paths| {
        let (a, b, as_patch) = (name(), "b".into(), !with_base);
        Request::Diff { a, b, with_base, as_patch, paths }
    };
    let mut requests = vec![
        Request::Grow(None, Growth::To(u64::MAX)),
        Request::Grow(Some("a b".into()), Growth::By(4096)),
        Request::GrowSpace(None),
        Request::GrowSpace(Some(Growth::By(1 << 30))),
        Request::Trim(FstrimRange { start: 1, len: u64::MAX, minlen: 3 }),
        Request::Statistics,
        Request::Freeze(Duration::from_millis(1500)),
        Request::Branches,
        Request::Places,
        Request::Delete(name()),
        Request::Rename(name(), "n".repeat(500)),
        Request::Limit(name(), None),
        Request::Limit(name(), Some(u64::MAX)),
        Request::Rollback(String::new(), None),
        Request::Rollback("a".into(), Some("a@1".into())),
        Request::Checkpoint("a".into(), "the text".into()),
        Request::Log("a".into()),
        Request::Adopt(name(), "c".into()),
        diff(false, vec![]),
        diff(true, vec!["/a b".into(), odd.clone()]),
        Request::Mount { branch: name(), namespaces: odd.clone(), arguments: vec![odd.clone()] },
        Request::Wait("0:49".into()),
        Request::State(name()),
        Request::Check(name(), 3),
        Request::View(name()),
        Request::Apply { branch: name(), strip: 3, dry_run: true },
        Request::Send { branch: name(), since: None, skip: 0 },
        Request::Send { branch: name(), since: Some("b".into()), skip: u64::MAX },
        Request::Receive(None),
        Request::Receive(Some(name())),
        Request::Layer { a: name(), b: "b".into(), with_base: true, paths: vec![odd.clone()] },
        Request::Ingest { branch: name(), base: "b".into(), userxattr: true },
    ];
    for flags in 0..8 {
        let [read_only, as_synced, temporary] = [1, 2, 4].map(|bit| flags & bit != 0);
        let (parent, name) = ("main".into(), name());
        let strategy = vfscale::Strategy::ALL[flags % 4];
        requests.push(Request::Merge {
            from: "a".into(),
            into: "b".into(),
            strategy,
            dry_run: read_only,
            is_rebase: as_synced,
        });
        requests.push(Request::Fork { parent, name, read_only, as_synced, temporary });
    }
    for request in requests {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
    let wrong: [&[&str]; 5] =
        [&[], &["grow"], &["grow", "-1"], &["fork", "a", "b", "yes", "no", "no"], &["other"]];
    for wrong in wrong {
        let wrong: Vec<OsString> = wrong.iter().map(Into::into).collect();
        assert_eq!(Request::decode(&wrong), None, "{wrong:?}");
    }
    assert_eq!(Request::decode(&["delete".into(), odd]), None, "no branch has that name");
}

#[test]
fn replies_are_decoded_as_they_were_encoded() {
    let path = || std::path::PathBuf::from(OsString::from_vec(b"/a\n\xff".to_vec()));
    let changes = Changes { content: true, attributes: false, xattrs: true };
    let kinds = [
        DifferenceKind::Added,
        DifferenceKind::Removed,
        DifferenceKind::Replaced,
        DifferenceKind::Moved { from: "/x y".into() },
        DifferenceKind::Changed(changes),
    ];
    let (mode, size) = (0o100_644, 9);
    let difference = |kind| Reply::Difference(Difference { path: path(), kind, mode, size });
    let (name, parent) = ("a".into(), Some("b".into()));
    let (made, text) = (Some(SystemTime::UNIX_EPOCH + Duration::from_nanos(7)), "x".into());
    let (size, depth, own, limit) = (1, 2, 3, Some(4));
    let info = BranchInfo { name, parent, size, read_only: true, depth, own, limit, made, text };
    let merge = LogMerge { node: 5, branch: "from".into() };
    let entry = |merges, branches| LogEntry {
        node: 7,
        kind: LogKind::Merge,
        time: made,
        text: "a text".into(),
        parent: Some(3),
        merges,
        branches,
    };
    let mut replies = vec![
        Reply::State([0xfe; 16]),
        Reply::End,
        Reply::Refused(Error::new(Errno::BUSY, "it is in use\n")),
        Reply::Number(7),
        Reply::Statistics(Box::default()),
        Reply::Branch(BranchInfo { read_only: false, parent: None, made: None, ..info.clone() }),
        Reply::Branch(BranchInfo { limit: None, ..info.clone() }),
        Reply::Entry(entry(Vec::new(), Vec::new())),
        Reply::Entry(entry(vec![merge], vec!["b".into(), "c".into()])),
        Reply::Branch(info),
        Reply::Kept("main@1".into()),
        Reply::Checked(Checked { status: 4, words: "a\nb".into(), json: "{}".into() }),
        Reply::Text(OsString::from_vec(b"+a\n\xff".to_vec())),
        Reply::Stage(Stage::Last),
        Reply::Place { branch: "a b".into(), device: "0:49".into(), dir: path() },
    ];
    replies.extend(kinds.map(difference));
    for (number, kind) in vfscale::ConflictKind::ALL.into_iter().enumerate() {
        let beside = (number % 2 == 0).then(path);
        replies.push(Reply::Conflict(vfscale::Conflict { path: path(), kind, beside }));
    }
    let merged = vfscale::Merged { added: 1, removed: 2, moved: 3, ..Default::default() };
    replies.push(Reply::Merged(vfscale::Merged { kept: Some("a@1".into()), ..merged.clone() }));
    replies.push(Reply::Merged(vfscale::Merged { changed: 4, texts: 5, is_done: true, ..merged }));
    for reply in replies {
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }
    let difference = ["difference", "added", "1", "2", "/x", "y"];
    for wrong in [
        &difference[..],
        &["difference", "added", "1", "x", "/x"],
        &["stage", "x"],
        &["refused", "why"],
    ] {
        let wrong: Vec<OsString> = wrong.iter().map(Into::into).collect();
        assert_eq!(Reply::decode(&wrong), None);
    }
}

/// A server that has replied once, and then hangs.
#[test]
fn each_reply_is_waited_for_within_the_limit() {
    let (stream, server) = UnixStream::pair().unwrap();
    let server = Connection::accepted(server, AT_ONCE).unwrap();
    server.reply(&Reply::Number(1)).unwrap();
    let connection = Connection::accepted(stream, Duration::from_millis(50)).unwrap();
    let mut taken = 0;
    let asked = connection.ask(&Request::Branches, |_| {
        taken += 1;
        true
    });
    let error = asked.unwrap_err();
    assert_eq!((taken, error.errno()), (1, Errno::TIMEDOUT));
    assert!(error.to_string().contains("does not reply any more; it may still do"), "{error}");
    assert!(!server.await_end(Some(AT_ONCE)) || !server.is_gone(), "the request is there");
}

/// A server that accepts nobody, and whose queue of those who wait is full.
#[test]
fn a_full_queue_is_waited_for_within_the_limit() {
    let digits = format!("{:032x}", std::process::id());
    let name = SocketAddr::from_abstract_name(format!("vfscale-{digits}")).unwrap();
    let server = UnixListener::bind_addr(&name).unwrap();
    rustix::net::listen(&server, 0).unwrap();
    let limit = Some(Duration::from_millis(50));
    let address = |name: &str| format!("{name}{digits}").as_bytes().try_into().unwrap();
    let _first = Connection::open(&address(&digits), limit).unwrap();
    let error = Connection::open(&address(&digits), limit).unwrap_err();
    assert_eq!(error.errno(), Errno::TIMEDOUT, "{error}");
    let refused = |name: &str| Connection::open(&address(name), limit).unwrap_err().errno();
    assert_eq!(refused(&"f".repeat(32)), Errno::CONNREFUSED);
    assert_eq!(refused(&"/".repeat(32)), Errno::PROTO, "the name of another program's socket");
}

/// A program that has nothing more to say is not one that is gone.
#[test]
fn an_end_of_requests_is_told_from_a_hang_up() {
    let (stream, server) = UnixStream::pair().unwrap();
    let server = Connection::accepted(server, AT_ONCE).unwrap();
    let program = Connection::accepted(stream, AT_ONCE).unwrap();
    let clone = program.try_clone().unwrap();
    assert!(!server.is_gone() && !server.is_hung_up());
    program.finish().unwrap();
    assert!(server.await_end(None) && !server.is_hung_up());
    server.reply(&Reply::Stage(Stage::Unused)).unwrap();
    drop(program);
    assert_eq!(clone.next().unwrap(), Some(Reply::Stage(Stage::Unused)));
    assert!(!server.is_hung_up());
    drop(clone);
    assert!(server.is_hung_up());
}
