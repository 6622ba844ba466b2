//! Prints how long the longest of many creates in one directory takes, while the directory grows:
//!
//! ```sh
//! cargo run --release --example growth -- 10000000             # in memory
//! cargo run --release --example growth -- 10000000 disk.vfs    # in a new volume of 16 GiB
//! ```
//!
//! Each create opens a new empty file and closes it. Times are those of the thread's CPU, so other
//! programs do not count, nor does a wait for a device.

use std::error::Error;

use rustix::time::{ClockId, clock_gettime};
use vfscale::posix::OFlags;
use vfscale::{Mode, Task};

/// Number of the longest creates that are listed.
const LONGEST: usize = 8;

/// Size of a new volume.
const VOLUME_BYTES: u64 = 16 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let names: u32 = arguments.next().ok_or("how many names?")?.parse()?;
    if let Some(image) = arguments.next() {
        let volume = vfscale::volume(&image).create(VOLUME_BYTES).open()?;
        let times = create_all(&volume.task(), names)?;
        report(times);
        volume.close()?;
    } else {
        let vfs = vfscale::memory().size(64 << 30).build()?;
        report(create_all(&vfs.task(), names)?);
    }
    Ok(())
}

/// Creates the names. Returns the time of each in nanoseconds.
fn create_all(task: &Task, names: u32) -> Result<Vec<u64>, Box<dyn Error>> {
    task.create_dir("/dir")?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let mut times = Vec::with_capacity(names as usize);
    for name in 0..names {
        let path = format!("/dir/{name}");
        let begin = cpu_nanos();
        drop(task.posix().open(&path, flags, Mode::from_bits_retain(0o600))?);
        times.push(cpu_nanos() - begin);
    }
    Ok(times)
}

/// Returns the time that this thread has used of its CPU.
fn cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Prints percentiles of the times, and the longest of them with the number of their names.
fn report(times: Vec<u64>) {
    let mut sorted: Vec<(u64, usize)> =
        times.into_iter().enumerate().map(|(name, time)| (time, name)).collect();
    sorted.sort_unstable();
    for (share, per_million) in [("50", 500_000), ("99", 990_000), ("99.99", 999_900)] {
        let at = (sorted.len() as u64 * per_million / 1_000_000) as usize;
        if let Some((time, _)) = sorted.get(at) {
            println!("p{share}: {:.1} us", *time as f64 / 1e3);
        }
    }
    for (time, name) in sorted.iter().rev().take(LONGEST) {
        println!("{:.1} us: name {name}", *time as f64 / 1e3);
    }
}
