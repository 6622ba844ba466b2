//! Tests of the commands for volumes, as people use them.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::for_all::program_for_all;
use serde_json::Value;

fn vfscale(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap().trim()
}

/// Returns the output of a command, which must succeed.
fn said(args: &[&str]) -> String {
    let output = vfscale(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&said(args)).unwrap()
}

/// A volume of 32 MiB.
struct Image {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Image {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.vfs");
        let image = Self { path, _dir: dir };
        said(&["mkfs", image.name(), "--size", "32M", "--label", "music"]);
        image
    }

    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn change(&self, block: u64, at: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, block * 4096 + at).unwrap();
    }

    fn fsck(&self, args: &[&str]) -> (Option<i32>, String) {
        let all: Vec<_> = ["fsck"].iter().chain(args).chain([&self.name()]).copied().collect();
        let output = vfscale(&all);
        (output.status.code(), text(&output.stdout).to_owned())
    }
}

#[test]
fn a_new_volume_is_clean() {
    let image = Image::new();
    let (code, words) = image.fsck(&[]);
    assert_eq!(code, Some(0), "{words}");
    assert!(words.ends_with("disk.vfs: clean"), "{words}");
    let (code, report) = image.fsck(&["--json"]);
    assert_eq!(code, Some(0));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["found"], &report["inodes"]), (&0.into(), &1.into()));
    let figures = json(&["stat", image.name(), "--json"]);
    assert_eq!(
        (figures["label"].as_str(), figures["blocks"].as_u64()),
        (Some("music"), Some(8192))
    );
    assert_eq!(figures["state"].as_str(), Some("clean"));
    assert!(said(&["stat", image.name()]).contains("label: music\n"));
}

/// Returns the user and group of the root directory of a volume.
fn root_owner(image: &Path) -> [u64; 2] {
    let shown = json(&["dump", image.to_str().unwrap(), "--json", "inode", "/"]);
    ["uid", "gid"].map(|name| shown[name].as_u64().unwrap())
}

#[test]
fn who_makes_a_volume_owns_its_root() {
    let image = Image::new();
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    assert_eq!(root_owner(&image.path), [uid.as_raw(), gid.as_raw()].map(u64::from));
    said(&["mkfs", image.name(), "--force", "--root-owner", "1000:100"]);
    assert_eq!(root_owner(&image.path), [1000, 100]);
    assert_eq!(image.fsck(&[]).0, Some(0));
    let refused = vfscale(&["mkfs", image.name(), "--force", "--root-owner", "me"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("1000:100"), "{}", text(&refused.stderr));
    assert_eq!(root_owner(&image.path), [1000, 100]);
    if !uid.is_root() {
        return;
    }
    let Some((dir, program)) = program_for_all(Path::new(env!("CARGO_BIN_EXE_vfscale"))) else {
        return;
    };
    let path = dir.path().join("disk.vfs");
    let mut command = Command::new(program);
    command.args(["mkfs", "--size=32M"]).arg(&path).uid(65_533).gid(65_534);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(root_owner(&path), [65_533, 65_534]);
}

/// An image has all its blocks, and they are zeros where the volume has written nothing.
#[test]
fn an_image_can_have_all_its_blocks() {
    let image = Image::new();
    let blocks = || fs::metadata(&image.path).unwrap().blocks() * 512;
    assert!(blocks() < 16 << 20, "it is sparse");
    let refused = vfscale(&["mkfs", image.name(), "--preallocate"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(blocks() < 16 << 20, "it was refused");
    said(&["mkfs", image.name(), "--force", "--preallocate"]);
    assert!(blocks() >= 32 << 20);
    assert_eq!(image.fsck(&[]).0, Some(0));
    let bytes = fs::read(&image.path).unwrap();
    let zeros = bytes.chunks(4096).filter(|block| block.iter().all(|byte| *byte == 0)).count();
    assert!(zeros * 4096 > 16 << 20);
}

#[test]
fn what_is_there_is_not_overwritten() {
    let image = Image::new();
    let before = fs::read(&image.path).unwrap();
    let output = vfscale(&["mkfs", image.name()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--force"), "{}", text(&output.stderr));
    assert_eq!(fs::read(&image.path).unwrap(), before);
    said(&["mkfs", image.name(), "--force", "--label", "new"]);
    assert_eq!(json(&["stat", image.name(), "--json"])["label"].as_str(), Some("new"));
    // An impossible size leaves no file behind.
    let small = image.path.with_file_name("small");
    let output = vfscale(&["mkfs", small.to_str().unwrap(), "--size", "1M"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!small.exists());
    let output = vfscale(&["mkfs", small.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--size"));
}

#[test]
fn a_damaged_volume_is_found_and_repaired() {
    let image = Image::new();
    // After the block header of the header of group 1: the number of free blocks; the second copy.
    let group_blocks = json(&["stat", image.name(), "--json"])["group_blocks"].as_u64().unwrap();
    image.change(2 * group_blocks, 100, b"what is this?");
    image.change(group_blocks + 1, 48, &[1, 2, 3]);
    let before = fs::read(&image.path).unwrap();
    let (code, words) = image.fsck(&[]);
    assert_eq!(code, Some(4), "{words}");
    assert!(words.contains("V1000: ") && words.contains("V002: "), "{words}");
    assert!(words.ends_with("2 findings; nothing was changed"), "{words}");
    assert_eq!(fs::read(&image.path).unwrap(), before);
    let (code, words) = image.fsck(&["--repair"]);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.ends_with("2 findings, all repaired"), "{words}");
    assert_eq!(image.fsck(&[]).0, Some(0));
}

/// Returns the position of the log in an image, in blocks.
fn log_of(image: &Image) -> (u64, u64) {
    let log = &json(&["stat", image.name(), "--json"])["log"];
    (log["start"].as_u64().unwrap(), log["blocks"].as_u64().unwrap())
}

#[test]
fn a_log_is_thrown_away_when_it_is_asked_for() {
    let image = Image::new();
    let (start, blocks) = log_of(&image);
    image.change(start, 0, &vec![0; blocks as usize * 4096]);
    let before = fs::read(&image.path).unwrap();
    let refused = vfscale(&["run", image.name(), "--", "true"]);
    assert_ne!(refused.status.code(), Some(0));
    assert!(text(&refused.stderr).contains("--discard-log"), "{}", text(&refused.stderr));
    for args in [&["--repair"][..], &[]] {
        let (code, words) = image.fsck(args);
        assert_eq!(code, Some(4), "{words}");
        assert!(words.contains("V1001: ") && words.contains("--repair --discard-log"), "{words}");
    }
    let (code, words) = image.fsck(&["--discard-log"]);
    assert_eq!(code, Some(4), "{words}");
    assert!(words.contains("would be thrown away, with 0 checkpoints"), "{words}");
    assert_eq!(fs::read(&image.path).unwrap(), before);
    let (code, words) = image.fsck(&["--repair", "--discard-log", "--json"]);
    assert_eq!(code, Some(1), "{words}");
    let report: Value = serde_json::from_str(&words).unwrap();
    assert_eq!(report["log"]["discarded"], true);
    assert_eq!((&report["found"], &report["left"]), (&1.into(), &0.into()));
    assert_eq!(image.fsck(&[]), (Some(0), image.fsck(&[]).1));
    let (code, words) = image.fsck(&["--repair", "--discard-log"]);
    assert_eq!(code, Some(0), "{words}");
    assert!(words.contains("nothing of the former one was lost"), "{words}");
    assert_eq!(json(&["stat", image.name(), "--json"])["state"].as_str(), Some("clean"));
}

#[test]
fn exit_statuses_are_those_of_fsck() {
    let image = Image::new();
    assert_eq!(vfscale(&["fsck"]).status.code(), Some(16));
    assert_eq!(image.fsck(&["--what"]).0, Some(16));
    assert_eq!(vfscale(&["fsck", "--help"]).status.code(), Some(0));
    let missing = vfscale(&["fsck", "/nowhere/at/all"]);
    assert_eq!(missing.status.code(), Some(8));
    fs::write(&image.path, vec![0; 1 << 20]).unwrap();
    let nothing = vfscale(&["fsck", image.name()]);
    assert_eq!(nothing.status.code(), Some(8));
    assert!(text(&nothing.stderr).contains("no volume"), "{}", text(&nothing.stderr));
}

#[test]
fn structures_are_shown() {
    let image = Image::new();
    let show = |what: &[&str]| {
        let args: Vec<_> = ["dump", image.name()].iter().chain(what).copied().collect();
        said(&args)
    };
    assert!(show(&["superblock"]).contains("label: music"));
    assert!(show(&["group", "0"]).contains("chunks of inodes:"));
    assert!(show(&["inode", "64"]).contains("mode: 040755"), "{}", show(&["inode", "64"]));
    assert!(show(&["dir", "64"]).contains("entries: none"));
    assert!(show(&["block", "1"]).contains("magic: vfsG"));
    assert!(show(&["tree", "2"]).contains("levels: 1"));
    assert!(show(&["log"]).contains("kind closed"));
    let inode: Value = serde_json::from_str(&show(&["inode", "64", "--json"])).unwrap();
    assert_eq!(inode["links"], 2);
    let records = serde_json::from_str::<Value>(&show(&["log", "--json"])).unwrap();
    assert_eq!(records["records"][0]["kind"], "closed");
    assert!(show(&["inode", "/"]).contains("mode: 040755"));
    let nothing = vfscale(&["dump", image.name(), "inode", "/no/such"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).contains("no: there is no such name in directory 64"));
    let nothing = vfscale(&["dump", image.name(), "extents", "64"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).contains("no regular file"), "{}", text(&nothing.stderr));
}

#[test]
fn a_label_is_changed() {
    let image = Image::new();
    said(&["tune", image.name(), "--label", "films"]);
    assert_eq!(json(&["stat", image.name(), "--json"])["label"].as_str(), Some("films"));
    assert_eq!(image.fsck(&[]).0, Some(0));
    let long = "x".repeat(65);
    assert_eq!(vfscale(&["tune", image.name(), "--label", &long]).status.code(), Some(2));
}

/// One of two identical images gets another id.
#[test]
fn an_id_is_changed() {
    let image = Image::new();
    let id =
        |what: &str| json(&["stat", image.name(), "--json"])[what].as_str().unwrap().to_owned();
    let (first, new) = (id("id"), "12345678-1234-4234-8234-123456789abc");
    let printed = said(&["tune", image.name(), "--uuid", new, "--label", "copy"]);
    assert_eq!(printed, format!("{}: volume {new}", image.name()));
    assert_eq!((id("id").as_str(), id("label").as_str()), (new, "copy"));
    assert_eq!(id("id_of_its_blocks"), first);
    assert_eq!(image.fsck(&[]).0, Some(0));
    said(&["tune", image.name(), "--uuid", "random"]);
    assert!(![first.as_str(), new].contains(&id("id").as_str()));
    said(&["tune", image.name(), "--uuid", "restore"]);
    assert_eq!(id("id"), first);
    for wrong in [&["--uuid", "music"][..], &[], &["--log-device", "/dev/null"]] {
        let args: Vec<_> = ["tune", image.name()].iter().chain(wrong).copied().collect();
        assert_eq!(vfscale(&args).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn manual_pages_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("share");
    said(&["man", pages.to_str().unwrap()]);
    let page =
        |name: &str| fs::read_to_string(Path::new(&pages).join("man/man1").join(name)).unwrap();
    assert!(page("vfscale.1").contains("fsck"));
    assert!(page("vfscale-mkfs.1").contains("\\-\\-size"));
    check_references(&pages.join("man"));
}

/// Every page of a command names others, and those of vfscale exist.
fn check_references(man: &Path) {
    for section in ["man1", "man8"] {
        for entry in fs::read_dir(man.join(section)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let page = fs::read_to_string(man.join(section).join(&name)).unwrap();
            assert!(page.contains(".SH \"EXIT STATUS\"\n"), "{name}: {page}");
            let see = page.split(".SH \"SEE ALSO\"\n").nth(1).unwrap_or_else(|| panic!("{name}"));
            for other in see.lines().next().unwrap().replace("\\-", "-").split(", ") {
                let (other, section) = other.strip_suffix(')').unwrap().split_once('(').unwrap();
                let file = man.join(format!("man{section}/{other}.{section}"));
                let own = other.contains("vfscale") && !other.starts_with("vfscale-bench");
                assert!(!own || file.exists(), "{name} names {other}({section})");
            }
        }
    }
}

/// Messages about an image name it, and what helps.
#[test]
fn errors_of_opening_name_image_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small\x1b[2J");
    fs::write(&small, "text").unwrap();
    let output = vfscale(&["mkfs", small.to_str().unwrap()]);
    let says = text(&output.stderr);
    assert!(says.contains("small\\x1b[2J: ") && says.contains("16 MiB at least"), "{says}");
    assert!(!says.contains('\x1b'), "{says}");

    let output = vfscale(&["fsck", dir.path().join("none/disk.vfs").to_str().unwrap()]);
    let says = text(&output.stderr);
    assert!(says.contains("none/disk.vfs: ") && !says.contains("0 bytes"), "{says}");

    // A file system that is mounted read-only, in a namespace of its own.
    let script = "mount -t tmpfs none \"$2\" && \"$1\" mkfs -q \"$2/disk.vfs\" --size 16M \
                  && mount -o remount,ro \"$2\" || { echo SKIPPED; exit 0; }
                  \"$1\" run \"$2/disk.vfs\" -- true";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_vfscale")]).arg(dir.path());
    let Ok(output) = command.stdin(Stdio::null()).output() else { return };
    let says = text(&output.stderr);
    if output.stdout.starts_with(b"SKIPPED") || says.starts_with("unshare: ") {
        eprintln!("\n######## SKIPPED: no right to mount a file system\n");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{says}");
    assert!(says.contains("disk.vfs: open: Read-only file system"), "{says}");
    assert!(says.contains("`-o ro`"), "{says}");
}
