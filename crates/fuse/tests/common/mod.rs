//! Helpers of the tests of mounts.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use vfscale::Vfs;
use vfscale_fuse::{Builder, MountError, Mounted, Sharing, Transport, UringObstacle};

/// Time limit of a test; no test takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(120);

pub const SHARED: Sharing = Sharing::Shared { cache: Duration::ZERO };
/// The two kinds of mount, which must behave alike.
pub const BOTH: [Sharing; 2] = [Sharing::Exclusive, SHARED];

/// Returns the transport of all mounts of this test binary.
pub fn transport() -> Transport {
    match env!("CARGO_CRATE_NAME").starts_with("uring") {
        true => Transport::Uring,
        false => Transport::Classic,
    }
}

/// The switches of FUSE over io_uring, on while one of these exists.
pub struct UringSwitch(());

/// Number of users of the switches, and the files with their former contents.
static SWITCHES: Mutex<(usize, Vec<(&str, String)>)> = Mutex::new((0, Vec::new()));

impl UringSwitch {
    /// Switches on, or reports visibly that this machine does not permit it.
    pub fn on() -> Option<UringSwitch> {
        const FILES: [(&str, &str); 2] = [
            ("/sys/module/fuse/parameters/enable_uring", "Y"),
            ("/proc/sys/kernel/io_uring_disabled", "0"),
        ];
        let mut switches = SWITCHES.lock().unwrap_or_else(PoisonError::into_inner);
        switches.0 += 1;
        // From here on, dropping it restores.
        let switch = UringSwitch(());
        if switches.0 > 1 {
            return Some(switch);
        }
        for (file, on) in FILES {
            let former = std::fs::read_to_string(file).unwrap_or_default().trim().to_owned();
            if former == on {
                continue;
            }
            if let Err(e) = std::fs::write(file, on) {
                drop(switches);
                skipped(&format!("FUSE over io_uring can't be switched on: {file}: {e}"));
                return None;
            }
            switches.1.push((file, former));
        }
        Some(switch)
    }
}

impl Drop for UringSwitch {
    fn drop(&mut self) {
        let mut switches = SWITCHES.lock().unwrap_or_else(PoisonError::into_inner);
        switches.0 -= 1;
        if switches.0 == 0 {
            for (file, former) in switches.1.drain(..) {
                std::fs::write(file, former).unwrap();
            }
        }
    }
}

/// Returns a memory file system whose root directory belongs to the user who runs the tests.
pub fn memory(bytes: u64) -> Vfs {
    let (uid, gid) = owner();
    vfscale::memory().size(bytes).owner(uid, gid).build().unwrap()
}

/// Returns the user and group that run the tests.
pub fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// A memory file system mounted at a temporary directory.
pub struct TestMount {
    mounted: Option<Mounted>,
    pub vfs: Vfs,
    pub sharing: Sharing,
    dir: PathBuf,
    done: Arc<AtomicBool>,
}

impl TestMount {
    /// Mounts in both ways, one after the other.
    pub fn both() -> impl Iterator<Item = TestMount> {
        BOTH.into_iter().map_while(TestMount::new)
    }

    /// Mounts in both ways if this process is root.
    pub fn both_as_root() -> impl Iterator<Item = TestMount> {
        TestMount::both().take_while(|_| is_root())
    }

    /// Mounts, or reports visibly that this machine does not permit it.
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
        let builder = builder.transport(transport());
        // The kernel asks for the switch only while it mounts.
        let switch = match transport() {
            Transport::Classic => None,
            Transport::Uring => Some(UringSwitch::on()?),
        };
        let mounted = options(builder).mount(&dir);
        drop(switch);
        let mounted = match mounted {
            Ok(mounted) => mounted,
            Err(
                e @ (MountError::Device { .. }
                | MountError::Denied { .. }
                | MountError::Uring(UringObstacle::Kernel | UringObstacle::Filter { .. })),
            ) => {
                std::fs::remove_dir(&dir).unwrap();
                // One text for all tests, so a run reports it once.
                skipped(&e.to_string().replace(&*dir.to_string_lossy(), "a directory"));
                return None;
            }
            Err(e) => panic!("{e}"),
        };
        let done = Arc::new(AtomicBool::new(false));
        watch(&dir, &done);
        Some(TestMount { mounted: Some(mounted), vfs, sharing, dir, done })
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

/// Reports visibly that a test was skipped.
pub fn skipped(why: &str) {
    eprintln!("\n######## SKIPPED: {why}\n");
}

/// Returns whether this process is root; reports the test as skipped otherwise.
pub fn is_root() -> bool {
    if !rustix::process::geteuid().is_root() {
        skipped("needs root");
        return false;
    }
    true
}

/// Unmounts and ends the process if a test hangs.
fn watch(dir: &Path, done: &Arc<AtomicBool>) {
    let (dir, done) = (dir.to_owned(), Arc::clone(done));
    std::thread::spawn(move || {
        if vfscale_harness::comes(PATIENCE, || done.load(Ordering::SeqCst)) {
            return;
        }
        eprintln!("a test with a mount at {} hangs", dir.display());
        let _ = Command::new("umount").args(["-f", "-l"]).arg(&dir).status();
        std::process::abort();
    });
}

/// The environment variable with the role of a helper process of this test binary.
const ROLE: &str = "VFSCALE_TEST_ROLE";

/// Returns a command that runs this test binary as a helper in another process.
///
/// The module must have a test `helper` that calls [`role`].
pub fn helper(module: &str, role: &str, argument: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = format!("{module}::helper");
    command.args(["--exact", &test, "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env("VFSCALE_TEST_ARGUMENT", argument);
    command.stdout(std::process::Stdio::null());
    command
}

/// Returns the role and argument of this helper process; `None` in the test itself.
pub fn role() -> Option<(String, String)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var("VFSCALE_TEST_ARGUMENT").unwrap()))
}

/// The environment variable with a helper's user: its number, followed by the groups' numbers.
const BECOMES: &str = "VFSCALE_TEST_USER";

/// Returns a [`helper`] that runs in `dir` as another user, with these groups.
///
/// It starts as root and in `dir`: the path to this binary or to the mount may not be accessible to
/// other users.
pub fn user(module: &str, uid: u32, groups: &[u32], role: &str, dir: &Path) -> Command {
    let mut command = helper(module, role, ".");
    let ids: Vec<String> = std::iter::once(&uid).chain(groups).map(u32::to_string).collect();
    command.env(BECOMES, ids.join(",")).current_dir(dir);
    command
}

/// Changes to the user of this helper, if one is set.
pub fn become_user() {
    let Ok(ids) = std::env::var(BECOMES) else { return };
    let ids: Vec<u32> = ids.split(',').map(|id| id.parse().unwrap()).collect();
    let (uid, groups) = (ids[0], &ids[1..]);
    let done = |code| assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call reads as many groups as the given number; the other calls take no pointers.
    unsafe {
        done(libc::setgroups(groups.len(), groups.as_ptr()));
        done(libc::setresgid(uid, uid, uid));
        done(libc::setresuid(uid, uid, uid));
    }
}

/// Runs a helper and checks that it succeeds.
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

    /// Waits for the child to end successfully.
    pub fn finish(mut self) {
        let mut status = None;
        vfscale_harness::wait_until("the end of a helper", || {
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

/// Calls `truncate(2)`.
pub fn truncate(path: &Path, size: i64) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the call reads a string that ends with a zero.
    match unsafe { libc::truncate(path.as_ptr(), size) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Makes the kernel drop its caches.
pub fn drop_caches() {
    static WARNED: Once = Once::new();
    rustix::fs::sync();
    if let Err(e) = std::fs::write("/proc/sys/vm/drop_caches", "3") {
        WARNED.call_once(|| skipped(&format!("cannot drop caches: {e}")));
    }
}

/// Calls `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR`, or a command on flags that takes one word.
pub fn flags_ioctl(
    path: &Path,
    command: libc::c_ulong,
    words: &mut [u32; 7],
) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(path).unwrap();
    // SAFETY: the commands read or write at most the 28 bytes of the structure.
    match unsafe { libc::ioctl(file.as_raw_fd(), command as _, words.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
