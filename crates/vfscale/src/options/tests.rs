use super::*;

fn parse(text: &str) -> Result<Options, OptionError> {
    text.parse()
}

/// Returns the text of the error of a text.
fn refused(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// Every option has a value that the builder of its file system shows.
#[test]
fn each_option_reaches_the_builders_that_have_it() {
    let (memory, volume) = (crate::memory(), crate::volume("image"));
    for row in TABLE {
        let value = match row.value {
            "" => "true",
            "SIZE" => "8M",
            "N" | "UID" | "GID" | "SECONDS" => "7",
            "MODE" => "1711",
            "DEVICE" | "FILE" | "USER" => "/a/name",
            "WHAT" => "remount-ro",
            other => panic!("a test has no value of the kind {other}"),
        };
        // The option that is on by default.
        let value = if row.names[0] == "auto_da_alloc" { "false" } else { value };
        for name in row.names {
            let options = parse(&format!("{name}={value}")).unwrap();
            let on_memory = options.memory(memory.clone()).map(|b| format!("{b:?}"));
            let on_volume = options.volume(volume.clone()).map(|b| format!("{b:?}"));
            if row.is_of_memory() {
                assert_ne!(on_memory.unwrap(), format!("{memory:?}"), "{name}");
            } else {
                assert_eq!(on_memory.unwrap_err(), OptionError::OfVolumes(row.names));
            }
            if row.is_of_volumes() {
                assert_ne!(on_volume.unwrap(), format!("{volume:?}"), "{name}");
            } else {
                assert_eq!(on_volume.unwrap_err(), OptionError::OfMemory(row.names));
            }
        }
    }
}

#[test]
fn no_name_stands_twice() {
    let mut names: Vec<_> = TABLE.iter().flat_map(|row| row.names).collect();
    names.sort_unstable();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
}

#[test]
fn later_options_win() {
    assert_eq!(parse("noauto_da_alloc").unwrap().auto_da_alloc, Some(false));
    assert_eq!(parse("noauto_da_alloc,auto_da_alloc").unwrap().auto_da_alloc, Some(true));
    assert_eq!(parse("discard,nodiscard").unwrap().discard, Some(false));
    assert_eq!(parse("nodiscard,discard=true").unwrap().discard, Some(true));
    assert_eq!(parse("norecovery,uid=3,uid=4").unwrap().uid, Some(4));
    assert_eq!(parse("").unwrap(), Options::default());
}

#[test]
fn owner_and_group_are_set_apart() {
    let root = |text: &str| {
        let options = parse(text).unwrap();
        let vfs = options.memory(crate::memory().size(1 << 20)).unwrap().build().unwrap();
        let root = vfs.task().metadata("/").unwrap();
        (root.uid, root.gid)
    };
    assert_eq!(root("uid=3"), (3, 0));
    assert_eq!(root("gid=4"), (0, 4));
    assert_eq!(root("uid=3,gid=4"), (3, 4));
}

#[test]
fn values_are_checked() {
    let options = parse("commit=0.5,cache_size=50%,create=8193,mode=01777").unwrap();
    assert_eq!(options.sync_interval, Some(Some(Duration::from_millis(500))));
    assert_eq!((options.cache_size, options.create), (Some(Size::Percent(50)), Some(8192)));
    assert_eq!(options.mode, Some(0o1777));
    assert_eq!(parse("commit=never").unwrap().sync_interval, Some(None));
    for wrong in [
        "mode=8",
        "mode=10000",
        "mode=",
        "uid=4294967295",
        "uid=me",
        "commit=0",
        "sync_interval=soon",
        "cache_size=x",
        "create=50%",
        "log_size=1",
        "inodes=-1",
        "errors=continue",
        "discard=maybe",
    ] {
        assert!(refused(wrong).starts_with(&format!("{wrong}: ")), "{}", refused(wrong));
    }
    for unknown in ["fast", "colour=red", "commit", "nocommit", "nodiscard=true"] {
        let name = unknown.split('=').next().unwrap_or_default();
        assert_eq!(refused(unknown), format!("option `{name}` is unknown"));
    }
}

#[test]
fn values_may_hold_commas_and_bytes_of_paths() {
    assert_eq!(parse("id=a\\,b\\\\c,ro").unwrap().ceph_id.as_deref(), Some("a,b\\c"));
    let path = std::os::unix::ffi::OsStrExt::from_bytes(b"/\xff");
    let mut options = Options::default();
    options.set("log_device", Some(path)).unwrap();
    assert_eq!(options.log_device.as_deref(), Some(std::path::Path::new(path)));
    assert!(options.set("id", Some(path)).is_err());
}
