//! Changes in overlays above views, taken over into a branch and compared with the overlay.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags,
    fallocate, makedev, mknodat, renameat_with, setxattr, utimensat,
};
use rustix::mount::{MountFlags, UnmountFlags};
use vfscale::pool::{Difference, DifferenceKind};
use vfscale::posix::Whence;
use vfscale::{Errno, ForkOptions, Ingested, Overlay, Pool, PoolError, Task};
use vfscale_sync::random::{Random, seed};

use crate::common::{image, within};
use crate::views::{Mounted, acl, change, of_kernel, of_library};

/// The options of an overlay that an ingest knows all of.
const FULL: &str = "xino=on,redirect_dir=on,metacopy=on,index=on";
/// The options of an overlay in a namespace of users.
const OF_USER: &str = "userxattr,xino=on,index=off";

/// An overlay above a view.
pub struct Above {
    dir: PathBuf,
    mounted: PathBuf,
    options: &'static str,
    layers: CString,
    _view: Mounted,
}

impl Above {
    /// Makes a view of `main`, and mounts an overlay above it; says why not if that can't be done
    /// here.
    pub fn new(pool: &Pool, image: &Path) -> Option<Self> {
        Self::with(pool, image, FULL)
    }

    fn with(pool: &Pool, image: &Path, options: &'static str) -> Option<Self> {
        let dir = image.parent().unwrap().to_owned();
        pool.fork_with("main", "base", ForkOptions::new().read_only(true)).unwrap();
        pool.view("base", &dir.join("view")).unwrap();
        let view = Mounted::new(image, &dir.join("view"), &dir.join("lower"))?;
        let [upper, work, mounted] = ["upper", "work", "mnt"].map(|name| dir.join(name));
        [&upper, &work, &mounted].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
        let text = format!(
            "lowerdir={},upperdir={},workdir={},{options}",
            dir.join("lower").display(),
            upper.display(),
            work.display()
        );
        let layers = CString::new(text).unwrap();
        let this = Self { dir, mounted, options, layers, _view: view };
        this.mount();
        Some(this)
    }

    fn mount(&self) {
        let flags = MountFlags::empty();
        rustix::mount::mount("overlay", &self.mounted, "overlay", flags, &*self.layers).unwrap();
    }

    /// Mounts it anew: without handles, Linux shows two numbers of a file that it has copied and
    /// that got another name then, until it has forgotten the file.
    fn remount(&self) {
        rustix::mount::unmount(&self.mounted, UnmountFlags::empty()).unwrap();
        self.mount();
    }

    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.mounted.join(path)
    }

    fn ingest(&self, pool: &Pool) -> Result<Ingested, PoolError> {
        ingest_of(pool, &self.dir, self.options == OF_USER)
    }
}

impl Drop for Above {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.mounted, UnmountFlags::DETACH).unwrap();
    }
}

pub fn ingest(pool: &Pool, dir: &Path) -> Result<Ingested, PoolError> {
    ingest_of(pool, dir, false)
}

fn ingest_of(pool: &Pool, dir: &Path, userxattr: bool) -> Result<Ingested, PoolError> {
    let [view, upper, work] = &["view", "upper", "work"].map(|name| dir.join(name));
    pool.ingest("main", Overlay { base: "base", view, upper, work, userxattr })
}

fn names(pool: &Pool) -> Vec<String> {
    pool.branches().into_iter().map(|info| info.name).collect()
}

/// Returns a path that may be there.
fn some(root: &Path, random: &mut Random) -> PathBuf {
    let depth = random.below(3);
    let dir = (0..depth).fold(root.to_owned(), |dir, _| dir.join(format!("d{}", random.below(3))));
    if random.below(4) == 0 {
        return dir.join(format!("d{}", random.below(3)));
    }
    dir.join(format!("{}", random.below(20)))
}

/// Changes something in a directory of the kernel at random. Calls that fail change nothing.
fn change_kernel(root: &Path, random: &mut Random) {
    let (name, other) = (some(root, random), some(root, random));
    let size = random.one(&[1, 100, 4096, 9000, 70_000]);
    let at = random.one(&[0, 0, 4096, 5000, 1 << 20]);
    let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8 + random.below(2) as u8).collect();
    // Without a wait for fifos.
    let open = |create| {
        let mut options = File::options();
        let options = options.read(true).write(true).create(create);
        let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(&name)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::ErrorKind::Other.into()) }
    };
    let mode = Mode::from(random.one(&[0o600, 0o4755, 0o666, 0o1777]));
    let value = vec![7; random.one(&[0, 3, 700]) as usize];
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let time = Timespec { tv_sec: random.below(4_000_000_000) as i64, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    let nothing = XattrFlags::empty();
    let done: std::io::Result<()> = match random.below(30) {
        0..3 => open(true).and_then(|it| it.write_all_at(&bytes, at)),
        3 => open(false).and_then(|it| it.set_len(at + 77)),
        4 => open(false).and_then(|it| Ok(fallocate(it, hole, at, size)?)),
        5 => fs::remove_file(&name),
        6 => fs::remove_dir_all(&name),
        7..10 => fs::rename(&name, &other),
        10 => renameat_with(CWD, &name, CWD, &other, RenameFlags::EXCHANGE).map_err(Into::into),
        11..13 => fs::hard_link(&name, &other),
        13 => std::os::unix::fs::symlink("target", &name),
        14 => fs::create_dir_all(&name),
        15 => mknodat(CWD, &name, FileType::Fifo, mode, 0).map_err(Into::into),
        16 => {
            let device = makedev(1, random.below(9) as u32);
            mknodat(CWD, &name, FileType::CharacterDevice, mode, device).map_err(Into::into)
        }
        17 => fs::symlink_metadata(&name).and_then(|it| match it.is_symlink() {
            true => Ok(()),
            false => Ok(rustix::fs::chmod(&name, mode)?),
        }),
        18 => std::os::unix::fs::lchown(&name, Some(random.below(9) as u32), Some(5)),
        19 => {
            let key = random.one(&["user.a", "trusted.c", "trusted.overlay.x"]);
            setxattr(&name, key, &value, nothing).map_err(Into::into)
        }
        20 => {
            let access = "system.posix_acl_access";
            let key = random.one(&["user.a", access, "system.posix_acl_default"]);
            let removed = rustix::fs::removexattr(&name, key);
            let list = acl(random.below(3) as u32);
            removed.and(setxattr(&other, access, &list, nothing)).map_err(Into::into)
        }
        21 => utimensat(CWD, &name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(Into::into),
        22..25 => fs::hard_link(&name, &other),
        // A change by a name that goes: the other names of the file have it.
        25..27 => std::os::unix::fs::lchown(&name, Some(7), Some(random.below(9) as u32))
            .and_then(|()| fs::remove_file(&name)),
        27 => open(false)
            .and_then(|it| it.write_all_at(&bytes, at))
            .and_then(|()| fs::rename(&other, &name)),
        _ => setxattr(&name, "user.b", &value, nothing)
            .map_err(Into::into)
            .and_then(|()| fs::remove_file(&name)),
    };
    drop(done);
}

/// Compares the branch `main` with an overlay: names, attributes, and all bytes.
fn compare(task: &Task, overlay: &Path) {
    let (is, expected) = (of_library(task), of_kernel(overlay));
    for (path, known) in &expected {
        assert_eq!(is.get(path), Some(known), "{path:?}");
    }
    assert_eq!(is.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, known) in &expected {
        if known.is_file() {
            let theirs = File::open(overlay.join(path.strip_prefix("/").unwrap())).unwrap();
            same_bytes(&theirs, &task.open(path).unwrap(), path);
        }
    }
}

/// Compares two files, where one of them has data.
fn same_bytes(theirs: &File, ours: &vfscale::File, path: &Path) {
    let size = theirs.metadata().unwrap().len();
    let (mut at, mut one, mut other) = (0, vec![0; 1 << 16], vec![0; 1 << 16]);
    while at < size {
        let next = [
            rustix::fs::seek(theirs, rustix::fs::SeekFrom::Data(at)).unwrap_or(size),
            ours.seek(Whence::Data(at)).unwrap_or(size),
        ];
        at = next[0].min(next[1]);
        let read = theirs.read_at(&mut one, at).unwrap();
        assert_eq!(ours.read_at(&mut other, at).unwrap().min(read), read, "{path:?} at {at}");
        assert!(one[..read] == other[..read], "{path:?} from {at} on");
        at += read.max(1) as u64;
    }
}

/// Leaves each file one name: an overlay without an index shows a count of links that it has not.
fn unlink_second_names(task: &Task) {
    let mut met = std::collections::HashSet::new();
    let names: Vec<_> = task.walk_dir("/").map(|entry| entry.unwrap()).collect();
    for entry in names {
        let is_dir = entry.metadata.file_type() == vfscale::FileType::Directory;
        if !is_dir && !met.insert(entry.metadata.ino) {
            task.remove_file(&entry.path).unwrap();
        }
    }
}

#[test]
fn a_branch_becomes_what_the_overlay_is() {
    let mut random = Random::new(seed());
    for options in [FULL, FULL, FULL, FULL, OF_USER, OF_USER, OF_USER] {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), |task| {
            (0..150).for_each(|_| change(task, &mut random));
            for _ in 0..random.one(&[0, 30, 300]) {
                let [file, name] = [(); 2].map(|()| some(Path::new("/"), &mut random));
                let _ = task.hard_link(file, name);
            }
            if options == OF_USER {
                unlink_second_names(task);
            }
        });
        let pool = vfscale::pool(&path).convert(true).open().unwrap();
        let Some(above) = Above::with(&pool, &path, options) else { return };
        for _ in 0..random.one(&[20, 200, 400]) {
            change_kernel(&above.mounted, &mut random);
        }
        let done = above.ingest(&pool).unwrap();
        assert_eq!(done.kept, None);
        assert_eq!(names(&pool), ["base", "main"]);
        if options == OF_USER {
            above.remount();
        }
        within(&pool, "main", |task| compare(task, &above.mounted));
        drop(above);
        pool.close().unwrap();
    }
}

/// A file that was moved or copied stays the inode that it was, and only blocks that differ are
/// written.
#[test]
fn an_ingest_writes_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| {
        task.create_dir_all("/a/b").unwrap();
        task.write("/a/b/inner", "inner").unwrap();
        task.write("/large", vec![1; 4 << 20]).unwrap();
        task.write("/one", "linked").unwrap();
        task.hard_link("/one", "/two").unwrap();
        task.hard_link("/one", "/three").unwrap();
        task.write("/mode", vec![2; 1 << 20]).unwrap();
        task.write("/same", vec![3; 1 << 20]).unwrap();
    });
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let Some(above) = Above::new(&pool, &path) else { return };
    let ino = |task: &Task, path: &str| task.symlink_metadata(path).unwrap().ino;
    let before = within(&pool, "main", |task| {
        ["/a", "/a/b", "/a/b/inner", "/large", "/one", "/mode"].map(|path| ino(task, path))
    });
    fs::rename(above.path("a/b"), above.path("c")).unwrap();
    fs::rename(above.path("a"), above.path("c/a")).unwrap();
    fs::rename(above.path("c/inner"), above.path("inner")).unwrap();
    let large = File::options().write(true).open(above.path("large")).unwrap();
    large.write_all_at(&[9], 3 << 20).unwrap();
    fs::rename(above.path("large"), above.path("c/larger")).unwrap();
    fs::rename(above.path("one"), above.path("uno")).unwrap();
    fs::remove_file(above.path("two")).unwrap();
    File::options().append(true).open(above.path("three")).unwrap().write_all(b"!").unwrap();
    fs::set_permissions(above.path("mode"), PermissionsExt::from_mode(0o600)).unwrap();
    let copy = fs::read(above.path("same")).unwrap();
    File::options().write(true).open(above.path("same")).unwrap().write_all(&copy).unwrap();
    let done = above.ingest(&pool).unwrap();
    // One block, and the seven bytes of the file with links.
    assert_eq!(done.bytes, 4096 + 7);
    within(&pool, "main", |task| {
        let after = ["/c/a", "/c", "/inner", "/c/larger", "/uno", "/mode"];
        assert_eq!(after.map(|path| ino(task, path)), before);
        assert_eq!(ino(task, "/three"), before[4]);
        compare(task, &above.mounted);
    });
    let found = pool.diff("base", "main").unwrap();
    let moved = |it: &&Difference| matches!(it.kind, DifferenceKind::Moved { .. });
    assert!(found.iter().filter(moved).count() >= 4, "{found:?}");
    drop(above);
    pool.close().unwrap();
}

/// In an overlay of a user, a file of the base that is changed keeps its inode if it has one name,
/// and leaves its other names what they were.
#[test]
fn an_overlay_of_a_user_says_no_origins() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| {
        task.write("/large", vec![1; 1 << 20]).unwrap();
        ["/one", "/link"].iter().for_each(|name| task.write(name, "base").unwrap());
        task.hard_link("/one", "/two").unwrap();
        task.symlink("target", "/name").unwrap();
        task.create_dir_all("/d/e").unwrap();
        task.write("/d/e/f", "inner").unwrap();
    });
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let Some(above) = Above::with(&pool, &path, OF_USER) else { return };
    let ino = |task: &Task, path: &str| task.symlink_metadata(path).unwrap().ino;
    let before = within(&pool, "main", |task| ["/large", "/two"].map(|path| ino(task, path)));
    File::options().write(true).open(above.path("large")).unwrap().write_all(b"x").unwrap();
    File::options().append(true).open(above.path("one")).unwrap().write_all(b"!").unwrap();
    fs::remove_file(above.path("name")).unwrap();
    std::os::unix::fs::symlink("another", above.path("name")).unwrap();
    fs::remove_dir_all(above.path("d")).unwrap();
    fs::create_dir(above.path("d")).unwrap();
    fs::rename(above.path("link"), above.path("large2")).unwrap();
    let done = above.ingest(&pool).unwrap();
    assert_eq!(done.bytes, 4096 + 5 + 4);
    within(&pool, "main", |task| {
        assert_eq!(["/large", "/two"].map(|path| ino(task, path)), before);
        let read = |path: &str| task.read_to_string(path).unwrap();
        assert_eq!(
            (read("/one"), read("/two"), read("/large2")),
            ("base!".into(), "base".into(), "base".into())
        );
        assert_eq!(task.read_link("/name").unwrap(), Path::new("another"));
        assert_eq!((task.exists("/d/e").unwrap(), task.exists("/link").unwrap()), (false, false));
    });
    drop(above);
    pool.close().unwrap();
}

/// A file of the base with several names that was changed by one which is gone.
#[test]
fn a_change_by_a_name_that_is_gone_is_one_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| {
        for (file, kept) in [("d/one", "two"), ("three", "d/four"), ("five", "six"), ("7", "8")] {
            task.create_dir_all("/d").unwrap();
            task.write(Path::new("/").join(file), "linked").unwrap();
            task.hard_link(Path::new("/").join(file), Path::new("/").join(kept)).unwrap();
        }
        task.symlink("target", "/link").unwrap();
        task.hard_link("/link", "/link2").unwrap();
    });
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let Some(above) = Above::new(&pool, &path) else { return };
    let kept = ["/two", "/d2/four", "/six", "/link2"];
    std::os::unix::fs::lchown(above.path("d/one"), Some(5), Some(5)).unwrap();
    fs::remove_file(above.path("d/one")).unwrap();
    File::options().append(true).open(above.path("three")).unwrap().write_all(b"!").unwrap();
    fs::rename(above.path("d"), above.path("d2")).unwrap();
    fs::rename(above.path("7"), above.path("three")).unwrap();
    setxattr(above.path("five"), "user.a", b"value", XattrFlags::empty()).unwrap();
    fs::create_dir(above.path("new")).unwrap();
    fs::rename(above.path("five"), above.path("new/five")).unwrap();
    fs::remove_dir_all(above.path("new")).unwrap();
    std::os::unix::fs::lchown(above.path("link"), Some(6), Some(6)).unwrap();
    fs::remove_file(above.path("link")).unwrap();
    // No name is left of this one.
    fs::set_permissions(above.path("8"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::remove_file(above.path("8")).unwrap();
    fs::remove_file(above.path("three")).unwrap();
    above.ingest(&pool).unwrap();
    within(&pool, "main", |task| {
        compare(task, &above.mounted);
        let found = kept.map(|path| task.symlink_metadata(path).unwrap());
        assert_eq!(found.map(|it| (it.uid, it.nlink)), [(5, 1), (0, 1), (0, 1), (6, 1)]);
        assert_eq!(task.read_to_string("/d2/four").unwrap(), "linked!");
    });
    drop(above);
    pool.close().unwrap();
}

/// A branch that has changed meanwhile stays as it is.
#[test]
fn changes_that_a_branch_can_not_take_are_another_branch() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let Some(above) = Above::new(&pool, &path) else { return };
    fs::write(above.path("f"), "overlay").unwrap();
    within(&pool, "main", |task| task.write("/f", "another").unwrap());
    let kept = above.ingest(&pool).unwrap().kept.unwrap();
    assert_eq!(crate::common::read(&pool, "main", "/f").as_deref(), Some("another"));
    assert_eq!(crate::common::read(&pool, &kept, "/f").as_deref(), Some("overlay"));
    drop(above);
    pool.close().unwrap();
    let pool = vfscale::pool(&path).open().unwrap();
    assert_eq!(names(&pool), ["base", "main", &*kept]);
    pool.close().unwrap();
}

/// An overlay that was never mounted, above `/d/e` and a file with the names `/f` and `/g`.
struct Forged {
    dir: tempfile::TempDir,
    pool: Pool,
    view: Vec<u8>,
}

impl Forged {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("######## SKIPPED: attributes of overlays need root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), |task| {
            task.create_dir_all("/d/e").unwrap();
            task.write("/f", "base").unwrap();
            task.hard_link("/f", "/g").unwrap();
        });
        let pool = vfscale::pool(&path).convert(true).open().unwrap();
        pool.fork_with("main", "base", ForkOptions::new().read_only(true)).unwrap();
        pool.view("base", &dir.path().join("view")).unwrap();
        let view = fs::read(dir.path().join("view")).unwrap();
        Some(Self { dir, pool, view })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn file(&self, path: &str) {
        fs::write(self.path(path), "upper").unwrap();
    }

    fn mark(&self, path: &str, name: &str, value: &[u8]) {
        let name = format!("trusted.overlay.{name}");
        setxattr(self.path(path), name, value, XattrFlags::empty()).unwrap();
    }

    /// Returns the handle of an inode.
    fn handle(&self, number: u8) -> Vec<u8> {
        let number = [0, 0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0];
        [&[0, 0xfb, 33, 0, 0x81], &self.view[1024 + 48..][..16], &number].concat()
    }

    /// Returns the handle of the file.
    fn handle_of_file(&self) -> Vec<u8> {
        let found = (0..=255).find(|number| is_file(&self.view, *number));
        self.handle(found.unwrap())
    }

    /// Makes the directories, `fill`s them, and expects an error that names the file, and that
    /// nothing has changed.
    fn refuses(&self, what: &str, fill: &dyn Fn()) {
        self.refuses_with(false, what, fill);
    }

    fn refuses_with(&self, userxattr: bool, what: &str, fill: &dyn Fn()) {
        let made = ["upper", "work"].map(|name| self.path(name));
        made.iter().for_each(|dir| fs::create_dir(dir).unwrap());
        self.mark("upper", "origin", &[]);
        fill();
        let refused = ingest_of(&self.pool, self.dir.path(), userxattr).unwrap_err();
        assert!(refused.to_string().contains(what), "{what}: {refused}");
        assert_ne!(refused.errno(), Errno::IO, "{what}: {refused}");
        assert_eq!(names(&self.pool), ["base", "main"], "{what}");
        assert_eq!(self.pool.diff("base", "main").unwrap(), [], "{what}");
        made.iter().for_each(|dir| _ = fs::remove_dir_all(dir));
    }
}

/// Upper layers that no overlay makes: the error names the file, and nothing is changed.
#[test]
fn a_hostile_upper_layer_changes_nothing() {
    let Some(forged) = Forged::new() else { return };
    let redirect = |path: &str, to: &[u8]| {
        fs::create_dir_all(forged.path(path)).unwrap();
        forged.mark(path, "redirect", to);
    };
    let copy = |path: &str, handle: &[u8]| {
        forged.file(path);
        forged.mark(path, "origin", handle);
    };
    type Case<'c> = (&'c str, &'c dyn Fn());
    let cases: [Case<'_>; 11] = [
        ("/x", &|| redirect("upper/x", b"/none")),
        ("/x", &|| redirect("upper/x", b"/d/../d")),
        ("/x", &|| redirect("upper/x", b"../../etc")),
        ("/x", &|| redirect("upper/x", b"/")),
        ("/", &|| ["upper/x", "upper/y"].iter().for_each(|it| redirect(it, b"/d"))),
        ("/d/x", &|| redirect("upper/d/x", b"/d")),
        ("/x", &|| {
            forged.file("upper/x");
            forged.mark("upper/x", "metacopy", b"");
        }),
        ("/x", &|| copy("upper/x", b"nonsense and more of it than a head")),
        ("another view", &|| {
            let mut handle = forged.handle(1);
            handle[5..21].fill(1);
            copy("upper/x", &handle);
        }),
        ("/x", &|| copy("upper/x", &forged.handle(255))),
        ("two files", &|| {
            let handle = forged.handle_of_file();
            ["upper/x", "upper/y"].iter().for_each(|it| copy(it, &handle));
        }),
    ];
    cases.into_iter().for_each(|(what, fill)| forged.refuses(what, fill));
    // An overlay of a user may say even less.
    let mark = |path: &str, name: &str, value: &[u8]| {
        let name = format!("user.overlay.{name}");
        setxattr(forged.path(path), name, value, XattrFlags::empty()).unwrap();
    };
    let cases: [Case<'_>; 3] = [
        ("/x", &|| {
            fs::create_dir(forged.path("upper/x")).unwrap();
            mark("upper/x", "redirect", b"/d");
        }),
        ("/x", &|| {
            forged.file("upper/x");
            mark("upper/x", "metacopy", b"");
        }),
        ("index", &|| fs::create_dir(forged.path("work/index")).unwrap()),
    ];
    for (what, fill) in cases {
        forged.refuses_with(true, what, fill);
    }
    forged.pool.close().unwrap();
}

/// Returns the path of a file in the index.
fn indexed(handle: &[u8]) -> String {
    handle.iter().fold("work/index/".to_owned(), |path, byte| path + &format!("{byte:02x}"))
}

/// A process that can't read the attributes of an overlay would take copies for new files.
#[test]
fn an_overlay_without_its_attributes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "base").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let Some(above) = Above::new(&pool, &path) else { return };
    fs::rename(above.path("f"), above.path("g")).unwrap();
    rustix::fs::removexattr(dir.path().join("upper"), "trusted.overlay.origin").unwrap();
    let error = above.ingest(&pool).unwrap_err();
    assert_eq!(error.errno(), Errno::PERM);
    assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
    within(&pool, "main", |task| assert!(task.exists("/f").unwrap()));
    assert_eq!(names(&pool), ["base", "main"]);
}

#[test]
fn a_hostile_index_changes_nothing() {
    let Some(forged) = Forged::new() else { return };
    let handle = forged.handle_of_file();
    let [nothing, mut other] = [forged.handle(255), handle.clone()];
    other[5..21].fill(1);
    let (good, nothing, other) = (indexed(&handle), indexed(&nothing), indexed(&other));
    let [odd, sign, short] =
        [format!("{good}0"), good.replace("00fb", "+0fb"), good[..60].to_owned()];
    let names = [&nothing, &other, &odd, &sign, &short, &"work/index/file".to_owned()];
    let index = || fs::create_dir(forged.path("work/index")).unwrap();
    for name in names {
        forged.refuses(name, &|| {
            index();
            forged.file(name);
        });
    }
    forged.refuses(&good, &|| {
        index();
        std::os::unix::fs::symlink("/etc/passwd", forged.path(&good)).unwrap();
    });
    forged.refuses("work/index", &|| {
        fs::create_dir(forged.path("elsewhere")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", forged.path("work/index")).unwrap();
    });
    forged.refuses("two files", &|| {
        index();
        forged.file(&good);
        forged.file("upper/x");
        forged.mark("upper/x", "origin", &handle);
    });
    forged.refuses("/work", &|| fs::remove_dir(forged.path("work")).unwrap());
    forged.pool.close().unwrap();
}

/// Only a file in the index that is a copy is a change; an overlay drops the others.
#[test]
fn an_index_has_changes_of_files_of_the_base_only() {
    let Some(forged) = Forged::new() else { return };
    let good = indexed(&forged.handle_of_file());
    ["upper", "work", "work/index", "work/index/00fb"]
        .iter()
        .for_each(|dir| fs::create_dir(forged.path(dir)).unwrap());
    forged.mark("upper", "origin", &[]);
    forged.file("work/index/#1");
    let device = FileType::CharacterDevice;
    mknodat(CWD, forged.path("work/index/00"), device, Mode::empty(), 0).unwrap();
    forged.file(&good);
    ingest(&forged.pool, forged.dir.path()).unwrap();
    for path in ["/f", "/g"] {
        let read = crate::common::read(&forged.pool, "main", path);
        assert_eq!(read.as_deref(), Some("upper"), "{path}");
    }
    forged.pool.close().unwrap();
}

/// Returns whether a number in a view is that of the regular file.
fn is_file(view: &[u8], number: u8) -> bool {
    let at = usize::from(number) * 32;
    view.get(at + 4..at + 6) == Some(&0o100_644_u16.to_le_bytes())
        && view.get(at + 8..at + 16) == Some(&4_u64.to_le_bytes())
}
