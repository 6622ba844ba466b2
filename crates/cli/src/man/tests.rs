//! Tests of the manual pages.

use super::*;

#[test]
fn every_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("man")).unwrap();
    let read = |name: &str| fs::read_to_string(dir.path().join("man").join(name)).unwrap();
    assert!(read("vfscale.1").contains(".SH SUBCOMMANDS"));
    let fsck = read("vfscale-fsck.1");
    assert!(fsck.contains("\\-\\-repair") && fsck.contains("IMAGE"), "{fsck}");
    assert!(fsck.contains("\\fBvfscale fsck\\fR"), "{fsck}");
    assert!(read("vfscale-dump-inode.1").contains("INO"));
    // Commands hidden from the help have no page.
    assert!(!dir.path().join("man/vfscale-man.1").exists());
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        assert!(read(&format!("vfscale-{}.1", command.get_name())).contains(".SH NAME"));
    }
}
