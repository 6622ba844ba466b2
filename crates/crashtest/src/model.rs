//! The model of a script, and the verdict on a recovered tree.
//!
//! | module | contents |
//! | --- | --- |
//! | [`tree`] | a whole tree, read through the library |
//! | [`history`] | the tree after each prefix of a script |
//! | [`clock`] | the times of files in a run, and those that they may have after a crash |
//! | [`verdict`] | whether a crash during the script may have left a tree |

pub mod clock;
pub mod history;
pub mod tree;
pub mod verdict;
