//! Tests of the options of mounts.

use super::*;

/// Returns the options after several `-o`.
fn all(texts: &[&str]) -> MountOptions {
    let mut all = MountOptions::default();
    texts.iter().try_for_each(|text| all.read(text)).unwrap();
    all
}

/// Applies later options to `before`.
fn later(before: &MountOptions, text: &str) -> MountOptions {
    let mut options = before.clone();
    options.read(text).unwrap();
    options
}

#[test]
fn owners_are_two_numbers() {
    assert_eq!(parse_owner("1000:100"), Ok((1000, 100)));
    assert_eq!(parse_owner("0:0"), Ok((0, 0)));
    for text in ["", "1000", "1000:", ":100", "me:100", "1:2:3", "-1:0", "4294967295:0", "1.100"] {
        assert!(parse_owner(text).unwrap_err().contains(&format!("`{text}`")), "{text}");
    }
}

#[test]
fn options_of_mount_are_taken() {
    let o = parse("ro,nosuid,nodev,noexec,size=64M,nr_inodes=10,mode=1777,uid=1,gid=2").unwrap();
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    assert_eq!(o.apply(MountFlags::empty()), flags);
    assert_eq!(o.fs, "size=64M,nr_inodes=10,mode=1777,uid=1,gid=2".parse().unwrap());
}

#[test]
fn later_options_win() {
    assert!(all(&["idmap", "ro"]).idmap);
    assert!(all(&["chattr", "ro"]).chattr);
    let o = parse("ro,nosuid,rw,suid,dev").unwrap();
    assert_eq!(o.apply(MountFlags::RDONLY | MountFlags::NODEV), MountFlags::empty());
    let o = all(&["ro", "rw,uid=3", "noexec"]);
    assert_eq!(o.apply(MountFlags::RDONLY), MountFlags::NOEXEC);
    assert_eq!(o.fs.uid, Some(3));
}

#[test]
fn words_of_tables_of_file_systems_are_let_pass() {
    let o = parse("defaults,remount,dev,suid,auto,nofail,_netdev,x-systemd.automount,x-a=b,user")
        .unwrap();
    assert!(o.remount);
    assert_eq!(o.apply(MountFlags::empty()), MountFlags::empty());
    assert_eq!(parse("").unwrap(), MountOptions::default());
    assert_eq!(parse(",,").unwrap(), MountOptions::default());
}

#[test]
fn sync_and_dirsync_are_promises() {
    let syncing = |text| parse(text).unwrap().syncing();
    assert_eq!(syncing("rw"), Syncing::OnRequest);
    assert_eq!(syncing("dirsync"), Syncing::Names);
    assert_eq!(syncing("dirsync,sync"), Syncing::All);
    assert_eq!(syncing("sync,async"), Syncing::OnRequest);
    let later = all(&["sync", "async,dirsync"]);
    assert_eq!(later.syncing(), Syncing::Names);
    // A remount repeats them, and can't change them.
    let keeps = |text, is_sync, is_dirsync| parse(text).unwrap().keep_syncing(is_sync, is_dirsync);
    for kept in [("ro", true, false), ("sync", true, false), ("dirsync", false, true)] {
        assert_eq!(keeps(kept.0, kept.1, kept.2), Ok(()), "{kept:?}");
    }
    assert!(keeps("sync", false, true).unwrap_err().contains("`sync`"));
    assert!(keeps("async", true, false).unwrap_err().contains("`async`"));
    assert!(keeps("dirsync", false, false).unwrap_err().contains("`dirsync`"));
}

#[test]
fn all_of_a_volume_can_stand_in_fstab() {
    let o = parse("log_device=/dev/sdb1,sync_interval=0.5,cache_size=64M,threads=3,writeback,acl");
    let o = o.unwrap();
    assert_eq!(o.fs, "log_device=/dev/sdb1,commit=0.5,cache_size=64M".parse().unwrap());
    assert!(o.writeback && o.threads == Some(3));
    let o = later(&o, "commit=9,log_device=/dev/sdc");
    assert_eq!(o.fs, "log_device=/dev/sdc,commit=9,cache_size=64M".parse().unwrap());
    let o = all(&["poll=auto", "poll=never,ro"]);
    assert_eq!(later(&o, "rw").poll, Some(vfscale_fuse::Polling::Never));
    for wrong in
        ["poll=50", "commit=0", "sync_interval=soon", "threads=0", "threads=2000", "cache_size=x"]
    {
        assert!(parse(wrong).unwrap_err().contains(wrong), "{wrong}");
    }
    assert!(parse("noacl").unwrap_err().contains("always count"));
}

#[test]
fn the_transport_can_stand_in_fstab() {
    assert_eq!(parse("ro").unwrap().transport, None);
    let o = parse("transport=uring").unwrap();
    assert_eq!(o.transport, Some(Transport::Uring));
    let o = later(&later(&o, "transport=classic"), "rw");
    assert_eq!(o.transport, Some(Transport::Classic));
    assert!(parse("transport=pigeon").unwrap_err().contains("transport=pigeon: `pigeon`"));
}

#[test]
fn a_remount_repeats_what_the_kernel_shows() {
    let shown = "user_id=0,group_id=0,rootmode=40000,fd=4,allow_other,default_permissions";
    let o = parse(&format!("rw,{shown},max_read=131072,blksize=4096,remount,ro")).unwrap();
    assert!(o.remount && o.is_read_only());
    assert_eq!(o.apply(MountFlags::empty()), MountFlags::RDONLY);
}

#[test]
fn the_last_rule_for_access_times_counts() {
    let rules = MountFlags::NOATIME | MountFlags::RELATIME;
    for (text, expected) in [
        ("ro", MountFlags::empty()),
        ("noatime", MountFlags::NOATIME),
        ("noatime,relatime", MountFlags::RELATIME),
        ("noatime,atime", MountFlags::RELATIME),
    ] {
        assert_eq!(parse(text).unwrap().apply(MountFlags::empty()) & rules, expected, "{text}");
    }
    let both = parse("relatime,noatime").unwrap().apply(MountFlags::empty());
    assert!(both.contains(MountFlags::NOATIME), "which counts more");
}

#[test]
fn unknown_options_are_named() {
    assert_eq!(parse("ro,fast").unwrap_err(), "mount option `fast` is unknown");
    assert_eq!(parse("colour=red").unwrap_err(), "mount option `colour=red` is unknown");
    assert!(parse("uid=me").unwrap_err().contains("uid=me"));
}

#[test]
fn names_may_hold_commas() {
    assert_eq!(parse("fsname=a\\,b\\\\c,ro").unwrap().source.as_deref(), Some("a,b\\c"));
}

#[test]
fn a_mount_without_extended_attributes_may_be_forced() {
    assert_eq!(parse("ro").unwrap().xattrs, None);
    assert_eq!(parse("noxattr").unwrap().xattrs, Some(Xattrs::Refused));
    let o = all(&["noxattr", "noxattr=force"]);
    assert_eq!(later(&o, "ro").xattrs, Some(Xattrs::Ignored));
    assert!(parse("noxattr=no").unwrap_err().contains("noxattr=no"));
}

#[test]
fn words_of_fstab_are_known_with_their_opposites() {
    for word in ["lazytime", "nolazytime", "norelatime", "auto", "noauto"] {
        assert_eq!(parse(word), Ok(MountOptions::default()), "{word}");
    }
}
