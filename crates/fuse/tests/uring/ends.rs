//! Ends of servers and mounts under load: every caller gets an error soon, and nothing stays.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vfscale_fuse::{Builder, Sharing};

use crate::common::{self, Kid, TestMount, UringSwitch, is_root};

/// Time for which a caller may wait for a server that has ended.
const SOON: Duration = Duration::from_secs(1);

/// The part of the server processes.
#[test]
fn helper() {
    let Some((role, dir)) = common::role() else { return };
    assert_eq!(role, "serve");
    let vfs = common::memory(64 << 20);
    // The test waits for this name, which the directory below does not have.
    vfs.task().write("/ready", "").unwrap();
    let builder = Builder::new(&vfs).sharing(Sharing::Exclusive).transport(common::transport());
    builder.mount(&dir).unwrap().wait();
}

/// Changes a file in the directory `root` until a call fails; counts the calls.
fn load(root: &File, name: u32, calls: &AtomicU64) -> std::io::Error {
    // Not by the path of the mount, which may end before its users do.
    let dir = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
    let path = dir.join(name.to_string());
    let big = vec![7; 1 << 20];
    let mut back = Vec::new();
    let mut round = || {
        let mut file = File::create(&path)?;
        file.write_all(&big)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        back.clear();
        File::open(&path)?.read_to_end(&mut back)?;
        assert!(back == big);
        fs::metadata(&dir)?;
        fs::remove_file(&path)
    };
    loop {
        if let Err(e) = round() {
            return e;
        }
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs four loads in `dir`, calls `end` when they run, and checks that all get errors soon after.
fn end_under_load(dir: &Path, end: impl FnOnce()) {
    let (calls, root) = (AtomicU64::new(0), File::open(dir).unwrap());
    thread::scope(|scope| {
        let (calls, root) = (&calls, &root);
        let loads: Vec<_> =
            (0..4).map(|name| scope.spawn(move || load(root, name, calls))).collect();
        vfscale_harness::wait_until("load", || calls.load(Ordering::Relaxed) > 50);
        end();
        let start = Instant::now();
        for load in loads {
            let error = load.join().unwrap();
            // The last, if the thread of the queue ends while it is given the request.
            let expected = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED];
            assert!(error.raw_os_error().is_some_and(|n| expected.contains(&n)), "{error}");
        }
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    });
}

/// A server in another process.
struct ServerProcess {
    kid: Kid,
    dir: PathBuf,
}

impl ServerProcess {
    fn start() -> Option<ServerProcess> {
        let switch = UringSwitch::on()?;
        let dir = tempfile::Builder::new().prefix("vfscale-test-").tempdir().unwrap().keep();
        let command = common::helper("ends", "serve", &dir);
        let kid = Kid::start(command);
        vfscale_harness::wait_until("the server", || dir.join("ready").exists());
        drop(switch);
        Some(ServerProcess { kid, dir })
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.kid.0.kill();
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        let _ = fs::remove_dir(&self.dir);
    }
}

#[test]
fn callers_of_a_killed_server_get_errors() {
    if !is_root() {
        return;
    }
    for _ in 0..3 {
        let Some(mut server) = ServerProcess::start() else { return };
        let dir = server.dir.clone();
        end_under_load(&dir, || server.kid.0.kill().unwrap());
        let error = fs::metadata(dir.join("other")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    }
}

#[test]
fn force_ends_a_mount_under_load() {
    if !is_root() {
        return;
    }
    for mut m in TestMount::both() {
        let mounted = m.take();
        let unmounter = mounted.unmounter();
        end_under_load(m.dir(), || unmounter.force().unwrap());
        let start = Instant::now();
        mounted.wait();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
}

/// The present users of a detached mount keep it, and its threads end after them.
#[test]
fn a_detached_mount_ends_with_its_last_user() {
    if !is_root() {
        return;
    }
    let Some(mut m) = TestMount::new(Sharing::Exclusive) else { return };
    let mut file = File::create(m.path("f")).unwrap();
    assert!(Command::new("umount").arg("-l").arg(m.dir()).status().unwrap().success());
    let mounted = m.take();
    file.write_all(b"still there").unwrap();
    file.sync_all().unwrap();
    assert!(mounted.is_mounted());
    drop(file);
    mounted.wait();
}
