//! The number of requests that each call costs on a mount that is used exclusively.
//!
//! Time depends on the machine, the number of requests does not. A call that needs more of them
//! than its budget has become slower for every program; see "What a call costs" in
//! `docs/MOUNTS.md`, whose table these budgets are.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::common::{TestMount, owner};
use vfscale_fuse::{Mounted, Sharing, control};

/// Rounds before the counted ones: the kernel asks some questions once for each mount or inode.
const WARM_UP: u32 = 16;

/// Counted rounds.
const ROUNDS: u32 = 8;

/// Runs of a case at most. Other tests and programs may make the kernel drop its caches, which adds
/// requests to some runs; a budget that is too small or too large differs in all.
const ATTEMPTS: u32 = 5;

type Call = fn(&Scene, u32) -> io::Result<()>;

/// A call, what precedes it in each round without being counted, and its requests.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    before: Call,
    call: Call,
    budget: &'static [(&'static str, u64)],
}

/// A directory on a mount with one file, which is open, and a symbolic link to it.
struct Scene {
    dir: PathBuf,
    file: File,
}

impl Scene {
    fn new(dir: PathBuf) -> io::Result<Scene> {
        fs::create_dir(&dir)?;
        let path = dir.join("file");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        file.write_all_at(&[7; 65_536], 0)?;
        symlink("file", dir.join("symlink"))?;
        Ok(Scene { dir, file })
    }

    fn path(&self) -> PathBuf {
        self.dir.join("file")
    }

    /// Returns a path of this round.
    fn new_path(&self, kind: &str, round: u32) -> PathBuf {
        self.dir.join(format!("{kind}-{round}"))
    }
}

fn nothing(_: &Scene, _: u32) -> io::Result<()> {
    Ok(())
}

fn make_dir(scene: &Scene, round: u32) -> io::Result<()> {
    fs::create_dir(scene.new_path("dir", round))
}

fn make_file(scene: &Scene, round: u32) -> io::Result<()> {
    File::create_new(scene.new_path("file", round)).map(drop)
}

fn write_block(scene: &Scene, round: u32) -> io::Result<()> {
    scene.file.write_all_at(&[round as u8; 4096], 0)
}

/// Calls that the kernel serves from its caches.
const CACHED: &[Case] = &[
    Case {
        name: "stat",
        before: nothing,
        call: |scene, _| fs::metadata(scene.path()).map(drop),
        budget: &[],
    },
    Case {
        name: "open, close",
        before: nothing,
        call: |scene, _| File::open(scene.path()).map(drop),
        budget: &[],
    },
    Case {
        name: "open, read, close",
        before: nothing,
        call: |scene, _| fs::read(scene.path()).map(|data| assert_eq!(data.len(), 65_536)),
        budget: &[],
    },
    Case {
        name: "access",
        before: nothing,
        call: |scene, _| Ok(rustix::fs::access(scene.path(), rustix::fs::Access::READ_OK)?),
        budget: &[],
    },
    Case {
        name: "readlink",
        before: nothing,
        call: |scene, _| fs::read_link(scene.dir.join("symlink")).map(drop),
        budget: &[],
    },
    Case {
        name: "stat of a name that does not exist",
        before: nothing,
        call: |scene, _| {
            assert!(!scene.dir.join("missing").exists());
            Ok(())
        },
        budget: &[],
    },
];

/// Calls that change a directory. Each includes the attributes of the directory, which the kernel
/// forgets with each change in it and reads again before the next.
const NAMES: &[Case] = &[
    Case {
        name: "create, close, unlink",
        before: nothing,
        call: |scene, round| {
            make_file(scene, round)?;
            fs::remove_file(scene.new_path("file", round))
        },
        budget: &[("LOOKUP", 1), ("MKNOD", 1), ("UNLINK", 1), ("GETATTR", 2)],
    },
    Case {
        name: "create, close",
        before: nothing,
        call: make_file,
        budget: &[("LOOKUP", 1), ("MKNOD", 1), ("GETATTR", 1)],
    },
    Case {
        name: "unlink",
        before: make_file,
        call: |scene, round| fs::remove_file(scene.new_path("file", round)),
        budget: &[("UNLINK", 1), ("GETATTR", 1)],
    },
    Case {
        name: "mkdir",
        before: nothing,
        call: make_dir,
        budget: &[("LOOKUP", 1), ("MKDIR", 1), ("GETATTR", 1)],
    },
    Case {
        name: "rmdir",
        before: make_dir,
        call: |scene, round| fs::remove_dir(scene.new_path("dir", round)),
        budget: &[("RMDIR", 1), ("GETATTR", 1)],
    },
    Case {
        name: "rename",
        before: make_file,
        call: |scene, round| {
            fs::rename(scene.new_path("file", round), scene.new_path("renamed", round))
        },
        budget: &[("LOOKUP", 1), ("RENAME", 1), ("GETATTR", 1)],
    },
    Case {
        name: "link",
        before: nothing,
        call: |scene, round| fs::hard_link(scene.path(), scene.new_path("link", round)),
        budget: &[("LOOKUP", 1), ("LINK", 1), ("GETATTR", 1)],
    },
    Case {
        name: "symlink",
        before: nothing,
        call: |scene, round| symlink("file", scene.new_path("symlink", round)),
        budget: &[("LOOKUP", 1), ("SYMLINK", 1), ("GETATTR", 1)],
    },
];

/// Calls that change a file.
const FILES: &[Case] = &[
    Case {
        name: "chmod",
        before: nothing,
        call: |scene, round| {
            fs::set_permissions(scene.path(), Permissions::from_mode(0o600 + (round & 1)))
        },
        budget: &[("SETATTR", 1)],
    },
    Case {
        name: "utimes",
        before: nothing,
        call: |scene, round| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(round.into());
            scene.file.set_modified(time)
        },
        budget: &[("SETATTR", 1)],
    },
    Case {
        name: "chown",
        before: nothing,
        call: |scene, _| chown(scene.path(), Some(owner().0), Some(owner().1)),
        budget: &[("GETXATTR", 1), ("SETATTR", 1)],
    },
    Case { name: "pwrite of 4 KiB", before: nothing, call: write_block, budget: &[("WRITE", 1)] },
    Case {
        name: "pwrite of 64 KiB",
        before: nothing,
        call: |scene, round| scene.file.write_all_at(&[round as u8; 65_536], 0),
        budget: &[("WRITE", 1)],
    },
    Case {
        name: "the first write to a file",
        before: make_file,
        call: |scene, round| {
            let file = OpenOptions::new().write(true).open(scene.new_path("file", round))?;
            file.write_all_at(b"x", 0)
        },
        budget: &[("GETXATTR", 1), ("WRITE", 1), ("GETATTR", 1)],
    },
    Case {
        name: "stat after a write",
        before: write_block,
        call: |scene, _| Ok(rustix::fs::fstat(&scene.file).map(drop)?),
        budget: &[("GETATTR", 1)],
    },
    Case {
        // The standard library asks for the time of creation as well.
        name: "statx after a write",
        before: write_block,
        call: |scene, _| scene.file.metadata().map(drop),
        budget: &[("STATX", 1)],
    },
    Case {
        name: "fsync",
        before: write_block,
        call: |scene, _| scene.file.sync_all(),
        budget: &[("FSYNC", 1)],
    },
];

/// Returns the number of requests of each operation. The kernel sends those that end its interest
/// in an inode at any later time.
fn requests(mounted: &Mounted) -> BTreeMap<&'static str, u64> {
    let operations = mounted.statistics().operations.into_iter();
    let counts = operations.map(|stats| (stats.name, stats.count));
    counts.filter(|(name, _)| !name.ends_with("FORGET")).collect()
}

/// Counts the requests of all rounds of a case.
fn count(mounted: &Mounted, dir: &Path, case: &Case) -> BTreeMap<&'static str, u64> {
    let scene = Scene::new(dir.to_owned()).unwrap();
    let mut sums = BTreeMap::new();
    for round in 0..WARM_UP + ROUNDS {
        (case.before)(&scene, round).unwrap();
        let before = requests(mounted);
        (case.call)(&scene, round).unwrap();
        for (name, after) in requests(mounted) {
            let added = after - before.get(name).copied().unwrap_or(0);
            if round >= WARM_UP && added > 0 {
                *sums.entry(name).or_default() += added;
            }
        }
    }
    sums
}

#[test]
fn no_call_costs_more_requests_than_its_budget() {
    let Some(m) = TestMount::new(Sharing::Exclusive) else { return };
    let mut differences = Vec::new();
    for (number, case) in [CACHED, NAMES, FILES].concat().iter().enumerate() {
        let all = |(name, count): &(&'static str, u64)| (*name, count * u64::from(ROUNDS));
        let budget: BTreeMap<_, _> = case.budget.iter().map(all).collect();
        let mut counts = (0..ATTEMPTS)
            .map(|attempt| count(m.mounted(), &m.path(&format!("{number}-{attempt}")), case));
        if counts.all(|counts| counts != budget) {
            let counts = count(m.mounted(), &m.path(&format!("{number}-shown")), case);
            differences.push(format!("{}: {counts:?}, not {budget:?}", case.name));
        }
    }
    assert!(differences.is_empty(), "in {ROUNDS} rounds:\n{}", differences.join("\n"));
}

#[test]
fn statistics_are_those_of_the_requests() {
    let Some(m) = TestMount::new(Sharing::Exclusive) else { return };
    let before = m.mounted().statistics();
    for n in 0..100 {
        fs::write(m.path(&n.to_string()), "data").unwrap();
    }
    let after = control::connect(m.dir()).unwrap().statistics().unwrap();
    let counted = m.mounted().statistics();
    for (name, count) in [("MKNOD", 100), ("WRITE", 100)] {
        assert_eq!(after.count(name) - before.count(name), count, "{name}");
        assert_eq!(counted.count(name), after.count(name), "{name}");
    }
    assert_eq!((after.count("IOCTL"), counted.count("IOCTL")), (1, 1), "the address of the socket");
    assert!(after.mount.nodes >= 100 && after.counts.inodes >= 100, "{after:?}");
    let sum: u64 = after.operations.iter().map(|stats| stats.count).sum();
    assert_eq!(sum, after.mount.requests);
    for stats in &after.operations {
        assert_eq!(stats.classes.iter().sum::<u64>(), stats.count, "{stats:?}");
        assert!(stats.mean() <= stats.longest && stats.longest <= stats.total, "{stats:?}");
        assert!(!stats.longest.is_zero(), "{stats:?}");
    }
}
