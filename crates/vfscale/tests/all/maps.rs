//! Compares a task's mappings with a process's mappings in this kernel: the same random calls give
//! the same errors and the same lines of `maps`.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};
use vfscale::posix::{MemfdFlags, MountFlags, OFlags};
use vfscale::posix::{PAGE_BYTES, Protection, Sharing, Source};
use vfscale::{Errno, File, MemFs, Mode, ProcFs, Task, Vfs};

const MODE: Mode = Mode::from_bits_retain(0o755);

/// Start of an address range that a process does not use by itself.
const BASE: u64 = 0x2000_0000_0000;
/// Number of pages mapped there.
const PAGES: u64 = 24;

/// The mapped files: a name, how it is opened, and whether it is removed after that.
const FILES: [(&str, OFlags, bool); 6] = [
    ("both", OFlags::RDWR, false),
    ("reads", OFlags::RDONLY, false),
    ("writes", OFlags::WRONLY, false),
    ("is\ngone now", OFlags::RDWR, true),
    ("back\\slash", OFlags::RDONLY, false),
    ("dir", OFlags::RDONLY, false),
];

fn make(task: &Task, dir: &str) -> Vec<File> {
    task.create_dir(format!("{dir}/dir")).unwrap();
    let open = |(name, flags, removed): (&str, OFlags, bool)| {
        let path = format!("{dir}/{name}");
        if name != "dir" {
            task.write(&path, "x").unwrap();
        }
        let file = task.posix().open(&path, flags, MODE).unwrap();
        if removed {
            task.remove_file(&path).unwrap();
        }
        file
    };
    FILES.map(open).into()
}

fn make_theirs(dir: &std::path::Path) -> Vec<OwnedFd> {
    std::fs::create_dir(dir.join("dir")).unwrap();
    let open = |(name, flags, removed): (&str, OFlags, bool)| {
        let path = dir.join(name);
        if name != "dir" {
            std::fs::write(&path, "x").unwrap();
        }
        let file = rustix::fs::open(&path, flags, MODE).unwrap();
        if removed {
            std::fs::remove_file(&path).unwrap();
        }
        file
    };
    FILES.map(open).into()
}

#[derive(Clone, Debug)]
enum Op {
    /// Anonymous if there is no file of that number.
    Map {
        at: u64,
        len: u64,
        protection: u8,
        shared: bool,
        file: usize,
        offset: u64,
    },
    Unmap {
        at: u64,
        len: u64,
    },
    Protect {
        at: u64,
        len: u64,
        protection: u8,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Mostly whole pages, and inside the range.
    let at = || {
        prop_oneof![
            19 => (0..PAGES).prop_map(|n| n * PAGE_BYTES),
            1 => 0..PAGES * PAGE_BYTES
        ]
    };
    let len = || {
        prop_oneof![
            16 => (1..8_u64).prop_map(|n| n * PAGE_BYTES),
            3 => 0..8 * PAGE_BYTES,
            1 => prop::sample::select(&[u64::MAX - 4095, u64::MAX][..]),
        ]
    };
    // Few, so adjacent mappings can often be merged.
    let offset = || {
        prop_oneof![
            8 => (0..4_u64).prop_map(|n| n * PAGE_BYTES),
            1 => prop::sample::select(&[7, (1 << 63) - 4096][..]),
        ]
    };
    let op = prop_oneof![
        4 => (at(), len(), 0..8_u8, any::<bool>(), 0..8_usize, offset()).prop_map(
            |(at, len, protection, shared, file, offset)| {
                // Offsets that continue where the addresses do.
                let offset = if offset < 1 << 20 { offset + at } else { offset };
                Op::Map { at, len, protection, shared, file, offset }
            }
        ),
        1 => (at(), len()).prop_map(|(at, len)| Op::Unmap { at, len }),
        2 => (at(), len(), 0..8_u8)
            .prop_map(|(at, len, protection)| Op::Protect { at, len, protection }),
    ];
    prop::collection::vec(op, 1..40)
}

/// Name of anonymous shared memory: for the kernel it is an unnamed file.
const SHARED_MEMORY: &str = "/dev/zero (deleted)";

fn ours(task: &Task, files: &[File], op: &Op) -> Result<(), Errno> {
    let bits = Protection::from_bits_truncate;
    let result = match *op {
        Op::Map { at, len, protection, shared, file, offset } => {
            let sharing = if shared { Sharing::Shared } else { Sharing::Private };
            let source = match files.get(file) {
                Some(file) => Source::File { file, offset },
                None => Source::Anonymous(if shared { SHARED_MEMORY } else { "" }),
            };
            task.posix().mmap(BASE + at, len, bits(protection), sharing, source)
        }
        Op::Unmap { at, len } => task.posix().munmap(BASE + at, len),
        Op::Protect { at, len, protection } => {
            task.posix().mprotect(BASE + at, len, bits(protection))
        }
    };
    result.map_err(|error| error.errno())
}

fn theirs(files: &[OwnedFd], op: &Op) -> Result<(), Errno> {
    let place = |at: u64| (BASE + at) as *mut c_void;
    match *op {
        Op::Map { at, len, protection, shared, file, offset } => {
            let protection = ProtFlags::from_bits_retain(protection.into());
            let sharing = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
            // Accounted mappings are not merged with unaccounted ones.
            let flags = sharing | MapFlags::FIXED | MapFlags::NORESERVE;
            let len = len as usize;
            let mapped = match files.get(file) {
                // SAFETY: nothing else of this process is in that range, and no code accesses it.
                Some(file) => unsafe { mm::mmap(place(at), len, protection, flags, file, offset) },
                // SAFETY: the range is used only by this test, as in the call with a file.
                None => unsafe { mm::mmap_anonymous(place(at), len, protection, flags) },
            };
            mapped.map(drop)
        }
        // SAFETY: the range is used only by this test, and no code accesses it.
        Op::Unmap { at, len } => unsafe { mm::munmap(place(at), len as usize) },
        Op::Protect { at, len, protection } => {
            let flags = MprotectFlags::from_bits_retain(protection.into());
            // SAFETY: the range is used only by this test, and no code accesses it.
            unsafe { mm::mprotect(place(at), len as usize, flags) }
        }
    }
}

/// Returns the lines of a table for the range: the text before the device, and the name with its
/// column.
fn lines(table: &[u8], dir: &str) -> Vec<(String, Option<(usize, String)>)> {
    let table = String::from_utf8(table.to_vec()).unwrap();
    let lines = table.lines().filter_map(|line| {
        let start = u64::from_str_radix(line.split('-').next()?, 16).ok()?;
        if !(BASE..BASE + (2 * PAGES) * PAGE_BYTES).contains(&start) {
            return None;
        }
        let fields: Vec<_> = line.splitn(6, ' ').collect();
        let [range, bits, offset, _device, _ino, rest] = fields[..] else {
            panic!("{line:?}");
        };
        let name = rest.trim_start();
        let column = line.len() - name.len();
        let name = (!name.is_empty()).then(|| (column, name.replace(dir, "")));
        Some((format!("{range} {bits} {offset}"), name))
    });
    lines.collect()
}

fn tree() -> (Vfs, Arc<ProcFs>, Arc<Task>) {
    let vfs = vfscale::memory().size(16 << 20).build().unwrap();
    let task = Arc::new(vfs.task());
    let proc = ProcFs::new(&vfs);
    task.create_dir("/proc").unwrap();
    task.posix().mount(proc.clone(), "/proc", MountFlags::empty()).unwrap();
    proc.show(&task);
    (vfs, proc, task)
}

fn table(task: &Task) -> Vec<u8> {
    task.read(format!("/proc/tasks/{}/maps", task.id())).unwrap()
}

proptest! {
    #[test]
    fn as_the_kernels(ops in ops()) {
        let (_vfs, proc, task) = tree();
        let dir = tempfile::tempdir().unwrap();
        let (files, fds) = (make(&task, ""), make_theirs(dir.path()));
        let all = Op::Unmap { at: 0, len: 2 * PAGES * PAGE_BYTES };
        // Removes what a failed case has left.
        theirs(&fds, &all).unwrap();
        for op in &ops {
            prop_assert_eq!(ours(&task, &files, op), theirs(&fds, op), "{:?}", op);
        }
        let real = std::fs::read("/proc/self/maps").unwrap();
        let real = lines(&real, dir.path().to_str().unwrap());
        prop_assert_eq!(&lines(&table(&task), "none"), &real);
        // A fork copies the mappings, whatever happens to the parent's.
        let child = Arc::new(task.fork());
        ours(&task, &files, &all).unwrap();
        prop_assert!(table(&task).is_empty());
        proc.show(&child);
        prop_assert_eq!(lines(&table(&child), "none"), real);
    }
}

/// A complete line, with the device and inode numbers.
#[test]
fn a_line_is_the_kernels() {
    let (_vfs, _proc, task) = tree();
    task.write("/a file", "text").unwrap();
    let file = task.posix().open("/a file", OFlags::RDONLY, MODE).unwrap();
    let stat = file.stat().unwrap();
    let source = Source::File { file: &file, offset: 0x1000 };
    task.posix()
        .mmap(0x40_0000, 1, Protection::READ | Protection::EXEC, Sharing::Private, source)
        .unwrap();
    let stack = Source::Anonymous("[stack]");
    let both = Protection::READ | Protection::WRITE;
    task.posix().mmap(0x7fff_ffff_0000, 0x3000, both, Sharing::Private, stack).unwrap();
    task.posix()
        .mmap(0x10_0000, 0x1000, Protection::empty(), Sharing::Private, Source::Anonymous(""))
        .unwrap();
    let device = (rustix::fs::major(stat.dev), rustix::fs::minor(stat.dev));
    let file_line = format!(
        "{:<72} /a file",
        format!("00400000-00401000 r-xp 00001000 {:02x}:{:02x} {}", device.0, device.1, stat.ino)
    );
    let stack_line = format!("{:<72} [stack]", "7fffffff0000-7fffffff3000 rw-p 00000000 00:00 0");
    let all = format!("00100000-00101000 ---p 00000000 00:00 0 \n{file_line}\n{stack_line}\n");
    assert_eq!(String::from_utf8(table(&task)).unwrap(), all);
    let mode = task.metadata(format!("/proc/tasks/{}/maps", task.id())).unwrap().mode;
    assert_eq!(mode, 0o100_400);
}

/// A mapped file is an open file: its data exists, and its file system can't become read-only.
#[test]
fn a_mapping_holds_its_file() {
    let (vfs, _proc, task) = tree();
    task.create_dir("/m").unwrap();
    task.posix().mount(MemFs::builder().size(1 << 20).build(), "/m", MountFlags::empty()).unwrap();
    let file = task.posix().open("/m/f", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
    file.write(b"kept").unwrap();
    let source = Source::File { file: &file, offset: 0 };
    task.posix().mmap(BASE, 3 * PAGE_BYTES, Protection::READ, Sharing::Shared, source).unwrap();
    drop(file);
    assert_eq!(vfs.counts().open_files, 1);
    let readonly = || task.posix().remount("/m", MountFlags::RDONLY).map_err(|e| e.errno());
    assert_eq!(readonly(), Err(Errno::BUSY));
    // A hole in the middle leaves two mappings of the file, and the last one to be unmapped closes
    // it.
    task.posix().munmap(BASE + PAGE_BYTES, 1).unwrap();
    let mappings = task.posix().mappings();
    assert_eq!(mappings.len(), 2);
    assert_eq!(mappings[1].offset, 2 * PAGE_BYTES);
    let mut data = [0; 4];
    mappings[1].file.as_ref().unwrap().pread(&mut data, 0).unwrap();
    assert_eq!(&data, b"kept");
    drop(mappings);
    task.posix().munmap(BASE, PAGE_BYTES).unwrap();
    assert_eq!(readonly(), Err(Errno::BUSY));
    // The end of the task closes it, too.
    let child = task.fork();
    task.posix().munmap(BASE, 3 * PAGE_BYTES).unwrap();
    assert_eq!(readonly(), Err(Errno::BUSY));
    drop(child);
    assert_eq!(vfs.counts().open_files, 0);
    assert_eq!(readonly(), Ok(()));
}

#[test]
fn files_that_can_not_be_mapped() {
    let (_vfs, _proc, task) = tree();
    let map = |file: &File, protection| {
        let source = Source::File { file, offset: 0 };
        task.posix()
            .mmap(BASE, 1, protection, Sharing::Private, source)
            .map_err(|error| error.errno())
    };
    let (reader, writer) = task.posix().pipe2(OFlags::empty()).unwrap();
    assert_eq!(map(&reader, Protection::READ), Err(Errno::NODEV));
    assert_eq!(map(&writer, Protection::READ), Err(Errno::ACCESS));
    let text = task.posix().open("/proc/mounts", OFlags::RDONLY, MODE).unwrap();
    assert_eq!(map(&text, Protection::READ), Err(Errno::NODEV));
    let place = task.posix().open("/proc/mounts", OFlags::PATH, MODE).unwrap();
    assert_eq!(map(&place, Protection::READ), Err(Errno::BADF));
    task.create_dir("/m").unwrap();
    task.posix().mount(MemFs::builder().size(1 << 20).build(), "/m", MountFlags::NOEXEC).unwrap();
    task.write("/m/f", "x").unwrap();
    let file = task.posix().open("/m/f", OFlags::RDONLY, MODE).unwrap();
    assert_eq!(map(&file, Protection::EXEC), Err(Errno::PERM));
    assert_eq!(map(&file, Protection::READ), Ok(()));
    let protected = task.posix().mprotect(BASE, 1, Protection::EXEC).map_err(|error| error.errno());
    assert_eq!(protected, Err(Errno::ACCESS));
    let memory = task.posix().memfd_create("heap", MemfdFlags::empty()).unwrap();
    assert_eq!(map(&memory, Protection::all()), Ok(()));
    let told = String::from_utf8(table(&task)).unwrap();
    assert!(told.ends_with(" /memfd:heap (deleted)\n"), "{told}");
}

/// While directories above the files are renamed, every line has a path that was valid at some
/// moment.
#[test]
fn paths_are_read_safely() {
    let (_vfs, _proc, task) = tree();
    task.create_dir_all("/a/b/c").unwrap();
    task.write("/a/b/c/file", "x").unwrap();
    let file = task.posix().open("/a/b/c/file", OFlags::RDONLY, MODE).unwrap();
    let source = Source::File { file: &file, offset: 0 };
    task.posix().mmap(BASE, 1, Protection::READ, Sharing::Shared, source).unwrap();
    let done = AtomicBool::new(false);
    let rename = |from, to| {
        task.rename(from, to).unwrap();
    };
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = [0_u64; 3];
            while !done.load(Ordering::Relaxed) {
                let told = String::from_utf8(table(&task)).unwrap();
                let path = told.trim_end().rsplit(' ').next().unwrap().to_owned();
                let all = ["/a/b/c/file", "/b/c/file", "/a/b/longer/file"];
                let which = all.iter().position(|one| *one == path);
                seen[which.unwrap_or_else(|| panic!("{told}"))] += 1;
            }
            seen
        });
        for _ in 0..20_000 {
            rename("/a/b", "/b");
            rename("/b", "/a/b");
            rename("/a/b/c", "/a/b/longer");
            rename("/a/b/longer", "/a/b/c");
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap().iter().sum::<u64>() > 0);
    });
}
