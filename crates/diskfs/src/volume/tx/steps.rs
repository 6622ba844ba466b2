//! The changes of names that a transaction makes or notes, and those that it writes.

use std::sync::Arc;

use crate::inode::delayed_names::{DelayedNames, HeldSpace, NameChange, NameStep};
use crate::inode::incore::Node;

/// A change of a name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirStep<'n> {
    pub(crate) dir: &'n Arc<Node>,
    pub(crate) name: &'n [u8],
    pub(crate) step: NameStep,
}

/// The number of links of the directory of each step, if the last step in it has changed that.
pub(crate) type DirLinks = [Option<u32>; 2];

/// A change of a name that is noted, and can be undone until the commit.
pub(super) struct Noted<'n> {
    pub(super) dir: &'n Arc<Node>,
    pub(super) names: &'n DelayedNames,
    pub(super) position: u64,
    /// Whether the name is removed there, so that the range keeps the position until the commit.
    pub(super) is_leaving: bool,
    /// The change that there was before.
    pub(super) former: Option<NameChange>,
    /// The space that this one has set aside.
    pub(super) taken: HeldSpace,
    /// The space that the former one had set aside, if the entry is as on disk now.
    pub(super) released: HeldSpace,
}

/// The delayed names that a transaction writes into their directory.
pub(super) struct Fold {
    pub(super) dir: Arc<Node>,
    pub(super) held: HeldSpace,
}
