//! Views, read by the reader of the crate, by the kernel and by `fsck.erofs`, and compared with
//! what the library reads.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, makedev};
use rustix::mount::{MountFlags, UnmountFlags};
use vfscale::posix::{At, AtFlags, OFlags, SetTime};
use vfscale::{FileType, ForkOptions, Mode, Pool, Task, Timestamp};
use vfscale_diskfs::on_disk::{Block, records_mut};
use vfscale_diskfs::{BLOCK_BYTES, DataFork, Extent, InodeCore};
use vfscale_erofs::{Inode, Part, Reader};
use vfscale_sync::random::{Random, seed};
use zerocopy::{FromZeros, IntoBytes};

use crate::common::{image, within};

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// All that a view has of a file, but for its contents. The first path of a file with several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    first: PathBuf,
    attributes: (u32, u32, u32, u64, i64),
    rdev: u64,
    size: u64,
    target: Option<Vec<u8>>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Known {
    pub fn is_file(&self) -> bool {
        self.attributes.0 & 0o170_000 == 0o100_000
    }
}

pub type Tree = BTreeMap<PathBuf, Known>;

/// Walks a tree, whose files `look` tells with their numbers, and `names` the names in a directory.
fn walk(
    mut look: impl FnMut(&Path) -> (u64, Known),
    mut names: impl FnMut(&Path) -> Vec<OsString>,
) -> Tree {
    let (mut tree, mut paths) = (Tree::new(), vec![PathBuf::from("/")]);
    while let Some(path) = paths.pop() {
        let (_, known) = look(&path);
        if known.attributes.0 & 0o170_000 == 0o040_000 {
            paths.extend(names(&path).into_iter().map(|name| path.join(name)));
        }
        tree.insert(path, known);
    }
    let mut first = HashMap::new();
    for (path, known) in &mut tree {
        known.first = first.entry(look(path).0).or_insert_with(|| path.clone()).clone();
    }
    tree
}

pub fn of_library(task: &Task) -> Tree {
    let look = |path: &Path| {
        let stat = task.symlink_metadata(path).unwrap();
        let is_dir = stat.is_dir();
        let (mut target, mut xattrs) = (None, Vec::new());
        if stat.is_symlink() {
            target = Some(task.read_link(path).unwrap().into_os_string().into_vec());
        } else {
            let value = |name: &OsString| task.xattr(path, name).unwrap().unwrap();
            let names = task.list_xattrs(path).unwrap();
            xattrs.extend(names.iter().map(|name| (name.as_bytes().to_vec(), value(name))));
            xattrs.sort();
        }
        // A directory and a link have other sizes in a view.
        let size = if stat.is_file() { stat.size } else { 0 };
        let links = if is_dir { 0 } else { stat.nlink.into() };
        let attributes = (stat.mode, stat.uid, stat.gid, links, stat.mtime.0);
        let first = PathBuf::new();
        (stat.ino, Known { first, attributes, rdev: stat.rdev, size, target, xattrs })
    };
    let names = |path: &Path| {
        task.read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    walk(look, names)
}

/// The numbers of the inodes of a view, by path.
fn paths(reader: &Reader<'_>) -> BTreeMap<PathBuf, Inode> {
    let (mut found, mut stack) = (BTreeMap::new(), vec![(PathBuf::from("/"), reader.root())]);
    while let Some((path, nid)) = stack.pop() {
        let inode = reader.inode(nid).unwrap();
        if inode.attributes.mode & 0o170_000 == 0o040_000 {
            for name in reader.names(&inode).unwrap() {
                if !matches!(&*name.name, b"." | b"..") {
                    stack.push((path.join(OsStr::from_bytes(&name.name)), name.nid));
                }
            }
        }
        found.insert(path, inode);
    }
    found
}

fn of_reader(reader: &Reader<'_>, inodes: &BTreeMap<PathBuf, Inode>) -> Tree {
    let look = |path: &Path| {
        let inode = &inodes[path];
        let attributes = &inode.attributes;
        let kind = attributes.mode & 0o170_000;
        let target = (kind == 0o120_000).then(|| reader.target(inode).unwrap());
        let size = if kind == 0o100_000 { inode.size } else { 0 };
        let links = if kind == 0o040_000 { 0 } else { attributes.links.into() };
        let mut xattrs: Vec<_> =
            attributes.xattrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        xattrs.sort();
        let rdev = inode.device.map_or(0, |(major, minor)| makedev(major, minor));
        let mode = attributes.mode.into();
        let attributes = (mode, attributes.uid, attributes.gid, links, attributes.mtime);
        let first = PathBuf::new();
        (inode.nid, Known { first, attributes, rdev, size, target, xattrs })
    };
    let names = |path: &Path| {
        let found = reader.names(&inodes[path]).unwrap().into_iter();
        let found = found.filter(|name| !matches!(&*name.name, b"." | b".."));
        found.map(|name| OsString::from_vec(name.name.into_vec())).collect()
    };
    walk(look, names)
}

pub fn of_kernel(root: &Path) -> Tree {
    let full = |path: &Path| root.join(path.strip_prefix("/").unwrap());
    let look = |path: &Path| {
        let path = full(path);
        let stat = path.symlink_metadata().unwrap();
        let (mut target, mut xattrs) = (None, Vec::new());
        if stat.is_symlink() {
            target = Some(path.read_link().unwrap().into_os_string().into_vec());
        } else {
            let mut list = vec![0; 1 << 16];
            let length = rustix::fs::llistxattr(&path, &mut list[..]).unwrap();
            for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                let mut value = vec![0; 1 << 16];
                let length = rustix::fs::lgetxattr(&path, name, &mut value[..]).unwrap();
                xattrs.push((name.to_vec(), value[..length].to_vec()));
            }
            xattrs.sort();
        }
        let size = if stat.is_file() { stat.size() } else { 0 };
        let links = if stat.is_dir() { 0 } else { stat.nlink() };
        let mtime = stat.mtime() * SECOND + stat.mtime_nsec();
        let attributes = (stat.mode(), stat.uid(), stat.gid(), links, mtime);
        let first = PathBuf::new();
        (stat.ino(), Known { first, attributes, rdev: stat.rdev(), size, target, xattrs })
    };
    let names = |path: &Path| {
        full(path).read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    walk(look, names)
}

/// Returns the ranges of a file that are compared: all of a small one, and the edges of each part
/// of another.
fn ranges(reader: &Reader<'_>, inode: &Inode) -> Vec<(u64, usize)> {
    let (mut at, mut edges) = (0, Vec::new());
    while at < inode.size && edges.len() < 4000 {
        let (part, length) = reader.part(inode, at).unwrap();
        // Holes of a table of chunks come in many parts.
        if part != Part::Hole || at == 0 || inode.size < 1 << 30 {
            edges.extend([at.saturating_sub(5000), (at + length).saturating_sub(5000)]);
        }
        at += length;
    }
    if inode.size <= 4 << 20 {
        return vec![(0, inode.size as usize)];
    }
    edges.push(inode.size - 1);
    edges.iter().map(|at| (*at, 10_000.min(inode.size - at) as usize)).collect()
}

/// Returns bytes of a file as the reader tells where they are.
fn contents(reader: &Reader<'_>, inode: &Inode, (view, image): (&File, &File), at: u64) -> [u8; 1] {
    let mut byte = [0];
    match reader.part(inode, at).unwrap().0 {
        Part::Hole => {}
        Part::Here(place) => view.read_exact_at(&mut byte, place).unwrap(),
        Part::Device(place) => image.read_exact_at(&mut byte, place).unwrap(),
    }
    byte
}

/// A view that the kernel has mounted.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts it; says why not if that can't be done here.
    pub fn new(image: &Path, view: &Path, dir: &Path) -> Option<Self> {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !rustix::process::geteuid().is_root() || !known.contains("\terofs\n") {
            println!("######## SKIPPED: the kernel's view needs root and EROFS");
            return None;
        }
        std::fs::create_dir_all(dir).unwrap();
        let options = std::ffi::CString::new(format!("device={}", image.display())).unwrap();
        match rustix::mount::mount(view, dir, "erofs", MountFlags::RDONLY, &*options) {
            Ok(()) => Some(Self(dir.to_owned())),
            // Files are mounted since Linux 6.12, from some file systems.
            Err(rustix::io::Errno::NOTBLK | rustix::io::Errno::PERM) => {
                println!("######## SKIPPED: the kernel mounts no view from {}", view.display());
                None
            }
            Err(error) => panic!("mount: {error}"),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// Makes a view of a branch, and compares it in all ways with what the library reads.
fn compare(pool: &Pool, branch: &str, path: &Path) {
    let (view, dir) = (path.with_extension("erofs"), path.with_extension("mnt"));
    let made = pool.view(branch, &view).unwrap();
    let again = path.with_extension("again");
    pool.view(branch, &again).unwrap();
    assert!(std::fs::read(&view).unwrap() == std::fs::read(&again).unwrap(), "two views differ");
    let (file, image) = (File::open(&view).unwrap(), File::open(path).unwrap());
    let reader = Reader::open(&file).unwrap();
    let totals = reader.check().unwrap();
    assert_eq!((totals.inodes, totals.bytes), (made.inodes, made.bytes));
    let inodes = paths(&reader);
    let mounted = Mounted::new(path, &view, &dir);
    within(pool, branch, |task| {
        let tree = of_library(task);
        assert_eq!(of_reader(&reader, &inodes), tree);
        if let Some(mounted) = &mounted {
            assert_eq!(of_kernel(&mounted.0), tree);
        }
        for (name, known) in &tree {
            if !known.is_file() {
                continue;
            }
            let (inode, open) = (&inodes[name], task.open(name).unwrap());
            let kernels = mounted.as_ref().map(|mounted| {
                File::open(mounted.0.join(name.strip_prefix("/").unwrap())).unwrap()
            });
            for (at, length) in ranges(&reader, inode) {
                let mut bytes = vec![0; length];
                assert_eq!(open.read_at(&mut bytes, at).unwrap(), length);
                for step in (0..length).step_by(97).chain(length.checked_sub(1)) {
                    let byte = contents(&reader, inode, (&file, &image), at + step as u64);
                    assert_eq!(byte, [bytes[step]], "{name:?} at {at} + {step}");
                }
                if let Some(kernels) = &kernels {
                    let mut found = vec![0; length];
                    kernels.read_exact_at(&mut found, at).unwrap();
                    assert!(found == bytes, "{name:?} from {at} on");
                }
            }
        }
    });
    fsck(&view, path);
}

/// Has `fsck.erofs` look at a view, if it is installed.
fn fsck(view: &Path, image: &Path) {
    let device = format!("--device={}", image.display());
    match Command::new("fsck.erofs").arg(device).arg("--extract").arg(view).output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => println!("######## SKIPPED: fsck.erofs: {error}"),
    }
}

/// Returns an access control list that lets a user do something.
pub fn acl(user: u32) -> Vec<u8> {
    let entry = |tag: u16, rights: u16, id: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let all = [entry(1, 6, none), entry(2, 7, user), entry(4, 4, none), entry(16, 7, none)];
    [&2_u32.to_le_bytes()[..], &all.concat(), &entry(32, 4, none)].concat()
}

/// Makes or changes something at random. Calls that fail change nothing.
pub fn change(task: &Task, random: &mut Random) {
    let depth = random.below(3);
    let dir: PathBuf = (0..depth).map(|_| format!("d{}", random.below(3))).collect();
    let dir = Path::new("/").join(dir);
    let _ = task.create_dir_all(&dir);
    let long = "n".repeat(random.one(&[0, 0, 0, 100, 252]));
    let name = dir.join(format!("{}{long}", random.below(20)));
    let size = random.one(&[1, 100, 3000, 4000, 4096, 4097, 9000, 70_000]);
    let at = random.one(&[0, 0, 4096, 5000, 1 << 20, 3 << 30]);
    let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8 + random.below(2) as u8).collect();
    let open = |flags| task.posix().open(&name, flags, Mode::from(0o644));
    let device = makedev(random.below(4096) as u32, random.below(1 << 20) as u32);
    let node = |kind, device| task.posix().mknodat(At::Cwd, &name, kind, 0o640, device);
    let value = vec![7; random.one(&[0, 3, 40, 700, 6000]) as usize];
    let _ = match random.below(16) {
        0..5 => {
            open(OFlags::WRONLY | OFlags::CREATE).and_then(|it| it.write_at(&bytes, at)).map(drop)
        }
        5 => open(OFlags::WRONLY | OFlags::CREATE)
            .and_then(|it| it.fallocate(FallocateFlags::empty(), at, size)),
        6 => task.symlink("t".repeat(size as usize % 4095 + 1), &name),
        7 => task.hard_link(dir.join(format!("{}", random.below(20))), &name),
        8 => node(FileType::Fifo, 0).and_then(|()| task.rename(&name, dir.join("fifo"))),
        9 => node(random.one(&[FileType::CharacterDevice, FileType::BlockDevice]), device),
        10 => node(FileType::Socket, 0),
        11 => task.set_xattr(
            &name,
            random.one(&["user.a", "user.b", "trusted.c", "security.d"]),
            value,
        ),
        12 => task.set_xattr(&dir, "system.posix_acl_default", acl(random.below(3) as u32)),
        13 => task.set_xattr(&name, "system.posix_acl_access", acl(random.below(3) as u32)),
        14 => task.chown(&name, Some(random.below(1 << 32) as u32), Some(random.below(9) as u32)),
        _ => {
            let time = Timestamp(random.number().cast_signed() / 4);
            let times = [SetTime::Omit, SetTime::At(time)];
            task.posix().utimensat(At::Cwd, &name, times, AtFlags::SYMLINK_NOFOLLOW)
        }
    };
}

pub fn read_only() -> ForkOptions {
    ForkOptions::new().read_only(true)
}

#[test]
fn a_view_has_all_that_the_library_reads() {
    let mut random = Random::new(seed());
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), |task| (0..150).for_each(|_| change(task, &mut random)));
        let pool = vfscale::pool(&path).convert(true).open().unwrap();
        within(&pool, "main", |task| (0..150).for_each(|_| change(task, &mut random)));
        pool.fork_with("main", "base", read_only()).unwrap();
        // These changes go to other places.
        within(&pool, "main", |task| {
            (0..60).for_each(|_| change(task, &mut random));
            task.remove_dir_all("/d0").unwrap_or_default();
            task.write("/filler", vec![0xEE; 8 << 20]).unwrap();
        });
        pool.reap().unwrap();
        compare(&pool, "base", &path);
        pool.close().unwrap();
    }
}

/// Many names, the longest ones, a sparse file of a TiB, and holes.
#[test]
fn a_view_of_what_is_large() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| {
        task.create_dir("/many").unwrap();
        (0..6000).for_each(|n| task.write(format!("/many/a file {n}"), format!("{n}")).unwrap());
        (0..40_u8).for_each(|n| {
            let name = [&[n + 200], &[b'x'; 254][..]].concat();
            task.write(Path::new("/").join(OsStr::from_bytes(&name)), "").unwrap();
        });
        let sparse =
            task.posix().open("/sparse", OFlags::WRONLY | OFlags::CREATE, Mode::from(0o600));
        sparse.unwrap().write_at(&[1; 4000], 1 << 40).unwrap();
        task.write("/hole", "few").unwrap();
        task.posix().truncate("/hole", 1 << 30).unwrap();
        task.write("/none", "").unwrap();
        task.posix().truncate("/none", i64::MAX as u64 >> 12).unwrap();
    });
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    pool.fork_with("main", "base", read_only()).unwrap();
    compare(&pool, "base", &path);
    pool.close().unwrap();
}

/// Says why there is no view, and leaves no file.
#[test]
fn a_view_that_can_not_be_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| task.write("/f", "contents").unwrap());
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let (view, here) = (dir.path().join("view"), || std::fs::read_dir(dir.path()).unwrap().count());
    let refused = pool.view("main", &view).unwrap_err();
    assert_eq!(refused.errno(), vfscale::Errno::INVAL, "{refused}");
    assert_eq!(pool.view("none", &view).unwrap_err().errno(), vfscale::Errno::NOENT);
    within(&pool, "main", |task| task.set_xattr("/f", "user.large", vec![1; 1 << 16]).unwrap());
    pool.fork_with("main", "large", read_only()).unwrap();
    let refused = pool.view("large", &view).unwrap_err().to_string();
    assert!(refused.contains("/f") && refused.contains("user.large"), "{refused}");
    within(&pool, "main", |task| {
        task.remove_file("/f").unwrap();
        let sparse = task.posix().open("/g", OFlags::WRONLY | OFlags::CREATE, Mode::from(0o600));
        sparse.unwrap().write_at(&[1; 5000], (1 << 50) + 4096).unwrap();
    });
    pool.fork_with("main", "sparse", read_only()).unwrap();
    let refused = pool.view("sparse", &view).unwrap_err().to_string();
    assert!(refused.contains("/g"), "{refused}");
    assert_eq!(here(), 1);
    pool.close().unwrap();
}

/// Changes an inode of the closed volume in `main`, and returns how it was.
fn forge(pool: &Pool, ino: u64, change: impl FnOnce(&mut InodeCore)) -> InodeCore {
    let device = pool.device("main").unwrap();
    let (at, slot) = (ino / 8 * BLOCK_BYTES as u64, (ino % 8) as usize);
    let mut block: Block = FromZeros::new_zeroed();
    device.read_at(at, block.as_mut_bytes()).unwrap();
    let record = &mut records_mut(&mut block)[slot];
    let before = InodeCore::decode(ino, record, |_, _| true).unwrap();
    let mut core = before.clone();
    change(&mut core);
    *record = core.encode();
    device.write_at(at, block.as_bytes()).unwrap();
    device.flush().unwrap();
    before
}

/// A change of an inode.
type Change<'c> = dyn Fn(&mut InodeCore) + 'c;

/// Has a name in a directory that lies in its inode lead to another inode.
fn lead(core: &mut InodeCore, from: u64, to: u64) {
    let DataFork::Inline(bytes) = &core.data else { panic!("{core:?}") };
    let mut bytes = bytes.to_vec();
    let at = bytes.windows(8).position(|it| it == from.to_le_bytes()).unwrap();
    bytes[at..at + 8].copy_from_slice(&to.to_le_bytes());
    core.data = DataFork::Inline(bytes.into());
}

/// Volumes whose checksums are right and whose structures lie.
#[test]
fn a_hostile_volume_gives_no_view() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path(), |task| {
        task.create_dir_all("/d/x").unwrap();
        task.create_dir("/e").unwrap();
        task.write("/one", vec![1; 9000]).unwrap();
        task.write("/two", "2").unwrap();
        task.hard_link("/two", "/too").unwrap();
    });
    let pool = vfscale::pool(&path).convert(true).open().unwrap();
    let [root, d, x, e, one, two] = within(&pool, "main", |task| {
        ["/", "/d", "/d/x", "/e", "/one", "/two"].map(|path| task.metadata(path).unwrap().ino)
    });
    let far = |core: &mut InodeCore| {
        let extent = Extent { file_block: 0, start: 1 << 40, blocks: 3, is_unwritten: false };
        core.data = DataFork::Extents([extent].into());
    };
    let cases: [(&str, u64, &Change<'_>); 7] = [
        ("fewer names", one, &|core| core.nlink = 2),
        ("more names", two, &|core| core.nlink = 1),
        ("more names", two, &|core| core.nlink = 0),
        ("/one", one, &far),
        ("more names", root, &|core| lead(core, e, d)),
        ("more names", d, &|core| lead(core, x, root)),
        ("leads to inode", d, &|core| lead(core, x, 1 << 30)),
    ];
    let view = dir.path().join("view");
    for (number, (what, ino, change)) in cases.into_iter().enumerate() {
        let before = forge(&pool, ino, change);
        let name = format!("case {number}");
        pool.fork_with("main", &name, read_only()).unwrap();
        let refused = pool.view(&name, &view).unwrap_err().to_string();
        assert!(refused.contains(what), "{number}: {refused}");
        forge(&pool, ino, |core| *core = before);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    pool.fork_with("main", "good", read_only()).unwrap();
    assert_eq!(pool.view("good", &view).unwrap().inodes, 6);
    pool.close().unwrap();
}
