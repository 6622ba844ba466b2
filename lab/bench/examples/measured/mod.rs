//! The measured calls, each with the patches that affect it, and a file system to make them on.

use std::error::Error;
use std::sync::Arc;

use vfscale::block::MemoryDevice;
use vfscale::posix::{At, AtFlags, FallocateFlags, OFlags, SetTime, Whence};
use vfscale::{File, Mode, Scaling, Task, Volume};
use vfscale_diskfs::{mkfs, mkfs::MkfsOptions};

const MODE: Mode = Mode::from_bits_retain(0o755);
/// Fixed, so that results of machines with different numbers of CPUs can be compared.
const SLOTS: usize = 8;
const MEMORY_BYTES: u64 = 64 << 20;
const VOLUME_BYTES: u64 = 256 << 20;
const PAGE: usize = 4096;

/// A kind of call, and the patches that affect it.
pub struct Kind {
    pub name: &'static str,
    pub patches: &'static [&'static str],
    call: fn(&Task, &File) -> vfscale::Result<()>,
    /// Whether the call is made on a volume.
    on_volume: bool,
}

const fn kind(
    name: &'static str,
    patches: &'static [&'static str],
    call: fn(&Task, &File) -> vfscale::Result<()>,
) -> Kind {
    Kind { name, patches, call, on_volume: false }
}

const fn on_volume(
    name: &'static str,
    patches: &'static [&'static str],
    call: fn(&Task, &File) -> vfscale::Result<()>,
) -> Kind {
    Kind { name, patches, call, on_volume: true }
}

pub const KINDS: &[Kind] = &[
    kind("open", &["lockref", "mount-count", "files-lock"], |task, _| {
        task.posix().open("file", OFlags::RDONLY, MODE).map(drop)
    }),
    kind("write", &["lockref", "mount-count", "files-lock"], |task, _| {
        task.posix().open("file", OFlags::WRONLY, MODE).map(drop)
    }),
    kind("stat", &["lockref"], |task, _| stat(task, "/home/me/file")),
    kind("path", &["seqrwlock", "brlock"], |task, file| task.posix().path_of(file).map(drop)),
    kind("mount", &["brlock"], |task, _| stat(task, "/mnt/file")),
    kind(
        "create",
        &["lockref", "mount-count", "files-lock", "dcache-hash", "inode-list", "ino-alloc"],
        |task, _| create(task),
    ),
    kind("rename", &["dcache-hash"], |task, _| {
        task.rename("file", "other")?;
        task.rename("other", "file")
    }),
    kind("mkdir", &["dcache-hash", "inode-list", "ino-alloc"], |task, _| {
        task.create_dir("new")?;
        task.remove_dir("new")
    }),
    kind("readdir", &["dcache-hash"], |task, _| {
        task.read_dir("twenty")?.try_for_each(|entry| entry.map(drop))
    }),
    // A directory is moved to another parent and back.
    kind("move", &["seqrwlock", "dcache-hash"], |task, _| {
        task.rename("below", "../below")?;
        task.rename("../below", "below")
    }),
    kind("handle", &["inode-hash", "lockref", "files-lock"], |task, file| {
        let handle = task.posix().name_to_handle_at(At::Cwd, "file", AtFlags::empty())?;
        task.posix().open_by_handle_at(file, &handle, OFlags::RDONLY).map(drop)
    }),
    kind(
        "pipe",
        &["lockref", "mount-count", "files-lock", "inode-list", "ino-alloc", "pseudo"],
        |task, _| task.posix().pipe2(OFlags::empty()).map(drop),
    ),
    kind("pwrite", &[], |_, file| file.pwrite(b"data", 0).map(drop)),
    kind("pread", &[], |_, file| file.pread(&mut [0; 4], 0).map(drop)),
    kind("read", &[], |_, file| {
        file.read(&mut [0; 4])?;
        file.seek(Whence::Set(0)).map(drop)
    }),
    kind("seek", &[], |_, file| file.seek(Whence::Set(2)).map(drop)),
    kind("chmod", &[], |task, _| task.set_permissions("file", MODE)),
    // A lookup that must call the driver.
    on_volume("miss", &["lru", "inode-list", "dcache-hash"], |task, _| {
        stat(task, "below/name")?;
        task.posix().drop_cached(At::Cwd, "below").map(drop)
    }),
    on_volume(
        "logged",
        &["read-mostly", "active-trans", "cil-counters", "cil-lists", "busy-extents", "orphan"],
        |task, _| create(task),
    ),
    // A transaction of one inode, which usually has been logged before.
    on_volume(
        "touch",
        &["read-mostly", "active-trans", "cil-counters", "cil-lists"],
        |task, file| {
            task.posix().utimensat(
                At::File(file),
                "",
                [SetTime::Omit, SetTime::Now],
                AtFlags::EMPTY_PATH,
            )
        },
    ),
    // Allocates one block after the last one: a transaction with a claim.
    on_volume("claim", &[], |_, file| {
        let end = file.seek(Whence::Current(PAGE as i64))?;
        file.fallocate(FallocateFlags::KEEP_SIZE, end, PAGE as u64)
    }),
    // Writes one new page and makes it durable.
    on_volume("append", &[], |_, file| {
        file.write(&[b'a'; PAGE])?;
        file.sync_data()
    }),
    // A file with a page of data that comes and goes before anybody makes it durable.
    on_volume("small", &[], |task, _| {
        task.write("new", [b's'; PAGE])?;
        task.remove_file("new")
    }),
    // A file with a page of data that has its block when it is removed.
    on_volume("synced", &[], |task, _| {
        let new = task.posix().open("new", OFlags::CREATE | OFlags::WRONLY, MODE)?;
        new.write(&[b's'; PAGE])?;
        new.sync_data()?;
        drop(new);
        task.remove_file("new")
    }),
    // A page of data that replaces a file: by a new file that is renamed over it, and in place.
    on_volume("put", &["orphan"], |task, _| {
        task.write("new", [b'p'; PAGE])?;
        task.rename("new", "kept")
    }),
    on_volume("rewrite", &[], |task, _| task.write("kept", [b'r'; PAGE])),
];

fn stat(task: &Task, path: &str) -> vfscale::Result<()> {
    task.metadata(path).map(drop)
}

fn create(task: &Task) -> vfscale::Result<()> {
    drop(task.posix().open("new", OFlags::CREATE | OFlags::WRONLY, MODE)?);
    task.remove_file("new")
}

/// A file system, and the task and file that calls are made with.
pub struct Ground {
    task: Task,
    file: File,
    _volume: Option<Volume>,
}

impl Ground {
    /// Creates a file system for a kind of call, without the patches `before`.
    pub fn new(kind: &Kind, before: &[String]) -> Result<Ground, Box<dyn Error>> {
        let all = Scaling::with_slots(SLOTS);
        let scaling = before.iter().try_fold(all, |scaling, patch| scaling.and_before(patch))?;
        let (task, volume) = if kind.on_volume {
            let device = MemoryDevice::new(VOLUME_BYTES)?;
            mkfs::format(&device, &MkfsOptions::default())?;
            let volume = vfscale::volume_on(Arc::new(device)).scaling(scaling);
            let volume = volume.sync_interval(None).open()?;
            (volume.task(), Some(volume))
        } else {
            (vfscale::memory().size(MEMORY_BYTES).scaling(scaling).build()?.task(), None)
        };
        task.create_dir_all("/home/me/below")?;
        task.create_dir("/mnt")?;
        let fs = vfscale::MemFs::builder().size(1 << 20).build();
        task.posix().mount(fs, "/mnt", vfscale::posix::MountFlags::empty())?;
        task.posix().chdir("/home/me")?;
        task.create_dir("twenty")?;
        let twenty = (0..20).map(|n| format!("twenty/{n}"));
        let paths = ["file", "below/name", "/mnt/file"].map(str::to_owned);
        for path in paths.into_iter().chain(twenty) {
            task.write(path, "text")?;
        }
        let file = task.posix().open("file", OFlags::RDWR, MODE)?;
        Ok(Ground { task, file, _volume: volume })
    }

    /// Makes `times` calls.
    pub fn call(&self, kind: &Kind, times: u64) -> vfscale::Result<()> {
        for _ in 0..times {
            (kind.call)(&self.task, &self.file)?;
        }
        Ok(())
    }
}
