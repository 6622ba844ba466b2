//! Every interleaving of small programs.

#![cfg(loom)]

mod common;
mod condvar;
mod errseq;
mod list;
mod locks;
mod percpu_list;
mod seq;
mod slot;
mod table;
