//! The model of a script, and the verdict on a recovered tree.
//!
//! | module | contents |
//! | --- | --- |
//! | [`tree`] | a whole tree, read through the library |
//! | [`history`] | the tree after each prefix of a script, and the times of its files |
//! | [`verdict`] | whether a crash during the script may have left a tree |

pub mod history;
pub mod tree;
pub mod verdict;
