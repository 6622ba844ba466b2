//! The table of all calls.
//!
//! A row is a variant of [`Op`], its name in reports, and its arguments with their kinds. A kind
//! decides the type of an argument, how it is printed ([`show`]), and whether it is a descriptor or
//! a path of a file.
//!
//! [`Op`]: crate::calls::op::Op
//! [`show`]: crate::calls::show

/// Hands all rows to a macro.
macro_rules! every_call {
    ($macro:ident) => {
        $macro! {
            Open "openat" { at: at, path: path, flags: open, mode: octal }
            Openat2 "openat2" { at: at, path: path, flags: open64, mode: octal64, resolve: resolve }
            Reopen "reopen" { fd: fd, flags: open }
            Close "close" { fd: fd }
            Dup "dup" { fd: fd }
            Dup2 "dup2" { fd: fd, to: fd }
            Dup3 "dup3" { fd: fd, to: fd, flags: open }
            DupFrom "dupfd" { fd: fd, min: int, cloexec: flag }
            GetCloexec "getfd" { fd: fd }
            SetCloexec "setfd" { fd: fd, on: flag }
            GetFlags "getfl" { fd: fd }
            SetFlags "setfl" { fd: fd, flags: open }
            GetInodeFlags "getflags" { fd: fd }
            SetInodeFlags "setflags" { fd: fd, flags: hex }
            Pipe "pipe2" { flags: open }
            PipeSize "getpipe_sz" { fd: fd }
            SetPipeSize "setpipe_sz" { fd: fd, bytes: count }
            Read "read" { fd: fd, len: count }
            Write "write" { fd: fd, data: data }
            Pread "pread" { fd: fd, len: count, off: off }
            Pwrite "pwrite" { fd: fd, data: data, off: off }
            Readv "readv" { fd: fd, lens: counts, off: position }
            Writev "writev" { fd: fd, parts: parts, off: position }
            Lseek "lseek" { fd: fd, whence: whence, off: distance }
            Ftruncate "ftruncate" { fd: fd, len: size }
            Truncate "truncate" { path: path, len: size }
            Fallocate "fallocate" { fd: fd, mode: space, off: off, len: size }
            CopyRange "copy_file_range" {
                from: fd, off_in: position, to: fd, off_out: position, len: size
            }
            Fsync "fsync" { fd: fd, data_only: flag }
            Syncfs "syncfs" { fd: fd }
            Trim "fitrim" {}
            ReadDir "getdents" { fd: fd }
            Stat "stat" { at: at, path: path, flags: walk }
            Access "faccessat" { at: at, path: path, mode: count, flags: walk }
            Mkdir "mkdirat" { at: at, path: path, mode: octal }
            Mknod "mknodat" { at: at, path: path, mode: octal, rdev: hex64 }
            Unlink "unlinkat" { at: at, path: path, flags: walk }
            Link "linkat" { at: at, path: path, to_at: at, to: path, flags: walk }
            Symlink "symlinkat" { target: text, at: at, path: path }
            Readlink "readlinkat" { at: at, path: path }
            Rename "renameat2" { at: at, path: path, to_at: at, to: path, flags: rename }
            Chmod "fchmodat" { at: at, path: path, mode: octal, flags: walk }
            Chown "fchownat" { at: at, path: path, uid: id, gid: id, flags: walk }
            Utimens "utimensat" { at: at, path: path, atime: time, mtime: time, flags: walk }
            Getxattr "getxattr" { at: at, path: path, name: text, flags: walk }
            Setxattr "setxattr" {
                at: at, path: path, name: text, value: value, how: xattr, flags: walk
            }
            Listxattr "listxattr" { at: at, path: path, flags: walk }
            Removexattr "removexattr" { at: at, path: path, name: text, flags: walk }
            Chdir "chdir" { path: path }
            Fchdir "fchdir" { fd: fd }
            Chroot "chroot" { path: path }
            Getcwd "getcwd" {}
            PathOf "path_of" { fd: fd }
            Umask "umask" { mode: octal }
            SetUser "setuser" { user: user }
            Fork "fork" { into: task }
            Statfs "statfs" { at: at, path: path }
            Mount "mount" { path: path, flags: mount }
            Bind "bind" { source: path, target: path, recursive: flag }
            MoveMount "move_mount" { source: path, target: path }
            Umount "umount" { path: path, flags: umount }
            Remount "remount" { path: path, flags: mount }
            SetPropagation "set_propagation" { path: path, flags: propagation }
            Unshare "unshare" { into: task }
            Mounts "mountinfo" {}
            RemountBind "remount_bind" { path: path, flags: mount }
            Flock "flock" { fd: fd, kind: lock }
            Lock "setlk" { fd: fd, ofd: flag, kind: lock, range: range }
            GetLock "getlk" { fd: fd, ofd: flag, kind: lock, range: range }
            SaveHandle "name_to_handle" { at: at, path: path, flags: walk, slot: slot }
            OpenHandle "open_by_handle" { mount: fd, slot: slot, flags: open }
        }
    };
}

pub(crate) use every_call;
