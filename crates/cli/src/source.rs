//! Makes the file system that the command line asks for, and says how to serve it.

use std::time::Duration;

use vfscale::{At, Mode, MountFlags, ProcFs, Vfs};
use vfscale_fuse::{Builder, Sharing};

use crate::args::{ServeArgs, SourceArgs};
use crate::error::Failure;
use crate::options::MountOptions;

/// Where the state of the tree is shown.
const STATE_DIR: &str = "/.vfscale";

/// For how long the kernel may believe what changes by itself.
const STATE_CACHE: Duration = Duration::from_secs(1);

/// A builder of the mount, with everything set but the directory.
pub(crate) fn builder(
    source: &SourceArgs,
    serve: &ServeArgs,
    options: &MountOptions,
) -> Result<Builder, Failure> {
    let vfs = file_system(source, options)?;
    let flags = options.apply(MountFlags::empty());
    if flags.intersects(MountFlags::NOATIME | MountFlags::NODIRATIME | MountFlags::STRICTATIME) {
        // Access times are ours to keep; the kernel leaves them to the server.
        let kept = MountFlags::NOATIME | MountFlags::NODIRATIME | MountFlags::STRICTATIME;
        vfs.task().remount_bind("/", flags & kept)?;
    }
    if serve.proc {
        mount_state(&vfs)?;
    }
    let is_root = rustix::process::geteuid().is_root();
    let allow_other = serve.allow_other.or(options.allow_other).unwrap_or(is_root);
    let mut builder = Builder::new(&vfs)
        .sharing(if serve.proc {
            Sharing::Shared { cache: STATE_CACHE }
        } else {
            Sharing::Exclusive
        })
        .volatile(true)
        .writeback(serve.writeback)
        .allow_other(allow_other)
        .flags(flags)
        .source(options.source.as_deref().unwrap_or("vfscale"));
    if let Some(threads) = serve.threads {
        builder = builder.threads(threads.into());
    }
    Ok(builder)
}

/// Mounts what tells of the tree in the tree.
fn mount_state(vfs: &Vfs) -> Result<(), Failure> {
    let task = vfs.task();
    task.mkdir(At::Cwd, STATE_DIR, Mode::from_bits_retain(0o555))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(task.mount(ProcFs::new(vfs), STATE_DIR, flags)?)
}

/// The file system, its root directory owned by the user.
fn file_system(source: &SourceArgs, options: &MountOptions) -> Result<Vfs, Failure> {
    let Some(memory) = source.memory else {
        return Err(Failure::Usage(
            "say which file system: --memory makes a new one in memory (see --help)".into(),
        ));
    };
    let scaling = source.scaling().map_err(|e| Failure::Usage(e.to_string()))?;
    let mut builder = vfscale::memory().scaling(scaling);
    if let Some(size) = memory.or(options.size) {
        builder = builder.size(size.on_this_machine());
    }
    if let Some(inodes) = source.inodes.or(options.inodes) {
        builder = builder.inodes(inodes);
    }
    let uid = source.uid.or(options.uid).unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let gid = source.gid.or(options.gid).unwrap_or_else(|| rustix::process::getegid().as_raw());
    let mode = source.mode.or(options.mode).unwrap_or(0o755);
    Ok(builder.owner(uid, gid).mode(Mode::from_bits_truncate(mode)).build()?)
}
