//! The lists of items: committed and not in the log (CIL), in the log and not written back (AIL);
//! and of things whose changes are not logged yet.

pub(crate) mod ail;
pub(crate) mod cil;
pub mod delayed_list;
