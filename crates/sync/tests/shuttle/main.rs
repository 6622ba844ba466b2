//! Random interleavings of the models of tables, which loom explores as well.

#![cfg(shuttle)]

#[path = "../loom/table.rs"]
mod table;
