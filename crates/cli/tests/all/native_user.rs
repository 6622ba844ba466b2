//! `vfscale run --native` of users who may mount no view: a mount below, an overlay above.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use vfscale::posix::At;
use vfscale::{FileType, Mode, Task};

use crate::common::skipped;
use crate::for_all::program_for_all;

/// A user, who has an image in a directory.
struct User {
    dir: TempDir,
    program: PathBuf,
}

impl User {
    const ID: u32 = 4_711;

    /// `None` if the user can't run natively, which is said.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skipped("only root can act as another user");
            return None;
        }
        let (dir, program) = program_for_all(env!("CARGO_BIN_EXE_vfscale").as_ref())?;
        let user = Self { dir, program };
        let volume = vfscale::volume(user.image()).create(64 << 20).open().unwrap();
        volume.task().chown("/", Some(Self::ID), Some(Self::ID)).unwrap();
        volume.close().unwrap();
        std::os::unix::fs::chown(user.image(), Some(Self::ID), Some(Self::ID)).unwrap();
        let output = user.run(&["-v"], "mkdir d; echo base > f; ln f g; echo x > d/x; echo n > n");
        let said = String::from_utf8(output.stderr).unwrap();
        if said.contains("not native") {
            skipped(&format!("native runs of users: {said}"));
            return None;
        }
        assert!(output.status.success(), "{said}");
        assert!(said.contains("an overlay above a mount of the branch"), "{said}");
        Some(user)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("disk.vfs")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.uid(Self::ID).gid(Self::ID).stdin(Stdio::null()).args(words);
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let mut command = self.command(&["run", "--native"]);
        command.args(options).arg(self.image()).args(["--", "sh", "-c", script]);
        command.output().unwrap()
    }

    /// Runs a script, which must succeed, and returns what it prints.
    fn good(&self, options: &[&str], script: &str) -> String {
        let output = self.run(options, script);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.is_empty(), "{script}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns what a file has, and its mode.
    fn read(&self, path: &str) -> Option<(String, u32)> {
        let volume = vfscale::volume(self.image()).open().unwrap();
        let task = volume.task();
        let read = task.read_to_string(path).ok();
        let read = read.map(|text| (text, task.metadata(path).unwrap().mode & 0o7777));
        drop(task);
        volume.close().unwrap();
        read
    }

    /// Fails unless nothing is left of runs but views.
    fn check_left(&self) {
        let home = self.dir.path().join("disk.vfs.native");
        let names = fs::read_dir(home).unwrap().map(|it| it.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["views"]);
        let checked = self.command(&["fsck"]).arg(self.image()).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn a_run_of_a_user_changes_its_branch() {
    let Some(user) = User::new() else { return };
    let script = "test $(id -u) = 4711 && test $(cat f) = base && echo more >> f && mv n n2 && \
                  rm -r d && mkdir d && echo y > d/y && echo secret > s && chmod 0 s && \
                  ln -s f l && touch h && ln h i && chmod 4750 n2 && mkdir locked && \
                  echo z > locked/z && chmod 0 locked && echo said";
    assert_eq!(user.good(&[], script), "said\n");
    let text = |text: &str, mode| Some((text.to_owned(), mode));
    assert_eq!(user.read("/f"), text("base\nmore\n", 0o644));
    // Overlays without an index break links, and users can't have one.
    assert_eq!(user.read("/g"), text("base\n", 0o644));
    assert_eq!(user.read("/n2"), text("n\n", 0o4750));
    assert_eq!(user.read("/n"), None);
    assert_eq!((user.read("/d/x"), user.read("/d/y")), (None, text("y\n", 0o644)));
    assert_eq!(user.read("/s"), text("secret\n", 0));
    assert_eq!(user.read("/locked/z"), text("z\n", 0o644));
    user.check_left();
    let seen =
        user.good(&["--upper", "tmpfs"], "stat -c %a s; stat -c %h h; readlink l; rm -f g; ls");
    assert_eq!(seen, "0\n2\nf\nd\nf\nh\ni\nl\nlocked\nn2\ns\n");
    assert_eq!(user.read("/g"), None);
    user.good(&["--discard"], "rm f n2; echo > new");
    assert_eq!((user.read("/new"), user.read("/f").is_some()), (None, true));
    let output = user.run(&[], "exit 7");
    assert_eq!(output.status.code(), Some(7));
    user.check_left();
    fs::remove_file(user.image()).unwrap();
    assert_eq!(user.good(&["--size", "64M"], "echo > f; ls"), "f\n");
    assert_eq!(user.good(&[], "ls"), "f\n");
    user.check_left();
}

#[test]
fn a_killed_run_of_a_user_loses_nothing() {
    let Some(user) = User::new() else { return };
    for verb in ["commit", "discard"] {
        let script = format!("rm -f f d/x; echo {verb} > f; chmod 0 f; echo there; read line");
        let mut command = user.command(&["run", "--native"]);
        command.arg(user.image()).args(["--", "sh", "-c", &script]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "there\n");
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        child.wait().unwrap();
        out.read_to_end(&mut Vec::new()).unwrap();
        vfscale_harness::wait_until("the changes are found", || {
            let mut decide = user.command(&[verb]);
            decide.arg(user.image()).output().unwrap().status.success()
        });
        assert_eq!(user.read("/f").unwrap(), ("commit\n".into(), 0));
        assert_eq!(user.read("/d/x"), None);
        user.check_left();
    }
}

/// In a container that may mount, root has no rights outside of it.
#[test]
fn root_of_a_container_runs_natively() {
    let Some(user) = User::new() else { return };
    let run = format!("{} run -v --native box.vfs -- sh -c", user.program.display());
    let script = format!(
        "{} mkfs -q box.vfs --size 64M && {run} 'id -u && echo kept > f' && {run} 'cat f && rm f'",
        user.program.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]);
    let output = command.current_dir(&user.dir).uid(User::ID).gid(User::ID).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("an overlay above a mount of the branch").count(), 2, "{said}");
    assert_eq!(output.stdout, b"0\nkept\n");
}

/// Root of a container without namespaces of users, too, though it may open no file by its handle.
#[test]
fn root_without_handles_runs_natively() {
    let Some(user) = User::new() else { return };
    let run = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-dac_read_search", "--inh-caps=-dac_read_search"]);
        command.arg(&user.program).args(["run", "-v", "--native", "--size", "64M"]);
        command.arg(user.dir.path().join("root.vfs")).args(["--", "sh", "-c", script]);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("an overlay above a mount of the branch"), "{said}");
        output.stdout
    };
    assert_eq!(run("echo kept > f; ln f g"), b"");
    assert_eq!(run("rm f; cat g"), b"kept\n");
    assert_eq!(run("ls"), b"g\n");
}

/// Git compares inode numbers, and Linux gives new names of old files others in such an overlay.
#[test]
fn git_works_in_a_run_of_a_user() {
    let Some(user) = User::new() else { return };
    let git = "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
               GIT_COMMITTER_EMAIL=a@b GIT_CONFIG_NOSYSTEM=1;";
    let make = "git init -q a && cd a && echo 1 > x && git add x && git commit -q -m one";
    user.good(&[], &format!("{git} {make}"));
    let clone = "git clone -q --no-hardlinks a b && cd b && git fsck && test -z \"$(git status --porcelain)\" && \
                 cd ../a && echo 2 > x && git commit -q -a -m two && git gc -q";
    let output = user.run(&[], &format!("{git} {clone}"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(user.read("/b/x").unwrap().0, "1\n");
    user.check_left();
}

/// Overlays would hide what has their own marks.
#[test]
fn a_branch_with_marks_of_overlays_is_mounted_for_a_user() {
    let Some(user) = User::new() else { return };
    let change = |act: &dyn Fn(&Task)| {
        let volume = vfscale::volume(user.image()).open().unwrap();
        act(&volume.task());
        volume.close().unwrap();
    };
    change(&|task| {
        task.posix().mknodat(At::Cwd, "/w", FileType::CharacterDevice, Mode::from(0), 0).unwrap();
    });
    let output = user.run(&[], "test -c w && test -e d/x");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("not native: /w: "), "{said}");
    change(&|task| {
        task.remove_file("/w").unwrap();
        task.set_xattr("/d", "user.overlay.opaque", b"y").unwrap();
    });
    let output = user.run(&[], "test -e d/x && touch d");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("not native: /d: "), "{said}");
    change(&|task| task.remove_xattr("/d", "user.overlay.opaque").unwrap());
    user.good(&[], "test -e d/x");
    user.check_left();
}

/// A run says why it is not native, and mounts the branch.
#[test]
fn a_user_without_namespaces_runs_in_a_mount() {
    let Some(user) = User::new() else { return };
    // Another process has the image open, and serves nothing.
    let pool = vfscale::pool(user.image()).read_only(true).open().unwrap();
    let said = String::from_utf8(user.run(&[], "true").stderr).unwrap();
    assert!(said.contains("not native"), "{said}");
    pool.close().unwrap();
}
