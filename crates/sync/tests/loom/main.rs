//! Every interleaving of small programs.

#![cfg(loom)]

mod barrier;
mod clock;
mod common;
mod condvar;
mod epoch;
mod errseq;
mod list;
mod listed;
mod locks;
mod percpu_list;
mod seq;
mod slot;
mod table;
