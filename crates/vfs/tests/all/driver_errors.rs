//! Error numbers of a driver that Linux does not define: the caller gets them unchanged.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use vfscale_sync::rcu::Guard;
use vfscale_vfs::driver::DirEntry;
use vfscale_vfs::driver::NewInode;
use vfscale_vfs::inode::{Inode, InodeInit, InodeRef};
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::{
    At, DirOps, Errno, FileOps, FileSystem, FileType, Found, Mode, NameAccounting, Names, OFlags,
    Result, StatFs, Task, Vfs,
};

const DIR: u32 = 0o040755;
const TEXT: u32 = 0o100644;
/// The largest numbers that Linux can return for errors; it assigns them no meaning.
const NUMBERS: [i32; 3] = [4095, 4094, 4093];
/// Far longer than any call that ends.
const LONG: Duration = Duration::from_secs(20);

/// A driver without directories, or a backed one, all of whose calls fail once a number is set.
#[derive(Default)]
struct Failing {
    number: AtomicI32,
    keeps_directories: bool,
}

impl Failing {
    fn answer<T>(&self, value: T) -> std::result::Result<T, Errno> {
        match self.number.load(Ordering::SeqCst) {
            0 => Ok(value),
            number => Err(Errno::from_raw_os_error(number)),
        }
    }
}

impl FileSystem for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn names(&self) -> Names<'_> {
        if self.keeps_directories { Names::Backed(self) } else { Names::Cached(self) }
    }

    fn fill_super(&self, sb: &SuperBlock) -> std::result::Result<InodeRef, Errno> {
        Ok(sb.iget(1, || InodeInit { mode: DIR, nlink: 2, ..InodeInit::default() }))
    }

    fn statfs(&self, _: &SuperBlock) -> StatFs {
        StatFs::default()
    }
}

impl FileOps for Failing {
    fn read_at(&self, _: &Inode, _: u64, _: &mut [u8]) -> std::result::Result<usize, Errno> {
        self.answer(0)
    }

    fn write_at(&self, _: &Inode, _: u64, _: &[u8]) -> std::result::Result<usize, Errno> {
        self.answer(0)
    }

    fn set_size(&self, _: &Inode, _: u64) -> std::result::Result<(), Errno> {
        self.answer(())
    }

    fn text(&self, _: &Inode) -> std::result::Result<Vec<u8>, Errno> {
        Ok(b"text".into())
    }

    fn get_link<'g>(&self, _: &'g Inode, _: &'g Guard) -> std::result::Result<&'g [u8], Errno> {
        self.answer(b"/dir")
    }
}

impl NameAccounting for Failing {
    fn create(&self, sb: &SuperBlock, new: &NewInode<'_>) -> std::result::Result<InodeRef, Errno> {
        // A generated text with a size, which drivers should not make.
        let (text, size) = (new.mode == TEXT, 1);
        let init = InodeInit { mode: new.mode, nlink: 1, text, size, ..InodeInit::default() };
        self.answer(sb.new_inode(init))
    }

    fn link(&self, _: &Inode, _: usize) -> std::result::Result<(), Errno> {
        self.answer(())
    }

    fn renamed(&self, _: &Inode, _: usize, _: usize) -> std::result::Result<(), Errno> {
        self.answer(())
    }

    fn charge(&self, _: u64) -> std::result::Result<(), Errno> {
        self.answer(())
    }
}

impl DirOps for Failing {
    fn lookup(&self, _: &Inode, name: &[u8]) -> std::result::Result<Found, Errno> {
        let found = Found { inode: None, check: false };
        if name == b"missing" { Ok(found) } else { self.answer(found) }
    }

    fn read_dir(
        &self,
        _: &Inode,
        _: u64,
        _: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> std::result::Result<(), Errno> {
        self.answer(())
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn create(
        &self,
        dir: &Inode,
        _: &[u8],
        new: &NewInode<'_>,
    ) -> std::result::Result<InodeRef, Errno> {
        let init = InodeInit { mode: new.mode, nlink: 1, ..InodeInit::default() };
        self.answer(dir.sb().iget(2, || init))
    }
}

/// Returns the error of a call. Leaves the thread of a call that does not end.
fn error_of<T: Send + 'static>(
    task: &Arc<Task>,
    name: &str,
    call: impl FnOnce(&Task) -> Result<T> + Send + 'static,
) -> Option<i32> {
    let (task, (sender, receiver)) = (task.clone(), channel());
    thread::spawn(move || {
        let error = call(&task).err().map(|error| error.errno().raw_os_error());
        sender.send(error).unwrap();
    });
    match receiver.recv_timeout(LONG) {
        Ok(error) => error,
        Err(RecvTimeoutError::Timeout) => panic!("{name} does not end"),
        Err(RecvTimeoutError::Disconnected) => panic!("{name} panics"),
    }
}

fn task(fs: Failing) -> (Arc<Failing>, Arc<Task>) {
    let fs = Arc::new(fs);
    (fs.clone(), Arc::new(Vfs::new(fs).unwrap().task()))
}

const MODE: Mode = Mode::from_bits_retain(0o644);

/// Seam: a driver's error numbers / the deferred work of a walk; parties: any call, any number; no
/// threads are needed.
///
/// The call once did not end.
#[test]
fn numbers_that_linux_does_not_have_are_told_to_callers_of_a_file_system_in_memory() {
    for number in NUMBERS {
        let (fs, task) = task(Failing::default());
        task.posix().mknodat(At::Cwd, "/text", FileType::RegularFile, MODE, 0).unwrap();
        task.posix().mkdirat(At::Cwd, "/dir", MODE).unwrap();
        task.symlink("/dir", "/link").unwrap();
        let file = Arc::new(task.posix().open("/text", OFlags::RDWR, MODE).unwrap());
        fs.number.store(number, Ordering::SeqCst);
        let check = |name: &str, error| assert_eq!(error, Some(number), "{name}");
        macro_rules! fails {
            ($name:literal, $call:expr) => {
                check($name, error_of(&task, $name, $call))
            };
        }
        fails!("mkdir", |task| task.posix().mkdirat(At::Cwd, "/new", MODE));
        fails!("open", |task| task.posix().open("/new", OFlags::CREATE | OFlags::RDWR, MODE));
        fails!("truncating open", |task| task.posix().open(
            "/text",
            OFlags::TRUNC | OFlags::RDWR,
            MODE
        ));
        fails!("open by a link", |task| task.posix().open("/link/x", OFlags::RDONLY, MODE));
        fails!("stat by a link", |task| task.metadata("/link/x"));
        fails!("chmod by a link", |task| task.set_permissions("/link/x", MODE));
        fails!("unlink by a link", |task| task.remove_file("/link/x"));
        fails!("chdir", |task| task.posix().chdir("/link"));
        fails!("readlink", |task| task.read_link("/link"));
        fails!("link", |task| task.hard_link("/text", "/new"));
        let to = |task: &Task, old, new| task.rename(old, new);
        fails!("rename", move |task| to(task, "/text", "/longer"));
        fails!("rename by a link", move |task| to(task, "/link/x", "/longer"));
        fails!("truncate", |task| task.posix().truncate("/text", 0));
        let read = file.clone();
        fails!("pread of a text with a size", move |_| read.pread(&mut [0], 0));
        let read = file.clone();
        fails!("read of a text with a size", move |_| read.read(&mut [0]));
    }
}

#[test]
fn numbers_that_linux_does_not_have_are_told_to_callers_of_one_with_directories() {
    for number in NUMBERS {
        let (fs, task) = task(Failing { keeps_directories: true, ..Failing::default() });
        fs.number.store(number, Ordering::SeqCst);
        let check = |name: &str, error| assert_eq!(error, Some(number), "{name}");
        macro_rules! fails {
            ($name:literal, $call:expr) => {
                check($name, error_of(&task, $name, $call))
            };
        }
        fails!("stat", |task| task.metadata("/x"));
        fails!("open", |task| task.posix().open("/x", OFlags::RDONLY, MODE));
        fails!("mkdir", |task| task.posix().mkdirat(At::Cwd, "/missing", MODE));
        fails!("make by open", |task| task.posix().open(
            "/missing",
            OFlags::CREATE | OFlags::RDWR,
            MODE
        ));
        fails!("rename", |task| { task.rename("/x", "/y") });
    }
}
