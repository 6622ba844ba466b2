//! Tests of the house itself.
//!
//! # Purpose
//!
//! What the design promises about the code, as opposed to what the code does, is checked here, so
//! that it stays true without anybody watching: which crate may use which ([`arrows`]), how long
//! files and functions are, where tests and `unsafe` live ([`sources`]), and that the documents
//! name what is really there ([`documents`], [`races`]).
//!
//! Each check is a function from text to a list of complaints, so that its own tests can hand it
//! code that breaks the rule. `tests/tidy.rs` hands it this repository.
//!
//! # Invariants
//!
//! * Nothing here is used by another crate, and this crate uses none of theirs.
//! * A complaint names the file, the line where there is one, and what to do.

use std::path::{Path, PathBuf};

pub mod arrows;
pub mod documents;
pub mod prose;
pub mod races;
pub mod rooms;
pub mod sources;

/// Returns the root of the repository.
///
/// # Panics
/// If this crate does not lie two folders below it.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies in crates/tidy").to_path_buf()
}
