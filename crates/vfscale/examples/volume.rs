//! A volume in an image file: synced changes survive a crash, and all changes survive after
//! `close`.
//!
//! ```sh
//! cargo run --example volume -- disk.vfs
//! ```

use vfscale::OpenOptions;

fn main() -> vfscale::Result<()> {
    let image = std::env::args().nth(1).unwrap_or_else(|| "disk.vfs".into());
    // Creates the image if it does not exist; recovers it after a crash.
    let volume = vfscale::volume(&image).create(64 << 20).open()?;
    let task = volume.task();
    task.create_dir_all("/log")?;

    let log = task.open_with("/log/runs", &OpenOptions::new().append(true).create(true))?;
    log.write_all(b"one more run\n")?;
    // From here on the line is durable.
    log.sync_all()?;
    drop(log);

    let runs = task.read_to_string("/log/runs")?.lines().count();
    println!("{image} has seen {runs} runs");
    drop(task);
    volume.close()?;
    Ok(())
}
