//! One inode: its contents on disk, its attributes and extents, and its state in memory.
//!
//! | module | contents |
//! | --- | --- |
//! | [`core`](self::core) | the inode as its record on disk has it |
//! | [`extents`] | the map of its blocks |
//! | [`blob`], [`attr`] | values that do not fit into the record; extended attributes |
//! | [`incore`] | the inode in memory, with its locks |
//! | [`orphans`] | the list of orphans |

pub mod attr;
pub mod blob;
pub mod core;
pub mod extents;
pub mod incore;
pub mod orphans;
