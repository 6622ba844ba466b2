//! Makes one kind of call a number of times, without the named patches. `scripts/instructions`
//! counts its instructions. `list` prints the kinds, each with the patches that affect it.
//!
//! ```sh
//! cargo run --release --example calls -- open 100000 lockref
//! ```

use std::error::Error;

mod measured;

use measured::{Ground, KINDS};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("which call?")?;
    if name == "list" {
        for kind in KINDS {
            println!("{} {}", kind.name, kind.patches.join(" "));
        }
        return Ok(());
    }
    let kind = KINDS.iter().find(|kind| kind.name == name).ok_or("no such call")?;
    let times: u64 = arguments.next().ok_or("how often?")?.parse()?;
    let before: Vec<String> = arguments.collect();
    Ground::new(kind, &before)?.call(kind, times)?;
    Ok(())
}
