//! Tests of the command line.

use super::*;

fn helper(arguments: &[&str]) -> Option<Vec<String>> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let command = as_mount_helper(&arguments)?;
    Some(command.into_iter().map(|a| a.into_string().unwrap()).collect())
}

#[test]
fn the_definition_holds_together() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn memory_with_and_without_a_size() {
    let parse = |args: &[&str]| match Cli::try_parse_from(args).unwrap().command {
        Command::Run(run) => (run.source.memory, run.command),
        _ => panic!("not run"),
    };
    let (memory, command) = parse(&["vfscale", "run", "--memory", "--", "sh", "-c", "true"]);
    assert_eq!(memory, Some(None));
    assert_eq!(command, ["sh", "-c", "true"]);
    let (memory, command) = parse(&["vfscale", "run", "--memory=64M", "ls", "-l"]);
    assert_eq!(memory, Some(Some(Size::Bytes(64 << 20))));
    assert_eq!(command, ["ls", "-l"]);
}

#[test]
fn patches_are_taken_back() {
    let scaling = |args: &[&str]| match Cli::try_parse_from(args).unwrap().command {
        Command::Run(run) => run.source.scaling(),
        Command::Mount(mount) => mount.source.scaling(),
        _ => panic!("neither"),
    };
    assert_eq!(scaling(&["vfscale", "run", "--memory", "true"]), Ok(Scaling::default()));
    let before = ["vfscale", "mount", "--memory", "--before", "lockref", "--before=brlock", "/mnt"];
    assert_eq!(scaling(&before), Scaling::before_lockref().and_before("brlock"));
    let all: Vec<String> =
        vfscale::PATCHES.iter().map(|patch| format!("--before={}", patch.name())).collect();
    let mut args = vec!["vfscale", "run", "--memory"];
    args.extend(all.iter().map(String::as_str));
    args.push("true");
    assert_eq!(scaling(&args), Ok(Scaling::kernel_2_6()));
}

/// The help text names every patch, since nothing else at the command line does.
#[test]
fn the_help_names_every_patch() {
    use clap::CommandFactory;
    let mut cli = Cli::command();
    let run = cli.find_subcommand_mut("run").unwrap().render_long_help().to_string();
    let words: Vec<&str> = run.split([' ', ',', '\n', '.', ':']).collect();
    for patch in vfscale::PATCHES {
        assert!(words.contains(&patch.name()), "{}", patch.name());
    }
}

#[test]
fn nonsense_is_refused() {
    for args in [
        &["vfscale"][..],
        &["vfscale", "run", "--memory"],
        &["vfscale", "mount", "--memory"],
        &["vfscale", "mount", "--memory=64X", "/mnt"],
        &["vfscale", "mount", "--memory", "--threads", "0", "/mnt"],
        &["vfscale", "mount", "--memory", "-o", "fast", "/mnt"],
        &["vfscale", "mount", "--memory", "--mode", "9", "/mnt"],
        &["vfscale", "mount", "--memory", "--before", "magic", "/mnt"],
        &["vfscale", "mount", "--memory", "--before", "orphan", "/mnt"],
    ] {
        assert!(Cli::try_parse_from(args).is_err(), "{args:?}");
    }
}

#[test]
fn mount_calls_its_helper() {
    assert_eq!(helper(&["/usr/bin/vfscale", "mount", "/mnt"]), None);
    let command = helper(&["/sbin/mount.vfscale", "my,data", "/mnt", "-n", "-o", "rw,dev,suid"]);
    let expected = [
        "vfscale",
        "mount",
        "--memory",
        "--background",
        "-o",
        "fsname=my\\,data",
        "-o",
        "rw,dev,suid",
        "/mnt",
    ];
    assert_eq!(command.unwrap(), expected);
    let command =
        helper(&["mount.vfscale", "none", "/mnt", "-oremount,ro", "-t", "vfscale"]).unwrap();
    assert_eq!(command[4..], ["-o", "fsname=none", "-o", "remount,ro", "/mnt"]);
    let Command::Mount(args) = Cli::try_parse_from(&command).unwrap().command else {
        panic!("not mount");
    };
    assert!(args.serve.merged_options().remount);
    assert_eq!(args.dir, Path::new("/mnt"));
}
