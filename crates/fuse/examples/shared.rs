//! A program and the users of a mount work with the same files.
//!
//! `cargo run -p vfscale-fuse --example shared -- DIR` mounts at DIR and answers there: the program
//! writes each line of the file `question` reversed into `answer`. `umount DIR` ends it.

use std::error::Error;
use std::time::Duration;

use vfscale_fuse::{Builder, Sharing};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).ok_or("usage: shared DIR")?;
    let vfs = vfscale::memory().size(256 << 20).build()?;
    let mounted = Builder::new(&vfs)
        .sharing(Sharing::Shared { cache: Duration::ZERO })
        .allow_other(rustix::process::geteuid().is_root())
        .mount(dir)?;
    println!("write into {}", mounted.dir().join("question").display());
    let task = vfs.task();
    while mounted.is_mounted() {
        if let Ok(question) = task.read_to_string("/question") {
            let answer: String = question.trim_end().chars().rev().collect();
            task.write("/answer", answer + "\n")?;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
