//! Random interleavings: of the models of tables, which loom explores as well, of sections, slabs
//! and work items.

#![cfg(shuttle)]

mod sections;
mod slabs;
#[path = "../loom/table.rs"]
mod table;
mod work;
