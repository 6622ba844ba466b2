//! FxMark: the benchmark of Min, Kashyap, Maass, Kang and Kim, "Understanding Manycore Scalability
//! of File Systems" (ATC 2016), under its own names.
//!
//! The letters of a microbenchmark are what it uses (`D`ata, `M`etadata), how (`R`ead, `W`rite),
//! the kind (`B`lock, `O`verwrite, `A`ppend, `T`runcate, `S`ync; `P`ath, `D`irectory, `C`reate,
//! `U`nlink, `R`ename), and how much the workers share: `L`ow, each a file or directory of its own;
//! `M`edium, each a part of one; `H`igh, all the same. In those with `_bg` the last worker changes
//! what the others read, and does not count.
//!
//! # What differs
//!
//! * **Rounds end.** FxMark appends, creates, renames and fills the file system for a time, or
//!   until it is full. Here `DWAL` and `DWTL` have `--database` bytes, and creations, removals and
//!   renames `--files` files of each worker, anew in each round; the preparation takes no time.
//! * **MRDL and MRDM list to the end.** FxMark reads on at the end of a directory, which costs no
//!   call; here the directory is opened again, and an entry is the unit. Each worker brings 1,000.
//! * **DRBM_bg writes.** FxMark's background worker reads there.
//! * **MRPH** makes its one path, not the whole tree of `MRPM`.
//! * `varmail`, `fileserver` and `webserver` are filebench's, with its numbers and mean sizes of
//!   files, sizes drawn evenly, and at most `--files` for each worker. Filebench picks a file that
//!   no thread uses; here each worker has files of its own, among those of the others.
//! * Workers are threads in the library, and processes on a path with `--processes`, as FxMark's.

mod blocks;
mod filebench;
mod names;

pub(crate) use blocks::{BlockCall, Blocks};
pub(crate) use filebench::Filebench;
pub(crate) use names::{NameCall, Names};

use super::workload::Scene;

/// Size of a block, and of what a new file gets.
const PAGE: usize = 4096;

/// How much the workers of a microbenchmark share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Nothing: each has a file or a directory of its own.
    Low,
    /// A file or a directory, and each has its own part of it.
    Medium,
    /// All use the same part.
    High,
}

/// Returns the directory of a worker.
fn own_dir(worker: usize) -> String {
    format!("w{worker}")
}

/// Returns whether a worker is the one that changes what the others read.
fn is_background(has_writer: bool, scene: &Scene, worker: usize) -> bool {
    has_writer && worker > 0 && worker + 1 == scene.workers
}
