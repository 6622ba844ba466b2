//! Reads with `O_NOATIME` do not update the access time of files and directories.

use std::io::IoSliceMut;

use vfscale::posix::{At, AtFlags, MountFlags, OFlags};
use vfscale::{Capabilities, Credentials, Errno, File, FileType, Mode, Task};

const MODE: Mode = Mode::from_bits_retain(0o755);

fn task() -> Task {
    let task = vfscale::memory().size(8 << 20).build().unwrap().task();
    // Updates the access time on each access.
    task.posix().remount("/", MountFlags::STRICTATIME).unwrap();
    task.create_dir("/d").unwrap();
    task.write("/d/f", "some bytes").unwrap();
    task.posix().mknodat(At::Cwd, "/fifo", FileType::Fifo, MODE, 0).unwrap();
    task
}

/// Returns whether a use of an open file updates its access time.
fn shows(file: &File, mut use_it: impl FnMut(&File)) -> bool {
    let before = file.stat().unwrap().atime;
    // Longer than a tick of the coarse clock, which access times are taken from.
    vfscale_harness::pause(std::time::Duration::from_millis(20));
    use_it(file);
    file.stat().unwrap().atime != before
}

/// A call with its name.
type Named = (&'static str, fn(&File));

fn reads() -> [Named; 4] {
    [
        ("pread", |file| assert_eq!(file.pread(&mut [0; 4], 0).unwrap(), 4)),
        ("read", |file| assert_eq!(file.read(&mut [0; 2]).unwrap(), 2)),
        ("readv", |file| {
            assert_eq!(file.readv(&mut [IoSliceMut::new(&mut [0; 2])]).unwrap(), 2);
        }),
        ("a read at the end", |file| assert_eq!(file.pread(&mut [0; 4], 100).unwrap(), 0)),
    ]
}

#[test]
fn reads_of_files_leave_their_access_time() {
    let task = task();
    let noatime = task.posix().open("/d/f", OFlags::RDONLY | OFlags::NOATIME, MODE).unwrap();
    let other = task.posix().open("/d/f", OFlags::RDONLY, MODE).unwrap();
    for (name, read) in reads() {
        assert!(!shows(&noatime, read), "{name}");
        assert!(shows(&other, read), "{name}");
    }
}

#[test]
fn reads_of_directories_leave_their_access_time() {
    let task = task();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let noatime = task.posix().open("/d", flags | OFlags::NOATIME, MODE).unwrap();
    let other = task.posix().open("/d", flags, MODE).unwrap();
    let by_position: fn(&File) = |dir| assert!(dir.read_dir().all(|entry| entry.is_ok()));
    let at: fn(&File) = |dir| dir.read_dir_at(0, |_| std::ops::ControlFlow::Continue(())).unwrap();
    for read in [by_position, at] {
        assert!(!shows(&noatime, read));
        assert!(shows(&other, read));
    }
}

#[test]
fn fifos_follow_the_flag_as_it_changes() {
    let task = task();
    let fifo = task.posix().open("/fifo", OFlags::RDWR | OFlags::NOATIME, MODE).unwrap();
    let pass: fn(&File) = |fifo| {
        fifo.write(b"x").unwrap();
        fifo.read(&mut [0]).unwrap();
    };
    assert!(!shows(&fifo, pass));
    fifo.set_flags(OFlags::empty(), &Credentials::root()).unwrap();
    assert!(shows(&fifo, pass));
    fifo.set_flags(OFlags::NOATIME, &Credentials::root()).unwrap();
    assert!(!shows(&fifo, pass));
}

#[test]
fn only_the_owner_may_ask_for_it() {
    let task = task();
    task.set_permissions("/d/f", Mode::from(0o666)).unwrap();
    let user = task.with_credentials(Credentials::user(1000, 1000));
    for (path, flags) in [("/d/f", OFlags::RDONLY), ("/d", OFlags::DIRECTORY)] {
        let error = user.posix().open(path, flags | OFlags::NOATIME, MODE).unwrap_err();
        assert_eq!(error.errno(), Errno::PERM, "{path}");
        // `O_PATH` ignores the flag.
        user.posix().open(path, OFlags::PATH | OFlags::NOATIME, MODE).unwrap();
        let file = user.posix().open(path, flags, MODE).unwrap();
        let set = file.set_flags(OFlags::NOATIME, &user.credentials()).unwrap_err();
        assert_eq!(set.errno(), Errno::PERM, "{path}");
        task.posix().fchownat(At::Cwd, path, Some(1000), None, AtFlags::empty()).unwrap();
        let owned = user.posix().open(path, flags | OFlags::NOATIME, MODE).unwrap();
        assert!(owned.flags().contains(OFlags::NOATIME));
        file.set_flags(OFlags::NOATIME, &user.credentials()).unwrap();
    }
    let mut credentials = Credentials::user(1001, 1001);
    credentials.caps = Capabilities::FOWNER;
    let fowner = task.with_credentials(credentials);
    fowner.posix().open("/d/f", OFlags::RDONLY | OFlags::NOATIME, MODE).unwrap();
}
