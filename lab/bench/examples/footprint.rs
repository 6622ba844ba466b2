//! Prints the memory that trees take because there are many CPUs:
//!
//! ```sh
//! cargo run --release --example footprint -- 512
//! ```
//!
//! A tree for that many CPUs, of which threads pretend to run on one after the other, gets 10,000
//! directories and 1,000 mounts. Each row is the growth of the process's resident memory.

use std::error::Error;

use vfscale::posix::MountFlags;
use vfscale::{MemFs, Scaling, Task};
use vfscale_sync::{cpu, rcu};

const DIRECTORIES: u32 = 10_000;
const MOUNTS: u32 = 1_000;
/// Number of names that come and go in a directory until it has grown as far as it does.
const TURNS: u32 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let cpus: u32 = std::env::args().nth(1).ok_or("how many CPUs?")?.parse()?;
    let scaling = Scaling::with_slots(cpus as usize);
    let mut before = resident_kib()?;
    let mut row = |what: &str| -> Result<(), Box<dyn Error>> {
        rcu::synchronize();
        let now = resident_kib()?;
        println!("{what:<52}{:>10} KiB", now.saturating_sub(before));
        before = now;
        Ok(())
    };
    let task = vfscale::memory().scaling(scaling).build()?.task();
    row("a tree with a file system in memory")?;
    task.create_dir("/d")?;
    for dir in 0..DIRECTORIES {
        task.create_dir(format!("/d/{dir}"))?;
    }
    row(&format!("{DIRECTORIES} directories in it, made on one CPU"))?;
    for dir in 0..100 {
        use_in_turn(&task, dir, cpus)?;
    }
    row("100 of these, when all CPUs have changed them")?;
    for dir in 100..DIRECTORIES {
        use_in_turn(&task, dir, cpus)?;
    }
    row("the others, when all CPUs have changed them")?;
    task.create_dir("/m")?;
    for mount in 0..2 * MOUNTS {
        task.create_dir(format!("/m/{mount}"))?;
    }
    row(&format!("{} mountpoints", 2 * MOUNTS))?;
    for mount in 0..MOUNTS {
        task.posix().bind("/d", format!("/m/{mount}"), false)?;
    }
    row(&format!("{MOUNTS} binds"))?;
    for mount in MOUNTS..2 * MOUNTS {
        let fs = MemFs::builder().slots(cpus as usize).size(1 << 20).build();
        task.posix().mount(fs, format!("/m/{mount}"), MountFlags::empty())?;
    }
    row(&format!("{MOUNTS} mounted file systems, empty"))?;
    Ok(())
}

/// Creates and removes names in a directory on all CPUs in turn.
fn use_in_turn(task: &Task, dir: u32, cpus: u32) -> Result<(), Box<dyn Error>> {
    let path = format!("/d/{dir}/name");
    for turn in 0..TURNS {
        let _on = cpu::pretend(turn / 8 % cpus);
        task.symlink("nowhere", &path)?;
        task.remove_file(&path)?;
    }
    Ok(())
}

/// Returns the resident memory of this process.
fn resident_kib() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("no resident memory")?.parse()?)
}
