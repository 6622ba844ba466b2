//! vfscale through its mount: system calls on a mounted vfscale and on tmpfs.
//!
//! The tasks are threads of an [`Oracle`], in a mount namespace that contains nothing but the
//! mount. Threads of this process serve the file system. At the end of a sequence it is unmounted
//! and remounted; a volume is closed, checked and reopened in between. The tree must be unchanged.
//!
//! # Ownership
//!
//! The namespace of the tasks holds the mount. When the last task has ended, the kernel unmounts,
//! which ends the threads that serve it. These threads have another namespace, in which the mount
//! was made, so no other program on the machine ever sees the mount or makes it busy.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use vfscale::block::Device;
use vfscale::{Vfs, Volume};
use vfscale_fuse::{Builder, Mounted, Sharing};

use crate::calls::op::{CWD, FS_GUARDS, Op, Seek};
use crate::calls::outcome::{Outcome, TimeClass, Value};
use crate::calls::{Calls, fstat};
use crate::world::oracle::Oracle;
use crate::world::subject::{check_image, memory, new_branch, new_volume};
use crate::world::sys;
use crate::world::tree::{self, Snapshot};
use crate::world::{Finished, INSPECTOR, World};

/// The mounted file system.
enum Source {
    Memory(Vfs),
    Volume(Arc<dyn Device>, Volume),
}

impl Source {
    fn vfs(&self) -> &Vfs {
        match self {
            Source::Memory(vfs) => vfs,
            Source::Volume(_, volume) => volume.vfs(),
        }
    }

    /// Returns whether the server is told of each opening of a file, which inode flags need.
    fn is_told_of_openings(&self) -> bool {
        matches!(self, Source::Memory(_))
    }

    /// Closes and reopens the file system.
    fn again(self) -> Result<Self, String> {
        let Source::Volume(device, volume) = self else { return Ok(self) };
        volume.close().map_err(|e| format!("closed: {e}"))?;
        check_image(&device)?;
        let opened = vfscale::volume_on(device.clone()).open();
        Ok(Source::Volume(device, opened.map_err(|e| format!("opened again: {e}"))?))
    }
}

/// A mounted vfscale as a [`World`].
pub struct ThroughMount {
    /// Present until the end of the sequence.
    parts: Option<(Source, Mounted, Oracle)>,
}

impl ThroughMount {
    /// Creates and mounts an empty memory file system.
    ///
    /// # Errors
    /// Describes what the machine does not permit.
    pub fn of_memory() -> Result<Self, String> {
        Self::of(Source::Memory(Vfs::new(memory()).map_err(|e| format!("vfscale: {e}"))?))
    }

    /// Creates and mounts an empty volume on a device in memory; in a branch of a depth, or not in
    /// a pool.
    ///
    /// # Errors
    /// Describes what the machine does not permit.
    pub fn of_volume(depth: Option<u32>) -> Result<Self, String> {
        let (device, volume) = depth.map_or_else(new_volume, new_branch)?;
        Self::of(Source::Volume(device, volume))
    }

    fn of(source: Source) -> Result<Self, String> {
        let (mounted, oracle) = mount(&source)?;
        Ok(Self { parts: Some((source, mounted, oracle)) })
    }

    fn oracle(&mut self) -> &mut Oracle {
        &mut self.parts.as_mut().expect("held until the end").2
    }
}

/// Creates the mount in a private namespace and starts the tasks in it.
fn mount(source: &Source) -> Result<(Mounted, Oracle), String> {
    let builder = Builder::new(source.vfs())
        .sharing(Sharing::Exclusive)
        .allow_other(true)
        .chattr(source.is_told_of_openings())
        .volatile(matches!(source, Source::Memory(_)));
    let serve = move || {
        let on =
            |what| move |errno| format!("{what}: {}", crate::calls::outcome::errno_name(errno));
        sys::unshare(libc::CLONE_NEWNS | libc::CLONE_FS).map_err(on("unshare (needs root)"))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        sys::mount(c"none", c"/", None, private, None).map_err(on("making mounts private"))?;
        let mounted = builder.mount(std::env::temp_dir()).map_err(|e| e.to_string())?;
        let oracle = Oracle::on_what_is_mounted()?;
        // From here on, only the tasks hold the mount.
        mounted.unmounter().unmount().map_err(|e| format!("unmounting one of two: {e}"))?;
        Ok((mounted, oracle))
    };
    thread::spawn(serve).join().map_err(|_| "a panic while mounting".to_owned())?
}

/// Ends the tasks, which unmounts the file system.
fn unmount(mounted: Mounted, oracle: Oracle) {
    drop(oracle);
    mounted.wait();
}

/// Takes a snapshot of the whole tree. An earlier one has already updated the access times of
/// symbolic links.
fn snapshot(oracle: &mut Oracle) -> Snapshot {
    oracle.run(INSPECTOR, |task| {
        let task = &mut FuseCalls { calls: task, rules: &Rules::default() };
        tree::snapshot(task);
        tree::snapshot(task)
    })
}

impl World for ThroughMount {
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R {
        self.oracle().run(task, f)
    }

    fn fork(&mut self, from: usize, into: usize) {
        self.oracle().fork(from, into);
    }

    fn reuses_inode_numbers(&self) -> bool {
        matches!(self.parts, Some((Source::Volume(..), ..)))
    }

    fn finish(&mut self) -> Result<Finished, String> {
        let Some((source, mounted, mut oracle)) = self.parts.take() else {
            return Ok(Finished::Unknown);
        };
        oracle.end_tasks();
        let is_bare = oracle.uncover();
        let before = snapshot(&mut oracle);
        unmount(mounted, oracle);
        let source = source.again()?;
        if !is_bare {
            return Ok(Finished::Unknown);
        }
        let (mounted, mut oracle) = mount(&source)?;
        let after = snapshot(&mut oracle);
        unmount(mounted, oracle);
        source.again()?;
        match tree::compare(&before, &after) {
            Some((_, text)) => Err(format!("different when it was mounted again:\n{text}")),
            None => Ok(Finished::Empty),
        }
    }
}

impl Drop for ThroughMount {
    fn drop(&mut self) {
        if let Some((_, mounted, oracle)) = self.parts.take() {
            unmount(mounted, oracle);
        }
    }
}

/// A world without the effects that FUSE decides: some calls are not made, and some parts of
/// results not compared.
pub struct Fuse<W> {
    world: W,
    rules: Arc<Rules>,
}

/// The state on which it depends what FUSE decides.
#[derive(Debug, Default)]
struct Rules {
    /// Whether inodes can be made immutable and append-only. The kernel does not know that they
    /// are, so this has rules of tmpfs only on a mount that is told of every opening.
    has_guards: bool,
    /// The inodes that are so now, by device and number.
    guarded: Mutex<HashSet<(u64, u64)>>,
}

impl Rules {
    fn guarded(&self) -> MutexGuard<'_, HashSet<(u64, u64)>> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> Fuse<W> {
    /// Creates the world; `has_guards` tells whether inodes can be made immutable and append-only.
    pub fn new(world: W, has_guards: bool) -> Self {
        Self { world, rules: Arc::new(Rules { has_guards, ..Rules::default() }) }
    }
}

/// The calls of one task, without the effects that FUSE decides.
struct FuseCalls<'a> {
    calls: &'a mut dyn Calls,
    rules: &'a Rules,
}

impl Calls for FuseCalls<'_> {
    fn call(&mut self, op: &Op) -> Outcome {
        let is_guarded = !self.rules.guarded().is_empty();
        if is_decided_by_fuse(op)
            || is_guarded && is_checked_on_guards(op)
            || self.guards(op) && !self.rules.has_guards
            || self.seeks_in_directory(op)
            || self.empties_the_empty(op)
        {
            return Outcome::Skip;
        }
        let mut outcome = self.calls.call(op);
        self.note_guards(op, &outcome);
        match &mut outcome {
            Outcome::Ok(Value::Stat(stat)) => {
                stat.blocks = 0;
                // Reads from the page cache do not update it.
                stat.atime = TimeClass::Now;
                // FUSE has no message for them.
                stat.flags = 0;
            }
            // Here the kernel reports a file that never had a name as a slash.
            Outcome::Ok(Value::Path(path)) if path.0.ends_with(b"// (deleted)") => {
                path.0.truncate(path.0.len() - b"/ (deleted)".len());
                path.0.extend_from_slice(b"#N (deleted)");
            }
            // The kernel makes its own checks before the server can refuse for a flag.
            Outcome::Err(errno) if is_guarded => *errno = libc::EPERM,
            _ => {}
        }
        outcome
    }
}

impl FuseCalls<'_> {
    /// Returns whether the call makes an inode immutable or append-only, if it succeeds.
    fn guards(&self, op: &Op) -> bool {
        matches!(op, Op::SetInodeFlags { flags, .. } if flags & FS_GUARDS != 0)
    }

    /// Notes that an inode has become immutable or append-only, or no longer is.
    fn note_guards(&mut self, op: &Op, outcome: &Outcome) {
        let (Op::SetInodeFlags { fd, .. }, Outcome::Ok(_)) = (op, outcome) else { return };
        let stat = fstat(self.calls, *fd);
        let Some(stat) = stat.stat() else { return };
        let inode = (stat.dev.0, stat.ino.0);
        if self.guards(op) {
            self.rules.guarded().insert(inode);
        } else {
            self.rules.guarded().remove(&inode);
        }
    }

    /// Returns whether the call seeks to the end of a directory, or to its data: FUSE takes the
    /// size for one.
    fn seeks_in_directory(&mut self, op: &Op) -> bool {
        let Op::Lseek { fd, whence: Seek::End | Seek::Data | Seek::Hole, .. } = op else {
            return false;
        };
        let stat = fstat(self.calls, *fd);
        stat.stat().is_some_and(|stat| stat.mode & libc::S_IFMT == libc::S_IFDIR)
    }

    /// Returns whether the call truncates an empty file by its path. With a cache in the kernel,
    /// FUSE sends the message of `O_TRUNC`, which changes the modification time while `truncate`
    /// does not.
    fn empties_the_empty(&mut self, op: &Op) -> bool {
        let Op::Truncate { path, len: 0 } = op else { return false };
        let stat = self.calls.call(&Op::Stat { at: CWD, path: path.clone(), flags: 0 });
        stat.stat().is_some_and(|stat| stat.size == 0)
    }
}

/// The attribute with the ACL of a directory for its new files.
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// Returns whether the kernel itself makes the checks of a call on an immutable or append-only
/// inode, which it does not know to be one.
fn is_checked_on_guards(op: &Op) -> bool {
    match op {
        Op::Access { mode, .. } => mode & libc::W_OK as u32 != 0,
        Op::SetFlags { .. } | Op::Ftruncate { .. } => true,
        // A file that is no directory has no default list: the kernel grants its removal, which
        // an empty list or a list of nothing but its head is, too, and asks nobody.
        Op::Setxattr { name, value, .. } => name.0 == DEFAULT_LIST && value.len() <= 4,
        Op::Removexattr { name, .. } => name.0 == DEFAULT_LIST,
        _ => false,
    }
}

/// Returns whether the kernel gives a call another meaning on FUSE, regardless of the server.
fn is_decided_by_fuse(op: &Op) -> bool {
    match op {
        // FUSE sends its server a request again, which a cached walk may not do.
        Op::Openat2 { resolve, .. } => resolve & libc::RESOLVE_CACHED != 0,
        // FUSE asks nobody whether a stranger may do this to a set-id file.
        Op::Chown { uid: None, gid: None, .. } => true,
        // FUSE clears set-id bits before it asks the server, which has no space for so much.
        Op::Fallocate { len, .. } => *len > 1 << 40,
        // `MNT_FORCE` ends the connection, for all its mounts.
        Op::Umount { flags, .. } => flags & libc::MNT_FORCE as u32 != 0,
        _ => false,
    }
}

impl<W: World> World for Fuse<W> {
    fn run<R: Send + 'static>(
        &mut self,
        task: usize,
        f: impl FnOnce(&mut dyn Calls) -> R + Send + 'static,
    ) -> R {
        let rules = Arc::clone(&self.rules);
        self.world.run(task, move |calls| f(&mut FuseCalls { calls, rules: &rules }))
    }

    fn fork(&mut self, from: usize, into: usize) {
        self.world.fork(from, into);
    }

    fn reuses_inode_numbers(&self) -> bool {
        self.world.reuses_inode_numbers()
    }

    fn shows_times_of(&self, op: &Op) -> bool {
        // The kernel does not ask for the change time afterwards.
        !matches!(op, Op::SetInodeFlags { .. })
    }

    fn finish(&mut self) -> Result<Finished, String> {
        self.world.finish()
    }
}
