//! Branches that travel: a stream has what a branch has, or what it has that another one has not.
//!
//! Both are frozen while they are sent, so what has to travel are the blocks whose entries in two
//! maps differ, which are found in the time of the difference. The receiver writes them in a
//! temporary branch, which one commit makes a branch that can only be read; a power cut before that
//! leaves a temporary one, which the next opening deletes.
//!
//! Contents have a number by which other pools know them: random, given when they are first sent,
//! and that of the sender where they have come. It is in the record of a branch that can only be
//! read, so it never tells of other contents, whatever was done to a pool, or to a copy of it. The
//! receiver finds the base of a stream by it.

pub(crate) mod receive;
pub(crate) mod send;
mod stream;
#[cfg(test)]
mod tests;
