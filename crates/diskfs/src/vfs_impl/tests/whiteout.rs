//! Whiteouts that a rename leaves under the old name.

use super::*;

const WHITEOUT: RenameFlags = RenameFlags::WHITEOUT;

fn is_whiteout(mounted: &Mounted, path: &str) -> bool {
    let stat = mounted.stat(path);
    (stat.mode, stat.rdev, stat.nlink, stat.size) == (0o020_000, 0, 1, 0)
}

#[test]
fn a_whiteout_takes_the_old_name_in_the_transaction_of_the_rename() {
    let mounted = made(16 * MIB);
    for dir in ["/a", "/b", "/a/moves"] {
        mounted.mkdir(dir);
    }
    mounted.write("/a/f", b"moves");
    mounted.write("/b/taken", b"old");
    mounted.write("/b/kept", b"kept");
    let inodes = mounted.inodes().0;
    mounted.rename("/a/f", "/b/taken", WHITEOUT).unwrap();
    mounted.rename("/a/moves", "/b/moved", WHITEOUT | RenameFlags::NOREPLACE).unwrap();
    let exists = mounted.rename("/b/taken", "/b/kept", WHITEOUT | RenameFlags::NOREPLACE);
    assert_eq!(exists, Err(Errno::EXIST));
    let swap = mounted.rename("/b/taken", "/b/kept", WHITEOUT | RenameFlags::EXCHANGE);
    assert_eq!(swap, Err(Errno::INVAL));
    let check = |mounted: &Mounted| {
        assert!(is_whiteout(mounted, "/a/f") && is_whiteout(mounted, "/a/moves"));
        assert_eq!(mounted.read("/b/taken"), b"moves");
        assert_eq!((mounted.stat("/a").nlink, mounted.stat("/b").nlink), (2, 3));
        assert_eq!(mounted.names("/a"), ["f", "moves"]);
        assert_eq!(mounted.names("/b"), ["kept", "moved", "taken"]);
    };
    check(&mounted);
    mounted.fs.sync_fs().unwrap();
    // Two whiteouts; the replaced file is gone.
    mounted.fs.settle().unwrap();
    assert_eq!(mounted.inodes(), (inodes + 1, 0));
    let mounted = mounted.crashed();
    check(&mounted);
    mounted.unlink("/a/f", AtFlags::empty()).unwrap();
    let mounted = mounted.again();
    assert_eq!(mounted.names("/a"), ["moves"]);
}
