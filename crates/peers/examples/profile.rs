//! Runs one kind of work on vfscale under a profiler.
//!
//! ```text
//! cargo build --release -p vfscale-peers --example profile
//! valgrind --tool=callgrind target/release/examples/profile stat 100000
//! perf record target/release/examples/profile "create+unlink, one" 10000000
//! ```

use std::error::Error;
use std::time::Instant;

use vfscale_peers::embedded::Embedded;
use vfscale_peers::subject::{Kind, Subject};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("the name of a kind of work, or a part of it")?;
    let times: u32 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name().contains(&name));
    let kind = kind.ok_or("no kind of work has such a name")?;
    let subject = Embedded::new()?;
    let mut work = subject.work(kind, 0).ok_or("the subject can't do this kind of work")?;
    let start = Instant::now();
    work.repeat(times);
    let nanos = start.elapsed().as_secs_f64() * 1e9 / f64::from(times);
    println!("{}: {nanos:.1} ns", kind.name());
    Ok(())
}
