//! Tests of `vfscale copy-out`, on intact and on damaged volumes.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use vfscale::posix::{At, AtFlags, OFlags, XattrFlags};
use vfscale::{FileType, Mode, Task, Volume};
use vfscale_diskfs::LogPlace;

use crate::common::vfscale;
use crate::for_all::program_for_all;

const BLOCK: u64 = 4096;
/// Blocks of file data in directory `many`, with blocks of other files between them.
const PIECES: u64 = 60;

/// A volume with files of every kind, and the directory to copy it to.
struct Wreck {
    dir: tempfile::TempDir,
    log: (u64, u64),
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(31).wrapping_add(seed * 7 + at / 256) % 251) as u8)
        .collect()
}

fn fill(task: &Task) {
    let dir = Mode::from(0o750);
    task.posix().mkdirat(At::Cwd, "/a", dir).unwrap();
    task.posix().mkdirat(At::Cwd, "/a/b", dir).unwrap();
    task.write("/a/small", "in the inode").unwrap();
    task.write("/a/b/large", bytes(1, 3_000_001)).unwrap();
    task.hard_link("/a/small", "/a/b/again").unwrap();
    task.symlink("small", "/a/short").unwrap();
    task.symlink("x/".repeat(1000), "/a/long").unwrap();
    task.posix().mknodat(At::Cwd, "/a/fifo", FileType::Fifo, Mode::from(0o640), 0).unwrap();
    let set = |name: &str, value: &[u8]| {
        let (how, at) = (XattrFlags::empty(), AtFlags::empty());
        task.posix().setxattrat(At::Cwd, "/a/small", name, value, how, at).unwrap();
    };
    set("user.colour", b"blue");
    set("user.large", &[9; 3000]);
    task.set_permissions("/a/small", Mode::from(0o4751)).unwrap();
    let mode = Mode::from(0o600);
    let sparse = task.posix().open("/a/sparse", OFlags::RDWR | OFlags::CREATE, mode).unwrap();
    sparse.pwrite(b"far", 5 << 20).unwrap();
    sparse.truncate(6 << 20).unwrap();
    // Two files that grow in alternation get many extents each.
    task.posix().mkdirat(At::Cwd, "/many", dir).unwrap();
    let open = |name| task.posix().open(name, OFlags::RDWR | OFlags::CREATE, mode).unwrap();
    let files = [open("/many/one"), open("/many/other")];
    for piece in 0..PIECES {
        for (number, file) in (0..).zip(&files) {
            file.pwrite(&bytes(piece + number, BLOCK as usize), 2 * piece * BLOCK).unwrap();
            file.sync_data().unwrap();
        }
    }
    for number in 0..500 {
        task.write(format!("/many/file {number}"), format!("{number}")).unwrap();
    }
}

impl Wreck {
    /// Makes a volume, which is not closed if `is_crashed`.
    fn new(is_crashed: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.vfs");
        let volume = vfscale::volume(&path).create(64 << 20).sync_interval(None).open().unwrap();
        fill(&volume.task());
        let LogPlace::Inside { start, blocks } = volume.driver().volume().superblock().log() else {
            panic!("the log is inside");
        };
        volume.sync().unwrap();
        if is_crashed {
            volume.abandon()
        } else {
            volume.close().unwrap()
        }
        Self { dir, log: (start, blocks) }
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("disk.vfs")
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn opened(&self) -> Volume {
        vfscale::volume(self.image()).read_only(true).open().unwrap()
    }

    fn ino(&self, path: &str) -> u64 {
        let volume = self.opened();
        volume.task().metadata(path).unwrap().ino
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(self.image()).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    /// Destroys the record of an inode.
    fn lose_inode(&self, ino: u64) {
        let block = ino / 8;
        let file = fs::File::open(self.image()).unwrap();
        let mut before = [0; BLOCK as usize];
        file.read_exact_at(&mut before, block * BLOCK).unwrap();
        // Records of 504 bytes begin after a header; whatever their size, this hits exactly one.
        let record = (BLOCK as usize - 64) / 8;
        let at = 64 + record * (ino % 8) as usize + record / 2;
        before[at..at + 16].iter_mut().for_each(|byte| *byte ^= 0xFF);
        self.write(block * BLOCK, &before);
    }

    fn copy_out(&self) -> Output {
        let before = fs::read(self.image()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale"));
        command.arg("copy-out").arg(self.image()).arg(self.target()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(before == fs::read(self.image()).unwrap(), "written");
        output
    }

    /// Copies, which must succeed without any complaint.
    fn copied_well(&self) {
        let output = self.copy_out();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(0), ""));
    }

    /// Copies, and returns the complaints about files that could not be copied.
    fn copied_in_part(&self) -> String {
        let output = self.copy_out();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    }
}

fn assert_a(dir: &Path) {
    let meta = |name: &str| fs::symlink_metadata(dir.join(name)).unwrap();
    assert_eq!(fs::read(dir.join("small")).unwrap(), b"in the inode");
    assert_eq!(meta("small").permissions().mode() & 0o7777, 0o4751);
    assert_eq!(meta("small").ino(), meta("b/again").ino());
    assert!(fs::read(dir.join("b/large")).unwrap() == bytes(1, 3_000_001));
    assert_eq!(fs::read_link(dir.join("short")).unwrap(), Path::new("small"));
    assert_eq!(fs::read_link(dir.join("long")).unwrap(), Path::new(&"x/".repeat(1000)));
    assert!(meta("fifo").file_type().is_fifo());
    assert_eq!(meta("fifo").permissions().mode() & 0o7777, 0o640);
    let sparse = fs::read(dir.join("sparse")).unwrap();
    assert_eq!(sparse.len(), 6 << 20);
    assert_eq!(&sparse[5 << 20..][..3], b"far");
    assert!(meta("sparse").blocks() * 512 < 1 << 20, "holes were filled");
    assert_eq!(meta("").permissions().mode() & 0o7777, 0o750);
}

fn assert_names(dir: &Path) {
    for number in 0..500 {
        let contents = fs::read_to_string(dir.join(format!("file {number}"))).unwrap();
        assert_eq!(contents, number.to_string());
    }
}

fn assert_many(dir: &Path) {
    for (number, name) in (0..).zip(["one", "other"]) {
        let data = fs::read(dir.join(name)).unwrap();
        for piece in 0..PIECES {
            let at = (2 * piece * BLOCK) as usize;
            assert!(data[at..][..BLOCK as usize] == bytes(piece + number, BLOCK as usize));
        }
    }
    assert_names(dir);
}

#[test]
fn a_whole_volume_is_copied_as_it_is() {
    for is_crashed in [false, true] {
        let wreck = Wreck::new(is_crashed);
        wreck.copied_well();
        let target = wreck.target();
        assert_a(&target.join("a"));
        assert_many(&target.join("many"));
        let volume = wreck.opened();
        for path in ["", "/a", "/a/small", "/a/short", "/a/fifo", "/a/b/large"] {
            let copy = fs::symlink_metadata(format!("{}{path}", target.display())).unwrap();
            let name = if path.is_empty() { "/" } else { path };
            let stat = volume.task().symlink_metadata(name).unwrap();
            let times = (stat.mtime.secs(), i64::from(stat.mtime.nanos()));
            assert_eq!((copy.mtime(), copy.mtime_nsec()), times, "{name}");
            assert_eq!(copy.mode(), stat.mode, "{name}");
        }
        let mut value = [0; 16];
        let small = target.join("a/small");
        let count = rustix::fs::getxattr(&small, "user.colour", &mut value).unwrap();
        assert_eq!(&value[..count], b"blue");
        assert_eq!(rustix::fs::getxattr(&small, "user.large", &mut [0; 4096]).unwrap(), 3000);
        assert!(!target.join("lost+found").exists());
    }
}

#[test]
fn what_is_home_is_copied_without_the_log() {
    let wreck = Wreck::new(false);
    let (start, blocks) = wreck.log;
    wreck.write(start * BLOCK, &vec![0xA5; (blocks * BLOCK) as usize]);
    let said = wreck.copied_in_part();
    assert!(said.contains("the log can't be used"), "{said}");
    assert_a(&wreck.target().join("a"));
    assert_many(&wreck.target().join("many"));
}

#[test]
fn what_a_lost_directory_had_is_found() {
    let wreck = Wreck::new(false);
    let (a, b, small) = (wreck.ino("/a"), wreck.ino("/a/b"), wreck.ino("/a/small"));
    wreck.lose_inode(a);
    let said = wreck.copied_in_part();
    assert!(said.contains("vfscale: /a: "), "{said}");
    assert!(said.contains(&format!("/lost+found/#{b}: no directory leads to it")), "{said}");
    let lost = wreck.target().join("lost+found");
    assert!(fs::read(lost.join(format!("#{b}/large"))).unwrap() == bytes(1, 3_000_001));
    // The file has a name in a directory that was found, and so no name of its own here.
    assert_eq!(fs::read(lost.join(format!("#{b}/again"))).unwrap(), b"in the inode");
    assert!(!lost.join(format!("#{small}")).exists());
    assert_many(&wreck.target().join("many"));
    assert_eq!(fs::read_dir(&lost).unwrap().count(), 5, "b, short, long, fifo, sparse");
}

#[test]
fn everything_is_found_without_the_root() {
    let wreck = Wreck::new(false);
    let (a, many) = (wreck.ino("/a"), wreck.ino("/many"));
    wreck.lose_inode(wreck.ino("/"));
    let said = wreck.copied_in_part();
    assert!(said.contains("vfscale: /: "), "{said}");
    let lost = wreck.target().join("lost+found");
    assert_a(&lost.join(format!("#{a}")));
    assert_many(&lost.join(format!("#{many}")));
}

/// The superblock is lost, and the header and both trees of the group that has all inodes.
#[test]
fn a_group_that_can_not_be_read_hides_nothing() {
    let wreck = Wreck::new(false);
    let a = wreck.ino("/a");
    wreck.lose_inode(a);
    wreck.write(0, &[0xA5; 4 * BLOCK as usize]);
    // A header is read when its group is used for something new.
    assert!(vfscale::volume(wreck.image()).no_recovery(true).open().is_ok());
    let said = wreck.copied_in_part();
    assert!(said.contains("vfscale: /a: "), "{said}");
    let lost = wreck.target().join("lost+found");
    let large = fs::read_dir(&lost)
        .unwrap()
        .find_map(|entry| fs::read(entry.unwrap().path().join("large")).ok());
    assert!(large.unwrap() == bytes(1, 3_000_001));
    assert_many(&wreck.target().join("many"));
}

/// All files in the remaining part of an image are copied; the others are named, or their
/// directories are.
#[test]
fn an_image_that_was_cut_off_gives_what_is_there() {
    let mut copied = 0;
    for mebibytes in [1, 20, 40, 50, 63] {
        let wreck = Wreck::new(false);
        let image = fs::OpenOptions::new().write(true).open(wreck.image()).unwrap();
        image.set_len(mebibytes << 20).unwrap();
        let said = wreck.copied_in_part();
        assert!(said.contains(&format!("only its first {} bytes", mebibytes << 20)), "{said}");
        let large = bytes(1, 3_000_001);
        let files =
            [("/a/small", &b"in the inode"[..]), ("/a/b/large", &large), ("/many/file 7", b"7")];
        for (path, contents) in files {
            let is_told = |path: &Path| said.contains(&format!("vfscale: {}: ", path.display()));
            let copy = fs::read(format!("{}{path}", wreck.target().display()));
            let is_whole = copy.is_ok_and(|copy| copy == contents);
            copied += u32::from(is_whole);
            assert!(is_whole || Path::new(path).ancestors().any(is_told), "{path}: {said}");
        }
    }
    assert!(copied > 3, "{copied}");
}

/// With the root of a tree destroyed, all names are found again through the leaves' links, and all
/// readable extents.
#[test]
fn damaged_trees_give_what_can_be_read() {
    let wreck = Wreck::new(false);
    let root_of = |path: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale"));
        let output =
            command.arg("dump").arg(wreck.image()).args(["inode", path, "--json"]).output();
        let inode: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        inode["data"]["root"].as_u64().unwrap()
    };
    let (names, extents) = (root_of("/many"), root_of("/many/one"));
    for root in [names, extents] {
        wreck.write(root * BLOCK + 500, &[0xA5; 16]);
    }
    let said = wreck.copied_in_part();
    assert!(said.contains("vfscale: /many: V") && said.contains("vfscale: /many/one: V"), "{said}");
    assert!(!said.contains("/other") && !said.contains("file "), "{said}");
    let one = wreck.target().join("many/one");
    let size = (2 * PIECES - 1) * BLOCK;
    assert_eq!(fs::metadata(&one).unwrap().len(), size);
    assert_names(&wreck.target().join("many"));
    assert_a(&wreck.target().join("a"));
}

#[test]
fn what_is_there_is_never_replaced() {
    let wreck = Wreck::new(false);
    fs::create_dir(wreck.target()).unwrap();
    fs::write(wreck.target().join("mine"), "mine").unwrap();
    let output = wreck.copy_out();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_dir(wreck.target()).unwrap().count(), 1);
}

/// A volume as a hostile guest leaves it: set-id programs, devices, a directory with a set-id bit.
fn hostile() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = dir.path().join("disk.vfs");
    let volume = vfscale::volume(&path).create(32 << 20).open().unwrap();
    let task = volume.task();
    task.write("/evil", "#!/bin/sh").unwrap();
    task.chown("/evil", Some(1000), Some(1000)).unwrap();
    task.set_permissions("/evil", 0o6755).unwrap();
    task.posix().mkdirat(At::Cwd, "/shared", 0o755).unwrap();
    task.set_permissions("/shared", 0o2755).unwrap();
    let device = |path: &str, kind, rdev| {
        task.posix().mknodat(At::Cwd, path, kind, Mode::from(0o666), rdev).unwrap();
    };
    device("/disk\x1b[2J", FileType::BlockDevice, 0x800);
    device("/null", FileType::CharacterDevice, 0x103);
    drop(task);
    volume.close().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    (dir, path)
}

fn copied(command: &mut Command, args: &[&str], image: &Path, to: &Path) -> (i32, String) {
    let command = command.arg("copy-out").args(args).arg(image).arg(to).stdin(Stdio::null());
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn devices_are_made_on_request_only() {
    let (dir, image) = hostile();
    let out = dir.path().join("out");
    let (status, says) = copied(&mut vfscale(), &[], &image, &out);
    assert_eq!(status, 1, "{says}");
    // In the order of the directory.
    let mut lines: Vec<_> = says.lines().collect();
    lines.sort_unstable();
    let expected = [
        "vfscale: /disk\\x1b[2J: a device, which only --devices makes",
        "vfscale: /null: a device, which only --devices makes",
        "vfscale: not copied, only in part, or under another path: 2",
    ];
    assert_eq!(lines, expected);
    assert!(!out.join("null").exists() && !out.join("lost+found").exists());
    if rustix::process::geteuid().is_root() {
        assert_eq!((mode(&out.join("evil")), mode(&out.join("shared"))), (0o6755, 0o2755));
        let out = dir.path().join("asked");
        assert_eq!(copied(&mut vfscale(), &["--devices"], &image, &out), (0, String::new()));
        assert_eq!(fs::symlink_metadata(out.join("null")).unwrap().rdev(), 0x103);
    }
}

/// A rescuer who can't give files away gets no program that others have made to run as the rescuer.
#[test]
fn a_plain_user_gets_no_set_id_programs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some((_program_dir, program)) = program_for_all(Path::new(env!("CARGO_BIN_EXE_vfscale")))
    else {
        return;
    };
    let (dir, image) = hostile();
    for (n, args) in [&["--devices"][..], &[]].into_iter().enumerate() {
        let out = dir.path().join(format!("out{n}"));
        let mut command = Command::new(&program);
        let (status, says) = copied(command.uid(65_533).gid(65_534), args, &image, &out);
        // One line for each device, and none is looked for again as lost.
        assert_eq!((status, says.lines().count()), (1, 3), "{says}");
        assert!(says.ends_with("under another path: 2\n"), "{says}");
        assert!(!says.contains("no directory leads to it"), "{says}");
        assert!(!out.join("lost+found").exists());
        let owner = fs::metadata(out.join("evil")).unwrap().uid();
        assert_eq!((owner, mode(&out.join("evil"))), (65_533, 0o755));
        assert_eq!(mode(&out.join("shared")), 0o755);
    }
}
