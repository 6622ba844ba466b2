//! Memory of empty files with names of 20 bytes: resident bytes of the process for each, and the
//! bytes that the file system accounts for.

use std::error::Error;

use vfscale::posix::At;
use vfscale::{FileType, Mode};

/// Number of files.
const FILES: usize = 200_000;

/// Maximum resident bytes of an empty file.
const TARGET_BYTES: f64 = 512.0;

/// Returns the resident bytes of this process (`smaps_rollup` of `proc(5)`, which is exact).
fn resident() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).ok_or("no Rss")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Creates the files, evenly in `directories` directories, and prints the memory of each.
fn measure(directories: usize) -> Result<bool, Box<dyn Error>> {
    let vfs = vfscale::memory().build()?;
    let task = vfs.task();
    let mode = Mode::from(0o755);
    for dir in 0..directories {
        task.posix().mkdirat(At::Cwd, format!("{dir}"), mode)?;
    }
    let used = |stat: vfscale::posix::StatFs| {
        (stat.blocks - stat.blocks_free) * u64::from(stat.block_size)
    };
    let charged_before = used(task.posix().statfs(At::Cwd, "/")?);
    let before = resident()?;
    for i in 0..FILES {
        let path = format!("{}/file{i:016}", i % directories);
        task.posix().mknodat(At::Cwd, path, FileType::RegularFile, mode, 0)?;
    }
    let resident = (resident()? - before) as f64 / FILES as f64;
    let charged = (used(task.posix().statfs(At::Cwd, "/")?) - charged_before) as f64 / FILES as f64;
    let is_met = resident <= TARGET_BYTES;
    println!(
        "{FILES} empty files in {directories:>6} directories: {resident:.0} resident bytes each \
         (target {TARGET_BYTES:.0}: {}), {charged:.0} charged",
        if is_met { "met" } else { "NOT met" },
    );
    Ok(is_met)
}

fn main() -> Result<(), Box<dyn Error>> {
    // Each in a process of its own, which holds no memory of an earlier measurement.
    match std::env::args().nth(1).and_then(|arg| arg.parse().ok()) {
        Some(directories) => measure(directories).map(drop),
        None => {
            for directories in ["1", "20", "2000"] {
                let me = std::env::current_exe()?;
                std::process::Command::new(me).arg(directories).status()?;
            }
            Ok(())
        }
    }
}
