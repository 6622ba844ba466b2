//! Makes one kind of call a number of times, without a patch if one is named: a program to count
//! instructions of, as `scripts/instructions` does.
//!
//! ```sh
//! cargo run --release --example calls -- open 100000 lockref
//! ```

use std::error::Error;

use vfscale::{At, AtFlags, File, Mode, OFlags, RenameFlags, Scaling, Task, Whence};

const MODE: Mode = Mode::from_bits_retain(0o755);

fn call(task: &Task, file: &File, kind: &str) -> vfscale::Result<()> {
    match kind {
        "open" => task.open("file", OFlags::RDONLY, MODE).map(drop),
        "write" => task.open("file", OFlags::WRONLY, MODE).map(drop),
        "stat" => task.stat(At::Cwd, "/home/me/file", AtFlags::empty()).map(drop),
        "pwrite" => file.pwrite(b"data", 0).map(drop),
        "seek" => file.seek(Whence::Set(2)).map(drop),
        "chmod" => task.chmod(At::Cwd, "file", MODE, AtFlags::empty()),
        "pread" => file.pread(&mut [0; 4], 0).map(drop),
        "read" => {
            file.read(&mut [0; 4])?;
            file.seek(Whence::Set(0)).map(drop)
        }
        "pipe" => task.pipe2(OFlags::empty()).map(drop),
        "path" => task.path_of(file).map(drop),
        "mount" => task.stat(At::Cwd, "/mnt/file", AtFlags::empty()).map(drop),
        "create" => {
            drop(task.open("new", OFlags::CREATE | OFlags::WRONLY, MODE)?);
            task.unlink(At::Cwd, "new", AtFlags::empty())
        }
        "rename" => {
            task.rename(At::Cwd, "file", At::Cwd, "other", RenameFlags::empty())?;
            task.rename(At::Cwd, "other", At::Cwd, "file", RenameFlags::empty())
        }
        "handle" => {
            let handle = task.name_to_handle(At::Cwd, "file", AtFlags::empty())?;
            task.open_by_handle(file, &handle, OFlags::RDONLY).map(drop)
        }
        _ => Ok(()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().ok_or("which call?")?;
    let times: u64 = arguments.next().ok_or("how often?")?.parse()?;
    // With slots for several CPUs whatever the machine, so that figures compare.
    let mut scaling = Scaling::with_slots(8);
    for patch in arguments {
        scaling = scaling.and_before(&patch)?;
    }
    let task = vfscale::memory().size(64 << 20).scaling(scaling).build()?.task();
    task.create_dir_all("/home/me", MODE)?;
    task.mkdir(At::Cwd, "/mnt", MODE)?;
    let fs = vfscale::MemFs::builder().size(1 << 20).build();
    task.mount(fs, "/mnt", vfscale::MountFlags::empty())?;
    task.chdir("/home/me")?;
    task.write_file("file", "text")?;
    task.write_file("/mnt/file", "text")?;
    let file = task.open("file", OFlags::RDWR, MODE)?;
    for _ in 0..times {
        call(&task, &file, &kind)?;
    }
    Ok(())
}
