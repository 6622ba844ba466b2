//! One inode: its record on disk, its attributes and extents, and its state in memory.
//!
//! | module | contents |
//! | --- | --- |
//! | [`core`] | the attributes and forks of the record on disk |
//! | `delayed_names` | changed entries of a directory that are in memory first |
//! | [`extents`] | the map of its data blocks |
//! | [`blob`], [`attr`] | values that do not fit into the record; extended attributes |
//! | [`incore`] | the inode in memory, with its locks |
//! | [`orphans`] | the marks of orphans, and their count |
//! | [`times`] | the times that change |

pub mod attr;
pub mod blob;
pub mod core;
pub(crate) mod delayed_names;
pub mod extents;
pub mod incore;
pub mod orphans;
pub mod times;
