//! Allocation groups: who has which block and which inode.
//!
//! # Purpose
//!
//! A group knows its free blocks and free inodes twice: on disk, in two trees and a header that
//! only commits change, and in memory, in an index that says what can still be had. Taking
//! something from the index (a *claim*) takes a short lock of one group and no I/O, at any time and
//! in any order of groups. What a transaction then does with its claims is written into the trees
//! when it commits ([`Changes`]).

pub mod changes;
mod layout;
mod nodes;
mod run;

pub use changes::Changes;
pub use layout::Layout;
pub use nodes::GroupNodes;
