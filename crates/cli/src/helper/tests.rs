//! Tests of the helpers' command lines.

use super::*;

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn mounts(arguments: &[&str]) -> Vec<String> {
    let helper = MountHelper::try_parse_from(words(arguments)).unwrap();
    helper.as_command().unwrap().into_iter().map(|word| word.into_string().unwrap()).collect()
}

#[test]
fn the_definitions_hold_together() {
    for command in Helper::commands() {
        command.debug_assert();
    }
}

#[test]
fn helpers_are_known_by_name() {
    let called = |program: &str| Helper::called(OsStr::new(program));
    assert_eq!(called("/sbin/mount.vfscale"), Some(Helper::Mount));
    assert_eq!(called("mount.fuse.vfscale"), Some(Helper::Mount));
    assert_eq!(called("/sbin/umount.fuse.vfscale"), Some(Helper::Umount));
    assert_eq!(called("umount.vfscale"), Some(Helper::Umount));
    assert_eq!(called("./mkfs.vfscale"), Some(Helper::Mkfs));
    assert_eq!(called("fsck.vfscale"), Some(Helper::Fsck));
    assert_eq!(called("/usr/bin/vfscale"), None);
    assert_eq!(called("/usr/lib/mount.vfscale/vfscale"), None);
}

#[test]
fn mount_calls_its_helper() {
    let command = mounts(&["/sbin/mount.vfscale", "none", "/mnt", "-n", "-o", "rw,dev,suid"]);
    let memory = ["vfscale", "mount", "--background", "--memory"];
    let options = ["-o", "fsname=none", "-o", "rw,dev,suid", "/mnt"];
    assert_eq!(command, [&memory[..], &options[..]].concat());
    // A remount has the source of /proc/mounts, whatever that is.
    let command = mounts(&["mount.vfscale", "my,data", "/mnt", "-o", "rw", "-o", "remount"]);
    assert_eq!(command[4..], ["-o", "fsname=my\\,data", "-o", "rw", "-o", "remount", "/mnt"]);
    let command = mounts(&["mount.vfscale", "none", "/mnt", "-oremount,ro", "-t", "vfscale"]);
    assert_eq!(command[4..], ["-o", "fsname=none", "-o", "remount,ro", "/mnt"]);
    let command: Vec<OsString> = command.iter().map(OsString::from).collect();
    let args::Command::Mount(args) = args::parse(&command).unwrap().command else {
        panic!("not mount");
    };
    assert!(args.serve.merged_options().remount);
    assert_eq!(args.places().unwrap(), (None, Path::new("/mnt")));
    let command = mounts(&["mount.vfscale", "/srv/disk.vfs", "/mnt", "-snv", "-o", "rw"]);
    let options = ["mount", "--background", "--verbose", "-o", "rw", "/srv/disk.vfs", "/mnt"];
    assert_eq!(command[1..], options);
    assert_eq!(
        mounts(&["mount.vfscale", "/mnt", "-N", "/proc/1/ns/mnt"])[3..],
        ["--memory", "/mnt"]
    );
}

#[test]
fn only_two_names_stand_for_memory() {
    for typo in ["typo", "typo.vfs", "Memory", "none2", "tmpfs", ""] {
        let helper = MountHelper::try_parse_from(words(&["mount.vfscale", typo, "/mnt"])).unwrap();
        let Err(Failure::Usage(why)) = helper.as_command() else { panic!("{typo} is taken") };
        assert!(why.starts_with(&format!("{typo}: ")) && why.contains("`memory`"), "{why}");
    }
    assert_eq!(mounts(&["mount.vfscale", "memory", "/mnt"])[3], "--memory");
    // Tests run in the directory of their crate.
    let command = mounts(&["mount.vfscale", "Cargo.toml", "/mnt"]);
    assert_eq!(command[3..], ["./Cargo.toml", "/mnt"]);
    let command = mounts(&["mount.vfscale", "./none", "/mnt"]);
    assert_eq!(command[3..], ["./none", "/mnt"]);
}

#[test]
fn fsck_takes_the_options_of_its_caller() {
    let parsed = |arguments: &[&str]| {
        let arguments = with_descriptors(&words(&[&["fsck.vfscale"], arguments].concat()));
        FsckHelper::try_parse_from(arguments)
    };
    for (progress, descriptor) in [
        (&["-a", "-C0", "disk"][..], 0),
        (&["-aC", "disk"], 0),
        (&["-a", "-C", "disk"], 0),
        (&["-C", "5", "-p", "disk"], 5),
        (&["-C17", "-p", "disk"], 17),
    ] {
        let helper = parsed(progress).unwrap();
        assert!(helper.automatic, "{progress:?}");
        assert_eq!(helper.progress, Some(descriptor), "{progress:?}");
        assert_eq!(helper.device, Path::new("disk"), "{progress:?}");
    }
    // A device may have a number for its name, too.
    assert_eq!(parsed(&["-n", "5"]).unwrap().device, Path::new("5"));
    assert_eq!(parsed(&["-n", "5"]).unwrap().progress, None);
    let both = [&["-a", "-n", "disk"][..], &["-y", "-n", "disk"], &["-a", "-y", "disk"], &["-n"]];
    for wrong in both.into_iter().chain([&["-C-5", "disk"][..], &["-C", "-5", "disk"]]) {
        assert!(parsed(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn mkfs_takes_the_options_of_other_file_systems() {
    let id = "12345678-1234-4234-8234-123456789abc";
    let arguments = words(&["mkfs.vfscale", "-v", "-F", "-L", "music", "-U", id, "/dev/sdz"]);
    let helper = MkfsHelper::try_parse_from(arguments).unwrap();
    assert!(helper.args.force && helper.args.label.is_some() && helper.args.uuid.is_some());
    assert_eq!(helper.args.image, Path::new("/dev/sdz"));
}

#[test]
fn every_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    manual(&dir.path().join("share")).unwrap();
    let read = |name: &str| {
        let path = dir.path().join("share/man").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let fsck = read("man1/vfscale-fsck.1");
    assert!(fsck.contains("\\-\\-repair") && fsck.contains("IMAGE"), "{fsck}");
    assert!(fsck.contains("\\fBvfscale fsck\\fR"), "{fsck}");
    assert!(read("man1/vfscale-dump-inode.1").contains("INO"));
    for command in Cli::command().get_subcommands() {
        let name = command.get_name();
        if command.is_hide_set() || name == "bench" {
            // Hidden, or another program's page.
            assert!(!dir.path().join(format!("share/man/man1/vfscale-{name}.1")).exists());
        } else {
            assert!(read(&format!("man1/vfscale-{name}.1")).contains(".SH NAME"));
        }
    }
    for helper in ["mount.vfscale", "umount.vfscale", "mkfs.vfscale", "fsck.vfscale"] {
        assert!(read(&format!("man8/{helper}.8")).contains(&format!(".TH {helper} 8")));
    }
}
