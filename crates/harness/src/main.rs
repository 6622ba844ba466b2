//! `limited PROGRAM ARGUMENTS...`: runs a test program, and ends it if one of its tests takes more
//! than `VFSCALE_TEST_LIMIT` seconds (300). For `CARGO_TARGET_<TRIPLE>_RUNNER`, as `scripts/test`
//! sets it.
//!
//! The exit status is that of the program; 124 if a test was too slow.

use std::env;
use std::io;
use std::process::{Command, exit};
use std::time::Duration;

fn main() {
    let seconds = env::var("VFSCALE_TEST_LIMIT").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(300));
    let mut words = env::args_os().skip(1);
    let Some(name) = words.next() else {
        eprintln!("limited: the program is missing");
        exit(2);
    };
    let mut program = Command::new(&name);
    program.args(words);
    match vfscale_harness::limit::run(program, limit, &mut io::stdout()) {
        Ok(status) => exit(status),
        Err(error) => {
            eprintln!("limited: {}: {error}", name.display());
            exit(101);
        }
    }
}
