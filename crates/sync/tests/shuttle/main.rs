//! Random interleavings: of the models of tables, which loom explores as well, and of work items.

#![cfg(shuttle)]

#[path = "../loom/table.rs"]
mod table;
mod work;
