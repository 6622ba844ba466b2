//! Writes that the kernel gathers: their data, times, rights, and lack of space.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::{self, Kid, TestMount, drop_caches, is_root, run};
use crate::data::APPENDS;
use vfscale::Vfs;

/// Mounts `vfs` with gathered writes.
fn gathering(vfs: Vfs) -> Option<TestMount> {
    TestMount::of(vfs, vfscale_fuse::Sharing::Exclusive, |builder| builder.writeback(true))
}

/// Returns the times of the last change of data and inode.
fn times(path: &Path) -> [(i64, i64); 2] {
    let meta = fs::metadata(path).unwrap();
    [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())]
}

#[test]
fn gathered_writes_arrive() {
    let Some(m) = gathering(common::memory(256 << 20)) else { return };
    let path = m.path("f");
    let mut file = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    let before = m.mounted().stats().requests;
    for i in 0..10_000_u32 {
        file.write_all(&i.to_le_bytes()).unwrap();
    }
    let requests = m.mounted().stats().requests - before;
    assert!(requests < 1000, "{requests} requests for 10,000 small writes");
    let written = file.metadata().unwrap().modified().unwrap();
    drop(file);
    drop_caches();
    let data: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    assert!(fs::read(&path).unwrap() == data);
    assert!(m.vfs.task().read("/f").unwrap() == data);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
    let kids = [0, 1].map(|_| Kid::start(common::helper("data", "append", &path)));
    kids.into_iter().for_each(Kid::finish);
    assert_eq!(fs::metadata(&path).unwrap().len(), 40_000 + 2 * APPENDS as u64 * 16);
    run(Command::new("sync"));
}

/// The kernel keeps the times, and sends them if they differ from those that it was told last.
#[test]
fn gathered_writes_have_one_time() {
    let Some(m) = gathering(common::memory(256 << 20)) else { return };
    let paths: Vec<_> = (0..20).map(|i| m.path(&format!("f{i}"))).collect();
    for (i, path) in paths.iter().enumerate() {
        fs::write(path, "in the tick of the creation, often").unwrap();
        match i % 4 {
            1 => fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap(),
            2 => OpenOptions::new().write(true).open(path).unwrap().set_len(7).unwrap(),
            3 => fs::hard_link(path, path.with_extension("link")).unwrap(),
            _ => {}
        }
    }
    let shown: Vec<_> = paths.iter().map(|path| times(path)).collect();
    drop_caches();
    let stored: Vec<_> = paths.iter().map(|path| times(path)).collect();
    assert_eq!(shown, stored);
}

/// The kernel sends the times on behalf of any writer, not only of the owner.
#[test]
fn others_than_the_owner_write_and_truncate() {
    if !is_root() {
        return;
    }
    let Some(m) = gathering(common::memory(256 << 20)) else { return };
    fs::write(m.path("f"), "of the owner").unwrap();
    fs::set_permissions(m.path("f"), fs::Permissions::from_mode(0o666)).unwrap();
    for script in [": > f", "echo more >> f", "truncate -s 3 f"] {
        let mut command = Command::new("sh");
        run({
            command.args(["-c", script]).current_dir(m.dir()).uid(4001).gid(4001);
            command
        });
    }
    drop_caches();
    assert_eq!(fs::read_to_string(m.path("f")).unwrap(), "mor");
}

/// The kernel does not send what it gathered before it asks for the holes.
#[test]
fn gathered_data_are_no_hole() {
    let Some(m) = gathering(common::memory(256 << 20)) else { return };
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(m.path("f")).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"data", 8192).unwrap();
    let at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert!(at <= 8192, "data at {at}");
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(8192)).unwrap();
    assert!(hole >= 8196, "hole at {hole}");
}

/// A program that writes until there is no space has to end.
#[test]
fn a_file_system_can_be_filled() {
    let volume = tempfile::tempdir().unwrap();
    let (uid, gid) = common::owner();
    let on_disk = vfscale::volume(volume.path().join("image")).create(32 << 20).owner(uid, gid);
    let on_disk = on_disk.open().unwrap();
    for vfs in [common::memory(32 << 20), on_disk.vfs().clone()] {
        let Some(m) = gathering(vfs) else { return };
        // Opened again, the file still is as full.
        for round in 0..3 {
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", "of=f", "bs=64k", "count=16384", "conv=notrunc"]);
            command.args(["oflag=append"]).env("LC_ALL", "C").current_dir(m.dir());
            let told = command.output().unwrap();
            let told = String::from_utf8_lossy(&told.stderr);
            assert!(told.contains("error writing 'f': No space left on device"), "{round}: {told}");
        }
        // Others do not notice.
        assert!(fs::metadata(m.path("f")).unwrap().len() < 256 << 20);
        fs::read(m.path("f")).unwrap();
        fs::remove_file(m.path("f")).unwrap();
        fs::write(m.path("f"), vec![1; 16 << 20]).unwrap();
        OpenOptions::new().append(true).open(m.path("f")).unwrap().write_all(b"more").unwrap();
    }
    on_disk.close().unwrap();
}

/// Writes succeed while the kernel gathers them; the lack of space is told when they are sent. The
/// kernel tells it to whoever closes first, so the writer is a program: a child that another test
/// forks would close a descriptor of this process.
#[test]
fn a_lack_of_space_is_told_at_last_when_a_file_is_synced_or_closed() {
    let Some(m) = gathering(common::memory(8 << 20)) else { return };
    for end in ["fsync", "notrunc"] {
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "of=f", "bs=1M", "count=16", &format!("conv={end}")]);
        let output = command.env("LC_ALL", "C").current_dir(m.dir()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{end}: {told}");
        assert!(told.contains("No space left on device"), "{end}: {told}");
        fs::remove_file(m.path("f")).unwrap();
    }
    fs::write(m.path("small"), "there is space again").unwrap();
}
