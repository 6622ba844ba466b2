//! The dentry cache: names, the dentries that hold them, their aliases, and the LRU lists.

pub(crate) mod aliases;
pub(crate) mod children;
pub(crate) mod climb;
pub(crate) mod dentry;
pub(crate) mod invalidate;
pub(crate) mod lru;
pub(crate) mod name;
pub(crate) mod sharded_counts;
pub(crate) mod shrink;
