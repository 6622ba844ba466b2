//! The tests of mounts again, over io_uring; `common` gives this binary that transport.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "all/budgets.rs"]
mod budgets;
mod common;
#[path = "all/data.rs"]
mod data;
#[path = "all/descriptor.rs"]
mod descriptor;
#[path = "all/direct.rs"]
mod direct;
#[path = "all/locks.rs"]
mod locks;
#[path = "all/mapped.rs"]
mod mapped;
#[path = "all/names.rs"]
mod names;
#[path = "all/overlay.rs"]
mod overlay;
#[path = "all/permissions.rs"]
mod permissions;
#[path = "all/writeback.rs"]
mod writeback;
#[path = "all/xattrs.rs"]
mod xattrs;
