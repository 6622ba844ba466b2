//! Several `vfscale run` of one image at once: the server that they share, kills, what is left.
//!
//! `VFSCALE_RUNS` is the number of rounds of forty (2).

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{can_mount, skipped, vfscale};
use crate::for_all::program_for_all;

/// Commands that are started at once.
const MANY: usize = 40;

/// An image, and a directory for temporary files that has nothing else.
struct Place {
    dir: tempfile::TempDir,
    /// Runs the program as another user, if its words are not empty.
    prefix: Vec<String>,
}

impl Place {
    /// Makes an image of root, or of the user of the tests.
    fn new() -> Place {
        let program = env!("CARGO_BIN_EXE_vfscale").to_owned();
        Place::with(tempfile::tempdir().unwrap(), vec![program])
    }

    /// Makes one if this machine allows mounting.
    fn mountable() -> Option<Place> {
        can_mount().then(Place::new)
    }

    fn with(dir: tempfile::TempDir, prefix: Vec<String>) -> Place {
        let place = Place { dir, prefix };
        let script = format!("umask 0; mkdir {}; echo base > f", place.temporary().display());
        good(&mut place.run(&[], &script));
        place
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("disk.vfs")
    }

    fn temporary(&self) -> PathBuf {
        self.dir.path().join("t")
    }

    /// Returns a command, with the image behind the words `before`.
    fn command(&self, before: &[&str], behind: &[&str]) -> Command {
        let mut command = Command::new(&self.prefix[0]);
        command.args(&self.prefix[1..]).args(before).arg(self.image()).args(behind);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Until the first run has made the directory.
        let temporary = self.temporary();
        let exists = temporary.is_dir();
        command.env("TMPDIR", if exists { &temporary } else { self.dir.path() });
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let before = [&["run"], options].concat();
        self.command(&before, &["--", "sh", "-c", script])
    }

    /// Makes branches `b0` and so on.
    fn branches(&self, count: usize) {
        for n in 0..count {
            good(&mut self.command(&["branch", "create"], &[&format!("b{n}")]));
        }
    }

    /// Lists the mounts of the image.
    fn mounts(&self) -> Vec<serde_json::Value> {
        let mut command = Command::new(&self.prefix[0]);
        command.args(&self.prefix[1..]).args(["mounts", "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&good(&mut command)).unwrap();
        let of_image = |it: &&serde_json::Value| it["image"] == *self.image().to_str().unwrap();
        listed.as_array().unwrap().iter().filter(of_image).cloned().collect()
    }

    /// Checks that nothing is left of all runs, and the image is whole and free.
    fn is_clean(&self) {
        vfscale_harness::wait_until("the end of all mounts", || {
            !fs::read_to_string("/proc/mounts").unwrap().contains(self.dir.path().to_str().unwrap())
        });
        vfscale_harness::wait_until("the end of the server", || {
            vfscale::pool(self.image()).open().is_ok_and(|pool| {
                let names: Vec<String> = pool.branches().into_iter().map(|it| it.name).collect();
                assert!(names.iter().all(|name| !name.starts_with("run ")), "{names:?}");
                assert_eq!(pool.check().unwrap(), Vec::<String>::new());
                pool.close().is_ok()
            })
        });
        // A run that was killed has left directories, which the next one removes.
        good(&mut self.run(&[], "true"));
        let left: Vec<_> = fs::read_dir(self.temporary()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn good(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [text, errors] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(status.success() && errors.is_empty(), "{command:?}: {status} {errors}{text}");
    text
}

/// One of forty: what it is, and whether its output is right.
fn one_of_many(place: &Place, n: usize) {
    let branch = format!("b{}", n / 5);
    match n % 5 {
        0 => assert_eq!(good(&mut place.run(&[], "echo x >> log; cat f")), "base\n"),
        1 => {
            let says = good(&mut place.run(&["--discard"], "echo x > junk; ls"));
            assert_eq!(says, "f\njunk\nlog\n");
        }
        2 => {
            let says = good(&mut place.run(&["--branch", &branch], "echo x >> log; wc -l < log"));
            assert!(says.trim().parse::<u32>().unwrap() > 0, "{says}");
        }
        3 => {
            let name = format!("made {n}");
            good(&mut place.command(&["branch", "create", "--from", &branch], &[&name]));
            good(&mut place.command(&["branch", "delete"], &[&name]));
        }
        _ => {
            let listed = good(&mut place.command(&["branch", "list"], &[]));
            assert!(listed.contains("main: ") && listed.contains("b7: "), "{listed}");
            let diff = place.command(&["diff"], &["main", &branch]).output().unwrap();
            assert_eq!(diff.status.code(), Some(1), "{diff:?}");
        }
    }
}

fn forty_at_once(place: &Place, rounds: u64) {
    place.branches(MANY / 5);
    good(&mut place.run(&[], "echo first > log"));
    for _ in 0..rounds {
        thread::scope(|scope| {
            for n in 0..MANY {
                scope.spawn(move || one_of_many(place, n));
            }
        });
    }
    let lines = |options: &[&str]| good(&mut place.run(options, "wc -l < log"));
    assert_eq!(lines(&[]).trim(), (rounds * 8 + 1).to_string());
    for n in 0..MANY / 5 {
        assert_eq!(lines(&["--branch", &format!("b{n}")]).trim(), rounds.to_string());
    }
    place.is_clean();
}

/// Race: Runs in all kinds of branches, and commands about branches, of which some begin when the
/// server ends.
#[test]
fn forty_commands_at_once_share_an_image() {
    if !can_mount() {
        return;
    }
    let rounds = std::env::var("VFSCALE_RUNS").ok().and_then(|text| text.parse().ok());
    forty_at_once(&Place::new(), rounds.unwrap_or(2));
}

#[test]
fn forty_commands_of_another_user_share_an_image() {
    let has = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    if !has("setpriv") || !has("fusermount3") {
        return skipped("needs setpriv and fusermount3");
    }
    let program = Path::new(env!("CARGO_BIN_EXE_vfscale"));
    let Some((dir, program)) = program_for_all(program) else { return };
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let prefix = words.into_iter().chain(program.to_str()).map(str::to_owned).collect();
    forty_at_once(&Place::with(dir, prefix), 1);
}

/// Race: Runs that make the image, all at once.
#[test]
fn runs_make_a_missing_image_together() {
    let Some(place) = Place::mountable() else { return };
    for _ in 0..3 {
        fs::remove_file(place.image()).unwrap();
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| good(&mut place.run(&["--size", "64M"], "echo x >> log")));
            }
        });
        assert_eq!(good(&mut place.run(&[], "wc -l < log")), "10\n");
    }
}

/// Race: Runs that make the image and branches of their own, all at once.
#[test]
fn runs_make_branches_of_their_own() {
    let Some(place) = Place::mountable() else { return };
    good(&mut place.run(&["--new", "first"], "echo first > f"));
    thread::scope(|scope| {
        for n in 0..10 {
            let (place, name) = (&place, format!("b{n}"));
            scope.spawn(move || {
                let mut run = place.run(&["--new", &name, "--from", "first"], "cat f; echo > own");
                assert_eq!(good(&mut run), "first\n");
            });
        }
    });
    assert_eq!(good(&mut place.run(&["--branch", "b7"], "ls")), "f\nown\n");
    assert_eq!(good(&mut place.run(&[], "cat f; ls")), "base\nf\n");
    for wrong in [["--new", "b7"].as_slice(), &["--new", "x", "--from", "none"]] {
        let output = place.run(wrong, "echo has run").output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert!(!output.stderr.is_empty());
    }
    let both = place.run(&["--new", "x", "-o", "branch=b7"], "true").output().unwrap();
    assert_eq!(both.status.code(), Some(2), "{both:?}");
    place.is_clean();
}

/// A run that goes on until its standard input ends.
struct Waiting {
    run: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    dir: PathBuf,
}

impl Waiting {
    /// Starts a run that prints its directory, does what each line of its input says, and prints
    /// what that prints.
    fn new(place: &Place, options: &[&str]) -> Waiting {
        let script = "echo $VFSCALE_MOUNT; while read line; do eval \"$line\" || echo failed; done";
        let mut command = place.run(options, script);
        let mut run = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
        let dir = PathBuf::from(lines.next().unwrap().unwrap());
        Waiting { run, lines, dir }
    }

    fn says(&mut self, line: &str) -> String {
        writeln!(self.run.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.lines.next().unwrap().unwrap()
    }

    /// Kills the run, and its command.
    fn kill(mut self) -> PathBuf {
        let command = Pid::from_raw(self.says("echo $$").parse().unwrap()).unwrap();
        self.run.kill().unwrap();
        self.run.wait().unwrap();
        kill_process(command, Signal::KILL).unwrap();
        self.dir
    }

    /// Lets it end, and returns its status.
    fn end(mut self) -> Option<i32> {
        drop(self.run.stdin.take());
        self.run.wait().unwrap().code()
    }
}

fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/mounts").unwrap();
    table.contains(&format!(" {} ", dir.display()))
}

/// Runs of one branch are in one directory, until the last has ended.
#[test]
fn runs_of_one_branch_share_their_directory() {
    let Some(place) = Place::mountable() else { return };
    let (mut first, mut second) = (Waiting::new(&place, &[]), Waiting::new(&place, &[]));
    let dir = first.dir.clone();
    assert_eq!(second.dir, dir);
    assert_eq!(first.says("echo one > g; cat g"), "one");
    assert_eq!(second.says("cat g"), "one");
    // The server is that of the first one, and goes on without it.
    assert_eq!(first.end(), Some(0));
    assert_eq!(second.says("echo two >> g; wc -l < g"), "2");
    let third = Waiting::new(&place, &[]);
    assert_eq!((third.dir.clone(), place.mounts().len()), (dir.clone(), 1));
    second.kill();
    assert!(is_mounted(&dir));
    // With other options it is another mount, and a branch that is written has one.
    let mut other = place.run(&["-o", "noexec"], "true");
    let output = other.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("already"));
    assert_eq!(third.end(), Some(0));
    assert!(!dir.exists());
    assert_eq!(good(&mut place.run(&[], "cat g")), "one\ntwo\n");
    good(&mut place.command(&["branch", "create"], &["b"]));
    place.is_clean();
}

/// Runs are killed one after the other, the first one as well, and the others go on.
#[test]
fn a_killed_run_ends_no_other() {
    let Some(place) = Place::mountable() else { return };
    place.branches(10);
    let start = |n| Waiting::new(&place, &["--branch", &format!("b{n}")]);
    let mut runs: Vec<Waiting> = (0..10).map(start).collect();
    let trial = Waiting::new(&place, &["--discard"]);
    assert_eq!(place.mounts().len(), 11);
    trial.kill();
    let seed = std::process::id() as usize;
    for kills in 1..8 {
        for run in &mut runs {
            assert_eq!(run.says("echo $$ > f; sync f; wc -l < f"), "1");
        }
        // The first one has started the server.
        let dir = runs.remove(if kills == 1 { 0 } else { seed * kills % runs.len() }).kill();
        vfscale_harness::wait_until("the end of its mount", || !is_mounted(&dir));
    }
    assert!(runs.into_iter().all(|run| run.end() == Some(0)));
    place.is_clean();
}

/// The server of several runs is killed.
#[test]
fn a_killed_server_leaves_all_branches() {
    let Some(place) = Place::mountable() else { return };
    place.branches(2);
    let mut runs = [
        Waiting::new(&place, &["--branch", "b0"]),
        Waiting::new(&place, &["--branch", "b1"]),
        Waiting::new(&place, &["--discard"]),
    ];
    for run in &mut runs {
        assert_eq!(run.says("echo synced > f; sync f; cat f"), "synced");
    }
    let listed = place.mounts();
    let branches: Vec<_> = listed.iter().map(|it| it["branch"].as_str().unwrap()).collect();
    assert_eq!(branches, ["b0", "b1", "run 0"]);
    assert!(listed.iter().all(|it| it["state"] == "served"), "{listed:?}");
    let server = i32::try_from(listed[1]["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
    vfscale_harness::wait_until("the end of the server", || {
        place.mounts().iter().all(|it| it["state"] == "dead")
    });
    // The others find out, and remove their mounts; that of the first one is in its way no more.
    let dirs = runs.each_ref().map(|run| run.dir.clone());
    assert!(runs.into_iter().all(|run| run.end() != Some(0)));
    let mut prune = vfscale();
    let removed = good(prune.args(["mounts", "--prune"]).env("TMPDIR", place.temporary()));
    assert!(removed.contains(dirs[0].to_str().unwrap()), "{removed}");
    assert!(dirs.iter().all(|dir| !dir.exists()));
    for branch in ["b0", "b1"] {
        assert_eq!(good(&mut place.run(&["--branch", branch], "cat f")), "synced\n");
    }
    place.is_clean();
}

/// A run that only reads its branch lets others write theirs.
#[test]
fn a_branch_that_is_read_is_in_nobodys_way() {
    let Some(place) = Place::mountable() else { return };
    place.branches(2);
    let mut reader = Waiting::new(&place, &["--branch", "b0", "--read-only"]);
    good(&mut place.run(&["--branch", "b1"], "echo x > g"));
    good(&mut place.run(&["--discard"], "echo x > g"));
    assert_eq!(reader.says("cat f; touch f 2>/dev/null && echo written"), "base");
    assert_eq!(reader.says(":"), "failed");
    assert_eq!(reader.end(), Some(0));
    place.is_clean();
}

/// Trials of an image without branches run at once, and leave it one.
#[test]
fn trials_in_memory_share_an_image() {
    let Some(place) = Place::mountable() else { return };
    let mut trial = Waiting::new(&place, &["--discard"]);
    thread::scope(|scope| {
        for _ in 0..10 {
            let script = "test ! -e g; rm f; echo x > g";
            scope.spawn(|| good(&mut place.run(&["--discard"], script)));
        }
    });
    assert_eq!(trial.says("cat f"), "base");
    // A run that would write waits meanwhile, for a time.
    let refused = place.run(&[], "true").output().unwrap();
    let says = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{says}");
    assert!(says.contains("in use") && says.contains("vfscale run --discard"), "{says}");
    assert_eq!(trial.end(), Some(0));
    assert_eq!(good(&mut place.command(&["branch", "list"], &[])), "");
}

/// A server that was started with a relative path, and has left its directory.
#[test]
fn a_relative_path_is_found_again() {
    let Some(place) = Place::mountable() else { return };
    place.branches(2);
    let mut mount = vfscale();
    let dir = place.dir.path().join("m");
    fs::create_dir(&dir).unwrap();
    mount.args(["mount", "-b", "--branch", "b0", "disk.vfs"]).arg(&dir);
    good(mount.current_dir(place.dir.path()));
    let run = Waiting::new(&place, &["--branch", "b1"]);
    // By the mount of the run, which is the latest.
    assert!(good(&mut place.command(&["branch", "list"], &[])).contains("b1"));
    assert_eq!(run.end(), Some(0));
    good(vfscale().arg("umount").arg(&dir));
    place.is_clean();
}

/// One message for a process that goes on in the mount.
#[test]
fn what_is_left_behind_is_told_once() {
    let Some(place) = Place::mountable() else { return };
    let mut others = Vec::new();
    for _ in 0..2 {
        let script = "sleep 60 >/dev/null 2>&1 & echo $!";
        let output = place.run(&[], script).output().unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        let left = Pid::from_raw(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap());
        kill_process(left.unwrap(), Signal::KILL).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(says.lines().count() == 1 && says.contains("left behind"), "{says}");
        // The next one joins.
        good(&mut place.command(&["branch", "create"], &[&format!("c{}", others.len())]));
        others.push(Waiting::new(&place, &["--branch", &format!("c{}", others.len())]));
    }
    assert!(others.into_iter().all(|run| run.end() == Some(0)));
    place.is_clean();
}
