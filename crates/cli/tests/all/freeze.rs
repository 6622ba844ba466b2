//! `vfscale freeze`.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{can_mount, vfscale};

/// A volume in an image, mounted.
struct Mount {
    folder: tempfile::TempDir,
    server: Child,
}

impl Mount {
    fn new() -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (image, dir) = (folder.path().join("disk.vfs"), folder.path().join("mount"));
        fs::create_dir(&dir).unwrap();
        let mut mount = vfscale();
        mount.args(["mount", "--size=64M"]).arg(&image).arg(&dir);
        let server = mount.stderr(std::process::Stdio::null()).spawn().unwrap();
        let mount = Self { folder, server };
        vfscale_harness::wait_until("it is mounted", || {
            mount.request(&["--for=10"], &["true"]).is_some_and(|it| it.success())
        });
        Some(mount)
    }

    fn dir(&self) -> std::path::PathBuf {
        self.folder.path().join("mount")
    }

    fn freeze(&self, options: &[&str], command: &[&str]) -> std::process::Command {
        let mut freeze = vfscale();
        freeze.arg("freeze").args(options).arg(self.dir()).args(command);
        freeze
    }

    fn request(&self, options: &[&str], command: &[&str]) -> Option<std::process::ExitStatus> {
        let mut freeze = self.freeze(options, command);
        freeze.stderr(std::process::Stdio::null()).status().ok()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.dir()).status();
        let _ = self.server.wait();
    }
}

/// Returns how long a write and its sync take.
fn write(path: &Path) -> Duration {
    let begun = Instant::now();
    let file = fs::File::create(path).unwrap();
    file.sync_all().unwrap();
    begun.elapsed()
}

#[test]
fn a_copy_of_a_frozen_image_has_all_and_nothing_to_replay() {
    let Some(mount) = Mount::new() else { return };
    for number in 0..50 {
        fs::write(mount.dir().join(number.to_string()), vec![number; 5000]).unwrap();
    }
    let (image, copy) =
        (mount.folder.path().join("disk.vfs"), mount.folder.path().join("copy.vfs"));
    let copied = mount.request(&[], &["cp", image.to_str().unwrap(), copy.to_str().unwrap()]);
    assert!(copied.unwrap().success());
    let mut run = vfscale();
    let run = run.args(["run", "-o", "ro,norecovery"]).arg(&copy).args(["--", "cat", "0", "49"]);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, [vec![0; 5000], vec![49; 5000]].concat());
    let fsck = vfscale().args(["fsck"]).arg(&copy).status().unwrap();
    assert!(fsck.success());
}

/// Even if all workers of the mount sleep, a freeze ends: with its command, with a kill, in time.
#[test]
fn writes_wait_for_the_end_of_a_freeze() {
    let Some(mount) = Mount::new() else { return };
    let writes = || {
        let threads: Vec<_> = (0..32)
            .map(|number| {
                let path = mount.dir().join(format!("file{number}"));
                thread::spawn(move || write(&path))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    };
    let ready = mount.folder.path().join("ready");
    let frozen = |options: &[&str], seconds: &str| {
        let _ = fs::remove_file(&ready);
        let script = format!("touch {} && exec sleep {seconds}", ready.display());
        let mut freeze = mount.freeze(options, &["sh", "-c", &script]);
        let freeze = freeze.stderr(std::process::Stdio::null()).spawn().unwrap();
        vfscale_harness::wait_until("it is frozen", || ready.exists());
        freeze
    };
    let mut freeze = frozen(&[], "1");
    assert!(writes() > Duration::from_millis(500));
    assert!(freeze.wait().unwrap().success());

    let mut freeze = frozen(&[], "30");
    let killer = thread::spawn(move || {
        vfscale_harness::pause(Duration::from_secs(1));
        freeze.kill().unwrap();
        freeze.wait().unwrap();
    });
    let took = writes();
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(20), "{took:?}");
    killer.join().unwrap();

    let mut freeze = frozen(&["--for=1"], "3");
    let took = writes();
    assert!(took > Duration::from_millis(300), "{took:?}");
    assert_eq!(freeze.wait().unwrap().code(), Some(1), "it has thawed too early");
}

#[test]
fn what_can_not_be_frozen_says_why() {
    let Some(mount) = Mount::new() else { return };
    assert_eq!(mount.request(&[], &["sh", "-c", "exit 7"]).unwrap().code(), Some(7));
    assert_eq!(mount.request(&[], &["/no/such/command"]).unwrap().code(), Some(127));
    for (options, dir, why) in [
        (&["--for=4000"][..], mount.dir(), "at most 3600 s"),
        (&[], mount.folder.path().to_owned(), "no file system of vfscale is mounted there"),
    ] {
        let output = vfscale().arg("freeze").args(options).arg(&dir).arg("true").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(why), "{text}");
    }
    let mut run = vfscale();
    let vfscale = env!("CARGO_BIN_EXE_vfscale");
    let output = run.args(["run", "--memory=8M", "--", vfscale, "freeze", ".", "true"]).output();
    let text = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(text.contains("only a volume is frozen"), "{text}");
}
