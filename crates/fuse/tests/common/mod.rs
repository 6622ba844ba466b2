//! What the tests of the mount share.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use vfscale::Vfs;
use vfscale_fuse::{Builder, MountError, Mounted, Sharing};

/// Nothing here takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(120);

pub const SHARED: Sharing = Sharing::Shared { cache: Duration::ZERO };
/// The ways to mount that have to behave alike.
pub const BOTH: [Sharing; 2] = [Sharing::Exclusive, SHARED];

/// A memory file system whose root directory belongs to who runs the tests, root or not.
pub fn memory(bytes: u64) -> Vfs {
    let (uid, gid) = owner();
    vfscale::memory().size(bytes).owner(uid, gid).build().unwrap()
}

/// User and group who run the tests.
pub fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// A memory file system at a temporary directory.
pub struct TestMount {
    mounted: Option<Mounted>,
    pub vfs: Vfs,
    dir: PathBuf,
    done: Arc<AtomicBool>,
}

impl TestMount {
    /// Mounts, or says loudly that this machine does not let us.
    pub fn new(sharing: Sharing) -> Option<TestMount> {
        TestMount::with(sharing, |builder| builder)
    }

    pub fn with(sharing: Sharing, options: impl FnOnce(Builder) -> Builder) -> Option<TestMount> {
        TestMount::of(memory(256 << 20), sharing, options)
    }

    pub fn of(
        vfs: Vfs,
        sharing: Sharing,
        options: impl FnOnce(Builder) -> Builder,
    ) -> Option<TestMount> {
        let is_root = rustix::process::geteuid().is_root();
        let dir = tempfile::Builder::new().prefix("vfscale-test-").tempdir().unwrap().keep();
        let builder = Builder::new(&vfs).sharing(sharing).allow_other(is_root).threads(2);
        let mounted = match options(builder).mount(&dir) {
            Ok(mounted) => mounted,
            Err(e @ (MountError::Device { .. } | MountError::Denied { .. })) => {
                std::fs::remove_dir(&dir).unwrap();
                // The same words for every test, so that a run tells them once.
                skipped(&e.to_string().replace(&*dir.to_string_lossy(), "a directory"));
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        let done = Arc::new(AtomicBool::new(false));
        watch(&dir, &done);
        Some(TestMount { mounted: Some(mounted), vfs, dir, done })
    }

    pub fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }

    pub fn take(&mut self) -> Mounted {
        self.mounted.take().unwrap()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        drop(self.mounted.take());
        self.done.store(true, Ordering::SeqCst);
        if let Err(e) = std::fs::remove_dir(&self.dir) {
            eprintln!("{} was left behind: {e}", self.dir.display());
        }
    }
}

/// Says that a test did not run, in a way that can't be overlooked.
pub fn skipped(why: &str) {
    eprintln!("\n######## SKIPPED: {why}\n");
}

/// Whether we are root, without which a test can't do what it is about.
pub fn is_root() -> bool {
    if !rustix::process::geteuid().is_root() {
        skipped("needs root");
        return false;
    }
    true
}

/// Ends the process, and the mount first, if a test hangs.
fn watch(dir: &Path, done: &Arc<AtomicBool>) {
    let (dir, done) = (dir.to_owned(), Arc::clone(done));
    std::thread::spawn(move || {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if done.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        eprintln!("a test with a mount at {} hangs", dir.display());
        let _ = Command::new("umount").args(["-f", "-l"]).arg(&dir).status();
        std::process::abort();
    });
}

/// Waits until `ready` says so.
///
/// # Panics
/// When that takes too long.
pub fn eventually(what: &str, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !ready() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The variable that tells a process of this test binary that it is a helper, and which.
const ROLE: &str = "VFSCALE_TEST_ROLE";

/// A command that runs this test binary as a helper in another process.
///
/// The binary must have a test `helper` that calls [`role`].
pub fn helper(role: &str, argument: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "helper", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env("VFSCALE_TEST_ARGUMENT", argument);
    command.stdout(std::process::Stdio::null());
    command
}

/// Which helper this process is, with its argument; `None` in the test itself.
pub fn role() -> Option<(String, String)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var("VFSCALE_TEST_ARGUMENT").unwrap()))
}

/// Runs a helper to its end, which must be a success.
pub fn run(mut command: Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// A child that does not outlive the test.
pub struct Kid(pub Child);

impl Kid {
    pub fn start(mut command: Command) -> Kid {
        Kid(command.spawn().unwrap())
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for a successful end.
    pub fn finish(mut self) {
        let mut status = None;
        eventually("the end of a helper", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{status:?}");
    }
}

impl Drop for Kid {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `truncate(2)`.
pub fn truncate(path: &Path, size: i64) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: reads a string that ends with a zero.
    match unsafe { libc::truncate(path.as_ptr(), size) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Has the kernel forget what it can.
pub fn drop_caches() {
    static WARNED: Once = Once::new();
    rustix::fs::sync();
    if let Err(e) = std::fs::write("/proc/sys/vm/drop_caches", "3") {
        WARNED.call_once(|| skipped(&format!("cannot drop caches: {e}")));
    }
}
