//! Two processes that serve one volume on an image of Ceph RBD, one after the other.
//!
//! `VFSCALE_CEPH_CONF` names the configuration of a cluster that `scripts/ceph up` has made:
//! `scripts/test ceph` does both. `VFSCALE_FAILOVERS` is the number of rounds (2), and
//! `VFSCALE_TAKE_OVER` the most seconds that the first write of a standby may take after the time
//! of grace (60, since the machine may be busy; 5 on a quiet one).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/load.rs"]
mod load;
#[path = "common/network.rs"]
mod network;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{can_mount, vfscale};
use load::{Acknowledged, check, load};
use network::Network;
use rustix::process::{Pid, Signal, kill_process};

/// Time for which a standby waits after the watch of the holder has ended.
const GRACE: Duration = Duration::from_secs(1);
/// Exit status of a mount whose volume was taken over.
const FENCED: i32 = 3;

/// One test has the machine for itself: the others would slow the cluster down.
static ALONE: Mutex<()> = Mutex::new(());

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the configuration of the cluster; `None` if nothing can be mounted here.
fn cluster() -> Option<PathBuf> {
    let conf = std::env::var_os("VFSCALE_CEPH_CONF").expect("VFSCALE_CEPH_CONF names a cluster");
    can_mount().then(|| conf.into())
}

/// A volume, and two directories to mount it at.
struct Volume {
    conf: PathBuf,
    image: String,
    folder: tempfile::TempDir,
    /// Whether each mount has a network of its own.
    is_apart: bool,
}

impl Volume {
    fn make(conf: PathBuf, name: &str, is_apart: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..2 {
            fs::create_dir(folder.path().join(number.to_string())).unwrap();
        }
        let image = format!("rbd/{name}-{}", std::process::id());
        let volume = Self { conf, image, folder, is_apart };
        volume.succeed(&["mkfs", "--quiet", "--size=1G"]);
        volume
    }

    fn dir(&self, number: u64) -> PathBuf {
        self.folder.path().join((number % 2).to_string())
    }

    /// Returns a command about the volume.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = vfscale();
        command.args(arguments).arg("--ceph-conf").arg(&self.conf);
        command.arg(format!("rbd:{}", self.image));
        command
    }

    fn succeed(&self, arguments: &[&str]) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{error}");
    }

    /// Starts a mount that waits for its turn.
    fn stand_by(&self, number: u64) -> Mount {
        let grace = format!("--grace={}", GRACE.as_secs());
        let arguments = ["mount", "--standby", &grace, "--sync-interval=0.1"];
        let dir = self.dir(number);
        let network = self.is_apart.then(|| Network::to_cluster(&self.conf));
        let mut command = self.command(&arguments);
        network.iter().for_each(|network| network.enter(&mut command));
        let mut server = command.arg(&dir).stderr(Stdio::piped()).spawn().unwrap();
        let ((sender, lines), begun) = (channel(), Instant::now());
        let stderr = BufReader::new(server.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| {
                eprintln!("{number} after {:.1?}: {line}", begun.elapsed());
                let _ = sender.send(line);
            });
        });
        Mount { server, dir, lines, network }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A client that was killed watches the image until Ceph has noticed.
        vfscale_harness::comes(Duration::from_secs(30), || {
            let mut rbd = Command::new("rbd");
            rbd.arg("--conf").arg(&self.conf).args(["rm", "--no-progress", &self.image]);
            rbd.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        });
    }
}

/// A server of the volume, or one that stands by.
struct Mount {
    server: Child,
    dir: PathBuf,
    lines: Receiver<String>,
    network: Option<Network>,
}

impl Mount {
    /// Waits until it has said something.
    fn says(&self, text: &str, limit: Duration) {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            if line.unwrap_or_else(|_| panic!("it does not say `{text}`")).contains(text) {
                return;
            }
        }
    }

    fn is_mounted(&self, limit: Duration) {
        self.says("mounted at ", limit);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }

    /// Waits for the end of the server, and returns its exit status.
    fn ended(&mut self) -> Option<i32> {
        vfscale_harness::wait_until("the end of the server", || {
            self.server.try_wait().unwrap().is_some()
        });
        self.server.wait().unwrap().code()
    }

    fn detach(&self) -> bool {
        let umount = Command::new("umount").arg("-l").arg(&self.dir).stderr(Stdio::null()).status();
        umount.unwrap().success()
    }

    fn unmount(mut self) {
        let status = Command::new("umount").arg(&self.dir).status().unwrap();
        assert!(status.success());
        assert_eq!(self.ended(), Some(0));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.server.kill();
            let _ = self.server.wait();
            self.detach();
        }
    }
}

/// Kills a server if its test panics: the writers would wait for it.
struct EndedByPanic(Pid);

impl Drop for EndedByPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = kill_process(self.0, Signal::KILL);
        }
    }
}

/// Empties a mount for the next round.
fn clear(dir: &Path, acknowledged: &Acknowledged) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    acknowledged.lock().unwrap().clear();
}

/// Runs four writers that sync what they write until the server fails them, and `meanwhile` beside
/// them; returns the number of changes that were acknowledged.
fn under_load<R>(
    dir: &Path,
    acknowledged: &Acknowledged,
    meanwhile: impl FnOnce() -> R,
) -> (usize, R) {
    clear(dir, acknowledged);
    let result = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| scope.spawn(move || load(dir, thread, acknowledged).unwrap_err()))
            .collect();
        let result = meanwhile();
        for thread in threads {
            println!("ended with {}", thread.join().unwrap());
        }
        result
    });
    (acknowledged.lock().unwrap().len(), result)
}

/// Waits until the standby serves, and makes the first durable change; returns the time since.
fn first_write(standby: &Mount, since: Instant) -> Duration {
    standby.is_mounted(Duration::from_secs(60));
    let file = fs::File::create(standby.dir.join("first")).unwrap();
    file.sync_all().unwrap();
    since.elapsed()
}

/// Returns the most time that a take-over may take, from the last sign of life of the holder on.
fn limit() -> Duration {
    let after = Duration::from_secs(number("VFSCALE_TAKE_OVER", 60));
    Duration::from_secs(number("VFSCALE_CEPH_WATCH", 5)) + GRACE + after
}

/// Fails over again and again; `end` ends the active mount while it is under load, and returns the
/// time after which the standby had made its first write.
fn fail_over(name: &str, is_apart: bool, end: impl Fn(&mut Mount, &Mount) -> Duration) {
    let Some(conf) = cluster() else { return };
    let _alone = ALONE.lock();
    let volume = Volume::make(conf, name, is_apart);
    let acknowledged = Acknowledged::default();
    let mut active = volume.stand_by(0);
    active.is_mounted(Duration::from_secs(60));
    let (rounds, mut promises, mut slowest) = (number("VFSCALE_FAILOVERS", 2), 0, Duration::ZERO);
    for round in 1..=rounds {
        let standby = volume.stand_by(round);
        standby.says("standing by for", Duration::from_secs(60));
        let dir = active.dir.clone();
        let (count, took) = under_load(&dir, &acknowledged, || {
            let _ended = EndedByPanic(Pid::from_child(&active.server));
            vfscale_harness::wait_until("the writers get on", || {
                acknowledged.lock().unwrap().len() >= 8
            });
            // At another moment each time.
            vfscale_harness::pause(Duration::from_millis(round * 137 % 700));
            end(&mut active, &standby)
        });
        check(&standby.dir, &acknowledged.lock().unwrap());
        println!("round {round}: {count} acknowledged, first write after {took:?}");
        assert!(took <= limit(), "it took {took:?}");
        (promises, slowest) = (promises + count, slowest.max(took));
        active = standby;
    }
    active.unmount();
    volume.succeed(&["fsck"]);
    println!("{name}: {rounds} rounds, {promises} acknowledged, slowest first write {slowest:?}");
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_standby_takes_over_from_a_killed_mount() {
    fail_over("killed", false, |active, standby| {
        let begun = Instant::now();
        active.server.kill().unwrap();
        active.server.wait().unwrap();
        assert!(active.detach());
        first_write(standby, begun)
    });
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_mount_that_was_stopped_writes_nothing_after_it_was_taken_over() {
    fail_over("stopped", false, |active, standby| {
        let begun = Instant::now();
        active.signal(Signal::STOP);
        let took = first_write(standby, begun);
        // The split brain: its writers go on where they were, and all that is acknowledged from now
        // on would have to be found on the other mount.
        active.signal(Signal::CONT);
        assert_eq!(active.ended(), Some(FENCED));
        took
    });
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_mount_that_was_cut_off_writes_nothing_after_it_was_taken_over() {
    fail_over("cut", true, |active, standby| {
        let begun = Instant::now();
        let network = active.network.as_ref().unwrap();
        network.cut();
        let took = first_write(standby, begun);
        // All that was sent meanwhile arrives now.
        network.heal();
        assert_eq!(active.ended(), Some(FENCED));
        took
    });
}

/// A standby whose connections are lost, while it looks at the lock or takes it, makes new ones:
/// TCP would have it wait for a quarter of an hour.
#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_standby_whose_connections_are_lost_takes_over() {
    let kill = |active: &mut Mount| {
        active.server.kill().unwrap();
        active.server.wait().unwrap();
        assert!(active.detach());
    };
    fail_over("lost-looking", true, |active, standby| {
        standby.network.as_ref().unwrap().lose();
        let begun = Instant::now();
        kill(active);
        first_write(standby, begun)
    });
    fail_over("lost-opening", true, |active, standby| {
        let begun = Instant::now();
        kill(active);
        standby.says("taking over from", Duration::from_secs(60));
        let network = standby.network.as_ref().unwrap();
        // The standby has connected, and waits until the cluster refuses the old client.
        vfscale_harness::pause(Duration::from_millis(150));
        network.cut();
        vfscale_harness::pause(Duration::from_secs(1));
        network.lose();
        first_write(standby, begun)
    });
}

/// Requests of an open volume wait for longer than those that open it.
#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_mount_that_was_cut_off_and_not_taken_over_goes_on() {
    let Some(conf) = cluster() else { return };
    let _alone = ALONE.lock();
    let volume = Volume::make(conf, "alone", true);
    let mount = volume.stand_by(0);
    mount.is_mounted(Duration::from_secs(60));
    let network = mount.network.as_ref().unwrap();
    fs::write(mount.dir.join("before"), "kept").unwrap();
    network.cut();
    let path = mount.dir.join("during");
    let writer = std::thread::spawn(move || {
        let mut file = fs::File::create(path)?;
        file.write_all(b"kept as well")?;
        file.sync_all()?;
        // Meanwhile the client gets a new watch, and puts it into its lock.
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            file.write_all(b".")?;
            file.sync_all()?;
        }
        Ok::<(), std::io::Error>(())
    });
    vfscale_harness::stays("a sync waits for the cluster", Duration::from_secs(14), || {
        !writer.is_finished()
    });
    network.heal();
    writer.join().unwrap().unwrap();
    mount.unmount();
    volume.succeed(&["fsck"]);
}

/// A snapshot of a frozen image has all that had returned before, and nothing to replay.
#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_snapshot_of_a_frozen_volume_needs_no_replay() {
    let Some(conf) = cluster() else { return };
    let _alone = ALONE.lock();
    let volume = Volume::make(conf.clone(), "frozen", false);
    let mount = volume.stand_by(0);
    mount.is_mounted(Duration::from_secs(60));
    for number in 0..50 {
        fs::write(mount.dir.join(number.to_string()), vec![number; 5000]).unwrap();
    }
    let rbd = |arguments: &[&str]| {
        let mut rbd = Command::new("rbd");
        rbd.arg("--conf").arg(&conf).args(arguments).stderr(Stdio::null());
        assert!(rbd.status().unwrap().success(), "{arguments:?}");
    };
    let snapshot = format!("{}@cold", volume.image);
    let mut freeze = vfscale();
    freeze.arg("freeze").arg(&mount.dir).args(["rbd", "--conf"]).arg(&conf);
    let freeze = freeze.args(["snap", "create", "--no-progress", &snapshot]).status();
    assert!(freeze.unwrap().success());
    fs::write(mount.dir.join("later"), "not in the snapshot").unwrap();
    // Without the log the volume is as it lies in place.
    let dir = volume.dir(1);
    let mut cold = vfscale();
    cold.args(["mount", "-o", "ro,norecovery", "--ceph-conf"]).arg(&conf);
    cold.arg(format!("rbd:{snapshot}")).arg(&dir).stderr(Stdio::null());
    let mut cold = cold.spawn().unwrap();
    vfscale_harness::wait_until("the snapshot is mounted", || dir.join("0").exists());
    for number in 0..50 {
        assert_eq!(fs::read(dir.join(number.to_string())).unwrap(), vec![number; 5000]);
    }
    assert!(!dir.join("later").exists());
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    assert!(cold.wait().unwrap().success());
    mount.unmount();
    volume.succeed(&["fsck"]);
    rbd(&["snap", "rm", "--no-progress", &snapshot]);
}

/// The cluster and the user in the options of `mount(8)`, and of the helpers of `mkfs(8)` and
/// `fsck(8)`: nothing else names them.
#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_line_of_fstab_names_the_cluster() {
    let Some(conf) = cluster() else { return };
    let _alone = ALONE.lock();
    let volume = Volume::make(conf.clone(), "fstab", false);
    let (image, dir) = (format!("rbd:{}", volume.image), volume.dir(0));
    let run = |name: &str, arguments: &[&str]| {
        let program = volume.folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vfscale"), &program).unwrap();
        let output = Command::new(program).args(arguments).env_remove("CEPH_CONF").output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let conf = conf.to_str().unwrap();
    let (status, text) = run("mkfs.vfscale", &["-F", "--ceph-conf", conf, "--id=admin", &image]);
    assert_eq!(status, Some(0), "{text}");
    let options = format!("rw,_netdev,ceph_conf={conf},id=admin");
    let (status, text) = run("mount.vfscale", &[&image, dir.to_str().unwrap(), "-o", &options]);
    assert_eq!(status, Some(0), "{text}");
    fs::write(dir.join("f"), "by fstab").unwrap();
    let mut umount = vfscale();
    umount.arg("umount").arg(&dir).args(["--ceph-conf", conf]);
    assert!(umount.status().unwrap().success());
    let (status, text) = run("fsck.vfscale", &["-n", "--ceph-conf", conf, &image]);
    assert_eq!(status, Some(0), "{text}");
    let mut nobody = vfscale();
    nobody.args(["mount", "-o", &format!("ceph_conf={conf},id=nobody"), &image]).arg(&dir);
    let refused = nobody.output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("no such user"), "{text}");
}

/// `mkfs` that finds no cluster, and one a moment later, does not take the image for a missing one.
#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_cluster_that_does_not_answer_is_the_error_of_mkfs() {
    let Some(conf) = cluster() else { return };
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let impatient = folder.path().join("ceph.conf");
    let text = fs::read_to_string(&conf).unwrap();
    let text = text.replace("[client]", "[client]\nclient mount timeout = 3");
    fs::write(&impatient, text).unwrap();
    let daemons: Vec<Pid> = fs::read_dir(conf.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "pid"))
        .filter_map(|path| Pid::from_raw(fs::read_to_string(path).ok()?.trim().parse().ok()?))
        .collect();
    let all = |signal| daemons.iter().for_each(|pid| kill_process(*pid, signal).unwrap());
    let name = format!("rbd:rbd/silent-{}", std::process::id());
    let mut mkfs = vfscale();
    mkfs.args(["mkfs", "--size=64M", "--ceph-conf"]).arg(&impatient).arg(&name);
    all(Signal::STOP);
    let mut mkfs = mkfs.stderr(Stdio::piped()).spawn().unwrap();
    // For three seconds mkfs looks whether there is an image.
    vfscale_harness::pause(Duration::from_millis(4500));
    all(Signal::CONT);
    let mut text = String::new();
    std::io::Read::read_to_string(&mut mkfs.stderr.take().unwrap(), &mut text).unwrap();
    assert_eq!(mkfs.wait().unwrap().code(), Some(1), "{text}");
    assert!(text.contains("no monitor of the Ceph cluster answers"), "{text}");
}

#[test]
#[ignore = "needs a Ceph cluster: scripts/test ceph"]
fn a_dead_osd_delays_writes_and_loses_none() {
    let Some(conf) = cluster() else { return };
    let _alone = ALONE.lock();
    let ceph = |command: &str, number: &str| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/ceph");
        let mut script = Command::new(script);
        script.arg(command).arg(conf.parent().unwrap()).arg(number);
        assert!(script.status().unwrap().success());
    };
    let volume = Volume::make(conf.clone(), "osd", false);
    let acknowledged = Acknowledged::default();
    let mount = volume.stand_by(0);
    mount.is_mounted(Duration::from_secs(60));
    let dir = mount.dir.clone();
    let known = || acknowledged.lock().unwrap().len();
    let (count, took) = under_load(&dir, &acknowledged, || {
        vfscale_harness::pause(Duration::from_secs(1));
        ceph("kill", "2");
        let (begun, before) = (Instant::now(), known());
        // As many as are in flight may still be acknowledged at once.
        vfscale_harness::wait_until("writes go on", || known() >= before + 16);
        let took = begun.elapsed();
        ceph("start", "2");
        vfscale_harness::pause(Duration::from_secs(2));
        // Without a server the writers end.
        mount.signal(Signal::KILL);
        assert!(mount.detach());
        took
    });
    drop(mount);
    let mount = volume.stand_by(1);
    mount.is_mounted(Duration::from_secs(60));
    check(&mount.dir, &acknowledged.lock().unwrap());
    mount.unmount();
    volume.succeed(&["fsck"]);
    println!("osd: {count} acknowledged, writes went on after {took:?}");
}
