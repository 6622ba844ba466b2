//! Forks a thousand branches of one volume, changes a file in each, and keeps the best.
//!
//! ```sh
//! cargo run --release --example branches -- disk.vfs
//! ```

use std::time::Instant;

const BRANCHES: u64 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args().nth(1).unwrap_or_else(|| "disk.vfs".into());
    let volume = vfscale::volume(&image).create(256 << 20).open()?;
    volume.task().write("/state", "0\n")?;
    volume.close()?;

    // The volume becomes the branch `main` of a pool.
    let pool = vfscale::pool(&image).convert(true).open()?;
    let begin = Instant::now();
    for n in 0..BRANCHES {
        pool.fork("main", &format!("try {n}"))?;
    }
    println!("{BRANCHES} forks in {:?}", begin.elapsed());

    let begin = Instant::now();
    let mut best = (0, 0);
    for n in 0..BRANCHES {
        let trial = pool.open(&format!("try {n}"))?;
        let score = n * 7919 % BRANCHES;
        trial.task().write("/state", format!("{score}\n"))?;
        trial.close()?;
        best = best.max((score, n));
    }
    println!("each opened, changed and closed in {:?}", begin.elapsed());
    let (size, free) = (pool.usage().size, pool.usage().free);
    println!("{} KiB of the pool's {} are in use", (size - free) >> 10, size >> 10);

    let (score, n) = best;
    for difference in pool.diff("main", &format!("try {n}"))? {
        println!("{}: {:?}", difference.path.display(), difference.kind);
    }
    pool.adopt("main", &format!("try {n}"))?;
    for other in (0..BRANCHES).filter(|other| *other != n) {
        pool.delete(&format!("try {other}"))?;
    }
    pool.reap()?;
    pool.close()?;

    // An image is opened as its branch `main`.
    let volume = vfscale::volume(&image).open()?;
    assert_eq!(volume.task().read_to_string("/state")?, format!("{score}\n"));
    volume.close()?;
    Ok(())
}
