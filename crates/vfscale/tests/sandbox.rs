//! Processes that forbid themselves system calls while they use a volume, as sandboxes do: what
//! can be done without them goes on.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used)]

use std::io;
use std::path::Path;
use std::process::Command;

use vfscale::Task;
use vfscale::posix::{At, FstrimRange};

/// Calls that the library makes if it may.
const CALLS: [i64; 8] = [
    libc::SYS_membarrier,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fallocate,
    libc::SYS_copy_file_range,
    libc::SYS_memfd_create,
    libc::SYS_sched_getaffinity,
];

/// Makes the calls fail in all threads of this process, now and later.
fn forbid(errno: i32) -> io::Result<()> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in CALLS {
        filter.push(libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32)
        });
        let refuse = libc::SECCOMP_RET_ERRNO | errno as u32;
        filter.push(statement(libc::BPF_RET | libc::BPF_K, refuse));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the call takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program and its filter live until the call returns, which copies them.
    let status = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const FILES: usize = 50;

fn write(task: &Task, dir: &str) {
    task.create_dir(dir).unwrap();
    for i in 0..FILES {
        let file = task.create(format!("{dir}/{i}")).unwrap();
        file.write_all(&vec![i as u8; 100_000]).unwrap();
        file.sync_all().unwrap();
    }
    for i in (1..FILES).step_by(2) {
        task.remove_file(format!("{dir}/{i}")).unwrap();
    }
}

fn check(task: &Task, dir: &str) {
    for i in (0..FILES).step_by(2) {
        assert_eq!(task.read(format!("{dir}/{i}")).unwrap(), vec![i as u8; 100_000]);
    }
}

/// The part of the process that forbids itself the calls.
#[test]
fn child() {
    let Ok(argument) = std::env::var("VFSCALE_TEST_ARGUMENT") else { return };
    let (errno, image) = argument.split_once(' ').unwrap();
    let (image, errno) = (Path::new(image), errno.parse().unwrap());
    let volume = vfscale::volume(image).create(64 << 20).open().unwrap();
    write(&volume.task(), "/before");
    if let Err(e) = forbid(errno) {
        println!("skipped: this system takes no filters of system calls: {e}");
        return;
    }
    write(&volume.task(), "/after");
    let range = FstrimRange { start: 0, len: u64::MAX, minlen: 0 };
    // Holes can't be punched now.
    let _ = volume.task().posix().trim_fs(At::Cwd, "/", range);
    volume.close().unwrap();
    let volume = vfscale::volume(image).open().unwrap();
    check(&volume.task(), "/before");
    check(&volume.task(), "/after");
    write(&volume.task(), "/again");
    volume.close().unwrap();
    write(&vfscale::memory().size(64 << 20).build().unwrap().task(), "/memory");
    vfscale::volume(image.with_extension("new")).create(64 << 20).open().unwrap().close().unwrap();
}

#[test]
fn a_volume_lives_without_the_calls_that_a_sandbox_forbids() {
    let place = tempfile::tempdir().unwrap();
    for errno in [libc::EPERM, libc::ENOSYS] {
        let image = place.path().join(errno.to_string());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]);
        command.env("VFSCALE_TEST_ARGUMENT", format!("{errno} {}", image.display()));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{errno}: {output:?}");
    }
}
