//! Ten lines to start with.

use vfscale::Mode;

fn main() -> vfscale::Result<()> {
    let task = vfscale::memory().size(64 << 20).build()?.task();
    task.create_dir_all("/srv/www", Mode::from_bits_retain(0o755))?;
    task.write_file("/srv/www/index.html", "<h1>hello</h1>\n")?;
    for entry in task.walk_dir("/") {
        let entry = entry?;
        println!("{:o} {:>4} {}", entry.stat.mode, entry.stat.size, entry.path.display());
    }
    Ok(())
}
