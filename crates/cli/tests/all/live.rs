//! Mounted branches that get other contents: `branch rollback`, `adopt` and `merge` below a mount.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::branches::Image;
use crate::common::{can_mount, vfscale};

/// A mount of the branch `main` in the foreground. Dropping it ends it.
struct Mount {
    image: Image,
    dir: PathBuf,
    server: Child,
}

impl Mount {
    fn new(options: &[&str]) -> Option<Self> {
        can_mount().then(|| Self::of(Image::new(true), options))
    }

    fn of(image: Image, options: &[&str]) -> Self {
        let dir = image.0.path().join("mnt");
        fs::create_dir_all(&dir).unwrap();
        let mut command = vfscale();
        command.arg("mount").args(options).arg(image.path()).arg(&dir);
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let this = Self { image, dir, server };
        vfscale_harness::wait_until("it is mounted", || this.path("f").exists());
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn checkpoint(&self) -> String {
        self.image.good(&["checkpoint"], &[]).trim().to_owned()
    }

    fn roll_back(&self, to: &str) -> String {
        self.image.good(&["branch", "rollback", "--to", to], &["main"])
    }

    /// Unmounts, and checks the image.
    fn end(mut self) {
        // A command that another test starts may have files of this mount until it runs.
        let umount = || vfscale().arg("umount").arg(&self.dir).output().unwrap().status.success();
        vfscale_harness::wait_until("it is unmounted", umount);
        assert!(self.server.wait().unwrap().success());
        self.image.good(&["fsck"], &[]);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.server.try_wait().unwrap().is_none() {
            let pid = Pid::from_child(&self.server);
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.server.wait();
        }
    }
}

#[track_caller]
fn is_stale<T>(called: io::Result<T>) {
    let error = called.err().expect("it still has the former contents");
    assert_eq!(error.raw_os_error(), Some(Errno::STALE.raw_os_error()), "{error}");
}

/// Maps the first page of a file.
fn map(file: &File) -> *const u8 {
    // SAFETY: the kernel chooses where.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// Reads three bytes of a mapping as another program would: an access that would end this one is an
/// error here.
fn mapped(at: *const u8) -> io::Result<Vec<u8>> {
    let (reader, writer) = rustix::pipe::pipe()?;
    // SAFETY: the kernel checks the address.
    let written = unsafe { libc::write(writer.as_raw_fd(), at.cast(), 3) };
    if written != 3 {
        return Err(io::Error::last_os_error());
    }
    let mut bytes = vec![0; 3];
    rustix::io::read(&reader, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn a_mounted_branch_is_rolled_back() {
    let Some(mount) = Mount::new(&[]) else { return };
    fs::create_dir(mount.path("dir")).unwrap();
    for name in ["same", "changed", "replaced", "removed", "dir/moved"] {
        fs::write(mount.path(name), "old").unwrap();
    }
    let before = mount.checkpoint();
    // The kernel knows that there is no such name.
    assert!(!mount.path("new").exists());
    fs::write(mount.path("changed"), "now").unwrap();
    fs::write(mount.path("temporary"), "now").unwrap();
    fs::rename(mount.path("temporary"), mount.path("replaced")).unwrap();
    fs::remove_file(mount.path("removed")).unwrap();
    assert!(!mount.path("removed").exists());
    fs::rename(mount.path("dir/moved"), mount.path("moved")).unwrap();
    fs::create_dir_all(mount.path("made/below")).unwrap();
    fs::write(mount.path("new"), "now").unwrap();
    let open =
        |name: &str| OpenOptions::new().read(true).write(true).open(mount.path(name)).unwrap();
    let [same, changed, replaced, new, moved] =
        ["same", "changed", "replaced", "new", "moved"].map(open);
    let [dir, made] = ["dir", "made/below"].map(|name| File::open(mount.path(name)).unwrap());
    let mapping = [&same, &changed].map(map);
    assert_eq!(mapped(mapping[1]).unwrap(), b"now");

    let says = mount.roll_back(&before);
    assert!(says.contains("branch \"main@2\"") && says.contains("/changed"), "{says}");

    for name in ["same", "changed", "replaced", "removed", "dir/moved"] {
        assert_eq!(mount.read(name), "old", "{name}");
    }
    let names = |dir: PathBuf| {
        let names = fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(mount.dir.clone()), ["changed", "dir", "f", "removed", "replaced", "same"]);
    assert_eq!(names(mount.path("dir")), ["moved"]);
    // Files that are the same go on, and directories that there still are.
    let mut bytes = [0; 3];
    same.read_exact_at(&mut bytes, 0).unwrap();
    same.write_all_at(b"own", 0).unwrap();
    assert_eq!(mount.read("same"), "own");
    assert_eq!(mapped(mapping[0]).unwrap(), b"own");
    let here = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    assert_eq!(names(here), ["moved"]);
    assert_eq!(dir.metadata().unwrap().len(), fs::metadata(mount.path("dir")).unwrap().len());
    // Others, and what is not there any more, do not.
    for file in [&changed, &replaced, &new, &moved] {
        is_stale(file.read_exact_at(&mut bytes, 0));
        is_stale(file.write_all_at(b"lost", 0));
    }
    is_stale(made.metadata());
    assert_eq!(mapped(mapping[1]).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(mount.read("changed"), "old");
    drop((same, changed, replaced, new, moved, dir, made));
    // SAFETY: both were mapped above, and nobody uses them any more.
    let unmapped = mapping.map(|at| unsafe { libc::munmap(at.cast_mut().cast(), 4096) });
    assert_eq!(unmapped, [0; 2]);

    // Once more, and back: what was rolled over is had again.
    fs::write(mount.path("changed"), "second").unwrap();
    mount.roll_back(&before);
    assert_eq!(mount.read("changed"), "old");
    mount.image.good(&["adopt"], &["main@2"]);
    assert_eq!((mount.read("changed"), mount.read("new")), ("now".into(), "now".into()));
    mount.end();
}

/// A process stays in a directory that goes; so does the mount.
#[test]
fn a_directory_goes_below_a_shell() {
    let Some(mount) = Mount::new(&[]) else { return };
    let before = mount.checkpoint();
    fs::create_dir(mount.path("made")).unwrap();
    let script = "echo in; read line; ls . 2>&1; cd ..; cd / && echo out";
    let mut shell = std::process::Command::new("sh")
        .args(["-c", script])
        .current_dir(mount.path("made"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    mount.roll_back(&before);
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let says = String::from_utf8(shell.wait_with_output().unwrap().stdout).unwrap();
    assert!(says.contains("Stale file handle") && says.ends_with("out\n"), "{says}");
    assert!(!mount.path("made").exists());
    mount.end();
}

/// Race: eight threads write and read by names while the branch is rolled back below them.
///
/// Each sees one tree or the other, and none the former one again: its two looks at a stamp tell
/// which tree the file in between is of. Each write ends, or fails with `ESTALE`.
#[test]
fn running_writers_see_one_tree_or_the_other() {
    const THREADS: usize = 8;
    let Some(mount) = Mount::new(&[]) else { return };
    let names: Vec<String> = (0..THREADS).map(|n| format!("f{n}")).collect();
    let all = |text: &str| {
        names.iter().for_each(|name| fs::write(mount.path(name), text).unwrap());
        fs::write(mount.path("stamp"), text).unwrap();
    };
    all("old");
    let before = mount.checkpoint();
    for round in 0..3 {
        all("new");
        let (is_over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for (n, name) in names.iter().enumerate() {
                let (mount, is_over, looks) = (&mount, &is_over, &looks);
                scope.spawn(move || {
                    let mut log = File::create(mount.path(&format!("log{n}"))).unwrap();
                    let mut last = "new".to_owned();
                    while !is_over.load(Ordering::Relaxed) {
                        let [first, text, second] =
                            ["stamp", name, "stamp"].map(|name| mount.read(name));
                        if first == second {
                            assert_eq!(text, first, "{name} in the other tree");
                            looks.fetch_add(1, Ordering::Relaxed);
                        }
                        assert!(last != "old" || first == "old", "the former tree again");
                        last = second;
                        match log.write_all(b"line\n") {
                            Ok(()) => {}
                            Err(error) => {
                                assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{error}");
                                log = File::create(mount.path(&format!("log{n}"))).unwrap();
                            }
                        }
                    }
                    assert_eq!(last, "old");
                });
            }
            let begun = looks.load(Ordering::Relaxed) + 200;
            vfscale_harness::wait_until("they run", || looks.load(Ordering::Relaxed) > begun);
            mount.roll_back(&before);
            let begun = looks.load(Ordering::Relaxed) + 200;
            vfscale_harness::wait_until("they go on", || looks.load(Ordering::Relaxed) > begun);
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(mount.read("stamp"), "old", "{round}");
    }
    mount.end();
}

/// A server that is killed in the middle leaves the former contents or the new ones.
#[test]
fn a_killed_server_leaves_one_of_both() {
    let Some(mut mount) = Mount::new(&[]) else { return };
    let mut image = None;
    for round in 0..6_u32 {
        if let Some(image) = image.take() {
            mount = Mount::of(image, &[]);
        }
        for name in ["a", "b"] {
            fs::write(mount.path(name), "old").unwrap();
        }
        let before = mount.checkpoint();
        for name in ["a", "b"] {
            fs::write(mount.path(name), "now").unwrap();
        }
        File::open(mount.path("a")).unwrap().sync_all().unwrap();
        assert!(vfscale().arg("sync").arg(&mount.dir).status().unwrap().success());
        let mut command = vfscale();
        command.args(["branch", "rollback", "--to", &before]).arg(mount.image.path()).arg("main");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut asking = command.spawn().unwrap();
        vfscale_harness::pause(Duration::from_millis(u64::from(round * 9)));
        kill_process(Pid::from_child(&mount.server), Signal::KILL).unwrap();
        mount.server.wait().unwrap();
        let _ = vfscale().arg("umount").arg(&mount.dir).status().unwrap();
        // The command may find the image free, and do it itself.
        asking.wait().unwrap();
        let [a, b] = ["/a", "/b"].map(|path| mount.image.read(path));
        assert_eq!(a, b);
        assert!(a == "old" || a == "now", "{a}");
        mount.image.good(&["fsck"], &[]);
        let held = Image(tempfile::tempdir().unwrap());
        image = Some(std::mem::replace(&mut mount.image, held));
    }
}

/// Work of a trial is merged into a mounted branch, which goes on; and so is one that it adopts.
#[test]
fn a_mounted_branch_is_merged_into() {
    let Some(mount) = Mount::new(&[]) else { return };
    mount.image.good(&["branch", "create"], &["other"]);
    for name in ["trial", "other"] {
        let script = format!("echo {name} > {name}; echo {name} > f.{name}");
        mount.image.good(&["run", "--branch", name], &["--", "sh", "-c", &script]);
    }
    fs::write(mount.path("own"), "own").unwrap();
    let own = OpenOptions::new().write(true).open(mount.path("own")).unwrap();
    mount.image.good(&["merge"], &["trial"]);
    assert_eq!((mount.read("trial"), mount.read("own")), ("trial\n".into(), "own".into()));
    own.write_all_at(b"OWN", 0).unwrap();
    mount.image.good(&["merge"], &["other"]);
    for (name, text) in
        [("own", "OWN"), ("f", "base\n"), ("f.other", "other\n"), ("trial", "trial\n")]
    {
        assert_eq!(mount.read(name), text);
    }
    own.write_all_at(b"own", 0).unwrap();
    drop(own);
    mount.image.good(&["branch", "create"], &["child"]);
    mount.image.good(&["run", "--branch", "child"], &["--", "sh", "-c", "echo child > child"]);
    mount.image.good(&["adopt"], &["child"]);
    assert_eq!(mount.read("child"), "child\n");
    mount.end();
}

/// A mount that can't go on says what to do, and goes on with what it has.
#[test]
fn a_shared_mount_is_not_rolled_back() {
    let Some(mount) = Mount::new(&["--proc"]) else { return };
    let before = mount.checkpoint();
    fs::write(mount.path("f"), "now").unwrap();
    let says = mount.image.bad(1, &["branch", "rollback", "--to", &before], &["main"]);
    assert!(says.contains("--proc") && says.contains("unmount it"), "{says}");
    assert_eq!(mount.read("f"), "now");
    mount.end();
}
