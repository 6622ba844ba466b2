//! Threads on one tree: a task for each, in one directory, and a file that all threads open.

use std::time::Instant;

const FILES: u32 = 100_000;

fn main() -> vfscale::Result<()> {
    let vfs = vfscale::memory().build()?;
    vfs.task().write("/shared", "read by all")?;
    for threads in [1, 2] {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for n in 0..threads {
                let task = vfs.task();
                scope.spawn(move || -> vfscale::Result<()> {
                    for file in 0..FILES {
                        let name = format!("/{n}.{file}");
                        task.create(&name)?;
                        task.open("/shared")?;
                        task.remove_file(&name)?;
                    }
                    Ok(())
                });
            }
        });
        let rate = f64::from(threads * FILES) / begin.elapsed().as_secs_f64();
        println!("{threads} thread(s): {rate:.0} files created, opened and removed per second");
    }
    Ok(())
}
