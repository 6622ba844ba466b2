use super::*;

#[test]
fn differences_arrive_as_they_were_sent() {
    let path = || PathBuf::from("/a\nb");
    let changes = Changes { content: true, attributes: false, xattrs: true };
    let kinds = [
        DifferenceKind::Added,
        DifferenceKind::Removed,
        DifferenceKind::Replaced,
        DifferenceKind::Moved { from: "/x y".into() },
        DifferenceKind::Changed(changes),
    ];
    let (one, other) = UnixStream::pair().unwrap();
    for kind in kinds {
        let sent = Difference { path: path(), kind };
        send(&one, &sent).unwrap();
        assert_eq!(difference(&wire::receive(&other).unwrap()), Some(sent));
    }
    for wrong in [&["end"][..], &["refused", "why"], &["added", "/x", "y"], &["changed", "/x"]] {
        let wrong: Vec<OsString> = wrong.iter().map(Into::into).collect();
        assert_eq!(difference(&wrong), None);
    }
}
