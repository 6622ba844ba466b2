//! Ten lines to start with.

fn main() -> vfscale::Result<()> {
    let task = vfscale::memory().size(64 << 20).build()?.task();
    task.create_dir_all("/srv/www")?;
    task.write("/srv/www/index.html", "<h1>hello</h1>\n")?;
    for entry in task.walk_dir("/") {
        let entry = entry?;
        println!("{:o} {:>4} {}", entry.metadata.mode, entry.metadata.len(), entry.path.display());
    }
    Ok(())
}
