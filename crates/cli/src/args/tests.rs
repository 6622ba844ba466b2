//! Tests of the command line.

use std::path::Path;
use std::time::Duration;

use vfscale::Scaling;
use vfscale::options::Size;

use super::*;

fn parsed(args: &[&str]) -> Result<Command, clap::Error> {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    parse(&args).map(|cli| cli.command)
}

#[test]
fn the_definition_holds_together() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn memory_with_and_without_a_size() {
    let run = |args: &[&str]| match parsed(args).unwrap() {
        Command::Run(run) => {
            assert_eq!(run.image, None);
            (run.source.memory, run.words.command)
        }
        _ => panic!("not run"),
    };
    let (memory, command) = run(&["vfscale", "run", "--memory", "--", "sh", "-c", "true"]);
    assert_eq!(memory, Some(None));
    assert_eq!(command, ["sh", "-c", "true"]);
    let (memory, command) = run(&["vfscale", "run", "--memory=64M", "ls", "-l", "--help"]);
    assert_eq!(memory, Some(Some(Size::Bytes(64 << 20))));
    assert_eq!(command, ["ls", "-l", "--help"]);
}

/// Options may precede or follow the image; words after `--` belong to the command.
#[test]
fn an_image_and_its_options() {
    for args in [
        &["run", "disk.vfs", "--size", "64M", "-o", "noatime", "--", "ls", "-l", "--size"][..],
        &["run", "--size=64M", "-o", "noatime", "disk.vfs", "--", "ls", "-l", "--size"],
        &["run", "--size=64M", "-onoatime", "disk.vfs", "ls", "-l", "--size"],
        &["run", "--size=64M", "-onoatime", "disk.vfs", "--", "ls", "-l", "--size"],
    ] {
        let Ok(Command::Run(run)) = parsed(&[&["vfscale"], args].concat()) else {
            panic!("{args:?}: {:?}", parsed(&[&["vfscale"], args].concat()));
        };
        assert_eq!(run.image.as_deref(), Some(Path::new("disk.vfs")), "{args:?}");
        assert_eq!(run.source.size, Some(64 << 20), "{args:?}");
        assert_eq!(run.serve.options.len(), 1, "{args:?}");
        assert_eq!(run.words.command, ["ls", "-l", "--size"], "{args:?}");
    }
    let mount = ["vfscale", "mount", "disk.vfs", "/mnt", "--read-only", "--sync-interval", "0.5"];
    let Ok(Command::Mount(mount)) = parsed(&mount) else { panic!("not mount") };
    let places = mount.places().unwrap();
    assert_eq!(places, (Some(Path::new("disk.vfs")), Path::new("/mnt")));
    let options = mount.serve.merged_options();
    assert_eq!(options.fs.sync_interval, Some(Some(Duration::from_millis(500))));
    assert!(options.is_read_only());
    for args in [&["vfscale", "mount", "/mnt"][..], &["vfscale", "mount", "--memory", "a", "b"]] {
        let Ok(Command::Mount(mount)) = parsed(args) else { panic!("{args:?}") };
        assert!(mount.places().is_err(), "{args:?}");
    }
}

#[test]
fn patches_are_taken_back() {
    let scaling = |args: &[&str]| match parsed(args).unwrap() {
        Command::Run(run) => run.source.scaling(),
        Command::Mount(mount) => mount.source.scaling(),
        _ => panic!("neither"),
    };
    let memory = scaling(&["vfscale", "run", "--memory", "true"]);
    assert_eq!(memory.unwrap(), Scaling::default());
    let before = ["vfscale", "mount", "--memory", "--before", "lockref", "--before=brlock", "/mnt"];
    let expected = Scaling::before("lockref").unwrap().and_before("brlock").unwrap();
    assert_eq!(scaling(&before).unwrap(), expected);
    let all: Vec<String> =
        vfscale::PATCHES.iter().map(|patch| format!("--before={}", patch.name())).collect();
    let mut args = vec!["vfscale", "run", "disk.vfs"];
    args.extend(all.iter().map(String::as_str));
    args.extend(["--", "true"]);
    assert_eq!(scaling(&args).unwrap(), Scaling::kernel_2_6());
    let memory = ["vfscale", "run", "--memory", "--before", "cil-lists", "true"];
    let why = scaling(&memory).unwrap_err().to_string();
    assert!(why.contains("cil-lists") && why.contains("volumes"), "{why}");
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
        &["vfscale", "run", "disk.vfs"],
        &["vfscale", "run", "disk.vfs", "--size", "1", "--", "true"],
        &["vfscale", "run", "disk.vfs", "--sync-interval", "soon", "--", "true"],
        &["vfscale", "mount", "--memory", "--size=1G", "/mnt"],
        &["vfscale", "mount", "--memory"],
        &["vfscale", "mount", "--memory=64X", "/mnt"],
        &["vfscale", "mount", "--memory", "--threads", "0", "/mnt"],
        &["vfscale", "mount", "--memory", "-o", "fast", "/mnt"],
        &["vfscale", "mount", "--memory", "--transport", "pigeon", "/mnt"],
        &["vfscale", "mount", "--memory", "--mode", "9", "/mnt"],
        &["vfscale", "mount", "--memory", "--before", "magic", "/mnt"],
    ] {
        assert!(parsed(args).is_err(), "{args:?}");
    }
}
