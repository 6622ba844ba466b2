//! Tests of sizes, modes and options.

use super::*;

#[test]
fn sizes_as_people_write_them() {
    for (text, bytes) in [
        ("4096", 4096),
        ("64M", 64 << 20),
        ("64MiB", 64 << 20),
        ("2g", 2 << 30),
        ("1T", 1 << 40),
        ("16k", 16 << 10),
        ("7b", 7),
    ] {
        assert_eq!(text.parse(), Ok(Size::Bytes(bytes)), "{text}");
    }
    assert_eq!("50%".parse(), Ok(Size::Percent(50)));
}

#[test]
fn what_is_no_size_is_refused_by_name() {
    for text in ["", "M", "-1", "1.5G", "64X", "0", "0G", "0%", "101%", "%", "99999999999T", "１"]
    {
        let refused = text.parse::<Size>().unwrap_err();
        assert!(!refused.is_empty(), "{text}");
    }
    assert!("64X".parse::<Size>().unwrap_err().contains("`64X`"));
}

#[test]
fn shares_are_of_the_memory() {
    assert_eq!(Size::Percent(50).in_bytes(1000), 500);
    assert_eq!(Size::Percent(100).in_bytes(u64::MAX), u64::MAX);
    assert_eq!(Size::Bytes(7).in_bytes(1), 7);
    assert!(Size::Percent(100).on_this_machine() > 1 << 20);
}

#[test]
fn modes_are_octal() {
    assert_eq!(parse_mode("755"), Ok(0o755));
    assert_eq!(parse_mode("01777"), Ok(0o1777));
    for text in ["8", "10000", "", "rwx"] {
        assert!(parse_mode(text).unwrap_err().contains(text));
    }
}

#[test]
fn owners_are_two_numbers() {
    assert_eq!(parse_owner("1000:100"), Ok((1000, 100)));
    assert_eq!(parse_owner("0:0"), Ok((0, 0)));
    for text in ["", "1000", "1000:", ":100", "me:100", "1:2:3", "-1:0", "4294967295:0", "1.100"] {
        assert!(parse_owner(text).unwrap_err().contains(&format!("`{text}`")), "{text}");
    }
    assert!(parse("uid=4294967295").unwrap_err().contains("`4294967295`"));
}

#[test]
fn options_of_mount_are_taken() {
    let o = parse("ro,nosuid,nodev,noexec,size=64M,nr_inodes=10,mode=1777,uid=1,gid=2").unwrap();
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    assert_eq!(o.apply(MountFlags::empty()), flags);
    assert_eq!((o.size, o.inodes), (Some(Size::Bytes(64 << 20)), Some(10)));
    assert_eq!((o.mode, o.uid, o.gid), (Some(0o1777), Some(1), Some(2)));
}

#[test]
fn later_options_win() {
    assert_eq!(parse("noauto_da_alloc").unwrap().auto_da_alloc, Some(false));
    assert_eq!(parse("noauto_da_alloc,auto_da_alloc").unwrap().auto_da_alloc, Some(true));
    let o = parse("ro,nosuid,rw,suid,dev").unwrap();
    assert_eq!(o.apply(MountFlags::RDONLY | MountFlags::NODEV), MountFlags::empty());
    let o = parse("ro").unwrap().then(&parse("rw,uid=3").unwrap()).then(&parse("noexec").unwrap());
    assert_eq!(o.apply(MountFlags::RDONLY), MountFlags::NOEXEC);
    assert_eq!(o.uid, Some(3));
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
fn what_errors_do_can_be_chosen() {
    assert_eq!(parse("errors=shutdown").unwrap().on_error, Some(OnError::Shutdown));
    let o = parse("errors=shutdown").unwrap().then(&parse("errors=remount-ro,ro").unwrap());
    assert_eq!(o.on_error, Some(OnError::RemountRo));
    assert!(parse("errors=continue").unwrap_err().contains("`continue`"));
}
