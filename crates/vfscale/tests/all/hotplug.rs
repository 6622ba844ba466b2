//! Trees with slots for three CPUs, used by threads on CPUs far beyond them, which are gone when
//! others end what they began: open files, orphans, dirty data, mounts, pipes.

use std::sync::Arc;
use std::thread;

use crate::common::{MODE, errno, make};
use vfscale::posix::{At, MountFlags, OFlags, UmountFlags};
use vfscale::{Errno, File, MemFs, Scaling, Task, Vfs};
use vfscale_block::{Device, MemoryDevice};
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_diskfs::{check, check::Options};
use vfscale_sync::{cpu, rcu, reclaim};

const CPUS: u32 = 41;

/// Runs `work` in a thread on each CPU, one after the other; each thread is gone when the next one
/// begins. Returns the results.
fn on_each<T: Send>(work: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let on = |cpu| {
        thread::scope(|scope| {
            let there = || {
                let _there = cpu::pretend(cpu);
                work(cpu)
            };
            scope.spawn(there).join().unwrap()
        })
    };
    (0..CPUS).map(on).collect()
}

/// Makes on each CPU a directory, a file with data that stays open, one that is removed while it is
/// open, a pipe, a mount, and uses of one file and one directory of all.
fn begin(task: &Task) -> Vec<[File; 5]> {
    task.create_dir("/all").unwrap();
    task.write("/all/file", "x").unwrap();
    on_each(|cpu| {
        let dir = format!("/{cpu}");
        task.create_dir(&dir).unwrap();
        task.create_dir(format!("/all/{cpu}")).unwrap();
        let [file, removed] = ["file", "removed"].map(|name| make(task, &format!("{dir}/{name}")));
        file.pwrite(&[cpu as u8; 5000], 0).unwrap();
        removed.pwrite(&[1; 5000], 0).unwrap();
        task.remove_file(format!("{dir}/removed")).unwrap();
        let (reader, writer) = task.posix().pipe2(OFlags::empty()).unwrap();
        task.create_dir(format!("{dir}/mnt")).unwrap();
        let fs = MemFs::builder().size(1 << 20).slots(3).build();
        task.posix().mount(fs, format!("{dir}/mnt"), MountFlags::empty()).unwrap();
        task.write(format!("{dir}/mnt/below"), "y").unwrap();
        let shared = task.posix().open("/all/file", OFlags::RDONLY, MODE).unwrap();
        [file, removed, reader, writer, shared]
    })
}

/// Ends all of that on one CPU that has begun nothing.
fn end(vfs: &Vfs, task: &Task, files: Vec<[File; 5]>) {
    let _elsewhere = cpu::pretend(1_000);
    assert_eq!(task.metadata("/all").unwrap().nlink, 2 + CPUS);
    assert_eq!(vfs.counts().open_files, 5 * CPUS as usize);
    let remount = |flags| task.posix().remount("/", flags);
    assert_eq!(errno(remount(MountFlags::RDONLY)), Errno::BUSY);
    for (cpu, [file, removed, ..]) in files.iter().enumerate() {
        let mut bytes = [0; 5000];
        assert_eq!(file.pread(&mut bytes, 0).unwrap(), 5000);
        assert_eq!(bytes, [cpu as u8; 5000]);
        assert_eq!(removed.stat().unwrap().nlink, 0);
        let mnt = format!("/{cpu}/mnt");
        let below = task.posix().open(format!("{mnt}/below"), OFlags::RDONLY, MODE).unwrap();
        assert_eq!(errno(task.posix().umount(&mnt, UmountFlags::empty())), Errno::BUSY);
        drop(below);
        task.posix().umount(&mnt, UmountFlags::empty()).unwrap();
    }
    drop(files);
    assert_eq!(vfs.counts().open_files, 0);
    // Files that were removed while they were open are freed before a remount.
    remount(MountFlags::RDONLY).unwrap();
    remount(MountFlags::empty()).unwrap();
    (0..CPUS).for_each(|cpu| task.remove_dir_all(format!("/{cpu}")).unwrap());
    task.remove_dir_all("/all").unwrap();
    task.posix().drop_cached(At::Cwd, "/").unwrap();
}

#[test]
fn a_tree_in_memory_outlives_its_cpus() {
    let vfs = vfscale::memory().size(64 << 20).scaling(Scaling::with_slots(3)).build().unwrap();
    let task = vfs.task();
    let free = || {
        (0..3).for_each(|_| rcu::synchronize());
        reclaim::settle();
        let stat = task.posix().statfs(At::Cwd, "/").unwrap();
        (stat.blocks_free, stat.files_free)
    };
    let before = free();
    let files = begin(&task);
    assert!(free() < before);
    end(&vfs, &task, files);
    assert_eq!(free(), before);
}

#[test]
fn a_volume_outlives_its_cpus() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20).unwrap());
    mkfs::format(&*device, &MkfsOptions::default()).unwrap();
    let volume = vfscale::volume_on(Arc::clone(&device)).scaling(Scaling::with_slots(3));
    let volume = volume.open().unwrap();
    let task = volume.task();
    let files = begin(&task);
    assert_eq!(volume.driver().volume().orphans().len(), CPUS as usize);
    {
        let _elsewhere = cpu::pretend(1_001);
        volume.sync().unwrap();
    }
    end(volume.vfs(), &task, files);
    drop(task);
    volume.close().unwrap();
    let report = check::check(Arc::clone(&device), &Options::default(), &mut ()).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    let again = vfscale::volume_on(device).open().unwrap();
    assert_eq!(again.task().read_dir("/").unwrap().count(), 0);
    again.close().unwrap();
}
