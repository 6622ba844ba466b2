//! Several branches of one image, mounted at several directories by one server.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{can_mount, vfscale};

/// An image with the branches `main`, `a` and `b`, and directories to mount at.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        let volume = vfscale::volume(place.image()).create(64 << 20).open().unwrap();
        volume.task().write("/f", "base").unwrap();
        volume.close().unwrap();
        let pool = vfscale::pool(place.image()).convert(true).open().unwrap();
        for name in ["a", "b"] {
            pool.fork("main", name).unwrap();
        }
        pool.close().unwrap();
        for name in ["1", "2", "3"] {
            fs::create_dir(place.dir(name)).unwrap();
        }
        place
    }

    /// Makes one if this machine allows mounting.
    fn mountable() -> Option<Place> {
        can_mount().then(Place::new)
    }

    fn image(&self) -> PathBuf {
        self.0.path().join("disk.vfs")
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn mount(&self, options: &[&str], branch: &str, dir: &str) -> Command {
        let mut command = vfscale();
        command.arg("mount").args(options).args(["-o", &format!("branch={branch}")]);
        command.arg(self.image()).arg(self.dir(dir));
        command
    }

    /// Mounts in the background.
    fn good(&self, branch: &str, dir: &str) {
        succeeds(self.mount(&["--background"], branch, dir));
    }

    /// Mounts in the foreground, and returns when that is done.
    fn foreground(&self, branch: &str, dir: &str) -> Child {
        let mut server = self.mount(&[], branch, dir).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted at "), "{line}");
        // Later messages must not fill the pipe.
        std::thread::spawn(move || {
            let mut rest = String::new();
            let _ = stderr.read_to_string(&mut rest);
            eprint!("{rest}");
        });
        server
    }

    fn write(&self, dir: &str, text: &str) {
        fs::write(self.dir(dir).join("f"), text).unwrap();
    }

    fn read(&self, dir: &str) -> String {
        fs::read_to_string(self.dir(dir).join("f")).unwrap()
    }

    fn is_mounted(&self, dir: &str) -> bool {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(&format!(" {} ", self.dir(dir).display()))
    }

    fn umount(&self, dir: &str) {
        let mut command = vfscale();
        command.arg("umount").arg(self.dir(dir));
        succeeds(command);
    }

    /// Checks the contents of branches when nothing is mounted, and the image.
    fn has(&self, expected: &[(&str, &str)]) {
        let pool = vfscale::pool(self.image()).open().unwrap();
        for (branch, text) in expected {
            let volume = pool.open(branch).unwrap();
            assert_eq!(volume.task().read_to_string("/f").unwrap(), *text, "{branch}");
            volume.close().unwrap();
        }
        assert_eq!(pool.check().unwrap(), Vec::<String>::new());
        pool.close().unwrap();
    }
}

/// Returns how many bytes of file data a mount caches, and the most: of all branches that share it.
fn cached(dir: &Path) -> (u64, u64) {
    let mut command = vfscale();
    command.args(["stat", "--json"]).arg(dir);
    let shown: serde_json::Value = serde_json::from_str(&succeeds(command)).unwrap();
    let bytes = |name: &str| shown[name].as_u64().unwrap();
    let clean = bytes("cache_clean_bytes");
    (clean + bytes("cache_dirty_bytes"), bytes("cache_max_bytes"))
}

impl Drop for Place {
    fn drop(&mut self) {
        for dir in ["1", "2", "3"].map(|name| self.dir(name)) {
            let _ = Command::new("umount").args(["-q", "-l"]).arg(dir).status();
        }
    }
}

fn succeeds(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert!(status.success(), "{command:?}: {text}");
    text
}

fn fails(mut command: Command, status: i32) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{command:?}: {text}");
    text
}

fn ended(child: &mut Child) -> ExitStatus {
    vfscale_harness::wait_until("the end of a process", || child.try_wait().unwrap().is_some());
    child.wait().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn branch(place: &Place, arguments: &[&str], name: &str) -> Command {
    let mut command = vfscale();
    command.arg("branch").args(arguments).arg(place.image()).arg(name);
    command
}

/// Returns whether no process has the image open.
fn is_free(image: &Path) -> bool {
    vfscale::pool(image).open().is_ok_and(|pool| pool.close().is_ok())
}

#[test]
fn branches_are_mounted_at_several_directories() {
    let Some(place) = Place::mountable() else { return };
    place.good("a", "1");
    place.good("b", "2");
    // Without a name it is the volume itself.
    let mut main = vfscale();
    main.args(["mount", "--background"]).arg(place.image()).arg(place.dir("3"));
    succeeds(main);
    for dir in ["1", "2", "3"] {
        assert_eq!(place.read(dir), "base");
        place.write(dir, dir);
    }
    for dir in ["1", "2", "3"] {
        assert_eq!(place.read(dir), dir);
    }
    // A branch is mounted once, and can't be deleted meanwhile.
    let says = fails(place.mount(&["--background"], "a", "3"), 1);
    assert!(says.contains("is mounted at") && says.contains("/1 already"), "{says}");
    assert!(fails(branch(&place, &["delete"], "a"), 1).contains("in use"));
    assert!(fails(branch(&place, &["delete"], "b"), 1).contains("in use"));
    // A fork has what was written in any of them.
    succeeds(branch(&place, &["create", "--from", "a"], "copy"));
    let says = fails(place.mount(&["--background"], "none", "3"), 1);
    assert!(says.contains("no branch"), "{says}");
    let mut trim = vfscale();
    trim.arg("trim").arg(place.image());
    succeeds(trim);
    // One goes, and the others stay.
    place.umount("1");
    assert!(!place.is_mounted("1"));
    assert_eq!((place.read("2"), place.read("3")), ("2".into(), "3".into()));
    // Its branch can be mounted again, elsewhere; and be deleted.
    place.good("copy", "1");
    assert_eq!(place.read("1"), "1");
    place.umount("1");
    succeeds(branch(&place, &["delete"], "copy"));
    place.umount("3");
    assert!(!is_free(&place.image()));
    place.umount("2");
    assert!(is_free(&place.image()));
    place.has(&[("a", "1"), ("b", "2"), ("main", "3")]);
}

#[test]
fn mounted_branches_grow_and_are_frozen_together() {
    let Some(place) = Place::mountable() else { return };
    place.good("a", "1");
    place.good("b", "2");
    let size = |dir: &str| {
        let statvfs = rustix::fs::statvfs(place.dir(dir)).unwrap();
        statvfs.f_blocks * statvfs.f_frsize
    };
    let grow = |at: PathBuf, options: &[&str]| {
        let mut grow = vfscale();
        grow.arg("grow").arg(at).args(options);
        grow
    };
    let (of_a, of_b) = (size("1"), size("2"));
    succeeds(grow(place.dir("1"), &["--size", "+64M"]));
    assert!(size("1") > of_a + (60 << 20));
    assert_eq!(size("2"), of_b);
    // A branch that is mounted elsewhere, and one that is not mounted.
    succeeds(grow(place.dir("1"), &["--branch", "b", "--size", "0.25G"]));
    assert!(size("2") > 200 << 20);
    succeeds(grow(place.dir("1"), &["--branch", "main", "--size", "256M"]));
    let image = fs::metadata(place.image()).unwrap().len();
    succeeds(grow(place.dir("2"), &["--branch-space", "+1G"]));
    assert!(fs::metadata(place.image()).unwrap().len() >= image + (1 << 30));
    assert!(fails(grow(place.dir("2"), &["--size", "64M"]), 1).contains("larger already"));
    place.write("1", "one");
    place.write("2", "two");
    let copy = place.image().with_extension("copy");
    let mut freeze = vfscale();
    freeze.arg("freeze").arg(place.dir("1")).args(["cp", "--sparse=always"]);
    freeze.arg(place.image()).arg(&copy);
    succeeds(freeze);
    place.write("1", "later");
    place.umount("1");
    place.umount("2");
    let copied = vfscale::pool(&copy).read_only(true).open().unwrap();
    for (name, text) in [("a", "one"), ("b", "two")] {
        let volume = copied.open(name).unwrap();
        assert_eq!(volume.task().read_to_string("/f").unwrap(), text);
        volume.close().unwrap();
    }
    place.has(&[("a", "later"), ("b", "two")]);
}

#[test]
fn each_process_in_the_foreground_ends_with_its_mount() {
    let Some(place) = Place::mountable() else { return };
    let mut first = place.foreground("a", "1");
    let mut second = place.foreground("b", "2");
    place.write("2", "b");
    // A signal to the second one ends its mount alone.
    signal(&second, Signal::TERM);
    assert!(ended(&mut second).success());
    assert!(!place.is_mounted("2") && place.is_mounted("1"));
    // The server goes on without its first mount, until the last one is gone.
    let mut second = place.foreground("b", "2");
    assert_eq!(place.read("2"), "b");
    place.umount("1");
    assert!(first.try_wait().unwrap().is_none());
    place.write("2", "later");
    let mut third = place.foreground("a", "3");
    place.umount("2");
    assert!(ended(&mut second).success());
    place.umount("3");
    assert!(ended(&mut third).success() && ended(&mut first).success());
    place.has(&[("a", "base"), ("b", "later")]);
}

#[test]
fn a_signal_to_the_server_ends_all_mounts() {
    let Some(place) = Place::mountable() else { return };
    let mut first = place.foreground("a", "1");
    let mut second = place.foreground("b", "2");
    place.good("main", "3");
    place.write("1", "a");
    place.write("3", "m");
    // One of them is in use.
    let file = fs::File::open(place.dir("2").join("f")).unwrap();
    place.write("2", "b");
    signal(&first, Signal::TERM);
    assert!(ended(&mut first).success());
    ended(&mut second);
    drop(file);
    assert!(["1", "2", "3"].iter().all(|dir| !place.is_mounted(dir)));
    place.has(&[("a", "a"), ("b", "b"), ("main", "m")]);
}

#[test]
fn a_killed_server_ends_all_mounts_and_each_branch_is_recovered() {
    let Some(place) = Place::mountable() else { return };
    let mut first = place.foreground("a", "1");
    let mut second = place.foreground("b", "2");
    place.good("main", "3");
    for dir in ["1", "2", "3"] {
        place.write(dir, dir);
        fs::File::open(place.dir(dir).join("f")).unwrap().sync_all().unwrap();
    }
    first.kill().unwrap();
    first.wait().unwrap();
    // The process of the second mount removes it, and says why it has ended.
    assert_eq!(ended(&mut second).code(), Some(1));
    assert!(!place.is_mounted("2"));
    for dir in ["1", "3"] {
        assert!(fs::read(place.dir(dir).join("f")).is_err());
        let mut command = Command::new("umount");
        command.arg(place.dir(dir));
        succeeds(command);
    }
    place.has(&[("a", "1"), ("b", "2"), ("main", "3")]);
}

#[test]
fn commands_run_in_branches_of_a_mounted_image() {
    let Some(place) = Place::mountable() else { return };
    place.good("a", "1");
    place.write("1", "unsynced");
    let run = |options: &[&str], command: &str| {
        let mut run = vfscale();
        run.arg("run").args(options).arg(place.image()).args(["--", "sh", "-c", command]);
        run
    };
    assert_eq!(succeeds(run(&["--branch", "b"], "printf new > f; cat f")), "new");
    assert_eq!(succeeds(run(&["-o", "branch=b"], "cat f")), "new");
    fails(run(&["--branch", "b"], "exit 3"), 3);
    assert!(fails(run(&["--branch", "a"], "true"), 1).contains("already"));
    assert!(fails(run(&["--branch", "none"], "true"), 1).contains("no branch"));
    let says = succeeds(run(&["--discard", "--branch", "a"], "cat f; rm f"));
    assert_eq!(says, "unsynced");
    let mut list = vfscale();
    list.args(["branch", "list"]).arg(place.image());
    assert_eq!(succeeds(list).lines().count(), 3);
    assert_eq!(place.read("1"), "unsynced");
    place.umount("1");
    place.has(&[("a", "unsynced"), ("b", "new"), ("main", "base")]);
}

/// The server compares, with what was not synced, and has a branch adopt another.
#[test]
fn mounted_branches_are_compared_and_others_adopted() {
    let Some(place) = Place::mountable() else { return };
    let call = |arguments: &[&str], behind: &[&str]| {
        let mut command = vfscale();
        command.args(arguments).arg(place.image()).args(behind);
        command
    };
    place.good("a", "1");
    place.good("b", "2");
    place.write("1", "unsynced");
    fs::write(place.dir("2").join("new\nline"), "x").unwrap();
    fs::rename(place.dir("2").join("f"), place.dir("2").join("moved")).unwrap();
    for (a, b, expected) in [
        ("main", "a", "changed /f (content, attributes)\n"),
        ("main", "b", "moved /f to /moved\nadded /new\\nline\n"),
        ("b", "main", "moved /moved to /f\nremoved /new\\nline\n"),
    ] {
        let output = call(&["diff"], &[a, b]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{a} {b}: {errors}");
        assert_eq!(output.status.code(), Some(1));
    }
    assert_eq!(succeeds(call(&["diff"], &["a", "a"])), "");
    assert!(fails(call(&["diff"], &["a", "none"]), 2).contains("no branch"));
    // By a directory as well; and nothing temporary is left.
    let mut by_dir = vfscale();
    by_dir.arg("diff").arg(place.dir("2")).args(["main", "a"]);
    assert_eq!(by_dir.output().unwrap().status.code(), Some(1));
    assert_eq!(succeeds(call(&["branch", "list"], &[])).lines().count(), 3);

    assert!(fails(call(&["adopt"], &["a"]), 1).contains("in use"));
    place.umount("1");
    let mut main = vfscale();
    main.args(["mount", "--background"]).arg(place.image()).arg(place.dir("3"));
    succeeds(main);
    // The parent may be mounted, and goes on.
    succeeds(call(&["adopt"], &["a"]));
    assert_eq!(fs::read_to_string(place.dir("3").join("f")).unwrap(), "unsynced");
    place.umount("3");
    assert_eq!(succeeds(call(&["branch", "list"], &[])).lines().count(), 2);
    // The parent is another one since.
    let says = fails(call(&["adopt"], &["b"]), 1);
    assert!(!says.contains("server"), "{says}");
    place.umount("2");
    place.has(&[("main", "unsynced")]);
}

/// An image that is mounted for reading only has no branch that can be written.
#[test]
fn reading_only_and_read_only_branches() {
    let Some(place) = Place::mountable() else { return };
    succeeds(branch(&place, &["create", "--read-only"], "kept"));
    place.good("a", "1");
    let says = fails(place.mount(&["--background"], "kept", "2"), 1);
    assert!(says.contains("-o ro"), "{says}");
    succeeds(place.mount(&["--background", "--read-only"], "kept", "2"));
    // A branch that can't be changed can be mounted twice.
    succeeds(place.mount(&["--background", "--read-only"], "kept", "3"));
    assert_eq!((place.read("2"), place.read("3")), ("base".into(), "base".into()));
    assert!(fs::write(place.dir("2").join("f"), "x").is_err());
    for dir in ["3", "2", "1"] {
        place.umount(dir);
    }
    succeeds(place.mount(&["--background", "--read-only"], "a", "1"));
    let says = fails(place.mount(&["--background"], "b", "2"), 1);
    assert!(says.contains("reading only"), "{says}");
    place.umount("1");
}

/// Users other than root mount with `fusermount3`, and only their own image.
#[test]
fn another_user_is_refused_and_serves_itself() {
    let is_root = rustix::process::geteuid().is_root();
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !can_mount() || !is_root || !has("setpriv") || !has("fusermount3") {
        return;
    }
    let place = Place::new();
    let program = place.0.path().join("vfscale");
    fs::copy(env!("CARGO_BIN_EXE_vfscale"), &program).unwrap();
    let as_user = |arguments: &[&str], branch: &str, dir: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command.args(arguments).args(["-o", &format!("branch={branch}")]);
        command.arg(place.image()).arg(place.dir(dir)).stdin(Stdio::null());
        command
    };
    for path in [place.0.path().to_owned(), place.image(), place.dir("1"), place.dir("2")] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    }
    let probe = as_user(&["mount", "--background"], "a", "1").output().unwrap();
    if !probe.status.success() {
        let why = String::from_utf8_lossy(&probe.stderr).into_owned();
        assert!(why.contains("/dev/fuse") || why.contains("permitted"), "{why}");
        return;
    }
    succeeds(as_user(&["mount", "--background"], "b", "2"));
    // Nor does root see it, unless it lets other users in.
    assert!(fails(place.mount(&["--background"], "main", "3"), 1).contains("in use"));
    for dir in ["2", "1"] {
        place.umount(dir);
    }
    root_is_served_without_rights(
        &place,
        as_user(&["mount", "--background", "--allow-other"], "a", "1"),
    );
    // A server of root serves nobody else.
    place.good("a", "1");
    fails(as_user(&["mount", "--background"], "b", "2"), 1);
    assert!(!place.is_mounted("2"));
    place.umount("1");
}

/// Checks branches of an image, or the one that is mounted at a directory, and returns the result.
fn checked(place: &Path, status: i32) -> serde_json::Value {
    let output = vfscale().args(["fsck", "--json"]).arg(place).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn fsck_checks_branches_that_are_mounted() {
    let Some(place) = Place::mountable() else { return };
    {
        let pool = vfscale::pool(place.image()).open().unwrap();
        // A superblock's copy, and the tree of inodes of the first group.
        let device = pool.device("b").unwrap();
        device.write_at(8 * 4096, &[1; 4096]).unwrap();
        device.flush().unwrap();
        drop(device);
        pool.close().unwrap();
    }
    place.good("main", "1");
    place.good("a", "2");
    let open = fs::File::create(place.dir("1").join("open")).unwrap();
    fs::remove_file(place.dir("1").join("open")).unwrap();
    for number in 0..100 {
        fs::write(place.dir("1").join(number.to_string()), "new").unwrap();
    }
    let all = checked(&place.image(), 4);
    let counts = |name: &str| [&all["branches"][name]["left"], &all["branches"][name]["inodes"]];
    assert_eq!(counts("main"), [0, 103], "{all}");
    assert_eq!(counts("a")[0], 0, "{all}");
    assert_ne!(counts("b")[0], 0, "{all}");
    let one = checked(&place.dir("2"), 0);
    assert_eq!(one["branches"].as_object().unwrap().keys().collect::<Vec<_>>(), ["a"]);
    let mut words = vfscale();
    words.arg("fsck").arg(place.dir("1"));
    let text = succeeds(words);
    assert!(text.ends_with(":main: clean\n") && !text.contains("its log"), "{text}");

    for (option, said) in [("--branch=none", "none"), ("--repair", "in use by process")] {
        let mut bad = vfscale();
        bad.args(["fsck", option]).arg(place.image());
        let text = fails(bad, 8);
        assert!(text.contains(said), "{text}");
    }
    drop(open);
    place.write("1", "after");
    for dir in ["1", "2"] {
        place.umount(dir);
    }
    place.has(&[("main", "after"), ("a", "base")]);
}

/// Root may have the server of a user serve a mount, without rights that it could give.
fn root_is_served_without_rights(place: &Place, mut users: Command) {
    if !users.output().unwrap().status.success() {
        // That needs `user_allow_other` in /etc/fuse.conf.
        return;
    }
    place.good("main", "3");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let third = place.dir("3").display().to_string();
    let line = table.lines().find(|line| line.contains(&third)).unwrap();
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    for dir in ["3", "1"] {
        place.umount(dir);
    }
}

/// Each of three branches reads the same 24 MiB, with memory for one of them.
#[test]
fn branches_share_the_memory_of_their_server() {
    let Some(place) = Place::mountable() else { return };
    let pool = vfscale::pool(place.image()).open().unwrap();
    let main = pool.open("main").unwrap();
    main.task().write("/large", vec![7; 24 << 20]).unwrap();
    main.close().unwrap();
    for name in ["c", "d"] {
        pool.fork("main", name).unwrap();
    }
    pool.close().unwrap();
    succeeds(place.mount(&["--background", "--cache-size=32M"], "main", "1"));
    place.good("c", "2");
    place.good("d", "3");
    let dirs = ["1", "2", "3"].map(|name| place.dir(name));
    for dir in &dirs {
        assert_eq!(fs::read(dir.join("large")).unwrap().len(), 24 << 20);
        let (bytes, most) = cached(dir);
        assert_eq!(most, 24 << 20, "{}", dir.display());
        assert!(bytes <= most, "{bytes}");
    }
    for name in ["2", "3", "1"] {
        place.umount(name);
    }
}
