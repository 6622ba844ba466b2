//! `vfscale run --native`, `commit`, `discard`, and views that are mounted.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use vfscale::posix::At;
use vfscale::{FileType, Mode, Task};

use super::branches::Image;
use crate::common::{skipped, vfscale};

/// Returns whether runs are native here; says why if not.
fn is_native(image: &Image) -> bool {
    let output = image.call(&["run", "--native", "--discard"], &["--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let why = ["not native", "mounted", "fusermount", "/dev/fuse"];
    if !output.status.success() || !said.is_empty() {
        assert!(why.iter().any(|why| said.contains(why)), "{said}");
        skipped(&format!("native runs: {said}"));
    }
    said.is_empty()
}

/// Returns the branches that keep the blocks of views, and what is beside the image.
fn left(image: &Image) -> (Vec<String>, Vec<String>) {
    let leases = image.names().into_iter().filter(|name| name.starts_with("native ")).collect();
    let home = fs::read_dir(image.0.path().join("disk.vfs.native")).unwrap();
    let mut names: Vec<_> = home.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    (leases, names)
}

fn nothing() -> (Vec<String>, Vec<String>) {
    (Vec::new(), vec!["views".into()])
}

/// Starts a native run of a shell that says when it is there, and waits for a line.
fn start(image: &Image, options: &[&str], script: &str) -> (Child, BufReader<ChildStdout>) {
    let script = format!("{script}; echo there; read line");
    let mut command = vfscale();
    command.args(["run", "--native"]).args(options).arg(image.path());
    command.args(["--", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "there\n");
    (child, out)
}

fn go_on(mut child: Child) -> i32 {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child.wait().unwrap().code().unwrap()
}

/// Kills a run, but not its command, which ends by itself.
fn kill(mut child: Child, mut out: impl Read) {
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
    // The command has ended when nobody writes any more.
    out.read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn a_native_run_changes_its_branch() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let script = "test $(cat f) = base && mkdir d && mv f d/g && echo more >> d/g && ln d/g h && \
                  test $PWD = $VFSCALE_MOUNT && echo said; exit 7";
    let output = image.call(&["run", "--native"], &["--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(output.stdout, b"said\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(image.read("/d/g"), "base\nmore\n");
    assert_eq!(image.read("/h"), "base\nmore\n");
    assert_eq!(left(&image), nothing());
    // Once more, in a branch, with the changes in memory and in another directory.
    image
        .good(&["run", "--native", "--branch", "trial", "--upper", "tmpfs=8M"], &["--", "rm", "f"]);
    let upper = image.0.path().join("upper");
    fs::create_dir(&upper).unwrap();
    let to = upper.to_str().unwrap();
    image.good(&["run", "--native", "--branch", "trial", "--upper", to], &["--", "touch", "g"]);
    assert_eq!(fs::read_dir(&upper).unwrap().count(), 0);
    let volume = vfscale::pool(image.path()).open().unwrap();
    let trial = volume.open("trial").unwrap();
    let names: Vec<_> =
        trial.task().read_dir("/").unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["g"]);
    trial.close().unwrap();
    volume.close().unwrap();
    // Nothing of this is kept.
    image.good(&["run", "--native", "--discard"], &["--", "rm", "-r", "d"]);
    assert_eq!(image.read("/d/g"), "base\nmore\n");
    image.bad(127, &["run", "--native"], &["--", "no-such-command"]);
    assert_eq!(left(&image), nothing());
    image.good(&["fsck"], &[]);
}

/// A change of a file with several names stays, though the name goes by which it was made.
#[test]
fn a_change_by_a_name_that_is_gone_is_kept() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let make = "for n in 0 1 2 3; do echo base > f$n; ln f$n h$n; done";
    image.good(&["run", "--native"], &["--", "sh", "-c", make]);
    let upper = image.0.path().join("upper");
    fs::create_dir(&upper).unwrap();
    let script = |number| format!("echo more >> f{number}; rm f{number}");
    for (number, options) in
        [&[][..], &["--upper", "tmpfs"], &["--upper", upper.to_str().unwrap()]].iter().enumerate()
    {
        let run = [&["run", "--native"], *options].concat();
        image.good(&run, &["--", "sh", "-c", &script(number)]);
    }
    let (child, out) = start(&image, &[], &script(3));
    kill(child, out);
    vfscale_harness::wait_until("Linux has dropped the mounts of the run", || {
        image.call(&["commit"], &["main"]).status.success()
    });
    for number in 0..4 {
        assert_eq!(image.read(&format!("/h{number}")), "base\nmore\n", "{number}");
    }
    assert_eq!(left(&image), nothing());
}

/// The process with the lock of the runs is named, and not waited for without end.
#[test]
fn native_runs_make_a_missing_image() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let made = image.0.path().join("made.vfs");
    let run = |branch: &[&str], script: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vfscale"));
        command.args(["run", "--native", "--size", "64M"]).args(branch).arg(&made);
        command.args(["--", "sh", "-c", script]).output().unwrap()
    };
    let refused = run(&["--branch", "other"], "echo > f");
    assert!(!refused.status.success() && !made.exists(), "{refused:?}");
    let ran = run(&[], "echo > f");
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    let ran = run(&[], "test -e f");
    assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn a_native_run_does_not_wait_for_ever() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let lock = fs::File::open(image.0.path().join("disk.vfs.native")).unwrap();
    lock.lock().unwrap();
    let begin = Instant::now();
    let said = image.bad(1, &["run", "--native"], &["--", "true"]);
    assert!(said.contains("disk.vfs.native: process "), "{said}");
    assert!(said.contains(&std::process::id().to_string()), "{said}");
    assert!(begin.elapsed() > Duration::from_secs(5), "it does not wait at all");
    let mut waiting = vfscale();
    waiting.args(["run", "--native"]).arg(image.path()).args(["--", "true"]);
    let mut waiting = waiting.spawn().unwrap();
    vfscale_harness::stays("it waits", Duration::from_millis(300), || {
        waiting.try_wait().unwrap().is_none()
    });
    lock.unlock().unwrap();
    assert!(waiting.wait().unwrap().success());
}

/// How a run reads the branch is told if that is asked for.
#[test]
fn a_native_run_tells_how_it_mounts() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let output = image.call(&["run", "--native", "-v"], &["--", "true"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("an overlay above a view of the branch"), "{said}");
    image.bad(2, &["run", "-v"], &["--", "true"]);
}

/// The root of the overlay has the attributes of the base, also those that are changed.
#[test]
fn the_root_keeps_its_attributes() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let script = "chown 5:6 . && chmod 1705 . && touch -d @1000000000 .";
    image.good(&["run", "--native"], &["--", "sh", "-c", script]);
    let shown = || image.good(&["run", "--native"], &["--", "stat", "-c", "%u %g %a %Y", "."]);
    assert_eq!(shown(), "5 6 1705 1000000000\n");
    assert_eq!(shown(), "5 6 1705 1000000000\n");
}

/// Runs that have branches of one image at the same time; one branch has one run.
#[test]
fn native_runs_share_an_image() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let (one, _out) = start(&image, &[], "echo one > f");
    let (other, _other_out) = start(&image, &["--branch", "trial"], "echo two > f");
    let said = image.bad(1, &["run", "--native"], &["--", "true"]);
    assert!(said.contains("another native run") && said.contains("main"), "{said}");
    let said = image.bad(1, &["commit"], &["main"]);
    assert!(said.contains("another native run"), "{said}");
    assert_eq!(go_on(one), 0);
    assert_eq!(image.read("/f"), "one\n");
    // A branch that others have changed meanwhile is left alone.
    image.write("trial", "/g", "changed");
    let output = {
        let mut other = other;
        other.stdin.take().unwrap().write_all(b"go\n").unwrap();
        other.wait().unwrap()
    };
    assert_eq!(output.code(), Some(1));
    assert!(image.names().contains(&"trial@native 0".to_owned()), "{:?}", image.names());
    assert_eq!(left(&image), nothing());
}

/// The changes of a run that was killed are kept until somebody decides.
#[test]
fn a_killed_native_run_loses_nothing() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    for verb in ["commit", "discard"] {
        let (child, out) = start(&image, &[], &format!("echo {verb} > f; sync"));
        kill(child, out);
        // Linux drops the mounts of the command behind its files.
        vfscale_harness::wait_until("the listing tells of the run", || {
            let listed = image.call(&["branch", "list"], &[]);
            let said = String::from_utf8(listed.stderr).unwrap();
            said.contains("vfscale commit") && said.contains("main")
        });
        let said = image.bad(1, &["run", "--native"], &["--", "true"]);
        assert!(said.contains("vfscale discard"), "{said}");
        assert_eq!(image.good(&[verb], &["main"]), "");
        assert_eq!(image.read("/f"), "commit\n");
        let said = image.bad(1, &[verb], &["main"]);
        assert!(said.contains("no run has left"), "{said}");
        assert_eq!(left(&image), nothing());
    }
    // Changes in memory are gone with the run; the next one finds nothing of it.
    let (child, out) = start(&image, &["--upper", "tmpfs"], "echo lost > f");
    kill(child, out);
    image.good(&["run", "--native"], &["--", "grep", "-q", "commit", "f"]);
    assert_eq!(left(&image), nothing());
}

/// Returns the numbers in the files of `main`.
fn numbers(image: &Image) -> [u32; 2] {
    let pool = vfscale::pool(image.path()).open().unwrap();
    let main = pool.open("main").unwrap();
    let read = |path| main.task().read_to_string(path).unwrap().trim().parse().unwrap();
    let numbers = ["/f", "/d/f"].map(read);
    main.close().unwrap();
    pool.close().unwrap();
    numbers
}

/// Kills runs at moments of all of their time. Changes of a command that has ended are in the
/// branch, or can be committed, whenever that was; those of another one, whole or not at all.
#[test]
fn a_native_run_killed_at_any_moment_loses_nothing() {
    const KILLS: u32 = 24;
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let begin = Instant::now();
    image.good(&["run", "--native"], &["--", "sh", "-c", "mkdir d; echo 0 > f; echo 0 > d/f"]);
    let whole = begin.elapsed();
    let (mut last, mut committed) = (0, 0);
    for number in 1..=KILLS {
        let ended = image.0.path().join(format!("ended {number}"));
        let script = format!("echo {number} > f; echo {number} > d/f; : > '{}'", ended.display());
        let mut command = vfscale();
        command.args(["run", "--native"]).arg(image.path()).args(["--", "sh", "-c", &script]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        vfscale_harness::pause(whole * 5 / 4 * number / KILLS);
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        let mut told = String::new();
        // The command may still run for a moment.
        vfscale_harness::wait_until("the run is committed, or has left nothing", || {
            let output = image.call(&["commit"], &[]);
            let said = String::from_utf8(output.stderr).unwrap();
            committed += u32::from(output.status.success());
            assert!(!said.contains("can't be taken over"), "{said}");
            told.clone_from(&said);
            // Killed behind the commit, a run leaves its changes once more, as another branch.
            output.status.success()
                || said.contains("no run has left")
                || said.contains("the changes of the run are in the branch")
        });
        let now = numbers(&image);
        assert!(now == [number; 2] || now == [last; 2], "{now:?}, {last} or {number}");
        assert!(now == [number; 2] || !ended.exists(), "{number} is lost: {told}");
        last = now[0];
    }
    println!("{committed} of {KILLS} runs were committed by hand");
    image.good(&["run", "--native", "--discard"], &["--", "true"]);
    assert_eq!(left(&image), nothing());
    image.good(&["fsck"], &[]);
}

/// A mount of a branch, which is unmounted when this is dropped.
struct Served<'i>(&'i Image);

impl<'i> Served<'i> {
    fn new(image: &'i Image, branch: &str) -> Self {
        fs::create_dir_all(image.0.path().join("mnt")).unwrap();
        image.good(&["mount", "-b", "--branch", branch], &[&Self::dir(image)]);
        Self(image)
    }

    fn dir(image: &Image) -> String {
        image.0.path().join("mnt").to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&Self::dir(self.0)).join(name)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let ended = vfscale().arg("umount").arg(Self::dir(self.0)).status().unwrap();
        assert!(ended.success() || std::thread::panicking());
    }
}

fn can_serve(image: &Image) -> bool {
    is_native(image) && crate::common::can_mount()
}

/// The process that has an image mounted does for native runs what they need of it.
#[test]
fn native_runs_go_on_beside_a_mount() {
    let image = Image::new(true);
    if !can_serve(&image) {
        return;
    }
    let served = Served::new(&image, "main");
    let said = image.bad(1, &["run", "--native"], &["--", "true"]);
    assert!(said.contains("is mounted at") && said.contains("vfscale umount"), "{said}");
    // A run sees all that the mount has written, and no view of before.
    fs::write(served.path("g"), "written").unwrap();
    let seen = image.good(&["run", "--native", "--discard"], &["--", "cat", "g"]);
    assert_eq!(seen, "written");
    fs::write(served.path("g"), "changed").unwrap();
    let seen = image.good(&["run", "--native", "--discard"], &["--", "cat", "g"]);
    assert_eq!(seen, "changed");
    // Runs of several branches, of which one is killed, and one is in memory.
    for name in ["one", "two", "three"] {
        image.good(&["branch", "create"], &[name]);
    }
    let runs = [("one", &[][..]), ("two", &["--upper", "tmpfs"]), ("three", &[])];
    let [one, two, (killed, out)] = runs.map(|(name, options)| {
        let options = [&["--branch", name], options].concat();
        start(&image, &options, &format!("echo {name} > f; rm g"))
    });
    kill(killed, out);
    assert_eq!([go_on(one.0), go_on(two.0)], [0, 0]);
    vfscale_harness::wait_until("Linux has dropped the mounts of the run", || {
        image.call(&["commit"], &["three"]).status.success()
    });
    let said = image.bad(1, &["discard"], &["three"]);
    assert!(said.contains("no run has left"), "{said}");
    let differences = |name| image.call(&["diff"], &["main", name]).stdout;
    for name in ["one", "two", "three"] {
        assert_eq!(differences(name), b"changed /f (content, attributes)\nremoved /g\n", "{name}");
    }
    assert_eq!(fs::read_to_string(served.path("f")).unwrap(), "base\n");
    let view = image.0.path().join("view");
    fs::create_dir(&view).unwrap();
    image.good(&["view"], &["one", view.to_str().unwrap()]);
    let read = fs::read_to_string(view.join("f"));
    unmount(&view, UnmountFlags::DETACH).unwrap();
    assert_eq!(read.unwrap(), "one\n");
    vfscale_harness::wait_until("the view has gone", || {
        image.good(&["view", "--gc"], &[]);
        left(&image) == nothing()
    });
    drop(served);
    image.good(&["fsck"], &[]);
}

/// A mount that comes or goes while a native run is under way keeps it from nothing, and neither
/// does a run in a mount.
#[test]
fn servers_come_and_go_beside_native_runs() {
    let image = Image::new(true);
    if !can_serve(&image) {
        return;
    }
    let (run, _out) = start(&image, &["--upper", "tmpfs"], "echo kept > f");
    let served = Served::new(&image, "trial");
    assert_eq!(go_on(run), 0);
    assert_eq!(image.good(&["run", "--native"], &["--", "cat", "f"]), "kept\n");
    let (run, _out) = start(&image, &[], "echo more >> f");
    drop(served);
    assert_eq!(go_on(run), 0);
    assert_eq!(image.read("/f"), "kept\nmore\n");
    let native = format!("'{}' run --native", env!("CARGO_BIN_EXE_vfscale"));
    let path = image.path();
    let script = format!("{native} --branch trial '{0}' -- touch new; ls", path.display());
    image.good(&["run"], &["--", "sh", "-c", &script]);
    assert_eq!(
        image.call(&["diff"], &["main", "trial"]).stdout,
        b"changed /f (content, attributes)\nadded /new\n"
    );
    // A branch that is mounted meanwhile takes the changes, and the mount goes on with them.
    let (run, _out) = start(&image, &[], "echo more >> f");
    let served = Served::new(&image, "main");
    assert_eq!(go_on(run), 0);
    assert_eq!(fs::read_to_string(served.path("f")).unwrap(), "kept\nmore\nmore\n");
    drop(served);
    // If it has been changed as well, they are a branch of their own.
    let (run, _out) = start(&image, &[], "echo lost > f");
    let served = Served::new(&image, "main");
    fs::write(served.path("other"), "").unwrap();
    assert_eq!(go_on(run), 1);
    assert_eq!(fs::read_to_string(served.path("f")).unwrap(), "kept\nmore\nmore\n");
    drop(served);
    assert!(image.names().contains(&"main@native 0".to_owned()), "{:?}", image.names());
    assert_eq!(left(&image), nothing());
}

/// Changes in memory wait for the end of a process that has the image open, and serves nothing.
#[test]
fn changes_in_memory_wait_for_the_image() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let (mut child, _out) = start(&image, &["--upper", "tmpfs"], "echo kept > f");
    let pool = vfscale::pool(image.path()).open().unwrap();
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    vfscale_harness::stays("it waits", Duration::from_millis(300), || {
        child.try_wait().unwrap().is_none()
    });
    pool.close().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(image.read("/f"), "kept\n");
}

/// An image that is mounted and no pool yet becomes one.
#[test]
fn a_native_run_makes_a_pool_of_what_is_mounted() {
    let image = Image::new(false);
    if !crate::common::can_mount() {
        return;
    }
    let dir = Served::dir(&image);
    fs::create_dir(&dir).unwrap();
    image.good(&["mount", "-b"], &[&dir]);
    let served = Served(&image);
    fs::write(served.path("f"), "mounted\n").unwrap();
    let seen = image.call(&["run", "--native", "--discard"], &["--", "cat", "f"]);
    assert_eq!(seen.stdout, b"mounted\n", "{seen:?}");
}

/// Linux refuses a view of an image on tmpfs: the branch is mounted, of the same path.
#[test]
fn a_run_that_can_not_be_native_is_one_in_a_mount() {
    let shared = Path::new("/dev/shm");
    if !shared.is_dir() || !can_serve(&Image::new(true)) {
        skipped("native runs of an image on tmpfs");
        return;
    }
    let image = Image(tempfile::tempdir_in(shared).unwrap());
    let volume = vfscale::volume(image.path()).create(64 << 20).open().unwrap();
    volume.task().write("/f", "base\n").unwrap();
    volume.close().unwrap();
    for options in [&[][..], &["--upper", "tmpfs"]] {
        let mut command = vfscale();
        command.current_dir(image.0.path()).args(["run", "--native"]).args(options);
        let output =
            command.args(["disk.vfs", "--", "sh", "-c", "echo more >> f"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.is_empty() || said.contains("not native") && said.contains("tmpfs"), "{said}");
    }
    assert_eq!(image.read("/f"), "base\nmore\nmore\n");
    assert_eq!(left(&image), nothing());
}

/// A process that outlives the command reads what it could read before.
#[test]
fn a_process_that_is_left_behind_keeps_the_view() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let upper = image.0.path().join("upper");
    fs::create_dir(&upper).unwrap();
    let [fifo, out] = ["fifo", "out"].map(|name| image.0.path().join(name).display().to_string());
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &*fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let script = format!("(read line <'{fifo}'; cat f >'{out}') & rm g; echo new > h");
    image.write("main", "/g", "old");
    let mut command = vfscale();
    command.args(["run", "--native", "--upper"]).arg(&upper).arg(image.path());
    command.args(["--", "sh", "-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
    assert_eq!(image.read("/h"), "new\n");
    assert_eq!(fs::read_dir(&upper).unwrap().count(), 0);
    image.good(&["view", "--gc"], &[]);
    assert_eq!(left(&image).0.len(), 1);
    fs::write(&fifo, "go\n").unwrap();
    vfscale_harness::wait_until("the process has read", || {
        fs::read_to_string(&out).is_ok_and(|text| text == "base\n")
    });
    vfscale_harness::wait_until("the view has gone", || {
        image.good(&["view", "--gc"], &[]);
        left(&image) == nothing()
    });
}

/// A file system that is unmounted when this is dropped.
struct Unmounted<'d>(&'d Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

/// Overlays would hide what has their own marks: a run mounts the branch, and a view shows it.
#[test]
fn a_branch_with_marks_of_overlays_is_mounted() {
    let image = Image::new(true);
    if !can_serve(&image) {
        return;
    }
    let change = |act: &dyn Fn(&Task)| {
        let pool = vfscale::pool(image.path()).open().unwrap();
        let main = pool.open("main").unwrap();
        act(&main.task());
        main.close().unwrap();
        pool.close().unwrap();
    };
    let run = |script: &str| {
        let output = image.call(&["run", "--native"], &["--", "sh", "-ec", script]);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    change(&|task| {
        task.create_dir("/d").unwrap();
        task.write("/d/f", "below\n").unwrap();
        let (kind, mode) = (FileType::CharacterDevice, Mode::from(0o600));
        task.posix().mknodat(At::Cwd, "/d/w", kind, mode, 0).unwrap();
    });
    let dir = image.0.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    for _ in 0..2 {
        let said = run("test -c d/w; cat d/f; echo > d/new; rm d/new");
        assert!(said.contains("not native: /d/w: ") && said.contains("is mounted"), "{said}");
        // Mounted twice: the second run finds a view that is in use.
        let told = image.call(&["view"], &["main", dir.to_str().unwrap()]);
        assert!(told.status.success(), "{told:?}");
    }
    for _ in 0..2 {
        let kind = dir.join("d/w").symlink_metadata().unwrap().file_type();
        assert!(std::os::unix::fs::FileTypeExt::is_char_device(&kind));
        unmount(&dir, UnmountFlags::DETACH).unwrap();
    }
    for name in ["trusted.overlay.opaque", "user.overlay.x"] {
        change(&|task| {
            let _ = task.remove_file("/d/w");
            task.set_xattr("/d/f", name, b"y").unwrap();
        });
        let said = run("chmod 600 d/f");
        assert!(said.contains("not native: /d/f: "), "{said}");
        change(&|task| {
            assert_eq!(task.xattr("/d/f", name).unwrap().unwrap(), b"y");
            task.remove_xattr("/d/f", name).unwrap();
        });
    }
    assert_eq!(run("rm -r d"), "");
    vfscale_harness::wait_until("the views have gone", || {
        image.good(&["view", "--gc"], &[]);
        left(&image) == nothing()
    });
}

/// A mounted view keeps what it shows, whatever is done with the branch.
#[test]
fn a_mounted_view_keeps_its_blocks() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    image.write("trial", "/large", vec![7; 4 << 20]);
    let dir = image.0.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    let to = dir.to_str().unwrap();
    assert_eq!(image.good(&["view"], &["trial", to]), "");
    let mounted = Unmounted(&dir);
    image.good(&["branch", "delete"], &["trial"]);
    image.write("main", "/filler", vec![9; 8 << 20]);
    image.good(&["run", "--native"], &["--", "cp", "filler", "filler2"]);
    image.good(&["view", "--gc"], &[]);
    assert!(fs::read(dir.join("large")).unwrap() == vec![7; 4 << 20]);
    assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(left(&image).0.len(), 1);
    drop(mounted);
    vfscale_harness::wait_until("the view has gone", || {
        image.good(&["view", "--gc"], &[]);
        left(&image) == nothing()
    });
    let views = image.0.path().join("disk.vfs.native/views");
    assert_eq!(fs::read_dir(views).unwrap().count(), 0);
}

/// Two views of a branch that has not changed are one file.
#[test]
fn a_view_is_made_once() {
    let image = Image::new(true);
    if !is_native(&image) {
        return;
    }
    let views = || fs::read_dir(image.0.path().join("disk.vfs.native/views")).unwrap().count();
    image.good(&["run", "--native", "--discard"], &["--", "true"]);
    assert_eq!(views(), 1);
    image.good(&["run", "--native", "--branch", "trial", "--discard"], &["--", "cat", "f"]);
    assert_eq!(views(), 1);
    for n in 0..7 {
        image.good(&["run", "--native"], &["--", "touch", &format!("n{n}")]);
    }
    assert!(views() <= 5, "{}", views());
}

#[test]
fn arguments_of_native_runs_that_are_wrong() {
    let image = Image::new(true);
    image.bad(2, &["run", "--upper", "tmpfs"], &["--", "true"]);
    if !is_native(&image) {
        return;
    }
    let full = image.0.path().to_str().unwrap();
    let said = image.bad(2, &["run", "--native", "--upper", full], &["--", "true"]);
    assert!(said.contains("not empty"), "{said}");
    image.bad(1, &["run", "--native", "--upper", "tmpfs=x/y"], &["--", "true"]);
    let said = image.bad(1, &["run", "--native", "--branch", "none"], &["--", "true"]);
    assert!(said.contains("none"), "{said}");
    let missing = Command::new(env!("CARGO_BIN_EXE_vfscale"))
        .args(["run", "--native", "--discard", "/nowhere/disk.vfs", "--", "true"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&missing.stderr).contains("vfscale mkfs"), "{missing:?}");
    assert_eq!(left(&image), nothing());
    // A directory that others may write could lead anywhere.
    let home = image.0.path().join("disk.vfs.native");
    fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).unwrap();
    let said = image.bad(1, &["run", "--native"], &["--", "true"]);
    assert!(said.contains("others may write"), "{said}");
}
