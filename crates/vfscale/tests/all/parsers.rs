//! The introspection file system, read by an independent parser of the kernel's files, that of the
//! crate `procfs`. It relies on properties of these files beyond their manual pages.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use procfs_core::process::{FDTarget, MountInfos, MountOptFields};
use procfs_core::{FromRead, MountEntry};
use vfscale::posix::{MemfdFlags, MountFlags, OFlags, SocketType};
use vfscale::{MemFs, Mode, ProcFs, Task};

const MODE: Mode = Mode::from_bits_retain(0o755);

fn tree() -> (Arc<ProcFs>, Arc<Task>) {
    let vfs = vfscale::memory().size(16 << 20).build().unwrap();
    let (task, proc) = (Arc::new(vfs.task()), ProcFs::new(&vfs));
    task.create_dir("/proc").unwrap();
    task.posix().mount(proc.clone(), "/proc", MountFlags::NOSUID).unwrap();
    proc.show(&task);
    (proc, task)
}

fn options(words: &[&str]) -> HashMap<String, Option<String>> {
    words.iter().map(|word| ((*word).to_owned(), None)).collect()
}

#[test]
fn mounts_are_read() {
    let (_proc, task) = tree();
    task.create_dir("/a\tdir").unwrap();
    let fs = MemFs::builder().size(1 << 20).build();
    task.posix().mount(fs, "/a\tdir", MountFlags::NODEV | MountFlags::RDONLY).unwrap();
    let text = task.read("/proc/mounts").unwrap();
    let mounts: Vec<MountEntry> = FromRead::from_read(&text[..]).unwrap();
    let told: Vec<_> = mounts.iter().map(|mount| (&*mount.fs_file, &*mount.fs_vfstype)).collect();
    assert_eq!(told, [("/", "memfs"), ("/proc", "vfscale"), ("/a\tdir", "memfs")]);
    let has = |mount: &MountEntry, word: &str| mount.fs_mntops.contains_key(word);
    assert!(has(&mounts[1], "nosuid") && has(&mounts[2], "nodev") && has(&mounts[2], "ro"));
    assert!(has(&mounts[0], "rw") && !has(&mounts[0], "nodev"));
    assert!(mounts.iter().all(|mount| (mount.fs_freq, mount.fs_passno) == (0, 0)));
}

/// The library provides these lines for each mount; programs that embed it serve them as a file.
#[test]
fn mountinfo_is_read() {
    let (_proc, task) = tree();
    task.create_dir("/shared").unwrap();
    let fs = MemFs::builder().size(1 << 20).build();
    task.posix().mount(fs, "/shared", MountFlags::NOEXEC).unwrap();
    task.posix().set_propagation("/shared", vfscale::posix::Propagation::Shared, false).unwrap();
    let infos = task.posix().mounts();
    let text: String = infos.iter().map(|mount| format!("{}\n", mount.mountinfo())).collect();
    let told = MountInfos::from_read(text.as_bytes()).unwrap().0;
    assert_eq!(told.len(), 3);
    for (told, info) in told.iter().zip(&infos) {
        assert_eq!((told.mnt_id as u64, told.pid as u64), (info.id, info.parent));
        assert_eq!((Path::new(&told.root), &told.mount_point), (&*info.root, &info.mount_point));
        assert_eq!(told.fs_type, info.fs_type);
        let device = (rustix::fs::major(info.dev), rustix::fs::minor(info.dev));
        assert_eq!(told.majmin, format!("{}:{}", device.0, device.1));
    }
    assert_eq!(told[2].mount_options, options(&["rw", "noexec", "relatime"]));
    let [MountOptFields::Shared(group)] = told[2].opt_fields[..] else { panic!("{told:?}") };
    assert_eq!(Some(u64::from(group)), infos[2].peer_group);
    assert!(told[1].opt_fields.is_empty());
}

#[test]
fn descriptors_are_read() {
    let (_proc, task) = tree();
    let file = task.posix().open("/file: 1", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
    let (pipe, _writer) = task.posix().pipe2(OFlags::empty()).unwrap();
    let (socket, _peer) = task.posix().socketpair(SocketType::Stream, OFlags::empty()).unwrap();
    let memory = task.posix().memfd_create("name", MemfdFlags::empty()).unwrap();
    let [pipe_ino, socket_ino] = [&pipe, &socket].map(|file| file.stat().unwrap().ino);
    let expected = [
        FDTarget::Path("/file: 1".into()),
        FDTarget::Pipe(pipe_ino),
        FDTarget::Socket(socket_ino),
        FDTarget::MemFD("name (deleted)".into()),
    ];
    for (file, expected) in [file, pipe, socket, memory].into_iter().zip(expected) {
        let fd = task.posix().install(file).unwrap();
        let link = format!("/proc/tasks/{}/fd/{}", task.id(), fd.0);
        let target = task.read_link(link).unwrap();
        assert_eq!(target.to_str().unwrap().parse::<FDTarget>().unwrap(), expected);
    }
}
