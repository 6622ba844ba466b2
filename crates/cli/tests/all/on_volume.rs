//! Tests of `run`, `mount`, `sync`, `grow` and `stat` on volumes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{can_mount, vfscale};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap().trim()
}

/// A directory for an image.
struct Images(tempfile::TempDir);

impl Images {
    fn new() -> Images {
        Images(tempfile::tempdir().unwrap())
    }

    /// Makes one if this machine allows mounting.
    fn mountable() -> Option<Images> {
        can_mount().then(Images::new)
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("disk.vfs")
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.0.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let mut command = vfscale();
        command.arg("run").arg(self.image()).args(options).args(["--", "sh", "-c", script]);
        command.output().unwrap()
    }

    /// Runs a script, which must succeed, and returns its output.
    fn good(&self, options: &[&str], script: &str) -> String {
        let output = self.run(options, script);
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{script}");
        text(&output.stdout).to_owned()
    }
}

/// A mount in the foreground, which is killed unless it was unmounted.
struct Mount(Child, PathBuf);

impl Mount {
    fn new(image: &Path, dir: &Path, options: &[&str]) -> Mount {
        let mut command = vfscale();
        command.arg("mount").args(options).arg(image).arg(dir).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted at "), "{line}");
        let is_written = !options
            .iter()
            .any(|option| option.starts_with("--read-only") || option.starts_with("ro"));
        assert_eq!(line.contains("`vfscale sync "), is_written, "{line}");
        Mount(server, dir.to_owned())
    }

    fn unmount(mut self) {
        // Other tests of this process start programs. Between fork and exec their children hold the
        // files of this mount that are open at that moment, and it is busy.
        vfscale_harness::wait_until("the end of the mount", || {
            Command::new("umount").arg(&self.1).output().unwrap().status.success()
        });
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.1).status();
        }
    }
}

#[test]
fn a_volume_is_made_and_kept() {
    let Some(images) = Images::mountable() else { return };
    let made = "mkdir dir && echo text >dir/file && ln dir/file link && ln -s dir/file symlink && \
                stat -c '%a %u' . && grep \" $PWD \" /proc/mounts";
    // Only root may use another user's directory.
    let own = rustix::process::geteuid();
    let owner = if own.is_root() { 7 } else { own.as_raw() };
    let printed = images.good(&["--size=64M", "--mode=1750", &format!("--uid={owner}")], made);
    assert!(printed.starts_with(&format!("1750 {owner}\n")), "{printed}");
    assert!(printed.contains("disk.vfs"), "the mount does not print its source: {printed}");
    // Sparse: unwritten blocks take no space.
    let size = fs::metadata(images.image()).unwrap().len();
    assert_eq!(size, 64 << 20);
    let read = "cat symlink && stat -c %h link && stat -c '%a %u' . && ls";
    let printed = images.good(&[], read);
    assert_eq!(printed, format!("text\n2\n1750 {owner}\ndir\nlink\nsymlink"));
}

#[test]
fn the_status_is_that_of_the_command() {
    let Some(images) = Images::mountable() else { return };
    let output = images.run(&["--size=32M"], "echo kept >file; exit 9");
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    assert_eq!(images.good(&[], "cat file"), "kept");
}

#[test]
fn one_at_a_time_and_the_second_hears_of_the_first() {
    let Some(images) = Images::mountable() else { return };
    let mount = Mount::new(&images.image(), &images.dir("mnt"), &["--size=32M"]);
    fs::write(images.dir("mnt").join("file"), "one").unwrap();
    let refused = images.run(&[], "true");
    assert_eq!(refused.status.code(), Some(1));
    let why = text(&refused.stderr);
    assert!(why.contains("disk.vfs") && why.contains("in use"), "{why}");
    assert!(why.contains(&mount.0.id().to_string()), "the holder is not named: {why}");
    mount.unmount();
    assert_eq!(images.good(&[], "cat file"), "one");
}

/// Creates files until `stop` is set, each as long as its number, and starts over after [`ROUND`]
/// of them; returns their number.
fn write_files(dir: &Path, stop: &AtomicBool) -> usize {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let n = count % ROUND;
        fs::write(dir.join(n.to_string()), vec![n as u8; 1000 * (1 + n % 50)]).unwrap();
        count += 1;
    }
    count.min(ROUND)
}

/// Number of files that take ten megabytes together.
const ROUND: usize = 400;

/// Returns the size of the file system at `dir`, and its free space, in MiB.
fn space(dir: &Path) -> (u64, u64) {
    let all = rustix::fs::statvfs(dir).unwrap();
    ((all.f_blocks * all.f_frsize) >> 20, (all.f_bfree * all.f_frsize) >> 20)
}

#[test]
fn a_volume_grows_under_its_users() {
    let Some(images) = Images::mountable() else { return };
    let (image, dir) = (images.image(), images.dir("mount point"));
    let grow = |place: &Path, size: &str| {
        vfscale().arg("grow").arg(place).args(["--size", size]).output().unwrap()
    };
    let good = |place: &Path, size: &str| {
        let output = grow(place, size);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let mount = Mount::new(&image, &dir, &["--size=32M"]);
    let stop = AtomicBool::new(false);
    let count = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(&dir, &stop));
        let before = space(&dir);
        // By its image and by its directory; within the last group, and beyond it.
        assert!(good(&image, "33M").ends_with("disk.vfs: 33 MiB"));
        assert!(good(&dir, "80M").ends_with("mount point: 80 MiB"));
        let grown = space(&dir);
        assert!(grown.0 >= before.0 + 47 && grown.1 > before.1, "{before:?} {grown:?}");
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    // More data than the volume could store before.
    fs::write(dir.join("large"), vec![7; 40 << 20]).unwrap();
    let refused = grow(&image, "64M");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("does not shrink"), "{}", text(&refused.stderr));
    let refused = grow(&image, "17T");
    assert!(text(&refused.stderr).contains("16 TiB at most"), "{}", text(&refused.stderr));
    mount.unmount();
    assert_eq!(fs::metadata(&image).unwrap().len(), 80 << 20);
    let checked = vfscale().arg("fsck").arg(&image).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));

    assert!(good(&image, "100M").ends_with("disk.vfs: 100 MiB"), "it is not mounted");
    let mount = Mount::new(&image, &dir, &[]);
    assert_eq!(fs::read(dir.join("large")).unwrap(), vec![7; 40 << 20]);
    for n in 0..count {
        let length = 1000 * (1 + n % 50);
        assert_eq!(fs::read(dir.join(n.to_string())).unwrap(), vec![n as u8; length], "{n}");
    }
    assert!(space(&dir).0 > 90);
    mount.unmount();
}

#[test]
fn a_mount_shows_how_it_is_used() {
    let Some(images) = Images::mountable() else { return };
    let (image, dir) = (images.image(), images.dir("mount \"point\""));
    let stat = |arguments: &[&str], place: &Path| {
        let output = vfscale().arg("stat").args(arguments).arg(place).output().unwrap();
        let (out, err) = (text(&output.stdout).to_owned(), text(&output.stderr).to_owned());
        (output.status.code(), out, err)
    };
    let (status, _, why) = stat(&[], &dir);
    assert_eq!(status, Some(1));
    assert!(why.contains("no file system of vfscale is mounted there"), "{why}");

    let mount = Mount::new(&image, &dir, &["--size=32M"]);
    for n in 0..5 {
        fs::create_dir(dir.join(n.to_string())).unwrap();
    }
    let (status, words, why) = stat(&[], &dir);
    assert_eq!(status, Some(0), "{why}");
    let row = words.lines().find(|line| line.starts_with("MKDIR ")).unwrap();
    assert_eq!(row.split_whitespace().nth(1), Some("5"), "{words}");
    assert!(words.contains("inodes that the kernel caches: 5\n"), "{words}");

    let (_, json, _) = stat(&["--json"], &dir);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let operations = json["operations"].as_array().unwrap();
    let mkdir = operations.iter().find(|stats| stats["operation"] == "MKDIR").unwrap();
    assert_eq!(mkdir["count"], 5);
    assert!(mkdir["mean_ns"].as_u64().unwrap() > 0, "{mkdir}");
    assert!(json["size_bytes"].as_u64().unwrap() > json["free_bytes"].as_u64().unwrap(), "{json}");

    let (_, lines, _) = stat(&["--prometheus"], &dir);
    let label = dir.display().to_string().replace('"', "\\\"");
    let labels = format!("dir=\"{label}\",operation=\"MKDIR\"");
    for (name, labels) in [("count", labels.clone()), ("bucket", labels + ",le=\"+Inf\"")] {
        let line = format!("vfscale_request_seconds_{name}{{{labels}}} 5");
        assert!(lines.lines().any(|found| found == line), "{line} is not in {lines}");
    }
    assert_eq!(stat(&["--replay"], &dir).0, Some(2));
    mount.unmount();
    assert_eq!(stat(&["--prometheus"], &image).0, Some(2));
    assert!(stat(&[], &image).1.contains("clean"));
}

/// Returns the figures of a mount.
fn figures(dir: &Path) -> serde_json::Value {
    let output = vfscale().args(["stat", "--json"]).arg(dir).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_mount_shows_its_transport_log_and_cache() {
    let Some(images) = Images::mountable() else { return };
    let (image, dir) = (images.image(), images.dir("mnt"));
    let mount = Mount::new(&image, &dir, &["--size=64M", "--sync-interval=10000", "--threads=3"]);
    let number = |figures: &serde_json::Value, name: &str| {
        figures[name].as_u64().unwrap_or_else(|| panic!("no {name}: {figures}"))
    };
    let before = figures(&dir);
    assert_eq!(before["transport"], "classic");
    assert_eq!(number(&before, "queues"), 1);
    assert_eq!(number(&before, "threads"), 3);
    assert_eq!(number(&before, "cache_dirty_bytes"), 0);

    // Less than what is written back behind a sequential writer.
    fs::write(dir.join("f"), vec![7; 3 << 20]).unwrap();
    let dirty = figures(&dir);
    let most = number(&dirty, "cache_max_bytes");
    assert_eq!(number(&dirty, "cache_dirty_bytes"), 3 << 20);
    assert!(most >= 3 << 20, "{dirty}");
    assert!(
        number(&dirty, "log_transactions_total") > number(&before, "log_transactions_total"),
        "{dirty}"
    );

    let synced = vfscale().arg("sync").arg(&dir).output().unwrap();
    assert!(synced.status.success(), "{}", text(&synced.stderr));
    let clean = figures(&dir);
    assert_eq!(number(&clean, "cache_dirty_bytes"), 0);
    assert!(number(&clean, "cache_clean_bytes") >= 3 << 20, "{clean}");
    for event in ["log_checkpoints_total", "log_writes_total", "log_flushes_total"] {
        assert!(number(&clean, event) > number(&before, event), "{event}: {clean}");
    }
    let (all, used) = (number(&clean, "log_size_bytes"), number(&clean, "log_used_bytes"));
    assert!(0 < used && used < all, "{clean}");
    assert_eq!(number(&clean, "log_space_waits_total"), 0);
    assert_eq!(number(&clean, "log_memory_waits_total"), 0);

    let lines = vfscale().args(["stat", "--prometheus"]).arg(&dir).output().unwrap();
    let labels = format!("dir=\"{}\"", dir.display());
    for line in [
        "# TYPE vfscale_log_checkpoints_total counter".to_owned(),
        format!("vfscale_log_size_bytes{{{labels}}} {all}"),
        format!("vfscale_transport_info{{{labels},transport=\"classic\"}} 1"),
    ] {
        assert!(text(&lines.stdout).lines().any(|found| found == line), "{line}");
    }
    mount.unmount();
}

#[test]
fn a_mount_in_memory_has_no_log_and_no_cache() {
    if !can_mount() {
        return;
    }
    let script = format!("{} stat --json .", env!("CARGO_BIN_EXE_vfscale"));
    let mut command = vfscale();
    let output = command.args(["run", "--memory=16M", "--", "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figures["transport"], "classic");
    let named = |part: &str| figures.as_object().unwrap().keys().any(|name| name.contains(part));
    assert!(named("polls") && !named("log_") && !named("cache_dirty"), "{figures}");
}

/// A trim says what an image has given back, and not how much is free: a branch may keep its space
/// for others.
#[test]
fn a_trim_of_a_branch_says_what_the_host_got_back() {
    let Some(images) = Images::mountable() else { return };
    let (image, dir) = (images.image(), images.dir("mnt"));
    vfscale::volume(&image).create(64 << 20).open().unwrap().close().unwrap();
    vfscale::pool(&image).convert(true).open().unwrap().close().unwrap();
    let mount = Mount::new(&image, &dir, &[]);
    fs::write(dir.join("file"), vec![7; 20 << 20]).unwrap();
    fs::remove_file(dir.join("file")).unwrap();
    vfscale_fuse::control::sync(&dir).unwrap();
    let allocated = || fs::metadata(&image).unwrap().blocks() * 512;
    let before = allocated();
    let output = vfscale().arg("trim").arg(&dir).output().unwrap();
    let words = text(&output.stdout);
    let number = words.split(' ').find_map(|word| word.parse::<u64>().ok());
    let given = before.saturating_sub(allocated());
    assert!(output.status.success() && words.contains(" MiB given back"), "{words}");
    assert!(number.unwrap() << 20 <= given, "{words}: {given} bytes");
    mount.unmount();
}

/// An image gives the space of removed files back to its file system, by a request to its mount or
/// without.
#[test]
fn free_space_is_trimmed() {
    let images = Images::new();
    let (image, dir) = (images.image(), images.dir("mnt"));
    let trim = |place: &Path| {
        let output = vfscale().arg("trim").arg(place).output().unwrap();
        (output.status.code(), text(&output.stdout).to_owned() + text(&output.stderr))
    };
    assert!(trim(&image).1.contains("vfscale mkfs"));
    assert!(vfscale().arg("mkfs").arg(&image).arg("--size=64M").output().unwrap().status.success());
    let (code, words) = trim(&image);
    assert!(code == Some(0) && words.contains(" 0 MiB given back"), "{words}");
    if !can_mount() {
        return;
    }
    let allocated = || fs::metadata(&image).unwrap().blocks() * 512;
    let mount = Mount::new(&image, &dir, &["-o", "nodiscard"]);
    fs::write(dir.join("file"), vec![7; 30 << 20]).unwrap();
    vfscale_fuse::control::sync(&dir).unwrap();
    fs::remove_file(dir.join("file")).unwrap();
    vfscale_fuse::control::sync(&dir).unwrap();
    let before = allocated();
    let given = |place: &Path| {
        let (code, words) = trim(place);
        let number = words.split(' ').find_map(|word| word.parse::<u64>().ok());
        assert!(code == Some(0) && words.contains(" MiB given back"), "{words}");
        number.unwrap()
    };
    // The blocks of the file are free a moment after its last use.
    let mut total = 0;
    vfscale_harness::wait_until("the space is given back", || {
        total += given(&image) + given(&dir);
        allocated() + (29 << 20) < before
    });
    assert!(total >= 28 && total << 20 <= before - allocated(), "{total}");
    mount.unmount();
    let mount = Mount::new(&image, &dir, &["--read-only"]);
    assert!(trim(&dir).1.contains("for reading only"));
    mount.unmount();
}

#[test]
fn what_can_not_grow_says_why() {
    let images = Images::new();
    let refused = |args: &[&str], code: i32, why: &str| {
        let output = vfscale().arg("grow").args(args).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        assert!(message.contains(why), "{args:?}: {message}");
    };
    let (dir, image) = (images.dir("mnt"), images.image());
    let (dir, image) = (dir.to_str().unwrap(), image.to_str().unwrap());
    refused(&[image, "--size=64M"], 1, "the image does not exist");
    refused(&[dir, "--size=64M"], 1, "no file system of vfscale is mounted there");
    refused(&[dir], 1, "no file system of vfscale is mounted there");
    fs::write(image, vec![b'x'; 1 << 20]).unwrap();
    refused(&[image, "--size=64M"], 1, "mkfs");
    assert_eq!(fs::metadata(image).unwrap().len(), 1 << 20, "a foreign file was changed");
    fs::remove_file(image).unwrap();
    assert!(vfscale().args(["mkfs", image, "--size=32M"]).output().unwrap().status.success());
    refused(&[image, "--size=31M"], 1, "does not shrink");
    refused(&[image, "--size=17T"], 1, "too many");
    if !can_mount() {
        return;
    }
    let mount = Mount::new(&images.image(), Path::new(dir), &["--read-only"]);
    refused(&[dir, "--size=64M"], 1, "for reading only");
    refused(&[dir], 2, "--size");
    mount.unmount();
    // A mount with another source is not found by its image.
    let mount = Mount::new(&images.image(), Path::new(dir), &["-o", "fsname=music"]);
    refused(&[image, "--size=64M"], 1, "vfscale grow DIR");
    mount.unmount();
    let mut command = vfscale();
    let asked = format!("{} grow . --size 64M", env!("CARGO_BIN_EXE_vfscale"));
    let output = command.args(["run", "--memory=1M", "sh", "-c", &asked]).output().unwrap();
    assert!(text(&output.stderr).contains("is no volume"), "{}", text(&output.stderr));
}

#[test]
fn reading_only_writes_nothing() {
    let Some(images) = Images::mountable() else { return };
    images.good(&["--size=32M"], "echo text >file");
    let before = fs::read(images.image()).unwrap();
    for options in [&["--read-only"][..], &["-o", "ro"]] {
        assert_eq!(images.good(options, "cat file; touch new 2>/dev/null || echo no"), "text\nno");
    }
    assert!(before == fs::read(images.image()).unwrap(), "the image has changed");
}

/// Mounts, writes, calls `then`, and kills the server; returns whether all written data survived.
fn survives(images: &Images, name: &str, then: impl FnOnce(&Path)) -> bool {
    let (image, dir) = (images.image(), images.dir("mnt"));
    let mount = Mount::new(&image, &dir, &["--size=32M", "--sync-interval=10000"]);
    fs::create_dir(dir.join(name)).unwrap();
    for number in 0..20_u8 {
        fs::write(dir.join(format!("{name}/{number}")), vec![number; 10_000]).unwrap();
    }
    then(&dir);
    drop(mount);
    let mount = Mount::new(&image, &dir, &[]);
    let is_there = |number: u8| {
        let contents = fs::read(dir.join(format!("{name}/{number}")));
        contents.is_ok_and(|contents| contents == vec![number; 10_000])
    };
    let all = (0..20).all(is_there);
    mount.unmount();
    all
}

/// The case of generic/599 in xfstests, and the effect that `sync` should have.
#[test]
fn what_was_done_before_a_sync_or_a_remount_is_durable() {
    let Some(images) = Images::mountable() else { return };
    assert!(
        !survives(&images, "nothing", |_| {}),
        "everything is durable without a request: the rest tests nothing"
    );
    let asks = |args: &[&str], dir: &Path| {
        let output = vfscale().args(args).arg(dir).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    };
    assert!(survives(&images, "sync", |dir| asks(&["sync"], dir)));
    // Any directory of the mount can be named.
    assert!(survives(&images, "below", |dir| asks(&["sync"], &dir.join("below"))));
    let elsewhere = vfscale().arg("sync").arg(images.0.path()).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(text(&elsewhere.stderr).contains("no file system of vfscale"));
    let memory = [env!("CARGO_BIN_EXE_vfscale"), "sync", "."].join(" ");
    let run = vfscale().args(["run", "--memory=1M", "sh", "-c", &memory]).output().unwrap();
    assert!(run.status.success(), "{}", text(&run.stderr));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let remounted = survives(&images, "remount", |dir| {
        asks(&["mount", "-o", "remount,ro"], dir);
        assert!(fs::write(dir.join("more"), "").is_err());
    });
    assert!(remounted);
    // The call of mount(8), with the options that the kernel shows of the mount.
    let helper = images.0.path().join("mount.fuse.vfscale");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vfscale"), &helper).unwrap();
    let shown = "ro,relatime,remount,user_id=0,group_id=0,default_permissions,allow_other";
    assert!(survives(&images, "helper", |dir| {
        let mut command = Command::new(&helper);
        let output = command.arg(images.image()).arg(dir).args(["-o", shown]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }));
}

/// Remounts by a system call, of which neither the server nor the helper is notified.
#[test]
fn a_remount_is_noticed() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let images = Images::new();
    let (image, copy) = (images.image(), images.0.path().join("copy.vfs"));
    // The image as another process would find it now.
    let is_durable = || {
        fs::copy(&image, &copy).unwrap();
        let Ok(volume) = vfscale::volume(&copy).read_only(true).open() else { return false };
        volume.task().read("/remount/19").is_ok_and(|file| file == vec![19; 10_000])
    };
    let survived = survives(&images, "remount", |dir| {
        assert!(!is_durable());
        let flags = rustix::mount::MountFlags::RDONLY;
        rustix::mount::mount_remount(dir, flags, "").unwrap();
        vfscale_harness::wait_until("the directory is durable", is_durable);
    });
    assert!(survived);
}

/// A read-only mount shows data that was synced before the server was killed, whether it is in the
/// log or in place, and no byte of the image changes.
#[test]
fn what_crashed_is_mounted_to_read() {
    let Some(images) = Images::mountable() else { return };
    images.good(&["--size=32M"], "echo home >old");
    let (image, dir) = (images.image(), images.dir("mnt"));
    let mount = Mount::new(&image, &dir, &["--sync-interval=1000"]);
    fs::write(dir.join("new"), "in the log").unwrap();
    fs::File::open(dir.join("new")).unwrap().sync_all().unwrap();
    drop(mount);
    let before = fs::read(&image).unwrap();
    for (options, finds_new) in [("ro", true), ("ro,norecovery", false)] {
        let mount = Mount::new(&image, &dir, &["-o", options]);
        assert_eq!(fs::read(dir.join("old")).unwrap(), b"home\n");
        let new = fs::read(dir.join("new")).ok();
        assert_eq!(new.as_deref(), finds_new.then_some(&b"in the log"[..]), "{options}");
        assert!(fs::write(dir.join("other"), "").is_err());
        mount.unmount();
        assert!(before == fs::read(&image).unwrap(), "{options}: written");
    }
    let refused = images.run(&["-o", "norecovery"], "true");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("ro,norecovery"), "{}", text(&refused.stderr));
    assert_eq!(images.good(&[], "cat old new"), "home\nin the log");
}

#[test]
fn settings_reach_the_volume() {
    let Some(images) = Images::mountable() else { return };
    let options = [
        "--size=64M",
        "--log-size=2M",
        "--sync-interval=0.2",
        "--cache-size=16M",
        "--before=cil-lists",
        "--before=active-trans",
    ];
    images.good(&options, "seq 10000 >file");
    assert_eq!(images.good(&["--before=read-mostly"], "tail -1 file"), "10000");
}

#[test]
fn what_is_wrong_is_named() {
    let images = Images::new();
    let refused = |args: &[&str], code: i32, names: &[&str]| {
        let output = vfscale().args(args).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        for name in names {
            assert!(message.contains(name), "{args:?}: {message}");
        }
    };
    let dir = images.dir("mnt");
    let dir = dir.to_str().unwrap();
    let image = images.image();
    let image = image.to_str().unwrap();
    refused(&["mount", image, dir], 1, &[image, "mkfs"]);
    refused(&["mount", dir], 2, &["IMAGE"]);
    refused(&["run", image, "--size=4K", "--", "true"], 1, &[image]);
    assert!(!images.image().exists(), "an image that can't be made stays");
    fs::write(image, vec![b'x'; 1 << 20]).unwrap();
    refused(&["run", image, "--size=64M", "--", "true"], 1, &[image, "mkfs"]);
    assert_eq!(fs::metadata(image).unwrap().len(), 1 << 20, "a foreign file was changed");
    refused(&["run", "--memory", "--before=cil-lists", "true"], 2, &["cil-lists", "volumes"]);
    refused(&["run", "/dev/null", "--", "true"], 1, &["/dev/null"]);
}

/// Mounts in the background with a log file, makes the server say something when it ends, and
/// returns the log.
fn log_of_background(levels: &str) -> String {
    let images = Images::new();
    let (image, dir) = (images.image(), images.dir("log"));
    let log = image.with_extension("log");
    let mut command = vfscale();
    command.args(["mount", "--background", "--size=64M", "--log-file"]).arg(&log);
    command.arg(&image).arg(&dir).env("RUST_LOG", levels);
    assert!(command.status().unwrap().success());
    let file = fs::File::create(dir.join("file")).unwrap();
    let held = vfscale().args(["fsck", "-y"]).arg(&image).output().unwrap();
    let holder = text(&held.stderr).split_once("in use by process ").unwrap().1;
    let pid: i32 = holder.split(' ').next().unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let read = || fs::read_to_string(&log).unwrap();
    vfscale_harness::wait_until("the warning", || {
        read().contains("was in use; unmounted under its users\n")
    });
    drop(file);
    vfscale_harness::wait_until("the end of the server", || {
        rustix::process::test_kill_process(pid).is_err()
    });
    read()
}

#[test]
fn a_mount_in_the_background_has_a_log() {
    if !can_mount() {
        return;
    }
    let log = log_of_background("warn");
    let line = log.lines().find(|line| line.contains("was in use")).unwrap();
    assert!(line.starts_with("20") && line.contains("Z vfscale: /"), "{log}");
    let noted = log.lines().filter(|line| line.contains("sync(2) and syncfs(2) do not reach it"));
    assert_eq!(noted.count(), 1, "{log}");
    // Messages of the library are there, too, without colours.
    let log = log_of_background("vfscale_fuse=trace");
    assert!(log.contains(" TRACE vfscale_fuse::session: served"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
    let failed = vfscale()
        .args(["mount", "--memory", "--background", "--log-file=/no/such/dir/log", "/tmp"])
        .output()
        .unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("cannot write /no/such/dir/log"));
}

#[test]
fn a_service_manager_is_told_the_state() {
    let Some(images) = Images::mountable() else { return };
    let (image, dir) = (images.image(), images.dir("service"));
    let path = image.with_extension("socket");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let received = || {
        let mut lines = [0; 500];
        let length = manager.recv(&mut lines).unwrap();
        text(&lines[..length]).to_owned()
    };
    let mut command = vfscale();
    command.args(["mount", "--size=64M"]).arg(&image).arg(&dir).env("NOTIFY_SOCKET", &path);
    let mut server = command.stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(received(), format!("READY=1\nSTATUS=Mounted at {}", dir.display()));
    fs::write(dir.join("file"), "text").unwrap();
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let stopping = received();
    assert!(stopping.starts_with("STOPPING=1\nSTATUS=Unmounted from "), "{stopping}");
    assert!(server.wait().unwrap().success());
}
