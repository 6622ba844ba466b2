//! Tests of manual pages and completions.

use clap::Arg;

use super::*;

fn tool() -> Command {
    let other = Command::new("other").about("Another program");
    let hidden = Command::new("secret").hide(true);
    let deep = Command::new("deep").arg(Arg::new("wide").long("wide").help("Go wide"));
    let show = Command::new("show").about("Show it").subcommand(deep);
    Command::new("tool").about("A tool").subcommands([show, other, hidden])
}

fn read(share: &Path, file: &str) -> String {
    fs::read_to_string(share.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

#[test]
fn every_command_has_a_page_in_its_section() {
    let dir = tempfile::tempdir().unwrap();
    let share = dir.path().join("share");
    let (command, helper) = (tool(), Command::new("mkfs.tool").about("Make it"));
    let manuals = [
        Manual {
            command: &command,
            section: 1,
            without: &["tool-other"],
            see_also: &[],
            options: &[],
        },
        Manual { command: &helper, section: 8, without: &[], see_also: &[], options: &[] },
    ];
    write(&share, &manuals).unwrap();
    assert!(read(&share, "man/man1/tool.1").contains(".SH SUBCOMMANDS"));
    let shown = read(&share, "man/man1/tool-show.1");
    assert!(shown.contains(".nf\n\\fBtool show\\fR [COMMAND]\n.fi\n"), "{shown}");
    assert!(read(&share, "man/man1/tool-show-deep.1").contains("\\-\\-wide"));
    let made = read(&share, "man/man8/mkfs.tool.8");
    assert!(made.contains(".TH mkfs.tool 8"), "{made}");
    for absent in ["tool-other.1", "tool-secret.1", "tool-help.1"] {
        assert!(!share.join("man/man1").join(absent).exists(), "{absent}");
    }
}

#[test]
fn options_are_a_list_where_they_can_be_given() {
    let dir = tempfile::tempdir().unwrap();
    let arg = Arg::new("options").short('o').help("Options").long_help("Options:\n  ro: Read");
    let put = Command::new("put").about("Put it").arg(arg);
    let (command, options) =
        (tool().subcommand(put), [("ro".to_owned(), "Read"), ("a=N".to_owned(), "-1")]);
    let manual =
        Manual { command: &command, section: 1, without: &[], see_also: &[], options: &options };
    write(dir.path(), &[manual]).unwrap();
    let page = read(dir.path(), "man/man1/tool-put.1");
    let list = ".SH \"MOUNT OPTIONS\"\n.TP\n\\fBro\\fR\nRead\n.TP\n\\fBa=N\\fR\n\\-1\n.SH ";
    assert!(page.contains(list) && !page.contains("ro: Read"), "{page}");
    assert!(!read(dir.path(), "man/man1/tool-show.1").contains("MOUNT OPTIONS"));
}

#[test]
fn three_shells_complete_what_is_not_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let command = tool();
    write(
        dir.path(),
        &[Manual { command: &command, section: 1, without: &[], see_also: &[], options: &[] }],
    )
    .unwrap();
    for file in [
        "bash-completion/completions/tool",
        "zsh/site-functions/_tool",
        "fish/vendor_completions.d/tool.fish",
    ] {
        let script = read(dir.path(), file);
        assert!(script.contains("show") && script.contains("wide"), "{script}");
        assert!(!script.contains("secret") && !script.contains("asking"), "{script}");
    }
    let command = tool().subcommand(Command::new(COMPLETE).hide(true));
    write(
        dir.path(),
        &[Manual { command: &command, section: 1, without: &[], see_also: &[], options: &[] }],
    )
    .unwrap();
    for (file, asks) in [
        ("bash-completion/completions/tool", "complete -F _tool_asking "),
        ("zsh/site-functions/_tool", "compdef _tool_asking tool"),
        ("fish/vendor_completions.d/tool.fish", "-a '(__tool_asking)'"),
    ] {
        let script = read(dir.path(), file);
        assert!(script.contains("show") && script.contains(asks), "{script}");
        assert!(!script.contains("NAME"), "{script}");
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let command = tool();
    let refused = write(
        Path::new("/proc/nowhere"),
        &[Manual { command: &command, section: 1, without: &[], see_also: &[], options: &[] }],
    );
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("cannot write /proc/nowhere/man/man1/tool.1"), "{why}");
}
